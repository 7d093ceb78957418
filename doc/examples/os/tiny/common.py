"""Code shared by the scripts of the OS definition ``tiny``: settings, disk layout, root tree.

Errors are printed in one line on standard error and end the script with 1; the node daemon passes
the last lines of the output on to the user.
"""

import os
import re
import shutil
import stat
import struct
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

PARTITION_START = 2048 * 512
SECTOR = 512
SMALLEST_MIB = 8
IMAGE_NAMES = ("busybox", "root/etc/rc")


class ScriptError(Exception):
    """Ends the script; the text is for the user."""


def guard(main: Callable[[], None]) -> None:
    """Run a script; an error becomes one line and exit code 1."""
    try:
        main()
    except (ScriptError, OSError, subprocess.SubprocessError) as err:
        print(f"tiny: error: {err}", file=sys.stderr)
        sys.exit(1)


def required(name: str) -> str:
    value = os.environ.get(name, "")
    if not value:
        raise ScriptError(f"{name} is not set; is this run by the node daemon?")
    return value


def settings() -> dict[str, Any]:
    """Return the checked OS parameters: ``interval`` in seconds and ``quiet``.

    :raises ScriptError: a parameter is wrong; the text names it.
    """
    interval = os.environ.get("OSP_INTERVAL", "1")
    if not re.fullmatch(r"[1-9][0-9]{0,3}", interval):
        raise ScriptError(f"parameter interval: '{interval}' is not a number of seconds (1-9999)")
    quiet = os.environ.get("OSP_QUIET", "no")
    if quiet not in ("yes", "no"):
        raise ScriptError(f"parameter quiet: '{quiet}' is neither yes nor no")
    return {"interval": interval, "quiet": quiet == "yes"}


def image_dir() -> Path:
    """Return the directory with the result of devel/tiny-image: the first complete one of these.

    :raises ScriptError: no directory has a complete result.
    """
    here = Path(__file__).resolve().parent
    asked = os.environ.get("OSP_IMAGE_DIR")
    places = (
        [Path(asked)]
        if asked
        else [Path(__file__).parent / "image", here / "image", Path("/var/cache/ganeti-tiny")]
    )
    for place in places:
        if all((place / name).exists() for name in IMAGE_NAMES):
            return place
    raise ScriptError(
        f"no boot image in {' or '.join(str(p) for p in places)}. "
        "Run: devel/tiny-image --install-os <this OS definition's directory>"
    )


def device_size(path: str) -> int:
    with open(path, "rb") as disk:
        return disk.seek(0, os.SEEK_END)


def root_tree(tree: Path, name: str, conf: dict[str, Any]) -> None:
    """Fill ``tree`` with the files of the root file system."""
    image = image_dir()
    shutil.copytree(image / "root", tree, dirs_exist_ok=True, symlinks=True)
    shutil.copy2(image / "busybox", tree / "bin/busybox")
    # "--list" prints the applets: each gets a link, so that no boot has to make links.
    listing = subprocess.run(
        [str(image / "busybox"), "--list"],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    ).stdout
    for applet in listing.split():
        for directory in ("bin", "sbin"):
            if (tree / directory / applet).exists():
                break
        else:
            (tree / "bin" / applet).symlink_to("busybox")
    (tree / "sbin/init").symlink_to("../bin/busybox")
    (tree / "etc/hostname").write_text(name + "\n")
    (tree / "etc/passwd").write_text("root::0:0:root:/:/bin/sh\n")
    (tree / "etc/group").write_text("root:x:0:\n")
    (tree / "etc/tiny.conf").write_text(
        f"interval={conf['interval']}\n" + (": > /run/quiet\n" if conf["quiet"] else "")
    )
    (tree / "var/boot-count").write_text("0\n")
    for path in tree.rglob("*"):
        if not path.is_symlink():
            path.chmod(path.stat().st_mode | (0o755 if path.is_dir() else 0o644))


