"""Starting, stopping and rebooting a guest.

A start writes the record of the guest, then its configuration file, and runs ``xl create``. The
record says :data:`~ganeti.hypervisor.xen.record.STARTING` until that has ended well, so that an
interrupted start is known.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from ganeti import errors
from ganeti.constants import hv
from ganeti.hypervisor import host
from ganeti.hypervisor.base import AttachedDisk
from ganeti.hypervisor.xen import adoption, config, nics, parameters, record, transfer, xl
from ganeti.hypervisor.xen import disks as block_devices
from ganeti.hypervisor.xen.guests import XenGuests, lives
from ganeti.hypervisor.xen.record import ARRIVING, COMPLETE, STARTING, Record
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


class XenStarter(XenGuests):
    """The operations which start and stop a guest."""

    def start(
        self, instance: FilledInstance, disks: Sequence[AttachedDisk], *, paused: bool = False
    ) -> None:
        """Start a guest; with ``paused`` it runs no instruction yet.

        :raises HypervisorError: it is running already, or cannot be started; nothing is left
            behind.
        """
        with self._locked(instance.name):
            self._refuse_running(instance.name)
            self._create(record.of_instance(instance, disks), paused=paused)

    def complete_start(self, instance: FilledInstance, *, paused: bool = False) -> bool:
        """Let a guest run which was left before its first instruction; remove an incomplete start.

        A domain which waits for a migration, or whose guest was sent to another node, is removed:
        the caller starts the guest, so no other node has it. A guest which has arrived by a
        migration, and which the master did not let run any more, runs now. A guest which another
        program has started is adopted.

        :returns: whether the guest runs as asked now.
        :raises HypervisorError: the domain is not that of the instance.
        """
        name = instance.name
        with self._locked(name):
            domain = self._running(name)
            if domain is None:
                return False
            known = adoption.record_of(instance, domain)
            arrived = known.state == ARRIVING and transfer.has_arrived(name)
            if not transfer.was_sent(name):
                if known.state == COMPLETE or arrived:
                    if domain.is_paused and not paused:
                        xl.run("unpause", str(domain.id))
                    if arrived:
                        record.save(replace(known, state=COMPLETE))
                        transfer.forget(name)
                    return True
            logging.warning("instance %s was started incompletely, removing it", name)
            self._end(name)
            return False

    def stop(self, instance_name: str, hvparams: Mapping[str, Any], *, force: bool = False) -> None:
        """Ask the guest to shut down, by ACPI where it has no driver of Xen; or end the domain.

        :raises HypervisorError: it cannot be asked, or does not end.
        """
        with self._locked(instance_name):
            domain = self._domain(instance_name)
            if domain is None:
                return
            if force or not lives(domain):
                self._end(instance_name)
                return
            if domain.is_paused:
                # It would not notice the request before it is continued.
                self._end(instance_name)
                return
            by_acpi = hvparams.get("acpi", False) and self.name == hv.XEN_HVM
            xl.run("shutdown", *(["-F"] if by_acpi else []), str(domain.id))

    def cleanup(self, instance_name: str) -> None:
        """Remove what is left of a guest which has ended; do nothing to one which runs."""
        with self._locked(instance_name):
            domain = self._domain(instance_name)
            if domain is not None and lives(domain):
                return
            self._end(instance_name)

    def _end(self, instance_name: str) -> None:
        """End the domain, running or not, and remove all that belongs to it. Needs the lock."""
        transfer.end_program(instance_name)
        self._destroy(instance_name)
        transfer.forget(instance_name)
        self._remove_files(instance_name)

    def reboot(
        self, instance: FilledInstance, disks: Sequence[AttachedDisk], *, timeout_s: float
    ) -> None:
        """Stop the guest, then start it with the hardware it had.

        :raises HypervisorError: it does not run, has a disk which is not the instance's any more,
            or needs a file which is missing; it was not stopped. Or it does not start again.
        """
        name = instance.name
        # Read first, as stopping removes the file.
        with self._locked(name):
            known = adoption.record_of(instance, self._require_running(name))
        known = record.with_attached(known, disks)
        self.require_files(known.hvparams)
        self.stop(name, known.hvparams)
        self.wait_end(name, timeout_s)
        if self.is_running(name):
            logging.warning(
                "instance %s did not shut down within %g s, stopping it hard", name, timeout_s
            )
        with self._locked(name):
            self._end(name)
            self._create(replace(known, state=STARTING, domain_uuid=""), paused=False)

    def _create(self, planned: Record, *, paused: bool) -> None:
        """Start a guest from its record. The caller holds the lock, and no domain of it runs.

        :raises HypervisorError: nothing is left behind.
        """
        name = planned.name
        # What is left of a guest which ended by itself, and of an earlier attempt.
        self._end(name)
        log_before = _device_model_log(planned)
        try:
            path = self._prepare(planned)
            xl.run(
                "create",
                *(["-p"] if paused else []),
                path,
                timeout_s=xl.CREATE_S,
            )
            record.save(replace(planned, state=COMPLETE))
        except BaseException as err:
            self._end(name)
            if isinstance(err, OSError):
                raise errors.HypervisorError(f"cannot start instance {name}: {err}") from err
            said = _device_model_log(planned)
            if isinstance(err, errors.HypervisorError) and said and said != log_before:
                raise errors.HypervisorError(
                    f"{err}. The program which emulates the hardware said: {host.last_lines(said)}"
                    f"{_REMEDY_WITHOUT_DES if _WITHOUT_DES in said else ''}"
                ) from err
            raise

    def _prepare(self, planned: Record) -> str:
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
