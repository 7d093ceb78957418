"""The driver of the hypervisor ``kvm``: which part carries out which operation.

A guest is a QEMU process which daemonised itself (:mod:`ganeti.hypervisor.kvm.guests`). Its files
are sockets, the runtime file and tap devices (:class:`~ganeti.hypervisor.kvm.layout.Layout`). They
are removed when the guest is stopped, when its start fails, and before its next start after a
crash.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

from ganeti.hypervisor import base, host
from ganeti.hypervisor.base import AttachedDisk, InstanceInfo, Usage
from ganeti.hypervisor.kvm import layout as layouts
from ganeti.hypervisor.kvm import node, parameters
from ganeti.hypervisor.kvm.guest_devices import KvmDevices
from ganeti.hypervisor.kvm.guests import Guests
from ganeti.hypervisor.kvm.migration import KvmMigration
from ganeti.hypervisor.kvm.start import Starter
from ganeti.hypervisor.kvm.status import Status
from ganeti.hypervisor.kvm.stop import Stopper
from ganeti.objects.hypervisors.kvm import KVM
from ganeti.objects.instance import FilledInstance


class KvmHypervisor(base.Hypervisor):
    """Guests under QEMU.

    :ivar guests: the files, locks and processes with which all parts work.
    """

    DESCRIPTOR = KVM

    def __init__(self) -> None:
        super().__init__()
        self.guests = Guests()
        self._starter = Starter(self.guests)
        self._stopper = Stopper(self.guests)
        self._status = Status(self.guests)
        self.devices = KvmDevices(self.guests)
        self.migration = KvmMigration(self.guests, self._starter)

    # Start and stop

    def start(
        self, instance: FilledInstance, disks: Sequence[AttachedDisk], *, paused: bool = False
    ) -> None:
        self._starter.start(instance, disks, paused=paused)

    def complete_start(self, instance: FilledInstance, *, paused: bool = False) -> bool:
        return self._starter.complete_start(instance, paused=paused)

    def resume(self, instance_name: str) -> None:
        self._starter.resume(instance_name)

    def reboot(
        self, instance: FilledInstance, disks: Sequence[AttachedDisk], *, timeout_s: float
    ) -> None:
        # Read first, as stopping removes the file.
        record = self._starter.reboot_record(instance, disks)
        self.shut_down(instance.name, record.hvparams, timeout_s)
        self._starter.start_again(instance, record)

    def stop(self, instance_name: str, hvparams: Mapping[str, Any], *, force: bool = False) -> None:
        self._stopper.stop(instance_name, hvparams, force=force)

    def cleanup(self, instance_name: str) -> None:
        self._stopper.cleanup(instance_name)

    # Running guests

    def list_instances(self) -> list[str]:
        return self._status.list_instances()

    def is_running(self, instance_name: str) -> bool:
        return self._status.is_running(instance_name)

    def wait_end(self, instance_name: str, timeout_s: float) -> None:
        self._status.wait_end(instance_name, timeout_s)

    def instance_info(self, instance_name: str) -> InstanceInfo | None:
        return self._status.instance_info(instance_name)

    def all_info(self) -> list[InstanceInfo]:
        return self._status.all_info()

    def started_at(self, instance_name: str) -> float | None:
        found = self.guests.qemu(layouts.of(instance_name))
        return host.process_start(found[0]) if found else None

    def agent_addresses(self, instance_name: str) -> list[str]:
        from ganeti.hypervisor.kvm import guest_agent  # only this call needs it

        path = layouts.of(instance_name).socket("qga")
        return guest_agent.addresses(path) if os.path.exists(path) else []

    def usage(self) -> dict[str, Usage]:
        return self._status.usage()

    def balloon_memory(self, instance: FilledInstance, memory_mib: int) -> None:
        self.guests.balloon_memory(instance.name, memory_mib)

    # The node

    def node_info(self, hvparams: Mapping[str, Any] | None = None) -> dict[str, Any]:
        return node.info(hvparams)

    def validate_parameters(self, hvparams: Mapping[str, Any]) -> None:
        parameters.check(hvparams)

    def require_files(self, hvparams: Mapping[str, Any]) -> None:
        parameters.require_files(hvparams)

    def missing_program(self, hvparams: Mapping[str, Any]) -> str | None:
        return node.missing_program(hvparams)

    def verify(self, hvparams: Mapping[str, Any] | None = None) -> str | None:
        return node.problem(hvparams)
