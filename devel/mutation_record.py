"""What came of the known faults when they were tried: ``test/mutants/outcomes.jsonl``.

The record has a line for each fault which was tried, as JSON, sorted by the name of the fault::

  {"fault": "jqueue: a batch which failed is forgotten", "digest": "0a1b2c3d4e5f", "outcome":
   "found", "by": "test/unit/jqueue/test_commit.py::test_a_full_disk", "date": "2026-11-23"}

The digest stands for the file and both texts of the fault: what is recorded of a fault which has
changed since does not count. The table of scores in ``doc/mutation.rst`` is made from this file.

Several programs may write the record at the same time, such as one for each list.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

HANGS = "found, the tests hang"
KILLED = "found"
SURVIVED = "SURVIVED"

# The line of doc/mutation.rst after which the table begins.
MARK = ".. The rest of this page is written by devel/mutate.py.\n"


class RecordError(Exception):
    """The record, or the page with the table, cannot be read."""


@dataclass(frozen=True)
class Entry:
    """What came of a fault.

    :ivar fault: its name, with that of its list.
    :ivar digest: digest of its file and both texts.
    :ivar outcome: ``KILLED``, ``HANGS`` or ``SURVIVED``.
    :ivar by: the first test which failed; empty when none did.
    :ivar date: the day on which it was tried last, ``YYYY-MM-DD``.
    """

    fault: str
    digest: str
    outcome: str
    by: str
    date: str

    @property
    def package(self) -> str:
        """Name of the list of the fault."""
        return self.fault.partition(":")[0]


def read(path: Path) -> dict[str, Entry]:
    """Return all entries by the name of the fault; none when there is no record yet.

    :raises RecordError: the file is malformed.
    """
    try:
        lines = path.read_text().splitlines()
    except FileNotFoundError:
        return {}
    entries = {}
    for number, line in enumerate(lines, 1):
        try:
            entry = Entry(**json.loads(line))
        except (ValueError, TypeError) as err:
            raise RecordError(f"{path}, line {number}: {type(err).__name__}: {err}") from err
        entries[entry.fault] = entry
    return entries


def add(path: Path, new: Iterable[Entry]) -> None:
    """Replace or add entries; others which another program wrote in the meantime stay.

    :raises RecordError: the present file is malformed.
    """
    with _locked(path.parent):
        entries = read(path)
        entries.update({entry.fault: entry for entry in new})
        _write(path, entries)


def keep(path: Path, faults: Iterable[str]) -> None:
    """Drop the entries of all faults which are not named.

    :raises RecordError: the present file is malformed.
    """
    with _locked(path.parent):
        entries = read(path)
        names = set(faults)
        _write(path, {name: entry for name, entry in entries.items() if name in names})


def _write(path: Path, entries: dict[str, Entry]) -> None:
    lines = [json.dumps(asdict(entries[name])) for name in sorted(entries)]
    temporary = path.with_name(f".{path.name}.new")
    temporary.write_text("".join(f"{line}\n" for line in lines))
    temporary.replace(path)


@contextlib.contextmanager
def _locked(directory: Path) -> Iterator[None]:
    handle = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def table(outcomes: Iterable[tuple[str, str]]) -> str:
    """Return the score of each list, as a table in reStructuredText.

    :param outcomes: the list and the outcome of each fault.
    """
    counts: dict[str, list[int]] = {}
    for package, outcome in outcomes:
        count = counts.setdefault(package, [0, 0])
        count[0] += 1
        count[1] += outcome != SURVIVED
    rule = "============ ===== ===== ====="
    lines = [rule, "list         tried found score", rule]
    lines += [_row(name, *count) for name, count in sorted(counts.items())]
    if counts:
        tried, found = (sum(count[place] for count in counts.values()) for place in (0, 1))
        lines.append(_row("all", tried, found))
    return "\n".join([*lines, rule])


def _row(name: str, tried: int, found: int) -> str:
    return f"{name:<12} {tried:>5} {found:>5} {100 * found // tried:>3} %"


def scores(entries: Iterable[Entry]) -> str:
    """Return the part of the page which is made from the record."""
    known = sorted(entries, key=lambda entry: entry.fault)
    text = "\nNo fault was tried yet.\n"
    if known:
        first, last = (choose(entry.date for entry in known) for choose in (min, max))
        days = f"on {first}" if first == last else f"between {first} and {last}"
        text = f"\nThe faults were tried {days}.\n\n"
        text += table((entry.package, entry.outcome) for entry in known) + "\n"
    survivors = [entry.fault for entry in known if entry.outcome == SURVIVED]
    if survivors:
        text += "\nThese survived:\n\n" + "".join(f"* {name}\n" for name in survivors)
    return text


def write_page(page: Path, entries: Iterable[Entry]) -> None:
    """Write the table of scores into the page of the documentation.

    :raises RecordError: the page has no line at which the table begins.
    """
    text, mark, _ = page.read_text().partition(MARK)
    if not mark:
        raise RecordError(f"{page} has no line {MARK.strip()!r}")
    page.write_text(text + mark + scores(entries))