def partition_table(sectors: int) -> bytes:
    """A DOS partition table with one active Linux partition from 1 MiB to the end."""
    start = PARTITION_START // SECTOR
    # The table cannot describe more than 2 TiB; the rest of a larger disk stays unused.
    length = min(sectors - start, 0xFFFFFFFF)
    entry = struct.pack("<B3sB3sII", 0x80, b"\xfe\xff\xff", 0x83, b"\xfe\xff\xff", start, length)
    return b"\0" * 446 + entry + b"\0" * 48 + b"\x55\xaa"


def install(disk: str, name: str, conf: dict[str, Any]) -> None:
    """Make the partition and the file system of a disk.

    :raises ScriptError: the disk is too small, or mke2fs fails.
    """
    size = device_size(disk)
    if size < SMALLEST_MIB << 20:
        raise ScriptError(f"{disk} has {size >> 20} MiB, tiny needs at least {SMALLEST_MIB}")
    partition = (size - PARTITION_START) // 1024 * 1024
    tree = Path(tempfile.mkdtemp(prefix="tiny-"))
    try:
        root_tree(tree, name, conf)
        tree.chmod(0o755)
        make_file_system(disk, tree, partition)
        # The table comes last: a disk without a table shows that this script did not finish.
        with open(disk, "r+b") as target:
            target.write(partition_table(size // SECTOR))
            target.flush()
            os.fsync(target.fileno())
    finally:
        shutil.rmtree(tree, ignore_errors=True)


def make_file_system(disk: str, tree: Path, size: int) -> None:
    mode = os.stat(disk).st_mode
    if not (stat.S_ISREG(mode) or stat.S_ISBLK(mode)):
        raise ScriptError(f"{disk} is neither a file nor a block device")
    argv = [
        "mke2fs",
        "-q",
        "-F",
        "-t",
        "ext4",
        "-b",
        "1024",
        "-I",
        "256",
        "-m",
        "0",
        "-L",
        "tiny",
        "-J",
        "size=1",
        "-O",
        "^metadata_csum,^64bit,^has_journal" if size < 12 << 20 else "^metadata_csum,^64bit",
        "-d",
        str(tree),
        "-E",
        f"offset={PARTITION_START},root_owner=0:0,nodiscard,lazy_itable_init=1",
        disk,
        str(size // 1024),
    ]
    if size < 12 << 20:
        argv[argv.index("-J") : argv.index("-J") + 2] = []
    try:
        done = subprocess.run(
            argv,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=3600,
            check=False,
        )
    except FileNotFoundError as err:
        raise ScriptError("mke2fs is missing. As root, run: apt-get install e2fsprogs") from err
    if done.returncode != 0:
        raise ScriptError(f"mke2fs failed: {(done.stderr or done.stdout).strip()}")


def debugfs(disk: str, commands: list[str]) -> str:
    """Run debugfs commands on the root file system without mounting it, and return the output.

    :raises ScriptError: debugfs is missing, or a command fails.
    """
    try:
        done = subprocess.run(
            ["debugfs", "-w", "-f", "-", f"{disk}?offset={PARTITION_START}"],
            input="\n".join(commands) + "\n",
            capture_output=True,
            text=True,
            timeout=600,
            check=False,
        )
    except FileNotFoundError as err:
        raise ScriptError("debugfs is missing. As root, run: apt-get install e2fsprogs") from err
    # debugfs exits with 0 even when a command fails; the errors are on stderr.
    problems = [
        line for line in done.stderr.splitlines() if line and not line.startswith("debugfs ")
    ]
    if done.returncode != 0 or problems:
        raise ScriptError(f"debugfs failed on {disk}: {' '.join(problems)}")
    return done.stdout


def has_tiny(disk: str) -> bool:
    """Whether this definition's partition table is on the disk."""
    with open(disk, "rb") as source:
        table = source.read(SECTOR)
    return table[510:] == b"\x55\xaa" and table[450:451] == b"\x83"


def set_host_name(disk: str, name: str) -> None:
    """Write the instance's name into the root file system of a stopped instance."""
    with tempfile.NamedTemporaryFile("w", prefix="tiny-", suffix=".hostname") as text:
        text.write(name + "\n")
        text.flush()
        debugfs(
            disk,
            [
                "rm /etc/hostname",
                f"write {text.name} /etc/hostname",
                "set_inode_field /etc/hostname mode 0100644",
            ],
        )
