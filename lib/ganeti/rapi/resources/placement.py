"""Questions about placement; see :mod:`ganeti.rapi.placement`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

from ganeti import ht
from ganeti.rapi import declare
from ganeti.rapi.call import Call
from ganeti.rapi.declare import GET, POST, READERS, Field, Query, Read, Resource, Result

_GROUP: Final = Query("group", "look at this node group only, by name or UUID", declare.TEXT)
_MAX_LENGTH: Final = Query(
    "max-length", "the most instances, or moves, of the answer", declare.NUMBER
)
_SOFT: Final = Query("ignore-soft-errors", "1: allow what only violates policies", default=False)
_NO_CHECKS: Final = Query(
    "no-capacity-checks",
    "1: do not check that the cluster survives the loss of any node",
    default=False,
)


def _text(name: str, doc: str) -> Query:
    return Query(name, doc, declare.TEXT)


def _flag(name: str, doc: str) -> Query:
    return Query(name, f"1: {doc}", default=False)


_CAPACITY: Final = (
    _GROUP,
    _text("disk-template", "the disk template of the instances; the first one of the policy"),
    _text("standard-alloc", "the size: disk,memory,cpus[,spindles]; that of the policy"),
    _text("tiered-alloc", "the size with which tiers begin; the largest ones of the policy"),
    _MAX_LENGTH,
    _text("max-cpu", "the most virtual CPUs for each real one"),
    _text("min-disk", "the share of its disk space which a node keeps free"),
    _flag("independent-groups", "check each group by itself"),
    _flag("accept-existing-errors", "do not count groups which already lack memory"),
    _NO_CHECKS,
)
_BALANCE: Final = (
    _GROUP,
    _flag("evac-mode", "move only instances that are on offline or drained nodes"),
    _MAX_LENGTH,
    _text("min-gain", "what one step must gain when the score is small"),
    _text("min-gain-limit", "the score up to which min-gain counts"),
    _text("min-score", "stop when the score is not above this"),
    _flag("no-disk-moves", "never copy disks to another node"),
    _flag("no-instance-moves", "never move an instance to another primary node"),
    _flag("restricted-migration", "leave online primary nodes only for secondary nodes"),
    _SOFT,
    _text("select-instances", "move only these instances, separated by commas"),
    _text("exclude-instances", "do not move these instances, separated by commas"),
)
_NAMES: Final = ht.AtMost(ht.ListOf(ht.NonEmptyString), 1000)
_CHANGES: Final = {
    "changes": Field(
        ht.AtMost(ht.ListOf(ht.NonEmptyString), 100),
        "changes in their order, such as fail-node=node3 or add-instances=10:20g,2g,2:drbd"
        " (manual page htools, WHAT IF)",
        required=True,
    ),
    "balance": Field(ht.Bool, "also the moves which balance the changed cluster", default=False),
}
_SIZE: Final = ht.Within(ht.Int, 1, 1 << 40)
_INSTANCE: Final = {
    "memory": Field(_SIZE, "memory in MiB", required=True),
    "vcpus": Field(ht.Within(ht.Int, 1, 1 << 16), "virtual CPUs", required=True),
    "disks": Field(ht.AtMost(ht.ListOf(_SIZE), 64), "the size of each disk in MiB", required=True),
    "disk_template": Field(ht.Maybe(ht.NonEmptyString), "the first one of the policy, if missing"),
    "name": Field(ht.Maybe(ht.NonEmptyString), "name of the instance, for the texts"),
    "group": Field(ht.Maybe(ht.NonEmptyString), "only in this node group"),
    "nodes": Field(ht.Maybe(_NAMES), "only on these nodes"),
    "tags": Field(ht.Maybe(_NAMES), "tags of the instance: exclusion and location tags count"),
    "networks": Field(ht.Maybe(_NAMES), "UUIDs of the networks of its NICs"),
    "spindle_use": Field(ht.Within(ht.Int, 0, 1 << 16), "spindles which it uses", default=1),
}


def words(call: Call) -> list[str]:
    """Return the arguments of a request as options of the program which answers it."""
    found = []
    for name in sorted(call.given):
        value = call.query.get(name)
        if value is True:
            found.append(f"--{name}")
        elif value not in (None, False):
            found.append(f"--{name}={value}")
    return found


def _asks(question: str) -> Callable[[Call], Awaitable[dict[str, Any]]]:
    async def ask(call: Call) -> dict[str, Any]:
        body: Mapping[str, Any] = call.body or {}
        return await call.state.placement.ask(question, words(call), body)

    return ask


_UNKNOWN: Final = "unknown_nodes: nodes which should answer and do not, so nothing is placed there"
RESOURCES: Final = (
    Resource(
        "/2/capacity",
        "capacity",
        {
            GET: Read(
                _asks("capacity"),
                "How many more instances fit, and what stops further ones (hspace).",
                Result(
                    ht.Dict,
                    "initial: sums of the cluster; tiered and standard: instances, sizes, failures"
                    f" and figures, standard also with reasons in sentences; {_UNKNOWN}",
                ),
                _CAPACITY,
                access=READERS,
                waits=True,
            ),
        },
    ),
    Resource(
        "/2/balance",
        "balance",
        {
            GET: Read(
                _asks("balance"),
                "The moves which balance each node group (hbal), with their opcodes.",
                Result(
                    ht.Dict,
                    "groups: for each initial_score, final_score, and job_sets: lists of moves"
                    f" which can run at once, each with opcodes for a job; {_UNKNOWN}",
                ),
                _BALANCE,
                access=READERS,
                waits=True,
            ),
        },
    ),
    Resource(
        "/2/what-if",
        "what_if",
        {
            POST: Read(
                _asks("what-if"),
                "What the cluster would be after some changes, which nobody makes.",
                Result(
                    ht.Dict,
                    "changes: instances which moved or found no place; moves: from and to; before"
                    " and after: what fits and what is not survived; balance, when it is wanted;"
                    f" {_UNKNOWN}",
                ),
                (_GROUP, _SOFT),
                fields=_CHANGES,
                access=READERS,
                waits=True,
            ),
        },
    ),
    Resource(
        "/2/place",
        "place",
        {
            POST: Read(
                _asks("place"),
                "Where an instance would be put, with the reason for each node (hail).",
                Result(
                    ht.Dict,
                    "chosen: names of the nodes, empty if there is no place; nodes: a row with"
                    " score and reason for each; reasons: why there is no place, in sentences;"
                    f" {_UNKNOWN}",
                ),
                (_SOFT, _NO_CHECKS),
                fields=_INSTANCE,
                access=READERS,
                waits=True,
            ),
        },
    ),
)
