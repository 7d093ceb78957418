"""Facts about processes, files, interfaces, logs and the capacity of this machine."""

from __future__ import annotations

import glob
import os
import re
import stat
from typing import Any

from ganeti import errors
from ganeti.hypervisor.net.addresses import parse_addresses
from ganeti.storage import image_format
from ganeti.utils import fs, net, process
from ganeti.utils.net import wait_readable

_ERROR_LINES = 5


def cpu_time_s(pid: int) -> float:
    """Processor time which a process has used, in seconds; 0 when it has ended."""
    try:
        fields = fs.read_bytes(f"/proc/{pid}/stat").rpartition(b")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def process_start(pid: int) -> float | None:
    """Return when a process was started, in seconds since 1970; None when it has ended.

    Source: proc(5), ``/proc/pid/stat`` and ``/proc/stat``.
    """
    try:
        fields = fs.read_bytes(f"/proc/{pid}/stat").rpartition(b")")[2].split()
        (boot,) = re.findall(rb"^btime (\d+)", fs.read_bytes("/proc/stat"), re.MULTILINE)
        return int(boot) + int(fields[19]) / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, IndexError):
        return None


def resident_mib(pid: int) -> int | None:
    """Return the memory of this node which a process uses, in MiB; None when it has ended."""
    try:
        pages = int(fs.read_bytes(f"/proc/{pid}/statm").split()[1])
    except (OSError, ValueError, IndexError):
        return None
    return pages * os.sysconf("SC_PAGE_SIZE") >> 20


def transferred_bytes(pid: int) -> tuple[int | None, int | None]:
    """Return what a process has read from and written to the storage of this node, in bytes.

    :returns: None for both when the kernel does not tell.

    Source: proc(5), ``/proc/pid/io``.
    """
    try:
        lines = fs.read_file(f"/proc/{pid}/io").splitlines()
        found = {name: int(value) for name, _, value in (line.partition(":") for line in lines)}
        return found["read_bytes"], found["write_bytes"]
    except (OSError, ValueError, KeyError):
        return None, None


def wait_gone(pid: int, timeout_s: float) -> bool:
    """Wait for the end of a process.

    :returns: whether it has ended within ``timeout_s``.
    """
    try:
        pidfd = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        return bool(wait_readable([pidfd], timeout_s))
    finally:
        os.close(pidfd)


def is_block_device(path: str) -> bool:
    """Return True if the link of a disk leads to a block device.

    :raises HypervisorError: it leads to nothing that exists.
    """
    try:
        return stat.S_ISBLK(os.stat(path).st_mode)
    except OSError as err:
        raise errors.HypervisorError(f"disk {path} cannot be used: {err.strerror}") from err


def direct_works(path: str) -> bool:
    """Return True if the file system of a file supports direct access (``O_DIRECT``)."""
    try:
        os.close(os.open(path, os.O_RDONLY | os.O_DIRECT | os.O_CLOEXEC))
    except OSError:
        return False
    return True


def interface_address(name: str, version: int) -> str:
    """Return an address of a network interface of this node.

    :param version: 4 or 6, or 0 for either, IPv4 first.
    :raises HypervisorError: there is no such interface, or it has no such address.
    """
    done = process.run(["ip", "-json", "address", "show", "dev", name], timeout_s=30, check=False)
    if done.failed:
        raise errors.HypervisorError(
            f"'{name}' is neither an address nor a network interface of this node"
        )
    try:
        found = [one for one in parse_addresses(done.stdout) if one.scope != "link"]
    except errors.ParseError as err:
        raise errors.HypervisorError(f"the addresses of {name} cannot be read: {err}") from err
    families = {4: ("inet",), 6: ("inet6",)}.get(version, ("inet", "inet6"))
    for family in families:
        for one in found:
            if one.family == family:
                return one.address
    raise errors.HypervisorError(
        f"network interface {name} has no {f'IPv{version} ' if version else ''}address"
    )


def require_own_address(parameter: str, address: str | None) -> None:
    """Check that the display of a guest could listen on the address in a parameter.

    :param address: what else a parameter may have, such as nothing or a directory, is not checked.
    :raises HypervisorError: no network interface of this node has the address.
    """
    if address and net.is_ip(address) and not net.can_bind(address):
        raise errors.HypervisorError(
            f"parameter {parameter}: {address} is not an address of this node. Use one which each"
            " node has, such as 0.0.0.0 or 127.0.0.1."
        )


def read_log(path: str) -> str:
    """Return the text of a log; empty when it cannot be read."""
    try:
        return fs.read_file(path)
    except OSError:
        return ""


def last_lines(text: str) -> str:
    """Return the last five lines of a program's output, in one line."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return "; ".join(lines[-_ERROR_LINES:])


def require_raw(parameter: str, path: str) -> None:
    """Check that a file which a parameter gives to the guest as a disk has no other format.

    :raises HypervisorError: it has one, or cannot be read.
    """
    try:
        problem = image_format.not_raw(path)
    except OSError as err:
        raise errors.HypervisorError(
            f"parameter {parameter}: {path} cannot be read: {err.strerror}"
        ) from err
    if problem is not None:
        raise errors.HypervisorError(f"parameter {parameter}: {problem}")


# The capacity of a node

_KIB = re.compile(r"[0-9]{1,18}")


def parse_meminfo(text: str) -> dict[str, int]:
    """Read ``/proc/meminfo``.

    :returns: name -> KiB, of the lines which have a number.

    Source: proc(5).
    """
    result = {}
    for line in text.splitlines():
        name, _, rest = line.partition(":")
        fields = rest.split()
        if fields and _KIB.fullmatch(fields[0]):
            result[name.strip()] = int(fields[0])
    return result


def linux_node_info(meminfo: str, processors: int, numa_nodes: int, sockets: int) -> dict[str, Any]:
    """Return the capacity of a node whose guests are processes of its own kernel.

    :param meminfo: content of /proc/meminfo.
    :returns: the published keys of the call ``node_info``; memory in MiB.
    :raises HypervisorError: ``meminfo`` lacks a line.
    """
    memory = parse_meminfo(meminfo)
    try:
        total_mib = memory["MemTotal"] // 1024
        free_kib = memory["MemFree"] + memory.get("Buffers", 0) + memory.get("Cached", 0)
    except KeyError as err:
        raise errors.HypervisorError(f"/proc/meminfo has no line {err.args[0]}") from err
    free_mib = min(free_kib // 1024, total_mib)
    return {
        "memory_total": total_mib,
        "memory_free": free_mib,
        # Memory in use which the kernel cannot free for guests.
        "memory_dom0": total_mib - free_mib,
        "cpu_total": processors,
        "cpu_nodes": numa_nodes,
        "cpu_sockets": sockets,
        "cpu_dom0": 1,
    }


def read_linux_node_info() -> dict[str, Any]:
    """Read the capacity of this machine, see :func:`linux_node_info`.

    :raises HypervisorError: the memory size cannot be read.
    """
    try:
        meminfo = fs.read_file("/proc/meminfo")
    except OSError as err:
        raise errors.HypervisorError(f"cannot read the memory size: {err}") from err
    packages = set()
    for path in glob.glob("/sys/devices/system/cpu/cpu[0-9]*/topology/physical_package_id"):
        try:
            packages.add(fs.read_file(path).strip())
        except OSError:
            # A processor which is switched off has no topology.
            continue
    nodes = len(glob.glob("/sys/devices/system/node/node[0-9]*"))
    return linux_node_info(meminfo, os.cpu_count() or 1, max(nodes, 1), max(len(packages), 1))
