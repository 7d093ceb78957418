"""``gnt-instance copy``: the request, the closing line, and what a user may mistype."""

from __future__ import annotations

from typing import Any

import pytest

from fakes.luxi_master import FakeMaster
from ganeti.cli import terminal

from ..conftest import Gnt


@pytest.fixture(autouse=True)
def _instances(master: FakeMaster) -> None:
    row = {"pnode": "node2.example.com", "hypervisor": "kvm", "admin_state": "up"}
    master.rows["instance"] = [
        {"name": name, **row} for name in ("web1.example.com", "web2.example.com")
    ]
    master.rows["node"] = [{"name": "node2.example.com"}]
    master.short_names = True
    master.results["OP_INSTANCE_COPY"] = ["node2.example.com"]


@pytest.mark.parametrize(
    ("line", "wanted"),
    [
        (
            "copy web1 web9",
            {
                "OP_ID": "OP_INSTANCE_COPY",
                "instance_name": "web1",
                "new_name": "web9.example.com",
                "snapshot_name": None,
                "disk_template": None,
                "disks": [],
                "nics": [],
                "pnode": None,
                "start": False,
                "wait_for_sync": True,
                "dry_run": False,
            },
        ),
        (
            "copy --snapshot=before -t drbd -n node1:node2 --start --no-wait-for-sync web1 w.example.org",
            {
                "snapshot_name": "before",
                "new_name": "w.example.org",
                "disk_template": "drbd",
                "pnode": "node1",
                "snode": "node2",
                "start": True,
                "wait_for_sync": False,
            },
        ),
        (
            "copy --disk 1:size=2g,vg=fast --net 1:ip=pool,network=lan -I . -g rack1 web1 web9",
            {
                "disks": [{}, {"size": 2048, "vg": "fast"}],
                "nics": [{}, {"ip": "pool", "network": "lan"}],
                "iallocator": ".",
                "group_name": "rack1",
            },
        ),
        (
            "copy --dry-run --explain --exact-name --compress=gzip --ignore-ipolicy web1 web9",
            {
                "dry_run": True,
                "explain": True,
                "exact_name": True,
                "new_name": "web9",
                "compress": "gzip",
                "ignore_ipolicy": True,
            },
        ),
    ],
)
def test_the_request(line: str, wanted: dict[str, Any], gnt: Gnt, master: FakeMaster) -> None:
    assert gnt(f"instance {line}").code == 0
    sent = master.opcode()
    assert {key: sent.get(key) for key in wanted} == wanted


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("copy web1", "Command copy expects 2 argument(s)"),
        ("copy --net 0:adress=1 web1 web9", "unknown parameter 'adress' of network interface 0"),
        ("copy --disk x:size=1g web1 web9", "'x' is not the number of a disk"),
        ("copy -t plian web1 web9", "plian"),
        ("copy --start=yes web1 web9", "--start"),
    ],
)
def test_mistakes(line: str, words: str, gnt: Gnt, master: FakeMaster) -> None:
    ended = gnt(f"instance {line}")
    assert ended.code != 0 and words in ended.err + ended.out
    assert master.opcodes() == []


def test_the_closing_line(gnt: Gnt, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(terminal, "is_terminal", lambda stream: True)
    monkeypatch.setattr(terminal, "width", lambda stream, otherwise=80: 200)
    assert gnt("instance copy web1 web2").out.splitlines()[-1] == (
        "web2.example.com is a copy of web1, stopped, on node2; start it: gnt-instance startup web2"
        " (0.0 s)"
    )
    assert gnt("instance copy --start web1 web2").out.splitlines()[-1] == (
        "web2.example.com is a copy of web1, and runs on node2, console: gnt-instance console web2"
        " (0.0 s)"
    )
