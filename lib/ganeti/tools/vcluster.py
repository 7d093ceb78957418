"""A virtual cluster: N nodes under one directory and one ordinary user; the program ``vcluster``.

Each node is a directory that stands for its ``/`` and an address in 127.0.0.0/8; the daemons and
commands are the real ones. Nothing outside the directory changes: no root, no SSH, no
``/etc/hosts``. It serves as demonstration, scenario tests and rehearsal ground.

::

    <directory>/vcluster.json      what this is: network, nodes, hypervisor
    <directory>/hosts              names of the nodes and of the cluster
    <directory>/bin/               gnt-* and daemons, run as the master or as GANETI_HOSTNAME
    <directory>/shared/            the shared file storage of all nodes
    <directory>/tiny/, os/tiny/    boot image and OS definition of the example system
    <directory>/<node name>/       the root of that node

Two virtual clusters never meet: each takes a network 127.A.B.0/24 on which nobody listens. While
one is being created, it holds the network by an abstract socket, which leaves no file and ends
with the process. Creating is all or nothing.
"""

from __future__ import annotations

import argparse
import contextlib
import glob
import logging
import os
import platform
import random
import re
import shlex
import shutil
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

from ganeti import errors
from ganeti.tools import daemon_util
from ganeti.utils import filelock, fs, net, paths, process, retry, text
from ganeti.wire import json

DOMAIN = "example.com"
CLUSTER_NAME = f"cluster.{DOMAIN}"
MASTER_HOST_NUMBER = 250
MOST_NODES = 200

_STATE = "vcluster.json"
_STATE_VERSION = 1
_TRIES = 200
# Bounds a hang; a cluster of three takes a few seconds.
_COMMAND_S = 600.0
_DAEMONS = ("ganeti-masterd", "ganeti-rapi", "ganeti-kvmd", "ganeti-metad", "ganeti-confd",
            "ganeti-noded")
