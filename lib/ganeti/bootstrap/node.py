"""Preparing a machine before it is added: credentials of the cluster, and a running node daemon.

In a virtual cluster the new node is a directory on this computer, and is prepared from here. A real
machine is prepared over SSH (:mod:`ganeti.bootstrap.remote`), unless its node daemon answers with
the certificate of this cluster already. For a machine without SSH see :mod:`ganeti.bootstrap.join`.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import NamedTuple

from ganeti import errors
from ganeti.bootstrap import node_state, remote, renewal
from ganeti.config import ssconf
from ganeti.constants import rpc as rpc_const
from ganeti.platform import hosts, machine, paths
from ganeti.rpc.results import Result
from ganeti.rpc.runner import AddressRunner, open_client
from ganeti.utils import x509
from ganeti.utils.undo import UndoStack
from ganeti.wire.calls import VERSION

# A new machine usually gives no answer, and that is not a warning.
_QUESTION = dataclasses.replace(VERSION, probe=True)


class Preparation(NamedTuple):
    """A machine which is prepared.

    :ivar keep: a function after whose call nothing is undone any more.
    :ivar certificate: the digest of the certificate which the machine got; None if it had one.
    """

    keep: Callable[[], object]
    certificate: str | None


def ask_version(host: hosts.Hostname, pins: Sequence[str] = ()) -> Result:
    """Ask the node daemon of a machine for its protocol version.

    Both ends show their certificates, so an answer proves that the machine has our credentials.

    :param pins: the keys which the machine may show; none for every key of the cluster.
    """
    runner = AddressRunner(open_client())
    runner.expect_keys({host.ip: pins})
    return runner.call_addresses(_QUESTION, {host.name: host.ip})[host.name]


def _is_prepared(host: hosts.Hostname, pins: Sequence[str]) -> errors.RpcError | None:
    """Check whether a machine has our credentials and its node daemon runs.

    :returns: None if it is so, else the error of the call.
    :raises OpPrereqError: the machine has another release.
    """
    answer = ask_version(host, pins)
    if answer.failure is not None:
        return answer.failure
    if answer.data != rpc_const.PROTOCOL_VERSION:
        raise errors.OpPrereqError(
            f"node {host.name} speaks version {answer.data} of the node protocol, this node speaks"
            f" {rpc_const.PROTOCOL_VERSION}. Install the same release on both nodes.",
            errors.ECODE_ENVIRON,
        )
    return None


def setup_node(
    host: hosts.Hostname,
    access: remote.SshAccess | None = None,
    *,
    force_join: bool = False,
    pins: Sequence[str] = (),
) -> None:
    """Give a machine the credentials of the cluster and start its node daemon.

    On a machine which has the credentials of this cluster already, only the daemon is started.

    :param host: full name and address of the machine.
    :param access: parameters of SSH to a real machine; None forbids SSH.
    :param force_join: take the machine out of another cluster, without informing that cluster.
    :param pins: the keys of the node in the configuration, if it is there already. A machine with
        another key is prepared anew.
    :raises OpPrereqError: the machine cannot be reached, or belongs to another cluster; nothing was
        changed.
    :raises OpExecError: the daemon does not start; the credentials were removed again.
    """
    with UndoStack() as undo:
        _set_up(host, undo, access, force_join, pins)
        undo.commit()


@contextlib.contextmanager
def node_setup(
    host: hosts.Hostname,
    access: remote.SshAccess | None = None,
    *,
    force_join: bool = False,
    pins: Sequence[str] = (),
) -> Iterator[Preparation]:
    """Prepare a machine as :func:`setup_node` does, and undo it if the block fails.

    The block runs the job which adds the node.
    """
    with UndoStack() as undo:
        certificate = _set_up(host, undo, access, force_join, pins)
        yield Preparation(undo.commit, certificate)
        undo.commit()


def _equip_neighbour(
    host: hosts.Hostname,
    there: paths.Paths,
    env: Mapping[str, str],
    undo: UndoStack,
    force_join: bool,
) -> None:
    """Write the credentials of the cluster to a machine of a virtual cluster, if it lacks them.

    :raises OpPrereqError: it has credentials of another cluster, or the master daemon runs there.
    """
    shared = node_state.read_credentials(paths.current())
    facts = node_state.read_ssconf(paths.current())
    traces = node_state.cluster_traces(there)
    if traces and _has(there, shared):
        return
    if traces and not force_join:
        if not node_state.is_own_node(there, host.name, facts):
            raise errors.OpPrereqError(
                f"node {host.name} has credentials of another cluster. Remove it from that cluster"
                " first, or use --force-join.",
                errors.ECODE_STATE,
            )
        node_state.stop_node_daemons(there, env=env)
        node_state.replace_credentials(there, shared, host.name, undo)
    else:
        if traces:
            node_state.leave_other_cluster(there, env=env)
        undo.add(f"files in {there.data_dir}", partial(node_state.remove_state, there))
        node_state.write_credentials(there, shared, host.name)
    ssconf.write_local(facts, there)


def _has(there: paths.Paths, shared: node_state.Credentials) -> bool:
    try:
        return node_state.read_credentials(there) == shared
    except errors.ConfigurationError:
        return False  # some of the files are missing


def _set_up(
    host: hosts.Hostname,
    undo: UndoStack,
    access: remote.SshAccess | None,
    force_join: bool,
    pins: Sequence[str],
) -> str | None:
    """Prepare a machine; return the digest of its certificate if this way tells it."""
    renewal.require_none_pending(paths.current())
    root = machine.current().neighbour_dir(host.name)
    if root is None:
        failure = _is_prepared(host, pins)
        if failure is None:
            return None
        if access is None:
            raise errors.OpPrereqError(
                f"{failure}. Node {host.name} may not be prepared over SSH.", errors.ECODE_ENVIRON
            )
        return remote.set_up(host, access, undo, force_join=force_join)
    if not os.path.isdir(root):
        raise errors.OpPrereqError(
            f"this virtual cluster has no node {host.name}. Make one with"
            f" 'vcluster add-node {os.path.dirname(root)}'.",
            errors.ECODE_NOENT,
        )
    there = paths.Paths(root)
    env = machine.current().neighbour_environment(host.name)
    _equip_neighbour(host, there, env, undo, force_join)
    for daemon in (node_state.NODED, node_state.CONFD):
        if node_state.running_daemon(there, daemon) is None:
            undo.add(
                f"{daemon} of {host.name}", partial(node_state.daemon_util, "stop", daemon, env=env)
            )
            node_state.daemon_util("start", daemon, env=env)
    return x509.digest_file(there.noded_client_cert_file)
