"""The verbs of a hypervisor, done with QEMU.

A guest is a QEMU process that daemonised itself (:mod:`ganeti.hypervisor.kvm.guests`). What else
belongs to it are files (:class:`Layout`): sockets, the runtime file, tap interfaces. They are
removed when the guest is stopped, when its start fails, and before its next start after a crash.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from ganeti import errors
from ganeti.constants import hv
from ganeti.hypervisor import base
from ganeti.hypervisor.kvm import (
    argv,
    buses,
    facts,
    firmware,
    host,
    hotplug,
    nics,
    parse,
    pinning,
    privileges,
    probe,
    runtime,
    user_network,
)
from ganeti.hypervisor.kvm import incoming as arrival
from ganeti.hypervisor.kvm.guests import KvmGuests
from ganeti.hypervisor.kvm.layout import Layout
from ganeti.hypervisor.kvm.qmp import ConnectionLost, Qmp
from ganeti.hypervisor.net import interfaces, tap
from ganeti.objects import codec
from ganeti.objects import hvparams as hvparameters
from ganeti.objects.disk import Disk
from ganeti.objects.hypervisors.parameter import DIRECTORY
from ganeti.objects.instance import FilledInstance, FilledNic
from ganeti.objects.transfer import MigrationStatus
from ganeti.platform import machine, paths
from ganeti.utils import fs, net, process

# QEMU allocates and pins memory before it daemonises: large guests take their time.
_START_TIMEOUT_S = 300.0
_STATUS_TRIES = 5
# Copies of the memory that are sent before post-copy.
_POSTCOPY_ROUNDS = 2
_STATUS_PAUSE_S = 2.0

# A guest which came here has a migration, too; that one is "completed".
_SENDING = frozenset(("setup", "active", "pre-switchover", "device", "postcopy-active"))

# Not yet begun, not yet arrived, or sent away: nobody would feel the power button.
_NOBODY_HOME = frozenset(("prelaunch", "inmigrate", "postmigrate", "guest-panicked"))


class KvmHypervisor(KvmGuests):
    """Guests under QEMU."""

    def list_instances(self) -> list[str]:
        """Names of the guests whose QEMU is alive."""
        try:
            names = fs.list_visible(f"{paths.current().kvm_root}/pid")
        except FileNotFoundError:
            return []
        return [name for name in names if self._process(self.layout(name))]

    def is_running(self, instance_name: str) -> bool:
        """Whether its QEMU is alive; one that is just ending is waited for."""
        layout = self.layout(instance_name)
        if self._process(layout):
            return True
        self._await_last_moment(layout)
        return False

    def wait_end(self, instance_name: str, timeout_s: float) -> None:
        """The kernel tells when its QEMU ends."""
        found = self._process(self.layout(instance_name))
        if found:
            host.wait_gone(found[0], timeout_s)

    def instance_info(self, instance_name: str) -> base.InstanceInfo | None:
        """Facts from the command line; memory as ballooned, when QEMU answers."""
        layout = self.layout(instance_name)
        found = self._process(layout)
        if found:
            return self._info(layout, *found)
        if os.path.exists(layout.shutdown_file):
            return base.InstanceInfo(instance_name, 0, 0, 0, base.SHUTDOWN, 0.0)
        return None

    def all_info(self) -> list[base.InstanceInfo]:
        """Also of guests that were shut down from inside, as the daemon ganeti-kvmd has noted."""
        names = set(self.list_instances())
        suffix = ".shutdown"
        try:
            names.update(
                name.removesuffix(suffix)
                for name in fs.list_visible(f"{paths.current().kvm_root}/ctrl")
                if name.endswith(suffix)
            )
        except FileNotFoundError:
            pass
        found = (self.instance_info(name) for name in sorted(names))
        return [info for info in found if info is not None]

    def _info(self, layout: Layout, pid: int, command: parse.CommandLine) -> base.InstanceInfo:
        memory_mib, state = command.memory_mib, base.RUNNING
        try:
            with Qmp(layout.socket("qmp"), layout.name, timeout_s=1.0) as control:
                if control.execute("query-status").get("status") == "inmigrate":
                    # It waits for its memory; the guest still runs on another node.
                    state = base.SHUTDOWN
                memory_mib = control.execute("query-balloon")["actual"] >> 20
        except (errors.HypervisorError, KeyError, TypeError) as err:
            # Busy with another client, or no balloon: the command line is good enough.
            logging.debug("instance %s: memory taken from the command line: %s", layout.name, err)
        return base.InstanceInfo(
            layout.name, pid, memory_mib, command.vcpus, state, host.cpu_time_s(pid)
        )

    def node_info(self, hvparams: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """This machine, and the version of QEMU when ``kvm_path`` is known and works."""
        info = base.read_linux_node_info()
        if hvparams and hvparams.get("kvm_path"):
            try:
                info["hv_version"] = list(facts.of(hvparams["kvm_path"]).version)
            except errors.HypervisorError as err:
                logging.warning("no version of QEMU: %s", err)
        return info

    # Checks

    def validate_parameters(self, hvparams: Mapping[str, Any]) -> None:
        """Files exist, QEMU runs, users exist, and this version supports what is asked for."""
        for parameter, path, kind in hvparameters.paths_to_check(self.name, hvparams):
            is_there = os.path.isdir if kind == DIRECTORY else os.path.isfile
            if not is_there(path):
                raise errors.HypervisorError(
                    f"parameter {parameter}: {path} is not a {kind} on this node"
                )
        qemu = facts.of(hvparams["kvm_path"])
        for parameter in ("disk_type", "cdrom_disk_type"):
            if hvparams.get(parameter) in buses.UNSUPPORTED_DISK_TYPES:
                raise errors.HypervisorError(
                    f"parameter {parameter}: {hvparams[parameter]} is no disk of a machine that "
                    "guests run on here. It is known for the sake of older configurations."
                )
        cache = hvparams.get("disk_cache")
        if hvparams.get("disk_aio") == "native" and cache not in (None, "none"):
            raise errors.HypervisorError("parameter disk_aio: native needs disk_cache=none")
        pinning.masks_of(hvparams)
        _spice_address(hvparams)
        privileges.check(hvparams)
        if hvparams.get("firmware") == hv.KVM_FIRMWARE_UEFI:
            firmware.find_ovmf(hvparams)
        if hvparams.get("tpm_version"):
            firmware.find_swtpm()
        if hvparams.get("kvm_flag") == "enabled" and not os.access("/dev/kvm", os.R_OK | os.W_OK):
            raise errors.HypervisorError("parameter kvm_flag: enabled, but /dev/kvm cannot be used")
        machine = hvparams.get("machine_version")
        if machine:
            machines = process.run([qemu.program, "-machine", "?"], timeout_s=_START_TIMEOUT_S)
            known = {line.split()[0] for line in machines.stdout.splitlines()[1:] if line.strip()}
            if machine.split(",")[0] not in known:
                raise errors.HypervisorError(
                    f"parameter machine_version: {qemu.program} knows no machine {machine}"
                )
        probe.check_hardware(hvparams, qemu)

    def verify(self, hvparams: Mapping[str, Any] | None = None) -> str | None:
        """QEMU must be installed and answer."""
        kvm_path = (hvparams or {}).get("kvm_path")
        if not kvm_path:
            return None
        try:
            facts.of(kvm_path)
        except errors.HypervisorError as err:
            return str(err)
        return None

    # Start

    def start(
        self, instance: FilledInstance, disks: Sequence[base.AttachedDisk], *, paused: bool = False
    ) -> None:
        """Start QEMU stopped, prepare it over QMP, then let the guest run."""
        with self._locked(instance.name) as layout:
            self._refuse_running(layout)
            qemu = facts.of(instance.hvparams["kvm_path"])
            record = self._new_runtime(instance, disks, layout, qemu)
            self._start(record, layout, qemu, paused=paused, tags=instance.tags)

    def complete_start(self, instance: FilledInstance, *, paused: bool = False) -> bool:
        """Let a guest run that was left before its first instruction; remove half a start.

        The runtime file marks the moment from which QEMU is complete. A QEMU that waits for a
        migration is no guest: who asks for a start here knows that nobody sends one.
        """
        with self._locked(instance.name) as layout:
            if not self._process(layout):
                return False
            if os.path.exists(layout.runtime_file):
                with Qmp(layout.socket("qmp"), layout.name) as control:
                    state = control.execute("query-status").get("status")
                if state not in ("prelaunch", "inmigrate"):
                    return True
                if state == "prelaunch":
                    if not paused:
                        record = runtime.load(layout.runtime_file, layout.name)
                        with Qmp(layout.socket("qmp"), layout.name) as control:
                            self._prepare(control, record, layout)
                            control.execute("cont")
                    return True
            logging.warning("instance %s is there by half only, removing it", layout.name)
            self._end_process(layout)
            self._remove_files(layout)
            return False

    def _new_runtime(
        self,
        instance: FilledInstance,
        disks: Sequence[base.AttachedDisk],
        layout: Layout,
        qemu: facts.QemuFacts,
    ) -> runtime.Runtime:
        hvp = instance.hvparams
        command = argv.base_argv(
            instance, layout, qemu, console_log=machine.current().logs_guest_consoles
        )
        address = _spice_address(hvp)
        if address is not None:
            command = argv.with_spice_address(command, address)
        bus = buses.bus_of(argv.machine_type(hvp, qemu), hvp)
        plugged_nics = tuple(
            runtime.device_dict(nic, buses.nic_hvinfo(nic, hvp, bus)) for nic in instance.nics
        )
        attached = tuple(
            runtime.RuntimeDisk(
                runtime.device_dict(disk, buses.disk_hvinfo(disk, hvp, bus)), path, uri
            )
            for disk, path, uri in disks
        )
        return runtime.Runtime(tuple(command), plugged_nics, dict(hvp), attached)

    def _start(
        self,
        record: runtime.Runtime,
        layout: Layout,
        qemu: facts.QemuFacts,
        *,
        paused: bool,
        tags: Sequence[str] = (),
        incoming: tuple[str, int] | None = None,
    ) -> None:
        """Run QEMU from a runtime record; all or nothing. The caller holds the lock."""
        self._remove_files(layout)
        hvp = record.hvparams
        try:
            with privileges.user_for(hvp, layout) as run_as:
                taps = interfaces.create(
                    nics.host_nics(record.nics, layout.name),
                    nics.tap_features(hvp, run_as.uid if run_as else None),
                    nics.guest_network(layout, tags),
                    incoming=incoming is not None,
                )
                side = argv.HostSide(
                    taps=taps,
                    block_devices=[
                        disk.uri is None and host.is_block_device(disk.path)
                        for disk in record.disks
                    ],
                    direct_works=[
                        disk.uri is not None
                        or not machine.current().must_probe_direct_access
                        or host.direct_works(disk.path)
                        for disk in record.disks
                    ],
                    incoming=incoming,
                    run_as=run_as.word if run_as else None,
                    chroot=layout.chroot_dir if hvp.get("use_chroot") else None,
                    # On by default, but a kernel without it must not keep guests from starting.
                    vhost_works=tap.vhost_works(),
                    forward=user_network.forwarder()
                    if machine.current().has_metadata_through_qemu
                    else "",
                    ovmf=self._firmware(record, layout),
                )
                if side.chroot:
                    fs.make_dirs(side.chroot, 0o755)
                host.rotate(layout.console_log_file)
                # What an earlier QEMU had to say must not be taken for the words of this one.
                fs.remove_file(layout.log_file)
                command = argv.shorten_sockets(
                    argv.full_argv(record, layout, qemu, side), layout.control_dir
                )
                process.run(command, timeout_s=_START_TIMEOUT_S, cwd=layout.control_dir)
            runtime.save(layout.runtime_file, record)
            with Qmp(layout.socket("qmp"), layout.name) as control:
                self._prepare(control, record, layout)
                if incoming is not None:
                    _set_migration_capabilities(control, hvp)
                elif not paused:
                    control.execute("cont")
        except BaseException as err:
            self._end_process(layout)
            self._remove_files(layout)
            if isinstance(err, errors.CommandError):
                # From the moment QEMU has its log file open, it complains only there.
                said = host.last_lines(err.output or host.read_log(layout.log_file))
                # Who asked for the start says which instance it was.
                raise errors.HypervisorError(f"QEMU says: {said}" if said else str(err)) from err
            if isinstance(err, OSError):
                raise errors.HypervisorError(f"cannot start instance {layout.name}: {err}") from err
            raise

    def _firmware(self, record: runtime.Runtime, layout: Layout) -> argv.Ovmf | None:
        """Get what UEFI and TPM remember ready, and start the TPM."""
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

    def _prepare(self, control: Qmp, record: runtime.Runtime, layout: Layout) -> None:
        """What is told to QEMU over QMP before the guest runs its first instruction."""
        hvp = record.hvparams
        for protocol, shown, parameter in (
            ("vnc", hvp.get("vnc_bind_address"), "vnc_password_file"),
            ("spice", hvp.get("spice_bind"), "spice_password_file"),
        ):
            if shown and hvp.get(parameter):
                password = fs.read_file(hvp[parameter]).splitlines()[0:1]
                if not password:
                    raise errors.HypervisorError(f"{parameter} {hvp[parameter]} is empty")
                control.execute("set_password", {"protocol": protocol, "password": password[0]})
        found = self._process(layout)
        if found:
            pinning.pin(control, found[0], pinning.masks_of(hvp), layout.name)

    # Stop

    def stop(self, instance_name: str, hvparams: Mapping[str, Any], *, force: bool = False) -> None:
        """Press the power button; with ``force``, or without ACPI, end the process."""
        with self._locked(instance_name) as layout:
            if not self._process(layout):
                return
            if force or not hvparams.get("acpi", True):
                self._end_process(layout)
                self._remove_files(layout)
                return
            try:
                with Qmp(layout.socket("qmp"), layout.name) as control:
                    if control.execute("query-status").get("status") in _NOBODY_HOME:
                        control.execute("quit")
                    else:
                        control.execute("system_powerdown")
            except ConnectionLost:
                logging.info("instance %s went away while it was asked to", instance_name)

    def cleanup(self, instance_name: str) -> None:
        """Remove the files of a guest that does not run."""
        with self._locked(instance_name) as layout:
            if not self._process(layout):
                self._remove_files(layout)

    # Reboot

    def reboot(self, instance: FilledInstance, *, timeout_s: float) -> None:
        """Stop the guest, then start it with the hardware it had."""
        name = instance.name
        layout = self.layout(name)
        if not self._process(layout):
            raise errors.HypervisorError(f"instance {name} is not running")
        # Stopping removes the file, so it is read first.
        record = runtime.load(layout.runtime_file, name)
        self.stop(name, record.hvparams)
        self.wait_end(name, timeout_s)
        if self.is_running(name):
            logging.warning(
                "instance %s did not shut down within %g s, stopping it hard", name, timeout_s
            )
            self.stop(name, record.hvparams, force=True)
        with self._locked(name):
            self._refuse_running(layout)
            qemu = facts.of(record.hvparams["kvm_path"])
            record = replace(record, argv=_for_this_node(record, qemu))
            self._start(record, layout, qemu, paused=False, tags=instance.tags)

    # Memory

    def balloon_memory(self, instance: FilledInstance, memory_mib: int) -> None:
        """Let the balloon take or give memory."""
        layout = self.layout(instance.name)
        self._require_running(layout)
        with Qmp(layout.socket("qmp"), instance.name) as control:
            control.execute("balloon", {"value": memory_mib << 20})

    # Devices while the guest runs

    def hotplug_supported(self, instance: FilledInstance) -> None:
        """It runs, answers, and we know how it was started."""
        layout = self.layout(instance.name)
        try:
            self._require_running(layout)
            runtime.load(layout.runtime_file, instance.name)
            with Qmp(layout.socket("qmp"), instance.name) as control:
                status = control.execute("query-status").get("status")
        except errors.HypervisorError as err:
            raise errors.HotplugError(str(err)) from err
        if status not in ("running", "paused", "prelaunch"):
            raise errors.HotplugError(f"instance {instance.name} is in state {status}")

    def hot_add(
        self,
        instance: FilledInstance,
        dev_type: str,
        device: Disk | FilledNic,
        extra: Sequence[Any] | None,
        seq: int,
    ) -> None:
        """Plug a device into the running guest."""

        def change(control: Qmp, record: runtime.Runtime) -> runtime.Runtime:
            bus = hotplug.used_bus(record)
            if isinstance(device, Disk):
                path, uri = extra or ("", None)
                return hotplug.add_disk(
                    control, record, device, path, uri, seq, bus, _links(instance.name)
                )
            try:
                info = buses.nic_hvinfo(device, record.hvparams, bus)
            except errors.HypervisorError as err:
                raise errors.HotplugError(str(err)) from err
            return self._plug_nic(instance, control, record, device, seq, info)

        self._change_devices(instance, dev_type, change)

    def hot_remove(
        self,
        instance: FilledInstance,
        dev_type: str,
        device: Disk | FilledNic,
        extra: Sequence[Any] | None,
        seq: int,
    ) -> None:
        """Take a device from the running guest."""

        def change(control: Qmp, record: runtime.Runtime) -> runtime.Runtime:
            if isinstance(device, Disk):
                return hotplug.remove_disk(control, record, device, _links(instance.name))
            return self._unplug_nic(instance, control, record, device)

        self._change_devices(instance, dev_type, change)

    def hot_modify(
        self,
        instance: FilledInstance,
        dev_type: str,
        device: Disk | FilledNic,
        extra: Sequence[Any] | None,
        seq: int,
    ) -> None:
        """Replace a network card by a changed one in the same place."""

        def change(control: Qmp, record: runtime.Runtime) -> runtime.Runtime:
            if isinstance(device, Disk):
                raise errors.HotplugError(
                    f"disk {device.uuid}: a disk cannot be modified while the guest runs"
                )
            device_id = buses.device_id("nic", device.uuid)
            old = next(
                (
                    (number, known)
                    for number, known in enumerate(record.nics)
                    if known["hvinfo"]["id"] == device_id
                ),
                None,
            )
            if old is None:
                raise errors.HotplugError(f"the guest has no NIC {device.uuid}")
            position, known = old
            record = self._unplug_nic(instance, control, record, device)
            # Written down at once: if the new card fails, the old one is gone all the same.
            runtime.save(self.layout(instance.name).runtime_file, record)
            try:
                return self._plug_nic(instance, control, record, device, position, known["hvinfo"])
            except errors.GenericError as err:
                raise errors.HotplugError(
                    f"{err}. The guest is left without NIC {device.uuid}."
                ) from err

        self._change_devices(instance, dev_type, change)

    def plugged_disks(self, instance_name: str) -> Sequence[Disk]:
        """From the runtime file."""
        record = runtime.load(self.layout(instance_name).runtime_file, instance_name)
        return [
            codec.from_dict(
                Disk, {key: value for key, value in disk.disk.items() if key != "hvinfo"}
            )
            for disk in record.disks
        ]

    def _unplug_nic(
        self, instance: FilledInstance, control: Qmp, record: runtime.Runtime, card: FilledNic
    ) -> runtime.Runtime:
        record, position = hotplug.remove_nic(control, record, card)
        if position is not None:
            guest = nics.guest_network(self.layout(instance.name))
            interfaces.unplug(guest, position, len(record.nics) + 1)
        return record

    def _plug_nic(
        self,
        instance: FilledInstance,
        control: Qmp,
        record: runtime.Runtime,
        card: FilledNic,
        index: int,
        info: Mapping[str, Any],
    ) -> runtime.Runtime:
        index = min(index, len(record.nics))
        device = runtime.device_dict(card, info)
        layout = self.layout(instance.name)
        owner = privileges.current_uid(record.hvparams, layout)
        with interfaces.plug(
            nics.host_nics([device], instance.name)[0],
            index,
            len(record.nics),
            nics.tap_features(record.hvparams, owner),
            nics.guest_network(layout, instance.tags),
        ) as interface:
            return hotplug.add_nic(control, record, card, index, info, interface)

    def _change_devices(
        self,
        instance: FilledInstance,
        dev_type: str,
        change: Callable[[Qmp, runtime.Runtime], runtime.Runtime],
    ) -> None:
        """Change devices over QMP and write the new record down."""
        try:
            with self._locked(instance.name) as layout:
                self._require_running(layout)
                record = runtime.load(layout.runtime_file, instance.name)
                hotplug.check_possible(record, dev_type)
                with Qmp(layout.socket("qmp"), instance.name) as control:
                    record = change(control, record)
                runtime.save(layout.runtime_file, record)
        except (errors.HypervisorError, OSError) as err:
            raise errors.HotplugError(f"instance {instance.name}: {err}") from err

    # Migration

    def migratable(self, instance: FilledInstance) -> None:
        """It runs, and we know how it was started."""
        layout = self.layout(instance.name)
        self._require_running(layout)
        runtime.load(layout.runtime_file, instance.name)

    def migration_info(self, instance: FilledInstance) -> Any:
        """The runtime file, with paths as all nodes name them."""
        layout = self.layout(instance.name)
        self._require_running(layout)
        record = runtime.load(layout.runtime_file, instance.name)
        return runtime.to_virtual(record, paths.current().root).dumps()

    def accept_instance(
        self, instance: FilledInstance, info: Any, target: str, disks: Sequence[base.AttachedDisk]
    ) -> None:
        """Start a QEMU with the same hardware that waits for the memory of the guest."""
        if not isinstance(info, str):
            raise errors.HypervisorError(
                f"migration data of instance {instance.name} is no text: {info!r}"
            )
        record = runtime.to_local(runtime.loads(info, instance.name), paths.current().root)
        with self._locked(instance.name) as layout:
            self._refuse_running(layout)
            qemu = facts.of(record.hvparams["kvm_path"])
            record = self._adapt(record, instance, disks, qemu)
            port = int(instance.hvparams["migration_port"])
            self._start(
                record, layout, qemu, paused=False, tags=instance.tags, incoming=(target, port)
            )

    def _adapt(
        self,
        record: runtime.Runtime,
        instance: FilledInstance,
        disks: Sequence[base.AttachedDisk],
        qemu: facts.QemuFacts,
    ) -> runtime.Runtime:
        """A record of another node, to be used on this one.

        The guest keeps its hardware. This node's disks, program and accelerator replace the others;
        the accelerator must be the same kind, as the state of one is not understood by the other.
        """
        if len(disks) != len(record.disks):
            raise errors.HypervisorError(
                f"instance {instance.name} runs with {len(record.disks)} disks, but has "
                f"{len(disks)} in the configuration. Reboot it before it is migrated."
            )
        own = tuple(
            replace(old, path=new.path, uri=new.uri)
            for old, new in zip(record.disks, disks, strict=True)
        )
        machine = next(iter(runtime.words_of(record, "-machine")), "")
        wanted = machine.partition("accel=")[2].split(",")[0]
        if wanted == facts.KVM and qemu.accelerator != facts.KVM:
            raise errors.HypervisorError(
                f"instance {instance.name} runs with KVM, which does not work on this node"
            )
        return replace(record, argv=_for_this_node(record, qemu), disks=own)

    def migrate(
        self, cluster_name: str, instance: FilledInstance, target: str, *, live: bool
    ) -> None:
        """Tell QEMU to send the guest."""
        layout = self.layout(instance.name)
        self._require_running(layout)
        hvp = instance.hvparams
        with Qmp(layout.socket("qmp"), instance.name) as control:
            if control.execute("query-migrate").get("status") in _SENDING:
                # Whoever told it before did not live to say so.
                logging.info("instance %s is being sent already", instance.name)
                return
            control.execute(
                "migrate-set-parameters",
                {
                    "max-bandwidth": int(hvp["migration_bandwidth"]) << 20,
                    "downtime-limit": int(hvp["migration_downtime"]),
                },
            )
            _set_migration_capabilities(control, hvp)
            # An emulated guest that runs while its memory is copied loses writes now and then: the
            # emulator notes a page as changed a moment before it changes it, and the copy may come
            # in between. Seen as guests that spin or panic on the target, on busy machines.
            stopped = not live or _is_emulated(layout)
            if stopped:
                control.execute("stop")
            try:
                control.execute(
                    "migrate", {"uri": argv.migration_uri(target, int(hvp["migration_port"]))}
                )
            except errors.HypervisorError:
                if stopped:
                    control.execute("cont")
                raise

    def migration_status(self, instance: FilledInstance) -> MigrationStatus:
        """Ask QEMU; a bad answer now and then is tolerated."""
        layout = self.layout(instance.name)
        problem: errors.GenericError | None = None
        for attempt in range(_STATUS_TRIES):
            if attempt:
                time.sleep(_STATUS_PAUSE_S)
            if not self._process(layout):
                raise errors.HypervisorError(f"instance {instance.name} ended during its migration")
            try:
                with Qmp(layout.socket("qmp"), instance.name) as control:
                    answer = control.execute("query-migrate")
                    status = parse.parse_migration_status(answer)
                    if status.status == "active" and _should_arrive(answer, instance.hvparams):
                        # The guest goes on over there now and fetches the rest when it needs it.
                        control.execute("migrate-start-postcopy")
            except (errors.HypervisorError, errors.ParseError) as err:
                problem = err
                logging.warning("migration of instance %s: %s", instance.name, err)
                continue
            if status.status in ("failed", "cancelled"):
                logging.error(
                    "migration of instance %s %s: %s",
                    instance.name,
                    status.status,
                    answer.get("error-desc", "no reason given"),
                )
            if status.status == "completed":
                if _is_emulated(layout):
                    status = replace(status, downtime=status.total_time)
                logging.info(
                    "migration of instance %s: %s ms, of which it stood still %s ms",
                    instance.name,
                    status.total_time,
                    status.downtime,
                )
            return status
        raise errors.HypervisorError(
            f"cannot follow the migration of instance {instance.name}: {problem}"
        ) from problem

    def finalize_migration_source(
        self, instance: FilledInstance, *, success: bool, live: bool
    ) -> None:
        """End the QEMU that sent the guest; or, after a failure, let it run on here."""
        if success:
            with self._locked(instance.name) as layout:
                self._end_process(layout)
                self._remove_files(layout)
            return
        layout = self.layout(instance.name)
        self._require_running(layout)
        with Qmp(layout.socket("qmp"), instance.name) as control:
            control.execute("migrate_cancel")
            arrival.wait_cancelled(control, instance.name)
            if control.execute("query-status").get("status") in ("paused", "postmigrate"):
                control.execute("cont")

    def finalize_migration_target(
        self, instance: FilledInstance, info: Any, *, success: bool
    ) -> None:
        """Let the guest that has arrived run; or, after a failure, remove what waits for it."""
        if not success:
            with self._locked(instance.name) as layout:
                self._end_process(layout)
                self._remove_files(layout)
            return
        layout = self.layout(instance.name)
        self._require_running(layout)
        with Qmp(layout.socket("qmp"), instance.name) as control:
            arrival.wait_arrived(control, instance.name)
            # It runs on at once; a network that cannot be set up must not keep it from that.
            control.execute("cont")
        record = runtime.load(layout.runtime_file, instance.name)
        interfaces.finish_incoming(
            nics.host_nics(record.nics, instance.name),
            nics.guest_network(layout, instance.tags),
        )


def _spice_address(hvparams: Mapping[str, Any]) -> str | None:
    """The address where ``spice_bind`` names a network interface, else None."""
    name = hvparams.get("spice_bind")
    if not name or hvparams.get("vnc_bind_address") or net.is_ip(name):
        return None
    return host.interface_address(name, int(hvparams.get("spice_ip_version") or 0))


def _for_this_node(record: runtime.Runtime, qemu: facts.QemuFacts) -> tuple[str, ...]:
    """The command line of a guest that was started by another QEMU, or on another node."""
    words = argv.translated(record.argv, qemu)
    address = _spice_address(record.hvparams)
    return tuple(words if address is None else argv.with_spice_address(words, address))


def _is_emulated(layout: Layout) -> bool:
    """Whether a running guest has no help from the processor."""
    record = runtime.load(layout.runtime_file, layout.name)
    machine = next(iter(runtime.words_of(record, "-machine")), "")
    return f"accel={facts.KVM}" not in machine.split(",")


def _should_arrive(answer: Mapping[str, Any], hvparams: Mapping[str, Any]) -> bool:
    """Whether a migration that may be finished by post-copy has copied all memory often enough."""
    if "postcopy-ram" not in (hvparams.get("migration_caps") or "").split(":"):
        return False
    ram = answer.get("ram")
    rounds = ram.get("dirty-sync-count") if isinstance(ram, dict) else None
    return isinstance(rounds, int) and rounds >= _POSTCOPY_ROUNDS


def _set_migration_capabilities(control: Qmp, hvparams: Mapping[str, Any]) -> None:
    """What both ends of a migration must agree on."""
    wanted = [name for name in (hvparams.get("migration_caps") or "").split(":") if name]
    if wanted:
        control.execute(
            "migrate-set-capabilities",
            {"capabilities": [{"capability": name, "state": True} for name in wanted]},
        )


def _links(instance_name: str) -> Callable[[int], str]:
    here = paths.current()
    return lambda index: here.instance_disk_link(instance_name, index)
