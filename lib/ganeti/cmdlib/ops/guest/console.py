"""The console of an instance: a command to run on its node, the address of a viewer, or a message.

It follows from the configuration and from the places of files on a node, so no node is asked. The
descriptor of each hypervisor (:mod:`ganeti.objects.hypervisors`) says which console it has.
"""

from __future__ import annotations

from typing import Any

from ganeti.objects import ConfigData, Instance, codec, fill, hypervisors
from ganeti.objects.hypervisors.descriptor import ConsoleRequest


def describe(config: ConfigData, instance: Instance) -> dict[str, Any]:
    """Return the console of an instance, as an ``InstanceConsole`` in its published form."""
    node = config.nodes[instance.primary_node]
    params = fill.fill_nd(config.cluster, config.nodegroups[node.group], node)
    request = ConsoleRequest(
        instance=instance,
        hvparams=fill.instance_hv(config.cluster, instance),
        node_name=node.name,
        ssh_port=params["ssh_port"],
    )
    return codec.to_dict(hypervisors.of(instance.hypervisor).console(request).check())
