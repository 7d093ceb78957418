"""Files in /run of processes which were killed are removed, and those of living ones stay."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from ganeti.backend import leftovers
from ganeti.backend.backup import transfers
from ganeti.jobexec import livelock
from ganeti.platform import paths
from ganeti.storage import busy, node_work
from ganeti.tools import cleaner
from ganeti.utils import clock, fs

TOKEN = "0123456789abcdef"


@pytest.fixture
def here(tmp_path: Path) -> Iterator[paths.Paths]:
    with paths.override(paths.Paths(str(tmp_path / "node1"))) as found:
        for directory in (found.run_dir, found.data_dir, found.livelock_dir, found.disk_locks_dir):
            os.makedirs(directory)
        os.makedirs(f"{found.node_work_dir}/revoked")
        os.makedirs(found.import_export_dir)
        yield found


@pytest.fixture
def ended() -> int:
    """Number of a process which has ended."""
    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait()
    return child.pid


def make(path: str, content: str = "x", age_s: float = 0) -> str:
    os.makedirs(os.path.dirname(path), exist_ok=True)
    Path(path).write_text(content, encoding="ascii")
    os.utime(path, (clock.now() - age_s,) * 2)
    return path


def transfer(here: paths.Paths, name: str, pid: int, age_s: float) -> str:
    directory = f"{here.import_export_dir}/{name}"
    make(f"{directory}/pid", f"{pid}\n")
    os.utime(directory, (clock.now() - age_s,) * 2)
    return directory


def files_of(here: paths.Paths, pid: int, age_s: float) -> list[str]:
    """One file of each kind which belongs to a process."""
    os.makedirs(f"{here.run_dir}/ganeti-test-{pid}-abc")
    return [
        make(f"{here.run_dir}/.instance-status.{pid}.3.new"),
        make(f"{here.livelock_dir}/.job_7_{TOKEN}.held.{pid}.0.new"),
        make(f"{here.kvm_root}/conf/.web1.runtime.{pid}.1.new"),
        make(f"{here.import_export_dir}/import-{pid}/.status.{pid}.1.new"),
        make(f"{here.run_dir}/ganeti-iallocator.{pid}.abc"),
        f"{here.run_dir}/ganeti-test-{pid}-abc",
        make(f"{here.node_work_dir}/{pid}-1-aa"),
        make(f"{here.node_work_dir}/.{pid}-2-aa"),
        transfer(here, f"import-web1-{pid}", pid, age_s),
    ]


@pytest.mark.parametrize(
    "how", [leftovers.remove_all, lambda: cleaner.clean("node", dry_run=False)]
)
def test_files_of_ended_processes_go_and_those_of_living_ones_stay(how, here, ended) -> None:
    gone = [
        *files_of(here, ended, age_s=4000),
        make(f"{here.disk_locks_dir}/{'a' * 32}"),
        make(f"{here.node_work_dir}/revoked/old", age_s=2 * 86400),
    ]
    kept = [
        *files_of(here, os.getpid(), age_s=4000),
        # The master has not read how it ended.
        transfer(here, "export-web2", ended, age_s=60),
        make(f"{here.node_work_dir}/revoked/new"),
        make(f"{here.run_dir}/ganeti-masterd.pid"),
        make(f"{here.chroot_root}/web3/.its.{ended}.1.new"),
    ]
    assert sorted(leftovers.found()) == sorted(gone)
    how()
    assert not [path for path in gone if os.path.lexists(path)]
    assert [path for path in kept if not os.path.lexists(path)] == []


def test_locks_which_programs_hold_stay(here, ended) -> None:
    """The program which inherited a lock works on, although the process that took it has ended."""
    paths_held = [make(f"{here.node_work_dir}/{ended}-1-aa"), make(f"{here.disk_locks_dir}/b")]
    holder = subprocess.Popen(
        ["flock", paths_held[0], "flock", paths_held[1], "sh", "-c", "echo ready; read end"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert holder.stdout is not None and holder.stdout.readline() == b"ready\n"
    leftovers.remove_all()
    assert all(map(os.path.exists, paths_held))
    # Also when it was locked between the look and the removal.
    leftovers.remove(paths_held[1])
    assert os.path.exists(paths_held[1])
    holder.communicate(b"\n")
    leftovers.remove_all()
    assert not any(map(os.path.exists, paths_held))


def test_a_master_which_starts_removes_unfinished_records(here, ended) -> None:
    old = make(f"{here.livelock_dir}/.job_7_{TOKEN}.held.{ended}.0.new")
    new = make(f"{here.livelock_dir}/.job_8_{TOKEN}.held.{os.getpid()}.0.new")
    livelock.remove_stale(here.livelock_dir)
    assert (os.path.exists(old), os.path.exists(new)) == (False, True)


def test_the_next_transfer_removes_the_directories_of_ended_ones(here, ended) -> None:
    old = transfer(here, "import-web1", ended, age_s=4000)
    assert list(transfers.leftovers()) == [old]


def test_unfinished_files_of_the_state_are_removed(here, ended) -> None:
    gone = [
        make(f"{here.data_dir}/.config.data.{ended}.5.new"),
        make(f"{here.queue_dir}/.job-7.{ended}.6.new"),
        make(f"{here.queue_archive_dir}/0/.job-8.{ended}.7.new"),
    ]
    kept = make(f"{here.data_dir}/.config.data.{os.getpid()}.5.new")
    assert cleaner.clean("node", dry_run=False) == 0
    assert not any(map(os.path.exists, gone)) and os.path.exists(kept)


def test_one_that_cannot_be_removed_stops_nothing(here, ended, monkeypatch, caplog) -> None:
    first, second = (make(f"{here.run_dir}/.{name}.{ended}.1.new") for name in "ab")
    plain = fs.remove_file

    def remove(path: str, missing_ok: bool = True) -> None:
        if path == first:
            raise PermissionError(13, "Permission denied")
        plain(path, missing_ok)

    monkeypatch.setattr(fs, "remove_file", remove)
    leftovers.remove_all()
    assert (os.path.exists(first), os.path.exists(second)) == (True, False)
    assert f"cannot remove {first}: Permission denied" in caplog.text


def test_a_node_without_directories(tmp_path: Path) -> None:
    with paths.override(paths.Paths(str(tmp_path / "new"))):
        assert leftovers.found() == []


def test_the_lock_of_a_disk_can_be_taken_after_that(here) -> None:
    path = make(f"{here.disk_locks_dir}/c")
    busy.discard(path)
    assert not os.path.exists(path)
    assert list(node_work.leftovers()) == []
