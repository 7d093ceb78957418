"""Units of systemd: those of the daemons, and a scope of its own for each guest.

Only for real machines which were booted with systemd; :attr:`Machine.runs_systemd
<ganeti.platform.base.Machine.runs_systemd>` answers whether this one was. Guests are in the slice
``ganeti-guests.slice``, so a unit of a daemon can be stopped without them.

Source: systemd-run(1), systemd.scope(5), systemd.unit(5).
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil

from ganeti import TYPE_CHECKING, errors
from ganeti.platform import machine
from ganeti.utils import process, retry

if TYPE_CHECKING:
    from collections.abc import Sequence

#: The unit which an administrator enables: all daemons and timers of a node.
TARGET = "ganeti.target"
GUEST_SLICE = "ganeti-guests.slice"
#: Directories of unit files, the first one wins.
UNIT_DIRS = (
    "/etc/systemd/system",
    "/run/systemd/system",
    "/usr/local/lib/systemd/system",
    "/usr/lib/systemd/system",
    "/lib/systemd/system",
)
_CGROUP_DIRS = ("/sys/fs/cgroup", "/sys/fs/cgroup/unified", "/sys/fs/cgroup/systemd")
# systemd allows 255 bytes; "-" and a number may be added.
_MAX_NAME = 230
_GONE_S = 5.0


def unit_file(unit: str) -> str | None:
    """Return the file of a unit; None if there is no such unit, or the administrator has masked it.

    :param unit: such as ``ganeti-noded.service``.
    """
    for directory in UNIT_DIRS:
        path = f"{directory}/{unit}"
        if os.path.lexists(path):
            return None if _is_null(path) else path
    return None


def is_masked(unit: str) -> bool:
    """Return True if the administrator forbids a unit to be started (``systemctl mask``)."""
    return any(_is_null(f"{directory}/{unit}") for directory in UNIT_DIRS[:2])


def starts_with_machine(unit: str) -> bool:
    """Return True if the administrator has enabled a unit (``systemctl enable``)."""
    return any(
        os.path.lexists(f"{UNIT_DIRS[0]}/{name}/{unit}")
        for name in (os.listdir(UNIT_DIRS[0]) if os.path.isdir(UNIT_DIRS[0]) else ())
        if name.endswith(".wants")
    )


def _is_null(path: str) -> bool:
    return os.path.realpath(path) == os.devnull


def scope_name(kind: str, name: str) -> str:
    """Return the name of the scope of one process, such as
    ``ganeti-instance-web1.example.com.scope``.

    :param kind: what the process is: ``instance``, or ``tpm``.
    :param name: name of the instance.
    """
    clean = re.sub(r"[^A-Za-z0-9_.-]", "_", name)
    found = f"ganeti-{kind}-{clean}"
    if clean != name or len(found) > _MAX_NAME:
        digest = hashlib.sha256(name.encode()).hexdigest()[:12]
        found = f"{found[: _MAX_NAME - 13]}-{digest}"
    return f"{found}.scope"


def in_scope(kind: str, name: str, argv: Sequence[str], *, delegate: bool = False) -> list[str]:
    """Return the command line which starts a process of a guest in a scope of its own.

    Without systemd it is the command line itself. The scope ends with its last process. An earlier
    one of the same name which has just ended is awaited; if a process in it goes on, the new scope
    gets a number behind its name.

    :param kind: what the process is; see :func:`scope_name`.
    :param name: name of the instance.
    :param argv: the command line; the process may go into the background.
    :param delegate: the process makes control groups below its own, which systemd leaves alone.
    """
    if not machine.current().runs_systemd:
        return list(argv)
    program = shutil.which("systemd-run", path=process.DEFAULT_PATH)
    if program is None:
        return list(argv)
    scope = scope_name(kind, name)
    if not _ended(scope):
        scope = f"{scope.removesuffix('.scope')}-{os.getpid()}.scope"
    words = scope_argv(program, scope, f"Ganeti {kind} {name}")
    if delegate:
        words.insert(-1, "--property=Delegate=yes")
    return [*words, *argv]


# Moves itself into the control group which is the first argument, then becomes the rest of them.
_ENTER_GROUP = 'mkdir -p "$0" && echo 0 >"$0/cgroup.procs" && exec "$@"'


def in_group_of_scope(kind: str, name: str, argv: Sequence[str]) -> tuple[list[str], str | None]:
    """Like :func:`in_scope` with ``delegate``, with the process in a control group below the scope.

    In version 2 a group whose controllers are to count for groups below it must have no process.

    :returns: the command line, and the path of the scope in the hierarchy of control groups; None
        without systemd.
    """
    words = in_scope(kind, name, argv, delegate=True)
    units = [word.partition("=")[2] for word in words if word.startswith("--unit=")]
    if len(words) == len(argv) or not units:
        return words, None
    scope = f"/ganeti.slice/{GUEST_SLICE}/{units[0]}"
    enter = ["sh", "-c", _ENTER_GROUP, f"{_CGROUP_DIRS[0]}{scope}/start"]
    return [*words[: len(words) - len(argv)], *enter, *argv], scope


def scope_argv(program: str, scope: str, description: str) -> list[str]:
    """Return the words before a command line which is to run in a new scope.

    At the shutdown of the machine systemd ends guests before network and remote file systems.
    """
    return [
        program,
        "--scope",
        "--quiet",
        "--collect",
        f"--slice={GUEST_SLICE}",
        f"--unit={scope}",
        f"--description={description}",
        "--property=After=network.target remote-fs.target",
        # A guest has as many threads as it has processors and requests; the slice may have a limit.
        "--property=TasksMax=infinity",
        "--",
    ]


def _ended(scope: str) -> bool:
    """Wait until no scope has this name; returns whether that is so."""

    def poll() -> None:
        for directory in _CGROUP_DIRS:
            if os.path.isdir(f"{directory}/ganeti.slice/{GUEST_SLICE}/{scope}"):
                raise retry.Again(scope)

    try:
        retry.until(poll, timeout_s=_GONE_S, delay=(0.01, 1.5, 0.2))
    except errors.RetryTimeout:
        return False
    return True
