"""The command ``gnt-debug locks``: show which job holds which lock."""

from __future__ import annotations

import sys
import time

from ganeti import TYPE_CHECKING, errors
from ganeti.cli import failures, filters, jobs, listing, terminal
from ganeti.cli import options as opt
from ganeti.cli.command import Argument, Command, Values

if TYPE_CHECKING:
    from typing import Any

    from ganeti.luxi import client as luxi


LOCK_FIELDS = ("name", "mode", "owner", "pending")


def list_locks(values: Values, arguments: list[str]) -> int:
    """Show the locks with their owners and the waiting jobs (``locks``).

    With ``--interval`` this is repeated until the user interrupts the command.
    """
    if values.interval is not None and values.interval < 0:
        raise errors.OpPrereqError(
            f"--interval must be 0 or more seconds, not {values.interval}", errors.ECODE_INVAL
        )
    client = jobs.connect()
    formatters: dict[str, listing.Formatter] = {
        "mode": _mode,
        "owner": _owners,
        "pending": _pending,
    }
    # Programs get the published names of locks; users get names of objects instead of UUIDs.
    if values.separator is None and terminal.is_terminal(sys.stdout):
        formatters["name"] = _LockNames(client).label

    locks = listing.Listing("lock", LOCK_FIELDS, formatters)

    def show() -> int:
        # The slash in the name of a lock would make the argument a filter expression.
        names = None if values.force_filter else filters.simple_filter("name", arguments)
        expression = arguments if values.force_filter else []
        return locks.run(values, expression, extra_filter=names, client=client)

    if not values.interval or values.watch:
        return show()
    try:
        while not (code := show()):
            terminal.out("")
            time.sleep(values.interval)
    except KeyboardInterrupt:
        terminal.out("")
        return failures.EXIT_SUCCESS
    return code


class _LockNames:
    """Names of the objects of locks, whose names contain UUIDs; queried when first needed."""

    _KINDS = {
        "instance": "instance",
        "nodegroup": "group",
        "node": "node",
        "node-res": "node",
        "network": "network",
    }

    def __init__(self, client: luxi.Client) -> None:
        self._client = client
        self._tables: dict[str, dict[str, str]] = {}

    def label(self, lock: str) -> str:
        """Return ``node/node1.example.com`` for ``node/<uuid>``."""
        level, _, key = lock.partition("/")
        kind = self._KINDS.get(level)
        if kind is None or key.startswith("["):
            return lock
        if key not in self._tables.get(kind, ()):
            # The object may be newer than the last answer. A removed object is shown with its UUID.
            found = self._client.query(kind, ["uuid", "name"])["data"]
            self._tables[kind] = {key: key, **{row[0][1]: row[1][1] for row in found}}
        return f"{level}/{self._tables[kind][key]}"


def _mode(value: Any) -> str:
    return str(value) if value else "-"


def _owners(value: Any) -> str:
    return listing.join_list(value) if value else "-"


def _pending(value: Any) -> str:
    if not value:
        return "-"
    return " ".join(f"{mode}:{listing.join_list(owners)}" for mode, owners in value)


LOCKS = Command(
    "locks",
    list_locks,
    [Argument("unknown")],
    [
        # Its own --interval is older than --watch.
        *(option for option in opt.LIST_OPTIONS if option is not opt.INTERVAL),
        opt.number(
            "--interval",
            metavar="SECONDS",
            help="show the locks again every SECONDS; by default once",
        ),
    ],
    "Show which job holds which lock, and which jobs wait for it",
    usage="[<options>] [<lock>...|<filter>]",
)
