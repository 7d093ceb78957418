"""Pairs of virtual interfaces: the host's end and the container's end of a NIC.

The node makes the pair and keeps the host's end, which is connected like the tap device of a
virtual machine. The container gets the other end as a whole interface, which returns to the node
when the container restarts itself, so that its connection remains. Deleting the host's end deletes
both.

Source: veth(4); ip-link(8); lxc.container.conf(5), *lxc.net.[i].type*, ``phys``.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ganeti import errors
from ganeti.utils import fs, net, process

_TIMEOUT_S = 30.0
_PEER = "p"


@dataclass(frozen=True, slots=True)
class VethPair:
    """What a container expects: a pair for each NIC."""

    def make(self, name: str, nic: Mapping[str, Any]) -> str:
        """Make a pair whose inner end has the MAC address of the NIC.

        :param name: of the host's end; ``%d`` in it is replaced by a free number.
        :returns: the name of the host's end; :func:`inner` gives the other one.
        :raises HypervisorError: the kernel refuses.
        """
        for number in itertools.count():
            host = name.replace("%d", str(number))
            if net.has_interface(host):
                continue
            peer = ["peer", "name", inner(host), "address", nic["mac"]]
            done = process.run(
                ["ip", "link", "add", host, "type", "veth", *peer],
                timeout_s=_TIMEOUT_S,
                check=False,
            )
            if not done.failed:
                return host
            # Another guest may have got this number in between.
            if not net.has_interface(host):
                raise errors.HypervisorError(
                    f"cannot make the interface {host}: {done.output.strip()}"
                )
        raise AssertionError("there are numbers without end")


def give(host: str, pid: int) -> None:
    """Move the container's end of a pair into a container which runs, and bring it up.

    It becomes the first free one of ``eth0``, ``eth1``, ...

    :param pid: a process of the container.
    :raises GenericError, OSError: it is not in the container, or not up.
    """
    taken = parse_interfaces(fs.read_file(f"/proc/{pid}/net/dev"))
    name = next(found for found in map("eth{}".format, itertools.count()) if found not in taken)
    for argv in give_argvs(inner(host), pid, name):
        process.run(argv, timeout_s=_TIMEOUT_S)


def give_argvs(interface: str, pid: int, name: str) -> list[list[str]]:
    """Return the commands which move an interface into a container, and bring it up there."""
    return [
        ["ip", "link", "set", interface, "netns", str(pid), "name", name],
        ["nsenter", f"--target={pid}", "--net", "ip", "link", "set", name, "up"],
    ]


def parse_interfaces(text: str) -> set[str]:
    """Return the names of interfaces, from ``/proc/PID/net/dev``.

    Source: proc(5).
    """
    return {line.partition(":")[0].strip() for line in text.splitlines() if ":" in line}


def inner(host: str) -> str:
    """Return the name of the container's end while it is on the node."""
    return f"{host}{_PEER}"
