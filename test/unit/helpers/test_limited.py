"""A program on a file that nobody trusts: its limits, and the files that it cannot open."""

from __future__ import annotations

import ctypes
import os
import pwd
import shutil
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest

from ganeti import errors
from ganeti.foreign import images
from ganeti.helpers import limited

MIB = 1 << 20
needs_qemu = pytest.mark.skipif(shutil.which("qemu-img") is None, reason="qemu-img is missing")
needs_landlock = pytest.mark.skipif(
    ctypes.CDLL(None).syscall(444, None, ctypes.c_size_t(0), 1) < 1,
    reason="the kernel has no Landlock",
)

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can change the user")


def run(*words: str | Path, **limits: int) -> subprocess.CompletedProcess[str]:
    """Run words of limited, and a program after ``--``."""
    wanted = {"memory": 1 << 30, "cpu": 30, "file_size": MIB, **limits}
    options = [f"--{name.replace('_', '-')}={value}" for name, value in wanted.items()]
    return subprocess.run(
        [sys.executable, "-m", "ganeti.helpers.limited", *options, *map(str, words)],
        capture_output=True,
        text=True,
        check=False,
    )


def test_memory_is_limited() -> None:
    """The program asks for more than its limit, and does not get it."""
    words = ("--", "dd", "if=/dev/zero", "of=/dev/null", "bs=900M", "count=1")
    assert run(*words).returncode == 0
    done = run(*words, memory=512 * MIB)
    assert done.returncode == 1
    assert "memory exhausted" in done.stderr


def test_processor_time_is_limited() -> None:
    done = run("--", "dd", "if=/dev/zero", "of=/dev/null", "bs=1", cpu=1)
    assert done.returncode in (128 + 9, 128 + 24)
    assert "ended it; it may have reached a limit" in done.stderr


def test_output_is_limited() -> None:
    done = run("--", "dd", "if=/dev/zero", "bs=1M", "count=100", "status=none")
    assert done.returncode == 125
    assert (done.stdout, "it printed more than 16 MiB" in done.stderr) == ("", True)


def test_files_are_limited(tmp_path: Path) -> None:
    target = tmp_path / "a"
    target.touch()
    done = run("--write", target, "--", "dd", "if=/dev/zero", f"of={target}", "bs=1M", "count=2")
    assert done.returncode != 0
    assert target.stat().st_size == MIB


@needs_landlock
def test_files_of_the_node_are_out_of_reach(tmp_path: Path) -> None:
    """Only the named files, and those only as named."""
    mine, other = tmp_path / "mine", tmp_path / "other"
    mine.write_text("mine")
    other.write_text("other")
    assert run("--read", mine, "--", "cat", mine).stdout == "mine"
    for path in (other, "/etc/passwd", "/proc/self/environ"):
        done = run("--read", mine, "--", "cat", path)
        assert (done.returncode, done.stdout) == (1, "")
        assert "Permission denied" in done.stderr
    for target in (mine, other, tmp_path / "new"):
        done = run("--read", mine, "--", "dd", "if=/dev/zero", f"of={target}", "count=1")
        assert "Permission denied" in done.stderr
    assert sorted(path.read_text() for path in tmp_path.iterdir()) == ["mine", "other"]


@needs_root
def test_the_program_is_not_root(tmp_path: Path) -> None:
    """It has a user and a group which nobody else has, and no further group."""
    mine = tmp_path / "mine"
    mine.touch()
    seen = set()
    for _ in range(2):
        done = run("--read", mine, "--", "id")
        uid = int(done.stdout.partition("uid=")[2].split()[0])
        assert done.stdout.split() == [f"uid={uid}", f"gid={uid}", f"groups={uid}"]
        assert uid not in {entry.pw_uid for entry in pwd.getpwall()}
        seen.add(uid)
    assert len(seen) == 2 and 0 not in seen


