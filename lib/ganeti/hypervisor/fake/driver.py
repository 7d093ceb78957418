"""The driver of the hypervisor ``fake``: a file in RUN_DIR/fake-hypervisor stands for each guest.

It serves virtual clusters, and simulations and tests of the cluster which need no real guests. The
file holds three lines: a number, the memory in MiB, the number of processors. The memory in all
files is subtracted from the node's free memory, so that allocation and verification see it used.
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

    def stop(self, instance_name: str, hvparams: Mapping[str, Any], *, force: bool = False) -> None:
        """Remove the file."""
        fs.remove_file(self._path(instance_name))

    def cleanup(self, instance_name: str) -> None:
        """Do nothing: a guest that does not run has no file."""

    def reboot(self, instance: FilledInstance, *, timeout_s: float) -> None:
        """Check that the guest runs; nothing changes.

        :raises HypervisorError: it does not run.
        """
        if not self.is_running(instance.name):
            raise errors.HypervisorError(f"instance {instance.name} is not running")

    def list_instances(self) -> list[str]:
        """Names of the files, sorted."""
        try:
            return fs.list_visible(paths.current().fake_root)
        except FileNotFoundError:
            return []

    def instance_info(self, instance_name: str) -> base.InstanceInfo | None:
        """The content of the file.

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
        return base.InstanceInfo(instance_name, number, memory_mib, vcpus, hv.STATE_RUNNING, 0.0)

    def node_info(self, hvparams: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Capacity of this machine, without the memory of its guests."""
        info = base.read_linux_node_info()
        used_mib = sum(guest.memory_mib for guest in self.all_info())
        info["memory_free"] = max(info["memory_free"] - used_mib, 0)
        return info

    def verify(self, hvparams: Mapping[str, Any] | None = None) -> str | None:
        """Whether the directory of the files can be used: None, or what is wrong."""
        root = paths.current().fake_root
        if os.path.lexists(root) and not os.path.isdir(root):
            return f"{root} is not a directory"
        return None

    def balloon_memory(self, instance: FilledInstance, memory_mib: int) -> None:
        """Write the new size into the file.

        :raises HypervisorError: the guest does not run.
        """
        info = self.instance_info(instance.name)
        if info is None:
            raise errors.HypervisorError(f"instance {instance.name} is not running")
        self._write(instance.name, memory_mib, info.vcpus)

    def hotplug_supported(self, instance: FilledInstance) -> None:
        """Accept every change, as a file has no devices."""

    def migratable(self, instance: FilledInstance) -> None:
        """Check that the guest runs.

        :raises HypervisorError: it does not run.
        """
        if not self.is_running(instance.name):
            raise errors.HypervisorError(f"instance {instance.name} is not running")

    def migration_info(self, instance: FilledInstance) -> Any:
        """Memory size and processors, which may differ from the configured ones."""
        info = self.instance_info(instance.name)
        if info is None:
            raise errors.HypervisorError(f"instance {instance.name} is not running")
        return {"memory": info.memory_mib, "vcpus": info.vcpus}

    def accept_instance(
        self, instance: FilledInstance, info: Any, target: str, disks: Sequence[base.AttachedDisk]
    ) -> None:
        """Check that the guest does not run here yet.

        :raises HypervisorError: it runs.
        """
        if self.is_running(instance.name):
            raise errors.HypervisorError(f"instance {instance.name} is running already")

    def migrate(
        self, cluster_name: str, instance: FilledInstance, target: str, *, live: bool
    ) -> None:
        """Check that the guest runs; there is no memory to send."""
        self.migratable(instance)

    def migration_status(self, instance: FilledInstance) -> MigrationStatus:
        """Always complete."""
        return MigrationStatus(status="completed")

    def finalize_migration_source(
        self, instance: FilledInstance, *, success: bool, live: bool
    ) -> None:
        """After a success, remove the file."""
        if success:
            fs.remove_file(self._path(instance.name))

    def finalize_migration_target(
        self, instance: FilledInstance, info: Any, *, success: bool
    ) -> None:
        """After a success, write the file."""
        if not success:
            return
        known = info if isinstance(info, dict) else {}
        memory_mib = known.get("memory", instance.beparams["maxmem"])
        vcpus = known.get("vcpus", instance.beparams["vcpus"])
        if not (isinstance(memory_mib, int) and isinstance(vcpus, int)):
            raise errors.HypervisorError(
                f"migration data of instance {instance.name} is damaged: {info!r}"
            )
        self._write(instance.name, memory_mib, vcpus)

    @staticmethod
    def _path(instance_name: str) -> str:
        # The name becomes a file name; an instance's name never has a slash, a forged one might.
        if "/" in instance_name or instance_name.startswith("."):
            raise errors.HypervisorError(f"'{instance_name}' is not an instance name")
        return f"{paths.current().fake_root}/{instance_name}"

    def _write(self, instance_name: str, memory_mib: int, vcpus: int) -> None:
        path = self._path(instance_name)
        try:
            fs.make_dirs(os.path.dirname(path), 0o775)
            fs.write_file(path, f"1\n{memory_mib}\n{vcpus}\n", sync=False)
        except OSError as err:
            raise errors.HypervisorError(
                f"cannot write the state of instance {instance_name}: {err}"
            ) from err
