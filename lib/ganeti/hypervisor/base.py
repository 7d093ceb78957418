"""The verbs every hypervisor offers, and the values they speak in.

A verb acts on one guest of this node and either does its work or raises
:class:`ganeti.errors.HypervisorError`; it returns no "failed". Verbs that start something leave
nothing behind when they fail. The object itself keeps no state: what runs is read from the machine
each time, because every call comes in a new process.
"""

from __future__ import annotations

import glob
import os
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from ganeti import errors
from ganeti.constants import hv
from ganeti.objects.disk import Disk
from ganeti.objects.hypervisors.descriptor import HypervisorDescriptor
from ganeti.objects.instance import FilledInstance, FilledNic
from ganeti.objects.transfer import MigrationStatus
from ganeti.utils import fs


@dataclass(frozen=True, slots=True)
class InstanceInfo:
    """A guest as its hypervisor sees it."""

    name: str
    id: int
    memory_mib: int
    vcpus: int
    state: int  # constants.hv.STATE_*
    time_s: float  # processor time used

    def to_wire(self) -> dict[str, Any]:
        """The published form in answers to the master."""
        return {
            "memory": self.memory_mib,
            "vcpus": self.vcpus,
            "state": self.state,
            "time": self.time_s,
        }


class AttachedDisk(NamedTuple):
    """A disk of a guest that is about to run here."""

    disk: Disk
    path: str  # link in RUN_DIR/instance-disks, local
    uri: str | None = None  # how the hypervisor itself reaches the disk, without the kernel


