"""The verbs of a hypervisor, done with QEMU.

A guest is a QEMU process that daemonised itself; it runs exactly when the process of its pid file
is alive and carries its name. What else belongs to it are files (:class:`argv.Layout`): sockets,
the runtime file, tap interfaces. They are removed when the guest is stopped, when its start fails,
and before its next start after a crash.

Short operations on one guest exclude each other through a byte of a lock file, so that a start
that comes twice cannot clean up after itself what the first one made.
"""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import pwd
import shutil
import signal
import stat
import time
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from ganeti import errors
from ganeti.constants import hv
from ganeti.hypervisor import base
from ganeti.hypervisor.kvm import argv, facts, nic, parse, runtime
from ganeti.hypervisor.kvm.qmp import ConnectionLost, Qmp
from ganeti.objects import hvparams as hvparameters
from ganeti.objects.instance import FilledInstance
from ganeti.objects.transfer import MigrationStatus
from ganeti.utils import fs, paths, process, retry

# QEMU allocates and pins memory before it daemonises: large guests take their time.
_START_TIMEOUT_S = 300.0
_TERM_TIMEOUT_S = 5.0
_KILL_TIMEOUT_S = 30.0
_LOCK_TIMEOUT_S = 60.0
_STATUS_TRIES = 5
_STATUS_PAUSE_S = 2.0
# A console log that has grown beyond this becomes <name>.1 at the next start.
_CONSOLE_LOG_MAX_BYTES = 4 << 20
_ERROR_LINES = 5

# Not yet begun, not yet arrived, or sent away: nobody would feel the power button.
_NOBODY_HOME = frozenset(("prelaunch", "inmigrate", "postmigrate", "guest-panicked"))

_SOCKET_KINDS = ("monitor", "serial", "qmp", "kvmd", "qga")
_SUBDIRS = ("pid", "uid", "ctrl", "conf", "nic", "chroot", "chroot-quarantine")


