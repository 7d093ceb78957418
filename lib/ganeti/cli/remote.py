"""Run a command on another node as its administrator, or copy a file to it.

On real machines this uses SSH as root, with the keys which the administrator or the cluster has set
up. A host key must be in the file of the cluster or in the file of the administrator. A virtual
cluster has no SSH servers, and its nodes are directories of the same user: a command is run on this
machine in the environment of the node, and a file is copied into the directory of the node.

Several nodes are handled at the same time; results come in the order of the nodes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from ganeti import TYPE_CHECKING, errors
from ganeti.platform import machine, paths
from ganeti.utils import process, ssh

if TYPE_CHECKING:
    from typing import TypeVar

    T = TypeVar("T")

_AT_ONCE = 16
# A connection without an answer for 60 s is closed.
_ALIVE = ("-oServerAliveInterval=20", "-oServerAliveCountMax=3")


class RemoteNode:
    """A node on which commands are run.

    :param address: IP address for SSH.
    :param port: TCP port of its SSH server; None for the one which the cluster knows.
    :param known_hosts: file with trusted host keys; None for those of cluster and administrator.
    """

    __slots__ = ("_known_hosts", "_port", "address", "name")

    def __init__(
        self, name: str, address: str, *, port: int | None = None, known_hosts: str | None = None
    ) -> None:
        self.name = name
        self.address = address
        self._port = port
        self._known_hosts = known_hosts

    @property
    def port(self) -> int:
        """The TCP port of its SSH server."""
        return self._port or _port(self.name)

    @property
    def here(self) -> bool:
        """True if this process runs on the node."""
        return self.name == machine.current().hostname()

    def run(self, command: str, keep_fds: Sequence[int] = ()) -> process.Completed:
        """Run a command with the shell of the node, without a time limit.

        :param keep_fds: files which stay open until it ends, for their locks.
        :raises CommandError: SSH or the shell cannot be started.
        """
        if self.here:
            argv = ["sh", "-c", command]
            return process.run(argv, timeout_s=None, check=False, keep_fds=keep_fds)
        root = machine.current().neighbour_dir(self.name)
        if root is not None:
            argv = [f"{root}/cmd", "sh", "-c", command]
            return process.run(argv, timeout_s=None, check=False, keep_fds=keep_fds)
        program, *rest = ssh.ssh_argv(
            self.name,
            ["sh", "-c", command],
            known_hosts=self._known_hosts or _known_hosts(),
            address=self.address,
            port=self.port,
        )
        argv = [program, *_ALIVE, *rest]
        return process.run(argv, timeout_s=None, check=False, keep_fds=keep_fds)

    def path(self, path: str) -> str:
        """Return the path with which the shell of the node finds what this node has at a path.

        :param path: absolute path on this machine.
        """
        root = None if self.here else machine.current().neighbour_dir(self.name)
        return path if root is None else f"{root}{paths.current().to_virtual(path)}"

    def copy(self, path: str) -> None:
        """Copy a file of this node to the same path on the node, with its mode and times.

        :param path: absolute path on this machine.
        :raises CommandError: the copy failed.
        """
        root = machine.current().neighbour_dir(self.name)
        if root is not None:
            argv = ["cp", "-p", "--", path, self.path(path)]
        else:
            argv = ssh.scp_argv(
                self.name,
                path,
                known_hosts=self._known_hosts or _known_hosts(),
                address=self.address,
                port=self.port,
            )
        process.run(argv, timeout_s=None)


class NodeFailed(errors.GenericError):
    """A program failed on one node, or the node cannot be reached; the text is the reason."""


class RemoteNodes:
    """Several nodes, by name.

    :param known: how each is reached.
    :param at_once: on how many nodes work goes on at the same time.
    """

    def __init__(self, known: Mapping[str, RemoteNode], at_once: int = _AT_ONCE) -> None:
        self._known = known
        self._at_once = at_once

    def each(self, names: Sequence[str], work: Callable[[str], T]) -> Iterator[tuple[str, T]]:
        """Call a function for nodes, several at a time; pairs of node and result, in order."""
        for start in range(0, len(names), self._at_once):
            group = [self._known[name] for name in names[start : start + self._at_once]]
            for node, result in on_each(group, lambda node: work(node.name)):
                yield node.name, result

    def run(self, name: str, argv: Sequence[str]) -> process.Completed:
        """Run a program on a node.

        :raises NodeFailed: it cannot be started, or failed.
        """
        import shlex

        try:
            done = self._known[name].run(shlex.join(argv))
        except errors.CommandError as err:
            raise NodeFailed(str(err)) from err
        if done.failed:
            raise NodeFailed(done.stderr.strip()[-2000:] or done.fail_reason)
        return done

    def copy(self, name: str, path: str) -> None:
        """Copy a file to the same path on a node; nothing is done on this one.

        :raises NodeFailed: it cannot be done.
        """
        if self._known[name].here:
            return
        try:
            self._known[name].copy(path)
        except errors.CommandError as err:
            raise NodeFailed(err.problem) from err


def _known_hosts() -> str:
    import os.path

    return f"{paths.current().known_hosts_file} {os.path.expanduser('~/.ssh/known_hosts')}"


def _port(name: str) -> int:
    from ganeti.bootstrap import remote

    return remote.default_port(name)


def local_file(given: str) -> str:
    """Return the absolute path of a file which will be copied to the same path on other nodes.

    In a virtual cluster a path may be relative to the root directory of this node.

    :raises OpPrereqError: the file does not exist, or other nodes cannot have this path.
    """
    import os

    path = machine.current().own_file(os.path.abspath(given))
    if not os.path.isfile(path):
        raise errors.OpPrereqError(f"there is no file '{given}'", errors.ECODE_INVAL)
    return path


def on_each(
    nodes: Sequence[RemoteNode], work: Callable[[RemoteNode], T]
) -> Iterator[tuple[RemoteNode, T]]:
    """Call a function for several nodes at the same time.

    :returns: pairs of node and result, in the order of the nodes.
    """
    if len(nodes) < 2:
        yield from ((node, work(node)) for node in nodes)
        return
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(min(_AT_ONCE, len(nodes))) as pool:
        yield from zip(nodes, pool.map(work, nodes), strict=True)
