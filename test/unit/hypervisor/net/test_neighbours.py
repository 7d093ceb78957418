"""Addresses which a node knows by their MAC addresses."""

from __future__ import annotations

from pathlib import Path

from ganeti.hypervisor.net import neighbours

MAC = "aa:00:00:00:00:01"
ARP = f"""\
IP address       HW type     Flags       HW address            Mask     Device
192.0.2.7        0x1         0x2         {MAC.upper()}     *        br0
192.0.2.8        0x1         0x0         {MAC}     *        br0
192.0.2.9        0x1         0x2         aa:00:00:00:00:02     *        br0
$(reboot)        0x1         0x2         {MAC}     *        br0
short
"""
LEASES = f"""\
1000 {MAC} 192.0.2.20 web1 *
10 {MAC} 192.0.2.21 old *
0 {MAC} 192.0.2.22 * *
0 aa:00:00:00:00:02 192.0.2.23 web2 *
duid 00:01:00:01
"""


def test_what_the_node_has_talked_to(tmp_path: Path) -> None:
    path = tmp_path / "arp"
    path.write_text(ARP)
    other = "aa:00:00:00:00:02"
    assert neighbours.seen(str(path)) == {MAC: ["192.0.2.7"], other: ["192.0.2.9"]}
    assert neighbours.seen(str(tmp_path / "nosuch")) == {}


def test_leases_which_have_not_ended(tmp_path: Path) -> None:
    path = tmp_path / "leases"
    path.write_text(LEASES)
    files = [str(tmp_path / "nosuch"), str(path)]
    found = neighbours.leased(files, lambda: 100.0)
    assert found[MAC] == ["192.0.2.20", "192.0.2.22"]
    assert found["aa:00:00:00:00:02"] == ["192.0.2.23"]
