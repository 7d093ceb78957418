"""The driver of the hypervisor ``lxc``: the operations on guests, done with the programs of LXC.

Operations on one container exclude each other.
"""

from __future__ import annotations

import contextlib
import dataclasses
import glob
import logging
import os
import shutil
from collections.abc import Mapping, Sequence
from typing import Any

from ganeti import errors
from ganeti.constants import hv
from ganeti.hypervisor import base, console_log, guest_errors, host, rootfs
from ganeti.hypervisor.lxc import config, guests, layout, parameters, parse, record
from ganeti.hypervisor.lxc import disks as data_disks
from ganeti.hypervisor.lxc.cgroups import Cgroups
from ganeti.hypervisor.lxc.hotplug import LxcDevices
from ganeti.hypervisor.lxc.layout import Layout
from ganeti.hypervisor.lxc.record import Record
from ganeti.hypervisor.net import interfaces, veth
from ganeti.objects import codec
from ganeti.objects.halt import Halt
from ganeti.objects.hypervisors.lxc import LXC
from ganeti.objects.instance import FilledInstance
from ganeti.platform import machine, paths, systemd
from ganeti.utils import fs, process, retry

_SECCOMP_PROFILE = "/usr/share/lxc/config/common.seccomp"
# For startup_timeout 0, which means no limit.
_START_TIMEOUT_S = 3600.0
_END_TIMEOUT_S = 30.0
_RELEASE_TIMEOUT_S = 30.0
_POLL = (0.005, 1.5, 0.2)
# The only state in which a container lives and its programs do not run: lxc(7), *Container life
# cycle*.
_FROZEN = Halt("frozen", hv.HALT_PAUSED, "somebody has frozen its processes")