@needs_root
def test_without_landlock_files_of_root_cannot_be_changed(tmp_path: Path) -> None:
    """What the user may do is left then: here, nothing."""
    other = tmp_path / "other"
    other.write_text("other")
    other.chmod(0o600)
    tmp_path.chmod(0o755)
    become = partial(limited._become, limited._libc(), limited.own_id())
    for reading, codes in ((False, (1, 1)), (True, (0, 1))):
        change = partial(become, reading)
        found = tuple(
            subprocess.run(words, preexec_fn=change, capture_output=True, check=False).returncode
            for words in (["cat", other], ["dd", "if=/dev/zero", f"of={other}", "count=1"])
        )
        # The directory of all temporary files of root is closed for others.
        assert found == codes
    assert other.read_text() == "other"


@needs_root
@pytest.mark.parametrize("reading", [False, True])
def test_no_capability_is_left_but_to_read(
    reading: bool, capfd: pytest.CaptureFixture[str]
) -> None:
    change = partial(limited._become, limited._libc(), limited.own_id(), reading)
    assert limited._run(["cat", "/proc/self/status"], (), change, {}) == 0
    lines = dict(line.split(":\t", 1) for line in capfd.readouterr().out.splitlines())
    for kind in ("CapInh", "CapPrm", "CapEff", "CapAmb"):
        assert int(lines[kind], 16) == (1 << 2 if reading else 0)


@needs_root
@pytest.mark.parametrize(("mode", "keeps"), [(0o644, False), (0o640, True), (0o600, True)])
def test_a_file_that_not_everybody_may_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: int, keeps: bool
) -> None:
    """Only then the program gets the right to read it."""
    mine = tmp_path / "mine"
    mine.write_text("mine")
    mine.chmod(mode)
    assert run("--read", mine, "--", "cat", mine).stdout == "mine"
    asked = []

    def runs(_argv: object, _fds: object, change: object, _names: object) -> int:
        assert isinstance(change, partial)
        asked.append(change.args[-1])
        return 0

    monkeypatch.setattr(limited, "_run", runs)
    monkeypatch.setattr(limited.resource, "setrlimit", lambda *_: None)
    monkeypatch.setattr(limited, "restrict", lambda *_: True)
    # It is set for the program, in this process.
    monkeypatch.setenv("MALLOC_ARENA_MAX", "1")
    limits = ["--memory=1", "--cpu=1", "--file-size=1"]
    assert limited.main([f"--read={mine}", *limits, "--", "cat", str(mine)]) == 0
    assert asked == [keeps]


@needs_root
@pytest.mark.parametrize("program", ["true", "false"])
def test_a_file_that_is_written_is_given_back(tmp_path: Path, program: str) -> None:
    target = tmp_path / "target"
    target.touch(0o600)
    os.chown(target, 5, 7)
    words = ("--write", target, "--", "stat", "-L", "-c", "%u %g", target)
    uid, gid = run(*words).stdout.split()
    assert uid == gid != "5"
    run("--write", target, "--", program)
    assert (target.stat().st_uid, target.stat().st_gid) == (5, 7)


