"""``gnt-instance migrate`` and ``failover``."""

from __future__ import annotations

from typing import Any

import pytest

from fakes.luxi_master import FakeMaster

from ..conftest import Gnt


@pytest.fixture(autouse=True)
def _instances(master: FakeMaster) -> None:
    master.rows["instance"] = [{"name": "web1"}]


@pytest.mark.parametrize(
    ("line", "wanted"),
    [
        (
            "migrate -f web1",
            {
                "OP_ID": "OP_INSTANCE_MIGRATE",
                "mode": None,
                "live": None,
                "target_node": None,
                "iallocator": None,
                "cleanup": False,
                "allow_runtime_changes": True,
                "allow_failover": False,
                "ignore_ipolicy": False,
                "ignore_hvversions": False,
            },
        ),
        ("migrate -f --non-live -n node3 web1", {"mode": "non-live", "target_node": "node3"}),
        ("migrate -f --migration-mode live -I hail web1", {"mode": "live", "iallocator": "hail"}),
        (
            "migrate -f --cleanup --allow-failover --no-runtime-changes --ignore-hvversions"
            " --ignore-ipolicy --dry-run --priority high web1",
            {
                "cleanup": True,
                "allow_failover": True,
                "allow_runtime_changes": False,
                "ignore_hvversions": True,
                "ignore_ipolicy": True,
                "dry_run": True,
                "priority": -10,
            },
        ),
        (
            "failover -f web1",
            {
                "OP_ID": "OP_INSTANCE_FAILOVER",
                "target_node": None,
                "iallocator": None,
                "ignore_consistency": False,
                "ignore_ipolicy": False,
                "cleanup": False,
                "shutdown_timeout": 120,
            },
        ),
        (
            "failover -f -n node3 --ignore-consistency --shutdown-timeout 3 --cleanup web1",
            {
                "target_node": "node3",
                "ignore_consistency": True,
                "shutdown_timeout": 3,
                "cleanup": True,
            },
        ),
    ],
)
def test_requests(line: str, wanted: dict[str, Any], gnt: Gnt, master: FakeMaster) -> None:
    assert gnt(f"instance {line}").code == 0
    sent = master.opcode()
    assert sent["instance_name"] == "web1"
    assert {name: sent[name] for name in wanted} == wanted


@pytest.mark.parametrize("command", ["migrate", "failover", "migrate --cleanup"])
def test_not_without_a_yes(command: str, gnt: Gnt, master: FakeMaster) -> None:
    ended = gnt(f"instance {command} web1")
    assert ended.code == 1
    assert "--force" in ended.err
    assert master.opcodes() == []


def test_contradicting_modes(gnt: Gnt, master: FakeMaster) -> None:
    ended = gnt("instance migrate -f --non-live --migration-mode live web1")
    assert ended.code == 1
    assert "either --non-live or --migration-mode" in ended.err
    assert master.requests == []


def test_progress(gnt: Gnt, master: FakeMaster) -> None:
    master.logs["OP_INSTANCE_MIGRATE"] = ["Migrating instance web1", "* done"]
    assert [line[25:] for line in gnt("instance migrate -f web1").out.splitlines()] == [
        "Migrating instance web1",
        "* done",
    ]
