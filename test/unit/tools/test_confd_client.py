"""The trial program for configuration query daemons: options, output, exit codes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ganeti.confd import Answer, Client
from ganeti.constants import confd as const
from ganeti.platform import paths
from ganeti.tools import confd_client


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    kinds: list[int] = []

    def query(self: Client, kind: int, query: Any = None, **_: Any) -> Answer:
        kinds.append(kind)
        status = const.STATUS_ERROR if self._key == b"no configuration" else const.STATUS_OK
        return Answer(status, 1, 3, self._peers[0], 1, 1)

    monkeypatch.setattr(Client, "query", query)
    return kinds


def test_it_asks_and_measures(asked: list[int], capsys: pytest.CaptureFixture[str]) -> None:
    assert confd_client.main(["--hmac", "key", "-a", "127.0.0.1", "-r", "7"]) == 0
    assert asked.count(const.REQ_PING) == 8
    out = capsys.readouterr().out
    assert "master: 1 (serial 3)\n" in out and "7 pings in " in out


def test_an_error_shows_in_the_exit_code(
    asked: list[int], capsys: pytest.CaptureFixture[str]
) -> None:
    argv = ["--hmac", "no configuration", "-a", "127.0.0.1", "-r", "0"]
    assert confd_client.main(argv) == 1
    assert "master: error 1" in capsys.readouterr().out


def test_without_a_key(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with paths.override(paths.Paths(str(tmp_path))):
        assert confd_client.main(["-a", "127.0.0.1"]) == 1
    assert "cannot read" in capsys.readouterr().err
