"""The driver of the hypervisor ``chroot``: mount a disk, and run a script of it in chroot(1).

The script (parameter ``init_script``, a path on the disk) gets ``start`` or ``stop``. An instance
runs as long as its disk is mounted on RUN_DIR/chroot-hypervisor/<instance>. A shutdown calls the
script, ends what still runs in the directory, and unmounts all that is mounted below it.

Operations on one instance exclude each other.
"""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
import signal
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ganeti import errors
from ganeti.hypervisor import base, guest_errors, guest_lock, host, rootfs
from ganeti.hypervisor.chroot import parse
from ganeti.objects.hypervisors.chroot import CHROOT
from ganeti.objects.instance import FilledInstance
from ganeti.platform import paths, systemd
from ganeti.utils import fs, process, retry

_PROGRAM_TIMEOUT_S = 60.0
_SCRIPT_TIMEOUT_S = 300.0
_TERM_TIMEOUT_S = 5.0
_KILL_TIMEOUT_S = 30.0
_RELEASE_TIMEOUT_S = 30.0
_POLL = (0.005, 1.5, 0.2)
_OUTPUT_MAX_BYTES = 1 << 16
_PROGRAMS = ("chroot", "umount", *rootfs.PROGRAMS)


class ChrootHypervisor(base.Hypervisor):
    """Guests which are directories."""

    DESCRIPTOR = CHROOT

    def list_instances(self) -> list[str]:
        """Return the names of the instances whose disk is mounted, sorted."""
        prefix = f"{_real(paths.current().chroot_root)}/"
        found = {point.removeprefix(prefix) for point in _mounts() if point.startswith(prefix)}
        return sorted(name for name in found if name and "/" not in name)

    def instance_info(self, instance_name: str) -> base.InstanceInfo | None:
        """That it runs; memory, processors and their time are those of the node."""
        if not self.is_running(instance_name):
            return None
        return base.InstanceInfo(instance_name, 0, 0, 0, base.RUNNING, 0.0)

    def usage(self) -> dict[str, base.Usage]:
        """Nothing: what the programs use is not kept apart."""
        return {}

    def node_info(self, hvparams: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Return the capacity of this machine."""
        return host.read_linux_node_info()

    def missing_program(self, hvparams: Mapping[str, Any]) -> str | None:
        """Return what is missing: the user root, or a program of the basic system."""
        if os.geteuid() != 0:
            return "the user root. Only root can mount disks and use chroot."
        for program in _PROGRAMS:
            if shutil.which(program, path=process.DEFAULT_PATH) is None:
                return f"{program}. Install the packages coreutils, mount and util-linux."
        return None

    def verify(self, hvparams: Mapping[str, Any] | None = None) -> str | None:
        """Return what this node lacks to mount disks and to use chroot; None if nothing."""
        lacking = self.missing_program(hvparams or {})
        return None if lacking is None else f"this node lacks {lacking}"

    # Start and stop

    def start(
        self,
        instance: FilledInstance,
        disks: Sequence[base.AttachedDisk],
        *,
        paused: bool = False,
    ) -> None:
        """Mount the disk and run the script with ``start``.

        :raises HypervisorError: it is running already, or the script failed; nothing is left
            behind.
        """
        if paused:
            raise errors.HypervisorError(
                f"instance {instance.name}: programs in a directory cannot be started paused"
            )
        disk = rootfs.only_disk(instance.name, disks)
        for nic in instance.nics:
            logging.info(
                "instance %s: NIC %s is not used, because the instance has the network of its node",
                instance.name,
                nic.uuid,
            )
        with _locked(instance.name) as root:
            if self.is_running(instance.name):
                raise guest_errors.running_already(instance.name)
            self._start(root, instance, disk.path)

    def _start(self, root: str, instance: FilledInstance, disk_path: str) -> None:
        try:
            fs.make_dirs(root, 0o700)
            process.run(rootfs.mount_argv(disk_path, root), timeout_s=_PROGRAM_TIMEOUT_S)
            _run_script(root, instance.hvparams["init_script"], "start")
            fs.write_file(_state_file(root), disk_path, mode=0o600, sync=False)
        except BaseException as err:
            _end_processes(root)
            _unmount(root)
            if isinstance(err, errors.CommandError | OSError):
                raise errors.HypervisorError(
                    f"cannot start instance {instance.name}: {err}"
                ) from err
            raise

    def complete_start(self, instance: FilledInstance, *, paused: bool = False) -> bool:
        """Remove an instance whose script did not come to its end.

        :returns: whether the instance runs.
        """
        with _locked(instance.name) as root:
            if not self.is_running(instance.name):
                return False
            if os.path.exists(_state_file(root)):
                return True
            logging.warning("instance %s was started incompletely, removing it", instance.name)
            _end_processes(root)
            _unmount(root)
            return False

    def stop(self, instance_name: str, hvparams: Mapping[str, Any], *, force: bool = False) -> None:
        """Run the script with ``stop``, end the processes in the directory, and unmount it.

        The script runs with ``force``, too, but its failure then only costs a line in the log.

        :raises HypervisorError: the script failed, or something is still in use.
        """
        with _locked(instance_name) as root:
            if not self.is_running(instance_name):
                return
            script = hvparams.get("init_script")
            if script:
                try:
                    _run_script(root, script, "stop")
                except errors.CommandError as err:
                    if not force:
                        raise errors.HypervisorError(
                            f"instance {instance_name}: its script does not stop it: {err}"
                        ) from err
                    logging.warning("instance %s: %s", instance_name, err)
            _end_processes(root)
            _unmount(root)

    def cleanup(self, instance_name: str) -> None:
        """Remove the directory of an instance which does not run."""
        with _locked(instance_name) as root:
            if not self.is_running(instance_name):
                _unmount(root)

    def reboot(
        self,
        instance: FilledInstance,
        disks: Sequence[base.AttachedDisk],
        *,
        timeout_s: float,
    ) -> None:
        """Stop the instance and start it again.

        :raises HypervisorError: it does not run, or does not start again.
        """
        if not self.is_running(instance.name):
            raise guest_errors.not_running(instance.name)
        disk = rootfs.only_disk(instance.name, disks)
        self.stop(instance.name, instance.hvparams, force=True)
        with _locked(instance.name) as root:
            self._start(root, instance, disk.path)


@contextlib.contextmanager
def _locked(instance_name: str) -> Iterator[str]:
    """Exclude other operations on an instance; the value is its directory."""
    top = paths.current().chroot_root
    name = base.require_file_name(instance_name)
    try:
        fs.make_dirs(top, 0o700)
    except OSError as err:
        raise errors.HypervisorError(f"cannot make {top}: {err.strerror}") from err
    with guest_lock.locked(top, name):
        yield f"{_real(top)}/{name}"


def _real(path: str) -> str:
    """Return a path as the kernel has it in the list of mounts."""
    return os.path.realpath(path)


def _state_file(root: str) -> str:
    """Return the file beside the directory which says that the start was complete."""
    directory, _, name = root.rpartition("/")
    return f"{directory}/.{name}"


def _mounts() -> list[str]:
    try:
        return parse.parse_mount_points(fs.read_file("/proc/self/mounts"))
    except OSError as err:
        raise errors.HypervisorError(f"cannot read the mounts of this machine: {err}") from err


def _run_script(root: str, script: str, verb: str) -> None:
    """Run the script of an instance.

    :raises CommandError: it failed, or took longer than five minutes; has the end of its output.
    """
    argv = ["chroot", root, script, verb]
    if verb == "start":
        # Its daemons go on when the node daemon is restarted.
        argv = systemd.in_scope("instance", os.path.basename(root), argv)
    # A daemon which the script starts keeps the output open, so it is not a pipe.
    with tempfile.TemporaryFile() as output:
        done = process.run(
            argv,
            timeout_s=_SCRIPT_TIMEOUT_S,
            reset_env=True,
            output_fd=output.fileno(),
            check=False,
        )
        if done.failed:
            output.seek(0)
            said = host.last_lines(output.read(_OUTPUT_MAX_BYTES).decode("utf-8", "replace"))
            raise errors.CommandError(argv, done.exit_code, said)


def _users(root: str) -> list[int]:
    """Return the processes whose root or working directory is in the directory, or which run from
    it.
    """
    found = []
    for name in os.listdir("/proc"):
        if not name.isdecimal():
            continue
        for link in ("root", "cwd", "exe"):
            with contextlib.suppress(OSError):
                target = os.readlink(f"/proc/{name}/{link}")
                if target == root or target.startswith(f"{root}/"):
                    found.append(int(name))
                    break
    return [pid for pid in found if pid != os.getpid()]


def _end_processes(root: str) -> None:
    """End what still runs in the directory.

    :raises HypervisorError: a process does not end.
    """
    for number, timeout_s in (
        (signal.SIGTERM, _TERM_TIMEOUT_S),
        (signal.SIGKILL, _KILL_TIMEOUT_S),
    ):
        for pid in _users(root):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)

        def gone() -> None:
            if _users(root):
                raise retry.Again

        try:
            retry.until(gone, timeout_s=timeout_s, delay=_POLL)
            return
        except errors.RetryTimeout:
            continue
    left = ", ".join(map(str, _users(root)))
    raise errors.HypervisorError(f"processes {left} in {root} do not end")


def _unmount(root: str) -> None:
    """Unmount all below the directory, the last mounted first, and remove it.

    :raises HypervisorError: something is still in use; it stays mounted.
    """
    for point in parse.below(_mounts(), root):
        try:
            process.run(["umount", "--", point], timeout_s=_PROGRAM_TIMEOUT_S)
        except errors.CommandError as err:
            raise errors.HypervisorError(f"{point} cannot be unmounted: {err}") from err
    state_file = _state_file(root)
    with contextlib.suppress(FileNotFoundError):
        rootfs.await_release(fs.read_file(state_file), _RELEASE_TIMEOUT_S)
    fs.remove_file(state_file)
    # Not the whole tree: what is in the directory now is not the disk's.
    with contextlib.suppress(OSError):
        os.rmdir(root)
