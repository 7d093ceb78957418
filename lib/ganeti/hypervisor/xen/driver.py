"""The drivers of the hypervisors ``xen-pvm`` and ``xen-hvm``.

A guest is a domain of Xen with the name of the instance. Its files are the record and the
configuration file, and a file for each NIC; they are removed when the guest is stopped, when its
start fails, and before its next start after it ended by itself.

A guest which switched itself off leaves its domain behind, without running (``on_poweroff =
"preserve"``), which shows that no job stopped it. The next stop or start of the instance removes
it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ganeti import errors
from ganeti.constants import hv
from ganeti.hypervisor import base
from ganeti.hypervisor.base import AttachedDisk
from ganeti.hypervisor.net import interfaces
from ganeti.hypervisor.xen import (
    adoption,
    disks,
    guests,
    nics,
    parameters,
    parse,
    start,
    states,
    transfer,
    xl,
)
from ganeti.hypervisor.xen.hotplug import XenDevices
from ganeti.hypervisor.xen.migration import XenMigration
from ganeti.hypervisor.xen.parse import Domain
from ganeti.objects.hypervisors.xen import XEN_HVM, XEN_PVM
from ganeti.objects.instance import FilledInstance


class XenHypervisor(base.Hypervisor):
    """Guests under Xen."""

    def __init__(self) -> None:
        super().__init__()
        self.devices = XenDevices(self.name)
        self.migration = XenMigration(self.name)

    # Start and stop

    def start(
        self, instance: FilledInstance, disks: Sequence[AttachedDisk], *, paused: bool = False
    ) -> None:
        """See :func:`ganeti.hypervisor.xen.start.start`."""
        start.start(instance, disks, paused=paused)

    def complete_start(self, instance: FilledInstance, *, paused: bool = False) -> bool:
        """See :func:`ganeti.hypervisor.xen.start.complete_start`."""
        return start.complete_start(instance, paused=paused)

    def resume(self, instance_name: str) -> None:
        """See :func:`ganeti.hypervisor.xen.start.resume`."""
        start.resume(instance_name)

    def reboot(
        self, instance: FilledInstance, disks: Sequence[AttachedDisk], *, timeout_s: float
    ) -> None:
        """Stop the guest, then start it with the hardware it had."""
        # Read first, as stopping removes the file.
        known = start.reboot_record(instance, disks)
        self.shut_down(instance.name, known.hvparams, timeout_s)
        start.start_again(known)

    def stop(self, instance_name: str, hvparams: Mapping[str, Any], *, force: bool = False) -> None:
        """Ask the guest to shut down, by ACPI where it has no driver of Xen; or end the domain.

        :raises HypervisorError: it cannot be asked, or does not end.
        """
        with guests.locked(instance_name):
            domain = guests.domain_of(instance_name)
            if domain is None:
                return
            # A paused guest would not notice the request before it is continued.
            if force or domain.is_paused or not guests.lives(domain):
                guests.end(instance_name)
                return
            by_acpi = hvparams.get("acpi", False) and self.name == hv.XEN_HVM
            xl.run("shutdown", *(["-F"] if by_acpi else []), str(domain.id))

    def cleanup(self, instance_name: str) -> None:
        """Remove what is left of a guest which has ended; do nothing to one which runs."""
        with guests.locked(instance_name):
            if guests.running(instance_name) is None:
                guests.end(instance_name)

    # Running guests

    def list_instances(self) -> list[str]:
        """Return the names of the guests of this hypervisor whose domain lives, sorted.

        :raises HypervisorError: Xen does not tell.
        """
        return sorted(
            {domain.name for domain in guests.guest_domains(self.name) if guests.lives(domain)}
        )

    def is_running(self, instance_name: str) -> bool:
        """Return True if a domain of this name lives, under either hypervisor.

        :raises HypervisorError: Xen does not tell.
        """
        return guests.running(instance_name) is not None

    def instance_info(self, instance_name: str) -> base.InstanceInfo | None:
        """Return the facts from Xen.

        :returns: None when the guest does not run here and was not shut down from inside.
        :raises HypervisorError: Xen does not tell.
        """
        domain = guests.domain_of(instance_name)
        if domain is None:
            return _waiting(instance_name) if transfer.waits(instance_name) else None
        return _info(domain)

    def all_info(self) -> list[base.InstanceInfo]:
        """Return the facts of all guests, and of those which have ended or crashed."""
        found = {
            name: _waiting(name)
            for name in transfer.names()
            if transfer.waits(name) and guests.record_allows(name, self.name)
        }
        for domain in sorted(guests.guest_domains(self.name), key=guests.lives):
            found[domain.name] = _info(domain)
        return [found[name] for name in sorted(found)]

    def usage(self) -> dict[str, base.Usage]:
        """Measure with one call of ``xl``, and the counters of the disks and interfaces."""
        found = {}
        on_disks = disks.transferred_bytes()
        for domain in guests.guest_domains(self.name):
            if not domain.lives:
                continue
            disk_read, disk_written = on_disks.get(domain.id, (None, None))
            net_in, net_out = interfaces.transferred_bytes(nics.guest_network(domain.name))
            found[domain.name] = base.Usage(
                cpu_s=domain.time_s,
                memory=domain.memory_mib,
                vcpus=domain.vcpus,
                disk_read=disk_read,
                disk_written=disk_written,
                net_in=net_in,
                net_out=net_out,
            )
        return found

    # The node

    def node_info(self, hvparams: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Return the capacity of this node, with the memory of domain 0 and of the hypervisor
        itself.

        :raises HypervisorError: Xen does not answer, or not as expected.
        """
        try:
            return parse.node_facts(xl.info(), xl.domains())
        except errors.ParseError as err:
            raise errors.HypervisorError(f"cannot read what Xen says of this node: {err}") from err

    def validate_parameters(self, hvparams: Mapping[str, Any]) -> None:
        """See :func:`ganeti.hypervisor.xen.parameters.check`."""
        parameters.check(self.name, hvparams)

    def require_files(self, hvparams: Mapping[str, Any]) -> None:
        """See :func:`ganeti.hypervisor.xen.parameters.require_files`."""
        parameters.require_files(self.name, hvparams)

    def missing_program(self, hvparams: Mapping[str, Any]) -> str | None:
        """``xl``, or Xen below this system."""
        return xl.problem()

    def verify(self, hvparams: Mapping[str, Any] | None = None) -> str | None:
        """Return what is wrong with Xen or with the memory of domain 0; None if nothing is."""
        found = xl.problem()
        if found is not None:
            return found
        try:
            facts = xl.info()
            xl.domains()
        except errors.HypervisorError as err:
            return f"{err}. See whether the daemons of Xen run (service xen or xenstored)."
        return parameters.autoballoon_problem(facts)

    # Memory

    def balloon_memory(self, instance: FilledInstance, memory_mib: int) -> None:
        """Change the memory of a running guest with its balloon.

        :raises HypervisorError: it does not run, or Xen refuses.
        """
        with guests.locked(instance.name):
            domain = guests.require_running(instance.name)
            known = adoption.record_of(instance, domain)
            if memory_mib > known.memory_mib:
                # The limit must be there before the guest may use the memory.
                xl.run("mem-max", str(domain.id), f"{memory_mib}m")
            xl.run("mem-set", str(domain.id), f"{memory_mib}m")


def _info(domain: Domain) -> base.InstanceInfo:
    """Return the facts of a guest."""
    state = base.RUNNING
    if not guests.lives(domain) or transfer.waits(domain.name):
        # An incoming migration whose guest still runs on another node does not run here.
        state = base.SHUTDOWN
    return base.InstanceInfo(
        domain.name,
        domain.id,
        domain.memory_mib,
        domain.vcpus,
        state,
        domain.time_s,
        None if transfer.waits(domain.name) else states.of(domain),
    )


def _waiting(instance_name: str) -> base.InstanceInfo:
    """Return the facts of a guest for which this node waits, and which has no domain yet."""
    return base.InstanceInfo(instance_name, 0, 0, 0, base.SHUTDOWN, 0.0)


class XenPvmHypervisor(XenHypervisor):
    """Paravirtual guests, of type ``pv`` and ``pvh``."""

    DESCRIPTOR = XEN_PVM


class XenHvmHypervisor(XenHypervisor):
    """Guests with emulated hardware."""

    DESCRIPTOR = XEN_HVM
