"""The errors which several drivers raise for a guest; each function makes one."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from ganeti import errors
from ganeti.objects.halt import Halt


def not_running(instance_name: str) -> errors.HypervisorError:
    """Say that the guest does not run here."""
    return errors.HypervisorError(f"instance {instance_name} is not running")


def running_already(instance_name: str) -> errors.HypervisorError:
    """Say that the guest which is to be started runs here."""
    return errors.HypervisorError(f"instance {instance_name} is running already")


def cannot_run_on(instance_name: str, halt: Halt) -> errors.HypervisorError:
    """Say that a halted guest can never run on."""
    return errors.HypervisorError(
        f"instance {instance_name} is in state {halt.text()}, and cannot run on."
        f" {halt.remedy(instance_name)}"
    )


def unknown_disk(instance_name: str, uuid: object) -> errors.HypervisorError:
    """Say that the guest runs with a disk which the instance does not have any more."""
    return errors.HypervisorError(
        f"instance {instance_name} runs with disk {uuid or 'without UUID'}, which it does not have"
        " in the configuration. Stop the instance and start it again."
    )


def unknown_start(instance_name: str) -> errors.HypervisorError:
    """Say that the guest runs, and that this node does not know its parameters."""
    return errors.HypervisorError(
        f"it is not known how instance {instance_name} was started. Stop it and start it again."
    )


def was_sent(instance_name: str) -> errors.HypervisorError:
    """Say that the guest of a migration must not run on at the source."""
    return errors.HypervisorError(
        f"instance {instance_name} was, or may have been, sent to another node as a whole, so it"
        f" cannot run on here. Run 'gnt-instance migrate --cleanup {instance_name}'."
    )


def has_arrived(instance_name: str) -> errors.HypervisorError:
    """Say that the guest of a migration must not be ended at the target."""
    return errors.HypervisorError(
        f"instance {instance_name} has arrived on this node, and was not ended. Run"
        f" 'gnt-instance migrate --cleanup {instance_name}'."
    )


def damaged_migration_data(instance_name: str) -> errors.HypervisorError:
    """Say that the data of a migration have another form.

    They are not shown, as they may hold a key.
    """
    return errors.HypervisorError(f"migration data of instance {instance_name} is damaged")


@contextlib.contextmanager
def old_nic_again(err: Exception, guest: str, uuid: str) -> Iterator[None]:
    """Plug in, in the block, the NIC which a changed one should have replaced.

    :param err: why the changed one was not plugged in.
    :param guest: ``guest`` or ``container``.
    :raises HotplugError: that failed, too; says that the guest is left without the NIC.
    """
    try:
        yield
    except (errors.GenericError, OSError) as again:
        raise errors.HotplugError(
            f"{err}. The {guest} is left without NIC {uuid}, because the old one was not plugged in"
            f" again: {again}"
        ) from err


def fixed_disk(uuid: str) -> errors.HotplugError:
    """Say that a disk cannot be changed while the guest runs."""
    return errors.HotplugError(f"disk {uuid}: a disk cannot be modified while the guest runs")
