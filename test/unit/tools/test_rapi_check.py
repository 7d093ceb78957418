"""``rapi-passwd check``: mistakes in the files, and who may do what."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ganeti import errors
from ganeti.tools import rapi_check, rapi_passwd

USERS = """\
# people
root pw write
alice pw write@own
tina pw operator@tag:web,networks
look pw @viewer
none pw
"""
ROWS = {
    "web1": [[0, "web1.example.com"], [0, "u1"], [0, ["web"]], [0, "rack1"], [0, "g1"]],
    "db1": [[0, "db1.example.com"], [0, "u2"], [0, ["db"]], [0, "rack2"], [0, "g2"]],
}


class Master:
    """Knows two instances."""

    def query(self, _what: str, _fields: Any, qfilter: Any) -> dict[str, Any]:
        found = ROWS.get(qfilter[1][2])
        return {"data": [] if found is None else [found]}


class NoMaster:
    """Does not run."""

    def query(self, *_args: Any) -> dict[str, Any]:
        raise errors.NoMasterError("no")


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "users").write_text(USERS)
    (tmp_path / "roles").write_text("pool web = tag:web\n")
    monkeypatch.setattr(rapi_check, "Client", Master)
    return tmp_path / "users"


def check(file: Path, *words: str) -> int:
    return rapi_passwd.main(["check", *words, "--file", str(file)])


def test_good_files(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert check(file) == 0
    said = capsys.readouterr()
    lines = said.out.splitlines()
    assert lines[2].startswith("tina: networks,") and "read@tag:web" in lines[2]
    assert lines == [
        "root: write",
        "alice: write@own",
        lines[2],
        "look: view",
        "none: -",
    ]
    # Limited users read all lists without a password, so somebody should know.
    assert said.err.startswith("alice, tina: everybody reads the lists")


def test_mistakes_have_line_numbers(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (file.parent / "roles").write_text("pool web = tag:web\n\nrole a = writ\nquota b = ram 1\n")
    file.write_text(USERS + "odd pw write@tga:x\nlast pw write@pool:shop\n")
    assert check(file) == 1
    said = capsys.readouterr().err.splitlines()
    assert said[0] == (
        f"{file.parent}/roles: line 3: role a: 'writ' is not a right. Did you mean 'write'?"
    )
    assert "line 4: 'ram' cannot be limited" in said[1]
    assert said[2].startswith(f"{file}: line 7: 'write@tga:x' is not a right")
    assert said[3].endswith("there is no pool 'shop', which a right of user 'last' names")


@pytest.mark.parametrize(
    ("user", "operation", "code", "said"),
    [
        ("root", "PUT /2/instances/web1/startup", 0, "yes (write)"),
        ("tina", "put /2/instances/web1/startup", 0, "yes, for tag:web (instances_name_startup@"),
        ("tina", "DELETE /2/instances/web1", 1, "no: no right allows it"),
        ("tina", "PUT /2/instances/db1/startup", 1, "no, and the user does not see db1.exam"),
        ("tina", "GET /2/instances?bulk=1", 0, "yes, for tag:web"),
        ("tina", "GET /2/networks", 0, "yes (networks)"),
        ("alice", "GET /2/networks", 1, "no: not for some instances only"),
        ("alice", "DELETE /2/instances/web1", 1, "no, and the user does not see web1.example.com"),
        ("look", "GET /2/instances/web1/console", 1, "no: no right allows it"),
        ("look", "GET /2/query/instance", 0, "yes (view)"),
        ("none", "GET /2/instances", 0, "yes (this operation needs no right)"),
        ("alice", "PUT /2/instances/nosuch/startup", 1, "it depends: for own (write@own)"),
    ],
)  # fmt: skip
def test_a_question(
    file: Path,
    capsys: pytest.CaptureFixture[str],
    user: str,
    operation: str,
    code: int,
    said: str,
) -> None:
    assert check(file, "--user", user, "--operation", operation) == code
    assert capsys.readouterr().out.startswith(said)


def test_without_the_master(
    file: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rapi_check, "Client", NoMaster)
    assert check(file, "--user", "tina", "--operation", "PUT /2/instances/web1/startup") == 1
    assert "it depends: for tag:web" in capsys.readouterr().out


def test_what_a_user_may_do(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert check(file, "--user", "tina") == 0
    said = capsys.readouterr().out.splitlines()
    assert "PUT /2/instances/{instance_name}/startup  for tag:web" in said
    assert "GET /2/networks" in said
    assert not any("documents" in line for line in said)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--user", "tin"], "there is no user 'tin'. Did you mean 'tina'?"),
        (["--user", "tina", "--operation", "PUT /2/instance"], "there is no resource /2/instance"),
        (["--user", "tina", "--operation", "PATCH /2/info"], "no method 'PATCH'; it has GET"),
    ],
)  # fmt: skip
def test_wrong_questions(
    file: Path, capsys: pytest.CaptureFixture[str], words: list[str], said: str
) -> None:
    assert check(file, *words) == 1
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(
    "words", [["x"], ["--stdin"], ["--operation", "GET /2"], ["--rights", "read"]]
)
def test_wrong_options(file: Path, words: list[str]) -> None:
    with pytest.raises(SystemExit):
        check(file, *words)
    with pytest.raises(SystemExit):
        rapi_passwd.main(["--user", "tina", "--file", str(file)])
