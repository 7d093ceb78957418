"""Checks whose questions go to the nodes together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from fakes.config import FakeConfig, cluster_of, uuid_of
from fakes.rpc import FakeRpc
from ganeti import errors
from ganeti.cmdlib.node_checks import Answers, NodeCheck
from ganeti.rpc import Question, Result
from ganeti.wire.calls import BRIDGES_EXIST, VERSION

NODE1, NODE2 = uuid_of("node1"), uuid_of("node2")


def data_of(answers: Sequence[dict[str, Result]]) -> list[Any]:
    return [answer.payload() for one in answers for answer in one.values()]


def check_of(*questions: Question) -> NodeCheck[list[Any]]:
    return NodeCheck(questions, data_of)


@pytest.fixture
def rpc() -> FakeRpc:
    return FakeRpc(FakeConfig(cluster_of(2)))


def test_each_check_gets_the_answers_to_its_own_questions(rpc: FakeRpc) -> None:
    rpc.answers["version"] = lambda node, _args: int(node[len("node")])
    first = check_of(Question(VERSION, [NODE1], {}), Question(VERSION, [NODE2], {}))
    nothing = check_of()
    last = check_of(Question(VERSION, [NODE2], {}))
    answers = Answers(rpc, [first, nothing, last])  # type: ignore[arg-type]
    assert rpc.together == [["version"] * 3]
    assert answers.judge(last) == [2]
    assert answers.judge(nothing) == []
    assert answers.judge(first) == [1, 2]


def test_checks_without_questions_call_no_node(rpc: FakeRpc) -> None:
    assert check_of().make(rpc) == []  # type: ignore[arg-type]
    assert rpc.together == []


def test_the_order_of_the_judgements_decides_which_failure_counts(rpc: FakeRpc) -> None:
    rpc.errors["bridges_exist"] = "br0 does not exist"
    rpc.errors["version"] = "too old"
    bridges = check_of(Question(BRIDGES_EXIST, [NODE1], {"bridges": ["br0"]}))
    version = check_of(Question(VERSION, [NODE1], {}))
    answers = Answers(rpc, [bridges, version])  # type: ignore[arg-type]
    with pytest.raises(errors.NodeCallFailed, match="too old"):
        answers.judge(version)