class LxcHypervisor(base.Hypervisor):
    """Guests which are containers of LXC."""

    DESCRIPTOR = LXC

    def __init__(self) -> None:
        super().__init__()
        self.devices = LxcDevices(self.name)

    # Running guests

    def list_instances(self) -> list[str]:
        """Return the names of the containers which run, sorted."""
        lxc_root = paths.current().lxc_root
        found = set(guests.monitored())
        try:
            names = fs.list_visible(lxc_root)
        except FileNotFoundError:
            names = []
        groups: Cgroups | None = None
        for name in names:
            if name not in found:
                groups = groups or Cgroups()
                if guests.has_processes(layout.of(name), groups):
                    found.add(name)
        return sorted(found)

    def is_running(self, instance_name: str) -> bool:
        """Return True if the container's monitor listens, or a process of it is alive."""
        return guests.is_running(layout.of(instance_name))

    def wait_end(self, instance_name: str, timeout_s: float) -> None:
        """Wait until the container ends, at most `timeout_s` seconds."""
        here = layout.of(instance_name)

        def ended() -> None:
            if guests.is_running(here):
                raise retry.Again

        with contextlib.suppress(errors.RetryTimeout):
            retry.until(ended, timeout_s=timeout_s, delay=_POLL)

    def instance_info(self, instance_name: str) -> base.InstanceInfo | None:
        """Return the facts from the control groups.

        A container which shut itself down is reported as such.
        """
        here = layout.of(instance_name)
        found = guests.load(here)
        if guests.is_running(here):
            return _info(here, found, Cgroups())
        if found is not None and parse.parse_ended_by_itself(host.read_log(here.log_file)):
            return base.InstanceInfo(instance_name, 0, 0, 0, base.SHUTDOWN, 0.0)
        return None

    def started_at(self, instance_name: str) -> float | None:
        """Return when the first process of the container was started."""
        info = self.instance_info(instance_name)
        return host.process_start(info.id) if info else None

    def all_info(self) -> list[base.InstanceInfo]:
        """Return the facts of all containers, and of those which shut themselves down."""
        names = set(guests.monitored())
        with contextlib.suppress(FileNotFoundError):
            names.update(fs.list_visible(paths.current().lxc_root))
        return base.info_of_each(self.instance_info, sorted(names))

    def usage(self) -> dict[str, base.Usage]:
        """Measure with the files of the kernel; no program is run."""
        groups = Cgroups()
        result = {}
        for name in self.list_instances():
            here = layout.of(name)
            found = guests.load(here)
            if found is None:
                continue
            disk_read, disk_written = groups.transferred_bytes(found.groups)
            net_in, net_out = interfaces.transferred_bytes(guests.network(here))
            result[name] = base.Usage(
                cpu_s=groups.cpu_time_s(found.groups),
                memory=groups.memory_used_mib(found.groups),
                vcpus=found.vcpus,
                disk_read=disk_read,
                disk_written=disk_written,
                net_in=net_in,
                net_out=net_out,
            )
        return result

    # The node

    def node_info(self, hvparams: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Return the capacity of this machine, and ``hv_version`` when LXC is installed."""
        info = host.read_linux_node_info()
        if hvparams is not None:
            try:
                info["hv_version"] = list(parameters.version())
            except errors.HypervisorError as err:
                logging.warning("%s", err)
        return info

    def validate_parameters(self, hvparams: Mapping[str, Any]) -> None:
        """See :func:`ganeti.hypervisor.lxc.parameters.check`."""
        parameters.check(hvparams)

    def missing_program(self, hvparams: Mapping[str, Any]) -> str | None:
        """Return what is missing to make containers: a program of LXC, or the user root."""
        if os.geteuid() != 0:
            return "the user root. Containers of ordinary users are not supported."
        lacking = parameters.missing_program()
        return None if lacking is None else f"{lacking}. Install the package lxc on every node."

    def verify(self, hvparams: Mapping[str, Any] | None = None) -> str | None:
        """Return what LXC or the kernel lacks on this node; None if containers work."""
        return parameters.problem()

    # Start

    def start(
        self,
        instance: FilledInstance,
        disks: Sequence[base.AttachedDisk],
        *,
        paused: bool = False,
    ) -> None:
        """Start a container.

        :raises HypervisorError: it is running already, or cannot be started; nothing is left
            behind.
        """
        if paused:
            raise errors.HypervisorError(
                f"instance {instance.name}: a container cannot be started paused"
            )
        if not disks:
            raise errors.HypervisorError(
                f"instance {instance.name} has no disk. Its first disk must have its root file"
                " system."
            )
        rootfs.require_devices(instance.name, disks)
        disk = disks[0]
        wanted = Record(
            uuid=instance.uuid,
            disk_uuid=disk.disk.uuid,
            disk_path=disk.path,
            more_disks=[[other.disk.uuid, other.path] for other in disks[1:]],
            memory_mib=int(instance.beparams["maxmem"]),
            vcpus=int(instance.beparams["vcpus"]),
            hvparams=dict(instance.hvparams),
            nics=[dict(codec.to_dict(nic)) for nic in instance.nics],
            tags=list(instance.tags),
        )
        with guests.locked(instance.name) as here:
            if guests.is_running(here):
                raise guest_errors.running_already(instance.name)
            self._start(here, wanted)

    def complete_start(self, instance: FilledInstance, *, paused: bool = False) -> bool:
        """Remove a container whose start was interrupted before it was recorded.

        :returns: whether the container runs.
        """
        with guests.locked(instance.name) as here:
            if not guests.is_running(here):
                return False
            found = guests.load(here)
            if found is not None and found.groups:
                return True
            logging.warning("instance %s was started incompletely, removing it", here.name)
            _end(here)
            _remove_files(here)
            return False

    def resume(self, instance_name: str) -> None:
        """Let a frozen container run on.

        :raises HypervisorError: it does not run, or LXC does not answer.
        """
        with guests.locked(instance_name) as here:
            found = guests.running_record(here)
            if Cgroups().is_frozen(found.groups):
                guests.run_program(here, "lxc-unfreeze")

    def reboot(
        self,
        instance: FilledInstance,
        disks: Sequence[base.AttachedDisk],
        *,
        timeout_s: float,
    ) -> None:
        """Stop the container, then start it with the parameters which it had.

        :raises HypervisorError: it does not run, or has a disk which is not the instance's any
            more; it was not stopped. Or it does not start again.
        """
        name = instance.name
        here = layout.of(name)
        old = guests.load(here)
        if not guests.is_running(here):
            raise guest_errors.not_running(name)
        if old is None:
            raise guest_errors.unknown_start(name)
        rootfs.require_devices(name, disks)
        places = {disk.disk.uuid: disk.path for disk in disks}
        for uuid in old.disk_paths():
            if uuid not in places:
                raise guest_errors.unknown_disk(name, uuid)
        self.shut_down(name, old.hvparams, timeout_s)
        with guests.locked(name):
            if guests.is_running(here):
                raise guest_errors.running_already(name)
            again = dataclasses.replace(
                old,
                disk_path=places[old.disk_uuid],
                more_disks=[[uuid, places[uuid]] for uuid, _ in old.more_disks],
                groups={},
            )
            self._start(here, again)

    def _start(self, here: Layout, wanted: Record) -> None:
        """Start a container from its record. The caller holds the lock.

        :raises HypervisorError: nothing is left behind.
        """
        _remove_files(here)
        parameters.check(wanted.hvparams)
        groups = Cgroups()
        try:
            for path in (here.directory, here.rootfs):
                fs.make_dirs(path, 0o700)
            more = [
                data_disks.data_disk(path, here.disk_mount(index), index)
                for index, (_, path) in enumerate(wanted.more_disks, 1)
            ]
            for index in range(1, len(more) + 1):
                fs.make_dirs(here.disk_mount(index), 0o700)
            ends = interfaces.create(
                wanted.nics, veth.VethPair(), guests.network(here, wanted.tags)
            )
            console_log.prepare(here.name, wanted.uuid, here.console_log_link)
            command, scope = _start_command(here, groups)
            side = config.HostSide(
                mount_argv=rootfs.mount_argv(wanted.disk_path, here.rootfs),
                limits=groups.limits(
                    wanted.memory_mib, wanted.vcpus, config.cpus_of(wanted.hvparams)
                ),
                devices_prefix=groups.devices_prefix(),
                interfaces=[None if end is None else veth.inner(end) for end in ends],
                disks=more,
                console_log=console_log.path_of(wanted.uuid),
                seccomp_profile=_SECCOMP_PROFILE if os.path.exists(_SECCOMP_PROFILE) else None,
                relative_cgroups=machine.current().runs_systemd,
                cgroup_dir=scope,
            )
            text = config.text_of(here, wanted.hvparams, side)
            fs.write_file(here.config_file, text, mode=0o600, sync=False)
            fs.remove_file(here.log_file)
            record.save(here.record_file, wanted)
            process.run(
                command,
                timeout_s=wanted.hvparams.get("startup_timeout") or _START_TIMEOUT_S,
                reset_env=True,
            )
            own = _own_cgroups(here)
            record.save(here.record_file, dataclasses.replace(wanted, groups=own))
        except BaseException as err:
            reasons = parse.parse_errors(host.read_log(here.log_file))
            _end(here)
            _remove_files(here)
            if isinstance(err, errors.CommandError):
                raise errors.HypervisorError(
                    f"LXC says: {'; '.join(reasons)}" if reasons else str(err)
                ) from err
            if isinstance(err, OSError):
                raise errors.HypervisorError(f"cannot start instance {here.name}: {err}") from err
            raise

    # Stop

    def stop(self, instance_name: str, hvparams: Mapping[str, Any], *, force: bool = False) -> None:
        """Send the container's first process the signal to halt; with ``force``, end all processes.

        The signal is SIGPWR, unless ``lxc.signal.halt`` in ``extra_config`` chooses another.

        :raises HypervisorError: LXC does not answer, or the container does not end.
        """
        with guests.locked(instance_name) as here:
            if not guests.is_running(here):
                return
            if force:
                _end(here)
                _remove_files(here)
                return
            found = guests.load(here)
            if found is not None and Cgroups().is_frozen(found.groups):
                # A frozen process gets no signal.
                guests.run_program(here, "lxc-unfreeze")
            guests.run_program(here, "lxc-stop", "--nokill", "--nowait")

    def cleanup(self, instance_name: str) -> None:
        """Remove the files and interfaces of a container which has ended.

        :raises HypervisorError: the kernel does not release its disk.
        """
        with guests.locked(instance_name) as here:
            if not guests.is_running(here):
                _remove_files(here)

    # Limits

    def limit_processors(self, instance: FilledInstance) -> bool:
        """Give a running container the processor time and the processors of its parameters.

        :returns: whether it runs.
        :raises HypervisorError: the kernel refuses, or the node lacks a processor.
        """
        vcpus = int(instance.beparams["vcpus"])
        with guests.locked(instance.name) as here:
            if not guests.is_running(here):
                return False
            found = guests.running_record(here)
            parameters.check_cpu_mask(instance.hvparams)
            cpus = config.cpus_of(instance.hvparams)
            hvparams = {**found.hvparams, "cpu_mask": instance.hvparams.get("cpu_mask", "")}
            try:
                Cgroups().set_processors(found.groups, vcpus, cpus)
                record.save(
                    here.record_file, dataclasses.replace(found, vcpus=vcpus, hvparams=hvparams)
                )
            except (errors.HypervisorError, OSError) as err:
                raise errors.HypervisorError(f"instance {instance.name}: {err}") from err
        return True

    def balloon_memory(self, instance: FilledInstance, memory_mib: int) -> None:
        """Change the limit of memory of a running container.

        :raises HypervisorError: it does not run, or uses more memory.
        """
        with guests.locked(instance.name) as here:
            found = guests.load(here)
            if found is None or not guests.is_running(here):
                raise guest_errors.not_running(instance.name)
            try:
                Cgroups().set_memory(found.groups, memory_mib)
                record.save(here.record_file, dataclasses.replace(found, memory_mib=memory_mib))
            except (errors.HypervisorError, OSError) as err:
                raise errors.HypervisorError(f"instance {instance.name}: {err}") from err


def _start_command(here: Layout, groups: Cgroups) -> tuple[list[str], str | None]:
    """Return the command which starts a container, and the control group of its systemd scope."""
    argv = [
        "lxc-start",
        f"--lxcpath={here.lxc_root}",
        f"--name={here.name}",
        f"--rcfile={here.config_file}",
        f"--logfile={here.log_file}",
        "--logpriority=DEBUG",
        "--daemon",
    ]
    if groups.is_v2("memory"):
        return systemd.in_group_of_scope("instance", here.name, argv)
    return systemd.in_scope("instance", here.name, argv, delegate=True), None


def _info(here: Layout, found: Record | None, groups: Cgroups) -> base.InstanceInfo:
    if found is None:
        # It is just being started.
        return base.InstanceInfo(here.name, 0, 0, 0, base.RUNNING, 0.0)
    pids = groups.processes(found.groups)
    frozen = bool(found.groups) and groups.is_frozen(found.groups)
    limit_mib = groups.memory_limit_mib(found.groups)
    return base.InstanceInfo(
        here.name,
        min(pids, default=0),
        found.memory_mib if limit_mib is None else limit_mib,
        found.vcpus,
        base.RUNNING,
        groups.cpu_time_s(found.groups),
        _FROZEN if frozen else None,
    )


def _own_cgroups(here: Layout) -> dict[str, str]:
    """Return the control groups of a container which has just started.

    :raises HypervisorError: it has ended already.
    """
    try:
        found = parse.parse_own_cgroups(fs.read_file(f"/proc/{guests.init_pid(here)}/cgroup"))
    except (OSError, errors.HypervisorError) as err:
        raise errors.HypervisorError(
            f"instance {here.name} ended as soon as it was started. Its first process is /sbin/init"
            " on its disk."
        ) from err
    return {controller: parse.payload_group(path) for controller, path in found.items()}


def _end(here: Layout) -> None:
    """End all processes of a container, and wait until it is gone.

    :raises HypervisorError: it does not end (the kernel waits for its storage).
    """
    found = guests.load(here)
    groups = Cgroups()

    def attempt() -> None:
        if found is not None:
            groups.kill(found.groups)
        if here.name in guests.monitored():
            if found is None or not found.groups:
                process.run(
                    ["lxc-stop", f"--lxcpath={here.lxc_root}", f"--name={here.name}", "--kill"],
                    timeout_s=guests.PROGRAM_TIMEOUT_S,
                    check=False,
                )
            raise retry.Again
        if found is not None and groups.is_populated(found.groups):
            raise retry.Again

    try:
        retry.until(attempt, timeout_s=_END_TIMEOUT_S, delay=_POLL)
    except errors.RetryTimeout as err:
        raise errors.HypervisorError(
            f"instance {here.name} does not end. Its storage may hang."
        ) from err


def _remove_files(here: Layout) -> None:
    """Remove what a container which has ended left; wait until the kernel released its disk."""
    found = guests.load(here)
    interfaces.remove(guests.network(here))
    if found is not None:
        for path in found.disk_paths().values():
            rootfs.await_release(path, _RELEASE_TIMEOUT_S)
    # Never a directory in which something is mounted.
    if not any(map(os.path.ismount, glob.glob(f"{glob.escape(here.mounts)}/*"))):
        shutil.rmtree(here.mounts, ignore_errors=True)
        shutil.rmtree(here.directory, ignore_errors=True)
