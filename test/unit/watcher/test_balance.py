"""The automatic balance of the watcher: when it moves instances, how many, and why."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ganeti.htools import cluster as model
from ganeti.htools import score
from ganeti.htools.cluster import Cluster
from ganeti.htools.loading import text
from ganeti.watcher import balance

POLICY = "128,1,1024,1,1,1|128,1,1024,1,1,1;4096,4,10000,2,8,12|drbd,plain,ext|4.0|32.0"
SETTINGS = {"moves_per_hour": 4, "min_gain": 0.01}


def crowded(groups: int = 1, offline: str = "") -> Cluster:
    """Four nodes in each group, with all instances on the first one."""
    lines, instances, policies = [], [], [f"|{POLICY}"]
    for group in range(1, groups + 1):
        policies.append(f"g{group}|{POLICY}")
        for number in range(1, 5):
            name = f"n{group}{number}"
            free = 4000 if number == 1 else 8092
            lines.append(
                f"{name}|8192|100|{free}|90000|90000|4|{'Y' if name == offline else 'N'}|u{group}"
                "|1||N|0|1|1.0"
            )
        instances += [
            f"i{group}{number}|512|1024|1|running|Y|n{group}1||ext||1|-|N" for number in range(8)
        ]
    parts = [
        *(f"g{group}|u{group}|preferred||" for group in range(1, groups + 1)),
        "", *lines, "", *instances, "", "", *policies,
    ]  # fmt: skip
    found = text.parse("".join(f"{line}\n" for line in parts))
    model.prepare(found)
    return found


class FakeClient:
    """A master daemon which answers what the balance asks."""

    def __init__(self) -> None:
        self.settings: dict[str, Any] | None = dict(SETTINGS)
        self.drained = False
        self.jobs: list[list[Any]] = []
        self.nodes: list[list[Any]] = [["u1", False, None]]
        self.submitted: list[list[Any]] = []

    def query_cluster_info(self) -> dict[str, Any]:
        return {"auto_balance": self.settings}

    def query_config_values(self, names: list[str]) -> list[Any]:
        assert names == ["drain_flag"]
        return [self.drained]

    def query(self, what: str, fields: list[str], qfilter: Any = None) -> dict[str, Any]:
        rows = self.jobs if what == "job" else self.nodes
        return {"data": [[[0, value] for value in row] for row in rows]}

    def submit_job(self, opcodes: list[Any]) -> int:
        self.submitted.append(opcodes)
        return len(self.submitted)


@pytest.fixture
def client(monkeypatch: pytest.MonkeyPatch) -> FakeClient:
    monkeypatch.setattr(balance, "_load_cluster", crowded)
    return FakeClient()


def run(client: FakeClient, path: Path, **changes: Any) -> list[int]:
    return balance.run(client, str(path / "memory"), **{"dry_run": False, **changes})  # type: ignore[arg-type]


def test_instances_are_moved_with_the_reason_in_each_job(client, tmp_path):
    assert run(client, tmp_path)
    for (op,) in client.submitted:
        assert op.OP_ID == "OP_INSTANCE_MIGRATE"
        ((source, reason, _stamp),) = op.reason
        assert source == "gnt:watcher:auto-balance"
        assert op.instance_name in reason
        assert "the score of group g1 improves from" in reason
    assert len(balance.load(str(tmp_path / "memory"))) == len(client.submitted)


def test_at_most_some_moves_an_hour(client, tmp_path):
    for _ in range(10):
        run(client, tmp_path)
    assert len(client.submitted) == SETTINGS["moves_per_hour"]
    # After an hour there may be more.
    memory = str(tmp_path / "memory")
    balance.store(memory, [one - 3601 for one in balance.load(memory)])
    assert run(client, tmp_path)


@pytest.mark.parametrize(
    "change",
    [
        {"settings": None},
        {"drained": True},
        {"jobs": [[7, ["INSTANCE_MIGRATE(web1)"]]]},
        {"jobs": [[7, ["NODE_EVACUATE(n1)"]]]},
        {"nodes": [["u1", False, None], ["u1", True, None]]},
        {"nodes": [["u1", False, "migrate"]]},
        {"settings": {"moves_per_hour": 4, "min_gain": 1e6}},
    ],
)
def test_nothing_is_moved(client, tmp_path, change):
    for name, value in change.items():
        setattr(client, name, value)
    assert run(client, tmp_path) == []
    assert client.submitted == []


def test_other_jobs_do_not_matter(client, tmp_path):
    client.jobs = [[7, ["INSTANCE_CREATE(web1)"]]]
    assert run(client, tmp_path)


def test_a_dry_run_submits_nothing(client, tmp_path, capsys):
    assert run(client, tmp_path, dry_run=True) == []
    assert capsys.readouterr().out.startswith("automatic balance: instance ")
    assert balance.load(str(tmp_path / "memory")) == []


def test_the_limit_holds_for_all_groups_together():
    found = balance.plan(crowded(3), frozenset(), SETTINGS, 2)
    assert sum(len(moves) for moves in found) == 2


def test_another_group_is_balanced_while_one_rests():
    found = balance.plan(crowded(2), frozenset(["u1"]), SETTINGS, 4)
    assert found
    assert all("group g2" in line for moves in found for line, _ops in moves)


def test_the_moves_of_a_run_share_no_node_and_improve_the_score():
    cluster = crowded()
    ((first, *more),) = balance.plan(cluster, frozenset(), SETTINGS, 4)
    before = float(first[0].split(" from ")[1].split(" to ")[0])
    assert before == pytest.approx(score.score(cluster.nodes))
    # All instances leave the same node, so that a run makes one move.
    assert more == []


def test_instances_of_an_offline_node_stay():
    assert balance.plan(crowded(offline="n11"), frozenset(), SETTINGS, 4) == []


@pytest.mark.parametrize("content", ["", "[", '{"a": 1}', "[true, -5, 1e300]"])
def test_a_damaged_memory_counts_as_empty(tmp_path, content):
    path = tmp_path / "memory"
    path.write_text(content)
    assert [one for one in balance.load(str(path)) if one > 1] == []


def test_a_clock_which_was_set_back():
    assert balance.recent([100.0, 5000.0, 9000.0], 6000.0) == [5000.0, 6000.0]
