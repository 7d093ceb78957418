"""Keys for the transfer of disks, which the nodes make for one operation.

A node makes a key with a self-signed certificate. The key stays on the node; the master sends the
certificate to the other end of the transfer, on a connection on which it knows the node. Each end
then accepts the other one only. The certificate of the cluster would not do: all nodes have its
key, so that one node could take the place of another.

Source: ``doc/design-node-keys.rst``; Ganeti design 2.2, *Inter-cluster instance moves*.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from ganeti import errors
from ganeti.cmdlib.base import JobLog, why
from ganeti.wire.calls import backup as calls

if TYPE_CHECKING:
    from ganeti.objects import Node
    from ganeti.rpc import RpcRunner

#: Validity in seconds of the keys for a transfer inside the cluster, which begins at once. Nodes
#: whose clocks are wrong by days shall accept them.
LOCAL_VALIDITY_S: Final = 7 * 86400


class TransferKey(NamedTuple):
    """A key on a node.

    :ivar name: its name on the node.
    :ivar certificate: in PEM, for the other end.
    """

    name: str
    certificate: str


@contextlib.contextmanager
def keys_of(
    rpc: RpcRunner, log: JobLog, nodes: Sequence[Node], validity_s: int
) -> Iterator[Mapping[str, TransferKey]]:
    """Make a key on each node, and remove the keys at the end of the block.

    A key which cannot be removed is a warning; ``ganeti-cleaner`` removes it when it has expired.

    :returns: node UUID -> key.
    :raises errors.OpExecError: a node cannot make one.
    """
    by_uuid = {node.uuid: node for node in nodes}
    made: dict[str, TransferKey] = {}
    try:
        answers = rpc.call_many(calls.X509_CERT_CREATE, by_uuid, validity_s=validity_s)
        for uuid, answer in answers.items():
            if answer.failure is None:
                made[uuid] = TransferKey(*answer.data)
        for uuid, answer in answers.items():
            if answer.failure is not None:
                raise errors.OpExecError(
                    f"node {by_uuid[uuid].name} cannot make a key for the transfer of disks:"
                    f" {why(answer.failure)}"
                ) from answer.failure
        yield made
    finally:
        _remove(rpc, log, by_uuid, made)


def _remove(
    rpc: RpcRunner, log: JobLog, nodes: Mapping[str, Node], made: Mapping[str, TransferKey]
) -> None:
    if not made:
        return
    answers = rpc.call_many(
        calls.X509_CERT_REMOVE,
        made,
        per_node={uuid: {"name": key.name} for uuid, key in made.items()},
    )
    for uuid, answer in answers.items():
        if answer.failure is not None:
            log.warn(
                f"key {made[uuid].name} stays on node {nodes[uuid].name}: {why(answer.failure)}"
            )
