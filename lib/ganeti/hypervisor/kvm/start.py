"""Starting a guest: QEMU starts stopped, is prepared over QMP, and then lets the guest run.

A start from the configuration and a reboot run the guest; the target of a migration lets it wait
for its memory. All three end complete or leave nothing behind.
"""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from ganeti import errors
from ganeti.constants import hv
from ganeti.hypervisor import console_log, guest_errors, host
from ganeti.hypervisor.base import AttachedDisk
from ganeti.hypervisor.kvm import (
    argv,
    buses,
    facts,
    firmware,
    migration_channel,
    migration_connection,
    nics,
    parameters,
    parse,
    pinning,
    privileges,
    runtime,
    states,
    user_network,
)
from ganeti.hypervisor.kvm.guests import Guests
from ganeti.hypervisor.kvm.layout import Layout
from ganeti.hypervisor.kvm.migration_connection import Incoming
from ganeti.hypervisor.kvm.qmp import Qmp
from ganeti.hypervisor.net import interfaces, tap
from ganeti.objects.instance import FilledInstance
from ganeti.platform import machine, systemd
from ganeti.utils import fs, process, retry

# QEMU allocates and pins memory before it daemonises, which takes long for a large guest.
_TIMEOUT_S = 300.0
#: Seconds for each answer of a QEMU which has just started. After a power cut many start at once.
FIRST_ANSWERS_S = 30.0
# Capabilities of a migration with several connections. QEMU gets one, which is authenticated.
_MANY_CONNECTIONS = frozenset(("multifd", "postcopy-preempt"))
# How long a guest which was continued is watched, and how often, in seconds.
_NEW_HALT_S = 2.0
_NEW_HALT_PAUSE_S = 0.1


class Launch(NamedTuple):
    """What is started: a guest with its hardware, under a QEMU of this node.

    :ivar uuid: of the instance, like the `tags`.
    """

    record: runtime.Runtime
    layout: Layout
    qemu: facts.QemuFacts
    uuid: str
    tags: Sequence[str]


