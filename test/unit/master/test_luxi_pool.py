"""The threads of the server of LUXI."""

from __future__ import annotations

import threading

import pytest

from ganeti.master import luxi_server
from ganeti.utils import shortage

PATIENCE_S = 60.0


def test_the_server_serves_without_more_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """With one, tasks wait for it; without any, the loop of the server runs them."""
    pool = luxi_server._Pool("luxi", 4)
    done: list[int] = []
    with monkeypatch.context() as patch:
        patch.setattr(shortage, "start_thread", lambda *_args, **_kwargs: None)
        pool.run(lambda: done.append(1))
        pool.run(lambda: done.append(2))
    assert done == [1, 2]
    entered, gate, last = threading.Event(), threading.Event(), threading.Event()

    def hold() -> None:
        entered.set()
        gate.wait(PATIENCE_S)

    pool.run(hold)
    assert entered.wait(PATIENCE_S)
    with monkeypatch.context() as patch:
        patch.setattr(shortage, "start_thread", lambda *_args, **_kwargs: None)
        pool.run(lambda: done.append(3))
        pool.run(last.set)
    assert not last.is_set()
    gate.set()
    assert last.wait(PATIENCE_S)
    assert done == [1, 2, 3]
    pool.stop()
