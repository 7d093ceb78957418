"""Under which users daemons run, read from the file of defaults."""

from __future__ import annotations

import grp
import os
import pwd
from pathlib import Path

import pytest

from ganeti import errors
from ganeti.platform import paths, users

SETTINGS = """\
# comment
NODED_ARGS="-d"
RAPI_ARGS="--user=gnt-rapi --group gnt-rapi -b 127.0.0.1"
MASTERD_ARGS='--user gnt-masterd --group=gnt-masterd'
DAEMONS_GROUP=gnt-daemons
OTHER_ARGS="--user=x"
"""


def test_settings() -> None:
    who = users.parse(SETTINGS)
    assert who.roles["rapi"] == ("gnt-rapi", "gnt-rapi")
    assert who.roles["masterd"] == ("gnt-masterd", "gnt-masterd")
    assert who.roles["noded"] == who.roles["confd"] == ("root", "root")
    assert who.group("daemons") == "gnt-daemons" and who.group("rapi") == "gnt-rapi"
    assert who.separated and not users.parse("").separated


def test_damaged_settings(tmp_path: Path) -> None:
    with pytest.raises(errors.ConfigurationError, match="No closing quotation"):
        users.parse('RAPI_ARGS="x')


def test_a_virtual_cluster_gives_nothing_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(paths.ENV_ROOT, str(tmp_path))
    here = paths.current()
    Path(here.defaults_file).parent.mkdir(parents=True)
    Path(here.defaults_file).write_text(SETTINGS)
    assert not users.current().separated
    assert users.ids("nosuch", "nosuch") == (-1, -1)
    assert users.group_id("nosuch") == -1


def test_unknown_names(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    with pytest.raises(errors.ConfigurationError, match="user nosuch or group nosuch"):
        users.ids("nosuch", "nosuch")
    with pytest.raises(errors.ConfigurationError, match="group nosuch"):
        users.group_id("nosuch")
    assert users.group_id("root") == -1


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files to other groups")
def test_a_file_keeps_its_group(tmp_path: Path) -> None:
    path = tmp_path / "config.data"
    assert users.kept_group(str(path)) == -1
    path.touch()
    assert users.kept_group(str(path)) == -1, "ours already"
    other = grp.getgrnam("daemon").gr_gid
    os.chown(path, -1, other)
    assert users.kept_group(str(path)) == other


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files to other groups")
def test_what_is_made_in_a_directory_belongs_to_its_owner(tmp_path: Path) -> None:
    assert users.owner_inside(str(tmp_path)) == (-1, -1), "ours already"
    daemon = pwd.getpwnam("daemon")
    os.chown(tmp_path, daemon.pw_uid, daemon.pw_gid)
    assert users.owner_inside(str(tmp_path)) == (daemon.pw_uid, daemon.pw_gid)


def test_free_user_ids_avoid_accounts(monkeypatch: pytest.MonkeyPatch) -> None:
    account = pwd.struct_passwd(("x", "x", 1_900_000_999, 0, "", "/", ""))
    group = grp.struct_group(("y", "x", 1_900_001_000, []))
    monkeypatch.setattr(pwd, "getpwall", lambda: [account])
    monkeypatch.setattr(grp, "getgrall", lambda: [group])
    assert users.free_user_ids(1000) == (1_900_002_000, 1_900_002_999)
    everywhere = [
        pwd.struct_passwd(("x", "x", uid, 0, "", "/", ""))
        for uid in range(1_900_000_000, 1_901_000_000, 1000)
    ]
    monkeypatch.setattr(pwd, "getpwall", lambda: everywhere)
    with pytest.raises(errors.ConfigurationError, match="accounts in every range of 1000"):
        users.free_user_ids(1000)


def test_accounts_of_this_machine() -> None:
    assert users.missing_accounts(users.parse("")) == []
    text = 'RAPI_ARGS="--user=nosuch"\nDAEMONS_GROUP=nogroup-of-that-name\n'
    assert users.missing_accounts(users.parse(text)) == [
        "group nogroup-of-that-name does not exist",
        "user nosuch does not exist",
    ]
    with pytest.raises(errors.ConfigurationError, match="user nosuch does not exist. Where 'make"):
        users.require_accounts(users.parse(text))


def test_the_master_daemon_is_a_member_of_the_groups_to_which_it_gives_files(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    text = 'MASTERD_ARGS="--user=m --group=m"\nCONFD_ARGS="--user=c --group=c"\nDAEMONS_GROUP=d\n'
    members = {"m": [], "c": [], "d": ["m"], "root": []}
    monkeypatch.setattr(
        grp, "getgrnam", lambda name: grp.struct_group((name, "x", ord(name[0]), members[name]))
    )
    monkeypatch.setattr(
        pwd, "getpwnam", lambda name: pwd.struct_passwd((name, "x", 7, 7, "", "/", "/bin/sh"))
    )
    assert users.missing_accounts(users.parse(text)) == [
        "user m of the master daemon is not a member of group c"
    ]
    members["c"].append("m")
    assert users.missing_accounts(users.parse(text)) == []
    # Nothing is given to the group root.
    assert users.missing_accounts(users.parse('MASTERD_ARGS="--user=m --group=m"')) == []