class Hypervisor(ABC):
    """One kind of virtual machine monitor."""

    #: What the rest of the system knows of this hypervisor.
    DESCRIPTOR: HypervisorDescriptor

    @property
    def name(self) -> str:
        """The published name of the hypervisor."""
        return self.DESCRIPTOR.name

    @abstractmethod
    def start(
        self, instance: FilledInstance, disks: Sequence[AttachedDisk], *, paused: bool = False
    ) -> None:
        """Start a guest; with ``paused`` it is set up but runs no instruction yet.

        :raises HypervisorError: it runs already, or cannot be started; nothing is left behind.
        """

    def complete_start(self, instance: FilledInstance, *, paused: bool = False) -> bool:
        """Finish what an interrupted :meth:`start` of a guest that is running has left undone.

        :returns: whether the guest runs now as asked; False when there was only half a guest, which
            is gone and must be started anew.
        """
        return self.is_running(instance.name)

    @abstractmethod
    def stop(self, instance_name: str, hvparams: Mapping[str, Any], *, force: bool = False) -> None:
        """Ask a guest to shut down, or with ``force`` end it.

        A polite request returns at once; the caller looks with :meth:`is_running` and asks again.
        After a forced stop the guest is gone. A guest that does not run is no error.

        :raises HypervisorError: it cannot be asked, or does not end.
        """

    @abstractmethod
    def cleanup(self, instance_name: str) -> None:
        """Remove what a guest that no longer runs left behind; a running guest is not touched."""

    @abstractmethod
    def reboot(self, instance: FilledInstance, *, timeout_s: float) -> None:
        """Restart a guest as it was started; one that does not shut down in time is stopped hard.

        :raises HypervisorError: it does not run, or does not start again.
        """

    @abstractmethod
    def list_instances(self) -> list[str]:
        """Names of the guests running on this node, sorted."""

    @abstractmethod
    def instance_info(self, instance_name: str) -> InstanceInfo | None:
        """A guest's facts, or None when it does not run here."""

    def all_info(self) -> list[InstanceInfo]:
        """Facts of every guest running here."""
        found = (self.instance_info(name) for name in self.list_instances())
        # A guest may end between the two questions.
        return [info for info in found if info is not None]

    def is_running(self, instance_name: str) -> bool:
        """Whether the guest runs on this node."""
        return instance_name in self.list_instances()

    def wait_end(self, instance_name: str, timeout_s: float) -> None:
        """Wait for the end of a guest, at most so long; who is not told of it waits all the time.

        The caller looks with :meth:`is_running` afterwards.
        """
        time.sleep(timeout_s)

    @abstractmethod
    def node_info(self, hvparams: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Capacity of this node; keys as published for the call node_info, sizes in MiB."""

    def validate_parameters(self, hvparams: Mapping[str, Any]) -> None:
        """Check that this node can use the (filled) parameters: files exist, programs run.

        :raises HypervisorError: it cannot; names the parameter.
        """

    @abstractmethod
    def verify(self, hvparams: Mapping[str, Any] | None = None) -> str | None:
        """What is wrong with the hypervisor on this node, or None."""

    def balloon_memory(self, instance: FilledInstance, memory_mib: int) -> None:
        """Change the memory of a running guest.

        :raises HypervisorError: this kind of guest cannot, or it does not run.
        """
        raise errors.HypervisorError(
            f"hypervisor {self.name} cannot change the memory of running "
            f"instances, as was asked for {instance.name}"
        )

    # Devices of a running guest. ``device`` is a Disk or a FilledNic, ``extra`` for a disk [link,
    # uri or None], ``seq`` the place of the device among those of its kind: a new one pushes those
    # from there on up by one, a removed one lets those behind it move down.

    def hotplug_supported(self, instance: FilledInstance) -> None:
        """Check that devices of a running guest can be changed.

        :raises HotplugError: they cannot; says why.
        """
        raise errors.HotplugError(
            f"hypervisor {self.name} cannot change devices of running instances, such as "
            f"{instance.name}"
        )

    def hot_add(
        self,
        instance: FilledInstance,
        dev_type: str,
        device: Disk | FilledNic,
        extra: Sequence[Any] | None,
        seq: int,
    ) -> Any:
        """Plug a device in.

        :raises HotplugError: it is not plugged in.
        """
        self.hotplug_supported(instance)

    def hot_remove(
        self,
        instance: FilledInstance,
        dev_type: str,
        device: Disk | FilledNic,
        extra: Sequence[Any] | None,
        seq: int,
    ) -> Any:
        """Unplug a device; one that the guest lacks is no error.

        :raises HotplugError: it is still plugged in.
        """
        self.hotplug_supported(instance)

    def hot_modify(
        self,
        instance: FilledInstance,
        dev_type: str,
        device: Disk | FilledNic,
        extra: Sequence[Any] | None,
        seq: int,
    ) -> Any:
        """Give a plugged device other parameters; it keeps its place in the guest.

        :raises HotplugError: it has the old ones, or says that the guest is left without it.
        """
        self.hotplug_supported(instance)

    def plugged_disks(self, instance_name: str) -> Sequence[Disk] | None:
        """The disks a running guest has, in order; None where the hypervisor does not care."""
        return None

    # Migration. On the source: migration_info, migrate, migration_status,
    # finalize_migration_source; on the target: accept_instance, finalize_migration_target.

    def migratable(self, instance: FilledInstance) -> None:
        """Check that a guest can be sent to another node.

        :raises HypervisorError: it cannot; says why.
        """
        raise self._no_migration(instance.name)

    def migration_info(self, instance: FilledInstance) -> Any:
        """What the target needs to know to accept the guest; JSON values."""
        raise self._no_migration(instance.name)

    def accept_instance(
        self, instance: FilledInstance, info: Any, target: str, disks: Sequence[AttachedDisk]
    ) -> None:
        """Prepare to receive a guest at the address ``target`` (ours).

        :raises HypervisorError: nothing is left behind.
        """
        raise self._no_migration(instance.name)

    def migrate(
        self, cluster_name: str, instance: FilledInstance, target: str, *, live: bool
    ) -> None:
        """Begin to send a guest to the address ``target``; :meth:`migration_status` follows it."""
        raise self._no_migration(instance.name)

    def migration_status(self, instance: FilledInstance) -> MigrationStatus:
        """How far the guest's migration is."""
        raise self._no_migration(instance.name)

    def finalize_migration_source(
        self, instance: FilledInstance, *, success: bool, live: bool
    ) -> None:
        """After the migration: remove the guest here, or let it go on here."""
        raise self._no_migration(instance.name)

    def finalize_migration_target(
        self, instance: FilledInstance, info: Any, *, success: bool
    ) -> None:
        """After the migration: let the guest go on here, or remove what was prepared."""
        raise self._no_migration(instance.name)

    def _no_migration(self, instance_name: str) -> errors.HypervisorError:
        return errors.HypervisorError(
            f"hypervisor {self.name} cannot migrate instances, such as {instance_name}"
        )


# Facts of a Linux node


def parse_meminfo(text: str) -> dict[str, int]:
    """Read ``/proc/meminfo``.

    :returns: name -> KiB, only lines that have a number.
    """
    result = {}
    for line in text.splitlines():
        name, _, rest = line.partition(":")
        words = rest.split()
        if words and words[0].isdigit():
            result[name.strip()] = int(words[0])
    return result


def linux_node_info(meminfo: str, processors: int, numa_nodes: int, sockets: int) -> dict[str, Any]:
    """Capacity of a node whose guests are processes of its own kernel.

    :param meminfo: content of /proc/meminfo.
    :raises HypervisorError: the kernel does not say how much memory there is.
    """
    memory = parse_meminfo(meminfo)
    try:
        total_mib = memory["MemTotal"] // 1024
        free_kib = memory["MemFree"] + memory.get("Buffers", 0) + memory.get("Cached", 0)
    except KeyError as err:
        raise errors.HypervisorError(f"/proc/meminfo has no line {err.args[0]}") from err
    free_mib = min(free_kib // 1024, total_mib)
    return {
        "memory_total": total_mib,
        "memory_free": free_mib,
        # What guests cannot have: used and not given back under pressure.
        "memory_dom0": total_mib - free_mib,
        "cpu_total": processors,
        "cpu_nodes": numa_nodes,
        "cpu_sockets": sockets,
        "cpu_dom0": 1,
    }


def read_linux_node_info() -> dict[str, Any]:
    """:func:`linux_node_info` of this machine."""
    try:
        meminfo = fs.read_file("/proc/meminfo")
    except OSError as err:
        raise errors.HypervisorError(f"cannot read the memory size: {err}") from err
    packages = set()
    for path in glob.glob("/sys/devices/system/cpu/cpu[0-9]*/topology/physical_package_id"):
        try:
            packages.add(fs.read_file(path).strip())
        except OSError:
            # A processor taken offline has no topology.
            continue
    nodes = len(glob.glob("/sys/devices/system/node/node[0-9]*"))
    return linux_node_info(meminfo, os.cpu_count() or 1, max(nodes, 1), max(len(packages), 1))


#: State of a guest in :class:`InstanceInfo`.
RUNNING = hv.STATE_RUNNING
SHUTDOWN = hv.STATE_SHUTDOWN
