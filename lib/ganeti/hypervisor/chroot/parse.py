"""Reading the list of mounts of this machine; pure functions."""

from __future__ import annotations

import re

_OCTAL = re.compile(r"\\([0-7]{3})")


def parse_mount_points(text: str) -> list[str]:
    """Return the directories in ``/proc/self/mounts``, in the order in which they were mounted.

    Source: proc(5); fstab(5) for the escapes of white space.
    """
    found = []
    for line in text.splitlines():
        fields = line.split(" ")
        if len(fields) >= 2 and fields[1].startswith("/"):
            found.append(_OCTAL.sub(lambda match: chr(int(match[1], 8) & 0xFF), fields[1]))
    return found


def below(mount_points: list[str], directory: str) -> list[str]:
    """Return those which are a directory or lie below it, the last mounted first."""
    return [
        point
        for point in reversed(mount_points)
        if point == directory or point.startswith(f"{directory}/")
    ]
