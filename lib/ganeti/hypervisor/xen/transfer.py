"""The state of a migration on one of its two nodes, in files.

A program of its own (:mod:`ganeti.helpers.xen_transfer`) sends or receives a guest, and goes on
when the node daemon is restarted. It writes here how far it is; the driver reads that. It holds a
lock as long as it lives, so that the end of the program is noticed.

On the source, ``sent`` is written, and flushed, before the target hears that the guest is its own.
From then on the guest never runs on here. On the target, ``owned`` is written, and flushed, before
the source hears that this was understood. Before, the guest on the target is paused and
can be destroyed.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import signal
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from ganeti import errors
from ganeti.hypervisor.xen import record
from ganeti.platform import paths
from ganeti.utils import filelock, fs, retry
from ganeti.wire import json

OUT, IN = "out", "in"
#: States, in order. ``prepared`` on the source and ``waiting`` on the target: nothing has begun.
PREPARED, WAITING, ACTIVE, ARRIVED, OWNED, COMPLETED, FAILED = (
    "prepared",
    "waiting",
    "active",
    "arrived",
    "owned",
    "completed",
    "failed",
)
_END_S = 60.0
_PAUSES = (0.02, 1.5, 0.5)


@dataclass(frozen=True, slots=True, kw_only=True)
class Transfer:
    """How far a migration is on this node.

    :ivar sent: on the source: the target knows, or may know, that the guest is its own.
    :ivar total: bytes of the guest's memory; on the source only.
    :ivar moved: bytes which were sent or received.
    :ivar error: why it failed.
    """

    direction: str
    status: str
    pid: int = 0
    sent: bool = False
    total: int = 0
    moved: int = 0
    error: str = ""
    took_ms: int | None = None
    paused_ms: int | None = None


def directory(instance_name: str) -> str:
    """Return where the files of the migration of a guest are."""
    return f"{paths.current().xen_root}/migration/{record.check_name(instance_name)}"


def own_file(instance_name: str) -> str:
    """Return the key and the certificate of this end, in PEM."""
    return f"{directory(instance_name)}/own.pem"


def peer_file(instance_name: str) -> str:
    """Return the certificate of the other end, in PEM."""
    return f"{directory(instance_name)}/peer.pem"


def log_file(instance_name: str) -> str:
    """Return the messages of the program, and of ``xl``."""
    return f"{paths.current().log_xen_dir}/{record.check_name(instance_name)}.migration.log"


def _state_file(instance_name: str) -> str:
    return f"{directory(instance_name)}/state.json"


def _lock_file(instance_name: str) -> str:
    return f"{directory(instance_name)}/alive"


def read(instance_name: str) -> Transfer | None:
    """Return the state as it was written last; None when there is no migration.

    :raises HypervisorError: the file is damaged or cannot be read.
    """
    try:
        text = fs.read_file(_state_file(instance_name))
    except FileNotFoundError:
        return None
    except OSError as err:
        raise errors.HypervisorError(
            f"cannot read the state of the migration of instance {instance_name}: {err}"
        ) from err
    return loads(text, instance_name)


def loads(text: str, instance_name: str) -> Transfer:
    """Read the text of a state.

    :raises HypervisorError: it has another form.
    """
    try:
        value = json.loads(text)
        if not isinstance(value, dict):
            raise TypeError("an object expected")
        return Transfer(
            direction=_one_of(value, "direction", (OUT, IN)),
            status=_one_of(
                value,
                "status",
                (PREPARED, WAITING, ACTIVE, ARRIVED, OWNED, COMPLETED, FAILED),
            ),
            pid=_number(value, "pid"),
            sent=value.get("sent") is True,
            total=_number(value, "total"),
            moved=_number(value, "moved"),
            error=str(value.get("error") or ""),
            took_ms=_number(value, "took_ms") if value.get("took_ms") is not None else None,
            paused_ms=_number(value, "paused_ms") if value.get("paused_ms") is not None else None,
        )
    except (errors.ParseError, KeyError, TypeError, ValueError) as err:
        raise errors.HypervisorError(
            f"the state of the migration of instance {instance_name} is damaged: {err}"
        ) from err


def _one_of(value: Mapping[str, Any], key: str, allowed: tuple[str, ...]) -> str:
    if value[key] not in allowed:
        raise ValueError(f"{key} is {value[key]!r:.100}")
    return str(value[key])


def _number(value: Mapping[str, Any], key: str) -> int:
    found = value.get(key, 0)
    if not isinstance(found, int) or isinstance(found, bool):
        raise TypeError(f"{key} is {found!r:.100}")
    return found


def write(instance_name: str, state: Transfer, *, sync: bool = True) -> None:
    """Write the state.

    :param sync: flush it, so that it is known after a power failure.
    :raises HypervisorError: it cannot be written.
    """
    text = json.dumps({name: getattr(state, name) for name in Transfer.__dataclass_fields__})
    try:
        fs.make_dirs(os.path.dirname(directory(instance_name)), 0o755)
        fs.make_dirs(directory(instance_name), 0o700)
        fs.write_file(_state_file(instance_name), text, mode=0o600, sync=sync)
    except OSError as err:
        raise errors.HypervisorError(
            f"cannot write the state of the migration of instance {instance_name}: {err}"
        ) from err


def find(instance_name: str) -> Transfer | None:
    """Return the state, with the end of a program which could not write it any more.

    :raises HypervisorError: the state is damaged.
    """
    state = read(instance_name)
    if state is None or state.status not in (ACTIVE, WAITING) or is_alive(instance_name):
        return state
    state = read(instance_name) or state
    if state.status not in (ACTIVE, WAITING):
        return state
    if state.sent:
        # All was sent, and the target may know that; only its answer is missing.
        return replace(state, status=COMPLETED)
    return replace(state, status=FAILED, error=state.error or "the program which sends it ended")


def is_alive(instance_name: str) -> bool:
    """Return True if the program which sends or receives the guest is alive."""
    return filelock.is_locked(_lock_file(instance_name))


@contextlib.contextmanager
def alive(instance_name: str) -> Any:
    """Hold the lock which shows that the program is alive.

    :raises OSError: another program holds it, or it cannot be made.
    """
    fd = fs.open_or_create(_lock_file(instance_name), os.O_RDWR, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    finally:
        os.close(fd)


def names() -> list[str]:
    """Return the names of the guests with a migration on this node."""
    try:
        return fs.list_visible(f"{paths.current().xen_root}/migration")
    except FileNotFoundError:
        return []


def _has(instance_name: str, direction: str) -> Transfer | None:
    try:
        state = find(instance_name)
    except errors.HypervisorError:
        return None
    return state if state is not None and state.direction == direction else None


def was_sent(instance_name: str) -> bool:
    """Return True if the guest was, or may have been, sent to another node as a whole.

    :raises HypervisorError: that is not known.
    """
    state = find(instance_name)
    return state is not None and state.direction == OUT and state.sent


def is_sending(instance_name: str) -> bool:
    """Return True if this node sends the guest, or has sent it."""
    state = _has(instance_name, OUT)
    return state is not None and (state.status == ACTIVE or state.sent)


def has_arrived(instance_name: str) -> bool:
    """Return True if the guest was sent to this node as a whole, and is its own."""
    state = _has(instance_name, IN)
    return state is not None and state.status == OWNED


def waits(instance_name: str) -> bool:
    """Return True if this node waits for a guest which has not arrived."""
    state = _has(instance_name, IN)
    return state is not None and state.status not in (ARRIVED, OWNED)


def end_program(instance_name: str) -> None:
    """End the program which sends or receives a guest, and wait until it is gone.

    The program lets ``xl`` clean up: a guest which was not sent runs on.

    :raises HypervisorError: it does not end.
    """
    if not is_alive(instance_name):
        return
    state = read(instance_name)

    def gone() -> None:
        if is_alive(instance_name):
            raise retry.Again

    for number in (signal.SIGTERM, signal.SIGKILL):
        if state is not None and state.pid > 0:
            with contextlib.suppress(ProcessLookupError):
                os.kill(state.pid, number)
        with contextlib.suppress(errors.RetryTimeout):
            retry.until(gone, timeout_s=_END_S, delay=_PAUSES)
            return
    raise errors.HypervisorError(
        f"the migration of instance {instance_name} does not end (pid {state.pid if state else 0})"
    )


def forget(instance_name: str) -> None:
    """Remove the files of a migration; none is not an error."""
    shutil.rmtree(directory(instance_name), ignore_errors=True)