_NAME = re.compile(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*")

# A guest for rehearsal is small; the usual minimum of 1 GiB of disk would refuse it.
_BOUNDS = (
    "min:cpu-count=1,disk-count=0,disk-size=1,memory-size=1,nic-count=0,spindle-use=1"
    "/max:cpu-count=8,disk-count=16,disk-size=1048576,memory-size=32768,nic-count=8,spindle-use=12"
)
_STD = "cpu-count=1,disk-count=1,disk-size=16,memory-size=128,nic-count=1,spindle-use=1"


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


def _write(cluster: VirtualCluster) -> None:
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


def _full_environment(cluster: VirtualCluster, node: Node) -> dict[str, str]:
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


# --- programs of the cluster -------------------------------------------------------------------


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


def _write_programs(cluster: VirtualCluster) -> None:
    """Write the wrappers: ``bin/<program>`` for the cluster and ``<node>/cmd`` for one node."""
    directory = cluster.directory
    fs.make_dirs(f"{directory}/bin")
    fs.write_file(f"{directory}/enter.sh", _enter_script(cluster), mode=0o644, sync=False)
    for name, program in programs().items():
        # daemon-util is a shell script of its own; all others are Python.
        python = "" if name == "daemon-util" else f"{shlex.quote(sys.executable)} "
        fs.write_file(
            f"{directory}/bin/{name}",
            f"#!/bin/sh\n. {shlex.quote(directory)}/enter.sh\n"
            f'exec {python}{shlex.quote(program)} "$@"\n',
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


def _run(cluster: VirtualCluster, node: Node, *argv: str) -> process.Completed:
    """Run one of the cluster's programs on a node.

    :raises OpExecError: it failed; carries what it printed.
    """
    program = f"{cluster.directory}/bin/{argv[0]}"
    try:
        return process.run(
            [program, *argv[1:]],
            timeout_s=_COMMAND_S,
            env=environment(cluster, node),
            log=False,
        )
    except errors.CommandError as err:
        # Only the program's own words: init has more options than fit on a screen.
        short = " ".join(argv[:2])
        raise errors.OpExecError(f"{short} on {node.name}: {err.output.strip() or err}") from err


# --- choosing a network ------------------------------------------------------------------------


def _is_free(ip: str, port: int) -> bool:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        # Connections of an earlier cluster that are only being forgotten do not count.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((ip, port))
        except OSError:
            return False
    return True


@contextlib.contextmanager
def claimed_network(
    nodes: int, *, choose: Callable[[int, int], int] = random.randint
) -> Iterator[str]:
    """A network on which this cluster will be alone; nobody else gets it inside the block.

    :param nodes: how many addresses must be free.
    :raises ConfigurationError: none was found.
    """
    port = net.NODED_PORT
    for _ in range(_TRIES):
        network = f"127.{choose(1, 254)}.{choose(0, 254)}"
        claim = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
        with claim:
            try:
                claim.bind(f"\0ganeti-vcluster/{network}")
            except OSError:
                continue
            if all(_is_free(f"{network}.{number}", port) for number in range(1, nodes + 1)):
                yield network
                return
    raise errors.ConfigurationError(
        f"no network 127.A.B.0/24 where port {port} is free was found in {_TRIES} tries"
    )


# --- the steps of create -----------------------------------------------------------------------


def qemu_path() -> str | None:
    """QEMU for this machine's own kind of processor, or None when there is none."""
    return shutil.which(f"qemu-system-{platform.machine()}") or shutil.which("kvm")


def _say(message: str) -> None:
    print(message, flush=True)


def _make_node(cluster: VirtualCluster, node: Node, *, ssh: bool) -> None:
    """Lay out a node's directory, without credentials: those come by init and node add.

    :param ssh: with a host key, as an SSH server would have it.
    """
    here = cluster.paths(node)
    for directory, mode in (
        (here.data_dir, 0o755),
        (here.run_dir, 0o775),
        (here.log_dir, 0o770),
        (here.lock_dir, 0o755),
        (here.conf_dir, 0o755),
        (here.hooks_base_dir, 0o755),
        (here.to_local("/srv/ganeti/os"), 0o755),
        (here.to_local(paths.DEFAULT_FILE_STORAGE_DIR), 0o750),
    ):
        fs.make_dirs(directory, mode)
    os.symlink(
        f"{cluster.directory}/shared", here.to_local(paths.DEFAULT_SHARED_FILE_STORAGE_DIR)
    )
    fs.write_file(
        here.file_storage_paths_file,
        "# Directories that may hold disks of instances.\n"
        f"{paths.DEFAULT_FILE_STORAGE_DIR}\n{paths.DEFAULT_SHARED_FILE_STORAGE_DIR}\n",
        mode=0o644,
    )
    if ssh:
        fs.make_dirs(here.ssh_host_key_dir)
        process.run(
            ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", f"root@{node.name}", "-f",
             f"{here.ssh_host_key_dir}/ssh_host_ed25519_key"], timeout_s=_COMMAND_S, log=False)
    if os.path.isdir(f"{cluster.directory}/os/tiny"):
        os.symlink(f"{cluster.directory}/os/tiny", here.to_local("/srv/ganeti/os/tiny"))


def _install_tiny(cluster: VirtualCluster, *, build: bool) -> bool:
    """Put the example system into the cluster's directory.

    :param build: fetch and build its boot image when this checkout has none ready.
    :returns: whether it is there.
    :raises CommandError: building failed.
    """
    top = paths.project_dir()
    if top is None or not os.access(f"{top}/tools/tiny-image", os.X_OK):
        return False
    image = f"{cluster.directory}/tiny"
    ready = f"{top}/build/tiny"
    if os.path.exists(f"{ready}/boot.json"):
        shutil.copytree(ready, image)
    elif not build:
        return False
    process.run(
        [f"{top}/tools/tiny-image", "-o", image, "--install-os", f"{cluster.directory}/os/tiny"],
        timeout_s=_COMMAND_S,
        log=False,
    )
    return True


def kvm_parameters(cluster: VirtualCluster, qemu: str) -> dict[str, str]:
    """Hypervisor parameters for guests of an ordinary user on this machine."""
    found = {"kvm_path": qemu, "security_model": "none", "kernel_path": "", "initrd_path": ""}
    boot_file = f"{cluster.directory}/tiny/boot.json"
    if os.path.exists(boot_file):
        boot = json.loads(fs.read_file(boot_file))
        found.update({key: str(value) for key, value in boot.items()})
        # The image may have been copied from where it was built.
        found["kernel_path"] = f"{cluster.directory}/tiny/vmlinux"
        found["initrd_path"] = f"{cluster.directory}/tiny/initrd"
    return found


def _has_ssh(cluster: VirtualCluster) -> bool:
    """Was it made with ``--ssh``?"""
    return os.path.isdir(cluster.paths(cluster.nodes[0]).ssh_host_key_dir)


def init_argv(cluster: VirtualCluster, qemu: str | None) -> list[str]:
    """The ``gnt-cluster init`` of a virtual cluster."""
    hypervisors = ["fake"] if qemu is None else ["kvm", "fake"]
    if cluster.hypervisor == "fake":
        hypervisors.reverse()
    argv = [
        "gnt-cluster", "init",
        *([] if _has_ssh(cluster) else ["--no-ssh-init"]), "--no-etc-hosts",
        "--master-netdev", "lo",
        "--enabled-hypervisors", ",".join(hypervisors),
        "--enabled-disk-templates", "diskless,file,sharedfile",
        "--file-storage-dir", paths.DEFAULT_FILE_STORAGE_DIR,
        "--shared-file-storage-dir", paths.DEFAULT_SHARED_FILE_STORAGE_DIR,
        "--candidate-pool-size", "10",
        "--nic-parameters", "mode=user,link=",
        "--ipolicy-bounds-specs", _BOUNDS,
        "--ipolicy-std-specs", _STD,
        "--ipolicy-vcpu-ratio", "64",
        "--backend-parameters", "maxmem=128,minmem=96,vcpus=1",
    ]  # fmt: skip
    if qemu is not None:
        parameters = kvm_parameters(cluster, qemu)
        pairs = ",".join(f"{key}={value}" for key, value in sorted(parameters.items()))
        argv += ["--hypervisor-parameters", f"kvm:{pairs}"]
    return [*argv, cluster.cluster_name]


def create(
    directory: str,
    nodes: int,
    *,
    hypervisor: str | None = None,
    cluster_name: str = CLUSTER_NAME,
    tiny: bool | None = None,
    ssh: bool = False,
    keep_failed: bool = False,
    say: Callable[[str], None] = print,
) -> VirtualCluster:
    """Create a virtual cluster and start it; on any failure nothing is left.

    :param directory: must not exist, or be empty.
    :param hypervisor: the default one, ``kvm`` or ``fake``; None takes kvm when there is a QEMU.
    :param tiny: install the example system; None does so for kvm.
    :param ssh: let the cluster look after SSH keys, in the nodes' own directories.
    :param say: told what has been done, a line each.
    :raises ParameterError: a wrong argument.
    :raises OpExecError: a step failed; carries what it printed.
    """
    if not 1 <= nodes <= MOST_NODES:
        raise errors.ParameterError(f"a virtual cluster has 1 to {MOST_NODES} nodes, not {nodes}")
    if not _NAME.fullmatch(cluster_name) or cluster_name.startswith("node"):
        raise errors.ParameterError(f"'{cluster_name}' cannot be the name of a virtual cluster")
    qemu = qemu_path()
    if hypervisor == "kvm" and qemu is None:
        raise errors.ParameterError(
            "no QEMU is installed. Install qemu-system-x86 or use '--hypervisor fake'."
        )
    chosen = hypervisor or ("fake" if qemu is None else "kvm")
    directory = os.path.realpath(directory)
    existed = os.path.isdir(directory)
    if existed and os.listdir(directory) or os.path.lexists(directory) and not existed:
        raise errors.ParameterError(f"{directory} exists and is not empty")
    with claimed_network(nodes) as network:
        members = tuple(
            Node(f"node{number}.{DOMAIN}", f"{network}.{number}")
            for number in range(1, nodes + 1)
        )
        cluster = VirtualCluster(directory, cluster_name, network, chosen, members)
        try:
            _create(cluster, qemu, chosen == "kvm" if tiny is None else tiny, ssh, say)
        except BaseException:
            if keep_failed:
                say(f"what is there of it stays in {directory}")
                raise
            say("undoing")
            _end_processes(cluster)
            _remove_directory(directory, keep_top=existed)
            raise
    return cluster


def _create(
    cluster: VirtualCluster, qemu: str | None, tiny: bool, ssh: bool, say: Callable[[str], None]
) -> None:
    fs.make_dirs(cluster.directory)
    with _locked(cluster.directory):
        # First what it is, so that "destroy" knows it even if we are killed.
        _write(cluster)
        fs.make_dirs(f"{cluster.directory}/shared", 0o750)
        if _install_tiny(cluster, build=tiny):
            say("the OS definition 'tiny' is ready")
        build = _build_dir()
        if build is not None:
            _copy_facts(build, cluster.directory)
        for node in cluster.nodes:
            _make_node(cluster, node, ssh=ssh)
        _write_programs(cluster)
        first = cluster.nodes[0]
        _run(cluster, first, *init_argv(cluster, qemu))
        say(f"{cluster.cluster_name} with its master {first.name} at {first.ip}")
        for node in cluster.nodes[1:]:
            _add(cluster, node)
            say(f"{node.name} at {node.ip}")
        if build is not None:
            _copy_facts(cluster.directory, build)


def _build_dir() -> str | None:
    """Where this checkout keeps what was made once for all clusters; None without a checkout."""
    top = paths.project_dir()
    return None if top is None else f"{top}/build"


def _copy_facts(source: str, target: str) -> None:
    """Hand on what was found out about QEMU, which takes seconds where KVM is slow.

    The facts say themselves for which program and since which start of the machine they hold.
    """
    try:
        for path in glob.glob(f"{source}/.qemu-*"):
            known = f"{target}/{os.path.basename(path)}"
            content = fs.read_file(path)
            if not os.path.exists(known) or fs.read_file(known) != content:
                fs.make_dirs(target)
                fs.write_file(known, content, mode=0o644, sync=False)
    except OSError as err:
        # The checkout may belong to somebody else; then it is found out again.
        logging.debug("cannot hand on facts of QEMU: %s", err)


def _add(cluster: VirtualCluster, node: Node) -> None:
    chief = master(cluster)
    if chief is None:
        raise errors.ConfigurationError(f"{cluster.directory} has no master. Was it destroyed?")
    _run(cluster, chief, "gnt-node", "add", "--no-ssh-key-check", node.name)


@contextlib.contextmanager
def _locked(directory: str) -> Iterator[None]:
    """One command at a time changes a virtual cluster."""
    with filelock.FileLock(f"{directory}/.lock") as lock:
        try:
            lock.acquire(timeout_s=0)
        except errors.LockError as err:
            raise errors.LockError(f"another vcluster command works on {directory}") from err
        yield


# --- the other commands ------------------------------------------------------------------------


def add_node(directory: str, *, join: bool = True) -> Node:
    """Give a virtual cluster one more node; on failure it is as before.

    :param join: False only makes the machine, so that joining can be tried by hand.
    :raises ConfigurationError: no address is left or free.
    :raises OpExecError: ``gnt-node add`` failed; carries what it printed.
    """
    cluster = read(directory)
    with _locked(cluster.directory):
        cluster = read(directory)
        number = 1 + max(int(node.ip.rpartition(".")[2]) for node in cluster.nodes)
        if number > MOST_NODES:
            raise errors.ConfigurationError(f"{directory} has no address left for one more node")
        node = Node(f"node{number}.{DOMAIN}", f"{cluster.network}.{number}")
        if not _is_free(node.ip, net.NODED_PORT):
            raise errors.ConfigurationError(f"port {net.NODED_PORT} of {node.ip} is taken")
        bigger = cluster._replace(nodes=(*cluster.nodes, node))
        try:
            _make_node(bigger, node, ssh=_has_ssh(bigger))
            _write(bigger)
            _write_programs(bigger)
            if join:
                _add(bigger, node)
        except BaseException:
            _end_processes(bigger, only=node)
            _write(cluster)
            _remove_directory(bigger.root(node))
            raise
    return node


def start(directory: str) -> None:
    """Start the daemons that do not run: a node daemon per node, then the master's.

    :raises OpExecError: one cannot start; the others were still tried.
    """
    cluster = read(directory)
    with _locked(cluster.directory):
        failed: list[errors.OpExecError] = []
        for node in cluster.nodes:
            if not os.path.exists(cluster.paths(node).noded_cert_file):
                _say(f"{node.name} is not in the cluster")
                continue
            # Which daemons this node needs, it knows itself; those of the master come last.
            listed = _run(cluster, node, "daemon-util", "list-start-daemons")
            for daemon in listed.stdout.split():
                if daemon in daemon_util.MASTER_DAEMONS:
                    continue
                try:
                    _run(cluster, node, "daemon-util", "start", daemon)
                except errors.OpExecError as err:
                    failed.append(err)
        chief = master(cluster)
        if chief is not None:
            try:
                _run(cluster, chief, "daemon-util", "start-master")
            except errors.OpExecError as err:
                failed.append(err)
        if failed:
            raise failed[0]


def stop(directory: str) -> None:
    """Stop all daemons; guests go on running.

    :raises OpExecError: one cannot be stopped.
    """
    cluster = read(directory)
    with _locked(cluster.directory):
        # The master first: it must not take its nodes for broken.
        for daemons in (("stop-master",), ("stop-all",)):
            for node in cluster.nodes:
                _run(cluster, node, "daemon-util", *daemons)


def destroy(directory: str) -> None:
    """End everything that belongs to this virtual cluster and remove its directory."""
    cluster = read(directory)
    with _locked(cluster.directory):
        _end_processes(cluster)
        _remove_directory(cluster.directory)


def _remove_directory(directory: str, *, keep_top: bool = False) -> None:
    if not os.path.lexists(directory):
        return
    for name in os.listdir(directory):
        path = f"{directory}/{name}"
        if os.path.isdir(path) and not os.path.islink(path):
            shutil.rmtree(path)
        else:
            os.unlink(path)
    if not keep_top:
        os.rmdir(directory)


class _Process(NamedTuple):
    pid: int
    parent: int
    argv: tuple[str, ...]
    env: Mapping[str, str]


def _own_processes() -> list[_Process]:
    """Processes whose environment we may read: our own user's, or all for root."""
    found = []
    for name in os.listdir("/proc"):
        if not name.isdecimal():
            continue
        try:
            raw_argv = fs.read_bytes(f"/proc/{name}/cmdline")
            raw_env = fs.read_bytes(f"/proc/{name}/environ")
            stat = fs.read_bytes(f"/proc/{name}/stat")
        except (FileNotFoundError, ProcessLookupError, PermissionError):
            continue
        argv = tuple(os.fsdecode(word) for word in raw_argv.split(b"\0")[:-1])
        pairs = (os.fsdecode(word).partition("=") for word in raw_env.split(b"\0"))
        parent = int(stat.rpartition(b")")[2].split()[1])
        found.append(_Process(int(name), parent, argv, {key: value for key, _, value in pairs}))
    return found


def belongs(one: _Process, directory: str, root: str | None = None) -> bool:
    """Whether a process is a daemon or a guest of this virtual cluster.

    The environment alone proves nothing: an editor started from a shell that sits in the cluster
    has it too. A daemon also names its program, a guest names files below the directory.
    """
    if not one.argv:
        return False
    place = root or directory
    if os.path.basename(one.argv[0]).startswith(("qemu-system-", "kvm")):
        return any(f"{place}/" in word for word in one.argv[1:])
    if one.env.get(paths.ENV_VCLUSTER) != directory:
        return False
    if root is not None and one.env.get(paths.ENV_ROOT) != root:
        return False
    return any(os.path.basename(word) in _DAEMONS for word in one.argv[:3])


def _end_processes(cluster: VirtualCluster, only: Node | None = None) -> None:
    """End the daemons and guests of a cluster or of one node, and what the daemons started."""
    root = cluster.root(only) if only is not None else None
    running = _own_processes()
    doomed = {one.pid for one in running if belongs(one, cluster.directory, root)}
    # OS scripts and hooks run below a node daemon.
    grown = True
    while grown:
        children = {one.pid for one in running if one.parent in doomed}
        grown = not children <= doomed
        doomed |= children
    doomed -= {os.getpid(), os.getppid()}
    for number in (signal.SIGTERM, signal.SIGKILL):
        for pid in doomed:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)

        def gone() -> None:
            if any(process.is_alive(pid) for pid in doomed):
                raise retry.Again

        try:
            retry.until(gone, timeout_s=10, delay=(0.01, 1.5, 0.2))
            return
        except errors.RetryTimeout:
            continue
    left = text.comma_join(pid for pid in sorted(doomed) if process.is_alive(pid))
    raise errors.CommandError(f"processes {left} of {cluster.directory} cannot be ended")


