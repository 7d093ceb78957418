"""Reach the nodes of another cluster, and run commands there as their administrator.

On real machines this uses SSH as root, with the keys and the known hosts of the administrator. In a
virtual cluster the nodes of the other cluster are directories beside the ones of this cluster.
"""

from __future__ import annotations

import os
import shlex
import tempfile
from collections.abc import Mapping, Sequence

from ganeti import errors
from ganeti.cli import remote
from ganeti.config import upgrade
from ganeti.configfile import files
from ganeti.constants import ssconf as ssconf_const
from ganeti.merge.record import Record
from ganeti.objects import ConfigData, Node, codec
from ganeti.platform import machine, paths
from ganeti.runbook import commands
from ganeti.utils import fs, process, ssh
from ganeti.wire import json

# A busy master daemon writes the configuration several times a second.
_READ_TRIES = 20


class LoginError(errors.OpExecError):
    """Root of this machine cannot log in to another one with SSH."""


class OtherCluster:
    """Another cluster, which is to be merged into this one.

    :param master: its master.
    :param name: its name.
    :param keep_fds: files which commands keep open until they end, for their locks.
    """

    def __init__(self, master: remote.RemoteNode, name: str, keep_fds: Sequence[int] = ()) -> None:
        self.name = name
        self.master = master
        self._keep_fds = keep_fds
        self._nodes = {master.name: master}

    def run(self, *argv: str, node: str | None = None, check: bool = True) -> process.Completed:
        """Run a program on a node; None for the master.

        :raises OpExecError: it cannot be started, or failed.
        """
        target = self.master if node is None else self._nodes[node]
        return run_on(target, argv, check=check, keep_fds=self._keep_fds)

    def read(self) -> ConfigData:
        """Read the configuration of the cluster from its master.

        :raises OpExecError: it cannot be fetched.
        :raises ConfigurationError: it cannot be understood.
        """
        return parse_config(self.read_text(), self.name)

    def read_text(self) -> str:
        """Read the text of the configuration, with the changes in its journal.

        :raises OpExecError: it cannot be fetched.
        """
        path = self.master.path(paths.current().cluster_conf_file)
        with tempfile.TemporaryDirectory(prefix="ganeti-merge-") as directory:
            copy = f"{directory}/config.data"
            for tries_left in reversed(range(_READ_TRIES)):
                self._copy_config(path, copy)
                try:
                    return files.read(copy).decode("utf-8")
                except files.OtherBaseError as err:
                    # Both may have been written between the two readings.
                    if not tries_left:
                        raise errors.OpExecError(
                            f"cannot read {files.journal_of(path)} on {self.master.name}:"
                            f" {err.strerror}"
                        ) from err
                    fs.remove_file(files.journal_of(copy))
        raise errors.ProgrammerError("the last try either returns or raises")

    def _copy_config(self, path: str, copy: str) -> None:
        """Copy the configuration of the cluster and its journal to this machine."""
        # The journal first, because what leaves it until the file is read is in the file then.
        journal = files.journal_of(path)
        done = self.run("cat", journal, check=False)
        if done.failed and not self.run("test", "-e", journal, check=False).failed:
            raise errors.OpExecError(f"cannot read {journal} on {self.master.name}")
        files.replace(copy, self.run("cat", path).stdout, mode=0o600)
        if not done.failed:
            fs.write_file(files.journal_of(copy), done.stdout, mode=0o600)

    def know(self, addresses: Mapping[str, str], ssh_ports: Mapping[str, int]) -> None:
        """Remember how the nodes are reached.

        :param addresses: node -> its primary IP address.
        :param ssh_ports: node -> the TCP port of its SSH server.
        """
        for name, address in addresses.items():
            if name != self.master.name:
                self._nodes[name] = remote.RemoteNode(name, address, port=ssh_ports.get(name))

    def trust(self, node: Node) -> None:
        """Let this cluster know the host keys which the administrator knows for a node.

        ``gnt-node add`` then asks no question about them.
        """
        if machine.current().neighbour_dir(node.name) is not None:
            return
        path = paths.current().known_hosts_file
        port = self._nodes[node.name].port
        mine = _content(os.path.expanduser("~/.ssh/known_hosts"))
        ours = _content(path)
        found = ssh.known_keys(mine, node.name, port)
        if found and not ssh.known_keys(ours, node.name, port):
            text = ssh.known_hosts_text(node.name, port, sorted(found))
            fs.write_file(path, ours + text, mode=0o644)


