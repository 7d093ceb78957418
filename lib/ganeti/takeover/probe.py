"""Read facts about the machine on which this file runs; nothing is changed.

``ganeti-takeover check`` sends the text of this file to each node, where ``python3 -c`` runs it. So
it imports nothing of this project, and it runs with Python 3.7, in order to be able to say that a
node has no newer one. Its argument is a JSON object with the questions; it prints one with the
answers.
"""

from __future__ import annotations

import glob
import json
import os
import subprocess
import sys
import time
from typing import Any


def _output(argv: list[str]) -> str | None:
    """Return the standard output of a program; None if it cannot be started or fails."""
    env = {**os.environ, "LC_ALL": "C"}
    try:
        done = subprocess.run(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=env,
        )
    except OSError:
        return None
    return None if done.returncode else done.stdout.decode("utf-8", "replace")


def _text(path: str) -> str | None:
    """Return the text of a file; None if there is none."""
    try:
        with open(path, encoding="utf-8", errors="replace") as stream:
            return stream.read()
    except OSError:
        return None


def _free(path: str) -> int:
    """Return the free space in bytes at a path, or at the directory above it which exists."""
    while not os.path.exists(path):
        path = os.path.dirname(path)
    found = os.statvfs(path)
    return found.f_bavail * found.f_frsize


def _size(path: str) -> int:
    """Return the size in bytes of the files below a directory, or of a file; 0 if it is missing."""
    total = 0
    for top, _directories, names in os.walk(path):
        for name in names:
            try:
                total += os.lstat(os.path.join(top, name)).st_size
            except OSError:
                continue
    return total


def answers(questions: dict[str, Any]) -> dict[str, Any]:
    """Answer the questions: commands, files, patterns, free, sizes."""
    return {
        "python": list(sys.version_info[:3]),
        "clock": time.time(),
        "commands": {name: _output(argv) for name, argv in questions["commands"].items()},
        "files": {path: _text(path) for path in questions["files"]},
        "patterns": {pattern: sorted(glob.glob(pattern)) for pattern in questions["patterns"]},
        "free": {path: _free(path) for path in questions["free"]},
        "sizes": {path: _size(path) for path in questions["sizes"]},
    }


if __name__ == "__main__":
    print(json.dumps(answers(json.loads(sys.argv[1]))))