def show(directory: str) -> str:
    """A table of the nodes and what runs on them."""
    cluster = read(directory)
    chief = master(cluster)
    rows = [("Node", "Address", "Role", "Daemons", "Guests")]
    for node in cluster.nodes:
        here = cluster.paths(node)
        role = "master" if node == chief else "node"
        if not os.path.exists(here.noded_cert_file):
            role = "not in the cluster"
        daemons = [name for name in _DAEMONS if filelock.is_locked(here.pid_file(name))]
        pid_dir = f"{here.kvm_root}/pid"
        guests = fs.list_visible(pid_dir) if os.path.isdir(pid_dir) else []
        rows.append(
            (node.name, node.ip, role, " ".join(daemons) or "none", " ".join(guests) or "none")
        )
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = [
        f"{cluster.cluster_name} in {cluster.directory}, network {cluster.network}.0/24, "
        f"default hypervisor {cluster.hypervisor}"
    ]
    for row in rows:
        cells = (f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True))
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines)


def exports(directory: str, node_name: str | None = None) -> str:
    """Shell lines to ``eval``: the gnt-* commands then act on this cluster."""
    cluster = read(directory)
    node = cluster.node(node_name) if node_name else master(cluster) or cluster.nodes[0]
    chosen = environment(cluster, node)
    # Only the programs need the library, and they find it themselves.
    del chosen["PYTHONPATH"]
    lines = [f"export {key}={shlex.quote(value)}" for key, value in sorted(chosen.items())]
    lines.append(f"export PATH={shlex.quote(cluster.directory + '/bin')}:\"$PATH\"")
    return "\n".join(lines)


