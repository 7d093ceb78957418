"""Seeds of simulated clusters keep the promises, can be replayed, and find faults."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from devel.simnodes import explore, server
from devel.simnodes.explore import Broken
from ganeti.config import quorum, role

SEEDS = range(12)


def test_seeds_keep_the_promises() -> None:
    assert {seed: explore.run(seed) for seed in SEEDS} == dict.fromkeys(SEEDS)


def test_a_seed_can_be_replayed() -> None:
    runs: list[list[str]] = [[], []]
    for lines in runs:
        explore.run(5, lines.append)
    assert runs[0] == runs[1] and any("acknowledged" in line for line in runs[0])


def _found(seeds: range = range(80)) -> str:
    for seed in seeds:
        broken = explore.run(seed)
        if broken is not None:
            return broken
    return ""


def test_a_change_acknowledged_to_a_minority_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    always: Callable[..., bool] = lambda *_args, **_more: True  # noqa: E731
    monkeypatch.setattr(role, "is_committed", always)
    monkeypatch.setattr(quorum.CommitQuorum, "reached", always)
    assert "lacks" in _found() or "after a newer promise" in _found()


def test_a_node_which_obeys_an_old_master_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "_admitted", lambda _epoch, _known: True)
    assert _found()


def test_a_broken_promise_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(_world: explore.World) -> None:
        raise Broken("on purpose")

    monkeypatch.setattr(explore.World, "heal", broken)
    assert explore.run(0) == "on purpose"
    assert explore.main(["--seeds", "0-1"]) == 1
