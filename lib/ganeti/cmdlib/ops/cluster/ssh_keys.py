"""Who may log in where over SSH: the nodes' keys, distributed by the master in node calls.

Used for clusters that were made without ``--no-ssh-init``. Every node has a key of its own; the
keys of the master candidates may log in on all nodes, and all nodes know each other's hosts, under
the node's name and under that of the cluster. ``ganeti_pub_keys`` on the candidates lists the keys
of all nodes that could become the master.

:func:`distribute` makes that so, from whatever is there; units call it when nodes or candidates
have changed. A node which misses it is a warning: verification reports it, and ``gnt-cluster
redist-conf`` repairs it. ``doc/design-ssh-keys.rst`` says why it is done like this.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ganeti import errors
from ganeti.cmdlib.base import AnyUnit, why
from ganeti.objects import updated
from ganeti.platform import paths, ssh_keys
from ganeti.utils import fs, ssh
from ganeti.wire.calls import ETC_HOSTS_MODIFY, NODE_SSH_ACTIVATE, NODE_SSH_KEYS, NODE_SSH_TRUST

if TYPE_CHECKING:
    from ganeti.objects import Cluster, ConfigData, Node


NOTHING, MISSING, NEW = "nothing", "missing", "new"


@dataclass(frozen=True, slots=True)
class Facts:
    """What nodes told about their keys, by UUID."""

    root: dict[str, list[str]]
    hosts: dict[str, list[str]]


@dataclass(frozen=True, slots=True)
class Wanted:
    """What the files of nodes shall hold."""

    authorized: list[str]
    known_hosts: str
    public_keys: str


def is_managed(cluster: Cluster) -> bool:
    """Does the cluster look after SSH?"""
    return cluster.modify_ssh_setup


def wanted(config: ConfigData, facts: Facts) -> Wanted:
    """What follows from the configuration and the keys."""
    nodes = [node for node in config.nodes.values() if node.uuid in facts.root]
    candidates = sorted((node for node in nodes if node.master_candidate), key=lambda n: n.name)
    hosts = [
        (
            node.name,
            config.cluster.fill_nd(node, config.nodegroups[node.group])["ssh_port"],
            facts.hosts[node.uuid],
        )
        for node in nodes
    ]
    return Wanted(
        [line for node in candidates for line in facts.root[node.uuid]],
        ssh_keys.known_hosts_text(config.cluster.cluster_name, hosts),
        ssh_keys.public_keys_text(
            {node.uuid: facts.root[node.uuid] for node in nodes if node.master_capable}
        ),
    )


def collect(
    unit: AnyUnit, nodes: Sequence[Node], *, kind: str, bits: int, make: str = MISSING
) -> tuple[Facts, list[str]]:
    """Ask nodes for their keys; and who failed.

    :param make: which keys are made: :data:`NOTHING`, :data:`MISSING` ones, or :data:`NEW` ones.
    """
    answers = unit.rpc.call_many(
        NODE_SSH_KEYS, [node.uuid for node in nodes], kind=kind, bits=bits, make=make
    )
    facts, failed = Facts({}, {}), []
    for node in nodes:
        answer = answers[node.uuid]
        if answer.failure is not None:
            failed.append(f"node {node.name} does not tell its SSH keys: {why(answer.failure)}")
            continue
        facts.root[node.uuid] = list(answer.data["root"])
        facts.hosts[node.uuid] = list(answer.data["hosts"])
        if not facts.hosts[node.uuid]:
            failed.append(f"node {node.name} has no SSH host key. Is an SSH server installed?")
    return facts, failed


def send(unit: AnyUnit, nodes: Sequence[Node], found: Wanted) -> list[str]:
    """Let nodes take the keys; who failed."""
    failed = []
    for group in (True, False):
        members = [node for node in nodes if node.master_candidate is group]
        if not members:
            continue
        answers = unit.rpc.call_many(
            NODE_SSH_TRUST,
            [node.uuid for node in members],
            authorized=found.authorized,
            known_hosts=found.known_hosts,
            public_keys=found.public_keys if group else None,
        )
        failed += [
            f"node {node.name} did not take the SSH keys: {why(answers[node.uuid].failure)}"
            for node in members
            if answers[node.uuid].failure is not None
        ]
    return failed


def remembered(config: ConfigData, node: Node) -> tuple[list[str], list[str]]:
    """The keys of a node which does not answer now, as this node's files know them: its own ones
    and its host's. It will need them when it is back."""
    here = paths.current()
    own = ssh_keys.parse_public_keys(_content(here.ssh_public_keys_file)).get(node.uuid, [])
    port = config.cluster.fill_nd(node, config.nodegroups[node.group])["ssh_port"]
    hosts = ssh.known_keys(_content(here.known_hosts_file), node.name, port)
    return own, sorted(f"{key.kind} {key.key}" for key in hosts)