def find(name: str, keep_fds: Sequence[int] = (), port: int | None = None) -> OtherCluster:
    """Find a cluster by its name, or by the name of its master.

    :param port: TCP port of SSH on its master; None for the usual one.
    :param keep_fds: files which commands keep open until they end, for their locks.
    :raises OpPrereqError: it cannot be reached, or is none.
    """
    node = _find_virtual(name) or _remote(name, _resolve(name), port)
    here = paths.current()
    facts = {}
    for fact in (ssconf_const.MASTER_NODE, ssconf_const.CLUSTER_NAME):
        try:
            done = run_on(node, ["cat", node.path(here.ssconf_file(fact))])
        except LoginError as err:
            raise errors.OpPrereqError(str(err), errors.ECODE_ENVIRON) from err
        except errors.OpExecError as err:
            raise errors.OpPrereqError(
                f"{name} is not a cluster, or no node of one: {err}", errors.ECODE_ENVIRON
            ) from err
        facts[fact] = done.stdout.strip()
    master = facts[ssconf_const.MASTER_NODE]
    if master != node.name:
        node = _remote(master, _resolve(master), port)
    return OtherCluster(node, facts[ssconf_const.CLUSTER_NAME], keep_fds)


def recorded(record: Record, keep_fds: Sequence[int] = ()) -> OtherCluster:
    """Return the cluster of a merge which was interrupted.

    :param keep_fds: files which commands keep open until they end, for their locks.
    """
    master = _remote(
        record.master, record.addresses[record.master], record.ssh_ports.get(record.master)
    )
    found = OtherCluster(master, record.name, keep_fds)
    found.know(record.addresses, record.ssh_ports)
    return found


def run_on(
    node: remote.RemoteNode,
    argv: Sequence[str],
    *,
    check: bool = True,
    keep_fds: Sequence[int] = (),
) -> process.Completed:
    """Run a program on a node.

    :param keep_fds: files which it keeps open until it ends, for their locks.
    :param check: whether a failure of the program is an error.
    :raises LoginError: root cannot log in there, or the connection was lost.
    :raises OpExecError: it cannot be started, or failed.
    """
    try:
        done = node.run(shlex.join(argv), keep_fds=keep_fds)
    except errors.CommandError as err:
        raise errors.OpExecError(f"{node.name}: {err}") from err
    if done.exit_code == ssh.EXIT_FAILURE and done.argv[0] == "ssh":
        raise LoginError(
            f"root cannot log in to {node.name} with SSH:"
            f" {done.stderr.strip()[-1000:] or 'the connection was lost'}\n"
            f"'{process.show(_login(node))}' on this master must work without a question, with the"
            " host key of this name in ~/.ssh/known_hosts."
        )
    if check:
        commands.require_success(
            done,
            f"'{process.show(argv)}' on {node.name}",
            done.complaint,
        )
    return done


def _login(node: remote.RemoteNode) -> list[str]:
    """Return the command with which an administrator tries the login."""
    port = [] if node.port == ssh.PORT else [f"-p{node.port}"]
    return ["ssh", *port, f"root@{node.name}", "true"]


def parse_config(text: str, name: str) -> ConfigData:
    """Read the text of a configuration.

    :param name: name of the cluster, for messages.
    :raises ConfigurationError: it is not a configuration of this version, or of one before it.
    """
    try:
        return codec.from_dict(ConfigData, upgrade.upgrade(json.loads(text)))
    except errors.ParseError as err:
        raise errors.ConfigurationError(f"the configuration of {name}: {err}") from err


def _remote(name: str, address: str, port: int | None) -> remote.RemoteNode:
    return remote.RemoteNode(name, address, port=port)


def _resolve(name: str) -> str:
    try:
        return machine.current().resolve(name)
    except errors.ResolverError as err:
        raise errors.OpPrereqError(str(err), errors.ECODE_RESOLVER) from err


def _find_virtual(name: str) -> remote.RemoteNode | None:
    """Return the master of a cluster in the directory of a virtual cluster; None elsewhere."""
    me = machine.current().hostname()
    own = machine.current().neighbour_dir(me)
    if own is None:
        return None
    for node in sorted(os.listdir(os.path.dirname(own))):
        there = paths.Paths(f"{os.path.dirname(own)}/{node}")
        cluster = _content(there.ssconf_file(ssconf_const.CLUSTER_NAME)).strip()
        master = _content(there.ssconf_file(ssconf_const.MASTER_NODE)).strip()
        if node != me and node == master and name in (cluster, node, node.partition(".")[0]):
            return _remote(node, _resolve(node), None)
    return None


def _content(path: str) -> str:
    try:
        return fs.read_file(path)
    except (FileNotFoundError, NotADirectoryError):
        return ""
