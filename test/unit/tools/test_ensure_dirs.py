"""Modes and owners against the published table; links; what is missing or of another kind."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from ganeti import errors
from ganeti.platform import paths, users
from ganeti.tools import ensure_dirs

# path -> (mode, owner, group): the published table, as far as there are such files here.
PUBLISHED = {
    "DATA": (0o755, "masterd", "masterd"),
    "DATA/cluster-domain-secret": (0o640, "masterd", "masterd"),
    "DATA/config.data": (0o640, "masterd", "confd"),
    "DATA/hmac.key": (0o440, "confd", "masterd"),
    "DATA/known_hosts": (0o644, "masterd", "masterd"),
    "DATA/rapi.pem": (0o440, "rapi", "masterd"),
    "DATA/spice.pem": (0o440, "noded", "masterd"),
    "DATA/spice-ca.pem": (0o440, "noded", "masterd"),
    "DATA/server.pem": (0o440, "masterd", "masterd"),
    "DATA/client.pem": (0o440, "masterd", "masterd"),
    "DATA/watcher.pause": (0o644, "masterd", "masterd"),
    "DATA/ssconf_master_node": (0o444, "noded", "noded"),
    "DATA/queue": (0o750, "masterd", "daemons"),
    "DATA/queue/drain": (0o644, "masterd", "daemons"),
    "DATA/queue/lock": (0o640, "masterd", "daemons"),
    "DATA/queue/serial": (0o640, "masterd", "daemons"),
    "DATA/queue/version": (0o640, "masterd", "daemons"),
    "DATA/queue/archive": (0o750, "masterd", "daemons"),
    "DATA/rapi": (0o750, "rapi", "masterd"),
    "DATA/rapi/users": (0o640, "rapi", "masterd"),
    "DATA/rapi/roles": (0o640, "rapi", "masterd"),
    "DATA/rapi/oidc.json": (0o640, "rapi", "masterd"),
    "RUN": (0o775, "masterd", "daemons"),
    "RUN/socket": (0o770, "masterd", "daemons"),
    "RUN/socket/ganeti-master": (0o660, "masterd", "daemons"),
    "RUN/bdev-cache": (0o755, "noded", "masterd"),
    "RUN/uid-pool": (0o750, "noded", "masterd"),
    "RUN/instance-disks": (0o755, "noded", "masterd"),
    "RUN/crypto": (0o700, "noded", "masterd"),
    "RUN/import-export": (0o755, "noded", "masterd"),
    "RUN/instance-reason": (0o755, "noded", "noded"),
    "RUN/livelocks": (0o750, "masterd", "daemons"),
    "LOG": (0o770, "masterd", "daemons"),
    "LOG/master-daemon.log": (0o600, "masterd", "masterd"),
    "LOG/conf-daemon.log": (0o600, "confd", "masterd"),
    "LOG/node-daemon.log": (0o600, "noded", "masterd"),
    "LOG/rapi-daemon.log": (0o600, "rapi", "masterd"),
    "LOG/rapi-access.log": (0o600, "rapi", "masterd"),
    "LOG/monitoring-daemon.log": (0o600, "mond", "masterd"),
    "LOG/os": (0o750, "noded", "daemons"),
    "LOG/xen": (0o750, "noded", "daemons"),
    "LOG/kvm": (0o750, "noded", "daemons"),
}


@pytest.fixture
def here(tmp_path: Path) -> paths.Paths:
    found = paths.Paths(str(tmp_path))
    Path(found.data_dir).mkdir(parents=True)
    Path(found.ssconf_file("master_node")).touch()
    return found


def full_path(here: paths.Paths, name: str) -> str:
    top, _, rest = name.partition("/")
    return os.path.join(
        {"DATA": here.data_dir, "RUN": here.run_dir, "LOG": here.log_dir}[top], rest
    ).rstrip("/")


def test_the_published_table(here: paths.Paths) -> None:
    ours = {entry.path: (entry.mode, entry.owner, entry.group) for entry in ensure_dirs.table(here)}
    for name, (mode, *owners) in PUBLISHED.items():
        # Nobody of the group removes or replaces files of others, unlike in the original.
        sticky = 0o1000 if name in ("RUN", "RUN/socket", "LOG") else 0
        assert ours[full_path(here, name)] == (mode | sticky, *owners), name


def test_directories_are_made_and_modes_put_right(here: paths.Paths) -> None:
    who = users.parse("")
    Path(here.hmac_key).touch(0o666)
    assert here.socket_dir in ensure_dirs.ensure(here, who)
    Path(here.master_socket).touch(0o666)
    changed = ensure_dirs.ensure(here, who)
    assert changed == [here.master_socket]
    assert ensure_dirs.ensure(here, who) == []
    for entry in ensure_dirs.table(here):
        if os.path.exists(entry.path):
            assert stat.S_IMODE(os.stat(entry.path).st_mode) == entry.mode, entry.path
        else:
            assert not entry.directory


def test_job_files_only_in_a_full_run(here: paths.Paths) -> None:
    who = users.parse("")
    ensure_dirs.ensure(here, who)
    archive = Path(here.queue_archive_dir) / "0"
    archive.mkdir(0o700)
    jobs = [Path(here.queue_dir) / "job-1", archive / "job-2"]
    for job in jobs:
        job.touch(0o600)
        job.chmod(0o600)
    assert ensure_dirs.ensure(here, who) == []
    assert sorted(ensure_dirs.ensure(here, who, full=True)) == sorted(
        [str(archive), *map(str, jobs)]
    )


def test_what_the_master_daemon_cannot_start_without(here: paths.Paths) -> None:
    # After a change of its user it must be able to read its journal and its history.
    who = users.parse("")
    ensure_dirs.ensure(here, who)
    journal = Path(here.queue_dir) / "journal-6"
    commits = Path(here.cluster_conf_history_dir) / "commits-000000000002"
    serial = Path(here.config_serial_file)
    commits.parent.mkdir()
    for path, mode in (
        (commits.parent, 0o755), (journal, 0o600), (commits, 0o644), (serial, 0o644)
    ):  # fmt: skip
        path.touch()
        path.chmod(mode)
    assert sorted(ensure_dirs.ensure(here, who)) == sorted(
        map(str, (journal, commits.parent, commits, serial))
    )
    changed = (journal, commits.parent, commits, serial)
    modes = [stat.S_IMODE(path.stat().st_mode) for path in changed]
    assert modes == [0o640, 0o700, 0o600, 0o600]


def test_no_link_is_followed(here: paths.Paths, tmp_path: Path) -> None:
    victim = tmp_path / "shadow"
    victim.touch()
    victim.chmod(0o600)
    Path(here.known_hosts_file).symlink_to(victim)
    with pytest.raises(errors.ConfigurationError, match="is not a file"):
        ensure_dirs.ensure(here, users.parse(""))
    assert stat.S_IMODE(victim.stat().st_mode) == 0o600


def test_a_file_in_the_place_of_a_directory(here: paths.Paths) -> None:
    Path(here.queue_dir).touch()
    with pytest.raises(errors.ConfigurationError, match="is not a directory"):
        ensure_dirs.ensure(here, users.parse(""))


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_owners(here: paths.Paths, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two system users that every machine has stand for the daemons'."""
    monkeypatch.delenv(paths.ENV_ROOT, raising=False)
    who = users.parse('RAPI_ARGS="--user=nobody --group=nogroup"\nDAEMONS_GROUP=daemon\n')
    Path(here.rapi_cert_file).touch()
    ensure_dirs.ensure(here, who)
    found = os.stat(here.rapi_cert_file)
    assert (found.st_uid, found.st_gid) == users.ids("nobody", "root")
    assert os.stat(here.rapi_data_dir).st_uid == found.st_uid
    assert os.stat(here.socket_dir).st_gid == users.ids("root", "daemon")[1]
    assert os.stat(here.data_dir).st_uid == 0
    with pytest.raises(errors.ConfigurationError, match="nosuchgroup"):
        ensure_dirs.ensure(here, users.parse("DAEMONS_GROUP=nosuchgroup\n"))


def test_the_program(
    here: paths.Paths, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(paths.ENV_ROOT, here.root)
    assert ensure_dirs.main(["-v"]) == 0
    assert here.queue_dir in capsys.readouterr().out
    assert ensure_dirs.main(["--full-run"]) == 0
    assert capsys.readouterr().out == ""
    os.rmdir(here.crypto_keys_dir)
    Path(here.crypto_keys_dir).touch()
    assert ensure_dirs.main([]) == 1
    assert "ensure-dirs: " in capsys.readouterr().err
