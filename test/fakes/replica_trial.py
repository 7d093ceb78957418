"""Trying one of :mod:`fakes.replica_operations` in one of :mod:`fakes.replica_states`.

:func:`tried` tells what came of it, and what is wrong:

* The best copy in the cluster has fewer confirmed blocks than the best one had before.
* What the guest uses after a success lacks confirmed blocks, or the guest cannot write.
* When all nodes are well again, the instance does not start, or its guest lacks confirmed blocks,
  or it does so after a failover.

An operation which accepts a loss, and whose messages name it, may break the last two.
"""

from __future__ import annotations

import re

from fakes.confirmed import Lab
from fakes.replica_operations import Operation
from fakes.replica_states import State
from ganeti import errors
from ganeti.opcodes import instance as ops

WORKS, LOSES, NOT_POSSIBLE = "works", "works, and names a loss", "cannot be"

#: What a refusal says; the first which fits is its outcome.
REFUSALS = {
    "is to be stopped": "marked 'up'",
    "runs there": "answers, and instances run there",
    "does not run": "it does not run|is not running|marked 'down'",
    "no growth": "has not grown",
    "exists": "exists? on node|exist. To get empty ones",
    "offline": "(is|are) marked offline|is offline",
    "unreachable": "is unreachable",
    "no comparison": (
        "cannot be compared|not connected to its peer|missed writes|misse?s? the writes|not in sync"
    ),
    "incomplete": "no complete (copy|replica)|lost its storage|no local storage|(is|are) degraded",
    "synchronising": "is being synchronised",
    "no proof": "which is known to have all data",
    "not active": "is not active|does not exist",
    "in use": "held open|is writable",
}
_NAMES_A_LOSS = re.compile(r"\b(is|are|be) lost\b|lose")


class Result:
    """What an operation did in one state."""

    def __init__(self, outcome: str, problems: list[str], text: str) -> None:
        self.outcome, self.problems, self.text = outcome, problems, text


def tried(lab: Lab, operation: Operation, reach: State, running: bool) -> Result:
    """Bring a new cluster into a state, carry out the operation, and look at the guest."""
    reach(lab, running)
    before, jobs = lab.best(), len(lab.cluster.jobs)
    try:
        lab.run(*operation.make())
        outcome, text = WORKS, ""
    except errors.GenericError as err:
        text = str(err)
        outcome = next((name for name, words in REFUSALS.items() if re.search(words, text)), text)
    log = "\n".join(line for job in lab.cluster.jobs[jobs:] for line in job.log)
    if outcome == WORKS and operation.destroys:
        return Result(outcome, [], log)
    problems = []
    if before - lab.best():
        problems.append(f"the best copy lost {len(before - lab.best())} blocks")
    problems += _problems_now(lab)
    problems += _problems_later(lab, operation)
    if problems and outcome == WORKS and _NAMES_A_LOSS.search(log):
        return Result(LOSES, [], "; ".join(problems))
    return Result(outcome, problems, text)


def _problems_now(lab: Lab) -> list[str]:
    if lab.instance is None or not lab.disks:
        return []
    if len(lab.where()) > 1:
        return ["the guest runs twice"]
    if not lab.where():
        return []
    problems = _unseen(lab, "the guest")
    count = len(lab.confirmed)
    lab.write(2)
    if len(lab.confirmed) != count + 2:
        problems.append("the guest cannot write any more")
    return problems


def _problems_later(lab: Lab, operation: Operation) -> list[str]:
    """What the guest sees when all nodes are well again."""
    if lab.instance is None:
        return []
    lab.heal()
    try:
        if operation.repair is not None:
            operation.repair(lab)
        if not lab.where():
            lab.start()
    except errors.GenericError as err:
        return [f"the instance does not start when all nodes are well: {err}"]
    problems = _unseen(lab, "when all nodes are well, the guest")
    lab.write(2)
    try:
        lab.run(ops.OpInstanceFailover(instance_name=lab.name))
    except errors.GenericError:
        return problems
    return problems + (_unseen(lab, "after a failover, the guest") if lab.where() else [])


def _unseen(lab: Lab, who: str) -> list[str]:
    missing = lab.lost(lab.seen())
    return [f"{who} lacks {len(missing)} of {len(lab.confirmed)} blocks"] if missing else []
