"""The description of a virtual cluster on disk, its nodes, and the environment of its programs."""

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
# Limit for commands that hang; creating a cluster of three nodes takes a few seconds.
COMMAND_S = 600.0
NAME = re.compile(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*")


class Node(NamedTuple):
    """A node of a virtual cluster."""

    name: str
    ip: str


class VirtualCluster(NamedTuple):
    """The content of ``vcluster.json``."""

    directory: str
    cluster_name: str
    network: str  # the first three numbers, "127.12.34"
    hypervisor: str  # the default hypervisor
    nodes: tuple[Node, ...]
    watch_every_s: int = 0  # seconds between two runs of the watcher; 0 for no runs

    def node(self, name: str) -> Node:
        """Find a node by its full or short name.

        :raises ParameterError: the node does not exist.
        """
        full = text.match_name_component(name, [node.name for node in self.nodes])
        for node in self.nodes:
            if node.name == full:
                return node
        known = text.comma_join(node.name for node in self.nodes)
        raise errors.ParameterError(f"no node '{name}' in {self.directory}. The nodes are {known}.")

    def root(self, node: Node) -> str:
        """Return the directory which stands for the ``/`` of a node."""
        return f"{self.directory}/{node.name}"

    def paths(self, node: Node) -> paths.Paths:
        """Return the paths of the files of a node."""
        return paths.Paths(self.root(node))


def read(directory: str) -> VirtualCluster:
    """Read the description of a virtual cluster.

    :raises ParameterError: the directory does not contain a virtual cluster.
    :raises ConfigurationError: the description is wrong.
    """
    directory = os.path.realpath(directory)
    state_file = f"{directory}/{_STATE}"
    try:
        content = fs.read_file(state_file)
    except (FileNotFoundError, NotADirectoryError):
        raise errors.ParameterError(
            f"{directory} is not a virtual cluster. 'vcluster create' creates one."
        ) from None
    try:
        state = json.loads(content)
        if state["version"] != _STATE_VERSION:
            raise errors.ConfigurationError(f"{state_file} is of version {state['version']}")
        nodes = tuple(Node(str(name), str(ip)) for name, ip in state["nodes"])
        return VirtualCluster(
            directory,
            state["cluster_name"],
            state["network"],
            state["hypervisor"],
            nodes,
            int(state.get("watch_every_s", 0)),
        )
    except (KeyError, TypeError, ValueError, errors.ParseError) as err:
        raise errors.ConfigurationError(f"the content of {state_file} is wrong: {err!r}") from err


def write(cluster: VirtualCluster) -> None:
    """Write the description of a virtual cluster, and its file ``hosts``."""
    state = {
        "version": _STATE_VERSION,
        "cluster_name": cluster.cluster_name,
        "network": cluster.network,
        "hypervisor": cluster.hypervisor,
        "watch_every_s": cluster.watch_every_s,
        "nodes": [[node.name, node.ip] for node in cluster.nodes],
    }
    fs.write_file(f"{cluster.directory}/hosts", hosts_text(cluster), mode=0o644)
    fs.write_file(f"{cluster.directory}/{_STATE}", json.dumps(state) + "\n", mode=0o644)


def hosts_text(cluster: VirtualCluster) -> str:
    """Return the text of the file ``hosts``: a line for each node, and one for the cluster."""
    lines = [f"{node.ip}\t{node.name} {node.name.partition('.')[0]}" for node in cluster.nodes]
    lines.append(f"{cluster.network}.{MASTER_HOST_NUMBER}\t{cluster.cluster_name}")
    return "\n".join(lines) + "\n"


def environment(cluster: VirtualCluster, node: Node) -> dict[str, str]:
    """Return the variables of the environment by which a process belongs to a node."""
    lib = os.path.dirname(paths.package_dir())
    return {
        paths.ENV_VCLUSTER: cluster.directory,
        paths.ENV_HOSTNAME: node.name,
        paths.ENV_ROOT: cluster.root(node),
        "PYTHONPATH": lib,
    }


def full_environment(cluster: VirtualCluster, node: Node) -> dict[str, str]:
    """Return the environment of this process, changed for a node.

    The programs of the virtual cluster come first in ``PATH``.
    """
    env = dict(os.environ)
    env.update(environment(cluster, node))
    env["PATH"] = f"{cluster.directory}/bin:{env.get('PATH') or process.DEFAULT_PATH}"
    return env


def master(cluster: VirtualCluster) -> Node | None:
    """Return the node which most nodes have as the master in their ssconf files.

    The result is None before ``gnt-cluster init`` and after ``gnt-cluster destroy``.
    """
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


#: The programs of htools.
_HTOOLS = frozenset(
    (
        "hail", "harep", "hbal", "hcheck", "hinfo", "hroller", "hscan", "hspace", "hsqueeze",
        "htools",
    )
)  # fmt: skip


def programs() -> dict[str, str]:
    """Return the path of each command and daemon of this checkout or installation, by name."""
    top = paths.project_dir()
    places = [f"{top}/scripts", f"{top}/daemons"] if top else [paths.daemon_dir()]
    found: dict[str, str] = {"daemon-util": paths.daemon_util()}
    for tool in ("burnin", "rapi-passwd"):
        found[tool] = paths.administrator_tool(tool)
    for place in places:
        for name in fs.list_visible(place) if os.path.isdir(place) else []:
            if (name.startswith(("gnt-", "ganeti-")) or name in _HTOOLS) and os.access(
                f"{place}/{name}", os.X_OK
            ):
                found[name] = f"{place}/{name}"
    return found


def _enter_script(cluster: VirtualCluster) -> str:
    """Return shell lines which set the environment for a node.

    The node is ``GANETI_HOSTNAME`` if that is set for this virtual cluster; otherwise the master.
    """
    first = cluster.nodes[0].name
    return f"""\
# The programs in bin/ read this file. The node is GANETI_HOSTNAME if set, otherwise the master.
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
# A node may have a version of its own ("vcluster add-version"); then its programs are those.
version=
if [ -L "$GANETI_ROOTDIR/etc/ganeti/version" ]; then
    version=$(readlink -f "$GANETI_ROOTDIR/etc/ganeti/version")
    PYTHONPATH=$version/python
    [ -d "$PYTHONPATH" ] || PYTHONPATH=$version/lib
fi
# Sets "program" to the one with this name in the version of the node.
choose() {{
    [ -n "$version" ] || return 0
    for place in sbin . scripts daemons tools; do
        if [ -f "$version/$place/$1" ]; then
            program=$version/$place/$1
            return 0
        fi
    done
    echo "$1: the version of $GANETI_HOSTNAME does not have this program" >&2
    exit 127
}}
export GANETI_VCLUSTER GANETI_HOSTNAME GANETI_ROOTDIR PYTHONPATH
"""


def write_programs(cluster: VirtualCluster) -> None:
    """Write the wrappers: ``bin/<program>`` for the cluster, and ``<node>/cmd`` for each node."""
    directory = cluster.directory
    fs.make_dirs(f"{directory}/bin")
    fs.write_file(f"{directory}/enter.sh", _enter_script(cluster), mode=0o644, sync=False)
    for name, program in programs().items():
        fs.write_file(
            f"{directory}/bin/{name}",
            f"#!/bin/sh\n. {shlex.quote(directory)}/enter.sh\n"
            f"program={shlex.quote(program)}\nchoose {shlex.quote(name)}\n"
            f'exec {shlex.quote(sys.executable)} "$program" "$@"\n',
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
    """Run a program of the cluster on a node.

    :raises OpExecError: the program failed; the message has its output.
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
        # The options are left out of the message: init has too many of them.
        short = " ".join(argv[:2])
        raise errors.OpExecError(f"{short} on {node.name}: {err.problem}") from err


def say(message: str) -> None:
    """Print a line of progress at once."""
    print(message, flush=True)


@contextlib.contextmanager
def locked(directory: str) -> Iterator[None]:
    """Lock a virtual cluster during the block.

    :raises LockError: another command changes the virtual cluster.
    """
    with filelock.FileLock(f"{directory}/.lock") as lock:
        try:
            lock.acquire(timeout_s=0)
        except errors.LockError as err:
            raise errors.LockError(f"another vcluster command changes {directory}") from err
        yield
