"""The operations which change the devices of a running guest, over QMP and in its runtime file."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ganeti import errors
from ganeti.constants import net
from ganeti.hypervisor import base, guest_errors
from ganeti.hypervisor.base import AttachedDisk
from ganeti.hypervisor.kvm import buses, hotplug, nics, privileges, runtime
from ganeti.hypervisor.kvm import layout as layouts
from ganeti.hypervisor.kvm.guests import Guests
from ganeti.hypervisor.kvm.qmp import Qmp
from ganeti.hypervisor.net import interfaces
from ganeti.objects import codec
from ganeti.objects.disk import Disk
from ganeti.objects.hypervisors.kvm import KVM
from ganeti.objects.instance import FilledInstance, FilledNic
from ganeti.platform import paths

_Change = Callable[[Qmp, runtime.Runtime], runtime.Runtime]


class KvmDevices(base.Devices):
    """Disks and NICs of running guests.

    :param guests: those of this node.
    """

    def __init__(self, guests: Guests) -> None:
        super().__init__(KVM.name)
        self._guests = guests

    def check(self, instance: FilledInstance) -> None:
        """Check that the guest runs and answers, and has a runtime file.

        :raises HotplugError: its devices cannot be changed.
        """
        try:
            layout = self._guests.running(instance.name)
            runtime.load(layout.runtime_file, instance.name)
            with self._guests.control(layout) as control:
                status = control.execute("query-status").get("status")
        except errors.HypervisorError as err:
            raise errors.HotplugError(str(err)) from err
        if status not in ("running", "paused", "prelaunch"):
            raise errors.HotplugError(f"instance {instance.name} is in state {status}")

    def add_disk(self, instance: FilledInstance, attached: AttachedDisk, seq: int) -> None:
        """Plug in a disk."""

        def change(control: Qmp, record: runtime.Runtime) -> runtime.Runtime:
            bus = hotplug.used_bus(record)
            return hotplug.add_disk(control, record, attached, seq, bus, _links(instance.name))

        self._change(instance, net.HOTPLUG_TARGET_DISK, change)

    def remove_disk(self, instance: FilledInstance, disk: Disk) -> None:
        """Unplug a disk."""

        def change(control: Qmp, record: runtime.Runtime) -> runtime.Runtime:
            return hotplug.remove_disk(control, record, disk, _links(instance.name))

        self._change(instance, net.HOTPLUG_TARGET_DISK, change)

    def modify_disk(self, instance: FilledInstance, disk: Disk) -> None:
        """:raises HotplugError: always."""

        def change(control: Qmp, record: runtime.Runtime) -> runtime.Runtime:
            raise guest_errors.fixed_disk(disk.uuid)

        self._change(instance, net.HOTPLUG_TARGET_DISK, change)

    def add_nic(self, instance: FilledInstance, nic: FilledNic, seq: int) -> None:
        """Plug in a NIC."""

        def change(control: Qmp, record: runtime.Runtime) -> runtime.Runtime:
            try:
                info = buses.nic_hvinfo(nic, record.hvparams, hotplug.used_bus(record))
            except errors.HypervisorError as err:
                raise errors.HotplugError(str(err)) from err
            device = runtime.device_dict(nic, info)
            return _plug_nic(instance, control, record, device, seq)

        self._change(instance, net.HOTPLUG_TARGET_NIC, change)

    def remove_nic(self, instance: FilledInstance, nic: FilledNic) -> None:
        """Unplug a NIC."""

        def change(control: Qmp, record: runtime.Runtime) -> runtime.Runtime:
            return _unplug_nic(instance, control, record, nic)

        self._change(instance, net.HOTPLUG_TARGET_NIC, change)

    def modify_nic(self, instance: FilledInstance, nic: FilledNic) -> None:
        """Replace a NIC by a changed one with the same address in the guest.

        :raises HotplugError: the guest has the old one again, unless the text says that it has
            none.
        """

        def change(control: Qmp, record: runtime.Runtime) -> runtime.Runtime:
            position = hotplug.nic_position(record, nic)
            if position is None:
                raise errors.HotplugError(f"the guest has no NIC {nic.mac}")
            old = record.nics[position]
            new = runtime.device_dict(nic, old["hvinfo"])
            file = layouts.of(instance.name).runtime_file
            record = _unplug_nic(instance, control, record, nic)
            # Saved at once: the old NIC is gone, even if the new one fails.
            runtime.save(file, record)
            try:
                return _plug_nic(instance, control, record, new, position)
            except errors.GenericError as err:
                with guest_errors.old_nic_again(err, "guest", nic.uuid):
                    runtime.save(file, _plug_nic(instance, control, record, old, position))
                raise

        self._change(instance, net.HOTPLUG_TARGET_NIC, change)

    def plugged_disks(self, instance_name: str) -> Sequence[Disk]:
        """Return the disks in the runtime file, in order.

        :raises HypervisorError: the file is missing or damaged.
        """
        record = runtime.load(layouts.of(instance_name).runtime_file, instance_name)
        return [
            codec.from_any_release(
                Disk, {key: value for key, value in disk.disk.items() if key != "hvinfo"}
            )
            for disk in record.disks
        ]

    def _change(self, instance: FilledInstance, kind: str, change: _Change) -> None:
        """Change devices over QMP and save the new record.

        :param kind: ``disk`` or ``nic``.
        :raises HotplugError: the guest does not have the change.
        """
        try:
            with self._guests.locked(instance.name) as layout:
                self._guests.require_running(layout)
                record = runtime.load(layout.runtime_file, instance.name)
                hotplug.check_possible(record, kind)
                with self._guests.control(layout) as control:
                    record = change(control, record)
                runtime.save(layout.runtime_file, record)
        except (errors.HypervisorError, OSError) as err:
            raise errors.HotplugError(f"instance {instance.name}: {err}") from err


def _unplug_nic(
    instance: FilledInstance, control: Qmp, record: runtime.Runtime, nic: FilledNic
) -> runtime.Runtime:
    record, position = hotplug.remove_nic(control, record, nic)
    if position is not None:
        guest = nics.guest_network(layouts.of(instance.name))
        interfaces.unplug(guest, position, len(record.nics) + 1)
    return record


def _plug_nic(
    instance: FilledInstance,
    control: Qmp,
    record: runtime.Runtime,
    device: Mapping[str, Any],
    index: int,
) -> runtime.Runtime:
    """Plug in a NIC in the form of the record."""
    index = min(index, len(record.nics))
    layout = layouts.of(instance.name)
    owner = privileges.current_uid(record.hvparams, layout)
    with interfaces.plug(
        nics.host_nics([device], instance.name)[0],
        index,
        len(record.nics),
        nics.tap_features(record.hvparams, owner),
        nics.guest_network(layout, instance.tags),
    ) as interface:
        return hotplug.add_nic(control, record, device, index, interface)


def _links(instance_name: str) -> Callable[[int], str]:
    here = paths.current()
    return lambda index: here.instance_disk_link(instance_name, index)
