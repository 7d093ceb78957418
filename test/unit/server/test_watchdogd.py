"""ganeti-watchdogd: it is urgent, and goes on where it may not be."""

from __future__ import annotations

from pathlib import Path

import pytest

from ganeti.platform import paths
from ganeti.server import watchdogd
from ganeti.utils import urgent


@pytest.mark.parametrize("problem", ["", "Operation not permitted"])
def test_it_locks_its_memory_and_takes_real_time_priority(
    problem: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    asked = []

    def ask(name: str) -> str:
        asked.append(name)
        return problem

    monkeypatch.setattr(urgent, "lock_memory_with_limit", lambda: ask("memory"))
    monkeypatch.setattr(urgent, "use_real_time", lambda: ask("priority"))
    monkeypatch.setenv("GANETI_HOSTNAME", "node1.example.com")
    with paths.override(paths.Paths(str(tmp_path))):
        options = watchdogd.DAEMON.parser().parse_args([])
        watchdogd.prepare(options)
    assert sorted(asked) == ["memory", "priority"]
    found = [record.getMessage() for record in caplog.records]
    assert found == [
        f"cannot {what}: {problem}. The machine may restart when it is very busy."
        for what in ("lock all memory", "get real-time priority")
        if problem
    ]
