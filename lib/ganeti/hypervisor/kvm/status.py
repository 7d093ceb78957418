"""What is known of the guests of this node: which run, their facts, and what they use."""

from __future__ import annotations

import logging
import os

from ganeti import errors
from ganeti.hypervisor import base, host
from ganeti.hypervisor.kvm import layout as layouts
from ganeti.hypervisor.kvm import nics, parse, states
from ganeti.hypervisor.kvm.guests import Guests
from ganeti.hypervisor.kvm.layout import Layout
from ganeti.hypervisor.net import interfaces
from ganeti.platform import paths
from ganeti.utils import fs


class Status:
    """Answers questions about guests.

    :param guests: those of this node.
    """

    def __init__(self, guests: Guests) -> None:
        self._guests = guests

    def list_instances(self) -> list[str]:
        """Return the names of the guests whose QEMU is alive, sorted."""
        return [name for name in self._names() if self._guests.qemu(layouts.of(name))]

    def _names(self) -> list[str]:
        """Return the names of the guests which have a pid file, sorted."""
        try:
            return fs.list_visible(f"{paths.current().kvm_root}/pid")
        except FileNotFoundError:
            return []

    def is_running(self, instance_name: str) -> bool:
        """Return True if the guest's QEMU is alive; wait for one which is just ending."""
        layout = layouts.of(instance_name)
        if self._guests.qemu(layout):
            return True
        self._guests.await_end(layout)
        return False

    def wait_end(self, instance_name: str, timeout_s: float) -> None:
        """Wait until the guest's QEMU ends, at most ``timeout_s`` seconds."""
        found = self._guests.qemu(layouts.of(instance_name))
        if found:
            host.wait_gone(found[0], timeout_s)

    def instance_info(self, instance_name: str) -> base.InstanceInfo | None:
        """Return the facts from QEMU's command line; if QEMU answers, the ballooned memory, and
        why the guest does not run.

        :returns: None when the guest does not run here and was not shut down from inside.
        """
        layout = layouts.of(instance_name)
        found = self._guests.qemu(layout)
        if found:
            return self._info(layout, *found)
        if os.path.exists(layout.shutdown_file):
            return base.InstanceInfo(instance_name, 0, 0, 0, base.SHUTDOWN, 0.0)
        return None

    def all_info(self) -> list[base.InstanceInfo]:
        """Return the facts of all guests, also of those which shut down from inside."""
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
        return base.info_of_each(self.instance_info, sorted(names))

    def _info(self, layout: Layout, pid: int, command: parse.CommandLine) -> base.InstanceInfo:
        memory_mib, state, halt = command.memory_mib, base.RUNNING, None
        try:
            with self._guests.control(layout, timeout_s=1.0) as control:
                answer = control.execute("query-status")
                if answer.get("status") in (states.INCOMING, states.SHUTDOWN):
                    # The guest still runs on another node, or has ended.
                    state = base.SHUTDOWN
                halt = states.of(answer, layout)
                memory_mib = control.execute("query-balloon")["actual"] >> 20
        except (errors.HypervisorError, KeyError, TypeError) as err:
            # QEMU is busy with another client, or the guest has no balloon.
            logging.debug("instance %s: memory taken from the command line: %s", layout.name, err)
        return base.InstanceInfo(
            layout.name, pid, memory_mib, command.vcpus, state, host.cpu_time_s(pid), halt
        )

    def usage(self) -> dict[str, base.Usage]:
        """Measure with the files which the kernel has of the processes; QEMU itself is not asked.

        The guests of an incoming migration count, too: their QEMU uses memory already.
        """
        found = {}
        for name in self._names():
            try:
                usage = self._usage(layouts.of(name))
            except (errors.GenericError, OSError) as err:
                logging.error("instance %s cannot be measured: %s", name, err)
                usage = base.Usage()
            if usage is not None:
                found[name] = usage
        return found

    def _usage(self, layout: Layout) -> base.Usage | None:
        """Return what a guest uses; None when it does not run."""
        running = self._guests.qemu(layout)
        if running is None:
            return None
        pid, command = running
        disk_read, disk_written = host.transferred_bytes(pid)
        net_in, net_out = interfaces.transferred_bytes(nics.guest_network(layout))
        cpu_s, memory = host.cpu_time_s(pid), host.resident_mib(pid)
        if memory is None:
            # It has ended meanwhile, and what was read before may be of an empty process.
            return None
        return base.Usage(
            cpu_s=cpu_s,
            memory=memory,
            vcpus=command.vcpus,
            disk_read=disk_read,
            disk_written=disk_written,
            net_in=net_in,
            net_out=net_out,
        )
