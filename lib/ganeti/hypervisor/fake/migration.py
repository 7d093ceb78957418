"""Migration of guests which are files: the file changes its node."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ganeti import errors
from ganeti.hypervisor import base, guest_errors
from ganeti.hypervisor.base import AttachedDisk, Place
from ganeti.hypervisor.fake import guests
from ganeti.objects.instance import FilledInstance
from ganeti.objects.transfer import MigrationStatus


class FakeMigration(base.Migration):
    """The operations of the source and of the target of a migration."""

    def check(self, instance: FilledInstance) -> None:
        """Check that the guest runs.

        :raises HypervisorError: it does not run.
        """
        info = guests.require(instance.name)
        if info.id != guests.RUNS:
            raise errors.HypervisorError(f"instance {instance.name} was sent to another node")

    def info(self, instance: FilledInstance) -> Any:
        """Return memory size and processors, which may differ from the configured ones."""
        info = guests.require(instance.name)
        return {"memory": info.memory_mib, "vcpus": info.vcpus}

    def accept(
        self, instance: FilledInstance, info: Any, place: Place, disks: Sequence[AttachedDisk]
    ) -> None:
        """Write a file which waits for the guest.

        :raises HypervisorError: it is here already.
        """
        if instance.name in guests.names():
            raise guest_errors.running_already(instance.name)
        _write_as_sent(instance, info, guests.WAITS)

    def send(
        self, cluster_name: str, instance: FilledInstance, place: Place, *, live: bool
    ) -> None:
        """Send the guest, which takes no time: there is no memory."""
        info = guests.require(instance.name)
        guests.write(instance.name, info.memory_mib, info.vcpus, guests.SENT)

    def status(self, instance: FilledInstance) -> MigrationStatus:
        """Return the state "completed", or "none"."""
        info = guests.require(instance.name)
        if info.id != guests.SENT:
            return MigrationStatus(status="none")
        memory = info.memory_mib << 20
        return MigrationStatus(status="completed", transferred_ram=memory, total_ram=memory)

    def finalize_source(self, instance: FilledInstance, *, success: bool, live: bool) -> None:
        """After a success, remove the file.

        :raises HypervisorError: after a failure: the guest was sent.
        """
        if success:
            guests.remove(instance.name)
        elif guests.require(instance.name).id == guests.SENT:
            raise errors.HypervisorError(
                f"instance {instance.name} was sent to another node, so it cannot run on here"
            )

    def finalize_target(self, instance: FilledInstance, info: Any, *, success: bool) -> None:
        """After a success, write the file; otherwise remove the one which waits.

        :raises HypervisorError: after a failure: the guest runs here.
        """
        if success:
            _write_as_sent(instance, info, guests.RUNS)
            return
        known = guests.find(instance.name)
        if known is not None and known.id == guests.RUNS:
            raise errors.HypervisorError(f"instance {instance.name} runs, and was not ended")
        guests.remove(instance.name)


def _write_as_sent(instance: FilledInstance, info: Any, number: int) -> None:
    known = info if isinstance(info, dict) else {}
    memory_mib = known.get("memory", instance.beparams["maxmem"])
    vcpus = known.get("vcpus", instance.beparams["vcpus"])
    if not (isinstance(memory_mib, int) and isinstance(vcpus, int)):
        raise guest_errors.damaged_migration_data(instance.name)
    guests.write(instance.name, memory_mib, vcpus, number)