def _content(path: str) -> str:
    try:
        return fs.read_file(path)
    except FileNotFoundError:
        return ""


def distribute(unit: AnyUnit, *, without: Collection[str] = ()) -> None:
    """Make the SSH files of all online nodes what they should be; nothing where SSH is not ours.

    :param without: UUIDs of nodes which are about to leave.
    """
    data = unit.config.snapshot()
    if not is_managed(data.cluster):
        return
    nodes = [node for node in unit.config.online_nodes() if node.uuid not in without]
    facts, failed = collect(
        unit, nodes, kind=data.cluster.ssh_key_type, bits=data.cluster.ssh_key_bits
    )
    answered = [node for node in nodes if node.uuid in facts.root]
    for node in nodes:
        if node.uuid not in facts.root:
            facts.root[node.uuid], facts.hosts[node.uuid] = remembered(data, node)
    failed += send(unit, answered, wanted(data, facts))
    for problem in failed:
        unit.warn(problem, hint="When it is repaired, run 'gnt-cluster redist-conf'.")


def verification(unit: AnyUnit) -> tuple[list[Any] | None, list[str]]:
    """The argument of the check ``ssh-setup``, from what the nodes have now, and what is wrong
    already; None when a node does not answer, so that nobody knows what is right."""
    data = unit.config.snapshot()
    nodes = unit.config.online_nodes()
    facts, failed = collect(
        unit, nodes, kind=data.cluster.ssh_key_type, bits=data.cluster.ssh_key_bits, make=NOTHING
    )
    if len(facts.root) < len(nodes):
        return None, failed
    failed += [
        f"node {node.name} has no SSH key of its own" for node in nodes if not facts.root[node.uuid]
    ]
    found = wanted(data, facts)
    candidates = [node.name for node in nodes if node.master_candidate]
    return [found.authorized, found.known_hosts, found.public_keys, candidates], failed


def renew(unit: AnyUnit, *, kind: str, bits: int) -> None:
    """Give every online node a new key, in steps between which every key that is used works.

    All make a new one beside the old, all let both log in, all use the new one, all let only the
    new ones log in. Interrupted, it is run again.

    :raises errors.OpExecError: a node failed; old keys work as before.
    """
    nodes = list(unit.config.online_nodes())
    cluster = unit.config.cluster()
    unit.feedback("* Making new SSH keys")
    old, failed = collect(unit, nodes, kind=cluster.ssh_key_type, bits=cluster.ssh_key_bits)
    _all_or_nothing(failed)
    new, failed = collect(unit, nodes, kind=kind, bits=bits, make=NEW)
    _all_or_nothing(failed)
    both = Facts(
        {uuid: list(dict.fromkeys([*old.root[uuid], *lines])) for uuid, lines in new.root.items()},
        new.hosts,
    )
    unit.feedback("* Letting old and new ones log in")
    _all_or_nothing(send(unit, nodes, wanted(unit.config.snapshot(), both)))
    unit.feedback("* Using the new ones")
    answers = unit.rpc.call_many(
        NODE_SSH_ACTIVATE, [node.uuid for node in nodes], kind=kind, bits=bits
    )
    _all_or_nothing(
        [
            f"node {node.name} uses its old SSH key: {why(answers[node.uuid].failure)}"
            for node in nodes
            if answers[node.uuid].failure is not None
        ]
    )
    with unit.config.transaction() as change:
        change.update_cluster(updated(unit.config.cluster(), ssh_key_type=kind, ssh_key_bits=bits))
    unit.feedback("* Forgetting the old ones")
    last = Facts({node.uuid: [answers[node.uuid].data] for node in nodes}, new.hosts)
    _all_or_nothing(send(unit, nodes, wanted(unit.config.snapshot(), last)))


def _all_or_nothing(failed: Sequence[str]) -> None:
    if failed:
        raise errors.OpExecError(
            f"{'; '.join(failed)}. The SSH keys that are in use work as before; run 'gnt-cluster"
            " renew-crypto --new-ssh-keys' again to go on."
        )


def name_in_etc_hosts(unit: AnyUnit, node: Node, *, add: bool) -> None:
    """Add a node to the master's ``/etc/hosts``, or take it out, where the cluster looks after
    it; the file is copied to all nodes with the other common ones."""
    if not unit.config.cluster().modify_etc_hosts:
        return
    answer = unit.rpc.call(
        ETC_HOSTS_MODIFY,
        unit.config.cluster().master_node,
        mode="add" if add else "remove",
        name=node.name,
        ip=node.primary_ip if add else None,
    )
    if answer.failure is not None:
        unit.warn(
            f"node {node.name} could not be {'added to' if add else 'removed from'}"
            f" /etc/hosts: {why(answer.failure)}"
        )
