"""Operates a virtual cluster: starts and stops its daemons, shows it, and destroys it."""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
import signal
from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from ganeti import errors
from ganeti.hypervisor.chroot import parse as mount_points
from ganeti.objects import hypervisors
from ganeti.platform import paths
from ganeti.tools import daemon_util
from ganeti.utils import filelock, fs, process, retry, text
from ganeti.vcluster import watcher_timer
from ganeti.vcluster.description import (
    Node,
    VirtualCluster,
    environment,
    full_environment,
    locked,
    master,
    read,
    run_in,
    say,
)

_DAEMONS = (
    "ganeti-watchdogd",
    "ganeti-failoverd",
    "ganeti-masterd",
    "ganeti-rapi",
    "ganeti-kvmd",
    "ganeti-metad",
    "ganeti-mond",
    "ganeti-confd",
    "ganeti-noded",
)
_MOUNTS = "/proc/self/mounts"
_UNMOUNT_S = 60.0
_WATCHER = "ganeti-watcher"
_GUEST_PROGRAMS = tuple(
    program for hypervisor in hypervisors.ALL.values() for program in hypervisor.guest_programs
)
_GUEST_TITLES = tuple(
    title for hypervisor in hypervisors.ALL.values() for title in hypervisor.guest_titles
)


def start(directory: str) -> None:
    """Start the daemons which do not run, those of the master last.

    :raises OpExecError: a daemon could not be started; the other ones were started nevertheless.
    """
    cluster = read(directory)
    with locked(cluster.directory):
        failed: list[errors.OpExecError] = []
        for node in cluster.nodes:
            if not os.path.exists(cluster.paths(node).noded_cert_file):
                say(f"{node.name} is not a node of the cluster yet")
                continue
            # The node decides which daemons it needs; the daemons of the master come last.
            listed = run_in(cluster, node, "daemon-util", "list-start-daemons")
            for daemon in listed.stdout.split():
                if daemon in daemon_util.MASTER_DAEMONS:
                    continue
                try:
                    run_in(cluster, node, "daemon-util", "start", daemon)
                except errors.OpExecError as err:
                    failed.append(err)
        chief = master(cluster)
        if chief is not None:
            try:
                run_in(cluster, chief, "daemon-util", "start-master")
            except errors.OpExecError as err:
                failed.append(err)
        watcher_timer.start(cluster)
        if failed:
            raise failed[0]


def stop(directory: str) -> None:
    """Stop all daemons; guests continue to run.

    :raises OpExecError: a daemon could not be stopped.
    """
    cluster = read(directory)
    with locked(cluster.directory):
        _end_watchers(cluster)
        # The master stops first, because it would treat nodes without daemons as broken. Before it
        # the daemons stop which would move its role, and those which need it to end.
        for daemons in (
            ("stop", "ganeti-watchdogd"),
            ("stop", "ganeti-failoverd"),
            ("stop-master",),
            ("stop-all",),
        ):
            for node in cluster.nodes:
                run_in(cluster, node, "daemon-util", *daemons)


def destroy(directory: str) -> None:
    """End all processes of a virtual cluster, and remove its directory."""
    cluster = read(directory)
    with locked(cluster.directory):
        _end_watchers(cluster)
        end_processes(cluster)
        _unmount(cluster.directory)
        remove_directory(cluster.directory)


def _unmount(directory: str) -> None:
    """Unmount the disks of guests which are directories (hypervisor ``chroot``).

    :raises CommandError: one is in use.
    """
    points = mount_points.parse_mount_points(fs.read_file(_MOUNTS))
    for point in mount_points.below(points, directory):
        process.run(["umount", "--", point], timeout_s=_UNMOUNT_S)


def _end_watchers(cluster: VirtualCluster) -> None:
    """End the timer and the watchers, which would start daemons again.

    :raises CommandError: a process could not be ended.
    """
    pid = watcher_timer.running(cluster)
    if pid is not None:
        _end({pid}, cluster)
    _end(
        {
            one.pid
            for one in _own_processes()
            if one.env.get(paths.ENV_VCLUSTER) == cluster.directory
            and any(os.path.basename(word) == _WATCHER for word in one.argv[:3])
        },
        cluster,
    )


def remove_directory(directory: str, *, keep_top: bool = False) -> None:
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
    root: str = "/"


def _own_processes() -> list[_Process]:
    """List the processes whose environment this process may read: of its user, or all for root."""
    found = []
    for name in os.listdir("/proc"):
        if not name.isdecimal():
            continue
        try:
            raw_argv = fs.read_bytes(f"/proc/{name}/cmdline")
            raw_env = fs.read_bytes(f"/proc/{name}/environ")
            stat = fs.read_bytes(f"/proc/{name}/stat")
            root = os.readlink(f"/proc/{name}/root")
        except (FileNotFoundError, ProcessLookupError, PermissionError):
            continue
        argv = tuple(os.fsdecode(word) for word in raw_argv.split(b"\0")[:-1])
        pairs = (os.fsdecode(word).partition("=") for word in raw_env.split(b"\0"))
        parent = int(stat.rpartition(b")")[2].split()[1])
        env = {key: value for key, _, value in pairs}
        found.append(_Process(int(name), parent, argv, env, root))
    return found


