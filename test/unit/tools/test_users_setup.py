"""``users-setup``: what is missing is made, once, and equals what systemd-sysusers makes."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path

import pytest

from ganeti.tools import users_setup

TOP = Path(__file__).resolve().parents[3]
PASSWD = "root:x:0:0:root:/root:/bin/bash\n"
GROUP = "root:x:0:\n"


def test_the_names_are_those_of_sysusers() -> None:
    text = (TOP / "packaging/sysusers.d/ganeti.conf").read_text()
    assert set(re.findall(r"(?m)^g (\S+)", text)) == set(users_setup.GROUPS)
    assert dict(re.findall(r'(?m)^u (\S+) +- "([^"]+)"', text)) == {
        user.name: user.comment for user in users_setup.USERS
    }
    assert set(re.findall(r"(?m)^m (\S+) +(\S+)", text)) == {
        (user.name, group) for user in users_setup.USERS for group in user.groups
    }


def test_groups_come_before_their_users() -> None:
    commands = users_setup.plan(users_setup.parse_accounts(PASSWD, GROUP))
    order = [(words[0], words[-1]) for words in commands]
    for user in users_setup.USERS:
        assert order.index(("groupadd", user.name)) < order.index(("useradd", user.name))
    assert [words[0] for words in commands].count("usermod") == 3


def test_what_exists_is_left() -> None:
    group = "gnt-daemons:x:900:gnt-rapi\ngnt-rapi:x:901:\n"
    passwd = "gnt-rapi:x:901:901::/home:/bin/sh\n"
    commands = users_setup.plan(users_setup.parse_accounts(passwd, group))
    assert not [words for words in commands if words[-1] == "gnt-rapi"]
    assert ["groupadd", "--system", "gnt-daemons"] not in commands


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc/passwd").write_text(PASSWD)
    (tmp_path / "etc/group").write_text(GROUP)
    for name, line in (("shadow", "root:*:19000:0:99999:7:::\n"), ("gshadow", "root:*::\n")):
        (tmp_path / "etc" / name).write_text(line)
        (tmp_path / "etc" / name).chmod(0o600)
    shutil.copy("/etc/login.defs", tmp_path / "etc")
    return tmp_path


def test_without_confirmation_it_shows(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    if not Path("/etc/login.defs").exists():
        pytest.skip("no /etc/login.defs")
    assert users_setup.main(["--prefix", str(root)]) == 2
    said = capsys.readouterr()
    assert "useradd" in said.out and "nothing was changed" in said.err
    assert (root / "etc/passwd").read_text() == PASSWD


@pytest.mark.programs
@pytest.mark.skipif(
    os.geteuid() != 0 or shutil.which("useradd") is None, reason="needs root and useradd (passwd)"
)
def test_real_users_in_a_directory(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--prefix", str(root), "--yes-do-it"]
    assert users_setup.main(arguments) == 0, capsys.readouterr().err
    passwd = (root / "etc/passwd").read_text()
    assert re.search(
        r"(?m)^gnt-rapi:x:\d+:\d+:Ganeti REST daemon:/var/lib/ganeti:/usr/sbin/nologin$", passwd
    )
    groups = (root / "etc/group").read_text()
    assert re.search(r"(?m)^gnt-daemons:x:\d+:gnt-masterd,gnt-rapi,gnt-confd$", groups)
    capsys.readouterr()
    assert users_setup.main(arguments) == 0
    assert "all users and groups exist" in capsys.readouterr().out
    assert (root / "etc/passwd").read_text() == passwd


def test_a_directory_without_users(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert users_setup.main(["--prefix", str(tmp_path)]) == 1
    assert "etc/passwd" in capsys.readouterr().err
