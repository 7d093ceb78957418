"""Preparing a machine to join: the cluster's credentials and a running node daemon.

In a virtual cluster the other node is a directory beside ours, and everything is done here. A real
machine would be prepared over SSH, which this version cannot do: it has to be prepared by hand.
When its node daemon answers with this cluster's certificate there is nothing left to do, otherwise
the error says what to copy.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from functools import partial

from ganeti import errors
from ganeti.bootstrap import local, renewal
from ganeti.config import ssconf
from ganeti.constants import rpc as rpc_const
from ganeti.rpc.results import Result
from ganeti.rpc.runner import AddressRunner, open_client
from ganeti.utils import net, paths
from ganeti.wire.calls import VERSION


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


def ask_version(host: net.Hostname) -> Result:
    """Ask a machine's node daemon for its protocol version, both ends showing certificates."""
    runner = AddressRunner(open_client())
    return runner.call_addresses(VERSION, {host.name: host.ip})[host.name]


def _require_prepared(host: net.Hostname) -> None:
    """Make sure that a real machine was prepared by hand.

    :raises OpPrereqError: its daemon does not answer, or not as one of this cluster.
    """
    answer = ask_version(host)
    if answer.failure is None:
        if answer.data != rpc_const.PROTOCOL_VERSION:
            raise errors.OpPrereqError(
                f"node {host.name} speaks version {answer.data} of the node protocol, this one"
                f" {rpc_const.PROTOCOL_VERSION}. Install the same release on both.",
                errors.ECODE_ENVIRON,
            )
        return
    here = paths.current()
    shared = [path for path in local.credential_files(here) if path != here.noded_client_cert_file]
    raise errors.OpPrereqError(
        f"{answer.failure}. This version cannot prepare a node over SSH: copy"
        f" {', '.join(shared)} and {here.data_dir}/ssconf_* to it, give it a client certificate of"
        f" its own at {here.noded_client_cert_file}, and run 'daemon-util start {local.NODED}'"
        " there.",
        errors.ECODE_ENVIRON,
    )


def setup_node(host: net.Hostname) -> None:
    """Give a machine the cluster's credentials and start its node daemon.

    A machine that has this cluster's credentials already only gets its daemon started.

    :param host: full name and address of the machine.
    :raises OpPrereqError: not possible, or it belongs to another cluster; nothing was changed.
    :raises OpExecError: its daemon does not start; the credentials are removed again.
    """
    with local.Undo() as undo:
        _set_up(host, undo)


@contextlib.contextmanager
def node_setup(host: net.Hostname) -> Iterator[Callable[[], object]]:
    """As :func:`setup_node`, undone when the block (the job that adds the node) fails.

    The block gets a function that makes what was done stay, whatever comes.
    """
    with local.Undo() as undo:
        _set_up(host, undo)
        yield undo.keep


def _set_up(host: net.Hostname, undo: local.Undo) -> None:
    renewal.require_none_pending(paths.current())
    if not paths.is_virtual():
        _require_prepared(host)
        return
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
        undo.add(f"files in {there.data_dir}", partial(local.remove_state, there))
        local.write_credentials(there, shared, host.name)
        ssconf.write_local(local.read_ssconf(paths.current()), there)
    for daemon in (local.NODED, local.CONFD):
        if local.running_daemon(there, daemon) is None:
            undo.add(
                f"{daemon} of {host.name}", partial(local.daemon_util, "stop", daemon, env=env)
            )
            local.daemon_util("start", daemon, env=env)
