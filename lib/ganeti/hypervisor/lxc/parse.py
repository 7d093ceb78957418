"""Reading what the kernel and the programs of LXC say; pure functions.

Source: proc(5); cgroups(7); LXC 5.0, as recorded in ``test/data/lxc``.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from ganeti import errors

_VERSION = re.compile(r"(\d{1,6})\.(\d{1,6})(?:\.(\d{1,6}))?")
_STARTED = re.compile(r'Started "[^"]*" with pid "\d{1,9}"')
_ENDED = re.compile(r"Child <\d{1,9}> ended on (error|signal) (?:\((\d{1,9})\)|.*\((\d{1,9})\))")
# By which the first process of a container ends that halts it with reboot(2): pid_namespaces(7).
_SIGNAL_HALT = 2
_ERRORS = 2


class Mounts(NamedTuple):
    """Where the kernel shows control groups.

    :ivar unified: the directory of version 2, or None.
    :ivar legacy: controller -> its directory, for those of version 1.
    """

    unified: str | None
    legacy: dict[str, str]


def parse_version(text: str) -> tuple[int, int, int]:
    """Read the output of ``lxc-start --version``.

    :raises ParseError: the text does not begin with a version.
    """
    found = _VERSION.match(text)
    if not found:
        raise errors.ParseError(f"no version of LXC in {text[:80]!r}")
    return int(found[1]), int(found[2]), int(found[3] or 0)


def parse_unix_sockets(text: str, lxc_root: str) -> list[str]:
    """Return the containers whose monitor listens, from ``/proc/net/unix``; each name once, sorted.

    :param lxc_root: LXC's directory of containers.
    """
    prefix, suffix = f"@{lxc_root}/", "/command"
    found = set()
    for line in text.splitlines():
        # Only the path, the last field, may have spaces.
        fields = line.split(None, 7)
        path = fields[7] if len(fields) == 8 else ""
        if path.startswith(prefix) and path.endswith(suffix):
            name = path[len(prefix) : -len(suffix)]
            if name and "/" not in name and not name.startswith("."):
                found.add(name)
    return sorted(found)


def parse_cgroup_mounts(text: str) -> Mounts:
    """Read ``/proc/self/mounts``; the first mount of each hierarchy counts."""
    unified: str | None = None
    legacy: dict[str, str] = {}
    for line in text.splitlines():
        fields = line.split(" ")
        if len(fields) < 4:
            continue
        if fields[2] == "cgroup2":
            unified = unified or fields[1]
        elif fields[2] == "cgroup":
            for option in fields[3].split(","):
                legacy.setdefault(option, fields[1])
    return Mounts(unified, legacy)


def parse_own_cgroups(text: str) -> dict[str, str]:
    """Read ``/proc/PID/cgroup``: controller -> path in its hierarchy; empty for version 2."""
    found = {}
    for line in text.splitlines():
        fields = line.split(":", 2)
        if len(fields) == 3 and fields[2].startswith("/"):
            for controller in fields[1].split(","):
                found[controller] = fields[2]
    return found


def payload_group(path: str) -> str:
    """Return the control group of a whole container, from that of one of its processes.

    The first process of an operating system may have gone on to a group of its own below.

    >>> payload_group("/scope/lxc.payload.web/init.scope")
    '/scope/lxc.payload.web'
    """
    words = path.split("/")
    for number, word in enumerate(words):
        if word.startswith("lxc.payload."):
            return "/".join(words[: number + 1])
    return path


def parse_counters(text: str) -> dict[str, int]:
    """Read lines ``NAME NUMBER``, such as ``cpu.stat`` has; other lines are left out."""
    found = {}
    for line in text.splitlines():
        name, _, value = line.partition(" ")
        if value.isascii() and value.isdecimal() and len(value) <= 20:
            found[name] = int(value)
    return found


def parse_io_stat(text: str) -> tuple[int, int]:
    """Bytes read and written, from ``io.stat`` or ``blkio.throttle.io_service_bytes``."""
    read = written = 0
    for line in text.splitlines():
        words = line.split()
        if len(words) == 3 and words[1] in ("Read", "Write"):
            words[1:] = [f"{'rbytes' if words[1] == 'Read' else 'wbytes'}={words[2]}"]
        for word in words[1:]:
            key, _, value = word.partition("=")
            if value.isascii() and value.isdecimal() and len(value) <= 20:
                read += int(value) if key == "rbytes" else 0
                written += int(value) if key == "wbytes" else 0
    return read, written


def parse_ended_by_itself(log: str) -> bool:
    """Return True if a container shut itself down, from LXC's log of a container which has ended.

    Its first process ended with exit code 0, or halted the container with reboot(2). Another exit
    code or a signal is a crash; so is a log without an end.
    """
    started = False
    ended: tuple[str, int] | None = None
    for line in log.splitlines():
        if _STARTED.search(line):
            started, ended = True, None
        elif "Container init process" in line and "exited" in line:
            ended = ("error", 0)
        else:
            found = _ENDED.search(line)
            if found:
                ended = (found[1], int(found[2] or found[3]))
    return started and ended in (("error", 0), ("signal", _SIGNAL_HALT))


def parse_errors(log: str) -> list[str]:
    """Return what failed, from LXC's log: the first errors, and what the mount command said.

    The other errors only follow from the first ones.
    """
    found = []
    for line in log.splitlines():
        _, hook, said = line.partition(" produced output: ")
        before, separator, message = line.partition(" - ")
        if hook and said.strip():
            found.append(said.strip())
        elif separator and " ERROR " in before:
            # The place in LXC's source is of no use for an administrator.
            found.append(message.split(" - ", 1)[-1].strip())
    return found[:_ERRORS]
