"""What a virtual cluster is: its description on disk, its nodes, and how a program enters one."""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import sys
from collections.abc import Iterator
from typing import NamedTuple

from ganeti import errors
from ganeti.platform import paths
from ganeti.utils import filelock, fs, process, text
from ganeti.wire import json

DOMAIN = "example.com"
CLUSTER_NAME = f"cluster.{DOMAIN}"
MASTER_HOST_NUMBER = 250
MOST_NODES = 200
_STATE = "vcluster.json"
_STATE_VERSION = 1
# Bounds a hang; a cluster of three takes a few seconds.
COMMAND_S = 600.0
NAME = re.compile(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*")


class Node(NamedTuple):
    """One virtual node."""

    name: str
    ip: str


class VirtualCluster(NamedTuple):
    """What ``vcluster.json`` says."""

    directory: str
    cluster_name: str
    network: str  # the first three numbers, "127.12.34"
    hypervisor: str  # the default one
    nodes: tuple[Node, ...]

    def node(self, name: str) -> Node:
        """A node by full or short name.

        :raises ParameterError: no such node.
        """
        full = text.match_name_component(name, [node.name for node in self.nodes])
        for node in self.nodes:
            if node.name == full:
                return node
        known = text.comma_join(node.name for node in self.nodes)
        raise errors.ParameterError(f"no node '{name}' in {self.directory}. There are {known}.")

    def root(self, node: Node) -> str:
        """Directory that stands for the node's ``/``."""
        return f"{self.directory}/{node.name}"

    def paths(self, node: Node) -> paths.Paths:
        """The node's files."""
        return paths.Paths(self.root(node))


def read(directory: str) -> VirtualCluster:
    """Load the description of a virtual cluster.

    :raises ParameterError: the directory holds none.
    :raises ConfigurationError: its description cannot be understood.
    """
    directory = os.path.realpath(directory)
    state_file = f"{directory}/{_STATE}"
    try:
        content = fs.read_file(state_file)
    except (FileNotFoundError, NotADirectoryError):
        raise errors.ParameterError(
            f"{directory} is not a virtual cluster. Make one with 'vcluster create'."
        ) from None
    try:
        state = json.loads(content)
        if state["version"] != _STATE_VERSION:
            raise errors.ConfigurationError(f"{state_file} is of version {state['version']}")
        nodes = tuple(Node(str(name), str(ip)) for name, ip in state["nodes"])
        return VirtualCluster(
            directory, state["cluster_name"], state["network"], state["hypervisor"], nodes
        )
    except (KeyError, TypeError, ValueError, errors.ParseError) as err:
        raise errors.ConfigurationError(f"cannot understand {state_file}: {err!r}") from err


def write(cluster: VirtualCluster) -> None:
    """Write down what it is."""
    state = {
        "version": _STATE_VERSION,
        "cluster_name": cluster.cluster_name,
        "network": cluster.network,
        "hypervisor": cluster.hypervisor,
        "nodes": [[node.name, node.ip] for node in cluster.nodes],
    }
    fs.write_file(f"{cluster.directory}/hosts", hosts_text(cluster), mode=0o644)
    fs.write_file(f"{cluster.directory}/{_STATE}", json.dumps(state) + "\n", mode=0o644)


def hosts_text(cluster: VirtualCluster) -> str:
    """The ``hosts`` file: a line per node and one for the cluster's own address."""
    lines = [f"{node.ip}\t{node.name} {node.name.partition('.')[0]}" for node in cluster.nodes]
    lines.append(f"{cluster.network}.{MASTER_HOST_NUMBER}\t{cluster.cluster_name}")
    return "\n".join(lines) + "\n"


def environment(cluster: VirtualCluster, node: Node) -> dict[str, str]:
    """The variables that make a process belong to a node."""
    lib = os.path.dirname(paths.package_dir())
    return {
        paths.ENV_VCLUSTER: cluster.directory,
        paths.ENV_HOSTNAME: node.name,
        paths.ENV_ROOT: cluster.root(node),
        "PYTHONPATH": lib,
    }


def full_environment(cluster: VirtualCluster, node: Node) -> dict[str, str]:
    """Our own environment, made that of a node; its programs come first on the path."""
    env = dict(os.environ)
    env.update(environment(cluster, node))
    env["PATH"] = f"{cluster.directory}/bin:{env.get('PATH') or process.DEFAULT_PATH}"
    return env


def master(cluster: VirtualCluster) -> Node | None:
    """The node that the nodes' own files call the master, or None before init and after destroy."""
    votes: dict[str, int] = {}
    for node in cluster.nodes:
        with contextlib.suppress(FileNotFoundError):
            name = fs.read_file(cluster.paths(node).ssconf_file("master_node")).strip()
            votes[name] = votes.get(name, 0) + 1
    for name in sorted(votes, key=lambda one: -votes[one]):
        for node in cluster.nodes:
            if node.name == name:
                return node
    return None


def programs() -> dict[str, str]:
    """Name -> file of every command and daemon this checkout or installation has."""
    top = paths.project_dir()
    places = [f"{top}/scripts", f"{top}/daemons"] if top else [paths.daemon_dir()]
    found: dict[str, str] = {"daemon-util": paths.daemon_util()}
    for place in places:
        for name in fs.list_visible(place) if os.path.isdir(place) else []:
            if name.startswith(("gnt-", "ganeti-")) and os.access(f"{place}/{name}", os.X_OK):
                found[name] = f"{place}/{name}"
    return found


def _enter_script(cluster: VirtualCluster) -> str:
    """Shell lines that put a program on a node: the one already chosen, else the master."""
    first = cluster.nodes[0].name
    return f"""\
# Sourced by the programs beside this directory. The node is GANETI_HOSTNAME, else the master.
vc={shlex.quote(cluster.directory)}
if [ "${{GANETI_VCLUSTER:-}}" != "$vc" ] || [ -z "${{GANETI_HOSTNAME:-}}" ]; then
    GANETI_HOSTNAME={shlex.quote(first)}
    for file in "$vc"/*/var/lib/ganeti/ssconf_master_node; do
        [ -r "$file" ] && read -r GANETI_HOSTNAME <"$file" && break
    done
fi
GANETI_VCLUSTER=$vc
GANETI_ROOTDIR=$vc/$GANETI_HOSTNAME
PYTHONPATH={shlex.quote(os.path.dirname(paths.package_dir()))}
export GANETI_VCLUSTER GANETI_HOSTNAME GANETI_ROOTDIR PYTHONPATH
"""


def write_programs(cluster: VirtualCluster) -> None:
    """Write the wrappers: ``bin/<program>`` for the cluster and ``<node>/cmd`` for one node."""
    directory = cluster.directory
    fs.make_dirs(f"{directory}/bin")
    fs.write_file(f"{directory}/enter.sh", _enter_script(cluster), mode=0o644, sync=False)
    for name, program in programs().items():
        fs.write_file(
            f"{directory}/bin/{name}",
            f"#!/bin/sh\n. {shlex.quote(directory)}/enter.sh\n"
            f'exec {shlex.quote(sys.executable)} {shlex.quote(program)} "$@"\n',
            mode=0o755,
            sync=False,
        )
    for node in cluster.nodes:
        fs.write_file(
            f"{cluster.root(node)}/cmd",
            f"#!/bin/sh\n# Runs a program as {node.name}:  cmd PROGRAM [ARGUMENT...]\n"
            f"GANETI_VCLUSTER={shlex.quote(directory)}\nGANETI_HOSTNAME={node.name}\n"
            f". {shlex.quote(directory)}/enter.sh\nPATH=$vc/bin:$PATH\nexport PATH\n"
            'exec "$@"\n',
            mode=0o755,
            sync=False,
        )


def run_in(cluster: VirtualCluster, node: Node, *argv: str) -> process.Completed:
    """Run one of the cluster's programs on a node.

    :raises OpExecError: it failed; carries what it printed.
    """
    program = f"{cluster.directory}/bin/{argv[0]}"
    try:
        return process.run(
            [program, *argv[1:]],
            timeout_s=COMMAND_S,
            env=environment(cluster, node),
            log=False,
        )
    except errors.CommandError as err:
        # Only the program's own words: init has more options than fit on a screen.
        short = " ".join(argv[:2])
        raise errors.OpExecError(f"{short} on {node.name}: {err.output.strip() or err}") from err


def say(message: str) -> None:
    """Tell the user how far it is."""
    print(message, flush=True)


@contextlib.contextmanager
def locked(directory: str) -> Iterator[None]:
    """One command at a time changes a virtual cluster."""
    with filelock.FileLock(f"{directory}/.lock") as lock:
        try:
            lock.acquire(timeout_s=0)
        except errors.LockError as err:
            raise errors.LockError(f"another vcluster command works on {directory}") from err
        yield
