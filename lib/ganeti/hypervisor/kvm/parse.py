"""Reading QEMU's output, its command line in ``/proc``, and its answers over QMP; pure functions.

Source: qemu(1); QEMU's QMP reference, ``query-migrate``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from ganeti import errors
from ganeti.objects.transfer import MigrationStatus

_VERSION = re.compile(r"QEMU (?:PC )?emulator version (\d{1,9})\.(\d{1,9})(?!\d)(?:\.(\d{1,9}))?")
_OPTION = re.compile(r"^-([a-z0-9][a-z0-9-]*)", re.MULTILINE)

#: No migration was started. This state is not among the published ones.
NO_MIGRATION = "none"
POSTCOPY_ACTIVE = "postcopy-active"

# States of a migration in QEMU which are published as "active".
_MIGRATION_ACTIVE = frozenset(
    (
        "setup",
        "active",
        "pre-switchover",
        "device",
        "wait-unplug",
        "cancelling",
        "colo",
    )
)
# States which are published as they are.
_MIGRATION_SAME = frozenset(("completed", "failed", "cancelled"))


def parse_version(text: str) -> tuple[int, int, int]:
    """Return the version in the output of ``--version`` or ``--help``.

    :raises ParseError: the text has no version.
    """
    found = _VERSION.search(text)
    if not found:
        raise errors.ParseError(f"no QEMU version in {text[:80]!r}")
    return int(found[1]), int(found[2]), int(found[3] or 0)


def parse_options(help_text: str) -> frozenset[str]:
    """Return the names of the options in the output of ``--help``, without the dash.

    An option with a short form (``-h or -help``) counts under its first name.
    """
    return frozenset(_OPTION.findall(help_text))


def parse_default_machine(text: str) -> str:
    """Return the machine type marked as default in the output of ``-machine ?``.

    It is ``pc`` when none is.
    """
    for line in text.splitlines():
        if line.rstrip().endswith("(default)") and line.split():
            return line.split()[0]
    return "pc"


class CommandLine(NamedTuple):
    """Facts about a guest in the command line of its QEMU."""

    name: str
    memory_mib: int
    vcpus: int


def parse_command_line(data: bytes) -> CommandLine | None:
    """Read ``/proc/PID/cmdline``.

    :param data: arguments which end with NUL.
    :returns: None when the process is not a QEMU with a name.
    """
    argv = [argument.decode("utf-8", "replace") for argument in data.split(b"\0")]
    options: dict[str, str] = {}
    for option, value in zip(argv, argv[1:], strict=False):
        if option in ("-name", "-m", "-smp"):
            options.setdefault(option, value.split(",")[0])
    if not options.get("-name"):
        return None
    try:
        return CommandLine(
            options["-name"].removeprefix("guest="),
            int(options.get("-m", "0")),
            int(options.get("-smp", "1")),
        )
    except ValueError:
        return None


def parse_migration_status(answer: Mapping[str, Any]) -> MigrationStatus:
    """Read the answer to ``query-migrate``.

    All states of QEMU which begin with ``postcopy-`` mean that the target has the guest; they are
    published as "postcopy-active".

    :raises ParseError: the state is not known.
    """
    state = answer.get("status") or NO_MIGRATION
    if not isinstance(state, str):
        raise errors.ParseError(f"the state of a migration is not a text: {state!r:.80}")
    if is_postcopy(state):
        status = POSTCOPY_ACTIVE
    elif state in _MIGRATION_SAME or state == NO_MIGRATION:
        status = state
    elif state in _MIGRATION_ACTIVE:
        status = "active"
    else:
        raise errors.ParseError(f"migration is in the unknown state '{state}'")
    ram = answer.get("ram")
    ram = ram if isinstance(ram, dict) else {}
    return MigrationStatus(
        status=status,
        transferred_ram=_number(ram.get("transferred")),
        total_ram=_number(ram.get("total")),
        postcopy_status=state if is_postcopy(state) else None,
        total_time=_number(answer.get("total-time")) if status == "completed" else None,
        downtime=_number(answer.get("downtime")) if status == "completed" else None,
        error=_reason(answer.get("error-desc")) if status in ("failed", "cancelled") else None,
    )


def _reason(value: object) -> str | None:
    return value if isinstance(value, str) and value else None


def is_postcopy(state: object) -> bool:
    """Return True if this state of a migration means that the target has the guest, but not all of
    its memory yet.
    """
    return isinstance(state, str) and state.startswith("postcopy-")


def has_sent(run_state: object, answer: Mapping[str, Any]) -> bool:
    """Return True if a guest has been, or may have been, sent to another node as a whole.

    Such a guest must never run on here. A guest which came to this node has a completed migration,
    too, but only the sender reports what it sent (``ram``).

    :param run_state: of ``query-status``. A guest which was paused when it was sent is in state
        ``postmigrate`` even if its migration failed at the very end.
    :param answer: to ``query-migrate``.
    """
    state = answer.get("status")
    return run_state == "postmigrate" or (
        "ram" in answer and (state == "completed" or is_postcopy(state))
    )


def has_received(run_state: object, answer: Mapping[str, Any]) -> bool:
    """Return True if a guest came here by migration, so that no other node may run it on.

    :param run_state: of ``query-status``.
    :param answer: to ``query-migrate``.
    """
    state = answer.get("status")
    return run_state != "inmigrate" or state == "completed" or is_postcopy(state)


def _number(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None
