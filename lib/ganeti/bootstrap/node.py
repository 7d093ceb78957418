"""Preparing a machine to join: the cluster's credentials and a running node daemon.

In a virtual cluster the other node is a directory beside ours, and everything is done here. A real
machine is prepared over SSH (:mod:`ganeti.bootstrap.remote`), unless its node daemon answers with
this cluster's certificate already. Joining without SSH is :mod:`ganeti.bootstrap.join`.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from functools import partial

from ganeti import errors
from ganeti.bootstrap import local, remote, renewal
from ganeti.config import ssconf
from ganeti.constants import rpc as rpc_const
from ganeti.platform import hosts, machine, paths
from ganeti.rpc.results import Result
from ganeti.rpc.runner import AddressRunner, open_client
from ganeti.wire.calls import VERSION


def ask_version(host: hosts.Hostname) -> Result:
    """Ask a machine's node daemon for its protocol version, both ends showing certificates."""
    runner = AddressRunner(open_client())
    return runner.call_addresses(VERSION, {host.name: host.ip})[host.name]


def _is_prepared(host: hosts.Hostname) -> errors.RpcError | None:
    """None when a machine has our credentials and its daemon runs; else why it seems not so.

    :raises OpPrereqError: it is of another release.
    """
    answer = ask_version(host)
    if answer.failure is not None:
        return answer.failure
    if answer.data != rpc_const.PROTOCOL_VERSION:
        raise errors.OpPrereqError(
            f"node {host.name} speaks version {answer.data} of the node protocol, this one"
            f" {rpc_const.PROTOCOL_VERSION}. Install the same release on both.",
            errors.ECODE_ENVIRON,
        )
    return None


def setup_node(
    host: hosts.Hostname, access: remote.Access | None = None, *, force_join: bool = False
) -> None:
    """Give a machine the cluster's credentials and start its node daemon.

    A machine that has this cluster's credentials already only gets its daemon started.

    :param host: full name and address of the machine.
    :param access: how to get at a real machine over SSH; None does without.
    :param force_join: take it out of another cluster, which is not told.
    :raises OpPrereqError: not possible, or it belongs to another cluster; nothing was changed.
    :raises OpExecError: its daemon does not start; the credentials are removed again.
    """
    with local.Undo() as undo:
        _set_up(host, undo, access, force_join)


@contextlib.contextmanager
def node_setup(
    host: hosts.Hostname, access: remote.Access | None = None, *, force_join: bool = False
) -> Iterator[Callable[[], object]]:
    """As :func:`setup_node`, undone when the block (the job that adds the node) fails.

    The block gets a function that makes what was done stay, whatever comes.
    """
    with local.Undo() as undo:
        _set_up(host, undo, access, force_join)
        yield undo.keep


def _set_up(
    host: hosts.Hostname, undo: local.Undo, access: remote.Access | None, force_join: bool
) -> None:
    renewal.require_none_pending(paths.current())
    root = machine.current().neighbour_dir(host.name)
    if root is None:
        failure = _is_prepared(host)
        if failure is None:
            return
        if access is None:
            raise errors.OpPrereqError(
                f"{failure}, and it may not be prepared over SSH", errors.ECODE_ENVIRON
            )
        remote.set_up(host, access, undo, force_join=force_join)
        return
    if not os.path.isdir(root):
        raise errors.OpPrereqError(
            f"this virtual cluster has no node {host.name}. Make one with"
            f" 'vcluster add-node {os.path.dirname(root)}'.",
            errors.ECODE_NOENT,
        )
    there = paths.Paths(root)
    shared = local.read_credentials(paths.current())
    env = machine.current().neighbour_environment(host.name)
    if local.cluster_traces(there) and force_join and local.read_credentials(there) != shared:
        local.leave_other_cluster(there, env=env)
    if local.cluster_traces(there):
        if local.read_credentials(there) != shared:
            raise errors.OpPrereqError(
                f"node {host.name} has credentials of another cluster. Remove it there first, or"
                " use --force-join.",
                errors.ECODE_STATE,
            )
    else:
        undo.add(f"files in {there.data_dir}", partial(local.remove_state, there))
        local.write_credentials(there, shared, host.name)
        ssconf.write_local(local.read_ssconf(paths.current()), there)
    for daemon in (local.NODED, local.CONFD):
        if local.running_daemon(there, daemon) is None:
            undo.add(
                f"{daemon} of {host.name}", partial(local.daemon_util, "stop", daemon, env=env)
            )
            local.daemon_util("start", daemon, env=env)
