"""IPv6 addresses and ranges which are reserved for machines outside of the cluster."""

from __future__ import annotations

import dataclasses
import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ganeti import errors
from ganeti.config import upgrade, verify
from ganeti.objects import Network, codec
from ganeti.objects.address_pool import Ipv6Range
from ganeti.opcodes.network import OpNetworkAdd, OpNetworkSetParams

from .test_ipv6 import LAN, PREFIX, create, master_of, modify, nic_of, problems


def change(**values):
    return OpNetworkSetParams(network_name="lan", **values)


def test_an_address_which_is_reserved():
    """It is not given, and refused when it is named, as one of IPv4 is."""
    master = master_of()
    master.run(change(add_reserved_ips6=[f"{PREFIX}1", f"{PREFIX}0:3"]))
    lan = master.config.network(LAN)
    assert lan.reserved6 == (f"{PREFIX}1", f"{PREFIX}3")
    master.run(create({"ip6": "pool"}))
    # The second one is the gateway.
    assert nic_of(master).ip6 == f"{PREFIX}4"
    text = master.refused(create({"ip": f"{PREFIX}3"}, name="db"), errors.ECODE_NOTUNIQUE)
    assert f"address {PREFIX}3 of network lan is already in use, or reserved" in text
    text = master.refused(modify((0, {"ip6": f"{PREFIX}1"})), errors.ECODE_NOTUNIQUE)
    assert f"address {PREFIX}1 of network lan is already in use, or reserved" in text
    # As with IPv4, somebody who knows it can give it.
    master.run(create({"ip": f"{PREFIX}3"}, name="db", conflicts_check=False))
    assert problems(master) == []


def test_a_range_of_more_addresses_than_can_be_counted():
    master = master_of()
    master.run(change(add_reserved_ips6=[f"{PREFIX}/65"]))
    master.run(create({"ip6": "pool"}))
    assert nic_of(master).ip6 == "2001:db8:1:0:8000::"


def test_what_was_reserved_is_released():
    master = master_of()
    master.run(change(add_reserved_ips6=[f"{PREFIX}1", f"{PREFIX}100/120"]))
    master.run(change(remove_reserved_ips6=[f"{PREFIX}0:1"], add_reserved_ips6=[f"{PREFIX}7"]))
    assert master.config.network(LAN).reserved6 == (f"{PREFIX}7", f"{PREFIX}100/120")
    master.run(change(remove_reserved_ips6=[f"{PREFIX}105"]))
    assert master.job.said(f"address {PREFIX}105 of network lan is not reserved as such")
    master.run(change(remove_reserved_ips6=[f"{PREFIX}7", f"{PREFIX}100/120"]))
    assert master.config.network(LAN).ext_reservations6 is None


def test_an_instance_keeps_its_address():
    master = master_of()
    master.run(create({"ip6": f"{PREFIX}ab"}))
    master.run(change(add_reserved_ips6=[f"{PREFIX}a0/124"]))
    assert master.job.said(f"address {PREFIX}ab of network lan belongs to instance web.example.com")
    assert nic_of(master).ip6 == f"{PREFIX}ab"
    master.run(change(add_reserved_ips6=[f"{PREFIX}a0/124"]))
    assert master.job.said(f"address {PREFIX}a0/124 of network lan is reserved already")


@pytest.mark.parametrize(
    ("values", "fragment"),
    [
        ({"add_reserved_ips6": ["2001:db8:2::1"]}, "is not in network lan (2001:db8:1::/64)"),
        ({"add_reserved_ips6": [f"{PREFIX}/48"]}, "is not in network lan"),
        ({"add_reserved_ips6": ["2001:db8::/32"]}, "is not in network lan"),
        ({"add_reserved_ips6": [f"{PREFIX}5/120"]}, "has host bits set"),
        ({"network6": "2001:db8:9::/64", "gateway6": "2001:db8:9::1"}, "is not in network lan"),
        (
            {"add_reserved_ips6": [f"{PREFIX}5"], "remove_reserved_ips6": [f"{PREFIX}5"]},
            "both reserved and released",
        ),
    ],
)
def test_what_cannot_be_reserved(values, fragment):
    master = master_of(ext_reservations6=(f"{PREFIX}9",))
    assert fragment in master.refused(change(**values), errors.ECODE_INVAL)
    assert master.config.network(LAN).reserved6 == (f"{PREFIX}9",)


def test_a_network_without_ipv6_range():
    master = master_of(None)
    text = master.refused(change(add_reserved_ips6=[f"{PREFIX}5"]), errors.ECODE_INVAL)
    assert "network lan has no IPv6 range" in text
    # The range can come with the same request.
    master.run(change(network6=f"{PREFIX}/64", add_reserved_ips6=[f"{PREFIX}5"]))
    assert master.config.network(LAN).reserved6 == (f"{PREFIX}5",)


def test_a_new_network():
    master = master_of()
    master.run(
        OpNetworkAdd(
            network_name="dmz",
            network="198.51.100.0/28",
            network6="2001:db8:7::/64",
            add_reserved_ips=["198.51.100.3"],
            add_reserved_ips6=["2001:db8:7::3"],
        )
    )
    dmz = master.config.expand_network("dmz")
    assert dmz.reserved6 == ("2001:db8:7::3",)


def test_a_damaged_configuration_is_named():
    master = master_of(ext_reservations6=("2001:db8:2::1",))
    data = master.config.snapshot()
    assert any(
        "reserved IPv6 addresses: address 2001:db8:2::1" in one for one in verify.check(data)
    )


def test_other_versions_do_not_get_it():
    assert "ext_reservations6" in upgrade.OURS["networks"]
    assert "ext_reservations6" in upgrade.settings_of("networks")
    plain = Network(name="lan", network="203.0.113.0/29", uuid="u", serial_no=1)
    assert "ext_reservations6" not in codec.to_dict(plain)


@given(
    st.integers(116, 127),
    st.lists(st.tuples(st.integers(0, 4095), st.integers(116, 128)), max_size=6),
)
def test_the_addresses_are_those_which_are_not_reserved(bits, blocks):
    import ipaddress

    texts = {
        str(ipaddress.IPv6Network(f"{PREFIX}{place:x}/{size}", strict=False))
        for place, size in blocks
    }
    network = Network(
        name="lan",
        network="203.0.113.0/29",
        network6=f"{PREFIX}/{bits}",
        gateway6="fe80::1",
        ext_reservations6=tuple(texts) or None,
        uuid="u",
        serial_no=1,
    )
    pool = Ipv6Range(network)
    every = map(str, ipaddress.IPv6Network(f"{PREFIX}/{bits}"))
    free = [one for one in every if not pool.is_reserved(one)]
    assert list(itertools.islice(pool.addresses(), 5000)) == free
    assert dataclasses.replace(network).reserved6 == network.reserved6
