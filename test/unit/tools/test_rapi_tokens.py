"""``rapi-passwd token`` and ``certificate`` against the real table of access records."""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from fakes.config import FakeConfig, cluster_of
from fakes.luxi_master import FakeMaster
from ganeti import errors
from ganeti.luxi import client as luxi
from ganeti.master.access_records import AccessRecords
from ganeti.platform import paths
from ganeti.rapi import passwords
from ganeti.rapi.kept_records import digest
from ganeti.tools import rapi_passwd
from ganeti.utils import x509

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> paths.Paths:
    monkeypatch.setenv("GANETI_ROOTDIR", str(tmp_path / "node1.example.com"))
    monkeypatch.setenv("GANETI_HOSTNAME", "node1.example.com")
    monkeypatch.setenv("GANETI_VCLUSTER", str(tmp_path))
    monkeypatch.setenv("TZ", "UTC")
    monkeypatch.delenv("FORCE_LUXI_SOCKET", raising=False)
    monkeypatch.setattr(rapi_passwd, "hashed", lambda text: passwords.hashed(text, (1 << 5, 8, 1)))
    here = paths.current()
    Path(here.rapi_users_file).parent.mkdir(parents=True)
    Path(here.rapi_users_file).write_text("jack x write\njill x read\n", encoding="utf-8")
    Path(here.ssconf_file("master_node")).write_text("node1.example.com\n", encoding="utf-8")
    return here


@pytest.fixture
def master(here: paths.Paths) -> Iterator[FakeMaster]:
    config, table = FakeConfig(cluster_of()), AccessRecords()
    serving = FakeMaster()
    serving.answers["QueryAccessRecords"] = lambda kind, since: table.listed(config, kind, since)
    serving.answers["ChangeAccessRecords"] = lambda changes: table.changed(config, changes)
    with serving.serve(here):
        yield serving


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], master: FakeMaster) -> Run:
    def one(*words: str) -> tuple[int, str, str]:
        code = rapi_passwd.main(words)
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return one


def records(kind: str = "token") -> list[dict[str, Any]]:
    with luxi.Client() as client:
        return list(client.query_access_records(kind)["records"])


def ids(text: str) -> list[str]:
    return [line.split()[0] for line in text.splitlines()[1:]]


def test_a_token_is_shown_once_and_kept_as_a_hash(run: Run) -> None:
    code, out, err = run("token", "add", "jack", "--rights", "@readonly", "--label", "ci job")
    assert code == 0 and re.fullmatch(r"gnt_[A-Za-z0-9_-]{43}\n", out)
    secret = out.strip()
    (record,) = records()
    assert record["key"] == digest(secret) and record["owner"] == "jack"
    assert record["data"] == {"label": "ci job", "rights": "@readonly"}
    assert 89.9 < (record["expires"] - time.time()) / 86400 < 90.1
    assert secret not in err and record["key"][:12] in err
    code, out, err = run("token", "list")
    assert (code, err) == (0, "")
    assert out.splitlines()[0].split() == [
        "ID", "User", "Label", "Rights", "Made", "Ends", "LastUse",
    ]  # fmt: skip
    assert "ci job" in out and "@readonly" in out and "never" in out
    assert secret not in out and record["key"] not in out


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("add", "nobody"), "there is no user 'nobody'"),
        (("add", "jack", "--rights", "wirte"), "'wirte' is not a right"),
        (("add", "jack", "--rights", "read@nosuch"), "is not a right"),
        (("add", "jack", "--expires", "soon"), "'soon' is not an end"),
        (("add", "jack", "--expires", "2001-01-01"), "is in the past"),
        (("add", "jack", "--label", "a\nb"), "which can be printed"),
        (("add", "jack", "--label", "x" * 101), "at most 100 characters"),
        (("remove", "0123456789ab"), "there is no token 0123456789ab; nothing was removed"),
        (("remove",), "give the ids of the tokens"),
        (("remove", "a", "--user", "jack"), "give the ids of the tokens"),
    ],
)
def test_mistakes_change_nothing(run: Run, words: tuple[str, ...], expected: str) -> None:
    code, out, err = run("token", *words)
    assert (code, out) == (1, "") and expected in err
    assert records() == []


