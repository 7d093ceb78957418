"""What the kernel counts and limits for a container, in control groups of version 1 or 2.

A machine with systemd of Debian 11 and later has version 2 only. Others have a mixed form: the
controllers are in hierarchies of version 1, and a hierarchy of version 2 without controllers has
the groups themselves. Both forms have that second hierarchy, in which the processes of a container
are found and ended.

Source: cgroups(7); Linux, ``Documentation/admin-guide/cgroup-v2.rst`` and ``cgroup-v1``.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from ganeti import errors
from ganeti.hypervisor.lxc import parse
from ganeti.utils import fs

_MOUNTS = "/proc/self/mounts"
#: What containers cannot run without.
NEEDED = ("memory", "cpuset", "cpu")
#: Microseconds in which the processor time of a container is counted.
CPU_PERIOD_US = 100_000
_NO_LIMIT = 1 << 60


class Limit(NamedTuple):
    """A limit of a container: the key in LXC's configuration, and its value."""

    key: str
    value: str


class Cgroups:
    """The control groups of this machine.

    :raises HypervisorError: the mounts cannot be read.
    """

    def __init__(self) -> None:
        try:
            self._mounts = parse.parse_cgroup_mounts(fs.read_file(_MOUNTS))
        except OSError as err:
            raise errors.HypervisorError(f"cannot read {_MOUNTS}: {err.strerror}") from err
        found: list[str] = []
        if self._mounts.unified is not None:
            found = _read(f"{self._mounts.unified}/cgroup.controllers").split()
        self._controllers = frozenset(found)

    def is_v2(self, controller: str) -> bool:
        """Return True if a controller is in the hierarchy of version 2."""
        return controller in self._controllers

    def has(self, controller: str) -> bool:
        """Return True if there is a controller, in either version."""
        return self.is_v2(controller) or controller in self._mounts.legacy

    def problem(self) -> str | None:
        """Return what containers lack here, or None."""
        if self._mounts.unified is None:
            return "control groups of version 2 are not mounted (mount -t cgroup2)"
        missing = [controller for controller in NEEDED if not self.has(controller)]
        if missing:
            return f"the kernel offers no control group controllers {', '.join(missing)}"
        return None

    # Limits for the configuration

    def devices_prefix(self) -> str:
        """Return the beginning of the keys of devices. Version 2 has them without a controller."""
        return "lxc.cgroup.devices" if "devices" in self._mounts.legacy else "lxc.cgroup2.devices"

    def limits(self, memory_mib: int, vcpus: int, cpus: str) -> list[Limit]:
        """Return the limits of a new container.

        :param cpus: processors of the node, as cpuset(7) has them; empty for all.
        """
        found = []
        limit = str(memory_mib << 20)
        if self.is_v2("memory"):
            found.append(Limit("lxc.cgroup2.memory.max", limit))
            if os.path.exists("/proc/swaps"):
                found.append(Limit("lxc.cgroup2.memory.swap.max", "0"))
        else:
            found.append(Limit("lxc.cgroup.memory.limit_in_bytes", limit))
            if self._has_swap_limit():
                found.append(Limit("lxc.cgroup.memory.memsw.limit_in_bytes", limit))
        quota = str(vcpus * CPU_PERIOD_US)
        if self.is_v2("cpu"):
            found.append(Limit("lxc.cgroup2.cpu.max", f"{quota} {CPU_PERIOD_US}"))
        else:
            found.append(Limit("lxc.cgroup.cpu.cfs_period_us", str(CPU_PERIOD_US)))
            found.append(Limit("lxc.cgroup.cpu.cfs_quota_us", quota))
        if cpus:
            found.append(
                Limit(f"lxc.cgroup{'2' if self.is_v2('cpuset') else ''}.cpuset.cpus", cpus)
            )
        return found

    def _has_swap_limit(self) -> bool:
        root = self._mounts.legacy.get("memory", "")
        return os.path.exists(f"{root}/memory.memsw.limit_in_bytes")

    # A container which runs. ``groups`` is controller -> path, as parse_own_cgroups gives it.

    def _directory(self, groups: Mapping[str, str], controller: str) -> str | None:
        """Return the directory of a container for one controller; None when it has none."""
        if controller == "" or self.is_v2(controller):
            top, path = self._mounts.unified, groups.get("")
        else:
            top, path = self._mounts.legacy.get(controller), groups.get(controller)
        return None if top is None or path is None or path == "/" else f"{top}{path}"

    def processes(self, groups: Mapping[str, str]) -> list[int]:
        """Return the processes of a container, those of groups below its own included."""
        return [
            int(pid)
            for directory in self._tree(groups)
            for pid in _read(f"{directory}/cgroup.procs").split()
        ]

    def is_populated(self, groups: Mapping[str, str]) -> bool:
        """Return True if a container has a process."""
        directory = self._directory(groups, "")
        if directory is None:
            return False
        return parse.parse_counters(_read(f"{directory}/cgroup.events")).get("populated", 0) > 0

    def _tree(self, groups: Mapping[str, str]) -> Iterator[str]:
        directory = self._directory(groups, "")
        if directory is not None:
            for path, _, _ in os.walk(directory):
                yield path

    def kill(self, groups: Mapping[str, str]) -> None:
        """End all processes of a container at once; it may take a moment until they are gone."""
        directory = self._directory(groups, "")
        if directory is None:
            return
        try:
            _write(f"{directory}/cgroup.kill", "1")
            return
        except OSError:
            # A kernel before 5.14, or the group has gone. Repeated by the caller.
            pids = self.processes(groups)
        for pid in pids:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue

    def memory_limit_mib(self, groups: Mapping[str, str]) -> int | None:
        """Return the limit of memory; None when there is none."""
        directory = self._directory(groups, "memory")
        if directory is None:
            return None
        name = "memory.max" if self.is_v2("memory") else "memory.limit_in_bytes"
        number = _number(f"{directory}/{name}")
        return None if number is None or number >= _NO_LIMIT else number >> 20

    def memory_used_mib(self, groups: Mapping[str, str]) -> int | None:
        """Return the memory which a container uses, with its part of the page cache."""
        directory = self._directory(groups, "memory")
        if directory is None:
            return None
        name = "memory.current" if self.is_v2("memory") else "memory.usage_in_bytes"
        number = _number(f"{directory}/{name}")
        return None if number is None else number >> 20

    def set_memory(self, groups: Mapping[str, str], memory_mib: int) -> None:
        """Change the limit of memory of a running container.

        :raises HypervisorError: it uses more, and the kernel cannot free that; nothing has changed.
        """
        directory = self._directory(groups, "memory")
        if directory is None:
            raise errors.HypervisorError("it has no control group for memory")
        limit = memory_mib << 20
        try:
            if self.is_v2("memory"):
                self._set_memory_v2(directory, limit)
                return
            own, both = (
                f"{directory}/memory.limit_in_bytes",
                f"{directory}/memory.memsw.limit_in_bytes",
            )
            files = [own, both] if os.path.exists(both) else [own]
            # The limit with swap is never below the one without.
            if limit > (_number(own) or 0):
                files.reverse()
            for path in files:
                _write(path, str(limit))
        except OSError as err:
            raise errors.HypervisorError(
                f"the kernel does not limit its memory to {memory_mib} MiB, perhaps because it uses"
                f" more: {err.strerror}"
            ) from err

    def set_processors(self, groups: Mapping[str, str], vcpus: int, cpus: str) -> None:
        """Change the processor time of a running container, and the processors on which it runs.

        :param cpus: processors of the node, as cpuset(7) has them; empty for all.
        :raises HypervisorError: the kernel refuses.
        """
        quota = vcpus * CPU_PERIOD_US
        directory, places = self._directory(groups, "cpu"), self._directory(groups, "cpuset")
        if directory is None or places is None:
            raise errors.HypervisorError("it has no control groups for processors")
        try:
            if self.is_v2("cpu"):
                _write(f"{directory}/cpu.max", f"{quota} {CPU_PERIOD_US}")
            else:
                _write(f"{directory}/cpu.cfs_quota_us", str(quota))
            # The kernel refuses an empty list for a group with processes.
            cpus = cpus or self._processors_above(places)
            _write(f"{places}/cpuset.cpus", f"{cpus}\n")
        except OSError as err:
            raise errors.HypervisorError(
                f"the kernel does not limit it to {vcpus} processors"
                f"{f' out of {cpus}' if cpus else ''}: {err.strerror}"
            ) from err

    def _processors_above(self, directory: str) -> str:
        """Return the processors which a group may have; empty when the kernel does not say it.

        In version 2 the group above need not have the controller.
        """
        if not self.is_v2("cpuset"):
            return _read(f"{os.path.dirname(directory)}/cpuset.cpus").strip()
        found = ""
        while not found and directory not in (self._mounts.unified, "/"):
            directory = os.path.dirname(directory)
            found = _read(f"{directory}/cpuset.cpus.effective").strip()
        return found

    @staticmethod
    def _set_memory_v2(directory: str, limit: int) -> None:
        old = _number(f"{directory}/memory.max")
        if old is not None and old <= limit:
            _write(f"{directory}/memory.max", str(limit))
            return
        # "max" ends processes when it is exceeded; "high" frees what can be freed and ends none.
        _write(f"{directory}/memory.high", str(limit))
        used = _number(f"{directory}/memory.current") or 0
        try:
            if used > limit:
                raise errors.HypervisorError(
                    f"it uses {-(-used >> 20)} MiB, and the kernel cannot free enough of them to"
                    f" limit it to {limit >> 20} MiB"
                )
            _write(f"{directory}/memory.max", str(limit))
        finally:
            _write(f"{directory}/memory.high", "max")

    def cpu_time_s(self, groups: Mapping[str, str]) -> float:
        """Return the processor time which a container has used; 0 when it is not known."""
        directory = self._directory(groups, "")
        if directory is None:
            return 0.0
        counters = parse.parse_counters(_read(f"{directory}/cpu.stat"))
        return counters.get("usage_usec", 0) / 1_000_000

    def transferred_bytes(self, groups: Mapping[str, str]) -> tuple[int | None, int | None]:
        """Return what a container has read and written on block devices.

        The result is None when it is not known.
        """
        if self.is_v2("io"):
            directory, name = self._directory(groups, "io"), "io.stat"
        else:
            directory, name = (
                self._directory(groups, "blkio"),
                "blkio.throttle.io_service_bytes",
            )
        if directory is None or not os.path.exists(f"{directory}/{name}"):
            return None, None
        return parse.parse_io_stat(_read(f"{directory}/{name}"))

    def is_frozen(self, groups: Mapping[str, str]) -> bool:
        """Return True if the processes of a container are stopped (``lxc-freeze``)."""
        if "freezer" in self._mounts.legacy:
            directory = self._directory(groups, "freezer")
            return directory is not None and _read(f"{directory}/freezer.state").strip() in (
                "FROZEN",
                "FREEZING",
            )
        directory = self._directory(groups, "")
        return directory is not None and _read(f"{directory}/cgroup.freeze").strip() == "1"


def _read(path: str) -> str:
    """Return the content of a file of the kernel; empty when its group has gone."""
    try:
        return fs.read_file(path)
    except OSError:
        return ""


def _number(path: str) -> int | None:
    """Return the number in a file; None for ``max``, or when its group has gone."""
    text = _read(path).strip()
    return int(text) if text.isascii() and text.isdecimal() and len(text) <= 20 else None


def _write(path: str, value: str) -> None:
    with open(path, "w", encoding="ascii") as stream:
        stream.write(value)
