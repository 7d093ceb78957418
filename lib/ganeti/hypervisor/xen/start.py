"""Starting a guest.

A start writes the record of the guest, then its configuration file, and runs ``xl create``. The
record says :data:`~ganeti.hypervisor.xen.record.STARTING` until that has ended well, so that an
interrupted start is known.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace

from ganeti import errors
from ganeti.constants import hv
from ganeti.hypervisor import guest_errors, host
from ganeti.hypervisor.base import AttachedDisk
from ganeti.hypervisor.xen import (
    adoption,
    config,
    guests,
    nics,
    parameters,
    record,
    states,
    transfer,
    xl,
)
from ganeti.hypervisor.xen import disks as block_devices
from ganeti.hypervisor.xen.record import COMPLETE, INCOMING, STARTING, Record
from ganeti.objects.instance import FilledInstance
from ganeti.platform import paths

_SAID_CHARACTERS = 4096
# What the QEMU for Xen in Debian 12 says of a password of VNC.
_WITHOUT_DES = "does not support DES"
_REMEDY_WITHOUT_DES = (
    ". This program cannot use passwords for the screen: set vnc_bind_address to an empty text for"
    " a guest without a screen; or make the file of vnc_password_file empty for a screen without a"
    " password, with vnc_bind_address=127.0.0.1"
)


def start(instance: FilledInstance, disks: Sequence[AttachedDisk], *, paused: bool = False) -> None:
    """Start a guest; with ``paused`` it runs no instruction yet.

    :raises HypervisorError: it is running already, or cannot be started; nothing is left
        behind.
    """
    with guests.locked(instance.name):
        guests.refuse_running(instance.name)
        _create(record.of_instance(instance, disks), paused=paused)


def complete_start(instance: FilledInstance, *, paused: bool = False) -> bool:
    """Run a guest which was left before its first instruction; remove an incomplete start.

    A domain which waits for a migration, or whose guest was sent to another node, is removed:
    the caller starts the guest, so no other node has it. A guest which has arrived by a
    migration, and which the master could not resume any more, runs now. A guest which another
    program has started is adopted.

    :returns: whether the guest runs as asked now.
    :raises HypervisorError: the domain is not that of the instance.
    """
    name = instance.name
    with guests.locked(name):
        domain = guests.running(name)
        if domain is None:
            return False
        known = adoption.record_of(instance, domain)
        arrived = known.state == INCOMING and transfer.has_arrived(name)
        if not transfer.was_sent(name):
            if known.state == COMPLETE or arrived:
                if domain.is_paused and not paused:
                    xl.run("unpause", str(domain.id))
                if arrived:
                    record.save(replace(known, state=COMPLETE))
                    transfer.forget(name)
                return True
        logging.warning("instance %s was started incompletely, removing it", name)
        guests.end(name)
        return False


def resume(instance_name: str) -> None:
    """Let a halted guest run on; one which runs is not changed.

    :raises HypervisorError: it does not run here, was sent to another node, or can never run on.
    """
    with guests.locked(instance_name):
        domain = guests.require_running(instance_name)
        if transfer.was_sent(instance_name):
            raise guest_errors.was_sent(instance_name)
        halt = states.of(domain)
        if halt is None:
            return
        if halt.kind != hv.HALT_PAUSED:
            raise guest_errors.cannot_run_on(instance_name, halt)
        xl.run("unpause", str(domain.id))


def reboot_record(instance: FilledInstance, disks: Sequence[AttachedDisk]) -> Record:
    """Return the record of a running guest, with which it can be started again.

    :raises HypervisorError: it does not run, has a disk which is not the instance's any more, or
        needs a file which is missing.
    """
    with guests.locked(instance.name):
        known = adoption.record_of(instance, guests.require_running(instance.name))
    known = record.with_attached(known, disks)
    parameters.require_files(known.hypervisor, known.hvparams)
    return known


def start_again(known: Record) -> None:
    """Start a guest with the hardware which it had.

    :param known: from :func:`reboot_record`.
    :raises HypervisorError: it does not start; nothing is left behind.
    """
    with guests.locked(known.name):
        _create(replace(known, state=STARTING, domain_uuid=""), paused=False)


def _create(planned: Record, *, paused: bool) -> None:
    """Start a guest from its record. The caller holds the lock, and no domain of it runs.

    :raises HypervisorError: nothing is left behind.
    """
    name = planned.name
    # What is left of a guest which ended by itself, and of an earlier attempt.
    guests.end(name)
    log_before = _device_model_log(planned)
    try:
        path = prepare(planned)
        xl.run(
            "create",
            *(["-p"] if paused else []),
            path,
            timeout_s=xl.CREATE_S,
        )
        record.save(replace(planned, state=COMPLETE))
    except BaseException as err:
        guests.end(name)
        if isinstance(err, OSError):
            raise errors.HypervisorError(f"cannot start instance {name}: {err}") from err
        said = _device_model_log(planned)
        if isinstance(err, errors.HypervisorError) and said and said != log_before:
            raise errors.HypervisorError(
                f"{err}. The program which emulates the hardware said: {host.last_lines(said)}"
                f"{_REMEDY_WITHOUT_DES if _WITHOUT_DES in said else ''}"
            ) from err
        raise


def prepare(planned: Record) -> str:
    """Write record and configuration file of a guest; return the path of the latter."""
    nics.check(planned.plain_nics(), planned.name)
    record.save(planned)
    script = nics.program(planned.hvparams)
    text = config.render(
        planned,
        targets=block_devices.attach(planned.disks),
        vif_script=script,
        password=parameters.vnc_password(planned.hypervisor, planned.hvparams),
    )
    return record.write_config(planned.name, text)


def _device_model_log(planned: Record) -> str:
    """Return the end of what the program which emulates the hardware of a guest said when it was
    started last; empty when it said nothing.
    """
    if planned.hypervisor != hv.XEN_HVM:
        return ""
    path = f"{paths.current().xen_own_log_dir}/qemu-dm-{planned.name}.log"
    try:
        with open(path, encoding="utf-8", errors="replace") as stream:
            return stream.read()[-_SAID_CHARACTERS:]
    except OSError:
        return ""
