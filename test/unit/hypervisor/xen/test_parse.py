"""Output of ``xl`` of several releases."""

from __future__ import annotations

from pathlib import Path

import pytest

from ganeti import errors
from ganeti.hypervisor.xen import parse

DATA = Path(__file__).parents[3] / "data" / "xen"


def text(name: str) -> str:
    return (DATA / name).read_text()


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        ("xl-list-4.17.txt", [("Domain-0", 0, 768, 1, True)]),
        ("xen-xl-list-4.0.1-dom0-only.txt", [("Domain-0", 0, 1023, 1, True)]),
        (
            "xen-xl-list-4.0.1-four-instances.txt",
            [
                ("Domain-0", 0, 1023, 1, True),
                ("server01.example.com", 1, 1024, 1, True),
                ("web3106215069.example.com", 3, 4096, 1, True),
                ("testinstance.example.com", 2, 2048, 2, True),
            ],
        ),
        (
            "xen-xl-list-4.4-crashed-instances.txt",
            [
                ("Domain-0", 0, 1023, 1, True),
                ("server01.example.com", 1, 1024, 1, True),
                ("alsodying.example.com", 28448, 1024, 1, False),
            ],
        ),
    ],
)
def test_lists(name: str, wanted: list[tuple[str, int, int, int, bool]]) -> None:
    found = parse.parse_list(text(name))
    assert [(one.name, one.id, one.memory_mib, one.vcpus, one.lives) for one in found] == wanted
    assert all(one.time_s > 1 for one in found)


@pytest.mark.parametrize(
    "bad",
    [
        "",
        "Name ID Mem VCPUs State Time(s)\n",
        "Name ID Mem VCPUs State Time(s)\nweb 1 128 1 -b---- 1.0\n",
        "Name ID Mem VCPUs State Time(s)\nDomain-0 0 768 1 r----- 1.0\nweb 1 128\n",
        "libxl: error: something\n",
    ],
)
def test_a_list_which_is_not_whole_is_refused(bad: str) -> None:
    with pytest.raises(errors.ParseError):
        parse.parse_list(bad)


@pytest.mark.parametrize(
    ("name", "domains", "wanted"),
    [
        (
            "xl-info-4.17.txt",
            "xl-list-4.17.txt",
            [1279, 494, 768, 17, 1, 1, 1, 1, [4, 17]],
        ),
        (
            "xen-xl-info-4.0.1.txt",
            "xen-xl-list-4.0.1-four-instances.txt",
            [16378, 8004, 1023, 183, 4, 1, 2, 1, [4, 0]],
        ),
    ],
)
def test_the_node(name: str, domains: str, wanted: list[object]) -> None:
    facts = parse.node_facts(parse.parse_info(text(name)), parse.parse_list(text(domains)))
    keys = ("total", "free", "dom0", "hv")
    names = [f"memory_{key}" for key in keys]
    names += ["cpu_total", "cpu_nodes", "cpu_sockets", "cpu_dom0", "hv_version"]
    assert [facts[key] for key in names] == wanted


def test_a_node_without_a_number_is_refused() -> None:
    info = parse.parse_info(text("xl-info-4.17.txt"))
    domains = parse.parse_list(text("xl-list-4.17.txt"))
    with pytest.raises(errors.ParseError, match="no number total_memory"):
        parse.node_facts({**info, "total_memory": "much"}, domains)
    with pytest.raises(errors.ParseError, match="lacks Domain-0"):
        parse.node_facts(info, [])


def test_long_lists() -> None:
    assert parse.parse_long(text("xl-list-long-4.17.txt")) == {
        0: parse.LongDomain(0, "Domain-0", "pv", "", max_memory_kib=786432)
    }
    pvh = parse.parse_long(text("xl-list-long-4.17-pvh.txt"))[1]
    assert (pvh.name, pvh.type, pvh.uuid) == ("h1", "pvh", "b73c5c8b-f06b-4d8e-a2ae-2e1893855bb2")
    # Started by the original Ganeti.
    assert parse.parse_long(text("xl-list-long-4.17-original.txt"))[1] == parse.LongDomain(
        1,
        "guest",
        "pv",
        "02cc03da-9a9d-4d2b-8d75-4ecbebab28ea",
        max_memory_kib=98304,
        disks=(parse.LongDisk("/var/run/ganeti/instance-disks/guest:0", "xvda", is_cdrom=False),),
        nics=(parse.LongNic(0, "aa:00:00:67:02:32"),),
    )
    # Xen 4.0 printed another language.
    with pytest.raises(errors.ParseError):
        parse.parse_long(text("xen-xl-list-long-4.0.1.txt"))


def test_uptimes() -> None:
    text = (
        "Name                                ID Uptime\n"
        "Domain-0                             0  1 day, 2:03:04\n"
        "a name 7                            12  12 days,  0:00:05\n"
        "web                                  3 0:10:00\n"
        "nonsense\n"
    )
    assert parse.parse_uptimes(text) == {0: "1 day, 2:03:04", 12: "12 days,  0:00:05", 3: "0:10:00"}
