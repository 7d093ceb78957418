"""Show what an instance has written to its console, for ``gnt-instance console --log``.

The text is the guest's, so it must not act on the terminal of the administrator: control sequences
are removed, and other control characters are shown as escapes.
"""

from __future__ import annotations

import re
import sys
import time

from ganeti import TYPE_CHECKING, errors
from ganeti.cli import failures, terminal

if TYPE_CHECKING:
    from ganeti.cli.command import Values
    from ganeti.luxi import client as luxi

LINES = 100
_MAX_LINES = 1_000_000
#: Seconds between two polls with ``--follow``.
_PAUSE_S = 1.0
# Colours, movements of the cursor and titles of windows, as in ECMA-48.
_SEQUENCES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[ -/]*[0-~])")
# A control sequence which the next part may complete.
_UNFINISHED = re.compile(r"\x1b(?:\[[0-?]*[ -/]*|\][^\x07\x1b]{0,200}|[ -/]*)\Z")


class Cleaner:
    """Makes a log fit for a terminal, part by part."""

    def __init__(self) -> None:
        self._kept = ""

    def clean(self, text: str) -> str:
        """Return a part without control sequences; one which is incomplete is kept for the next."""
        text = self._kept + text
        found = _UNFINISHED.search(text)
        self._kept = text[found.start() :] if found else ""
        text = text[: found.start()] if found else text
        text = _SEQUENCES.sub("", text).replace("\r", "").replace("\x07", "").replace("\0", "")
        return terminal.shown(text)


def show(client: luxi.Client, name: str, values: Values) -> int:
    """Print the last lines of the log and, with ``--follow``, what is added; return the exit code.

    :raises OpPrereqError: wrong number of lines; or there is no log, and the error says why.
    """
    lines = LINES if values.lines is None else values.lines
    if not 0 <= lines <= _MAX_LINES:
        raise errors.OpPrereqError(
            f"--lines must be between 0 and {_MAX_LINES}, not {lines}", errors.ECODE_INVAL
        )
    cleaner = Cleaner()
    part = client.read_console_log(name, lines)
    text = cleaner.clean(part["text"])
    _write(text)
    if not values.follow:
        if text and not text.endswith("\n"):
            _write("\n")
        return failures.EXIT_SUCCESS
    try:
        while True:
            node = part["node"]
            part = client.read_console_log(name, 0, part["position"])
            if part["node"] != node:
                terminal.err(f"Note: instance {name} is on node {part['node']} now.")
            if part["lost"]:
                terminal.err("Note: some output is missing here, because it was not kept.")
            if part["text"]:
                _write(cleaner.clean(part["text"]))
            else:
                time.sleep(_PAUSE_S)
    except KeyboardInterrupt:
        return failures.EXIT_SUCCESS


def _write(text: str) -> None:
    try:
        sys.stdout.write(text)
    except UnicodeEncodeError:
        encoding = sys.stdout.encoding or "ascii"
        sys.stdout.write(text.encode(encoding, "backslashreplace").decode(encoding))
    sys.stdout.flush()
