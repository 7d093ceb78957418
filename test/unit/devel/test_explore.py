"""Seeds of simulated clusters keep the promises, can be replayed, and find faults."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from devel.simnodes import explore, server
from devel.simnodes.explore import Broken
from devel.simnodes.state import Copies
from ganeti.config import sending
from ganeti.configfile import journal
from ganeti.replication import quorum

SEEDS = range(12)


def test_seeds_keep_the_promises() -> None:
    assert {seed: explore.run(seed) for seed in SEEDS} == dict.fromkeys(SEEDS)


def test_a_seed_can_be_replayed() -> None:
    runs: list[list[str]] = [[], []]
    for lines in runs:
        explore.run(6, lines.append)
    assert runs[0] == runs[1] and any("acknowledged" in line for line in runs[0])


def _found(seeds: range = range(80)) -> str:
    for seed in seeds:
        broken = explore.run(seed)
        if broken is not None:
            return broken
    return ""


def test_a_change_acknowledged_to_a_minority_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    always: Callable[..., bool] = lambda *_args, **_more: True  # noqa: E731
    monkeypatch.setattr(sending, "has_quorum", always)
    monkeypatch.setattr(quorum.CommitQuorum, "reached", always)
    assert "lacks" in _found() or "after a newer promise" in _found()


def test_a_node_which_obeys_an_old_master_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "_admitted", lambda _epoch, _known: True)
    assert _found(range(100, 120))


def test_a_vote_which_misses_the_journal_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every reader must see the journal: one which does not takes an older state for the newest."""
    monkeypatch.setattr(Copies, "config_text", property(lambda copies: copies.config))
    assert "lacks" in _found()


def test_a_journal_which_is_removed_too_early_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Copies, "fold", lambda copies, **_args: setattr(copies, "journal", b""))
    assert "folding in changed the configuration" in _found()


def test_a_journal_which_outlives_its_file_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """A record which does not follow the state before it must not be applied."""
    monkeypatch.setattr(journal, "is_base", lambda *_args: True)
    assert _found()


def test_a_broken_promise_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(_world: explore.World) -> None:
        raise Broken("on purpose")

    monkeypatch.setattr(explore.World, "heal", broken)
    assert explore.run(0) == "on purpose"
    assert explore.main(["--seeds", "0-1"]) == 1
