"""The load which monitoring daemons report: how it is divided, and what happens when it is missing.

The loads are those which hbal of ganeti-htools-3.0 (3.0.2-3) printed for the same data.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from ganeti import errors
from ganeti.client.htools import monitoring as asking
from ganeti.htools.cluster import Cluster
from ganeti.htools.loading import monitoring

from .conftest import Run

POLICY = "128,1,1024,1,1,1|128,1,1024,1,1,1;32768,8,1048576,16,8,12|drbd|4.0|32.0"
NODES = "\n".join(
    f"node{number}|16384|512|12000|100000|80000|8|N|g1|1||N|0|1|1.0" for number in range(1, 5)
)
INSTANCES = """\
inst1|1024|2048|1|running|Y|node1|node2|drbd||1|-|N
inst2|1024|2048|3|running|Y|node1|node3|drbd||1|-|N
inst3|1024|2048|2|ADMIN_down|Y|node1|node3|drbd||1|-|N
inst4|1024|2048|1|running|Y|node3|node4|drbd||1|-|N"""
TEXT = f"default|g1|preferred||\n\n{NODES}\n\n{INSTANCES}\n\n\n|{POLICY}\ndefault|{POLICY}\n"
GUESTS = {"node1": {"inst1": 0.7, "inst2": 0.2, "inst3": 0.1}, "node3": {"inst4": 0.9}}


def reports() -> dict[str, list[dict[str, Any]]]:
    totals = {"node1": 1.5, "node2": 0.5, "node3": 3.0, "node4": 2.0}
    return {
        name: [
            {"name": "cpu-avg-load", "data": {"cpu_number": 8, "cpus": [], "cpu_total": total}},
            {"name": "xen-cpu-avg-load", "data": {"Domain-0": 3.0, **GUESTS.get(name, {})}},
        ]
        for name, total in totals.items()
    }


def cpu(cluster: Cluster) -> tuple[list[float], list[float]]:
    return (
        [round(one.load.cpu, 3) for one in cluster.instances],
        [round(node.load.cpu, 3) for node in cluster.nodes],
    )


def test_the_load_of_a_node_is_divided_by_virtual_cpus(load: Callable[..., Cluster]) -> None:
    cluster = load(TEXT)
    assert monitoring.apply(cluster, reports()) == []
    assert cpu(cluster) == ([0.214, 0.643, 0.429, 1.5], [1.5, 0.5, 3.0, 2.0])
    assert [one.load.memory for one in cluster.instances] == [1.0] * 4


def test_xen_knows_the_load_of_each_guest(load: Callable[..., Cluster]) -> None:
    cluster = load(TEXT)
    assert monitoring.apply(cluster, reports(), xen=True) == []
    assert cpu(cluster) == ([0.7, 0.2, 0.1, 0.9], [1.0, 0.0, 0.9, 0.0])


def test_incomplete_data_is_not_used(load: Callable[..., Cluster]) -> None:
    cluster, found = load(TEXT), reports()
    before = cpu(cluster)
    del found["node4"]
    found["node2"][0]["data"]["cpu_total"] = "much"
    del found["node1"][1]["data"]["inst3"]
    assert monitoring.apply(cluster, found) == ["node node4", "node node2"]
    assert monitoring.apply(cluster, found, xen=True) == ["node node4", "instance inst3"]
    assert cpu(cluster) == before


def test_an_offline_node_needs_not_answer(load: Callable[..., Cluster]) -> None:
    cluster, found = load(TEXT, offline=frozenset(("node4",))), reports()
    del found["node4"]
    assert monitoring.apply(cluster, found) == []
    assert cpu(cluster)[0] == [0.214, 0.643, 0.429, 1.5]


@pytest.mark.parametrize(
    "text",
    [
        "{", "{}", "[1]", '[{"node": "node1"}]', '[{"node": 1, "reports": []}]',
        '[{"node": "node1", "reports": {}}]', '[{"node": "node1", "reports": [{"name": 1}]}]',
    ],
)  # fmt: skip
def test_a_wrong_file_is_an_error(text: str) -> None:
    with pytest.raises(errors.GenericError):
        monitoring.parse(text)


# -- programs -------------------------------------------------------------------------------------


@pytest.fixture
def files(tmp_path: Path) -> tuple[str, str]:
    cluster, data = tmp_path / "cluster", tmp_path / "reports"
    cluster.write_text(TEXT)
    data.write_text(
        json.dumps([{"node": name, "reports": some} for name, some in reports().items()])
    )
    return str(cluster), f"--mond-data={data}"


def test_hbal_uses_the_load(run: Run, files: tuple[str, str]) -> None:
    cluster, data = files
    lines = run("hbal", "-t", cluster, "--mond", data)[1].splitlines()
    assert "Initial score: 4.81328696" in lines
    assert "    1. inst3 node1:node3 => node2:node1   3.24950121 a=r:node2 f" in lines
    for less in (("--mond=no", data), (data,)):
        assert "Initial score: 5.13664401" in run("hbal", "-t", cluster, *less)[1]
    ignored = run("hbal", "-t", cluster, "--mond", data, "--ignore-dynu")[1]
    assert "Initial score: 0.46240939" in ignored


def test_missing_data_stops_only_who_asked_for_it(run: Run, files: tuple[str, str]) -> None:
    cluster, data = files
    path = Path(data.partition("=")[2])
    path.write_text(json.dumps(json.loads(path.read_text())[:3]))
    code, _, err = run("hbal", "-t", cluster, "--mond", data)
    assert code == 0
    assert "Didn't receive an answer by all MonDs, cpu-avg-load's data will be ignored.\n" in err
    code, _, err = run("hbal", "-t", cluster, "--mond", data, "--exit-on-missing-mond-data")
    assert code == 1
    assert "Error: Not all required data available" in err


class _Daemon(BaseHTTPRequestHandler):
    """A monitoring daemon whose answers are in ``answers``: path -> body."""

    answers: dict[str, bytes]

    def do_GET(self) -> None:
        body = self.answers.get(self.path)
        self.send_response(404 if body is None else 200)
        self.end_headers()
        self.wfile.write(body or b"")

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def daemon(monkeypatch: pytest.MonkeyPatch) -> Iterator[type[_Daemon]]:
    """One daemon which answers for all nodes."""
    kind = type("Daemon", (_Daemon,), {"answers": {}})
    server = HTTPServer(("127.0.0.1", 0), kind)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    port = server.server_address[1]

    class Machine:
        def resolve(self, _name: str) -> str:
            return "127.0.0.1"

        def service_port(self, _name: str, _default: int) -> int:
            return int(port)

    monkeypatch.setattr(asking.machine, "current", Machine)
    yield kind
    server.shutdown()
    thread.join()
    server.server_close()


def test_the_daemons_are_asked(run: Run, files: tuple[str, str], daemon: type[_Daemon]) -> None:
    path = "/1/report/default/cpu-avg-load"
    daemon.answers[path] = json.dumps(reports()["node1"][0]).encode()
    out = run("hinfo", "-t", files[0], "--mond", "-pname,cload")[2]
    assert [line.split()[1] for line in out.splitlines() if line.startswith(" node")] == [
        "1.500"
    ] * 4
    for body in (b"[", b"\xff", b"[]", b'{"name": 3}'):
        daemon.answers[path] = body
        code, _, err = run("hinfo", "-t", files[0], "--mond")
        assert code == 0
        assert "Didn't receive an answer by all MonDs" in err
