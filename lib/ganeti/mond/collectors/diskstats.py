"""Counters of block devices, from ``/proc/diskstats``.

Source: Documentation/admin-guide/iostats.rst of Linux. The first eleven counters are published;
kernels since 4.18 have more, which are left out.
"""

from __future__ import annotations

from typing import Any, Final

from ganeti.mond import report
from ganeti.mond.report import Collector, CollectorError, Questions
from ganeti.utils import fs

PATH: Final = "/proc/diskstats"

_KEYS: Final = (
    "readsNum", "mergedReads", "secRead", "timeRead", "writes", "mergedWrites", "secWritten",
    "timeWrite", "ios", "timeIO", "wIOmillis",
)  # fmt: skip


def parse(text: str) -> list[dict[str, Any]]:
    """Read the counters of all devices.

    :raises CollectorError: a line has another form; the message has the line.
    """
    found = []
    for line in text.splitlines():
        words = line.split()
        if not words:
            continue
        if len(words) < 3 + len(_KEYS) or not all(
            report.is_counter(word) for word in (*words[:2], *words[3 : 3 + len(_KEYS)])
        ):
            raise CollectorError(f"expected counters of a device in {PATH}, found {line!r:.100}")
        counters = map(int, words[3 : 3 + len(_KEYS)])
        found.append(
            {
                "major": int(words[0]),
                "minor": int(words[1]),
                "name": words[2],
                **dict(zip(_KEYS, counters, strict=True)),
            }
        )
    return found


def collect(_questions: Questions) -> list[dict[str, Any]]:
    """Read the counters of this node."""
    try:
        return parse(fs.read_file(PATH))
    except OSError as err:
        raise CollectorError(f"cannot read {PATH}: {err.strerror}") from err


COLLECTOR: Final = Collector("diskstats", report.STORAGE, report.PERFORMANCE, collect)
