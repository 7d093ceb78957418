"""``query-config``: one value of the configuration from a query daemon."""

from __future__ import annotations

from typing import Any

import pytest

from ganeti.confd import Answer, Client
from ganeti.constants import confd as const
from ganeti.tools import query_config


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, Any]]:
    found: list[tuple[int, Any]] = []

    def query(self: Client, kind: int, query: Any = None, **_: Any) -> Answer:
        found.append((kind, query))
        known = query == "/cluster/cluster_name"
        status = const.STATUS_OK if known else const.STATUS_ERROR
        return Answer(status, "c.example.com" if known else 0, 3, "127.0.0.1", 1, 1)

    monkeypatch.setattr(Client, "query", query)
    return found


def test_a_value(asked: list[tuple[int, Any]], capsys: pytest.CaptureFixture[str]) -> None:
    assert query_config.main(["--hmac", "key", "/cluster/cluster_name"]) == 0
    assert capsys.readouterr().out == '"c.example.com"\n'
    assert asked == [(const.REQ_CONFIG, "/cluster/cluster_name")]


def test_no_value(asked: list[tuple[int, Any]], capsys: pytest.CaptureFixture[str]) -> None:
    assert query_config.main(["--hmac", "key", "/x"]) == 1
    assert "has no value '/x'" in capsys.readouterr().err