def run(directory: str, argv: Sequence[str], node_name: str | None = None) -> None:
    """Become a program inside the cluster; returns only when it cannot be started.

    :raises CommandError: there is no such program.
    """
    cluster = read(directory)
    node = cluster.node(node_name) if node_name else master(cluster) or cluster.nodes[0]
    env = _full_environment(cluster, node)
    try:
        os.execvpe(argv[0], list(argv), env)
    except OSError as err:
        raise errors.CommandError(
            argv, 127, reason=f"cannot be started: {err.strerror}"
        ) from err


# --- command line ------------------------------------------------------------------------------


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="vcluster", description="A cluster of many nodes on this machine, without root."
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")

    def command(name: str, words: str) -> argparse.ArgumentParser:
        return commands.add_parser(name, help=words, description=words.capitalize() + ".")

    one = command("create", "make a cluster and start it")
    one.add_argument("-n", "--nodes", type=int, default=3, help="how many nodes (default 3)")
    one.add_argument(
        "--hypervisor", choices=("kvm", "fake"), help="the default one (kvm where QEMU is)"
    )
    one.add_argument("--name", default=CLUSTER_NAME, help="name of the cluster (%(default)s)")
    one.add_argument(
        "--tiny", action=argparse.BooleanOptionalAction, help="install the OS definition 'tiny'"
    )
    one.add_argument(
        "--ssh", action="store_true", help="let the cluster look after SSH keys of the nodes"
    )
    one.add_argument(
        "--keep-failed", action="store_true", help="leave what there is when creating fails"
    )
    one.add_argument("directory")
    for name, words in (
        ("start", "start the daemons that do not run"),
        ("stop", "stop the daemons; guests go on"),
        ("show", "show nodes and what runs there"),
        ("destroy", "end guests and daemons, remove the directory"),
        ("add-node", "add one more node; prints its name last"),
    ):
        one = command(name, words)
        one.add_argument("directory")
        if name == "add-node":
            one.add_argument(
                "--machine-only", action="store_true", help="only make it, outside the cluster"
            )
    for name, words in (
        ("env", 'print exports, for: eval "$(vcluster env DIRECTORY)"'),
        ("run", "run a program inside the cluster"),
    ):
        one = command(name, words)
        one.add_argument("--node", help="as this node (default: the master)")
        one.add_argument("directory")
        if name == "run":
            one.add_argument("argv", nargs=argparse.REMAINDER, metavar="PROGRAM [ARGUMENT...]")
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit code."""
    parser = _parser()
    options = parser.parse_args(argv)
    # A shell inside another virtual cluster must not decide where this one looks.
    for name in (paths.ENV_ROOT, paths.ENV_HOSTNAME, paths.ENV_VCLUSTER):
        os.environ.pop(name, None)
    try:
        _dispatch(parser, options)
    except (errors.GenericError, OSError) as err:
        print(f"vcluster: {err}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("vcluster: interrupted", file=sys.stderr)
        return 130
    return 0


def _dispatch(parser: argparse.ArgumentParser, options: argparse.Namespace) -> None:
    started = time.monotonic()
    directory = options.directory
    if options.command == "create":
        cluster = create(
            directory,
            options.nodes,
            hypervisor=options.hypervisor,
            cluster_name=options.name,
            tiny=options.tiny,
            ssh=options.ssh,
            keep_failed=options.keep_failed,
            say=_say,
        )
        _say(f"{options.nodes} nodes in {time.monotonic() - started:.1f} s. To use them:")
        _say(f'    eval "$({shlex.quote(_myself())} env {shlex.quote(cluster.directory)})"')
    elif options.command == "add-node":
        _say(add_node(directory, join=not options.machine_only).name)
    elif options.command == "show":
        _say(show(directory))
    elif options.command == "env":
        _say(exports(directory, options.node))
    elif options.command == "run":
        if not options.argv:
            parser.error("no program given")
        run(directory, options.argv, options.node)
    else:
        {"start": start, "stop": stop, "destroy": destroy}[options.command](directory)


def _myself() -> str:
    top = paths.project_dir()
    return f"{top}/tools/vcluster" if top else "vcluster"


if __name__ == "__main__":
    sys.exit(main())
