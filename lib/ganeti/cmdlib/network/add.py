"""Adding a network."""

from __future__ import annotations

import ipaddress

from ganeti import errors
from ganeti.cmdlib import prereq
from ganeti.cmdlib.base import LogicalUnit, executes
from ganeti.cmdlib.ops.group.hooks import require_new_name
from ganeti.cmdlib.ops.network import checks
from ganeti.cmdlib.ops.network.checks import NetworkHooks
from ganeti.locking import Level
from ganeti.objects import Network
from ganeti.objects.address_pool import AddressPool, empty
from ganeti.opcodes.network import OpNetworkAdd


@executes(OpNetworkAdd)
class LUNetworkAdd(LogicalUnit[OpNetworkAdd, Network]):
    """Add a network with a pool of addresses.

    The first and the last address, the gateway and the addresses in the request are reserved. With
    the check for conflicts the addresses of the nodes and the master address are reserved, too.
    """

    HOOKS = NetworkHooks("network-add")

    def expand_names(self) -> None:
        prereq.require_tags(self.op.tags)
        self.uuid = self.config.new_uuid()
        self.need_new(Level.NETWORK, self.uuid)
        if self.op.conflicts_check:
            self.need(Level.NODE, None, shared=True)

    def hook_env(self, plan: Network) -> dict[str, object]:
        return checks.network_env(plan)

    def hook_nodes(self, plan: Network) -> tuple[list[str], list[str]]:
        return checks.master_only(self.config)

    def check_prereq(self) -> Network:
        op = self.op
        require_new_name(self.config, op.network_name, "network")
        checks.check_ipv6(op.network6, op.gateway6)
        network = Network(
            name=op.network_name,
            network=str(ipaddress.IPv4Interface(op.network).network),
            gateway=op.gateway,
            network6=op.network6,
            gateway6=op.gateway6,
            mac_prefix=checks.mac_prefix(op.mac_prefix),
            isolated=None if op.conflicts_check else True,
            tags=tuple(sorted(set(op.tags))),
            uuid=self.uuid,
            serial_no=1,
        )
        try:
            network = empty(network)
            network = AddressPool(network).taken(op.add_reserved_ips or (), external=True)
            network = checks.reserved6(network, op.add_reserved_ips6 or ())
            if op.conflicts_check:
                network = AddressPool(network).taken(self._own_addresses(network), external=True)
        except errors.AddressPoolError as err:
            raise errors.OpPrereqError(str(err), errors.ECODE_INVAL) from err
        for other in self.config.networks():
            checks.warn_of_overlap(self.log, network, other)
        return network

    def _own_addresses(self, network: Network) -> list[str]:
        """Return the addresses of the master and the nodes which are in the network."""
        pool = AddressPool(network)
        cluster = self.config.cluster()
        found = [(cluster.master_ip, "the master")]
        for node in self.config.nodes():
            found += [(ip, f"node {node.name}") for ip in {node.primary_ip, node.secondary_ip}]
        inside = [(ip, owner) for ip, owner in found if ip in pool]
        for ip, owner in sorted(inside):
            self.log.info(f"address {ip} of {owner} is reserved")
        return [ip for ip, _owner in inside]

    def exec(self, plan: Network) -> None:
        with self.config.transaction() as change:
            change.networks.add(plan)
