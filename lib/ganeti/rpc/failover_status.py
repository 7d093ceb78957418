"""What all nodes know about the master daemon, and whether its role would move by itself.

``gnt-cluster failover-status`` asks the nodes directly, because the question is mostly asked when
there is no master. While there is one, it answers LUXI method ``QueryFailoverStatus`` for clients
of the REST interface.
"""

from __future__ import annotations

from typing import NamedTuple

from ganeti import errors
from ganeti.config.members import read_members
from ganeti.config.ssconf import SimpleStore
from ganeti.config.witness import Document
from ganeti.constants import ssconf as ssconf_c
from ganeti.luxi.answers import FailoverReport, WitnessReport
from ganeti.objects import codec
from ganeti.objects.transfer import MasterStatus
from ganeti.platform import paths
from ganeti.rpc import key_pins
from ganeti.rpc.runner import AddressRunner, open_client
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

    :raises ConfigurationError: a file of this node cannot be read.
    """
    here = paths.current()
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


def report(found: Status) -> FailoverReport:
    """Return the same as data."""
    return {
        "auto_failover": found.limit_s,
        "master": found.master,
        "witness": None if found.witness is None else _witness_report(found.witness),
        "nodes": [
            {
                "name": one.name,
                "master_candidate": one.candidate,
                "offline": one.offline,
                "failure": one.failure or None,
                "sight": None if one.answer is None else codec.to_dict(one.answer),
            }
            for one in found.nodes
        ],
    }


def _witness_report(found: WitnessStatus) -> WitnessReport:
    document = found.document
    return {
        "url": found.url,
        "failure": found.failure or None,
        "master": None if document is None else document.master,
        "epoch": None if document is None else document.epoch.number,
        "config_serial": None if document is None else document.config[1],
        "last_job": None if document is None else document.jobs[1],
        "written": None if document is None else document.written,
    }
