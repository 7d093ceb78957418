"""The ends of a migration: what QEMU still does when it seems to be done."""

from __future__ import annotations

from collections.abc import Callable

from ganeti import errors
from ganeti.hypervisor.kvm.qmp import Qmp
from ganeti.utils import retry

#: Between the last byte that the source sends and the target that has read it.
ARRIVAL_TIMEOUT_S = 120.0
CANCEL_TIMEOUT_S = 60.0
_PAUSES = (0.002, 2.0, 0.2)


def wait_arrived(control: Qmp, instance_name: str) -> None:
    """Wait until the target has read all of the guest.

    The source is done when it has sent the last byte; the target may still be reading it. A guest
    that was stopped before it was sent arrives stopped, and forgets that it was told to run before.

    :raises HypervisorError: it does not arrive.
    """
    _wait_until(
        lambda: control.execute("query-status").get("status") != "inmigrate",
        ARRIVAL_TIMEOUT_S,
        f"instance {instance_name} was sent, but has not arrived on this node",
    )


def wait_cancelled(control: Qmp, instance_name: str) -> None:
    """Wait until the source has given up to send.

    Until then the guest is in a state between, which ends as the one it had before.

    :raises HypervisorError: it goes on sending.
    """
    _wait_until(
        lambda: (
            control.execute("query-migrate").get("status") != "cancelling"
            and control.execute("query-status").get("status") != "finish-migrate"
        ),
        CANCEL_TIMEOUT_S,
        f"the migration of instance {instance_name} does not end, although it was cancelled,",
    )


def _wait_until(over: Callable[[], bool], timeout_s: float, failure: str) -> None:
    def attempt() -> None:
        if not over():
            raise retry.Again

    try:
        retry.until(attempt, timeout_s=timeout_s, delay=_PAUSES)
    except errors.RetryTimeout as err:
        raise errors.HypervisorError(f"{failure} after {timeout_s:g} s") from err
