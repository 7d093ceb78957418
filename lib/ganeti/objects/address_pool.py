"""The pool of addresses of a network.

The object of a network has two texts with a ``0`` or ``1`` for each of its addresses, in order:
``reservations`` for addresses of instances, ``ext_reservations`` for others (routers, machines
outside the cluster). The first and the last address of a network and the gateway are reserved
externally from the start. An address is free when both texts have ``0``.

A change makes a new :class:`~ganeti.objects.Network`.
"""

from __future__ import annotations

import dataclasses
import ipaddress
from collections.abc import Collection, Iterable, Iterator
from typing import Final

from ganeti import errors
from ganeti.objects.network import Network

# The published limits: from two usable addresses to 65,536 addresses in all.
SMALLEST_PREFIX: Final = 30
LARGEST_PREFIX: Final = 16
# From here on, both addresses of an IPv6 range can be used (RFC 6164).
SMALLEST_PREFIX6: Final = 127


def empty(network: Network) -> Network:
    """Return a network with new pools, in which only first, last and gateway address are taken.

    :raises AddressPoolError: it is not an IPv4 network, or too large or too small, or the gateway
        is not in it.
    """
    size = _parsed(network).num_addresses
    fresh = dataclasses.replace(
        network, reservations="0" * size, ext_reservations="1" + "0" * (size - 2) + "1"
    )
    if network.gateway is None:
        return fresh
    return AddressPool(fresh).taken([network.gateway], external=True)


class AddressPool:
    """The addresses of a network. Methods take addresses as text.

    :raises AddressPoolError: the object of the network is damaged. All methods raise this error for
        a text which is not an address, or an address outside of the network.
    """

    def __init__(self, network: Network) -> None:
        self.network = network
        self._range = _parsed(network)
        self.size = self._range.num_addresses
        self._own = network.reservations or "0" * self.size
        self._external = network.ext_reservations or "0" * self.size
        for bits in (self._own, self._external):
            if len(bits) != self.size or not set(bits) <= {"0", "1"}:
                raise errors.AddressPoolError(
                    f"network {network.name}: a pool must consist of {self.size} digits 0 or 1"
                )

    def __contains__(self, address: str) -> bool:
        try:
            self._place(address)
        except errors.AddressPoolError:
            return False
        return True

    def address(self, place: int) -> str:
        """Return the address at an index, counted from zero."""
        return str(self._range.network_address + place)

    def is_taken(self, address: str, *, external: bool) -> bool:
        """Tell whether an instance, or (``external``) another machine, has an address."""
        return (self._external if external else self._own)[self._place(address)] == "1"

    def is_free(self, address: str) -> bool:
        """Tell whether an address is free."""
        place = self._place(address)
        return self._own[place] == self._external[place] == "0"

    @property
    def taken_count(self) -> int:
        """Number of addresses which are not free."""
        return self.size - self.free_count

    @property
    def free_count(self) -> int:
        """Number of free addresses."""
        return sum(1 for _ in self.free_addresses())

    def free_addresses(self) -> Iterator[str]:
        """Iterate over the free addresses in order."""
        for place, pair in enumerate(zip(self._own, self._external, strict=True)):
            if pair == ("0", "0"):
                yield self.address(place)

    def taken_addresses(self, *, external: bool) -> list[str]:
        """Return the addresses of instances, or (``external``) of other machines."""
        bits = self._external if external else self._own
        return [self.address(place) for place, bit in enumerate(bits) if bit == "1"]

    @property
    def map(self) -> str:
        """A character for each address: ``.`` free, ``X`` taken."""
        return "".join(
            "." if pair == ("0", "0") else "X"
            for pair in zip(self._own, self._external, strict=True)
        )

    def taken(self, addresses: Iterable[str], *, external: bool = False) -> Network:
        """Return the network with these addresses taken."""
        return self._marked(addresses, "1", external)

    def released(self, addresses: Collection[str], *, external: bool = False) -> Network:
        """Return the network with these addresses free.

        :raises AddressPoolError: the first or the last address cannot become free.
        """
        if external:
            for address in addresses:
                if self._place(address) in (0, self.size - 1):
                    raise errors.AddressPoolError(
                        f"address {address} of network {self.network.name} cannot become free"
                    )
        return self._marked(addresses, "0", external)

    def _marked(self, addresses: Iterable[str], bit: str, external: bool) -> Network:
        bits = list(self._external if external else self._own)
        for address in addresses:
            bits[self._place(address)] = bit
        text = "".join(bits)
        if external:
            return dataclasses.replace(self.network, ext_reservations=text)
        return dataclasses.replace(self.network, reservations=text)

    def _place(self, address: str) -> int:
        try:
            parsed = ipaddress.IPv4Address(address)
        except ValueError:
            raise errors.AddressPoolError(f"'{address}' is not an IPv4 address") from None
        place = int(parsed) - int(self._range.network_address)
        if not 0 <= place < self.size:
            raise errors.AddressPoolError(
                f"address {address} is not in network {self.network.name} ({self.network.network})"
            )
        return place


