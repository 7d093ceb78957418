"""The timer of a virtual cluster: starts the watcher on its nodes every few minutes.

On a real machine a timer of the system starts ``ganeti-watcher``. A virtual cluster has one process
instead, ``vcluster watch``, which runs it on one node after the other. The process starts with the
daemons and stops with them.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time

from ganeti import errors
from ganeti.platform import paths
from ganeti.utils import daemonize
from ganeti.vcluster.description import VirtualCluster, read, run_in

#: Seconds between two runs on a node, as on a real machine.
DEFAULT_S = 300


def program() -> str:
    """Return the path of the program ``vcluster``."""
    top = paths.project_dir()
    return f"{top}/tools/vcluster" if top else f"{os.path.dirname(paths.daemon_util())}/vcluster"


def _pid_file(cluster: VirtualCluster) -> str:
    return f"{cluster.directory}/.watch.pid"


def start(cluster: VirtualCluster) -> None:
    """Start the timer, unless it runs or the cluster wants none."""
    if not cluster.watch_every_s or running(cluster) is not None:
        return
    env = {**os.environ, paths.ENV_VCLUSTER: cluster.directory}
    with open(f"{cluster.directory}/watch.log", "ab") as output:
        subprocess.Popen(
            [sys.executable, program(), "watch", cluster.directory],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
            env=env,
        )


def running(cluster: VirtualCluster) -> int | None:
    """Return the number of the timer's process; None when it does not run."""
    return daemonize.read_pid(_pid_file(cluster))


def watch(directory: str) -> None:
    """Be the timer: run the watcher on each node again and again, until the cluster is destroyed.

    :raises PidFileLockError: another process is the timer of this cluster.
    """
    cluster = read(directory)
    pid_file = daemonize.PidFile(_pid_file(cluster))
    pid_file.acquire()
    try:
        while True:
            time.sleep(cluster.watch_every_s or DEFAULT_S)
            # Nodes may have been added, or the cluster destroyed.
            cluster = read(directory)
            for node in cluster.nodes:
                try:
                    run_in(cluster, node, "ganeti-watcher")
                except errors.OpExecError as err:
                    print(err, flush=True)
    except errors.ParameterError:
        return
    finally:
        pid_file.release()
