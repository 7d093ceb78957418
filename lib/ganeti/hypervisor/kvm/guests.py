"""The guests of this node: their files, their processes, and the end of a process.

A guest runs exactly when the process of its pid file is alive and has its name on the command line.
Operations on one guest exclude each other with a lock on one byte of a file, so that the failure of
a second start cannot remove the files of the first.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
from collections.abc import Callable, Iterator

from ganeti import errors
from ganeti.hypervisor import guest_errors, guest_lock, host
from ganeti.hypervisor.kvm import firmware, migration_connection, nics, parse
from ganeti.hypervisor.kvm import layout as layouts
from ganeti.hypervisor.kvm.layout import Layout
from ganeti.hypervisor.kvm.qmp import Qmp
from ganeti.hypervisor.net import interfaces
from ganeti.utils import fs

_TERM_TIMEOUT_S = 5.0
_KILL_TIMEOUT_S = 30.0

_SOCKET_KINDS = ("monitor", "serial", "qmp", "kvmd", "qga")
_SUBDIRS = ("pid", "uid", "ctrl", "conf", "nic", "chroot", "chroot-quarantine")


class Guests:
    """Files, locks, processes and control sockets of the guests of this node.

    :ivar connect: opens the control socket of a guest.
    """

    def __init__(self, connect: Callable[..., Qmp] = Qmp) -> None:
        self.connect = connect
        # Name of a guest -> its pid when it was last seen alive.
        self._seen: dict[str, int] = {}

    def control(self, layout: Layout, *, timeout_s: float | None = None) -> Qmp:
        """Connect to the QEMU of a guest; a context manager.

        :param timeout_s: limit for each answer; None for the usual one.
        :raises HypervisorError: no QEMU listens, or its answers are not QMP.
        """
        return self.connect(layout.socket("qmp"), layout.name, timeout_s=timeout_s)

    @contextlib.contextmanager
    def locked(self, instance_name: str) -> Iterator[Layout]:
        """Exclude other operations on the guest, and make the directories.

        :raises HypervisorError: another operation takes more than a minute, or a directory cannot
            be made.
        """
        layout = layouts.of(instance_name)
        try:
            for name in _SUBDIRS:
                fs.make_dirs(f"{layout.kvm_root}/{name}", 0o775)
            fs.make_dirs(layout.log_dir, 0o750)
        except OSError as err:
            raise errors.HypervisorError(
                f"cannot prepare the directories for KVM: {err.strerror}: {err.filename}"
            ) from err
        with guest_lock.locked(layout.kvm_root, instance_name):
            yield layout

    def qemu(self, layout: Layout) -> tuple[int, parse.CommandLine] | None:
        """Return the pid and the command line of the guest's QEMU, or None."""
        try:
            pid = int(fs.read_file(layout.pid_file))
        except (FileNotFoundError, ValueError):
            return None
        try:
            command = parse.parse_command_line(fs.read_bytes(f"/proc/{pid}/cmdline"))
        except OSError:
            return None
        # A process which has ended has no arguments. After a crash the kernel may have given the
        # pid to another process.
        if not command or command.name != layout.name:
            return None
        self._seen[layout.name] = pid
        return pid, command

    def await_end(self, layout: Layout) -> None:
        """Wait for the end of a QEMU which was alive and has removed its pid file.

        QEMU removes the file when it begins to end, and keeps the disks open a little longer.
        """
        pid = self._seen.pop(layout.name, None)
        if pid is not None:
            host.wait_gone(pid, _TERM_TIMEOUT_S)

    def refuse_running(self, layout: Layout) -> None:
        """:raises HypervisorError: the guest runs."""
        if self.qemu(layout):
            raise guest_errors.running_already(layout.name)

    def require_running(self, layout: Layout) -> None:
        """:raises HypervisorError: the guest does not run."""
        if not self.qemu(layout):
            raise guest_errors.not_running(layout.name)

    def running(self, instance_name: str) -> Layout:
        """Return the layout of a running guest.

        :raises HypervisorError: the guest does not run.
        """
        layout = layouts.of(instance_name)
        self.require_running(layout)
        return layout

    def balloon_memory(self, instance_name: str, memory_mib: int) -> None:
        """Change the memory of a running guest with its balloon.

        :raises HypervisorError: it does not run, or QEMU refuses.
        """
        with self.control(self.running(instance_name)) as control:
            control.execute("balloon", {"value": memory_mib << 20})

    def end_process(self, layout: Layout) -> None:
        """End QEMU and wait until it is gone.

        :raises HypervisorError: it does not end after SIGKILL (the kernel waits for its storage).
        """
        # After SIGTERM, QEMU flushes and closes its images without the help of the guest.
        for number, timeout_s in (
            (signal.SIGTERM, _TERM_TIMEOUT_S),
            (signal.SIGKILL, _KILL_TIMEOUT_S),
        ):
            found = self.qemu(layout)
            if not found:
                self.await_end(layout)
                return
            pid = found[0]
            try:
                os.kill(pid, number)
            except ProcessLookupError:
                return
            except PermissionError as err:
                raise errors.HypervisorError(
                    f"instance {layout.name} runs as another user, cannot end it (pid {pid})"
                ) from err
            if host.wait_gone(pid, timeout_s):
                return
        raise errors.HypervisorError(
            f"instance {layout.name} does not end (pid {pid}). Its storage may hang."
        )

    def remove_files(self, layout: Layout) -> None:
        """Remove files, interfaces and the TPM of a guest which does not run."""
        interfaces.remove(nics.guest_network(layout))
        for kind in _SOCKET_KINDS:
            fs.remove_file(layout.socket(kind))
        fs.remove_file(layout.socket("console"))
        firmware.end_tpm(layout)
        migration_connection.forget(layout)
        fs.remove_file(layout.uid_file)
        fs.remove_file(layout.shutdown_file)
        fs.remove_file(layout.paused_file)
        fs.remove_file(layout.pid_file)
        fs.remove_file(layout.runtime_file)
        shutil.rmtree(layout.chroot_dir, ignore_errors=True)