class Ipv6Range:
    """The IPv6 addresses of a network.

    There are too many to mark them: which instances have is in their interfaces, and nobody gets
    the first one, which belongs to all routers (RFC 4291, 2.6.1), the gateway, or those which are
    reserved for other machines: addresses and ranges of addresses.

    :raises AddressPoolError: the network has no IPv6 range, or a damaged one; methods raise it for
        a text which is not an IPv6 address of the range.
    """

    def __init__(self, network: Network) -> None:
        self.network = network
        if network.network6 is None:
            raise errors.AddressPoolError(
                f"network {network.name} has no IPv6 range. Give it one with 'gnt-network modify"
                f" --network6=ADDRESS/BITS {network.name}'."
            )
        try:
            self._range = ipaddress.IPv6Network(network.network6, strict=False)
            gateways = [] if network.gateway6 is None else [network.gateway6]
            blocks = [ipaddress.IPv6Network(text) for text in (*gateways, *network.reserved6)]
        except ValueError as err:
            raise errors.AddressPoolError(f"network {network.name}: {err}") from err
        if self._range.prefixlen < SMALLEST_PREFIX6:
            blocks.append(ipaddress.IPv6Network(self._range.network_address))
        self._reserved = list(ipaddress.collapse_addresses(blocks))

    def checked(self, address: str) -> str:
        """Return an address in its usual form, if an instance may have it."""
        try:
            parsed = ipaddress.IPv6Address(address)
        except ValueError:
            raise errors.AddressPoolError(f"'{address}' is not an IPv6 address") from None
        if parsed not in self._range:
            raise errors.AddressPoolError(
                f"address {parsed} is not in network {self.network.name} ({self._range})"
            )
        return str(parsed)

    def block(self, text: str) -> str:
        """Return an address, or a range ``ADDRESS/BITS``, of the network in its usual form."""
        try:
            found = ipaddress.IPv6Network(text)
        except ValueError as err:
            raise errors.AddressPoolError(
                f"'{text}' is neither an IPv6 address nor a range of them: {err}"
            ) from None
        if not found.subnet_of(self._range):
            raise errors.AddressPoolError(
                f"address {text} is not in network {self.network.name} ({self._range})"
            )
        return str(found.network_address) if found.num_addresses == 1 else str(found)

    def covers(self, block: str, address: str) -> bool:
        """Tell whether an address is in a block, as :meth:`block` returns it."""
        return ipaddress.IPv6Address(address) in ipaddress.IPv6Network(block)

    def is_reserved(self, address: str) -> bool:
        """Tell whether an address is that of routers or the gateway, or of another machine."""
        return any(ipaddress.IPv6Address(address) in block for block in self._reserved)

    def addresses(self) -> Iterator[str]:
        """Iterate over the addresses which instances may have, in order.

        A reserved range is passed over at once, because it may have more addresses than a
        computer can count.
        """
        place, last = int(self._range.network_address), int(self._range.broadcast_address)
        for block in self._reserved:
            while place < min(int(block.network_address), last + 1):
                yield str(ipaddress.IPv6Address(place))
                place += 1
            place = max(place, int(block.broadcast_address) + 1)
        while place <= last:
            yield str(ipaddress.IPv6Address(place))
            place += 1


def _parsed(network: Network) -> ipaddress.IPv4Network:
    try:
        found = ipaddress.IPv4Network(network.network)
    except ValueError as err:
        raise errors.AddressPoolError(
            f"network {network.name}: '{network.network}' is not an IPv4 network: {err}"
        ) from None
    if not LARGEST_PREFIX <= found.prefixlen <= SMALLEST_PREFIX:
        raise errors.AddressPoolError(
            f"network {network.name}: the prefix of {network.network} must be from "
            f"/{LARGEST_PREFIX} to /{SMALLEST_PREFIX}"
        )
    return found
