"""Networks: address pools to which node groups are connected."""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Network:
    """A network.

    ``reservations`` and ``ext_reservations`` have a ``0`` or ``1`` for each address, in order; see
    :mod:`ganeti.objects.address_pool`.

    ``ext_reservations6`` has the IPv6 addresses, and the ranges as ``ADDRESS/BITS``, which belong
    to machines outside of the cluster; None for none.

    ``isolated`` is True for a network which has nothing in common with the network of the nodes:
    the same address is another one there. It was added with ``conflicts_check=False``.
    """

    name: str
    network: str
    network6: str | None = None
    gateway: str | None = None
    gateway6: str | None = None
    mac_prefix: str | None = None
    reservations: str | None = None
    ext_reservations: str | None = None
    ext_reservations6: tuple[str, ...] | None = None
    isolated: bool | None = None
    ctime: float = 0
    mtime: float = 0
    uuid: str
    serial_no: int
    tags: tuple[str, ...] = ()

    @property
    def reserved6(self) -> tuple[str, ...]:
        """The IPv6 addresses and ranges which are reserved for machines outside of the cluster."""
        return self.ext_reservations6 or ()
