"""ganeti-cleaner: what it removes, and what it leaves."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from ganeti.hypervisor.kvm.driver import KvmHypervisor
from ganeti.platform import paths
from ganeti.tools import cleaner
from ganeti.utils import x509

DAY_S = 86400
NOW = 1_800_000_000.0


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> paths.Paths:
    monkeypatch.setenv("GANETI_ROOTDIR", str(tmp_path))
    monkeypatch.setenv("GANETI_HOSTNAME", "node1.example.com")
    here = paths.current()
    for directory in (here.data_dir, here.lock_dir, here.log_dir, here.crypto_keys_dir):
        Path(directory).mkdir(parents=True)
    Path(here.noded_cert_file).touch()
    Path(here.ssconf_file("master_node")).write_text("node1.example.com\n", encoding="ascii")
    return here


def old(path: str, days: float) -> Path:
    """Make a file which was changed so many days ago."""
    found = Path(path)
    found.parent.mkdir(parents=True, exist_ok=True)
    found.touch()
    os.utime(found, (NOW - days * DAY_S,) * 2)
    return found


@pytest.mark.parametrize("master", [True, False])
def test_archived_jobs(master: bool, here: paths.Paths) -> None:
    if not master:
        Path(here.ssconf_file("master_node")).write_text("node2.example.com\n", encoding="ascii")
    archive = here.queue_archive_dir
    gone = old(f"{archive}/0/job-1", 23)
    between = old(f"{archive}/0/job-2", 21.5)
    kept = [
        old(f"{archive}/0/job-3", 20.9),
        old(f"{archive}/1/job-10000", 1),
        old(f"{archive}/0/notes", 100),
        old(f"{archive}/README", 100),
        old(f"{here.queue_dir}/job-4", 100),
    ]
    assert cleaner.clean("master", dry_run=False, now=NOW) == 0
    assert not gone.exists()
    # A copy never lacks what the master still has.
    assert between.exists() is not master
    assert all(path.exists() for path in kept)


def test_logs_of_commands(here: paths.Paths) -> None:
    gone = [old(f"{here.log_os_dir}/add-x.log", 22), old(f"{here.log_extstorage_dir}/y.log", 22)]
    kept = [old(f"{here.log_os_dir}/add-z.log", 20), old(f"{here.log_dir}/node-daemon.log", 100)]
    elsewhere = old(f"{here.data_dir}/precious", 100)
    Path(f"{here.log_os_dir}/link").symlink_to(elsewhere)
    assert cleaner.clean("node", dry_run=False, now=NOW) == 0
    assert not any(path.exists() for path in gone)
    assert all(path.exists() for path in (*kept, elsewhere))


def key(here: paths.Paths, name: str, pem: str | None, days: float = 0) -> Path:
    directory = Path(here.crypto_keys_dir) / name
    directory.mkdir()
    if pem is not None:
        (directory / "cert").write_text(pem, encoding="ascii")
    os.utime(directory, (NOW - days * DAY_S,) * 2)
    return directory


def test_keys_of_transfers(here: paths.Paths, monkeypatch: pytest.MonkeyPatch) -> None:
    pem = x509.certificate_part(x509.create_self_signed(validity_days=1))
    end = x509.describe(pem).not_after
    valid = key(here, "x509-1", pem)
    assert cleaner.clean("node", dry_run=False, now=end - 1) == 0
    assert valid.exists()
    assert cleaner.clean("node", dry_run=False, now=end + 1) == 0
    assert not valid.exists()


def test_keys_without_a_certificate_that_can_be_read(here: paths.Paths) -> None:
    broken, empty = key(here, "x509-1", "junk", 8), key(here, "x509-2", None, 8)
    fresh = key(here, "x509-3", None, 1)
    assert cleaner.clean("node", dry_run=False, now=NOW) == 0
    assert (broken.exists(), empty.exists(), fresh.exists()) == (False, False, True)


def test_a_dry_run(here: paths.Paths, capsys: pytest.CaptureFixture[str]) -> None:
    path = old(f"{here.log_os_dir}/add-x.log", 22)
    assert cleaner.clean("node", dry_run=True, now=NOW) == 0
    assert path.exists()
    assert capsys.readouterr().out == f"{path}\n"


def test_what_cannot_be_removed_stops_nothing(
    here: paths.Paths, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    first, second = old(f"{here.log_os_dir}/a", 22), old(f"{here.log_os_dir}/b", 22)
    plain = os.unlink

    def unlink(path: str, **more: Any) -> None:
        if path == str(first):
            raise PermissionError(13, "Permission denied")
        plain(path, **more)

    monkeypatch.setattr("ganeti.utils.fs.os.unlink", unlink)
    assert cleaner.clean("node", dry_run=False, now=NOW) == 1
    assert (first.exists(), second.exists()) == (True, False)
    assert f"cannot remove {first}: Permission denied" in caplog.text


def test_the_program(here: paths.Paths) -> None:
    path = old(f"{here.log_os_dir}/add-x.log", 20 * 365)
    assert cleaner.main(["node"]) == 0
    assert not path.exists()


def test_a_machine_without_a_cluster(here: paths.Paths) -> None:
    Path(here.noded_cert_file).unlink()
    path = old(f"{here.log_os_dir}/add-x.log", 20 * 365)
    assert cleaner.main(["node"]) == 0
    assert path.exists()


@pytest.mark.parametrize("words", [[], ["all"], ["node", "master"], ["--what", "node"]])
def test_wrong_options(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        cleaner.main(words)
    assert ended.value.code == 2


def test_logs_of_consoles(here: paths.Paths, monkeypatch: pytest.MonkeyPatch) -> None:
    directory = f"{here.log_kvm_dir}/console"
    kept = old(f"{directory}/a.log", 20)
    running = old(f"{directory}/b.log", 40)
    gone = [old(f"{directory}/c.log", 22), old(f"{directory}/c.log.1", 30)]
    for name, target in (("web1", "b"), ("db1", "c"), ("old", "missing")):
        os.symlink(f"console/{target}.log", f"{here.log_kvm_dir}/{name}.console.log")
    monkeypatch.setattr(KvmHypervisor, "list_instances", lambda self: ["web1"])
    assert cleaner.clean("node", dry_run=False, now=NOW) == 0
    assert kept.exists() and running.exists()
    assert not any(one.exists() for one in gone)
    links = sorted(name for name in os.listdir(here.log_kvm_dir) if name.endswith(".console.log"))
    assert "old.console.log" not in links and "web1.console.log" in links
