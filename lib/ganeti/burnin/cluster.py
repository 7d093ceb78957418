"""What ``burnin`` asks about nodes, instances and guests."""

from __future__ import annotations

import dataclasses
import http.client
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

from ganeti import errors
from ganeti.burnin.jobs import BurninError
from ganeti.confd import Client as ConfdClient
from ganeti.constants import confd
from ganeti.luxi import client as luxi
from ganeti.platform import machine, paths
from ganeti.utils import fs

#: Seconds between two questions to a guest which does not answer yet.
_POLL_S: Final = 0.5
_HTTP_TIMEOUT_S: Final = 5
#: The longest part of an answer that is read; a name is shorter.
_MAX_ANSWER_BYTES: Final = 4096


class CheckFailed(BurninError):
    """Something in the cluster is not as it must be after a step."""


@dataclasses.dataclass(frozen=True, slots=True)
class Node:
    """A node which can have instances.

    :ivar group: UUID of its group.
    :ivar instances: names of the instances which have a disk or a guest there.
    """

    name: str
    address: str
    group: str
    candidate: bool
    instances: frozenset[str]


@dataclasses.dataclass(frozen=True, slots=True)
class Instance:
    """Where an instance is, and whether it runs.

    :ivar oper_state: whether a guest runs; None when its node does not answer.
    :ivar disks_mib: sizes of the disks, in MiB.
    :ivar macs: hardware addresses of the network interfaces.
    """

    name: str
    primary: str
    secondaries: tuple[str, ...]
    admin_state: str
    oper_state: bool | None
    disks_mib: tuple[int, ...]
    macs: tuple[str, ...]


def nodes(client: luxi.Client, wanted: Sequence[str]) -> list[Node]:
    """Return the nodes to use.

    :param wanted: their names, in the order of the result; empty for all which are online, not
        drained, and can have instances.
    :raises CheckFailed: a node does not exist, or cannot have instances now.
    """
    fields = ["name", "pip", "group.uuid", "offline", "drained", "vm_capable", "role"]
    fields += ["pinst_list", "sinst_list"]
    found: dict[str, Node] = {}
    for name, address, group, offline, drained, capable, role, first, second in client.query_nodes(
        list(wanted), fields
    ):
        if offline or drained or not capable:
            why = "offline" if offline else "drained" if drained else "not able to have instances"
            if wanted:
                raise CheckFailed(f"node {name} is {why}; leave it out of --nodes")
            continue
        found[name] = Node(name, address, group, role in ("M", "C"), frozenset([*first, *second]))
    if not found:
        raise CheckFailed("the cluster has no node which is online and can have instances")
    return list(found.values())


def instances(client: luxi.Client, names: Iterable[str]) -> dict[str, Instance]:
    """Return the instances of these names, in this order.

    :raises OpPrereqError: one of them does not exist.
    """
    fields = ["name", "pnode", "snodes", "admin_state", "oper_state", "disk.sizes", "nic.macs"]
    return {
        row[0]: Instance(
            row[0], row[1], tuple(row[2]), row[3], row[4], tuple(row[5]), tuple(row[6])
        )
        for row in client.query_instances(list(names), fields)
    }


def existing(client: luxi.Client, names: Iterable[str]) -> list[str]:
    """Return those of the names which an instance of the cluster has."""
    known = {name for (name,) in client.query_instances([], ["name"])}
    return [name for name in names if name in known]


def exports(client: luxi.Client, names: Iterable[str]) -> list[str]:
    """Return those of the names of which a node has an export."""
    known = {export for _node, export in client.query_exports([])}
    return [name for name in names if name in known]


def guest_answer(name: str, address: str, timeout_s: float) -> str:
    """Ask a guest for ``/hostname.txt`` until it answers with its name.

    :param name: the name which the guest must have.
    :param address: the address or the name at which it is asked.
    :param timeout_s: how long to go on.
    :returns: empty when the answer is right; otherwise what was wrong last.
    """
    end = time.monotonic() + timeout_s
    while True:
        try:
            answer = _http_get(address, "/hostname.txt").strip()
            problem = f"the guest says that its name is '{answer:.100}'" if answer != name else ""
        except (OSError, http.client.HTTPException) as err:
            problem = f"no answer from {address}: {err}"
        if not problem or time.monotonic() > end:
            return problem
        time.sleep(_POLL_S)


def _http_get(address: str, path: str) -> str:
    """Return the first part of a page.

    :raises OSError: the guest does not answer.
    :raises http.client.HTTPException: the answer is not a page.
    """
    connection = http.client.HTTPConnection(address, timeout=_HTTP_TIMEOUT_S)
    try:
        connection.request("GET", path)
        response = connection.getresponse()
        if response.status != http.client.OK:
            raise http.client.HTTPException(f"it answers with {response.status}")
        return response.read(_MAX_ANSWER_BYTES).decode("utf-8", "replace")
    finally:
        connection.close()


def guest_address(name: str) -> str:
    """Return the address of an instance's name, or the name when this machine cannot resolve it."""
    try:
        return machine.current().resolve(name)
    except errors.ResolverError:
        return name


def ask_confd(
    cluster: Mapping[str, Any],
    known: Sequence[Node],
    *,
    read_key: Callable[[], bytes] = lambda: fs.read_bytes(paths.current().hmac_key),
) -> list[str]:
    """Ask the configuration query daemons, and compare their answers with those of the master.

    :param cluster: the answer of ``QueryClusterInfo``.
    :param known: the nodes, as the master knows them.
    :returns: what is different; empty when everything is right.
    """
    try:
        client = ConfdClient(read_key(), [node.address for node in known if node.candidate])
    except OSError as err:
        return [f"cannot read the key of the cluster: {err.strerror}"]
    wrong = []
    checks: list[tuple[str, int, Any, Callable[[Any], bool]]] = [
        ("the ping", confd.REQ_PING, None, lambda _answer: True),
        (
            "the name of the master",
            confd.REQ_CLUSTER_MASTER,
            {confd.KEY_FIELDS: [confd.FIELD_NAME]},
            lambda answer: answer == [cluster["master"]],
        ),
        (
            "the addresses of the nodes",
            confd.REQ_NODE_IPS,
            None,
            lambda answer: {node.address for node in known} <= set(answer),
        ),
        *(
            (f"the role of {node.name}", confd.REQ_NODE_ROLE, node.name, _role_of(node))
            for node in known
        ),
    ]
    for what, kind, query, right in checks:
        try:
            answer = client.query(kind, query)
        except errors.ConfdClientError as err:
            wrong.append(f"{what}: {err}")
            continue
        if not answer.ok or not right(answer.answer):
            wrong.append(f"{what}: the answer is {answer.answer!r:.200}")
    return wrong


def _role_of(node: Node) -> Callable[[Any], bool]:
    high = (confd.ROLE_MASTER, confd.ROLE_CANDIDATE)
    return lambda answer: (answer in high) == node.candidate
