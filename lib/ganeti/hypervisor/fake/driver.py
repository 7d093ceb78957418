"""The driver of the hypervisor ``fake``: a file in RUN_DIR/fake-hypervisor stands for each guest.

It serves virtual clusters, and simulations and tests of the cluster which need no real guests. The
file holds three lines: a number, the memory in MiB, the number of processors. The memory in all
files is subtracted from the node's free memory, so that allocation and verification see it used.

The number is :data:`RUNS`, :data:`WAITS` on the target of a migration, or :data:`SENT` on its
source, where the guest never runs on.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

from ganeti import errors
from ganeti.constants import hv
from ganeti.hypervisor import base
from ganeti.objects.hypervisors.fake import FAKE
from ganeti.objects.instance import FilledInstance
from ganeti.objects.transfer import MigrationStatus
from ganeti.platform import paths
from ganeti.utils import fs

RUNS, WAITS, SENT = 1, 2, 3


class FakeHypervisor(base.Hypervisor):
    """Guests which are files."""

    DESCRIPTOR = FAKE

    def start(
        self, instance: FilledInstance, disks: Sequence[base.AttachedDisk], *, paused: bool = False
    ) -> None:
        """Write the file.

        :raises HypervisorError: the guest runs already, or the link of a disk leads to nothing.
        """
        if self.is_running(instance.name):
            raise errors.HypervisorError(f"instance {instance.name} is running already")
        for attached in disks:
            if attached.uri is None and not os.path.exists(attached.path):
                raise errors.HypervisorError(
                    f"instance {instance.name}: disk {attached.path} does not exist"
                )
        self._write(
            instance.name, int(instance.beparams["maxmem"]), int(instance.beparams["vcpus"])
        )

    def complete_start(self, instance: FilledInstance, *, paused: bool = False) -> bool:
        """Remove a file which stands for no running guest."""
        info = self.instance_info(instance.name)
        if info is None or info.id == RUNS:
            return info is not None
        fs.remove_file(self._path(instance.name))
        return False

    def stop(self, instance_name: str, hvparams: Mapping[str, Any], *, force: bool = False) -> None:
        """Remove the file."""
        fs.remove_file(self._path(instance_name))

    def cleanup(self, instance_name: str) -> None:
        """Do nothing: a guest that does not run has no file."""

    def reboot(
        self, instance: FilledInstance, disks: Sequence[base.AttachedDisk], *, timeout_s: float
    ) -> None:
        """Check that the guest runs; nothing changes.

        :raises HypervisorError: it does not run.
        """
        self._require_here(instance)

    def list_instances(self) -> list[str]:
        """Return the names of the files, sorted."""
        try:
            return fs.list_visible(paths.current().fake_root)
        except FileNotFoundError:
            return []

    def instance_info(self, instance_name: str) -> base.InstanceInfo | None:
        """Return the content of the file.

        :raises HypervisorError: the file is damaged.
        """
        try:
            text = fs.read_file(self._path(instance_name))
        except FileNotFoundError:
            return None
        try:
            number, memory_mib, vcpus = (int(line) for line in text.split())
        except ValueError as err:
            raise errors.HypervisorError(
                f"file {self._path(instance_name)} is damaged, expected three numbers. "
                "Stop the instance to remove it."
            ) from err
        state = hv.STATE_SHUTDOWN if number == WAITS else hv.STATE_RUNNING
        return base.InstanceInfo(instance_name, number, memory_mib, vcpus, state, 0.0)

    def node_info(self, hvparams: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Return the capacity of this machine, without the memory of its guests."""
        info = base.read_linux_node_info()
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
        info = self._require_here(instance)
        self._write(instance.name, memory_mib, info.vcpus, info.id)

    def hotplug_supported(self, instance: FilledInstance) -> None:
        """Accept every change, as a file has no devices."""

    def migratable(self, instance: FilledInstance) -> None:
        """Check that the guest runs.

        :raises HypervisorError: it does not run.
        """
        info = self._require_here(instance)
        if info.id != RUNS:
            raise errors.HypervisorError(f"instance {instance.name} was sent to another node")

    def migration_info(self, instance: FilledInstance) -> Any:
        """Memory size and processors, which may differ from the configured ones."""
        info = self._require_here(instance)
        return {"memory": info.memory_mib, "vcpus": info.vcpus}

    def accept_instance(
        self, instance: FilledInstance, info: Any, target: str, disks: Sequence[base.AttachedDisk]
    ) -> None:
        """Write a file which waits for the guest.

        :raises HypervisorError: it is here already.
        """
        if self.is_running(instance.name):
            raise errors.HypervisorError(f"instance {instance.name} is running already")
        self._write_as_sent(instance, info, WAITS)

    def migrate(
        self, cluster_name: str, instance: FilledInstance, target: str, *, live: bool
    ) -> None:
        """Send the guest, which takes no time: there is no memory."""
        info = self._require_here(instance)
        self._write(instance.name, info.memory_mib, info.vcpus, SENT)

    def migration_status(self, instance: FilledInstance) -> MigrationStatus:
        """Complete, or "none"."""
        info = self._require_here(instance)
        if info.id != SENT:
            return MigrationStatus(status="none")
        memory = info.memory_mib << 20
        return MigrationStatus(status="completed", transferred_ram=memory, total_ram=memory)

    def finalize_migration_source(
        self, instance: FilledInstance, *, success: bool, live: bool
    ) -> None:
        """After a success, remove the file.

        :raises HypervisorError: after a failure: the guest was sent.
        """
        if success:
            fs.remove_file(self._path(instance.name))
        elif self._require_here(instance).id == SENT:
            raise errors.HypervisorError(
                f"instance {instance.name} was sent to another node, so it cannot run on here"
            )

    def finalize_migration_target(
        self, instance: FilledInstance, info: Any, *, success: bool
    ) -> None:
        """After a success, write the file; otherwise remove the one which waits.

        :raises HypervisorError: after a failure: the guest runs here.
        """
        if success:
            self._write_as_sent(instance, info, RUNS)
            return
        known = self.instance_info(instance.name)
        if known is not None and known.id == RUNS:
            raise errors.HypervisorError(f"instance {instance.name} runs, and was not ended")
        fs.remove_file(self._path(instance.name))

    def _require_here(self, instance: FilledInstance) -> base.InstanceInfo:
        info = self.instance_info(instance.name)
        if info is None:
            raise errors.HypervisorError(f"instance {instance.name} is not running")
        return info

    def _write_as_sent(self, instance: FilledInstance, info: Any, number: int) -> None:
        known = info if isinstance(info, dict) else {}
        memory_mib = known.get("memory", instance.beparams["maxmem"])
        vcpus = known.get("vcpus", instance.beparams["vcpus"])
        if not (isinstance(memory_mib, int) and isinstance(vcpus, int)):
            raise errors.HypervisorError(
                f"migration data of instance {instance.name} is damaged: {info!r}"
            )
        self._write(instance.name, memory_mib, vcpus, number)

    @staticmethod
    def _path(instance_name: str) -> str:
        return f"{paths.current().fake_root}/{base.require_file_name(instance_name)}"

    def _write(self, instance_name: str, memory_mib: int, vcpus: int, number: int = RUNS) -> None:
        path = self._path(instance_name)
        try:
            fs.make_dirs(os.path.dirname(path), 0o775)
            fs.write_file(path, f"{number}\n{memory_mib}\n{vcpus}\n", sync=False)
        except OSError as err:
            raise errors.HypervisorError(
                f"cannot write the state of instance {instance_name}: {err}"
            ) from err