def test_tokens_are_removed_one_by_one_or_all_of_a_user(run: Run) -> None:
    for user in ("jack", "jack", "jill", "jill"):
        assert run("token", "add", user, "--expires", "never")[0] == 0
    first, second, third, fourth = ids(run("token", "list")[1])
    assert ids(run("token", "list", "jill")[1]) == [third, fourth]
    code, out, _err = run("token", "remove", first, first)
    assert code == 0 and out == f"token {first} of user 'jack' was removed\n"
    # One wrong id: the others stay.
    assert run("token", "remove", second, "nosuch")[0] == 1
    assert ids(run("token", "list")[1]) == [second, third, fourth]
    assert run("token", "remove", "--user", "jill")[0] == 0
    assert ids(run("token", "list")[1]) == [second]
    assert run("token", "remove", "--user", "jill") == (0, "user 'jill' has no tokens\n", "")
    assert run("token", "list", "jill")[1] == "user 'jill' has no tokens\n"


def test_a_token_that_has_ended_is_marked(run: Run) -> None:
    with luxi.Client() as client:
        made = {"kind": "token", "key": "a" * 64, "owner": "jack", "ctime": 1.0, "data": {}}
        client.change_access_records([["put", {**made, "expires": time.time() - 60}]])
    assert "(ended)" in run("token", "list")[1]


def test_who_removes_a_user_removes_his_tokens(run: Run, master: FakeMaster) -> None:
    for user in ("jack", "jill"):
        run("token", "add", user)
    hook = {"kind": "webhook", "key": "w", "owner": "jack", "ctime": 1.0, "data": {}}
    with luxi.Client() as client:
        client.change_access_records([["put", hook]])
    assert run("--delete", "jack")[0] == 0
    assert [one["owner"] for one in records()] == ["jill"]
    # What works for the cluster stays.
    assert len(records("webhook")) == 1
    master.errors["ChangeAccessRecords"] = errors.ConfigurationError("no majority")
    code, _out, err = run("--delete", "jill")
    assert code == 0 and "rapi-passwd token remove --user jill" in err and "no majority" in err


def test_without_a_master(
    here: paths.Paths, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(rapi_passwd, "CONNECT_S", 0.01)
    assert rapi_passwd.main(["token", "list"]) == 1
    assert "master daemon" in capsys.readouterr().err
    # The users file needs none.
    assert rapi_passwd.main(["--delete", "jack"]) == 0
    assert "were not removed" in capsys.readouterr().err


def test_a_user_whose_name_is_a_subject(
    here: paths.Paths, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("getpass.getpass", lambda prompt: "pw")
    assert rapi_passwd.main(["token"]) == 0
    assert rapi_passwd.main(["token", "--rights", "read"]) == 0
    assert "token {SCRYPT}" in Path(here.rapi_users_file).read_text(encoding="utf-8")
    for words in (["token", "--help"], ["token", "add"], ["token", "nosuch"]):
        with contextlib.suppress(SystemExit):
            rapi_passwd.main(words)
        captured = capsys.readouterr()
        assert "rapi-passwd token" in captured.out + captured.err


def test_a_certificate_from_its_adding_to_its_removal(run: Run, tmp_path: Path) -> None:
    pem = tmp_path / "ci.pem"
    pem.write_text(x509.create_self_signed("ci", validity_days=10), encoding="ascii")
    code, out, _err = run("certificate", "add", "jack", str(pem), "--label", "ci")
    assert code == 0 and "of user 'jack' ends " in out
    (record,) = records("certificate")
    assert record["key"] == x509.fingerprint(pem.read_text()).hex()
    assert record["expires"] == x509.validity(pem.read_text())[1]
    # The name of the user is not changed by a second adding.
    code, _out, err = run("certificate", "add", "jill", str(pem))
    assert code == 1 and "is already added, as" in err
    (one,) = ids(run("certificate", "list")[1])
    assert run("certificate", "remove", one)[0] == 0
    assert records("certificate") == []
    assert run("certificate", "list")[1] == "there are no certificates\n"


def test_files_without_a_certificate(run: Run, tmp_path: Path) -> None:
    (tmp_path / "empty").write_text("", encoding="ascii")
    (tmp_path / "binary").write_bytes(b"\xff\xfe")
    for name in ("nosuch", "empty", "binary"):
        code, _out, err = run("certificate", "add", "jack", str(tmp_path / name))
        assert code == 1 and name in err
    assert records("certificate") == []
