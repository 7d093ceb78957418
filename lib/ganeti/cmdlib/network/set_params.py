"""Changing a network: gateway, IPv6, prefix of MAC addresses, reserved addresses."""

from __future__ import annotations

import dataclasses
import ipaddress

from ganeti import errors
from ganeti.cmdlib.base import LogicalUnit, executes
from ganeti.cmdlib.ops.network import checks
from ganeti.cmdlib.ops.network.checks import NetworkHooks
from ganeti.locking import Level
from ganeti.objects import Network, updated
from ganeti.objects.address_pool import AddressPool, Ipv6Range
from ganeti.opcodes.network import OpNetworkSetParams


@executes(OpNetworkSetParams)
class LUNetworkSetParams(LogicalUnit[OpNetworkSetParams, Network]):
    """Change a network; the NICs of existing instances are not changed."""

    HOOKS = NetworkHooks("network-modify")

    def expand_names(self) -> None:
        op = self.op
        values = (
            op.gateway,
            op.network6,
            op.gateway6,
            op.mac_prefix,
            op.add_reserved_ips,
            op.remove_reserved_ips,
            op.add_reserved_ips6,
            op.remove_reserved_ips6,
        )
        if not any(values) and op.conflicts_check is None:
            raise errors.OpPrereqError("no change is given", errors.ECODE_INVAL)
        added = (*(op.add_reserved_ips or ()), *(op.add_reserved_ips6 or ()))
        released = (*(op.remove_reserved_ips or ()), *(op.remove_reserved_ips6 or ()))
        twice = sorted(set(added) & set(released))
        if twice:
            raise errors.OpPrereqError(
                f"addresses {', '.join(twice)} are to be both reserved and released",
                errors.ECODE_INVAL,
            )
        self.network = self.config.expand_network(op.network_name)
        self.need(Level.NETWORK, [self.network.uuid])

    def hook_env(self, plan: Network) -> dict[str, object]:
        return checks.network_env(self.config.network(self.network.uuid))

    def hook_nodes(self, plan: Network) -> tuple[list[str], list[str]]:
        return checks.master_only(self.config)

    def check_prereq(self) -> Network:
        return self._changed(self.config.network(self.network.uuid))

    def exec(self, plan: Network) -> None:
        # Jobs about instances take and release addresses without this lock, so the change is
        # computed from the present network inside the transaction.
        with self.config.transaction() as change:
            change.networks.update(self._changed(change.data.networks[plan.uuid], quiet=True))

    def _changed(self, network: Network, *, quiet: bool = False) -> Network:
        """Return the network after the change.

        :param quiet: no warnings about addresses which need no change.
        :raises errors.OpPrereqError: the change is not possible.
        """
        op = self.op
        try:
            network6 = op.network6 or network.network6
            gateway6 = op.gateway6 or network.gateway6
            checks.check_ipv6(network6, gateway6)
            new = self._with_gateway(network)
            new = self._with_reserved(new, quiet)
            new = self._with_released(new, quiet)
            new = dataclasses.replace(new, network6=network6, gateway6=gateway6)
            new = self._with_ipv6_changes(new, quiet)
        except errors.AddressPoolError as err:
            raise errors.OpPrereqError(str(err), errors.ECODE_INVAL) from err
        check = op.conflicts_check
        return updated(
            new,
            isolated=network.isolated if check is None else None if check else True,
            mac_prefix=checks.mac_prefix(op.mac_prefix, network.mac_prefix),
        )

    def _with_gateway(self, network: Network) -> Network:
        gateway = self.op.gateway
        if gateway is None or gateway == network.gateway:
            return network
        pool = AddressPool(network)
        if pool.is_taken(gateway, external=False):
            raise errors.OpPrereqError(
                f"address {gateway} of network {network.name} belongs to an instance and cannot"
                " be the gateway",
                errors.ECODE_STATE,
            )
        if network.gateway is not None:
            pool = AddressPool(pool.released([network.gateway], external=True))
        return updated(
            pool.taken([gateway], external=True), gateway=gateway, serial_no=network.serial_no
        )

    def _with_reserved(self, network: Network, quiet: bool) -> Network:
        pool = AddressPool(network)
        for address in self.op.add_reserved_ips or ():
            if pool.is_taken(address, external=True) and not quiet:
                self.log.warn(f"address {address} of network {network.name} is reserved already")
            elif pool.is_taken(address, external=False) and not quiet:
                self.log.warn(
                    f"address {address} of network {network.name} belongs to an instance, which"
                    " keeps it"
                )
        return pool.taken(self.op.add_reserved_ips or (), external=True)

    def _with_ipv6_changes(self, network: Network, quiet: bool) -> Network:
        """Reserve and release IPv6 addresses and ranges of the network, as it will be."""
        given, released = self.op.add_reserved_ips6 or (), self.op.remove_reserved_ips6 or ()
        known = network.reserved6
        if not (known or given or released):
            return network
        pool = Ipv6Range(dataclasses.replace(network, ext_reservations6=None))
        gone, present = set(map(_form, released)), set(map(_form, known))
        if not quiet:
            for text in released:
                if _form(text) not in present:
                    self.log.warn(
                        f"address {text} of network {network.name} is not reserved as such"
                    )
            for text in given:
                self._warn_about(network, pool, pool.block(text))
        kept = [one for one in known if _form(one) not in gone]
        return checks.reserved6(network, [*kept, *given])

    def _warn_about(self, network: Network, pool: Ipv6Range, block: str) -> None:
        if block in network.reserved6:
            self.log.warn(f"address {block} of network {network.name} is reserved already")
        for instance in self.config.instances():
            for nic in instance.nics:
                if nic.network != network.uuid:
                    continue
                for address in (nic.ip, nic.ip6):
                    if address and ":" in address and pool.covers(block, address):
                        self.log.warn(
                            f"address {address} of network {network.name} belongs to instance"
                            f" {instance.name}, which keeps it"
                        )

    def _with_released(self, network: Network, quiet: bool) -> Network:
        pool = AddressPool(network)
        found = []
        for address in self.op.remove_reserved_ips or ():
            if address == network.gateway:
                if not quiet:
                    self.log.warn(
                        f"address {address} of network {network.name} is its gateway and stays"
                        " reserved"
                    )
            elif not pool.is_taken(address, external=True):
                if not quiet:
                    self.log.warn(f"address {address} of network {network.name} is not reserved")
            else:
                found.append(address)
        return pool.released(found, external=True)


def _form(block: str) -> str:
    """Return an IPv6 address or range in one form, whether it is in the network or not."""
    return str(ipaddress.IPv6Network(block, strict=False))
