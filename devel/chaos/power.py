"""What a power cut leaves of the data directory of a node: what was flushed, and nothing else.

:mod:`devel.chaos.shim` records each flush in a directory ``flushed.<node>``:

* a file whose name is the number (inode) of a file has the content of its last flush;
* a file ``names%a%b`` has the names and numbers which the directory ``a/b`` below the data
  directory had at its last flush, a line ``<number> <name>`` for each.

A file whose name was flushed and whose content was not is left empty, as most file systems do it; a
directory which was never flushed is left empty, too. The node must not run while these functions
work.
"""

from __future__ import annotations

import os
import shutil
import stat
from pathlib import Path


def begin(data: Path, flushed: Path) -> None:
    """Record that everything in the data directory is flushed at this moment."""
    if flushed.exists():
        shutil.rmtree(flushed)
    new = flushed.with_name(f"{flushed.name}.new")
    if new.exists():
        shutil.rmtree(new)
    new.mkdir()
    for directory, _names, files in os.walk(data):
        place = Path(directory)
        with os.scandir(directory) as entries:
            lines = [f"{entry.inode()} {entry.name}\n" for entry in entries]
        relative = "" if place == data else f"/{place.relative_to(data)}"
        names = new / f"names{relative.replace('/', '%')}"
        names.write_text("".join(lines), "utf-8", "surrogateescape")
        for name in files:
            info = os.lstat(place / name)
            if stat.S_ISREG(info.st_mode):
                shutil.copy2(place / name, new / str(info.st_ino))
    new.rename(flushed)


def cut(data: Path, flushed: Path) -> int:
    """Leave what was flushed; returns how many files were lost or are older than they were.

    Sockets and symbolic links stay as they are.
    """
    left = data.with_name(f"{data.name}.left")
    if left.exists():
        shutil.rmtree(left)
    lost = _cut(data, left, flushed, "")
    shutil.rmtree(data)
    left.rename(data)
    begin(data, flushed)
    return lost


def _words(line: str) -> tuple[str, str, str]:
    return line.partition(" ")


def _cut(data: Path, left: Path, flushed: Path, relative: str) -> int:
    """Make what is left of one directory, and of those below it.

    :param relative: the directory as in the name of its record, ``%a%b``.
    """
    here = data / relative.strip("%").replace("%", "/")
    there = left / relative.strip("%").replace("%", "/")
    there.mkdir()
    mode = stat.S_IMODE(here.stat().st_mode) if here.is_dir() else 0o750
    there.chmod(mode)
    try:
        text = (flushed / f"names{relative}").read_text("utf-8", "surrogateescape")
    except FileNotFoundError:
        text = ""
    durable = {name: number for number, _, name in map(_words, text.splitlines())}
    visible = set(os.listdir(here)) if here.is_dir() else set()
    lost = len(visible - durable.keys())
    for name, number in durable.items():
        source, copy = here / name, flushed / number
        if (flushed / f"names{relative}%{name}").exists() or source.is_dir():
            lost += _cut(data, left, flushed, f"{relative}%{name}")
        elif source.is_symlink():
            (there / name).symlink_to(os.readlink(source))
        elif copy.exists():
            shutil.copy2(copy, there / name)
            lost += not source.exists() or source.read_bytes() != copy.read_bytes()
        elif source.exists() and not source.is_file():
            continue  # a socket: its process is gone
        else:
            (there / name).touch(0o640)
            lost += 1
    return lost
