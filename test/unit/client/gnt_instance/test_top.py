"""``gnt-instance top``."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from fakes.luxi_master import FakeMaster
from ganeti.client.gnt_instance import top

from ..conftest import Gnt


def guest(name: str, node: str = "node1", clock: float = 0.0, **used: Any) -> dict[str, Any]:
    return {
        "name": name,
        "node": node,
        "clock": clock,
        "cpu_s": 0.0,
        "memory": 256,
        "vcpus": 2,
        "disk_read": 0,
        "disk_written": 0,
        "net_in": None,
        "net_out": None,
        **used,
    }


@pytest.fixture
def measured(master: FakeMaster, monkeypatch: pytest.MonkeyPatch) -> FakeMaster:
    """Two guests; between two measurements pass two seconds of the nodes' clocks."""
    monkeypatch.setattr(top, "_SHORT_S", 0.0)
    count = iter(range(100))

    def answer() -> dict[str, Any]:
        number = next(count)
        clock = 50.0 + 2 * number
        return {
            "time": 0.0,
            "failures": {},
            "guests": [
                guest("db1", "node2", clock, cpu_s=3.0 * number, memory=512),
                guest("web1", "node1", clock, cpu_s=0.5 * number, disk_read=4096 * number,
                      disk_written=3 * 2**20 * number, net_in=100 * number, net_out=0),
                # It was started again between the measurements.
                guest("old", "node1", clock, cpu_s=9.0 - number, memory=None),
            ],
        }  # fmt: skip

    master.answers["QueryGuestsUsage"] = answer
    return master


def test_once(gnt: Gnt, measured: FakeMaster) -> None:
    out = gnt("instance top --once").out
    assert out == (
        "3 guests on 2 nodes: 175 % of a processor, 768 MiB\n"
        "Instance Node  CPU % VCPUs MiB Read/s Written/s Net in/s Net out/s\n"
        "db1      node2 150.0     2 512      0         0        -         -\n"
        "web1     node1  25.0     2 256   2.0K      1.5M       50         0\n"
        "old      node1     -     2   -      0         0        -         -\n"
    )
    # Two measurements, each one request.
    assert [method for method, _ in measured.requests] == ["QueryGuestsUsage"] * 2
    assert gnt("instance top").out == out


@pytest.mark.parametrize(
    ("key", "names"),
    [
        ("cpu", ["db1", "web1", "old"]),
        ("memory", ["db1", "web1", "old"]),
        ("disk", ["web1", "db1", "old"]),
        ("net", ["web1", "db1", "old"]),
        ("name", ["db1", "old", "web1"]),
        ("node", ["old", "web1", "db1"]),
    ],
)
def test_order(gnt: Gnt, measured: FakeMaster, key: str, names: list[str]) -> None:
    lines = gnt(f"instance top --no-headers --separator=, --sort-by={key}").out.splitlines()
    assert [line.split(",")[0] for line in lines] == names
    assert len(gnt(f"instance top --no-headers -n 1 --sort-by={key}").out.splitlines()) == 1


def test_for_programs(gnt: Gnt, measured: FakeMaster) -> None:
    lines = gnt("instance top --no-headers --separator=,").out.splitlines()
    assert lines[1] == "web1,node1,25.0,2,256,2048,1572864,50,0"
    assert lines[2] == "old,node1,,2,,0,0,,"
    data = json.loads(gnt("instance top --output json").out)
    assert data["failures"] == {}
    assert data["guests"][1] == {
        "name": "web1",
        "node": "node1",
        "cpu_percent": 25.0,
        "vcpus": 2,
        "memory_mib": 256,
        "disk_read_bytes_per_s": 2048,
        "disk_written_bytes_per_s": 1572864,
        "net_in_bytes_per_s": 50,
        "net_out_bytes_per_s": 0,
    }


def test_some_instances(gnt: Gnt, measured: FakeMaster) -> None:
    measured.answers["QueryInstances"] = lambda names, fields, locking: [["web1"]]
    out = gnt("instance top --no-headers web1").out
    assert out.startswith("web1 ") and out.count("\n") == 1


def test_a_node_without_an_answer_is_named(
    gnt: Gnt, master: FakeMaster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(top, "_SHORT_S", 0.0)
    master.answers["QueryGuestsUsage"] = lambda: {
        "time": 0.0, "guests": [], "failures": {"node2": "connection refused"}
    }  # fmt: skip
    code, out, err = gnt("instance top --once")
    assert code == 1 and "no answer from node2" in out
    assert err == "Node node2 did not answer: connection refused\n"


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("--interval=0", "interval must be at least 1 second"),
        ("--number=-1", "must be 0 or more"),
        ("--sort-by=colour", "'colour' is none of cpu, memory, disk, net, name, node"),
    ],
)
def test_mistakes(gnt: Gnt, master: FakeMaster, line: str, words: str) -> None:
    assert words in gnt(f"instance top {line}").err
    assert master.requests == []


@pytest.mark.parametrize(
    ("change", "rate"),
    [
        (lambda row: {**row, "clock": 0.0}, None),
        (lambda row: {**row, "clock": -5.0}, None),
        (lambda row: {**row, "clock": 1.0, "disk_read": None}, None),
        (lambda row: {**row, "clock": 4.0, "disk_read": 2000}, 250),
    ],
)
def test_rates(change: Callable[[dict[str, Any]], dict[str, Any]], rate: int | None) -> None:
    class Client:
        rows = [guest("web1", disk_read=1000)]

        def query_guests_usage(self) -> dict[str, Any]:
            return {"guests": self.rows, "failures": {}}

    client = Client()
    meter = top.Meter(client)  # type: ignore[arg-type]
    assert meter.rows()[0]["disk_read_bytes_per_s"] is None
    client.rows = [change(client.rows[0])]
    assert meter.rows()[0]["disk_read_bytes_per_s"] == rate


@pytest.mark.parametrize(
    ("number", "text"),
    [(None, "-"), (0, "0"), (999, "999"), (1000, "1.0K"), (20480, "20K"), (5 << 40, "5120G")],
)
def test_sizes_are_short(number: int | None, text: str) -> None:
    assert top._short(number) == text


def test_a_table_on_a_terminal_of_80_columns() -> None:
    """Long names get shorter, numbers stay."""
    rows = [
        {"name": f"database{number}.production.example.com",
         "node": f"node{number}.production.example.com", "cpu_percent": 1600.0, "vcpus": 16,
         "memory_mib": 131072, "disk_read_bytes_per_s": 999 << 20,
         "disk_written_bytes_per_s": 999 << 20, "net_in_bytes_per_s": 999 << 20,
         "net_out_bytes_per_s": 999 << 20}
        for number in (1, 2)
    ]  # fmt: skip
    assert top.guest_table(rows, width=79) == [
        "Instance  Node   CPU % VCPUs    MiB Read/s Write/s Recv/s Sent/s",
        "database1 node1 1600.0    16 131072   999M    999M   999M   999M",
        "database2 node2 1600.0    16 131072   999M    999M   999M   999M",
    ]
    assert top.guest_table(rows, width=200)[1].startswith("database1.production.example.com node1.")
    # For programs the titles are the published ones, whatever the terminal has.
    assert top.guest_table(rows)[0].endswith("Read/s Written/s Net in/s Net out/s")
