"""Preparing a machine to join: the cluster's credentials and a running node daemon.

In a virtual cluster the other node is a directory beside ours, and everything is done here. On a
real machine that needs SSH set-up, which this version lacks: the error says what to copy.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator

from ganeti import errors
from ganeti.bootstrap import local
from ganeti.config import ssconf
from ganeti.utils import net, paths


def _root_of(name: str) -> str:
    """The directory of another node of our virtual cluster.

    :raises OpPrereqError: it has none.
    """
    directory = paths.vcluster_dir()
    root = f"{directory}/{name}"
    if directory is None or not os.path.isdir(root):
        raise errors.OpPrereqError(
            f"this virtual cluster has no node {name}. Make one with"
            f" 'vcluster add-node {directory or 'DIRECTORY'}'.",
            errors.ECODE_NOENT,
        )
    return root


def _explain_manual_setup(name: str) -> errors.OpPrereqError:
    here = paths.current()
    shared = [path for path in local.credential_files(here) if path != here.noded_client_cert_file]
    return errors.OpPrereqError(
        f"node {name} cannot be prepared over SSH by this version. Copy {', '.join(shared)} and"
        f" {here.data_dir}/ssconf_* to it, give it a client certificate of its own at"
        f" {here.noded_client_cert_file}, run 'daemon-util start {local.NODED}' there, then use"
        " --no-node-setup.",
        errors.ECODE_ENVIRON,
    )


def setup_node(host: net.Hostname) -> None:
    """Give a machine the cluster's credentials and start its node daemon.

    A machine that has this cluster's credentials already only gets its daemon started.

    :param host: full name and address of the machine.
    :raises OpPrereqError: not possible, or it belongs to another cluster; nothing was changed.
    :raises OpExecError: its daemon does not start; the credentials are removed again.
    """
    with contextlib.ExitStack() as undo:
        _set_up(host, undo)
        undo.pop_all()


@contextlib.contextmanager
def node_setup(host: net.Hostname) -> Iterator[Callable[[], object]]:
    """As :func:`setup_node`, undone when the block (the job that adds the node) fails.

    The block gets a function that makes what was done stay, whatever comes.
    """
    with contextlib.ExitStack() as undo:
        _set_up(host, undo)
        yield undo.pop_all
        undo.pop_all()


def _set_up(host: net.Hostname, undo: contextlib.ExitStack) -> None:
    if not paths.is_virtual():
        raise _explain_manual_setup(host.name)
    root = _root_of(host.name)
    there = paths.Paths(root)
    shared = local.read_credentials(paths.current())
    env = {paths.ENV_ROOT: root, paths.ENV_HOSTNAME: host.name}
    if local.cluster_traces(there):
        if local.read_credentials(there) != shared:
            raise errors.OpPrereqError(
                f"node {host.name} has credentials of another cluster. Remove it there first.",
                errors.ECODE_STATE,
            )
    else:
        undo.callback(local.remove_state, there)
        local.write_credentials(there, shared, host.name)
        ssconf.write_local(local.read_ssconf(paths.current()), there)
    if local.running_daemon(there, local.NODED) is None:
        undo.callback(local.daemon_util, "stop", local.NODED, env=env)
        local.daemon_util("start", local.NODED, env=env)
