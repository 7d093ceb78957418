"""An odd answer of one node is a failure of its call; it never reaches those who ask all nodes."""

from __future__ import annotations

import json
from typing import Any

import pytest

from ganeti import errors
from ganeti.http.client import Reply
from ganeti.rpc.results import from_outcome
from ganeti.wire import calls

ODD: tuple[Any, ...] = (
    *(7, "x", [5], [[]], [None], {"a": [1]}, {"a": {"memory": "much"}}, {"a": {"state": [1]}}),
    *([["name", "path"]], [{"name": ["x"]}], ["boot", [{"type": []}], []], ["boot", [], [[1]]]),
)


@pytest.mark.parametrize(
    "call",
    [
        calls.ALL_INSTANCES_INFO,
        calls.EXTSTORAGE_DIAGNOSE,
        calls.LV_LIST,
        calls.NODE_INFO,
        calls.NODE_VOLUMES,
        calls.OS_DIAGNOSE,
    ],
    ids=lambda call: call.name,
)
@pytest.mark.parametrize("odd", ODD, ids=repr)
def test_the_call_has_failed(call: calls.Call, odd: Any) -> None:
    answer = from_outcome(call, "node1", Reply(200, json.dumps([True, odd]).encode(), ""))
    assert isinstance(answer.failure, errors.NodeCallFailed)
    assert "cannot be decoded" in str(answer.failure)


@pytest.mark.parametrize(
    ("call", "answer"),
    [
        (calls.ALL_INSTANCES_INFO, {"web": {"memory": 5, "state": 0, "time": 1.5, "vcpus": None}}),
        (calls.EXTSTORAGE_DIAGNOSE, [["p", "/p", True, "", [["a", "doc"]]]]),
        (calls.LV_LIST, {"vg/a": ["1024.00", False, True]}),
        (calls.NODE_INFO, [None, None, [None, {"memory_free": 5, "hv_version": "x"}]]),
        (calls.NODE_INFO, ["boot", [], [{"memory_free": 5, "hv_version": [7, 2, 22]}]]),
        (calls.NODE_VOLUMES, [{"name": "a", "size": 5.5, "dev": "/dev/sda(0)", "vg": "vg"}]),
        (calls.OS_DIAGNOSE, [["o", "/o", True, "", ["v"], [["p", "doc"]], [20], True]]),
        (calls.OS_DIAGNOSE, [["o", "/o", False, "no", None, None, None, True, "1.0", ["kvm"]]]),
    ],
)
def test_right_answers(call: calls.Call, answer: Any) -> None:
    assert from_outcome(call, "node1", Reply(200, json.dumps([True, answer]).encode(), "")).data