def belongs(one: _Process, directory: str, root: str | None = None) -> bool:
    """Check whether a process is a daemon or a guest of a virtual cluster.

    The environment alone does not decide: an editor which was started from a shell of the cluster
    has it, too. A daemon also has its program in its arguments, and a guest has files of the
    directory, or its root file system is mounted there.

    :param directory: directory of the virtual cluster.
    :param root: root directory of one node, to check for this node only.
    """
    if not one.argv:
        return False
    place = root or directory
    if one.root.startswith(f"{place}/"):
        return True
    if os.path.basename(one.argv[0]).startswith(_GUEST_PROGRAMS):
        return any(f"{place}/" in word for word in one.argv[1:])
    if one.argv[0].startswith(_GUEST_TITLES):
        return f"{place}/" in one.argv[0]
    if one.env.get(paths.ENV_VCLUSTER) != directory:
        return False
    if root is not None and one.env.get(paths.ENV_ROOT) != root:
        return False
    return any(os.path.basename(word) in _DAEMONS for word in one.argv[:3])


def end_processes(cluster: VirtualCluster, only: Node | None = None) -> None:
    """End the daemons and guests of a cluster, and all programs which the daemons started.

    :param only: end the processes of this node only.
    :raises CommandError: a process could not be ended.
    """
    root = cluster.root(only) if only is not None else None
    running = _own_processes()
    doomed = {one.pid for one in running if belongs(one, cluster.directory, root)}
    # OS scripts and hooks are children of a node daemon.
    grown = True
    while grown:
        children = {one.pid for one in running if one.parent in doomed}
        grown = not children <= doomed
        doomed |= children
    _end(doomed - {os.getpid(), os.getppid()}, cluster)


def _end(pids: Collection[int], cluster: VirtualCluster) -> None:
    for number in (signal.SIGTERM, signal.SIGKILL):
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)

        def gone() -> None:
            if any(process.is_alive(pid) for pid in pids):
                raise retry.Again

        try:
            retry.until(gone, timeout_s=10, delay=(0.01, 1.5, 0.2))
            return
        except errors.RetryTimeout:
            continue
    left = text.comma_join(pid for pid in sorted(pids) if process.is_alive(pid))
    raise errors.CommandError(
        f"processes {left} of the virtual cluster in {cluster.directory} cannot be ended"
    )


def show(directory: str) -> str:
    """Return a table of the nodes with their daemons and guests."""
    cluster = read(directory)
    chief = master(cluster)
    rows = [("Node", "Address", "Role", "Daemons", "Guests")]
    for node in cluster.nodes:
        here = cluster.paths(node)
        role = "master" if node == chief else "node"
        if not os.path.exists(here.noded_cert_file):
            role = "not in the cluster"
        daemons = [name for name in _DAEMONS if filelock.is_locked(here.pid_file(name))]
        # A directory of each hypervisor has a file for each of its guests.
        guests = [
            name
            for directory in (f"{here.kvm_root}/pid", here.fake_root)
            if os.path.isdir(directory)
            for name in fs.list_visible(directory)
        ]
        rows.append(
            (
                node.name,
                node.ip,
                role,
                " ".join(daemons) or "none",
                " ".join(sorted(guests)) or "none",
            )
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
    """Return shell lines for ``eval``; the gnt-* commands of that shell then use this cluster."""
    cluster = read(directory)
    node = cluster.node(node_name) if node_name else master(cluster) or cluster.nodes[0]
    chosen = environment(cluster, node)
    # The programs find the library themselves.
    del chosen["PYTHONPATH"]
    lines = [f"export {key}={shlex.quote(value)}" for key, value in sorted(chosen.items())]
    lines.append(f'export PATH={shlex.quote(cluster.directory + "/bin")}:"$PATH"')
    return "\n".join(lines)


def run(directory: str, argv: Sequence[str], node_name: str | None = None) -> None:
    """Replace this process by a program which runs on a node of the cluster.

    :raises CommandError: the program cannot be started.
    """
    cluster = read(directory)
    node = cluster.node(node_name) if node_name else master(cluster) or cluster.nodes[0]
    env = full_environment(cluster, node)
    try:
        os.execvpe(argv[0], list(argv), env)
    except OSError as err:
        raise errors.CommandError(argv, 127, reason=f"cannot be started: {err.strerror}") from err
