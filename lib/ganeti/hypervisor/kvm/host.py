"""Facts about processes, files, interfaces and logs of this machine."""

from __future__ import annotations

import contextlib
import os
import select
import stat

from ganeti import errors
from ganeti.utils import fs, process
from ganeti.wire import json

# A console log that has grown beyond this becomes <name>.1 at the next start.
_CONSOLE_LOG_MAX_BYTES = 4 << 20
_ERROR_LINES = 5


def cpu_time_s(pid: int) -> float:
    """Processor time which a process has used, in seconds; 0 when it has ended."""
    try:
        fields = fs.read_bytes(f"/proc/{pid}/stat").rpartition(b")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def wait_gone(pid: int, timeout_s: float) -> bool:
    """Wait for the end of a process.

    :returns: whether it has ended within ``timeout_s``.
    """
    try:
        pidfd = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        events = select.poll()
        events.register(pidfd, select.POLLIN)
        return bool(events.poll(max(timeout_s, 0.0) * 1000))
    finally:
        os.close(pidfd)


def is_block_device(path: str) -> bool:
    """Whether the link of a disk leads to a block device.

    :raises HypervisorError: it leads to nothing that exists.
    """
    try:
        return stat.S_ISBLK(os.stat(path).st_mode)
    except OSError as err:
        raise errors.HypervisorError(f"disk {path} cannot be used: {err.strerror}") from err


def direct_works(path: str) -> bool:
    """Whether the file system of a file supports direct access (``O_DIRECT``)."""
    try:
        os.close(os.open(path, os.O_RDONLY | os.O_DIRECT | os.O_CLOEXEC))
    except OSError:
        return False
    return True


def interface_address(name: str, version: int) -> str:
    """An address of a network interface of this node.

    :param version: 4 or 6, or 0 for either, IPv4 first.
    :raises HypervisorError: there is no such interface, or it has no such address.
    """
    done = process.run(["ip", "-json", "address", "show", "dev", name], timeout_s=30, check=False)
    if done.failed:
        raise errors.HypervisorError(
            f"'{name}' is neither an address nor a network interface of this node"
        )
    found = [
        (entry["family"], entry["local"])
        for device in json.loads(done.stdout)
        for entry in device.get("addr_info", ())
        if entry.get("scope") != "link"
    ]
    families = {4: ("inet",), 6: ("inet6",)}.get(version, ("inet", "inet6"))
    for family in families:
        for has, address in found:
            if has == family:
                return str(address)
    raise errors.HypervisorError(
        f"network interface {name} has no {f'IPv{version} ' if version else ''}address"
    )


def rotate(path: str) -> None:
    """Rename a console log of more than 4 MiB to ``<path>.1``."""
    with contextlib.suppress(FileNotFoundError):
        if os.path.getsize(path) > _CONSOLE_LOG_MAX_BYTES:
            os.replace(path, f"{path}.1")


def read_log(path: str) -> str:
    """The text of a log; empty when it cannot be read."""
    try:
        return fs.read_file(path)
    except OSError:
        return ""


def last_lines(text: str) -> str:
    """The last five lines of a program's output, in one line."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return "; ".join(lines[-_ERROR_LINES:])
