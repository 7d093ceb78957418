"""``rapi-passwd session`` against the real table of access records."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from fakes.config import FakeConfig, cluster_of
from fakes.luxi_master import FakeMaster
from ganeti.luxi import client as luxi
from ganeti.master.access_records import AccessRecords
from ganeti.platform import paths
from ganeti.tools import rapi_passwd

IDLE_S = 1800.0


@pytest.fixture(autouse=True)
def master(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeMaster]:
    monkeypatch.setenv("GANETI_ROOTDIR", str(tmp_path / "node1.example.com"))
    monkeypatch.setenv("GANETI_HOSTNAME", "node1.example.com")
    monkeypatch.setenv("GANETI_VCLUSTER", str(tmp_path))
    monkeypatch.delenv("FORCE_LUXI_SOCKET", raising=False)
    here = paths.current()
    Path(here.ssconf_file("master_node")).parent.mkdir(parents=True)
    Path(here.ssconf_file("master_node")).write_text("node1.example.com\n", encoding="utf-8")
    config, table = FakeConfig(cluster_of()), AccessRecords()
    serving = FakeMaster()
    serving.answers["QueryAccessRecords"] = lambda kind, since: table.listed(config, kind, since)
    serving.answers["ChangeAccessRecords"] = lambda changes: table.changed(config, changes)
    with serving.serve(here):
        yield serving


def begin(owner: str, number: int, used: float | None = None) -> str:
    """A session; return its id."""
    now = time.time()
    record = {
        "kind": "session",
        "key": f"{number:064x}"[::-1],
        "owner": owner,
        "ctime": now - 7200,
        "expires": now + 7200,
        "used": now if used is None else used,
        "data": {"by": "password", "address": "192.0.2.1", "agent": "B/1", "idle": IDLE_S},
    }
    with luxi.Client() as client:
        client.change_access_records([["put", record]])
    return str(record["key"])[:20]


def present() -> list[str]:
    with luxi.Client() as client:
        found = client.query_access_records("session")["records"]
    return sorted(one["key"][:20] for one in found)


def test_the_list(capsys: pytest.CaptureFixture[str]) -> None:
    assert rapi_passwd.main(["session", "list"]) == 0
    assert capsys.readouterr().out == "there are no sessions\n"
    jill, jack = begin("jill", 1), begin("jack", 2)
    idle = begin("jill", 3, used=time.time() - IDLE_S - 1)
    assert rapi_passwd.main(["session", "list"]) == 0
    out = capsys.readouterr().out
    assert jill in out and jack in out and idle not in out
    assert "192.0.2.1" in out and "B/1" in out
    assert rapi_passwd.main(["session", "list", "jack"]) == 0
    out = capsys.readouterr().out
    assert jack in out and jill not in out


def test_the_end(capsys: pytest.CaptureFixture[str]) -> None:
    first, second, third, fourth = (
        begin("jill", 1),
        begin("jill", 2),
        begin("jack", 3),
        begin("jane", 4),
    )
    assert rapi_passwd.main(["session", "end", first, "nosuch"]) == 1
    assert "there is no session nosuch; none was ended" in capsys.readouterr().err
    assert rapi_passwd.main(["session", "end"]) == 1
    assert rapi_passwd.main(["session", "end", first, "--all"]) == 1
    assert len(present()) == 4
    assert rapi_passwd.main(["session", "end", third]) == 0
    assert f"session {third} of user 'jack' was ended" in capsys.readouterr().out
    assert present() == sorted([first, second, fourth])
    assert rapi_passwd.main(["session", "end", "--user", "jill"]) == 0
    assert present() == [fourth]
    assert rapi_passwd.main(["session", "end", "--all"]) == 0
    assert present() == []
    assert rapi_passwd.main(["session", "end", "--all"]) == 0
    assert "no such sessions" in capsys.readouterr().out
