"""The command ``gnt-debug metad``: send a request to the metadata daemon of this node."""

from __future__ import annotations

from ganeti import TYPE_CHECKING, errors
from ganeti.cli import failures, terminal
from ganeti.cli.command import Argument, Command, Values

if TYPE_CHECKING:
    from collections.abc import Callable

_USAGE = "echo <text>|list|report <instance>|forget <instance>"


def metad(values: Values, arguments: list[str]) -> int:
    """Send one request to the metadata daemon of this node (``metad``).

    :raises OpPrereqError: unknown request, or the daemon does not run.
    """
    verb, *rest = arguments
    if verb not in _VERBS:
        raise errors.OpPrereqError(
            f"'{verb}' is not a request to ganeti-metad. Known are: {', '.join(_VERBS)}.",
            errors.ECODE_INVAL,
        )
    count, function = _VERBS[verb]
    if len(rest) != count:
        raise errors.OpPrereqError(
            f"'{verb}' takes {count} argument{'s' * (count != 1)}, not {len(rest)}",
            errors.ECODE_INVAL,
        )
    from ganeti.metad import client

    try:
        return function(rest)
    except client.NotRunning as err:
        raise errors.OpPrereqError(
            f"{err}. It starts together with the first guest that can use it.", errors.ECODE_STATE
        ) from err


def _echo(rest: list[str]) -> int:
    from ganeti.metad import client

    terminal.out(client.echo(rest[0]))
    return failures.EXIT_SUCCESS


def _list(rest: list[str]) -> int:
    from ganeti.cli import listing
    from ganeti.metad import client

    for name, ip, os_name, task, contact in client.instances():
        seen = listing.format_time(contact) if contact is not None else "never"
        terminal.out(f"{name} {ip} os={os_name or '-'} task={task or '-'} contact={seen}")
    return failures.EXIT_SUCCESS


def _report(rest: list[str]) -> int:
    report = _known(rest[0])
    exit_code = report["exit_code"]
    terminal.out(f"started: {'yes' if report['started'] else 'no'}")
    terminal.out(f"exit code: {'-' if exit_code is None else exit_code}")
    for line in str(report["log"]).splitlines():
        terminal.out(f"  {line}")
    return failures.EXIT_SUCCESS


def _known(name: str) -> dict[str, object]:
    from ganeti.metad import client

    report = client.report(name)
    if report is None:
        raise errors.OpPrereqError(
            f"ganeti-metad of this node does not know a guest '{name}'", errors.ECODE_NOENT
        )
    return report


def _forget(rest: list[str]) -> int:
    from ganeti.metad import client

    if not client.remove(rest[0]):
        terminal.err(f"ganeti-metad of this node does not know a guest '{rest[0]}'")
        return failures.EXIT_FAILURE
    return failures.EXIT_SUCCESS


_VERBS: dict[str, tuple[int, Callable[[list[str]], int]]] = {
    "echo": (1, _echo),
    "list": (0, _list),
    "report": (1, _report),
    "forget": (1, _forget),
}

COMMAND = Command(
    "metad",
    metad,
    [Argument("unknown", 1)],
    [],
    "Send a request to the metadata daemon of this node",
    usage=_USAGE,
)
