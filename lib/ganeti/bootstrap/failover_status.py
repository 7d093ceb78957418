"""What all nodes know about the master daemon: ``gnt-cluster failover-status``.

The nodes are asked directly, because the question is mostly asked when there is no master.
"""

from __future__ import annotations

from typing import NamedTuple

from ganeti import errors
from ganeti.bootstrap import node_state
from ganeti.config.members import read_members
from ganeti.config.ssconf import SimpleStore
from ganeti.config.witness import Document
from ganeti.constants import ssconf as ssconf_c
from ganeti.objects.transfer import MasterStatus
from ganeti.platform import paths
from ganeti.rpc import AddressRunner, key_pins, open_client
from ganeti.rpc.witness import WitnessError, open_witness
from ganeti.wire.calls import MASTER_STATUS


class NodeStatus(NamedTuple):
    """What one node says.

    :ivar candidate: whether it is a master candidate.
    :ivar offline: whether it is marked offline; then it was not asked.
    :ivar answer: its answer; None without one.
    :ivar failure: the reason why there is no answer.
    """

    name: str
    candidate: bool
    offline: bool
    answer: MasterStatus | None
    failure: str = ""


class WitnessStatus(NamedTuple):
    """The witness, as this node sees it.

    :ivar document: what it knows; None without an answer.
    :ivar failure: the reason why there is no answer.
    """

    url: str
    document: Document | None
    failure: str = ""


class Status(NamedTuple):
    """What all nodes say, in the order of their names.

    :ivar limit_s: the parameter ``auto_failover``; 0 for never.
    :ivar master: the master, as this node knows it.
    :ivar witness: the witness; None without one, and on a node which is not a candidate.
    """

    limit_s: int
    master: str
    nodes: list[NodeStatus]
    witness: WitnessStatus | None = None


def ask() -> Status:
    """Ask all nodes which are not marked offline.

    :raises OpPrereqError: this machine belongs to no cluster.
    :raises ConfigurationError: a file of this node cannot be read.
    """
    here = paths.current()
    if not node_state.cluster_traces(here):
        raise errors.OpPrereqError("this machine belongs to no cluster", errors.ECODE_STATE)
    store = SimpleStore(here)
    addresses = store.node_primary_ips()
    online = set(store.online_nodes())
    candidates = set(store.master_candidates())
    runner = AddressRunner(open_client(here))
    runner.expect_keys(key_pins.expected_at(addresses, store.node_key_pins(), here))
    results = runner.call_addresses(
        MASTER_STATUS, {name: ip for name, ip in addresses.items() if name in online}
    )
    nodes = []
    for name in store.node_list():
        result = results.get(name)
        answer = result.data if result is not None and result.failure is None else None
        failure = "" if result is None or result.failure is None else result.failure.message
        nodes.append(NodeStatus(name, name in candidates, name not in online, answer, failure))
    try:
        limit_s = int(store.get(ssconf_c.AUTO_FAILOVER))
    except (errors.ConfigurationError, ValueError):
        limit_s = 0
    return Status(limit_s, store.master_node(), nodes, _ask_witness(here))


def _ask_witness(here: paths.Paths) -> WitnessStatus | None:
    try:
        members = read_members(here.cluster_conf_file)
    except errors.ConfigurationError:
        return None
    if not members.witness:
        return None
    try:
        document = open_witness(members.witness, members.cluster, here).read()
    except WitnessError as err:
        return WitnessStatus(members.witness, None, str(err))
    return WitnessStatus(members.witness, document)
