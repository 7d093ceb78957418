"""Predicates of filter rules: which jobs they mean, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ganeti import errors
from ganeti.query import job_rules

START = {
    "OP_ID": "OP_INSTANCE_STARTUP",
    "instance_name": "web1",
    "force": False,
    "timeout": 30,
    "hvparams": {"kvm": {"acpi": True}},
    "nodes": ["n1", "n2"],
    "empty": None,
    "reason": [["gnt:user", "maintenance", 17], ["gnt:opcode:x", "job=7;index=0", 18]],
}
VERIFY = {"OP_ID": "OP_CLUSTER_VERIFY"}


def means(*predicates: Any, job_id: int = 7, ops: Any = (START,), watermark: int = 5) -> bool:
    return job_rules.compile_predicates(list(predicates), watermark)(job_id, list(ops))


def test_no_predicate_means_every_job() -> None:
    assert means()


@pytest.mark.parametrize(
    ("node", "wanted"),
    [
        ([">", "id", 6], True),
        ([">", "id", 7], False),
        (["=", "id", 7], True),
        (["==", "id", "7"], True),
        (["<=", "id", "watermark"], False),
        ([">", "id", "watermark"], True),
        (["!", [">", "id", "watermark"]], False),
        (["|", ["=", "id", 3], ["=", "id", 7]], True),
        (["&", [">", "id", 3], ["<", "id", "watermark"]], False),
        (["&"], True),
        (["|"], False),
    ],
)
def test_job_id(node: Any, wanted: bool) -> None:
    assert means(["jobid", node]) is wanted


def test_watermark_is_only_a_word_in_a_job_id() -> None:
    op = {"OP_ID": "OP_X", "name": "watermark"}
    assert means(["opcode", ["=", "name", "watermark"]], ops=[op])


@pytest.mark.parametrize(
    ("node", "wanted"),
    [
        (["=", "OP_ID", "OP_INSTANCE_STARTUP"], True),
        (["=~", "OP_ID", "^OP_INSTANCE_"], True),
        (["=", "OP_ID", "OP_INSTANCE"], False),
        (["<", "timeout", 31], True),
        (["?", "force"], False),
        (["!", ["?", "force"]], True),
        (["?", "hvparams.kvm.acpi"], True),
        (["=[]", "nodes", "n2"], True),
        (["=[]", "nodes", "n3"], False),
        # What an opcode does not have makes nothing true, whatever is asked about it.
        (["=", "node_name", "n1"], False),
        (["!=", "node_name", "n1"], False),
        (["!", ["=", "node_name", "n1"]], False),
        (["!=", "empty", "x"], False),
        (["=", "hvparams.xen.acpi", 1], False),
        (["=", "timeout.x", 1], False),
        # Nor does a value of another type.
        (["=", "instance_name", 4], False),
        (["!=", "instance_name", 4], False),
        (["?", "timeout"], False),
        (["=[]", "timeout", 30], False),
        (["=~", "nodes", "n"], False),
        # But the rest may decide.
        (["|", ["=", "node_name", "n1"], ["=", "instance_name", "web1"]], True),
        (["&", ["=", "node_name", "n1"], ["=", "instance_name", "web1"]], False),
        (["!", ["&", ["=", "node_name", "n1"], ["=", "instance_name", "web2"]]], True),
    ],
)
def test_opcode(node: Any, wanted: bool) -> None:
    assert means(["opcode", node]) is wanted


def test_a_regular_expression_of_a_rule_cannot_stop_the_queue() -> None:
    rule = job_rules.compile_predicates(
        [["opcode", ["=~", "instance_name", "(((((.+)+)+)+)+)+Z"]]], watermark=0
    )
    assert not rule(1, [{"instance_name": "web" * 1000}])
    with pytest.raises(errors.ParameterError, match="references to groups"):
        job_rules.check_rule(1, [["reason", ["=~", "reason", "(a)\\1"]]], "REJECT", [])


def test_one_opcode_of_a_job_is_enough_but_it_must_be_one() -> None:
    both = ["opcode", ["&", ["=", "OP_ID", "OP_CLUSTER_VERIFY"], ["=", "instance_name", "web1"]]]
    assert means(["opcode", ["=", "OP_ID", "OP_CLUSTER_VERIFY"]], ops=[START, VERIFY])
    assert not means(both, ops=[START, VERIFY])
    assert means(
        ["opcode", ["=", "OP_ID", "OP_CLUSTER_VERIFY"]],
        ["opcode", ["=", "instance_name", "web1"]],
        ops=[START, VERIFY],
    )


@pytest.mark.parametrize(
    ("node", "wanted"),
    [
        (["=", "reason", "maintenance"], True),
        (["=~", "source", "^gnt:opcode"], True),
        (["<", "timestamp", 18], True),
        ([">", "timestamp", 18], False),
        # In one entry, not in two.
        (["&", ["=", "source", "gnt:user"], ["=", "timestamp", 18]], False),
    ],
)
def test_reason(node: Any, wanted: bool) -> None:
    assert means(["reason", node]) is wanted
    assert not means(["reason", node], ops=[VERIFY])


@pytest.mark.parametrize("trail", ["text", [1], [["a", "b"]], None, {"a": 1}])
def test_a_trail_of_another_program_is_no_trouble(trail: Any) -> None:
    assert not means(["reason", ["=", "source", "x"]], ops=[{"OP_ID": "OP_X", "reason": trail}])


def test_all_predicates_must_hold() -> None:
    right, wrong = ["jobid", ["=", "id", 7]], ["jobid", ["=", "id", 8]]
    assert means(right, ["reason", ["=", "reason", "maintenance"]])
    assert not means(right, wrong)


@pytest.mark.parametrize(
    ("predicates", "part"),
    [
        ("x", "predicates must be a list"),
        (["x"], "pair of kind and filter"),
        ([["jobid"]], "pair"),
        ([["nosuch", ["=", "id", 1]]], "no kind of predicate 'nosuch'"),
        ([[["a"], ["=", "id", 1]]], "no kind of predicate"),
        ([["jobid", ["=", "nosuch", 1]]], "no field 'nosuch'"),
        ([["jobid", ["=", "id", "soon"]]], "'soon' is not a job id"),
        ([["jobid", ["=", "id", True]]], "must be text or an integer"),
        ([["reason", ["=", "who", "x"]]], "no field 'who'"),
        ([["opcode", ["=", 5, "x"]]], "no field 5"),
        ([["opcode", ["=", "", "x"]]], "no field ''"),
        ([["opcode", ["%", "a", "x"]]], "no filter operator '%'"),
        ([["opcode", ["=", "a"]]], "takes 2 arguments"),
        ([["opcode", ["!"]]], "takes 1 argument"),
        ([["opcode", ["=~", "a", "("]]], "bad regular expression"),
        ([["opcode", []]], "must be a list"),
        ([["opcode", None]], "must be a list"),
        ([["opcode", "x"]], "must be a list"),
    ],
)
def test_refused(predicates: Any, part: str) -> None:
    with pytest.raises(errors.ParameterError, match=part):
        job_rules.compile_predicates(predicates, 0)


def test_too_deep() -> None:
    node: Any = ["=", "id", 1]
    for _ in range(500):
        node = ["!", node]
    with pytest.raises(errors.ParameterError, match="nested more than 100 deep"):
        job_rules.compile_predicates([["jobid", node]], 0)


@pytest.mark.parametrize(
    "action", ["ACCEPT", "PAUSE", "REJECT", "CONTINUE", ["RATE_LIMIT", 1], ("RATE_LIMIT", 20)]
)
def test_actions(action: Any) -> None:
    job_rules.check_action(action)


@pytest.mark.parametrize(
    "action",
    [
        "accept",
        "RATE_LIMIT",
        ["RATE_LIMIT"],
        ["RATE_LIMIT", 0],
        ["RATE_LIMIT", True],
        ["RATE_LIMIT", "3"],
        ["ACCEPT"],
        None,
        4,
        ["PAUSE", 3],
    ],
)
def test_no_actions(action: Any) -> None:
    with pytest.raises(errors.ParameterError, match="filter action|takes a number"):
        job_rules.check_action(action)


def test_a_whole_rule() -> None:
    job_rules.check_rule(0, [], "PAUSE", [["gnt:user", "because", 5]])
    for wrong in (
        dict(priority=-1),
        dict(priority="0"),
        dict(priority=True),
        dict(reason="x"),
        dict(reason=[["a", "b"]]),
        dict(reason=[["a", 1, 2]]),
        dict(predicates=[["jobid", ["=", "x", 1]]]),
        dict(action="x"),
    ):
        values: dict[str, Any] = {"priority": 0, "predicates": [], "action": "PAUSE", "reason": []}
        with pytest.raises(errors.ParameterError):
            job_rules.check_rule(**{**values, **wrong})


def test_the_legacy_sign_is_stored_as_the_present_one() -> None:
    assert job_rules.normalised(
        [["opcode", ["|", ["=", "OP_ID", "x"], ["!", ["=", "a", "="]]]]]
    ) == [["opcode", ["|", ["==", "OP_ID", "x"], ["!", ["==", "a", "="]]]]]


_VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.text(max_size=5)
    | st.sampled_from(
        [
            "=",
            "|",
            "&",
            "!",
            "?",
            "=~",
            "=[]",
            "<",
            "id",
            "jobid",
            "opcode",
            "OP_ID",
            "reason",
            "watermark",
        ]
    ),
    lambda inner: st.lists(inner, max_size=4),
    max_leaves=20,
)


@given(_VALUES)
def test_anything_is_understood_or_refused(predicates: Any) -> None:
    try:
        meant = job_rules.compile_predicates(predicates, 3)
    except errors.ParameterError:
        return
    assert meant(7, [START, VERIFY]) in (True, False)
    assert job_rules.compile_predicates(job_rules.normalised(predicates), 3)(
        7, [START, VERIFY]
    ) == meant(7, [START, VERIFY])


def test_a_rule_has_a_largest_size() -> None:
    many = ["|", *(["==", "id", number] for number in range(job_rules.MAX_CONDITIONS))]
    with pytest.raises(errors.ParameterError, match="more than 2000 conditions"):
        job_rules.check_rule(0, [["jobid", many]], "PAUSE", [])
    half = [["jobid", ["|", *(["==", "id", number] for number in range(1200))]]]
    job_rules.check_rules([half])
    with pytest.raises(errors.ParameterError, match="2406 conditions; 2000 are allowed"):
        job_rules.check_rules([half, half])


def test_a_job_has_a_largest_number_of_parts() -> None:
    reason = ["gnt:user", "x", 1]
    job_rules.check_parts([{"reason": [reason] * 4999}])
    for ops in ([{"reason": [reason] * 5000}], [{}] * 5001):
        with pytest.raises(errors.ParameterError, match="5001 opcodes and reasons"):
            job_rules.check_parts(ops)
