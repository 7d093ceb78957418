"""The operations which every driver of a hypervisor offers, and the types of their values.

An operation acts on one guest of this node. It does its work or raises
:class:`ganeti.errors.HypervisorError`, and never returns a failure. An operation which starts
something leaves nothing behind when it fails. A driver keeps no state: the guests which run are
read from the machine each time, because every node call is served by a new process.
"""

from __future__ import annotations

import logging
import socket
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from ganeti import errors
from ganeti.constants import hv
from ganeti.objects.disk import Disk
from ganeti.objects.halt import Halt
from ganeti.objects.hypervisors.descriptor import HypervisorDescriptor
from ganeti.objects.instance import FilledInstance, FilledNic
from ganeti.objects.transfer import MigrationStatus
from ganeti.utils import net, peers

# How often a driver asks for the end of a guest, when it gets no event: the first pause, its
# growth, and the longest pause, in seconds.
_END_POLL = (0.002, 1.5, 0.5)


#: So many migrations to one node go on at the same time: their ports begin with ``migration_port``.
PORTS = 64

#: State of a guest in :class:`InstanceInfo`.
RUNNING = hv.STATE_RUNNING
SHUTDOWN = hv.STATE_SHUTDOWN


@dataclass(frozen=True, slots=True)
class InstanceInfo:
    """Facts of a guest, from its hypervisor."""

    name: str
    id: int  # of the process or domain; 0 when there is none
    memory_mib: int
    vcpus: int
    state: int  # constants.hv.STATE_*
    time_s: float  # processor time which it has used
    halt: Halt | None = None  # why it runs no instruction, although it lives

    def to_wire(self) -> dict[str, Any]:
        """Return the published form in answers to node calls."""
        facts = {
            "memory": self.memory_mib,
            "vcpus": self.vcpus,
            "state": self.state,
            "time": self.time_s,
        }
        return facts if self.halt is None else {**facts, **self.halt.to_facts()}


def info_of_each(
    ask: Callable[[str], InstanceInfo | None], names: Iterable[str]
) -> list[InstanceInfo]:
    """Return the facts of guests; one which cannot be asked does not hide the others.

    Such a guest counts as running, without memory: it was listed, and nobody may start it again.

    :param ask: returns the facts of a guest; None when it has ended meanwhile.
    """
    found = []
    for name in names:
        try:
            info = ask(name)
        except (errors.GenericError, OSError) as err:
            logging.error("the facts of instance %s cannot be read: %s", name, err)
            info = InstanceInfo(name, 0, 0, 0, RUNNING, 0.0)
        if info is not None:
            found.append(info)
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """What a guest uses; None where the hypervisor cannot tell.

    Bytes count from the start of the guest on this node. They may begin anew when a NIC is changed.
    """

    cpu_s: float | None = None  # processor time
    memory: int | None = None  # MiB of the node's memory
    vcpus: int | None = None
    disk_read: int | None = None  # bytes
    disk_written: int | None = None
    net_in: int | None = None  # bytes which the guest received
    net_out: int | None = None


class Place(NamedTuple):
    """Where the target of a migration waits for the source.

    :ivar address: of the target.
    :ivar port: TCP port; on the target, the first one which it tries.
    :ivar any_port: on the target: whether it takes the next free port of :data:`PORTS` when that
        one is in use, for example by another migration.
    """

    address: str
    port: int
    any_port: bool = False

    def __str__(self) -> str:
        return f"{self.address} port {self.port}"

    def listen(self) -> socket.socket:
        """Listen there; the socket knows the port.

        :raises OSError: no port is free, or this node does not have the address.
        """
        count = PORTS if self.any_port else 1
        return net.tcp_listen_free(self.address, self.port, count, backlog=peers.WAITING_MAX)


class AttachedDisk(NamedTuple):
    """A disk of a guest which is about to run here."""

    disk: Disk
    path: str  # link in RUN_DIR/instance-disks, a local path
    uri: str | None = None  # the URI by which the hypervisor itself opens the disk


