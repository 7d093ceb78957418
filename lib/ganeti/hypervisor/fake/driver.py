"""The driver of the hypervisor ``fake``: a file in RUN_DIR/fake-hypervisor stands for each guest.

It serves virtual clusters, and simulations and tests of the cluster which need no real guests. The
memory in all files is subtracted from the node's free memory, so that allocation and verification
see it used.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

from ganeti import errors
from ganeti.constants import hv
from ganeti.hypervisor import base, guest_errors, host
from ganeti.hypervisor.fake import guests
from ganeti.hypervisor.fake.migration import FakeMigration
from ganeti.objects.hypervisors.fake import FAKE
from ganeti.objects.instance import FilledInstance
from ganeti.platform import paths


class FakeDevices(base.Devices):
    """Devices of running guests. A file has none, so every change is accepted."""

    def check(self, instance: FilledInstance) -> None:
        """Accept the change."""


class FakeHypervisor(base.Hypervisor):
    """Guests which are files."""

    DESCRIPTOR = FAKE

    def __init__(self) -> None:
        super().__init__()
        self.devices = FakeDevices(self.name)
        self.migration = FakeMigration(self.name)

    def start(
        self, instance: FilledInstance, disks: Sequence[base.AttachedDisk], *, paused: bool = False
    ) -> None:
        """Write the file.

        :raises HypervisorError: the guest runs already, or the link of a disk leads to nothing.
        """
        if self.is_running(instance.name):
            raise guest_errors.running_already(instance.name)
        for attached in disks:
            if attached.uri is None and not os.path.exists(attached.path):
                raise errors.HypervisorError(
                    f"instance {instance.name}: disk {attached.path} does not exist"
                )
        guests.write(
            instance.name, int(instance.beparams["maxmem"]), int(instance.beparams["vcpus"])
        )

    def complete_start(self, instance: FilledInstance, *, paused: bool = False) -> bool:
        """Remove a file which stands for no running guest."""
        info = guests.find(instance.name)
        if info is None or info.id not in (guests.WAITS, guests.SENT):
            return info is not None
        guests.remove(instance.name)
        return False

    def resume(self, instance_name: str) -> None:
        """Write into the file that the guest runs.

        :raises HypervisorError: it does not run here, or can never run on.
        """
        info = guests.require(instance_name)
        if info.halt is None:
            return
        if info.halt.kind in (hv.HALT_ENDED, hv.HALT_MIGRATES):
            raise guest_errors.cannot_run_on(instance_name, info.halt)
        guests.write(instance_name, info.memory_mib, info.vcpus)

    def stop(self, instance_name: str, hvparams: Mapping[str, Any], *, force: bool = False) -> None:
        """Remove the file."""
        guests.remove(instance_name)

    def cleanup(self, instance_name: str) -> None:
        """Do nothing: a guest that does not run has no file."""

    def reboot(
        self, instance: FilledInstance, disks: Sequence[base.AttachedDisk], *, timeout_s: float
    ) -> None:
        """Check that the guest runs; nothing changes.

        :raises HypervisorError: it does not run.
        """
        guests.require(instance.name)

    def list_instances(self) -> list[str]:
        """Return the names of the files, sorted."""
        return guests.names()

    def instance_info(self, instance_name: str) -> base.InstanceInfo | None:
        """Return the content of the file.

        :raises HypervisorError: the file is damaged.
        """
        return guests.find(instance_name)

    def started_at(self, instance_name: str) -> float | None:
        """Return when the file was written."""
        return guests.written_at(instance_name)

    def node_info(self, hvparams: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Return the capacity of this machine, without the memory of its guests."""
        info = host.read_linux_node_info()
        used_mib = sum(guest.memory_mib for guest in self.all_info())
        info["memory_free"] = max(info["memory_free"] - used_mib, 0)
        return info

    def verify(self, hvparams: Mapping[str, Any] | None = None) -> str | None:
        """Return what is wrong with the directory of the files; None if it can be used."""
        root = paths.current().fake_root
        if os.path.lexists(root) and not os.path.isdir(root):
            return f"{root} is not a directory"
        return None

    def balloon_memory(self, instance: FilledInstance, memory_mib: int) -> None:
        """Write the new size into the file.

        :raises HypervisorError: the guest does not run.
        """
        info = guests.require(instance.name)
        guests.write(instance.name, memory_mib, info.vcpus, info.id)
