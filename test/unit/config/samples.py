"""A small cluster with proper UUIDs, so that the self-check finds nothing in it."""

from __future__ import annotations

import dataclasses
import hashlib
from typing import Any

from ganeti import ht
from ganeti.constants import cluster as cluster_const
from ganeti.constants import disk as disk_const
from ganeti.constants.instance import BE_DEFAULTS
from ganeti.constants.net import NIC_DEFAULTS
from ganeti.constants.node import ND_DEFAULTS
from ganeti.objects import (
    Cluster,
    ConfigData,
    Disk,
    Instance,
    Network,
    Nic,
    Node,
    NodeGroup,
    disk_templates,
    hvparams,
    ipolicy,
)


def uuid_of(name: str) -> str:
    digits = hashlib.sha256(name.encode()).hexdigest()
    return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:32]}"


def node_of(number: int, **changes: Any) -> Node:
    address = f"192.0.2.{number}"
    return dataclasses.replace(
        Node(
            name=f"node{number}.example.com",
            primary_ip=address,
            secondary_ip=address,
            master_candidate=True,
            offline=False,
            drained=False,
            group=uuid_of("default"),
            master_capable=True,
            vm_capable=True,
            ndparams={},
            powered=True,
            uuid=uuid_of(f"node{number}"),
            serial_no=1,
        ),
        **changes,
    )


def group_of(number: int, **changes: Any) -> NodeGroup:
    return dataclasses.replace(
        NodeGroup(
            name=f"group{number}",
            ndparams={},
            alloc_policy="preferred",
            ipolicy={},
            diskparams={},
            networks={},
            uuid=uuid_of(f"group{number}"),
            serial_no=1,
        ),
        **changes,
    )


def network_of(number: int, **changes: Any) -> Network:
    return dataclasses.replace(
        Network(
            name=f"net{number}",
            network=f"198.51.{number}.0/30",
            reservations="0000",
            ext_reservations="1001",
            uuid=uuid_of(f"net{number}"),
            serial_no=1,
        ),
        **changes,
    )


def disk_of(number: int, index: int = 0, **changes: Any) -> Disk:
    uuid = uuid_of(f"instance{number}-disk{index}")
    return dataclasses.replace(
        Disk(
            dev_type=disk_const.FILE,
            nodes=(uuid_of("node1"),),
            iv_name=f"disk/{index}",
            size=1024,
            logical_id=(
                "loop",
                f"/srv/ganeti/file-storage/instance{number}/{uuid}.file.disk{index}",
            ),
            uuid=uuid,
            serial_no=1,
        ),
        **changes,
    )


def instance_of(number: int, **changes: Any) -> Instance:
    """An instance on node1 with one NIC; instance 1 has one disk."""
    return dataclasses.replace(
        Instance(
            name=f"instance{number}.example.com",
            primary_node=uuid_of("node1"),
            os="noop",
            hypervisor="fake",
            admin_state="down",
            admin_state_source="admin",
            disks_active=False,
            nics=(
                Nic(
                    mac=f"aa:00:00:00:{number // 256:02x}:{number % 256:02x}",
                    nicparams={},
                    uuid=uuid_of(f"instance{number}-nic"),
                ),
            ),
            disks=(disk_of(number).uuid,) if number == 1 else (),
            uuid=uuid_of(f"instance{number}"),
            serial_no=1,
        ),
        **changes,
    )


def small_cluster(
    nodes: int = 3, node_changes: dict[int, dict[str, Any]] | None = None, **changes: Any
) -> ConfigData:
    """Nodes in one group; the first is the master. :param changes: of the cluster object."""
    members = [
        node_of(number, **(node_changes or {}).get(number, {})) for number in range(1, nodes + 1)
    ]
    cluster = Cluster(
        serial_no=1,
        rsahostkeypub="",
        highest_used_port=11000,
        tcpudp_port_pool=(),
        mac_prefix="aa:00:00",
        reserved_lvs=(),
        master_node=members[0].uuid,
        master_ip="192.0.2.250",
        master_netdev="lo",
        master_netmask=32,
        use_external_mip_script=False,
        cluster_name="cluster.example.com",
        file_storage_dir="/srv/ganeti/file-storage",
        shared_file_storage_dir="/srv/ganeti/shared-file-storage",
        gluster_storage_dir="",
        enabled_hypervisors=("fake",),
        hvparams={name: hvparams.defaults(name) for name in hvparams.TABLES},
        os_hvp={},
        beparams={"default": dict(BE_DEFAULTS)},
        osparams={},
        osparams_private_cluster=ht.PrivateDict(),
        nicparams={"default": dict(NIC_DEFAULTS)},
        ndparams=dict(ND_DEFAULTS),
        diskparams={name: dict(disk_templates.defaults(name)) for name in disk_templates.ALL},
        candidate_pool_size=10,
        modify_etc_hosts=False,
        modify_ssh_setup=False,
        maintain_node_health=False,
        uid_pool=(),
        default_iallocator="",
        default_iallocator_params={},
        hidden_os=(),
        blacklisted_os=(),
        primary_ip_family=2,
        prealloc_wipe_disks=False,
        ipolicy=ipolicy.defaults(),
        enabled_disk_templates=(disk_const.DISKLESS, disk_const.FILE),
        candidate_certs={members[0].uuid: "AA:BB"},
        max_running_jobs=20,
        max_tracked_jobs=25,
        install_image="",
        instance_communication_network="",
        zeroing_image="",
        compression_tools=(),
        enabled_user_shutdown=False,
        data_collectors={},
        ssh_key_type="rsa",
        ssh_key_bits=2048,
        uuid=uuid_of("cluster"),
    )
    group = group_of(0, name="default", uuid=uuid_of("default"))
    return ConfigData(
        version=cluster_const.CONFIG_VERSION,
        cluster=dataclasses.replace(cluster, **changes),
        nodes={node.uuid: node for node in members},
        nodegroups={group.uuid: group},
        instances={},
        networks={},
        disks={},
        filters={},
        serial_no=1,
    )