class KvmHypervisor(base.Hypervisor):
    """Guests under QEMU."""

    NAME = hv.KVM
    CAN_MIGRATE = True

    # Where things are

    @staticmethod
    def layout(instance_name: str) -> argv.Layout:
        """The files of a guest on this node.

        :raises HypervisorError: the name cannot be a file's.
        """
        if "/" in instance_name or instance_name.startswith(".") or not instance_name:
            raise errors.HypervisorError(f"'{instance_name}' is no instance name")
        here = paths.current()
        return argv.Layout(here.kvm_root, here.log_kvm_dir, instance_name)

    @contextlib.contextmanager
    def _locked(self, instance_name: str) -> Iterator[argv.Layout]:
        """Exclude other operations on the guest; makes the directories on the way."""
        layout = self.layout(instance_name)
        try:
            for name in _SUBDIRS:
                fs.make_dirs(f"{layout.kvm_root}/{name}", 0o775)
            fs.make_dirs(layout.log_dir, 0o750)
            fd = os.open(f"{layout.kvm_root}/.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as err:
            raise errors.HypervisorError(
                f"cannot prepare the directories for KVM: {err.strerror}: {err.filename}") from err
        try:
            # A byte for each name: nothing to remove afterwards. Two names on the same byte wait
            # for each other, which does no harm.
            place = zlib.crc32(instance_name.encode())

            def attempt() -> None:
                try:
                    fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, place)
                except (BlockingIOError, PermissionError) as err:
                    raise retry.Again from err

            try:
                retry.until(attempt, timeout_s=_LOCK_TIMEOUT_S, delay=0.05)
            except errors.RetryTimeout as err:
                raise errors.HypervisorError(
                    f"another operation on instance {instance_name} takes more than "
                    f"{_LOCK_TIMEOUT_S:g} s") from err
            yield layout
        finally:
            os.close(fd)

    # Who runs

    def _process(self, layout: argv.Layout) -> tuple[int, parse.CommandLine] | None:
        """Pid and command line of the guest's QEMU, or None."""
        try:
            pid = int(fs.read_file(layout.pid_file))
        except (FileNotFoundError, ValueError):
            return None
        if not process.is_alive(pid):
            return None
        try:
            command = parse.parse_command_line(fs.read_bytes(f"/proc/{pid}/cmdline"))
        except OSError:
            return None
        # After a crash the kernel may have given the pid to somebody else.
        return (pid, command) if command and command.name == layout.name else None

    def list_instances(self) -> list[str]:
        """Names of the guests whose QEMU is alive."""
        try:
            names = fs.list_visible(f"{paths.current().kvm_root}/pid")
        except FileNotFoundError:
            return []
        return [name for name in names if self._process(self.layout(name))]

    def is_running(self, instance_name: str) -> bool:
        """Whether its QEMU is alive."""
        return self._process(self.layout(instance_name)) is not None

    def instance_info(self, instance_name: str) -> base.InstanceInfo | None:
        """Facts from the command line; memory as ballooned, when QEMU answers."""
        layout = self.layout(instance_name)
        found = self._process(layout)
        return self._info(layout, *found) if found else None

    def _info(self, layout: argv.Layout, pid: int, command: parse.CommandLine) -> base.InstanceInfo:
        memory_mib, state = command.memory_mib, base.RUNNING
        try:
            with Qmp(layout.socket("qmp"), layout.name, timeout_s=1.0) as control:
                if control.execute("query-status").get("status") == "inmigrate":
                    # It waits for its memory; the guest still runs on another node.
                    state = base.SHUTDOWN
                memory_mib = control.execute("query-balloon")["actual"] >> 20
        except (errors.HypervisorError, KeyError, TypeError) as err:
            # Busy with another client, or no balloon: the command line is good enough.
            logging.debug("instance %s: memory taken from the command line: %s", layout.name, err)
        return base.InstanceInfo(layout.name, pid, memory_mib, command.vcpus, state,
                                 _cpu_time_s(pid))

    def node_info(self, hvparams: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """This machine, and the version of QEMU when ``kvm_path`` is known and works."""
        info = base.read_linux_node_info()
        if hvparams and hvparams.get("kvm_path"):
            try:
                info["hv_version"] = list(facts.of(hvparams["kvm_path"]).version)
            except errors.HypervisorError as err:
                logging.warning("no version of QEMU: %s", err)
        return info

    # Checks

    def validate_parameters(self, hvparams: Mapping[str, Any]) -> None:
        """Files exist, QEMU runs, users exist, and this version supports what is asked for."""
        for parameter, path, kind in hvparameters.paths_to_check(self.NAME, hvparams):
            is_there = os.path.isdir if kind == hvparameters.DIRECTORY else os.path.isfile
            if not is_there(path):
                raise errors.HypervisorError(
                    f"parameter {parameter}: {path} is not a {kind} on this node")
        qemu = facts.of(hvparams["kvm_path"])
        if hvparams.get("disk_type") in argv.UNSUPPORTED_DISK_TYPES:
            raise errors.HypervisorError(
                f"parameter disk_type: {hvparams['disk_type']} is not supported by this version")
        cache = hvparams.get("disk_cache")
        if hvparams.get("disk_aio") == "native" and cache not in (None, "none"):
            raise errors.HypervisorError("parameter disk_aio: native needs disk_cache=none")
        try:
            hvparameters.parse_cpu_masks(hvparams.get("cpu_mask") or hvparameters.CPU_ALL)
        except errors.ParseError as err:
            raise errors.HypervisorError(f"parameter cpu_mask: {err}") from err
        self._run_as(hvparams)
        if hvparams.get("kvm_flag") == "enabled" and not os.access("/dev/kvm", os.R_OK | os.W_OK):
            raise errors.HypervisorError("parameter kvm_flag: enabled, but /dev/kvm cannot be used")
        machine = hvparams.get("machine_version")
        if machine:
            machines = process.run([qemu.program, "-machine", "?"], timeout_s=_START_TIMEOUT_S)
            known = {line.split()[0] for line in machines.stdout.splitlines()[1:] if line.strip()}
            if machine.split(",")[0] not in known:
                raise errors.HypervisorError(
                    f"parameter machine_version: {qemu.program} knows no machine {machine}")

    def verify(self, hvparams: Mapping[str, Any] | None = None) -> str | None:
        """QEMU must be installed and answer."""
        kvm_path = (hvparams or {}).get("kvm_path")
        if not kvm_path:
            return None
        try:
            facts.of(kvm_path)
        except errors.HypervisorError as err:
            return str(err)
        return None

    def _run_as(self, hvparams: Mapping[str, Any]) -> str | None:
        """The user that QEMU is to become, or None."""
        model = hvparams.get("security_model") or "none"
        if model == "none":
            return None
        if model != "user":
            raise errors.HypervisorError(
                f"parameter security_model: {model} is not supported by this version. Use user.")
        user = hvparams.get("security_domain") or ""
        try:
            pwd.getpwnam(user)
        except KeyError as err:
            raise errors.HypervisorError(
                f"parameter security_domain: there is no user '{user}'") from err
        if os.geteuid() != 0:
            raise errors.HypervisorError("parameter security_model: user needs root to become it")
        return str(user)

    # Start

    def start(self, instance: FilledInstance, disks: Sequence[base.AttachedDisk], *,
              paused: bool = False) -> None:
        """Start QEMU stopped, prepare it over QMP, then let the guest run."""
        with self._locked(instance.name) as layout:
            self._refuse_running(layout)
            qemu = facts.of(instance.hvparams["kvm_path"])
            record = self._new_runtime(instance, disks, layout, qemu)
            self._start(record, layout, qemu, paused=paused, tags=instance.tags)

    def complete_start(self, instance: FilledInstance, *, paused: bool = False) -> bool:
        """Let a guest run that was left before its first instruction; remove half a start.

        The runtime file marks the moment from which QEMU is complete. A QEMU that waits for a
        migration is no guest: who asks for a start here knows that nobody sends one.
        """
        with self._locked(instance.name) as layout:
            if not self._process(layout):
                return False
            if os.path.exists(layout.runtime_file):
                with Qmp(layout.socket("qmp"), layout.name) as control:
                    state = control.execute("query-status").get("status")
                if state not in ("prelaunch", "inmigrate"):
                    return True
                if state == "prelaunch":
                    if not paused:
                        record = runtime.load(layout.runtime_file, layout.name)
                        self._prepare(record, layout)
                        with Qmp(layout.socket("qmp"), layout.name) as control:
                            control.execute("cont")
                    return True
            logging.warning("instance %s is there by half only, removing it", layout.name)
            self._end_process(layout)
            self._remove_files(layout)
            return False

    def _refuse_running(self, layout: argv.Layout) -> None:
        if self._process(layout):
            raise errors.HypervisorError(f"instance {layout.name} is running already")

    def _new_runtime(self, instance: FilledInstance, disks: Sequence[base.AttachedDisk],
                     layout: argv.Layout, qemu: facts.QemuFacts) -> runtime.Runtime:
        hvp = instance.hvparams
        command = argv.base_argv(instance, layout, qemu, console_log=paths.is_virtual())
        bus = argv.Bus(argv.machine_type(hvp, qemu), int(hvp["kvm_pci_reservations"]))
        nics = tuple(runtime.device_dict(card, argv.nic_hvinfo(card, hvp, bus))
                     for card in instance.nics)
        attached = tuple(
            runtime.RuntimeDisk(runtime.device_dict(disk, argv.disk_hvinfo(disk, hvp, bus)), path,
                                uri)
            for disk, path, uri in disks)
        return runtime.Runtime(tuple(command), nics, dict(hvp), attached)

    def _start(self, record: runtime.Runtime, layout: argv.Layout, qemu: facts.QemuFacts, *,
               paused: bool, tags: Sequence[str] = (),
               incoming: tuple[str, int] | None = None) -> None:
        """Run QEMU from a runtime record; all or nothing. The caller holds the lock."""
        self._remove_files(layout)
        hvp = record.hvparams
        run_as = self._run_as(hvp)
        owner = pwd.getpwnam(run_as).pw_uid if run_as else None
        try:
            taps = nic.set_up(record.nics, hvp, layout, tags, owner)
            host = argv.HostSide(
                taps=taps,
                block_devices=[_is_block_device(disk.path) for disk in record.disks],
                direct_works=[not paths.is_virtual() or _direct_works(disk.path)
                              for disk in record.disks],
                incoming=incoming, run_as=run_as,
                chroot=layout.chroot_dir if hvp.get("use_chroot") else None,
                # On by default, but a kernel without the module must not keep guests from starting.
                vhost_works=os.access("/dev/vhost-net", os.R_OK | os.W_OK))
            if host.chroot:
                fs.make_dirs(host.chroot, 0o755)
            _rotate(layout.console_log_file)
            # What an earlier QEMU had to say must not be taken for the words of this one.
            fs.remove_file(layout.log_file)
            command = argv.shorten_sockets(argv.full_argv(record, layout, qemu, host),
                                           layout.control_dir)
            process.run(command, timeout_s=_START_TIMEOUT_S, cwd=layout.control_dir)
            runtime.save(layout.runtime_file, record)
            self._prepare(record, layout)
            with Qmp(layout.socket("qmp"), layout.name) as control:
                if incoming is not None:
                    _set_migration_capabilities(control, hvp)
                elif not paused:
                    control.execute("cont")
        except BaseException as err:
            self._end_process(layout)
            self._remove_files(layout)
            if isinstance(err, errors.CommandError):
                # From the moment QEMU has its log file open, it complains only there.
                said = _last_lines(err.output) or _last_lines(_read_log(layout.log_file))
                raise errors.HypervisorError(
                    f"cannot start instance {layout.name}: {said or err}") from err
            if isinstance(err, OSError):
                raise errors.HypervisorError(
                    f"cannot start instance {layout.name}: {err}") from err
            raise

    def _prepare(self, record: runtime.Runtime, layout: argv.Layout) -> None:
        """What is told to QEMU over QMP before the guest runs its first instruction."""
        hvp = record.hvparams
        with Qmp(layout.socket("qmp"), layout.name) as control:
            for protocol, shown, parameter in (
                    ("vnc", hvp.get("vnc_bind_address"), "vnc_password_file"),
                    ("spice", hvp.get("spice_bind"), "spice_password_file")):
                if shown and hvp.get(parameter):
                    password = fs.read_file(hvp[parameter]).splitlines()[0:1]
                    if not password:
                        raise errors.HypervisorError(f"{parameter} {hvp[parameter]} is empty")
                    control.execute("set_password",
                                    {"protocol": protocol, "password": password[0]})
            masks = hvparameters.parse_cpu_masks(hvp.get("cpu_mask") or hvparameters.CPU_ALL)
            if any(mask != [hvparameters.CPU_ALL_VALUE] for mask in masks):
                self._pin(control, layout, masks)

    def _pin(self, control: Qmp, layout: argv.Layout,
             masks: Sequence[Sequence[int]]) -> None:
        threads = sorted(control.execute("query-cpus-fast"), key=lambda cpu: cpu["cpu-index"])
        if len(masks) == 1:
            found = self._process(layout)
            tids = [int(tid) for tid in os.listdir(f"/proc/{found[0]}/task")] if found else []
            pinned = [(tid, masks[0]) for tid in tids]
        else:
            if len(masks) != len(threads):
                raise errors.HypervisorError(
                    f"instance {layout.name}: cpu_mask has {len(masks)} masks for "
                    f"{len(threads)} virtual processors")
            pinned = [(cpu["thread-id"], mask) for cpu, mask in zip(threads, masks, strict=True)]
        for tid, mask in pinned:
            if mask != [hvparameters.CPU_ALL_VALUE]:
                os.sched_setaffinity(tid, mask)

    # Stop

    def stop(self, instance_name: str, hvparams: Mapping[str, Any], *, force: bool = False) -> None:
        """Press the power button; with ``force``, or without ACPI, end the process."""
        with self._locked(instance_name) as layout:
            if not self._process(layout):
                return
            if force or not hvparams.get("acpi", True):
                self._end_process(layout)
                self._remove_files(layout)
                return
            try:
                with Qmp(layout.socket("qmp"), layout.name) as control:
                    if control.execute("query-status").get("status") in _NOBODY_HOME:
                        control.execute("quit")
                    else:
                        control.execute("system_powerdown")
            except ConnectionLost:
                logging.info("instance %s went away while it was asked to", instance_name)

    def _end_process(self, layout: argv.Layout) -> None:
        """End QEMU and wait until it is gone.

        :raises HypervisorError: it survives SIGKILL (the kernel waits for its storage).
        """
        # Ending politely lets QEMU flush and close its images; it needs nothing of the guest.
        for number, timeout_s in ((signal.SIGTERM, _TERM_TIMEOUT_S),
                                  (signal.SIGKILL, _KILL_TIMEOUT_S)):
            found = self._process(layout)
            if not found:
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
            if _wait_gone(pid, timeout_s):
                return
        raise errors.HypervisorError(
            f"instance {layout.name} does not end (pid {pid}). Its storage may hang.")

    def cleanup(self, instance_name: str) -> None:
        """Remove the files of a guest that does not run."""
        with self._locked(instance_name) as layout:
            if not self._process(layout):
                self._remove_files(layout)

    def _remove_files(self, layout: argv.Layout) -> None:
        nic.remove(layout)
        for kind in _SOCKET_KINDS:
            fs.remove_file(layout.socket(kind))
        fs.remove_file(layout.socket("console"))
        fs.remove_file(layout.pid_file)
        fs.remove_file(layout.runtime_file)
        shutil.rmtree(layout.chroot_dir, ignore_errors=True)

    # Reboot

    def reboot(self, instance: FilledInstance, *, timeout_s: float) -> None:
        """Stop the guest, then start it with the hardware it had."""
        name = instance.name
        layout = self.layout(name)
        if not self._process(layout):
            raise errors.HypervisorError(f"instance {name} is not running")
        # Stopping removes the file, so it is read first.
        record = runtime.load(layout.runtime_file, name)
        self.stop(name, record.hvparams)

        def gone() -> None:
            if self._process(layout):
                raise retry.Again

        try:
            retry.until(gone, timeout_s=timeout_s)
        except errors.RetryTimeout:
            logging.warning("instance %s did not shut down within %g s, stopping it hard", name,
                            timeout_s)
            self.stop(name, record.hvparams, force=True)
        with self._locked(name):
            self._refuse_running(layout)
            qemu = facts.of(record.hvparams["kvm_path"])
            self._start(record, layout, qemu, paused=False, tags=instance.tags)

    # Memory

    def balloon_memory(self, instance: FilledInstance, memory_mib: int) -> None:
        """Let the balloon take or give memory."""
        layout = self.layout(instance.name)
        self._require_running(layout)
        with Qmp(layout.socket("qmp"), instance.name) as control:
            control.execute("balloon", {"value": memory_mib << 20})

    def _require_running(self, layout: argv.Layout) -> None:
        if not self._process(layout):
            raise errors.HypervisorError(f"instance {layout.name} is not running")

    # Migration

    def migratable(self, instance: FilledInstance) -> None:
        """It runs, and we know how it was started."""
        layout = self.layout(instance.name)
        self._require_running(layout)
        runtime.load(layout.runtime_file, instance.name)

    def migration_info(self, instance: FilledInstance) -> Any:
        """The runtime file, with paths as all nodes name them."""
        layout = self.layout(instance.name)
        self._require_running(layout)
        record = runtime.load(layout.runtime_file, instance.name)
        return runtime.to_virtual(record, paths.current().root).dumps()

    def accept_instance(self, instance: FilledInstance, info: Any, target: str,
                        disks: Sequence[base.AttachedDisk]) -> None:
        """Start a QEMU with the same hardware that waits for the memory of the guest."""
        if not isinstance(info, str):
            raise errors.HypervisorError(
                f"migration data of instance {instance.name} is no text: {info!r}")
        record = runtime.to_local(runtime.loads(info, instance.name), paths.current().root)
        with self._locked(instance.name) as layout:
            self._refuse_running(layout)
            qemu = facts.of(record.hvparams["kvm_path"])
            record = self._adapt(record, instance, disks, qemu)
            port = int(instance.hvparams["migration_port"])
            self._start(record, layout, qemu, paused=False, tags=instance.tags,
                        incoming=(target, port))

    def _adapt(self, record: runtime.Runtime, instance: FilledInstance,
               disks: Sequence[base.AttachedDisk], qemu: facts.QemuFacts) -> runtime.Runtime:
        """A record of another node, to be used on this one.

        The guest keeps its hardware. This node's disks, program and accelerator replace the others;
        the accelerator must be the same kind, as the state of one is not understood by the other.
        """
        if len(disks) != len(record.disks):
            raise errors.HypervisorError(
                f"instance {instance.name} runs with {len(record.disks)} disks, but has "
                f"{len(disks)} in the configuration. Reboot it before it is migrated.")
        own = tuple(replace(old, path=new.path, uri=new.uri)
                    for old, new in zip(record.disks, disks, strict=True))
        machine = next(iter(runtime.words_of(record, "-machine")), "")
        wanted = machine.partition("accel=")[2].split(",")[0]
        if wanted == facts.KVM and qemu.accelerator != facts.KVM:
            raise errors.HypervisorError(
                f"instance {instance.name} runs with KVM, which does not work on this node")
        return replace(record, argv=(qemu.program, *record.argv[1:]), disks=own)

    def migrate(self, cluster_name: str, instance: FilledInstance, target: str, *,
                live: bool) -> None:
        """Tell QEMU to send the guest."""
        layout = self.layout(instance.name)
        self._require_running(layout)
        hvp = instance.hvparams
        with Qmp(layout.socket("qmp"), instance.name) as control:
            if not live:
                control.execute("stop")
            control.execute("migrate-set-parameters", {
                "max-bandwidth": int(hvp["migration_bandwidth"]) << 20,
                "downtime-limit": int(hvp["migration_downtime"])})
            _set_migration_capabilities(control, hvp)
            control.execute("migrate", {
                "uri": argv.migration_uri(target, int(hvp["migration_port"]))})

    def migration_status(self, instance: FilledInstance) -> MigrationStatus:
        """Ask QEMU; a bad answer now and then is tolerated."""
        layout = self.layout(instance.name)
        problem: errors.GenericError | None = None
        for attempt in range(_STATUS_TRIES):
            if attempt:
                time.sleep(_STATUS_PAUSE_S)
            if not self._process(layout):
                raise errors.HypervisorError(
                    f"instance {instance.name} ended during its migration")
            try:
                with Qmp(layout.socket("qmp"), instance.name) as control:
                    answer = control.execute("query-migrate")
                status = parse.parse_migration_status(answer)
            except (errors.HypervisorError, errors.ParseError) as err:
                problem = err
                logging.warning("migration of instance %s: %s", instance.name, err)
                continue
            if status.status in ("failed", "cancelled"):
                logging.error("migration of instance %s %s: %s", instance.name, status.status,
                              answer.get("error-desc", "no reason given"))
            return status
        raise errors.HypervisorError(
            f"cannot follow the migration of instance {instance.name}: {problem}") from problem

    def finalize_migration_source(self, instance: FilledInstance, *, success: bool,
                                  live: bool) -> None:
        """End the QEMU that sent the guest; or, after a failure, let it run on here."""
        if success:
            with self._locked(instance.name) as layout:
                self._end_process(layout)
                self._remove_files(layout)
            return
        layout = self.layout(instance.name)
        self._require_running(layout)
        with Qmp(layout.socket("qmp"), instance.name) as control:
            control.execute("migrate_cancel")
            if control.execute("query-status").get("status") in ("paused", "postmigrate"):
                control.execute("cont")

    def finalize_migration_target(self, instance: FilledInstance, info: Any, *,
                                  success: bool) -> None:
        """Let the guest that has arrived run; or, after a failure, remove what waits for it."""
        if not success:
            with self._locked(instance.name) as layout:
                self._end_process(layout)
                self._remove_files(layout)
            return
        layout = self.layout(instance.name)
        self._require_running(layout)
        with Qmp(layout.socket("qmp"), instance.name) as control:
            control.execute("cont")


def _set_migration_capabilities(control: Qmp, hvparams: Mapping[str, Any]) -> None:
    """What both ends of a migration must agree on."""
    wanted = [name for name in (hvparams.get("migration_caps") or "").split(":") if name]
    if wanted:
        control.execute("migrate-set-capabilities", {"capabilities": [
            {"capability": name, "state": True} for name in wanted]})


# Facts of this machine

def _cpu_time_s(pid: int) -> float:
    try:
        fields = fs.read_bytes(f"/proc/{pid}/stat").rpartition(b")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _wait_gone(pid: int, timeout_s: float) -> bool:
    def gone() -> None:
        if process.is_alive(pid):
            raise retry.Again

    try:
        retry.until(gone, timeout_s=timeout_s, delay=(0.01, 1.5, 0.2))
    except errors.RetryTimeout:
        return False
    return True


def _is_block_device(path: str) -> bool:
    """Whether a disk's link leads to a block device.

    :raises HypervisorError: it leads nowhere.
    """
    try:
        return stat.S_ISBLK(os.stat(path).st_mode)
    except OSError as err:
        raise errors.HypervisorError(f"disk {path} cannot be used: {err.strerror}") from err


def _direct_works(path: str) -> bool:
    """Whether the file system of a file knows unbuffered access; not all do."""
    try:
        os.close(os.open(path, os.O_RDONLY | os.O_DIRECT | os.O_CLOEXEC))
    except OSError:
        return False
    return True


def _rotate(path: str) -> None:
    with contextlib.suppress(FileNotFoundError):
        if os.path.getsize(path) > _CONSOLE_LOG_MAX_BYTES:
            os.replace(path, f"{path}.1")


def _read_log(path: str) -> str:
    try:
        return fs.read_file(path)
    except OSError:
        return ""


def _last_lines(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return "; ".join(lines[-_ERROR_LINES:])
