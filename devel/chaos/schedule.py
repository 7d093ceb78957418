"""The schedule of faults: a pure function of a number, the *seed*.

The run is a sequence of *rounds*. In each round some faults are made, each at its second and for
some seconds; then everything is mended, and the promises are checked. Round `n` depends on the seed
and on `n` only, so a longer run begins with the rounds of a shorter one, and each round can be
repeated alone.

A node which returns with old or damaged files has forgotten what it had acknowledged as one of a
majority. No protocol survives that together with the loss of the rest of this majority, so such a
fault is alone in its round, and the round begins when all nodes have the same state. All other
faults only take nodes away, slow them down or lose what was not flushed; they are combined freely.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import random
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

NODES: Final = 5
#: Seconds of a round in which faults are made and last.
ROUND_S: Final = 24.0

MASTERD: Final = "ganeti-masterd"
NODED: Final = "ganeti-noded"
RAPI: Final = "ganeti-rapi"
DAEMONS: Final = (MASTERD, NODED, "ganeti-confd", RAPI, "ganeti-failoverd")
TORN_FILES: Final = ("config.data", "queue", "serial", "ssconf", "master_state")
RENEWALS: Final = (
    "--new-cluster-certificate", "--new-node-certificates", "--new-rapi-certificate",
    "--new-confd-hmac-key", "--new-cluster-domain-secret",
)  # fmt: skip

# Node 0 is the master at the beginning of the round; the others follow in the
# order of their names. So faults hit the master as often as the schedule wants.
MASTER: Final = 0


@dataclasses.dataclass(frozen=True)
class Fault:
    """A fault.

    :ivar at_s: seconds after the begin of the round.
    :ivar kind: a key of :data:`KINDS`.
    :ivar node: the node concerned: :data:`MASTER`, or the number of another node.
    :ivar lasts_s: seconds until it is mended; 0 for a fault of a moment.
    :ivar detail: what else it needs, for example the name of a daemon.
    """

    at_s: float
    kind: str
    node: int
    lasts_s: float
    detail: str = ""

    def text(self) -> str:
        """One line for people."""
        which = "the master" if self.node == MASTER else f"node {self.node}"
        lasts = f" for {self.lasts_s:g} s" if self.lasts_s else ""
        return f"{self.at_s:5.1f} s: {self.kind}, {which}{lasts} {self.detail}".rstrip()


@dataclasses.dataclass(frozen=True)
class Variant:
    """How the cluster of a run is made.

    :ivar processes: jobs are executed in processes.
    :ivar large: the configuration is large enough for a journal.
    :ivar two: it has two nodes and a witness.
    :ivar watchdogs: each node has a hardware watchdog.
    """

    processes: bool = False
    large: bool = False
    two: bool = False
    watchdogs: bool = False

    @property
    def nodes(self) -> int:
        """How many nodes it has."""
        return 2 if self.two else NODES

    def text(self) -> str:
        """Return a clause for people."""
        jobs = "jobs in processes" if self.processes else "jobs in threads"
        nodes = "two nodes with a witness" if self.two else f"{NODES} nodes"
        dogs = ", watchdogs" if self.watchdogs else ""
        return f"{nodes}, {jobs}, {'a large' if self.large else 'a small'} configuration{dogs}"


def variant_of(seed: int) -> Variant:
    """Return the cluster which belongs to a seed."""
    rng = random.Random(f"{seed}/variant")
    return Variant(
        rng.random() < 0.6, rng.random() < 0.5, rng.random() < 0.2, watchdogs=rng.random() < 0.3
    )


@dataclasses.dataclass(frozen=True)
class Round:
    """A round with its faults, in the order of their seconds."""

    number: int
    faults: tuple[Fault, ...]

    def text(self) -> str:
        """Return a line for the round, and one for each fault."""
        lines = [f"round {self.number}", *(f"  {fault.text()}" for fault in self.faults)]
        return "\n".join(lines)


_SHAPES: Final = (
    "two", "two", "two", "three", "bridge", "ring", "isolated", "mute", "deaf", "deaf",
)  # fmt: skip


def _daemon(rng: random.Random) -> str:
    return rng.choices(DAEMONS, (4, 4, 1, 1, 1))[0]


def _split(rng: random.Random) -> str:
    """Choose who does not reach whom; the numbers of nodes, as ``01|234`` or ``0>3``."""
    nodes = list(range(NODES))
    rng.shuffle(nodes)
    shape = rng.choice(_SHAPES)
    if shape == "two":
        cut = rng.randint(1, NODES - 1)
        groups = [nodes[:cut], nodes[cut:]]
    elif shape == "three":
        groups = [nodes[:2], nodes[2:4], nodes[4:]]
    elif shape == "bridge":  # two groups, which both reach the last one
        groups = [nodes[:2], nodes[2:4]]
    elif shape == "isolated":
        groups = [[node] for node in nodes]
    elif shape == "ring":  # each reaches its two neighbours only
        pairs = [
            (nodes[one], nodes[other])
            for one, other in itertools.combinations(range(NODES), 2)
            if other - one not in (1, NODES - 1)
        ]
        return " ".join(f"{one}-{other}" for one, other in pairs)
    else:
        # The master, when it is concerned, is replaced by others and does not notice.
        one = MASTER if rng.random() < 0.5 else rng.randrange(1, NODES)
        others = [node for node in nodes if node != one]
        if shape == "deaf":  # requests to it do not arrive
            return " ".join(f"{other}>{one}" for other in others)
        return " ".join(f"{one}>{other}" for other in others[: rng.randint(1, NODES - 1)])
    return " ".join(
        f"{one}-{other}"
        for first, second in itertools.combinations(groups, 2)
        for one in first
        for other in second
    )


#: Kind of fault -> how often it is chosen, and how its detail is chosen.
KINDS: Final[dict[str, tuple[int, Any]]] = {
    "kill daemon": (6, _daemon),
    "pause daemon": (6, _daemon),
    "pause node": (2, lambda rng: ""),
    "power cut": (4, lambda rng: ""),
    "blackout": (2, lambda rng: ""),
    "split": (6, _split),
    "disk full": (2, lambda rng: ""),
    "disk slow": (2, lambda rng: f"{rng.choice((0.2, 0.5, 2.0)):g}"),
    "disk fails": (2, lambda rng: ""),
    "clock jumps": (3, lambda rng: str(rng.choice((-7200, -90, 90, 7200, 172800)))),
    "renew": (2, lambda rng: rng.choice(RENEWALS)),
    "master failover": (4, lambda rng: ""),
}
#: Kinds which make a node forget what it had acknowledged; each is alone in its round.
FORGETFUL: Final[dict[str, tuple[int, Any]]] = {
    "old data": (1, lambda rng: ""),
    "torn file": (1, lambda rng: f"{rng.choice(TORN_FILES)} {rng.random():.3f}"),
}
#: Faults which were added later. They come from another source of chance, so that the seed of an
#: older report still makes the faults which are above.
MORE: Final[dict[str, tuple[int, Any]]] = {
    "kill helpers": (3, lambda rng: rng.choice(("fork server", "spare", "all"))),
    "shortage": (4, lambda rng: rng.choice(("processes", "memory", "descriptors", "run"))),
    "slow network": (3, lambda rng: rng.choice(("slow 0.3", "slow 2", "lossy 0.1", "lossy 0.4"))),
    "hanging watcher": (2, lambda rng: ""),
    "maintenance": (1, lambda rng: ""),
}
#: The same, for nodes which forget what they had acknowledged.
MORE_FORGETFUL: Final[dict[str, tuple[int, Any]]] = {
    "damaged byte": (1, lambda rng: f"{rng.choice(TORN_FILES)} {rng.random():.3f}"),
    "hand edit": (2, lambda rng: rng.choice(("stopped", "killed", "restored"))),
    # No node forgets anything by it, but nothing else can be done meanwhile.
    "join node": (1, lambda rng: ""),
    "upgrade": (1, lambda rng: f"{rng.randint(3, 9)} {rng.choice(('resume', 'back'))}"),
}
#: Only with two nodes: the witness does not answer.
WITNESS_AWAY: Final = "witness away"
_WITNESS_SHARE: Final = 0.3
_SPLIT: Final = re.compile(r"(\d)([->])(\d)")
_MOMENT: Final = frozenset(("kill daemon", "renew", "master failover", "kill helpers", "hand edit"))
_FORGETFUL_SHARE: Final = 0.2


def kinds() -> frozenset[str]:
    """Return all kinds of faults."""
    return frozenset((*KINDS, *FORGETFUL, *MORE, *MORE_FORGETFUL, WITNESS_AWAY))


def one_round(seed: int, number: int, *, basic: bool = False) -> Round:
    """Make the round of a number, from 1.

    :param basic: only with faults of :data:`KINDS` and :data:`FORGETFUL`.
    """
    first = _basic_round(seed, number)
    if basic:
        return first
    rng = random.Random(f"{seed}/{number}/more")
    if any(fault.kind in FORGETFUL for fault in first.faults):
        if rng.random() < 0.5:
            return first
        kind = _choose(rng, MORE_FORGETFUL)
        node = (
            MASTER
            if kind in ("hand edit", "upgrade")
            else rng.choices(range(NODES), (2, 1, 1, 1, 1))[0]
        )
        lasts_s = 0.0 if kind in _MOMENT else 6.0
        detail = MORE_FORGETFUL[kind][1](rng)
        return Round(number, (Fault(round(rng.uniform(2, 8), 1), kind, node, lasts_s, detail),))
    faults = list(first.faults)
    for _ in range(rng.choices((0, 1, 2), (3, 5, 2))[0]):
        kind = _choose(rng, MORE)
        at_s = round(rng.uniform(1, ROUND_S - 8), 1)
        lasts_s = 0.0 if kind in _MOMENT else round(rng.uniform(1, ROUND_S - at_s), 1)
        # Only the master makes processes of jobs.
        helpers = kind == "kill helpers"
        node = MASTER if helpers or rng.random() < 0.45 else rng.randrange(1, NODES)
        faults.append(Fault(at_s, kind, node, lasts_s, MORE[kind][1](rng)))
    return Round(number, tuple(sorted(faults, key=lambda fault: fault.at_s)))


def for_two(seed: int, one: Round) -> Round:
    """Make the round of two nodes with a witness from one of five nodes.

    All nodes but the master are the second one, and sometimes the witness does not answer. It loses
    nothing, so it may come together with all kinds but those which make a node forget something.
    """
    faults = []
    for fault in one.faults:
        detail = fault.detail
        if fault.kind == "split":
            detail = _pair(detail)
        faults.append(dataclasses.replace(fault, node=min(fault.node, 1), detail=detail))
    rng = random.Random(f"{seed}/{one.number}/witness")
    alone = any(fault.kind in (*FORGETFUL, *MORE_FORGETFUL) for fault in faults)
    if not alone and rng.random() < _WITNESS_SHARE:
        at_s = round(rng.uniform(1, ROUND_S - 8), 1)
        lasts_s = round(rng.uniform(1, ROUND_S - at_s), 1)
        faults.append(Fault(at_s, WITNESS_AWAY, MASTER, lasts_s))
    return Round(one.number, tuple(sorted(faults, key=lambda fault: fault.at_s)))


def _pair(detail: str) -> str:
    """Return what a split means for two nodes: both ways, or one way only."""
    ways = set()
    for one, how, other in _SPLIT.findall(detail):
        first, second = min(int(one), 1), min(int(other), 1)
        if first != second:
            ways.update([(first, second)] if how == ">" else [(0, 1), (1, 0)])
    # A split of other nodes separates the two as well.
    return "{}>{}".format(*ways.pop()) if len(ways) == 1 else "0-1"


def _choose(rng: random.Random, some: dict[str, tuple[int, Any]]) -> str:
    return rng.choices(list(some), [weight for weight, _ in some.values()])[0]


def _basic_round(seed: int, number: int) -> Round:
    rng = random.Random(f"{seed}/{number}")
    if rng.random() < _FORGETFUL_SHARE:
        kind = rng.choice(sorted(FORGETFUL))
        node = rng.choices(range(NODES), (2, 1, 1, 1, 1))[0]
        detail = FORGETFUL[kind][1](rng)
        return Round(number, (Fault(round(rng.uniform(2, 8), 1), kind, node, 6.0, detail),))
    faults = []
    weights = [weight for weight, _ in KINDS.values()]
    for _ in range(rng.randint(1, 4)):
        kind = rng.choices(list(KINDS), weights)[0]
        at_s = round(rng.uniform(1, ROUND_S - 8), 1)
        lasts_s = 0.0 if kind in _MOMENT else round(rng.uniform(1, ROUND_S - at_s), 1)
        node = MASTER if rng.random() < 0.45 else rng.randrange(1, NODES)
        detail = KINDS[kind][1](rng)
        # Only the master has a master daemon and a REST daemon.
        if kind in ("blackout", "split") or detail in (MASTERD, RAPI):
            node = MASTER
        if kind == "master failover" and node == MASTER:
            node = rng.randrange(1, NODES)
        faults.append(Fault(at_s, kind, node, lasts_s, detail))
    return Round(number, tuple(sorted(faults, key=lambda fault: fault.at_s)))


def rounds(seed: int, *, basic: bool = False) -> Iterator[Round]:
    """Make all rounds of a seed, without end; see :func:`one_round`."""
    return (one_round(seed, number, basic=basic) for number in itertools.count(1))


def dump(seed: int, some: Iterable[Round]) -> str:
    """Write a schedule as JSON, to be kept or changed by hand."""
    content = {"seed": seed, "rounds": [dataclasses.asdict(one) for one in some]}
    return json.dumps(content, indent=1) + "\n"


class ScheduleError(Exception):
    """The text is not a schedule."""


def parse_schedule(text: str) -> tuple[int, Sequence[Round]]:
    """Read what :func:`dump` wrote: the seed, and the rounds.

    :raises ScheduleError: the text is not a schedule, or has an unknown kind of fault or node.
    """
    try:
        content = json.loads(text)
        found = [
            Round(int(one["number"]), tuple(Fault(**fault) for fault in one["faults"]))
            for one in content["rounds"]
        ]
        for fault in (fault for one in found for fault in one.faults):
            if fault.kind not in kinds():
                raise ScheduleError(f"unknown kind of fault '{fault.kind}'")
            if not 0 <= fault.node < NODES or not 0 <= fault.at_s or not 0 <= fault.lasts_s:
                raise ScheduleError(f"node or time is out of range: {fault.text()}")
        return int(content["seed"]), found
    except (ValueError, KeyError, TypeError) as err:
        raise ScheduleError(f"this is not a schedule: {type(err).__name__}: {err}") from err
