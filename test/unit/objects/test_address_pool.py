"""Arithmetic of address pools."""

from __future__ import annotations

import ipaddress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ganeti import errors
from ganeti.objects import Network
from ganeti.objects.address_pool import AddressPool, empty


def network(cidr: str = "192.0.2.0/29", **changes: Any) -> Network:
    return Network(name="net", network=cidr, uuid="u", serial_no=1, **changes)


def test_a_fresh_network() -> None:
    made = empty(network(gateway="192.0.2.1"))
    assert (made.reservations, made.ext_reservations) == ("00000000", "11000001")
    pool = AddressPool(made)
    assert (pool.size, pool.free_count, pool.taken_count, pool.map) == (8, 5, 3, "XX.....X")
    assert list(pool.free_addresses())[0] == "192.0.2.2"
    assert pool.taken_addresses(external=True) == ["192.0.2.0", "192.0.2.1", "192.0.2.7"]


def test_taking_and_giving_back() -> None:
    made = AddressPool(empty(network())).taken(["192.0.2.3", "192.0.2.1"])
    pool = AddressPool(made)
    assert pool.is_taken("192.0.2.3", external=False)
    assert not pool.is_taken("192.0.2.3", external=True)
    assert not pool.is_free("192.0.2.3")
    assert pool.taken_addresses(external=False) == ["192.0.2.1", "192.0.2.3"]
    assert pool.released(["192.0.2.3", "192.0.2.1"]) == empty(network())
    outside = AddressPool(pool.taken(["192.0.2.4"], external=True))
    assert outside.map == "XX.XX..X"
    assert outside.released(["192.0.2.4"], external=True) == made
    for address in ("192.0.2.0", "192.0.2.7"):
        with pytest.raises(errors.AddressPoolError, match="cannot become free"):
            outside.released([address], external=True)


def test_without_pools_all_is_free() -> None:
    assert AddressPool(network()).map == "........"


@pytest.mark.parametrize("address", ["192.0.2.8", "192.0.1.255", "", "x", "192.0.2", "::1"])
def test_addresses_from_elsewhere(address: str) -> None:
    pool = AddressPool(empty(network()))
    assert address not in pool
    for action in (pool.is_free, lambda one: pool.taken([one]), lambda one: pool.released([one])):
        with pytest.raises(errors.AddressPoolError):
            action(address)


@pytest.mark.parametrize(
    ("made", "message"),
    [
        (network("192.0.2.0/31"), "from /16 to /30"),
        (network("10.0.0.0/15"), "from /16 to /30"),
        (network("192.0.2.1/24"), "is not an IPv4 network"),
        (network("2001:db8::/64"), "is not an IPv4 network"),
        (network(reservations="0"), "consist of 8 digits 0 or 1"),
        (network(ext_reservations="0000000x"), "consist of 8 digits 0 or 1"),
    ],
)
def test_networks_which_are_none(made: Network, message: str) -> None:
    with pytest.raises(errors.AddressPoolError, match=message):
        AddressPool(made)


@given(st.integers(22, 30), st.data())
def test_counts_and_map_agree(prefix: int, data: st.DataObject) -> None:
    cidr = f"10.1.0.0/{prefix}"
    hosts = [str(address) for address in ipaddress.IPv4Network(cidr)]
    own = data.draw(st.sets(st.sampled_from(hosts)))
    others = data.draw(st.sets(st.sampled_from(hosts)))
    pool = AddressPool(
        AddressPool(AddressPool(empty(network(cidr))).taken(own)).taken(others, external=True)
    )
    taken = own | others | {hosts[0], hosts[-1]}
    assert set(pool.free_addresses()) == set(hosts) - taken
    assert pool.free_count + pool.taken_count == pool.size == len(hosts)
    assert pool.map == "".join("X" if host in taken else "." for host in hosts)
    assert AddressPool(pool.released(own)).taken_addresses(external=False) == []
