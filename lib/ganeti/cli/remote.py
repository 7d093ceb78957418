"""Doing something on another node as its administrator: a command, or a copy of a file.

On real machines this is SSH as root with the keys that the administrator or the cluster has set up;
only host keys are accepted which the cluster's file or the administrator's own knows. A virtual
cluster has no SSH servers, and its nodes are directories of the same user: a command runs here in
the node's environment, a file is copied into its directory.

Nodes are worked on side by side; results come in the order of the nodes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from ganeti import errors
from ganeti.platform import machine, paths
from ganeti.utils import process, ssh

TYPE_CHECKING = False  # the name type checkers look for; importing typing costs milliseconds
if TYPE_CHECKING:
    from typing import TypeVar

    T = TypeVar("T")

_AT_ONCE = 16
# A node which dies meanwhile is noticed after three of them.
_ALIVE = ("-oServerAliveInterval=20", "-oServerAliveCountMax=3")


class Node:
    """A node to work on.

    :param address: where to reach it by SSH.
    """

    __slots__ = ("address", "name")

    def __init__(self, name: str, address: str) -> None:
        self.name = name
        self.address = address

    @property
    def here(self) -> bool:
        """Whether it is this node."""
        return self.name == machine.current().hostname()

    def run(self, command: str) -> process.Completed:
        """Let the node's shell run a command.

        :raises CommandError: SSH, or the shell, cannot be started.
        """
        if self.here:
            return process.run(["sh", "-c", command], timeout_s=None, check=False)
        root = machine.current().neighbour_dir(self.name)
        if root is not None:
            return process.run([f"{root}/cmd", "sh", "-c", command], timeout_s=None, check=False)
        program, *rest = ssh.ssh_argv(
            self.name,
            ["sh", "-c", command],
            known_hosts=_known_hosts(),
            address=self.address,
            port=_port(self.name),
        )
        return process.run([program, *_ALIVE, *rest], timeout_s=None, check=False)

    def copy(self, path: str) -> None:
        """Give the node a file of this one at the same place, with its mode and times.

        :param path: absolute, as it is found here.
        :raises CommandError: it did not work; says why.
        """
        root = machine.current().neighbour_dir(self.name)
        if root is not None:
            argv = ["cp", "-p", "--", path, f"{root}{paths.current().to_virtual(path)}"]
        else:
            argv = ssh.scp_argv(
                self.name,
                path,
                known_hosts=_known_hosts(),
                address=self.address,
                port=_port(self.name),
            )
        process.run(argv, timeout_s=None)


def _known_hosts() -> str:
    import os.path

    return f"{paths.current().known_hosts_file} {os.path.expanduser('~/.ssh/known_hosts')}"


def _port(name: str) -> int:
    from ganeti.bootstrap import remote

    return remote.default_port(name)


def local_file(given: str) -> str:
    """The absolute path of a file which other nodes are to have at the same place.

    In a virtual cluster a path may be meant below this node's root directory.

    :raises OpPrereqError: there is no such file, or it is at no place which other nodes have.
    """
    import os

    path = machine.current().own_file(os.path.abspath(given))
    if not os.path.isfile(path):
        raise errors.OpPrereqError(f"there is no file '{given}'", errors.ECODE_INVAL)
    return path


def on_each(nodes: Sequence[Node], work: Callable[[Node], T]) -> Iterator[tuple[Node, T]]:
    """Work on nodes side by side; pairs of node and result in their order."""
    if len(nodes) < 2:
        yield from ((node, work(node)) for node in nodes)
        return
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(min(_AT_ONCE, len(nodes))) as pool:
        yield from zip(nodes, pool.map(work, nodes), strict=True)
