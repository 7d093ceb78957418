"""Beginning and end of a migration: the states in which QEMU is still busy, or not yet."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ganeti import errors
from ganeti.hypervisor.kvm import parse
from ganeti.hypervisor.kvm.qmp import Qmp
from ganeti.utils import retry

#: Between the last byte which the source sends and the target which has read it.
INCOMING_TIMEOUT_S = 120.0
CANCEL_TIMEOUT_S = 60.0
#: Until the source has sent anything.
BEGIN_TIMEOUT_S = 10.0
_PAUSES = (0.002, 2.0, 0.2)


def wait_begun(query: Callable[[], Mapping[str, Any]]) -> None:
    """Wait until the source has sent anything, or has failed.

    :param query: asks QEMU with ``query-migrate``.
    :raises RetryTimeout: it has sent nothing within ten seconds.
    """

    def attempt() -> None:
        answer = query()
        ram = answer.get("ram")
        transferred = ram.get("transferred") if isinstance(ram, dict) else None
        state = answer.get("status")
        if state == "setup" or (state == "active" and transferred == 0):
            raise retry.Again

    retry.until(attempt, timeout_s=BEGIN_TIMEOUT_S, delay=_PAUSES)


def wait_complete(control: Qmp, instance_name: str) -> None:
    """Wait until the target has read the whole state of the guest.

    The source is done when it has sent the last byte; the target may still read. A guest which was
    stopped before it was sent is stopped on the target, too, even if it was continued there before.

    With post-copy, too, the guest waits for all of its memory: when the connection breaks while the
    guest runs, QEMU stops answering as soon as it needs what is missing, so that the transfer could
    not be resumed any more.

    :raises HypervisorError: the target has not read it within two minutes.
    """
    _wait_until(
        lambda: (
            control.execute("query-status").get("status") != "inmigrate"
            and not parse.is_postcopy(control.execute("query-migrate").get("status"))
        ),
        INCOMING_TIMEOUT_S,
        f"instance {instance_name} was sent, but has not arrived on this node",
    )


def wait_canceled(control: Qmp, instance_name: str) -> None:
    """Wait until the source has stopped to send.

    Until then the guest is in a transitional state, and returns to the state it had before.

    :raises HypervisorError: the source still sends after a minute.
    """
    _wait_until(
        lambda: (
            control.execute("query-migrate").get("status") != "cancelling"
            and control.execute("query-status").get("status") != "finish-migrate"
        ),
        CANCEL_TIMEOUT_S,
        f"the migration of instance {instance_name} was canceled, but has not ended",
    )


def _wait_until(over: Callable[[], bool], timeout_s: float, failure: str) -> None:
    def attempt() -> None:
        if not over():
            raise retry.Again

    try:
        retry.until(attempt, timeout_s=timeout_s, delay=_PAUSES)
    except errors.RetryTimeout as err:
        raise errors.HypervisorError(f"{failure} after {timeout_s:g} s") from err
