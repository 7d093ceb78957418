"""A second cluster, which shares nothing with the one of :func:`test.fakes.config.cluster_of`."""

from __future__ import annotations

import dataclasses
from typing import Any

from ganeti.objects import ConfigData, Nic
from test.fakes.config import GROUP, cluster_of, instance_of, uuid_of

GROUP_2 = "22222222-2222-4222-8222-222222222222"


def second(*names: str, nodes: int = 2, **changes: Any) -> ConfigData:
    """A cluster whose nodes are node11 and so on, in the group "default" with another UUID."""
    base = cluster_of(nodes)
    numbers = range(11, 11 + nodes)
    members = {}
    for number, node in zip(numbers, base.nodes.values(), strict=True):
        uuid = uuid_of(f"node{number}")
        members[uuid] = dataclasses.replace(
            node,
            name=f"node{number}.example.com",
            uuid=uuid,
            primary_ip=f"192.0.2.{number}",
            secondary_ip=f"192.0.2.{number}",
            group=GROUP_2,
        )
    instances = [
        dataclasses.replace(
            instance_of(name, "node11"),
            nics=(Nic(mac=f"aa:00:01:00:00:{place:02x}", nicparams={}, uuid=f"nic-{name}"),),
        )
        for place, name in enumerate(names)
    ]
    return dataclasses.replace(
        base,
        cluster=dataclasses.replace(
            base.cluster,
            **{
                "uuid": "cluster-2",
                "cluster_name": "second.example.com",
                "master_ip": "192.0.2.200",
                "master_node": uuid_of("node11"),
                **changes,
            },
        ),
        nodes=members,
        nodegroups={
            GROUP_2: dataclasses.replace(base.nodegroups[GROUP], uuid=GROUP_2, networks={})
        },
        instances={one.uuid: one for one in instances},
    )
