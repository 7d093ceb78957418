"""What ``ganeti-failoverd`` of this node has seen and done, for other processes of the node.

The daemon writes a file in the run directory at each poll; the node daemon answers questions about
it. A file, and not a socket: it can be read while the daemon is busy, and when it has ended.

The file has a word and a value in each line. Times are those of the monotonic clock, which all
processes of a machine share and which a restart of the machine sets back, as it empties the run
directory. Module :mod:`ganeti.platform` because both sides of the node use it.
"""

from __future__ import annotations

from typing import NamedTuple

from ganeti.platform import paths
from ganeti.utils import fs

_MODE = 0o644


class Report(NamedTuple):
    """The last report of the daemon.

    :ivar watched: name of the node whose master daemon is watched; empty for none.
    :ivar state: its state, a word of :mod:`ganeti.constants.failover`; empty for none.
    :ivar seen_at: when it served last; None if it never did.
    :ivar text: what the daemon does, and why.
    :ivar acted: what it did last, and when; empty for nothing.
    """

    watched: str = ""
    state: str = ""
    seen_at: float | None = None
    text: str = ""
    acted: str = ""


def write(report: Report, here: paths.Paths | None = None) -> None:
    """Replace the report. It is not flushed, because a restart of the machine makes it worthless.

    :raises OSError: the file cannot be written.
    """
    lines = [
        f"{word} {value}".replace("\n", " ")
        for word, value in zip(Report._fields, report, strict=True)
        if value not in (None, "")
    ]
    path = (here or paths.current()).failover_report_file
    fs.write_file(path, "\n".join(lines) + "\n", mode=_MODE, sync=False)


def read(here: paths.Paths | None = None) -> Report:
    """Read the report; an empty one if there is none, or if it cannot be read."""
    try:
        text = fs.read_file((here or paths.current()).failover_report_file)
    except (OSError, ValueError):
        return Report()
    found = dict(line.partition(" ")[::2] for line in text.splitlines())
    try:
        seen_at = float(found["seen_at"]) if "seen_at" in found else None
    except ValueError:
        seen_at = None
    words = {name: found.get(name, "") for name in Report._fields if name != "seen_at"}
    return Report(**words, seen_at=seen_at)