def test_a_container_without_other_users(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the ids of nobody else are not there, ``nobody`` is enough; else the user stays."""
    one, many = tmp_path / "one", tmp_path / "many"
    one.write_text("         0       1000          1\n")
    many.write_text("0 1000 1\n1 100000 65536\n")
    own = limited._OWN_IDS + os.getpid()
    known = {"/proc/self/uid_map": many, "/proc/self/gid_map": many}
    real = limited._is_mapped
    monkeypatch.setattr(limited, "_is_mapped", lambda path, number: real(known[path], number))
    monkeypatch.setattr(limited.os, "geteuid", lambda: 0)
    assert limited.own_id() == 65534
    known["/proc/self/gid_map"] = one
    assert limited.own_id() is None
    many.write_text("0 0 4294967295\n")
    known["/proc/self/gid_map"] = many
    assert limited.own_id() == own
    known["/proc/self/gid_map"] = tmp_path / "missing"
    assert limited.own_id() is None
    monkeypatch.setattr(limited.os, "geteuid", lambda: 1000)
    assert limited.own_id() is None


@needs_root
def test_a_file_system_without_owners(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """There the user stays, and what was given before is given back."""
    first, second = tmp_path / "first", tmp_path / "second"
    for path in (first, second):
        path.touch(0o600)
    real, inode = os.fchown, second.stat().st_ino

    def fchown(fd: int, uid: int, gid: int) -> None:
        if os.stat(fd).st_ino == inode:
            raise PermissionError(1, "Operation not permitted")
        real(fd, uid, gid)

    asked = []
    monkeypatch.setattr(limited.os, "fchown", fchown)
    monkeypatch.setattr(limited, "_run", lambda *words: asked.append(words[2]) or 0)
    monkeypatch.setattr(limited.resource, "setrlimit", lambda *_: None)
    monkeypatch.setattr(limited, "restrict", lambda *_: True)
    # It is set for the program, in this process.
    monkeypatch.setenv("MALLOC_ARENA_MAX", "1")
    limits = ["--memory=1", "--cpu=1", "--file-size=1"]
    assert limited.main([f"--write={first}", f"--write={second}", *limits, "--", "true"]) == 0
    assert asked == [None]
    assert first.stat().st_uid == 0


def test_messages_name_the_files_as_the_caller_does(tmp_path: Path) -> None:
    mine = tmp_path / "mine"
    mine.write_text("b\na\n")
    said = run("--read", mine, "--", "sort", "-c", mine).stderr
    assert said.endswith(f"sort: {mine}:2: disorder: a\n")


def test_messages_are_limited() -> None:
    """The program goes on, and does not wait for somebody who reads all of them."""
    done = run("--", "sh", "-c", "head -c 9000000 /dev/zero | tr '\\0' x >&2; echo end")
    assert (done.stdout, done.returncode, len(done.stderr)) == ("end\n", 0, 1 << 16)


def test_a_kernel_without_landlock(monkeypatch: pytest.MonkeyPatch) -> None:
    """The limits are all that is left."""

    class Libc:
        def syscall(self, *_: object) -> int:
            return -1

    monkeypatch.setattr(limited.ctypes, "CDLL", lambda *_args, **_more: Libc())
    assert limited.restrict([], [], []) is False


@needs_qemu
@needs_landlock
@pytest.mark.programs
def test_a_backing_file_is_out_of_reach(tmp_path: Path) -> None:
    (tmp_path / "secret").write_bytes(b"x" * MIB)
    subprocess.run(
        ["qemu-img", "create", "-q", "-f", "qcow2", "-F", "raw", "-b", tmp_path / "secret",
         tmp_path / "a.qcow2"], check=True,
    )  # fmt: skip
    source, target = str(tmp_path / "a.qcow2"), str(tmp_path / "b.raw")
    done = run("--read", source, "--", "qemu-img", "convert", "-O", "raw", source, target)
    assert "secret': Permission denied" in done.stderr
    with pytest.raises(errors.OpPrereqError, match="based on another file"):
        images.convert(source, "qcow2", target, "raw", MIB)
    assert not Path(target).exists()


@needs_qemu
@pytest.mark.programs
@pytest.mark.parametrize("target_format", ["raw", "qcow2", "vmdk"])
@pytest.mark.parametrize("source_format", ["raw", "qcow2", "vmdk", "vdi", "vhdx", "vpc"])
def test_real_conversions(source_format: str, target_format: str, tmp_path: Path) -> None:
    content = b"data" * MIB + b"\0" * (4 * MIB)
    (tmp_path / "a").write_bytes(content)
    source, target = str(tmp_path / "b"), str(tmp_path / "c")
    words = ["qemu-img", "convert", "-f", "raw", "-O", source_format, str(tmp_path / "a"), source]
    subprocess.run(words, check=True)
    info = images.inspect(source, source_format)
    images.convert(source, source_format, target, target_format, info.size)
    again = ["qemu-img", "convert", "-f", target_format, "-O", "raw", target, str(tmp_path / "d")]
    subprocess.run(again, check=True)
    assert (tmp_path / "d").read_bytes()[: len(content)] == content
