"""The command ``gnt-debug wconfd``: requests to the configuration daemon of other versions."""

from __future__ import annotations

from ganeti import TYPE_CHECKING, errors
from ganeti.cli import failures, jobs, terminal
from ganeti.cli.command import Argument, Command, Values

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from ganeti.luxi import client as luxi


def wconfd(values: Values, arguments: list[str]) -> int:
    """Answer a request to the configuration daemon of other versions (``wconfd``).

    :raises OpPrereqError: unknown request.
    """
    command, rest = arguments[0], arguments[1:]
    known = {
        "echo": _echo,
        "listlocks": _list_locks,
        "listalllocks": _list_all_locks,
        "listalllocksstatus": _list_status,
        "listlockswaitingstatus": _list_waiting,
        "cleanuplocks": _nothing_to_do,
        "flushconfig": _nothing_to_do,
    }
    run = known.get(command)
    if run is None:
        raise errors.OpPrereqError(
            f"'{command}' is not a request. Known are: {', '.join(sorted(known))}.",
            errors.ECODE_INVAL,
        )
    run(jobs.connect(), rest)
    return failures.EXIT_SUCCESS


def _locks(client: luxi.Client) -> list[list[Any]]:
    """Return name, mode, owners and waiting jobs of all locks that jobs hold or wait for."""
    rows = client.query("lock", ["name", "mode", "owner", "pending"])["data"]
    plain = [[cell[1] for cell in row] for row in rows]
    return [row for row in plain if row[2] or row[3]]


def _echo(client: luxi.Client, words: Sequence[str]) -> None:
    client.query_config_values(["cluster_name"])
    terminal.out(" ".join(words))


def _list_locks(client: luxi.Client, words: Sequence[str]) -> None:
    if len(words) != 1 or not words[0].isdecimal():
        raise errors.OpPrereqError(
            "'wconfd listlocks' needs the number of a job", errors.ECODE_INVAL
        )
    for name, mode, owners, _pending in _locks(client):
        if words[0] in (owners or ()):
            terminal.out(f"{name} {mode}")


def _list_all_locks(client: luxi.Client, words: Sequence[str]) -> None:
    for name, _mode, owners, _pending in _locks(client):
        if owners:
            terminal.out(name)


def _list_status(client: luxi.Client, words: Sequence[str]) -> None:
    for name, mode, owners, _pending in _locks(client):
        if owners:
            terminal.out(f"{name} {mode} {','.join(owners)}")


def _list_waiting(client: luxi.Client, words: Sequence[str]) -> None:
    for name, _mode, _owners, pending in _locks(client):
        for mode, waiting in pending or ():
            terminal.out(f"{name} {mode} {','.join(waiting)}")


def _nothing_to_do(client: luxi.Client, words: Sequence[str]) -> None:
    client.query_config_values(["cluster_name"])
    terminal.out(
        "Nothing to do: locks end with their jobs, and every change is written to disk at once."
    )


WCONFD = Command(
    "wconfd",
    wconfd,
    [Argument("unknown", 1)],
    [],
    "Answer requests to the configuration daemon of other versions",
    usage="<command> [<argument>...]",
)
