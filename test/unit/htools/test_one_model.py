"""Evacuations of nodes and groups, and automatic balance, move instances on the one model."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ganeti.allocator import builtin
from ganeti.constants import balance as const
from ganeti.htools import cluster as model
from ganeti.htools import moves
from ganeti.htools.loading import request
from ganeti.watcher import balance

DATA = Path(__file__).resolve().parents[2] / "data" / "htools"


@pytest.fixture
def applied(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The instances which were moved on the model."""
    found: list[str] = []
    real = moves.apply

    def apply(nodes, instance, move, *, force=False):
        found.append(instance.name)
        return real(nodes, instance, move, force=force)

    monkeypatch.setattr(moves, "apply", apply)
    return found


@pytest.mark.parametrize("name", ["hail-node-evac", "hail-change-group"])
def test_evacuations_move_on_the_model(name: str, applied: list[str]) -> None:
    description = json.loads((DATA / f"{name}.json").read_text())
    answer = builtin.answer(description, {})
    assert answer.result[0]
    assert {one[0] for one in answer.result[0]} <= set(applied)


def test_automatic_balance_moves_on_the_model(applied: list[str]) -> None:
    cluster = request.parse((DATA / "hail-node-evac.json").read_text()).cluster
    model.prepare(cluster)
    balance.plan(cluster, frozenset(), {const.MIN_GAIN: 0.0, const.MOVES_PER_HOUR: 5}, 5)
    assert set(applied) <= {one.name for one in cluster.instances}
    assert applied