class Devices:
    """Changes to the devices of running guests. This class refuses them.

    A driver that can change devices has its own class, and overrides the methods of what it can.

    :param hypervisor: its name, for messages.
    """

    def __init__(self, hypervisor: str) -> None:
        self._hypervisor = hypervisor

    def check(self, instance: FilledInstance) -> None:
        """Check that devices of a running guest can be changed.

        :raises HotplugError: they cannot; says why.
        """
        raise errors.HotplugError(
            f"hypervisor {self._hypervisor} cannot change devices of running instances, such as "
            f"{instance.name}"
        )

    def add_disk(self, instance: FilledInstance, attached: AttachedDisk, seq: int) -> None:
        """Plug a disk into a running guest.

        :param seq: its position; the disks from this position on move up by one.
        :raises HotplugError: it is not plugged in.
        """
        self.check(instance)

    def add_nic(self, instance: FilledInstance, nic: FilledNic, seq: int) -> None:
        """Plug a NIC into a running guest.

        :param seq: its position; the NICs from this position on move up by one.
        :raises HotplugError: it is not plugged in.
        """
        self.check(instance)

    def remove_disk(self, instance: FilledInstance, disk: Disk) -> None:
        """Unplug a disk from a running guest; one that the guest lacks is not an error.

        :raises HotplugError: it is still plugged in.
        """
        self.check(instance)

    def remove_nic(self, instance: FilledInstance, nic: FilledNic) -> None:
        """Unplug a NIC from a running guest; one that the guest lacks is not an error.

        :raises HotplugError: it is still plugged in.
        """
        self.check(instance)

    def modify_disk(self, instance: FilledInstance, disk: Disk) -> None:
        """Change the parameters of a plugged disk.

        :raises HotplugError: it has the old parameters.
        """
        self.check(instance)

    def modify_nic(self, instance: FilledInstance, nic: FilledNic) -> None:
        """Replace a plugged NIC by a changed one, which has the same address in the guest.

        :raises HotplugError: it has the old parameters, or the message says that the guest is left
            without it.
        """
        self.check(instance)

    def plugged_disks(self, instance_name: str) -> Sequence[Disk] | None:
        """Return the disks of a running guest, in order.

        The result is None if the hypervisor does not know them.
        """
        return None


class Migration:
    """Migration of running guests to another node. This class refuses it.

    The source serves ``info``, ``send``, ``status`` and ``finalize_source``; the target serves
    ``accept`` and ``finalize_target``.

    :param hypervisor: its name, for messages.
    """

    def __init__(self, hypervisor: str) -> None:
        self._hypervisor = hypervisor

    def check(self, instance: FilledInstance) -> None:
        """Check that a guest can be migrated to another node.

        :raises HypervisorError: it cannot; says why.
        """
        raise self._no_migration(instance.name)

    def info(self, instance: FilledInstance) -> Any:
        """Return the data from which the target prepares the incoming migration; JSON values."""
        raise self._no_migration(instance.name)

    def accept(
        self, instance: FilledInstance, info: Any, place: Place, disks: Sequence[AttachedDisk]
    ) -> int | None:
        """Prepare an incoming migration, or prepare to resume one whose connection broke after the
        guest had arrived.

        :param info: :meth:`info` of the source.
        :param place: where this node waits for the source.
        :returns: the port there; None for a hypervisor which uses none.
        :raises HypervisorError: nothing is left behind.
        """
        raise self._no_migration(instance.name)

    def send(
        self, cluster_name: str, instance: FilledInstance, place: Place, *, live: bool
    ) -> None:
        """Begin to send a guest; see :meth:`status`.

        :param place: where the target waits for it.

        :raises HypervisorError: it was not sent, or it is not known whether.
        """
        raise self._no_migration(instance.name)

    def status(self, instance: FilledInstance) -> MigrationStatus:
        """Return the progress of the last migration from this node, or to it.

        Only the sender reports how much memory there is. Its ``status`` is "none" when there was
        no migration.

        :raises HypervisorError: it is not known; it may have ended well.
        """
        raise self._no_migration(instance.name)

    def finalize_source(self, instance: FilledInstance, *, success: bool, live: bool) -> None:
        """After a migration: remove the guest here; after a failure, let it run on here.

        :raises HypervisorError: after a failure: the guest was, or may have been, sent as a whole,
            and was not continued.
        """
        raise self._no_migration(instance.name)

    def finalize_target(self, instance: FilledInstance, info: Any, *, success: bool) -> None:
        """After a migration: let the guest run here; after a failure, remove what was prepared.

        :raises HypervisorError: after a failure: the guest has arrived, and was not ended.
        """
        raise self._no_migration(instance.name)

    def _no_migration(self, instance_name: str) -> errors.HypervisorError:
        return errors.HypervisorError(
            f"hypervisor {self._hypervisor} cannot migrate instances, such as {instance_name}"
        )


