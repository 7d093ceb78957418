"""Checks which depend on answers of nodes.

A :class:`NodeCheck` separates what it asks from what it decides, so that a unit can ask the
questions of several checks at once (:class:`Answers`), and then judge them in its own order: the
first check which fails is the one which the user learns about, however many were asked.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar

if TYPE_CHECKING:
    from ganeti.rpc import Question, Result, RpcRunner

T = TypeVar("T")


@dataclass(frozen=True, slots=True, eq=False)
class NodeCheck(Generic[T]):
    """A check which depends on answers of nodes.

    :ivar questions: what the nodes are asked; may be empty.
    :ivar judge: is called with the answers to each question. It returns what the check has found,
        or raises the refusal.
    """

    questions: Sequence[Question]
    judge: Callable[[Sequence[dict[str, Result]]], T]

    def make(self, rpc: RpcRunner) -> T:
        """Ask the nodes, and judge their answers."""
        return Answers(rpc, [self]).judge(self)


class Answers:
    """The answers to the questions of several checks, which are asked at the same time.

    :raises errors.ProgrammerError: the arguments of a question are not those of its call.
    """

    def __init__(self, rpc: RpcRunner, checks: Sequence[NodeCheck[Any]]) -> None:
        questions = [question for check in checks for question in check.questions]
        answers = iter(rpc.call_together(questions) if questions else ())
        self._of = {check: [next(answers) for _ in check.questions] for check in checks}

    def judge(self, check: NodeCheck[T]) -> T:
        """Decide one of the checks.

        :returns: what the check has found.
        :raises errors.OpPrereqError: it refuses the operation.
        :raises errors.RpcError: a node does not answer.
        """
        return check.judge(self._of[check])