class Starter:
    """Starts guests: from the configuration, with the hardware they had, or to wait for memory.

    :param guests: those of this node.
    """

    def __init__(self, guests: Guests) -> None:
        self._guests = guests

    def start(
        self, instance: FilledInstance, disks: Sequence[AttachedDisk], *, paused: bool = False
    ) -> None:
        """Start a guest; with ``paused`` it runs no instruction yet.

        :raises HypervisorError: it is running already, or cannot be started; nothing is left
            behind.
        """
        with self._guests.locked(instance.name) as layout:
            self._guests.refuse_running(layout)
            qemu = facts.of(instance.hvparams["kvm_path"])
            record = _new_runtime(instance, disks, layout, qemu)
            launch = Launch(record, layout, qemu, instance.uuid, instance.tags)
            self.run(launch, paused=paused)

    def complete_start(self, instance: FilledInstance, *, paused: bool = False) -> bool:
        """Run a guest which was left before its first instruction; remove an incomplete start.

        The runtime file is written when QEMU is complete. A QEMU which waits for a migration is
        removed, too: the caller starts the guest, so no other node sends it. So is one which has
        sent its guest, because that guest must not run on here. A guest which has arrived by a
        migration, and which the master could not resume any more, runs now.

        :returns: whether the guest runs as asked now.
        """
        with self._guests.locked(instance.name) as layout:
            if not self._guests.qemu(layout):
                return False
            if os.path.exists(layout.runtime_file) and self._continue(layout, paused=paused):
                return True
            logging.warning("instance %s was started incompletely, removing it", layout.name)
            self._guests.end_process(layout)
            self._guests.remove_files(layout)
            return False

    def _continue(self, layout: Layout, *, paused: bool) -> bool:
        """Let a guest run whose QEMU is complete.

        :returns: False when the guest of this QEMU is, or may be, on another node.
        """
        with self._guests.control(layout) as control:
            state = control.execute("query-status").get("status")
            migration = control.execute("query-migrate")
            sent = parse.has_sent(state, migration)
            arrived = migration.get("status") == "completed" and not sent
            if state == "paused" and arrived and not paused:
                control.execute("cont")
        if state != "prelaunch":
            return state != "inmigrate" and not sent
        if not paused:
            record = runtime.load(layout.runtime_file, layout.name)
            with self._guests.control(layout) as control:
                self._prepare(control, record, layout)
                control.execute("cont")
        return True

    def resume(self, instance_name: str) -> None:
        """Let a halted guest run on; one which runs is not changed.

        :raises HypervisorError: it does not run here, was sent to another node, or can never run
            on.
        """
        with self._guests.locked(instance_name) as layout:
            self._guests.require_running(layout)
            with self._guests.control(layout) as control:
                answer = control.execute("query-status")
                halt = states.of(answer, layout)
                if halt is None:
                    if not answer.get("running"):
                        raise guest_errors.not_running(instance_name)
                    return
                if parse.has_sent(halt.state, control.execute("query-migrate")):
                    raise guest_errors.was_sent(instance_name)
                if halt.kind not in (hv.HALT_CONTINUES, hv.HALT_PAUSED):
                    raise guest_errors.cannot_run_on(instance_name, halt)
                if halt.state == states.PRELAUNCH:
                    self._prepare(control, runtime.load(layout.runtime_file, instance_name), layout)
                control.execute("system_wakeup" if halt.state == states.SUSPENDED else "cont")
                fs.remove_file(layout.paused_file)
                if halt.kind == hv.HALT_CONTINUES:
                    _await_new_halt(control)

    def reboot_record(
        self, instance: FilledInstance, disks: Sequence[AttachedDisk]
    ) -> runtime.Runtime:
        """Return the hardware of a running guest, with which it can be started again.

        :raises HypervisorError: it does not run, has a disk which is not the instance's any more,
            or needs a file which is missing.
        """
        layout = self._guests.running(instance.name)
        record = runtime.load(layout.runtime_file, instance.name)
        record = replace(record, disks=runtime.matching_disks(record, instance.name, disks))
        parameters.require_files(record.hvparams)
        return record

    def start_again(self, instance: FilledInstance, record: runtime.Runtime) -> None:
        """Start a guest which was stopped, with the hardware which it had.

        :param record: from :meth:`reboot_record`.
        :raises HypervisorError: it runs, or does not start.
        """
        with self._guests.locked(instance.name) as layout:
            self._guests.refuse_running(layout)
            qemu = facts.of(record.hvparams["kvm_path"])
            record = replace(record, argv=adapted_argv(record, qemu, layout))
            self.run(Launch(record, layout, qemu, instance.uuid, instance.tags))

    def run(
        self, launch: Launch, *, paused: bool = False, incoming: Incoming | None = None
    ) -> int | None:
        """Run QEMU. The caller holds the lock.

        :param incoming: how the guest's memory arrives, on the target of a migration.
        :returns: the port at which this node waits for it then.
        :raises HypervisorError: nothing is left behind.
        """
        record, layout = launch.record, launch.layout
        self._guests.remove_files(layout)
        port = None
        try:
            if paused:
                fs.write_file(layout.paused_file, "", sync=False)
            if incoming is not None:
                # It starts while QEMU does.
                migration_connection.keep_certificate(layout, incoming.certificate)
                port = migration_connection.start_receiver(
                    layout, incoming.place, "migrate-incoming"
                )
            _run_program(launch, incoming is not None)
            runtime.save(layout.runtime_file, record)
            with self._guests.control(layout, timeout_s=FIRST_ANSWERS_S) as control:
                self._prepare(control, record, layout)
                if incoming is not None:
                    set_migration_capabilities(control, record.hvparams)
                    migration_channel.expect_key(control, incoming.key, layout, record.hvparams)
                elif not paused:
                    control.execute("cont")
        except BaseException as err:
            self._guests.end_process(layout)
            self._guests.remove_files(layout)
            if isinstance(err, errors.CommandError):
                # QEMU writes its errors to the log file as soon as that is open.
                problem = host.last_lines(err.output or host.read_log(layout.log_file))
                # The caller names the instance.
                raise errors.HypervisorError(
                    f"QEMU says: {problem}" if problem else str(err)
                ) from err
            if isinstance(err, OSError):
                raise errors.HypervisorError(f"cannot start instance {layout.name}: {err}") from err
            raise
        return port

    def _prepare(self, control: Qmp, record: runtime.Runtime, layout: Layout) -> None:
        """Set passwords and processors before the guest runs its first instruction."""
        hvp = record.hvparams
        for protocol, password in parameters.passwords(hvp).items():
            control.execute("set_password", {"protocol": protocol, "password": password})
        found = self._guests.qemu(layout)
        if found:
            pinning.pin(control, found[0], pinning.masks_of(hvp), layout.name)


def _await_new_halt(control: Qmp) -> None:
    """Wait until a guest which was continued halts again, for a short time.

    QEMU repeats the failed access to the disk at once, and stops the guest when it fails again.
    """

    def halted() -> None:
        if control.execute("query-status").get("running"):
            raise retry.Again

    with contextlib.suppress(errors.RetryTimeout):
        retry.until(halted, timeout_s=_NEW_HALT_S, delay=_NEW_HALT_PAUSE_S)


