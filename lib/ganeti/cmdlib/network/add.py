"""Adding, removing and renaming a network."""

from __future__ import annotations

import ipaddress

from ganeti import errors
from ganeti.cmdlib import prereq
from ganeti.cmdlib.base import LogicalUnit, executes
from ganeti.cmdlib.group.add import require_new_name
from ganeti.cmdlib.network import checks
from ganeti.cmdlib.network.checks import NetworkHooks
from ganeti.locking import Level
from ganeti.objects import Network, NodeGroup, updated
from ganeti.objects.address_pool import AddressPool, empty
from ganeti.opcodes.network import OpNetworkAdd, OpNetworkRemove, OpNetworkRename


@executes(OpNetworkAdd)
class LUNetworkAdd(LogicalUnit):
    """Add a network with a pool of addresses.

    Its first and last address, its gateway and what the user names are reserved; so are, unless the
    check for conflicts is off, the addresses of the cluster's nodes and its master.
    """

    op: OpNetworkAdd
    HOOKS = NetworkHooks("network-add")

    def expand_names(self) -> None:
        prereq.require_tags(self.op.tags)
        self.uuid = self.config.new_uuid(self.ctx.ec_id)
        self.need_new(Level.NETWORK, self.uuid)
        if self.op.conflicts_check:
            self.need(Level.NODE, None, shared=True)

    def hook_env(self, plan: Network) -> dict[str, object]:
        return checks.network_env(plan)

    def hook_nodes(self, plan: Network) -> tuple[list[str], list[str]]:
        return checks.master_only(self)

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
            tags=tuple(sorted(set(op.tags))),
            uuid=self.uuid,
            serial_no=1,
        )
        try:
            network = empty(network)
            network = AddressPool(network).taken(op.add_reserved_ips or (), external=True)
            if op.conflicts_check:
                network = AddressPool(network).taken(self._own_addresses(network), external=True)
        except errors.AddressPoolError as err:
            raise errors.OpPrereqError(str(err), errors.ECODE_INVAL) from err
        return network

    def _own_addresses(self, network: Network) -> list[str]:
        """Addresses of the cluster itself which lie in the network."""
        pool = AddressPool(network)
        cluster = self.config.cluster()
        found = [(cluster.master_ip, "the master")]
        for node in self.config.nodes():
            found += [(ip, f"node {node.name}") for ip in {node.primary_ip, node.secondary_ip}]
        inside = [(ip, owner) for ip, owner in found if ip in pool]
        for ip, owner in sorted(inside):
            self.info(f"address {ip} of {owner} is reserved")
        return [ip for ip, _owner in inside]

    def exec(self, plan: Network) -> None:
        self.config.add_network(plan, self.ctx.ec_id)


@executes(OpNetworkRemove)
class LUNetworkRemove(LogicalUnit):
    """Remove a network; with ``force`` it is disconnected from all groups first."""

    op: OpNetworkRemove
    HOOKS = NetworkHooks("network-remove")

    def expand_names(self) -> None:
        self.network = self.config.expand_network(self.op.network_name)
        if self.op.force:
            self.need(Level.NODEGROUP, [group.uuid for group in self._groups()])
        self.need(Level.NETWORK, [self.network.uuid])

    def _groups(self) -> list[NodeGroup]:
        return [g for g in self.config.groups() if self.network.uuid in g.networks]

    def hook_env(self, plan: Network) -> dict[str, object]:
        return {"NETWORK_NAME": self.network.name}

    def hook_nodes(self, plan: Network) -> tuple[list[str], list[str]]:
        return checks.master_only(self)

    def check_prereq(self) -> Network:
        network = self.config.network(self.network.uuid)
        users = checks.users(self, network.uuid)
        if users:
            raise errors.OpPrereqError(
                f"network {network.name} is used by instances {checks.listed(users)}",
                errors.ECODE_STATE,
            )
        groups = self._groups()
        if groups and not self.op.force:
            names = ", ".join(group.name for group in groups)
            raise errors.OpPrereqError(
                f"network {network.name} is connected to node groups {names}. Disconnect it, or"
                " use --force.",
                errors.ECODE_STATE,
            )
        if groups and not {g.uuid for g in groups} <= self.owned(Level.NODEGROUP):
            raise errors.OpPrereqError(
                f"network {network.name} was connected to another node group while the job"
                " waited. Please retry.",
                errors.ECODE_STATE,
            )
        return network

    def exec(self, plan: Network) -> None:
        with self.config.transaction() as change:
            for group in self._groups():
                networks = {
                    uuid: params for uuid, params in group.networks.items() if uuid != plan.uuid
                }
                change.update_group(updated(group, networks=networks))
            change.remove_network(plan.uuid)


@executes(OpNetworkRename)
class LUNetworkRename(LogicalUnit):
    """Give a network another name."""

    op: OpNetworkRename
    HOOKS = NetworkHooks("network-rename")

    def expand_names(self) -> None:
        self.network = self.config.expand_network(self.op.network_name)
        self.need(Level.NETWORK, [self.network.uuid])

    def hook_env(self, plan: Network) -> dict[str, object]:
        return {"OLD_NAME": self.network.name, "NEW_NAME": self.op.new_name}

    def hook_nodes(self, plan: Network) -> tuple[list[str], list[str]]:
        groups = {g.uuid for g in self.config.groups() if self.network.uuid in g.networks}
        nodes = [node.uuid for node in self.config.nodes() if node.group in groups]
        everybody = [self.config.master_node().uuid, *nodes]
        return everybody, everybody

    def check_prereq(self) -> Network:
        require_new_name(self.config, self.op.new_name, "network")
        return self.config.network(self.network.uuid)

    def exec(self, plan: Network) -> str:
        self.config.update_network(updated(plan, name=self.op.new_name))
        return self.op.new_name
