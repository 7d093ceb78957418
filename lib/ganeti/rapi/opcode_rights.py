"""Which opcodes a user may submit with ``POST /2/jobs``.

The right to submit an opcode is the right to use the operation which submits it: who may use ``PUT
/2/instances/{name}/startup`` may submit ``OP_INSTANCE_STARTUP``, with the parameters which that
operation takes (an opcode that only reads: with any). :data:`WITHOUT_OPERATION` has the opcodes of
commands for which there is no other operation. Those of :data:`ONLY_ON_THE_MASTER` are refused,
with the reason.

A user with the right ``write`` may set every parameter of an opcode, except those which the
operation forbids.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from ganeti import opcodes
from ganeti.http.messages import Refused
from ganeti.opcodes.base import COMMON_PARAMS, QUERY, OpCode
from ganeti.rapi.declare import READERS, WRITE, WRITERS, Job, Resource
from ganeti.rapi.rights import CONSOLES
from ganeti.rapi.users import User

#: Opcodes of commands without an operation of their own, and the right which they need.
WITHOUT_OPERATION: Final[Mapping[str, frozenset[str]]] = {
    "OP_CLUSTER_CONFIG_QUERY": READERS,
    "OP_CLUSTER_QUERY": READERS,
    "OP_CLUSTER_REPAIR_DISK_SIZES": WRITERS,
    "OP_CLUSTER_VERIFY_CONFIG": WRITERS,
    "OP_CLUSTER_VERIFY_DISKS": WRITERS,
    "OP_CLUSTER_VERIFY_GROUP": WRITERS,
    "OP_EXT_STORAGE_DIAGNOSE": READERS,
    "OP_GROUP_EVACUATE": WRITERS,
    "OP_GROUP_VERIFY_DISKS": WRITERS,
    "OP_INSTANCE_CHANGE_GROUP": WRITERS,
    "OP_INSTANCE_CONSOLE": READERS,
    "OP_INSTANCE_MOVE": WRITERS,
    "OP_NODE_MAINTENANCE_CHECK": WRITERS,
    "OP_NODE_QUERYVOLS": READERS,
    "OP_OOB_COMMAND": WRITERS,
    "OP_OS_DIAGNOSE": READERS,
    "OP_QUERY": READERS,
    "OP_QUERY_FIELDS": READERS,
    "OP_TAGS_GET": READERS,
    "OP_TAGS_SEARCH": READERS,
}
# The operations for which one of these asks, where it is not ``POST /2/jobs``.
_ASKED: Final = {"OP_INSTANCE_CONSOLE": (CONSOLES, "GET")}
#: Opcodes which only commands on the master submit, and why.
ONLY_ON_THE_MASTER: Final[Mapping[str, str]] = {
    "OP_CLUSTER_ACTIVATE_MASTER_IP": "it decides how this interface is reached",
    "OP_CLUSTER_DEACTIVATE_MASTER_IP": "it decides how this interface is reached",
    "OP_CLUSTER_DESTROY": "it ends the cluster",
    "OP_CLUSTER_POST_INIT": "it belongs to the creation of a cluster",
    "OP_CLUSTER_RENAME": "it decides how this interface is reached",
    "OP_CLUSTER_RENEW_CRYPTO": "the command stops the daemons, and makes keys as root",
    "OP_NODE_ADD": "the command connects to the machine as root",
    "OP_NODE_AUTO_FAILOVER": "the watcher submits it after checks of its own",
    "OP_NODE_REMOVE": "the command cleans the machine as root",
    "OP_RESTRICTED_COMMAND": "it runs a program as root on a node",
    "OP_TEST_ALLOCATOR": "it is for developers",
    "OP_TEST_DELAY": "it is for developers",
    "OP_TEST_DUMMY": "it is for developers",
    "OP_TEST_JQUEUE": "it is for developers",
    "OP_TEST_OS_PARAMS": "it is for developers",
}


class Ground(NamedTuple):
    """An operation by which a user may submit an opcode.

    :ivar needed: the rights of which it needs one.
    """

    needed: frozenset[str]
    handler: str
    method: str


class Offer(NamedTuple):
    """An operation which submits an opcode."""

    resource: Resource
    method: str
    job: Job

    def allows(self, op: OpCode) -> bool:
        """Tell whether the operation could have made this opcode."""
        job = self.job
        may_be_set = {
            *job.static_params(),
            *self.resource.names(),
            *job.body_fields(self.resource.names()),
            *job.rename.values(),
            *COMMON_PARAMS,
        }
        return all(
            value == job.fixed[name] if name in job.fixed else name in may_be_set
            for name, value in op.to_dict().items()
            if name in op.PARAMS and value != op.PARAMS[name].default
        )


def offers(resources: Iterable[Resource]) -> dict[str, tuple[Offer, ...]]:
    """Return the operations which submit each opcode, by its OP_ID."""
    found: dict[str, tuple[Offer, ...]] = {}
    for resource in resources:
        for method, operation in resource.operations.items():
            if isinstance(operation, Job):
                op_id = operation.opcode.OP_ID
                found[op_id] = (*found.get(op_id, ()), Offer(resource, method, operation))
    return found


def check(
    offered: Mapping[str, tuple[Offer, ...]], user: User, ops: Iterable[OpCode]
) -> list[list[Ground]]:
    """Check that a user may submit these opcodes, for some objects.

    :param offered: as :func:`offers` returns it.
    :returns: for each opcode the operations by which he may.
    :raises Refused: 403 with the first opcode which he may not submit.
    """
    return [_grounds(offered.get(op.OP_ID, ()), user, op) for op in ops]


def _grounds(known: Iterable[Offer], user: User, op: OpCode) -> list[Ground]:
    needed = WITHOUT_OPERATION.get(op.OP_ID)
    why = ONLY_ON_THE_MASTER.get(op.OP_ID)
    if why is not None:
        raise Refused(403, f"{op.OP_ID} needs a command on the master, because {why}")
    found = [
        Ground(offer.job.access, offer.resource.handler, offer.method)
        for offer in known
        if _may(user, offer, op)
    ]
    handler, method = _ASKED.get(op.OP_ID, ("jobs", "POST"))
    if needed is not None and user.may(needed, handler, method):
        found.append(Ground(needed, handler, method))
    if not found:
        raise Refused(403, f"user {user.name} may not submit {op.OP_ID} with these parameters")
    return found


def _may(user: User, offer: Offer, op: OpCode) -> bool:
    job = offer.job
    if not user.may(job.access, offer.resource.handler, offer.method):
        return False
    if user.rights.area(user.name, frozenset({WRITE}), "", "") is None:
        params = op.to_dict()
        return all(
            params.get(name, op.PARAMS[name].default) == op.PARAMS[name].default
            for name in job.forbidden
        )
    return op.KIND == QUERY or offer.allows(op)


def from_dicts(rows: Iterable[Mapping[str, object]]) -> list[OpCode]:
    """Make checked opcodes.

    :raises OpCodeUnknown: an OP_ID is unknown.
    :raises OpPrereqError: wrong_input: a parameter is missing or wrong.
    """
    return [opcodes.from_dict(dict(row)).validate() for row in rows]