def _new_runtime(
    instance: FilledInstance,
    disks: Sequence[AttachedDisk],
    layout: Layout,
    qemu: facts.QemuFacts,
) -> runtime.Runtime:
    hvp = instance.hvparams
    command = new_argv(instance, layout, qemu)
    bus = buses.bus_of(argv.machine_type(hvp, qemu), hvp)
    plugged_nics = tuple(
        runtime.device_dict(nic, buses.nic_hvinfo(nic, hvp, bus)) for nic in instance.nics
    )
    attached = tuple(
        runtime.RuntimeDisk(runtime.device_dict(disk, buses.disk_hvinfo(disk, hvp, bus)), path, uri)
        for disk, path, uri in disks
    )
    return runtime.Runtime(tuple(command), plugged_nics, dict(hvp), attached)


def _run_program(launch: Launch, incoming: bool) -> None:
    """Prepare the node's side of a guest, and run QEMU until it is a daemon."""
    record, layout = launch.record, launch.layout
    hvp = record.hvparams
    with privileges.user_for(hvp, layout) as run_as:
        taps = interfaces.create(
            nics.host_nics(record.nics, layout.name),
            nics.tap_features(hvp, run_as.uid if run_as else None),
            nics.guest_network(layout, launch.tags),
            incoming=incoming,
        )
        side = _host_side(record, layout, taps, run_as, incoming)
        if side.chroot:
            fs.make_dirs(side.chroot, 0o755)
        console_log.prepare(layout.name, launch.uuid, layout.console_log_file)
        # Messages of an earlier QEMU must not be taken for those of this one.
        fs.remove_file(layout.log_file)
        command = argv.shorten_sockets(
            argv.full_argv(record, layout, launch.qemu, side), layout.control_dir
        )
        process.run(
            systemd.in_scope("instance", layout.name, command),
            timeout_s=_TIMEOUT_S,
            cwd=layout.control_dir,
        )


def _host_side(
    record: runtime.Runtime,
    layout: Layout,
    taps: Sequence[str | None],
    run_as: privileges.RunAs | None,
    incoming: bool,
) -> argv.HostSide:
    """Return what the command line says of this node; prepare the firmware of the guest."""
    here = machine.current()
    return argv.HostSide(
        taps=taps,
        block_devices=[
            disk.uri is None and host.is_block_device(disk.path) for disk in record.disks
        ],
        direct_works=[
            disk.uri is not None
            or not here.must_probe_direct_access
            or host.direct_works(disk.path)
            for disk in record.disks
        ],
        incoming=incoming,
        run_as=run_as.argument if run_as else None,
        chroot=layout.chroot_dir if record.hvparams.get("use_chroot") else None,
        # On by default; a kernel without it must not keep guests from starting.
        vhost_works=tap.vhost_works(),
        forward=user_network.forwarder() if here.has_metadata_through_qemu else "",
        ovmf=_prepare_firmware(record, layout),
    )


def _prepare_firmware(record: runtime.Runtime, layout: Layout) -> argv.Ovmf | None:
    """Prepare the variables of UEFI, and start the TPM."""
    hvp = record.hvparams
    tpm = argv.special_disk(record.disks, hvp, hv.KVM_TPM_DISK)
    if tpm is not None:
        firmware.start_tpm(hvp["tpm_version"], tpm.path, layout)
    variables = argv.special_disk(record.disks, hvp, hv.KVM_UEFI_DISK)
    if variables is None:
        return None
    ovmf = firmware.find_ovmf(hvp)
    if variables.uri is None:
        firmware.prepare_variables(variables.path, ovmf)
    return ovmf


def new_argv(instance: FilledInstance, layout: Layout, qemu: facts.QemuFacts) -> list[str]:
    """Return the command line for a guest of this configuration."""
    command = argv.base_argv(instance, layout, qemu)
    address = parameters.spice_address(instance.hvparams)
    return command if address is None else argv.with_spice_address(command, address)


def adapted_argv(record: runtime.Runtime, qemu: facts.QemuFacts, layout: Layout) -> tuple[str, ...]:
    """Return the command line for this QEMU of a guest which another QEMU of this node started."""
    command = argv.with_console_log(argv.translated(record.argv, qemu), layout)
    address = parameters.spice_address(record.hvparams)
    return tuple(command if address is None else argv.with_spice_address(command, address))


def set_migration_capabilities(control: Qmp, hvparams: Mapping[str, Any]) -> None:
    """Switch on the capabilities which both ends of a migration must have (``migration_caps``).

    Those for which QEMU would make more connections are left out.
    """
    wanted = [
        name
        for name in (hvparams.get("migration_caps") or "").split(":")
        if name and name not in _MANY_CONNECTIONS
    ]
    if wanted:
        control.execute(
            "migrate-set-capabilities",
            {"capabilities": [{"capability": name, "state": True} for name in wanted]},
        )