class Hypervisor(ABC):
    """The driver of a hypervisor.

    :ivar devices: changes the devices of running guests.
    :ivar migration: moves running guests to other nodes.
    """

    #: What the rest of the system knows of this hypervisor.
    DESCRIPTOR: HypervisorDescriptor

    def __init__(self) -> None:
        self.devices = Devices(self.name)
        self.migration = Migration(self.name)

    @property
    def name(self) -> str:
        """The published name of the hypervisor."""
        return self.DESCRIPTOR.name

    @abstractmethod
    def start(
        self, instance: FilledInstance, disks: Sequence[AttachedDisk], *, paused: bool = False
    ) -> None:
        """Start a guest; with ``paused`` it is prepared, but runs no instruction yet.

        :raises HypervisorError: it runs already, or cannot be started; nothing is left behind.
        """

    def complete_start(self, instance: FilledInstance, *, paused: bool = False) -> bool:
        """Finish a :meth:`start` which was interrupted.

        :returns: whether the guest runs as asked now; False when it was incomplete and was removed,
            so that the caller must start it.
        """
        return self.is_running(instance.name)

    def resume(self, instance_name: str) -> None:
        """Let a halted guest run on; one which runs is not changed.

        Whether it runs on is in :meth:`instance_info` afterwards: a guest may halt again at once.

        :raises HypervisorError: it does not run here, or can never run on.
        """
        raise errors.HypervisorError(
            f"hypervisor {self.name} cannot let halted instances run on, such as {instance_name}"
        )

    @abstractmethod
    def stop(self, instance_name: str, hvparams: Mapping[str, Any], *, force: bool = False) -> None:
        """Ask a guest to shut down, or with ``force`` end it.

        Without ``force`` this returns at once; the caller checks with :meth:`is_running`, and asks
        again. After a forced stop the guest has ended. A guest that does not run is not an error.

        :raises HypervisorError: it cannot be asked, or does not end.
        """

    @abstractmethod
    def cleanup(self, instance_name: str) -> None:
        """Remove the files of a guest which has ended; do nothing to a guest which runs."""

    @abstractmethod
    def reboot(
        self, instance: FilledInstance, disks: Sequence[AttachedDisk], *, timeout_s: float
    ) -> None:
        """Stop a guest, and start it as it was started before.

        :param disks: where the disks of the instance are now; the guest gets those which it had.
        :param timeout_s: seconds for the guest to shut down, before it is ended.
        :raises HypervisorError: it does not run, has a disk which is not the instance's any more,
            or needs a file which is missing; then it was not stopped. Or it does not start again.
        """

    def shut_down(self, instance_name: str, hvparams: Mapping[str, Any], timeout_s: float) -> None:
        """Ask a guest to shut down, wait, and end it when it still runs after ``timeout_s``.

        :raises HypervisorError: it cannot be asked, or does not end.
        """
        self.stop(instance_name, hvparams)
        self.wait_end(instance_name, timeout_s)
        if self.is_running(instance_name):
            logging.warning(
                "instance %s did not shut down within %g s, stopping it hard",
                instance_name,
                timeout_s,
            )
            self.stop(instance_name, hvparams, force=True)

    @abstractmethod
    def list_instances(self) -> list[str]:
        """Return the names of the guests running on this node, sorted."""

    @abstractmethod
    def instance_info(self, instance_name: str) -> InstanceInfo | None:
        """Return the facts of a guest, or None when it does not run here."""

    def all_info(self) -> list[InstanceInfo]:
        """Return the facts of every guest running here."""
        return info_of_each(self.instance_info, self.list_instances())

    def usage(self) -> dict[str, Usage]:
        """Measure what the guests use which run here, by name. This must be fast."""
        return {
            info.name: Usage(cpu_s=info.time_s, memory=info.memory_mib, vcpus=info.vcpus)
            for info in self.all_info()
            if info.state == RUNNING
        }

    def started_at(self, instance_name: str) -> float | None:
        """Return when the guest was started on this node, in seconds since 1970.

        :returns: None when it does not run here, or the hypervisor cannot tell.
        """
        return None

    def agent_addresses(self, instance_name: str) -> list[str]:
        """Return the addresses which the guest itself reports; empty when it cannot be asked."""
        return []

    def is_running(self, instance_name: str) -> bool:
        """Return True if the guest runs on this node."""
        return instance_name in self.list_instances()

    def wait_end(self, instance_name: str, timeout_s: float) -> None:
        """Wait until a guest ends, at most ``timeout_s`` seconds.

        A driver which gets no event asks with :meth:`is_running`, for the first time
        after a short pause, as the caller has just asked. The caller checks with
        :meth:`is_running` afterwards.
        """
        deadline = time.monotonic() + timeout_s
        pause_s, factor, longest_s = _END_POLL
        while (left_s := deadline - time.monotonic()) > 0:
            time.sleep(min(pause_s, left_s))
            if pause_s >= left_s or not self.is_running(instance_name):
                return
            pause_s = min(pause_s * factor, longest_s)

    @abstractmethod
    def node_info(self, hvparams: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Return the capacity of this node: the published keys of the call ``node_info``, sizes in
        MiB.
        """

    def validate_parameters(self, hvparams: Mapping[str, Any]) -> None:
        """Check that this node can use filled parameters: files exist, programs run.

        :raises HypervisorError: it cannot; names the parameter.
        """

    def require_files(self, hvparams: Mapping[str, Any]) -> None:
        """Check the files which a start of a guest with these parameters needs.

        It costs little, so it is done before each stop after which the guest is started again.

        :raises HypervisorError: one is missing, or cannot be used; names its parameter.
        """

    def missing_program(self, hvparams: Mapping[str, Any]) -> str | None:
        """Return which program this machine lacks, and how to get it, or None.

        Nothing is run or written.

        :param hvparams: the filled parameters of the cluster.
        """
        return None

    @abstractmethod
    def verify(self, hvparams: Mapping[str, Any] | None = None) -> str | None:
        """Return what is wrong with the hypervisor on this node; None if it works."""

    def balloon_memory(self, instance: FilledInstance, memory_mib: int) -> None:
        """Change the memory of a running guest.

        :raises HypervisorError: the guest does not run, or the hypervisor cannot do this.
        """
        raise errors.HypervisorError(
            f"hypervisor {self.name} cannot change the memory of running "
            f"instances, as was asked for {instance.name}"
        )

    def limit_processors(self, instance: FilledInstance) -> bool:
        """Limit a running guest to the processors of its present parameters.

        Only for hypervisors whose descriptor says ``can_limit_processors``.

        :returns: whether it runs.
        :raises HypervisorError: it was not limited.
        """
        raise errors.HypervisorError(
            f"hypervisor {self.name} cannot change the processors of running instances, such as"
            f" {instance.name}"
        )


def require_file_name(instance_name: str) -> str:
    """Return the name of an instance, which becomes the name of a file or directory.

    An instance's name never has a slash; a forged one might.

    :raises HypervisorError: it cannot be the name of a file.
    """
    if "/" in instance_name or instance_name.startswith(".") or not instance_name:
        raise errors.HypervisorError(f"'{instance_name}' is not an instance name")
    return instance_name
