"""A second version of the program for a chaos run, and which version each daemon is of."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path
from typing import Final

_RELEASE: Final = re.compile(r'^RELEASE = "(\d+)\.(\d+)[0-9.]*"$', re.MULTILINE)
#: What a virtual cluster needs of the program.
COPIED: Final = ("lib", "daemons", "scripts", "tools", "packaging")


def series_of(text: str) -> tuple[int, int]:
    """Return the first two numbers of the release in the text of ``ganeti/__init__.py``."""
    found = _RELEASE.search(text)
    assert found is not None, "the package has no release"
    return int(found[1]), int(found[2])


def copy_program(project: Path, copy: Path) -> None:
    """Copy the program to a directory, which is made."""
    for name in COPIED:
        if (project / name).is_dir():
            shutil.copytree(
                project / name, copy / name, symlinks=True,
                ignore=shutil.ignore_patterns("__pycache__"),
            )  # fmt: skip
    if (project / ".venv").exists():
        (copy / ".venv").symlink_to(project / ".venv")


def make_next(project: Path, copy: Path) -> tuple[str, str]:
    """Make a copy of the program which is the next version; returns the name of both versions."""
    copy_program(project, copy)
    path = copy / "lib/ganeti/__init__.py"
    text = path.read_text()
    major, minor = series_of(text)
    following = f"{major}.{minor + 1}"
    path.write_text(_RELEASE.sub(f'RELEASE = "{following}.0"', text))
    return f"{major}.{minor}", following


def is_of(words: list[str], daemon: str, place: Path) -> bool:
    """Return True if the command line of a daemon has a program of a version.

    :param place: the directory of the version; it may be a link.
    """
    top = os.path.realpath(place)
    return any(
        os.path.basename(word) == daemon and os.path.realpath(word).startswith(f"{top}/")
        for word in words
    )
