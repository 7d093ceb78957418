"""A program on a file that nobody trusts: its limits, and the files that it cannot open."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
import sys
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
