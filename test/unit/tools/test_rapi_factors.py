"""``rapi-passwd totp`` and ``passkey`` against the real table of access records."""

from __future__ import annotations

import builtins
import io
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from fakes.config import FakeConfig, cluster_of
from fakes.luxi_master import FakeMaster
from ganeti.luxi import client as luxi
from ganeti.master.access_records import AccessRecords
from ganeti.platform import paths
from ganeti.rapi import totp
from ganeti.rapi.sealed import Seal
from ganeti.tools import rapi_passwd

pyotp = pytest.importorskip("pyotp", reason="make venv installs it")

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> paths.Paths:
    monkeypatch.setenv("GANETI_ROOTDIR", str(tmp_path / "node1.example.com"))
    monkeypatch.setenv("GANETI_HOSTNAME", "node1.example.com")
    monkeypatch.setenv("GANETI_VCLUSTER", str(tmp_path))
    monkeypatch.delenv("FORCE_LUXI_SOCKET", raising=False)
    here = paths.current()
    Path(here.rapi_users_file).parent.mkdir(parents=True)
    Path(here.rapi_users_file).write_text("jack x write\njill x read\n", encoding="utf-8")
    Path(here.hmac_key).write_text("key\n", encoding="utf-8")
    Path(here.ssconf_file("master_node")).write_text("node1.example.com\n", encoding="utf-8")
    Path(here.ssconf_file("cluster_name")).write_text("cluster.example.com\n", encoding="utf-8")
    return here


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], here: paths.Paths) -> Iterator[Run]:
    config, table = FakeConfig(cluster_of()), AccessRecords()
    serving = FakeMaster()
    serving.answers["QueryAccessRecords"] = lambda kind, since: table.listed(config, kind, since)
    serving.answers["ChangeAccessRecords"] = lambda changes: table.changed(config, changes)

    def one(*words: str) -> tuple[int, str, str]:
        code = rapi_passwd.main(words)
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    with serving.serve(here):
        yield one


def records(kind: str = totp.KIND) -> list[dict[str, Any]]:
    with luxi.Client() as client:
        return list(client.query_access_records(kind)["records"])


def put(**values: Any) -> None:
    with luxi.Client() as client:
        client.change_access_records([["put", {"ctime": 1.0e9, "expires": None, **values}]])


class App:
    """Scans the address on the screen, and types codes.

    :ivar wrong: so many codes are wrong before a right one.
    """

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self.capsys = capsys
        self.wrong = 0
        self.screen = ""

    def __call__(self, _question: str) -> str:
        self.screen += self.capsys.readouterr().out
        line = [one for one in self.screen.splitlines() if one.startswith("otpauth://")][-1]
        code = int(pyotp.parse_uri(line).generate_otp(int(time.time()) // 30))
        if self.wrong:
            self.wrong -= 1
            code = (code + 500_000) % 1_000_000
        return f"{code:06d}"


@pytest.fixture
def app(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> App:
    found = App(capsys)
    monkeypatch.setattr(builtins, "input", found)
    return found


def test_one_time_codes(run: Run, app: App) -> None:
    assert run("totp", "list") == (0, "no user has one-time codes\n", "")
    app.wrong = 2
    code, out, _err = run("totp", "add", "jill")
    assert code == 0
    assert "cluster.example.com:jill" in app.screen
    codes = [line.strip() for line in out.splitlines() if line.startswith("  ")]
    assert len(codes) == 10
    (record,) = records()
    assert record["owner"] == "jill" and len(record["data"]["recovery"]) == 10
    sealed = str(record["data"]["secret"])
    assert Seal(b"key").open(sealed, "totp/jill").decode() in app.screen
    assert not any(one in str(record) for one in codes)
    code, out, _err = run("totp", "list", "jill")
    assert out.splitlines()[1].split()[0] == "jill" and out.split()[-1] == "10"
    assert run("totp", "list", "jack")[1] == "user 'jack' has none\n"
    code, _out, err = run("totp", "add", "jill")
    assert code == 1 and "rapi-passwd totp remove jill" in err
    assert run("totp", "remove", "jill")[0] == 0 and records() == []
    code, _out, err = run("totp", "remove", "jill")
    assert code == 1 and "has no one-time codes" in err


def test_no_right_code_changes_nothing(run: Run, app: App) -> None:
    app.wrong = 3
    code, _out, err = run("totp", "add", "jill")
    assert code == 1 and "nothing was changed" in err and records() == []


def test_the_end_of_the_input_changes_nothing(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO())
    code, _out, err = run("totp", "add", "jill")
    assert code == 1 and "nothing was changed" in err and records() == []


def test_a_user_who_does_not_exist(run: Run) -> None:
    code, _out, err = run("totp", "add", "ola")
    assert code == 1 and "there is no user 'ola'" in err


def test_without_a_confd_key(run: Run, here: paths.Paths) -> None:
    Path(here.hmac_key).unlink()
    code, _out, err = run("totp", "add", "jill")
    assert code == 1 and "confd key" in err


def test_without_the_packages(run: Run, app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "segno", None)
    assert run("totp", "add", "jack")[0] == 0
    assert "▄" not in app.screen
    monkeypatch.setitem(sys.modules, "pyotp", None)
    code, _out, err = run("totp", "add", "jill")
    assert code == 1 and "python3-pyotp" in err


def test_passkeys(run: Run) -> None:
    assert run("passkey", "list")[1] == "there are no passkeys\n"
    for number, owner in enumerate(("jill", "jill", "jack")):
        put(
            kind="passkey",
            key=str(number) * 64,
            owner=owner,
            data={"id": "x", "public_key": "y", "counter": 0, "label": f"key {number}"},
        )
    _code, out, _err = run("passkey", "list", "jill")
    assert [line.split()[:2] for line in out.splitlines()[1:]] == [
        ["0" * 12, "jill"],
        ["1" * 12, "jill"],
    ]
    assert run("passkey", "remove", "0" * 12)[0] == 0
    assert len(records("passkey")) == 2
    assert run("passkey", "remove", "--user", "jack")[0] == 0
    (left,) = records("passkey")
    assert left["owner"] == "jill"
    code, _out, err = run("passkey", "remove", "9" * 12)
    assert code == 1 and "there is no passkey 999999999999" in err
