"""The driver of the hypervisor ``kvm``: the operations on guests, done with QEMU.

A guest is a QEMU process which daemonised itself (:mod:`ganeti.hypervisor.kvm.guests`). Its files
are sockets, the runtime file and tap devices (:class:`~ganeti.hypervisor.kvm.layout.Layout`). They
are removed when the guest is stopped, when its start fails, and before its next start after a
crash.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ganeti import errors
from ganeti.hypervisor import base, host
from ganeti.hypervisor.kvm import (
    buses,
    facts,
    hotplug,
    nics,
    parameters,
    parse,
    privileges,
    runtime,
)
from ganeti.hypervisor.kvm.layout import Layout
from ganeti.hypervisor.kvm.migration import KvmMigration
from ganeti.hypervisor.kvm.qmp import ConnectionLost, Qmp
from ganeti.hypervisor.net import interfaces
from ganeti.objects import codec
from ganeti.objects.disk import Disk
from ganeti.objects.instance import FilledInstance, FilledNic
from ganeti.platform import paths
from ganeti.utils import fs

# States before the guest's first instruction, while it is elsewhere, or after its crash: no
# operating system would react to the power button.
_NO_POWER_BUTTON = frozenset(("prelaunch", "inmigrate", "postmigrate", "guest-panicked"))


class KvmHypervisor(KvmMigration):
    """Guests under QEMU."""

    # Running guests

    def list_instances(self) -> list[str]:
        """Return the names of the guests whose QEMU is alive, sorted."""
        try:
            names = fs.list_visible(f"{paths.current().kvm_root}/pid")
        except FileNotFoundError:
            return []
        return [name for name in names if self._process(self.layout(name))]

    def is_running(self, instance_name: str) -> bool:
        """Return True if the guest's QEMU is alive; wait for one which is just ending."""
        layout = self.layout(instance_name)
        if self._process(layout):
            return True
        self._await_last_moment(layout)
        return False

    def wait_end(self, instance_name: str, timeout_s: float) -> None:
        """Wait until the guest's QEMU ends, at most so many seconds."""
        found = self._process(self.layout(instance_name))
        if found:
            host.wait_gone(found[0], timeout_s)

    def instance_info(self, instance_name: str) -> base.InstanceInfo | None:
        """Return the facts from QEMU's command line; the ballooned memory, if QEMU answers.

        :returns: None when the guest does not run here and was not shut down from inside.
        """
        layout = self.layout(instance_name)
        found = self._process(layout)
        if found:
            return self._info(layout, *found)
        if os.path.exists(layout.shutdown_file):
            return base.InstanceInfo(instance_name, 0, 0, 0, base.SHUTDOWN, 0.0)
        return None

    def all_info(self) -> list[base.InstanceInfo]:
        """Return the facts of all guests, and of those which ganeti-kvmd saw shut down from
        inside.
        """
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
                    # An incoming migration; the guest still runs on another node.
                    state = base.SHUTDOWN
                memory_mib = control.execute("query-balloon")["actual"] >> 20
        except (errors.HypervisorError, KeyError, TypeError) as err:
            # QEMU is busy with another client, or the guest has no balloon.
            logging.debug("instance %s: memory taken from the command line: %s", layout.name, err)
        return base.InstanceInfo(
            layout.name, pid, memory_mib, command.vcpus, state, host.cpu_time_s(pid)
        )

    def usage(self) -> dict[str, base.Usage]:
        """Measure with the files which the kernel has of the processes; QEMU itself is not asked.

        The guests of an incoming migration count, too: their QEMU uses memory already.
        """
        found = {}
        for name in self.list_instances():
            layout = self.layout(name)
            running = self._process(layout)
            if running is None:
                continue
            pid, command = running
            disk_read, disk_written = host.transferred_bytes(pid)
            net_in, net_out = interfaces.transferred_bytes(nics.guest_network(layout))
            found[name] = base.Usage(
                cpu_s=host.cpu_time_s(pid),
                memory=host.resident_mib(pid),
                vcpus=command.vcpus,
                disk_read=disk_read,
                disk_written=disk_written,
                net_in=net_in,
                net_out=net_out,
            )
        return found

    # The node

    def node_info(self, hvparams: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Return the capacity of this node, and ``hv_version`` when ``kvm_path`` is given and
        works.
        """
        info = base.read_linux_node_info()
        if hvparams and hvparams.get("kvm_path"):
            try:
                info["hv_version"] = list(facts.of(hvparams["kvm_path"]).version)
            except errors.HypervisorError as err:
                logging.warning("no version of QEMU: %s", err)
        return info

    def validate_parameters(self, hvparams: Mapping[str, Any]) -> None:
        """See :func:`ganeti.hypervisor.kvm.parameters.check`."""
        parameters.check(hvparams)

    def require_files(self, hvparams: Mapping[str, Any]) -> None:
        """See :func:`ganeti.hypervisor.kvm.parameters.require_files`."""
        parameters.require_files(hvparams)

    def missing_program(self, hvparams: Mapping[str, Any]) -> str | None:
        """QEMU, if ``kvm_path`` is not a program."""
        kvm_path = hvparams["kvm_path"]
        try:
            facts.resolve_program(kvm_path)
        except errors.HypervisorError:
            return (
                f"QEMU at {kvm_path} (kvm_path). Install the package qemu-system-x86 on every node."
            )
        return None

    def verify(self, hvparams: Mapping[str, Any] | None = None) -> str | None:
        """Return what is wrong with QEMU on this node; None if it is installed and answers."""
        kvm_path = (hvparams or {}).get("kvm_path")
        if not kvm_path:
            return None
        try:
            facts.of(kvm_path)
        except errors.HypervisorError as err:
            return str(err)
        return None

    # Stop

    def stop(self, instance_name: str, hvparams: Mapping[str, Any], *, force: bool = False) -> None:
        """Press the power button; with ``force``, or without ACPI, end the process.

        :raises HypervisorError: QEMU does not answer, or does not end.
        """
        with self._locked(instance_name) as layout:
            if not self._process(layout):
                return
            if force or not hvparams.get("acpi", True):
                self._end_process(layout)
                self._remove_files(layout)
                return
            try:
                with Qmp(layout.socket("qmp"), layout.name) as control:
                    if control.execute("query-status").get("status") in _NO_POWER_BUTTON:
                        control.execute("quit")
                    else:
                        control.execute("system_powerdown")
            except ConnectionLost:
                logging.info("instance %s ended before QEMU answered", instance_name)

    def cleanup(self, instance_name: str) -> None:
        """Remove the files of a guest that does not run."""
        with self._locked(instance_name) as layout:
            if not self._process(layout):
                self._remove_files(layout)

    # Memory

    def balloon_memory(self, instance: FilledInstance, memory_mib: int) -> None:
        """Change the memory of a running guest with its balloon.

        :raises HypervisorError: it does not run, or QEMU refuses.
        """
        layout = self.layout(instance.name)
        self._require_running(layout)
        with Qmp(layout.socket("qmp"), instance.name) as control:
            control.execute("balloon", {"value": memory_mib << 20})

    # Devices of a running guest

    def hotplug_supported(self, instance: FilledInstance) -> None:
        """Check that the guest runs and answers, and has a runtime file.

        :raises HotplugError: its devices cannot be changed.
        """
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
        """Plug a device into the running guest.

        :raises HotplugError: it is not plugged in.
        """

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
        """Unplug a device from the running guest; one that the guest lacks is not an error.

        :raises HotplugError: it is still plugged in.
        """

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
        """Replace a NIC by a changed one in the same place of the guest.

        :raises HotplugError: the guest has the old one, or none when the message says so.
        """

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
            # Saved at once: the old NIC is gone, even if the new one fails.
            runtime.save(self.layout(instance.name).runtime_file, record)
            try:
                return self._plug_nic(instance, control, record, device, position, known["hvinfo"])
            except errors.GenericError as err:
                raise errors.HotplugError(
                    f"{err}. The guest is left without NIC {device.uuid}."
                ) from err

        self._change_devices(instance, dev_type, change)

    def plugged_disks(self, instance_name: str) -> Sequence[Disk]:
        """Return the disks in the runtime file, in order.

        :raises HypervisorError: the file is missing or damaged.
        """
        record = runtime.load(self.layout(instance_name).runtime_file, instance_name)
        return [
            codec.from_any_release(
                Disk, {key: value for key, value in disk.disk.items() if key != "hvinfo"}
            )
            for disk in record.disks
        ]

    def _unplug_nic(
        self, instance: FilledInstance, control: Qmp, record: runtime.Runtime, nic: FilledNic
    ) -> runtime.Runtime:
        record, position = hotplug.remove_nic(control, record, nic)
        if position is not None:
            guest = nics.guest_network(self.layout(instance.name))
            interfaces.unplug(guest, position, len(record.nics) + 1)
        return record

    def _plug_nic(
        self,
        instance: FilledInstance,
        control: Qmp,
        record: runtime.Runtime,
        nic: FilledNic,
        index: int,
        info: Mapping[str, Any],
    ) -> runtime.Runtime:
        index = min(index, len(record.nics))
        device = runtime.device_dict(nic, info)
        layout = self.layout(instance.name)
        owner = privileges.current_uid(record.hvparams, layout)
        with interfaces.plug(
            nics.host_nics([device], instance.name)[0],
            index,
            len(record.nics),
            nics.tap_features(record.hvparams, owner),
            nics.guest_network(layout, instance.tags),
        ) as interface:
            return hotplug.add_nic(control, record, nic, index, info, interface)

    def _change_devices(
        self,
        instance: FilledInstance,
        dev_type: str,
        change: Callable[[Qmp, runtime.Runtime], runtime.Runtime],
    ) -> None:
        """Change devices over QMP and save the new record."""
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


def _links(instance_name: str) -> Callable[[int], str]:
    here = paths.current()
    return lambda index: here.instance_disk_link(instance_name, index)
