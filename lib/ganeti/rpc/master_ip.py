"""Activate and deactivate the address of the master, with calls to its node."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ganeti.objects import MasterNetworkParameters
from ganeti.wire.calls import NODE_ACTIVATE_MASTER_IP, NODE_DEACTIVATE_MASTER_IP

if TYPE_CHECKING:
    from typing import Any

    from ganeti.objects import ConfigData
    from ganeti.rpc.results import Failure
    from ganeti.rpc.runner import AddressRunner, RpcRunner
    from ganeti.wire.calls import Call


def parameters(data: ConfigData, node_uuid: str) -> dict[str, Any]:
    """Return the arguments of the calls which activate and deactivate the address."""
    cluster = data.cluster
    return {
        "master_params": MasterNetworkParameters(
            uuid=node_uuid,
            ip=cluster.master_ip,
            netmask=cluster.master_netmask,
            netdev=cluster.master_netdev,
            ip_family=cluster.primary_ip_family,
        ),
        "use_external_mip_script": cluster.use_external_mip_script,
    }


def activate_master_ip(runner: RpcRunner, data: ConfigData) -> Failure | None:
    """Activate the address on the master node; return the failure, or None."""
    return _call(runner, NODE_ACTIVATE_MASTER_IP, data)


def deactivate_master_ip(runner: RpcRunner, data: ConfigData) -> Failure | None:
    """Deactivate the address on the master node; return the failure, or None."""
    return _call(runner, NODE_DEACTIVATE_MASTER_IP, data)


def _call(runner: RpcRunner, call: Call, data: ConfigData) -> Failure | None:
    master = data.cluster.master_node
    return runner.call(call, master, **parameters(data, master)).failure


def take_down_at(runner: AddressRunner, data: ConfigData, node_uuid: str) -> Failure | None:
    """Deactivate the address on the former master node; return the failure, or None."""
    node = data.nodes[node_uuid]
    return runner.call_addresses(
        NODE_DEACTIVATE_MASTER_IP, {node.name: node.primary_ip}, **parameters(data, node_uuid)
    )[node.name].failure
