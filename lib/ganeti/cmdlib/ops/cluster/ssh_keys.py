"""Distributing the SSH keys of the nodes by node calls of the master.

This is done unless the cluster was created with ``--no-ssh-init``. Every node has its own key. With
the keys of the master candidates one may log in on all nodes. All nodes know the host keys of the
others, under the name of the node and under that of the cluster. The file ``ganeti_pub_keys`` on
the candidates lists the keys of all nodes that could become the master.

Logical units call :func:`distribute` when nodes or candidates have changed. A node which cannot be
called is a warning: verification reports it, and ``gnt-cluster redist-conf`` repairs it.
``doc/design-ssh-keys.rst`` has the reasons for this design.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ganeti import errors
from ganeti.cmdlib.base import Context, why
from ganeti.objects import fill, updated
from ganeti.platform import paths, ssh_keys
from ganeti.utils import fs, ssh
from ganeti.wire.calls import ETC_HOSTS_MODIFY, NODE_SSH_ACTIVATE, NODE_SSH_KEYS, NODE_SSH_TRUST

if TYPE_CHECKING:
    from ganeti.config import Config
    from ganeti.objects import Cluster, ConfigData, Node
    from ganeti.rpc import RpcRunner


NOTHING, MISSING, NEW = "nothing", "missing", "new"


@dataclass(frozen=True, slots=True)
class NodeKeys:
    """The public SSH keys of nodes.

    :ivar root: UUID of a node -> lines with the keys of its user root.
    :ivar hosts: UUID of a node -> its host keys.
    """

    root: dict[str, list[str]]
    hosts: dict[str, list[str]]


@dataclass(frozen=True, slots=True)
class SshFiles:
    """The content of the SSH files of nodes.

    :ivar authorized: lines for ``authorized_keys``.
    :ivar known_hosts: the file ``known_hosts``.
    :ivar public_keys: the file ``ganeti_pub_keys``, which only candidates have.
    """

    authorized: list[str]
    known_hosts: str
    public_keys: str


def is_managed(cluster: Cluster) -> bool:
    """Tell whether the cluster manages the SSH keys of its nodes."""
    return cluster.modify_ssh_setup


def ssh_files(config: ConfigData, keys: NodeKeys) -> SshFiles:
    """Make the content of the SSH files from the configuration and the keys."""
    nodes = [node for node in config.nodes.values() if node.uuid in keys.root]
    candidates = sorted((node for node in nodes if node.master_candidate), key=lambda n: n.name)
    hosts = [
        (
            node.name,
            fill.fill_nd(config.cluster, config.nodegroups[node.group], node)["ssh_port"],
            keys.hosts[node.uuid],
        )
        for node in nodes
    ]
    return SshFiles(
        [line for node in candidates for line in keys.root[node.uuid]],
        ssh_keys.known_hosts_text(config.cluster.cluster_name, hosts),
        ssh_keys.public_keys_text(
            {node.uuid: keys.root[node.uuid] for node in nodes if node.master_capable}
        ),
    )


def collect(
    rpc: RpcRunner, nodes: Sequence[Node], *, kind: str, bits: int, make: str = MISSING
) -> tuple[NodeKeys, list[tuple[str, str]]]:
    """Ask nodes for their keys.

    :param kind: type of the keys to make, such as ``ed25519``.
    :param bits: length of the keys to make.
    :param make: which keys the nodes make first: :data:`NOTHING`, :data:`MISSING` or :data:`NEW`.
    :returns: the keys; and for each problem the UUID of its node and a message.
    """
    answers = rpc.call_many(
        NODE_SSH_KEYS, [node.uuid for node in nodes], kind=kind, bits=bits, make=make
    )
    keys = NodeKeys({}, {})
    failed: list[tuple[str, str]] = []
    for node in nodes:
        answer = answers[node.uuid]
        if answer.failure is not None:
            text = f"node {node.name} did not report its SSH keys: {why(answer.failure)}"
            failed.append((node.uuid, text))
            continue
        keys.root[node.uuid] = list(answer.data["root"])
        keys.hosts[node.uuid] = list(answer.data["hosts"])
        if not keys.hosts[node.uuid]:
            text = f"node {node.name} has no SSH host key. Is an SSH server installed?"
            failed.append((node.uuid, text))
    return keys, failed


def send(rpc: RpcRunner, nodes: Sequence[Node], found: SshFiles) -> list[str]:
    """Send nodes the content of their SSH files.

    :returns: a message for each failure.
    """
    failed = []
    for group in (True, False):
        members = [node for node in nodes if node.master_candidate is group]
        if not members:
            continue
        answers = rpc.call_many(
            NODE_SSH_TRUST,
            [node.uuid for node in members],
            authorized=found.authorized,
            known_hosts=found.known_hosts,
            public_keys=found.public_keys if group else None,
        )
        failed += [
            f"node {node.name} did not accept the SSH keys: {why(answers[node.uuid].failure)}"
            for node in members
            if answers[node.uuid].failure is not None
        ]
    return failed


def remembered(config: ConfigData, node: Node) -> tuple[list[str], list[str]]:
    """Read the keys of an unresponsive node from the SSH files of the master.

    The other nodes keep these keys, so that the node can be used when it answers again.

    :returns: lines with the keys of its user root, and its host keys.
    """
    here = paths.current()
    own = ssh_keys.parse_public_keys(_content(here.ssh_public_keys_file)).get(node.uuid, [])
    port = fill.fill_nd(config.cluster, config.nodegroups[node.group], node)["ssh_port"]
    hosts = ssh.known_keys(_content(here.known_hosts_file), node.name, port)
    return own, sorted(f"{key.kind} {key.key}" for key in hosts)


def _content(path: str) -> str:
    try:
        return fs.read_file(path)
    except FileNotFoundError:
        return ""


def distribute(ctx: Context, *, without: Collection[str] = ()) -> None:
    """Update the SSH files of all online nodes, if the cluster manages SSH; failures are warnings.

    :param without: UUIDs of nodes which are about to leave the cluster.
    """
    data = ctx.config.snapshot()
    if not is_managed(data.cluster):
        return
    nodes = [node for node in ctx.config.online_nodes() if node.uuid not in without]
    keys, failed = collect(
        ctx.rpc, nodes, kind=data.cluster.ssh_key_type, bits=data.cluster.ssh_key_bits
    )
    answered = [node for node in nodes if node.uuid in keys.root]
    for node in nodes:
        if node.uuid not in keys.root:
            keys.root[node.uuid], keys.hosts[node.uuid] = remembered(data, node)
    problems = [text for _, text in failed]
    problems += send(ctx.rpc, answered, ssh_files(data, keys))
    for problem in problems:
        ctx.log.warn(problem, hint="Repair the node, then run 'gnt-cluster redist-conf'.")


def verification(config: Config, rpc: RpcRunner) -> tuple[list[Any] | None, list[tuple[str, str]]]:
    """Make the argument of the check ``ssh-setup`` from the present keys of the nodes.

    :returns: the argument; and for each problem the UUID of its node and a message. The argument is
        None if a node did not answer, because then the right content of the files is not known.
    """
    data = config.snapshot()
    nodes = config.online_nodes()
    keys, failed = collect(
        rpc, nodes, kind=data.cluster.ssh_key_type, bits=data.cluster.ssh_key_bits, make=NOTHING
    )
    if len(keys.root) < len(nodes):
        return None, failed
    failed += [
        (node.uuid, f"node {node.name} has no SSH key of its own")
        for node in nodes
        if not keys.root[node.uuid]
    ]
    found = ssh_files(data, keys)
    candidates = [node.name for node in nodes if node.master_candidate]
    return [found.authorized, found.known_hosts, found.public_keys, candidates], failed


def renew(ctx: Context, *, kind: str, bits: int, done: Callable[[Sequence[Node]], None]) -> None:
    """Give every online node a new SSH key; every key in use works after each step.

    All nodes make a new key beside the old one, accept both, use the new one, and accept only the
    new ones. After an interruption it can be repeated.

    :param kind: type of the new keys, such as ``ed25519``.
    :param bits: length of the new keys.
    :param done: called with the nodes after each step.
    :raises errors.OpExecError: a node failed; the keys in use work as before.
    """
    nodes = list(ctx.config.online_nodes())
    cluster = ctx.config.cluster()
    ctx.log.feedback("* Making new SSH keys")
    old, failed = collect(ctx.rpc, nodes, kind=cluster.ssh_key_type, bits=cluster.ssh_key_bits)
    _all_or_nothing([text for _, text in failed])
    new, failed = collect(ctx.rpc, nodes, kind=kind, bits=bits, make=NEW)
    _all_or_nothing([text for _, text in failed])
    done(nodes)
    both = NodeKeys(
        {uuid: list(dict.fromkeys([*old.root[uuid], *lines])) for uuid, lines in new.root.items()},
        new.hosts,
    )
    ctx.log.feedback("* Accepting old and new SSH keys")
    _all_or_nothing(send(ctx.rpc, nodes, ssh_files(ctx.config.snapshot(), both)))
    done(nodes)
    ctx.log.feedback("* Using the new SSH keys")
    answers = ctx.rpc.call_many(
        NODE_SSH_ACTIVATE, [node.uuid for node in nodes], kind=kind, bits=bits
    )
    _all_or_nothing(
        [
            f"node {node.name} still uses its old SSH key: {why(answers[node.uuid].failure)}"
            for node in nodes
            if answers[node.uuid].failure is not None
        ]
    )
    done(nodes)
    with ctx.config.transaction() as change:
        change.cluster.update(updated(ctx.config.cluster(), ssh_key_type=kind, ssh_key_bits=bits))
    ctx.log.feedback("* Removing the old SSH keys")
    last = NodeKeys({node.uuid: [answers[node.uuid].data] for node in nodes}, new.hosts)
    _all_or_nothing(send(ctx.rpc, nodes, ssh_files(ctx.config.snapshot(), last)))
    done(nodes)


def _all_or_nothing(failed: Sequence[str]) -> None:
    if failed:
        raise errors.OpExecError(
            f"{'; '.join(failed)}. The SSH keys in use work as before. Continue with 'gnt-cluster"
            " renew-crypto --new-ssh-keys'."
        )


def name_in_etc_hosts(ctx: Context, node: Node, *, add: bool) -> None:
    """Add a node to ``/etc/hosts`` of the master, or remove it, if the cluster manages this file.

    :func:`~.common_files.distribute_files` copies the file to the other nodes. A failure is a
    warning.
    """
    if not ctx.config.cluster().modify_etc_hosts:
        return
    answer = ctx.rpc.call(
        ETC_HOSTS_MODIFY,
        ctx.config.cluster().master_node,
        mode="add" if add else "remove",
        name=node.name,
        ip=node.primary_ip if add else None,
    )
    if answer.failure is not None:
        ctx.log.warn(
            f"node {node.name} could not be {'added to' if add else 'removed from'}"
            f" /etc/hosts: {why(answer.failure)}"
        )
