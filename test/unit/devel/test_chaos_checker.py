"""The checker of a chaos run finds a planted violation of each promise, and no other.

Each test begins with a history and evidence which are right.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from devel.chaos import checker, evidence, history
from devel.chaos.checker import Evidence, Interval, Job, Promise
from devel.chaos.history import BEGUN, FAILED, OK, UNKNOWN, Operation

WEB = "web.example.com"


def told(
    kind: str, subject: str, value: str = "", outcome: str = OK, job: int | None = None
) -> Operation:
    return Operation("user", "luxi", kind, subject, value, 1.0, 2.0, outcome, job, "node1")


HISTORY = [
    told(history.CREATE, WEB),
    told(history.SUBMIT, "delay-1", job=5),
    told(history.SUBMIT, "script-1", job=6),
    told(history.END, "script-1", "success", job=6),
    told(history.SUBMIT, "rest-1", job=7),
    told(history.ADD_TAG, f"instance/{WEB}", "tag-1"),
    told(history.ADD_TAG, "cluster/", "tag-2"),
    told(history.ADD_TAG, "cluster/", "tag-3"),
    told(history.REMOVE_TAG, "cluster/", "tag-3", BEGUN),
    told(history.REMOVE_TAG, "cluster/", "tag-3"),
    told(history.ADD_TAG, "cluster/", "tag-4", FAILED),
    told(history.ADD_TAG, "cluster/", "tag-5", UNKNOWN),
]
PROMISES = [
    Promise((3, "a"), (2, "b"), (2, "b")),
    Promise((3, "a"), (3, "a"), (2, "b")),
    None,
    Promise((2, "b"), (2, "b"), (2, "b")),
]
LACKING = "cannot make a process for the job: Resource temporarily unavailable"
RIGHT = Evidence(
    tags={f"instance/{WEB}": frozenset({"tag-1"}), "cluster/": frozenset({"tag-2", "tag-4"})},
    instances=frozenset({WEB}),
    jobs={
        5: Job(5, "delay-1", "error"),
        6: Job(6, "script-1", "success"),
        7: Job(7, "", "success"),
    },
    executions={(5, 1): 1, (6, 1): 1, (6, 2): 1},
    scripts=[Interval(WEB, "script-1", 3.0, 3.3), Interval(WEB, "other", 3.3, 3.6)],
    guests=[Interval(WEB, "node1", 1.0, 2.0), Interval(WEB, "node2", 2.0, None)],
    promises={"node1": PROMISES},
)


def broken(operations: list[Operation] | None = None, **changes: object) -> dict[str, str]:
    """The promises which are broken, with the last text of each."""
    found = checker.check(operations or HISTORY, dataclasses.replace(RIGHT, **changes))  # type: ignore[arg-type]
    return {one.promise: one.text for one in found}


def test_nothing_is_found_where_all_is_right() -> None:
    assert broken() == {}


@pytest.mark.parametrize(
    ("promise", "text", "changes"),
    [
        (
            "no acknowledged change is lost",
            "tag-2 of cluster/ is lost; user got its answer at 2.000 from node1",
            {"tags": {**RIGHT.tags, "cluster/": frozenset()}},
        ),
        (
            "no acknowledged change is lost",
            "tag-3 of cluster/ was removed and is there again",
            {"tags": {**RIGHT.tags, "cluster/": frozenset({"tag-2", "tag-3"})}},
        ),
        ("no acknowledged instance is lost", f"{WEB} is lost", {"instances": frozenset()}),
        (
            "no acknowledged job is lost",
            "job 5 is lost",
            {"jobs": {6: RIGHT.jobs[6], 7: RIGHT.jobs[7]}},
        ),
        (
            "no job is charged for its machine",
            f"job 8 is an error and never began: {LACKING}",
            {"jobs": {**RIGHT.jobs, 8: Job(8, "delay-2", "error", lacking=LACKING)}},
        ),
        (
            "no acknowledged job is lost",
            "job 5 is 'foreign', and was accepted as 'delay-1'",
            {"jobs": {**RIGHT.jobs, 5: Job(5, "foreign", "error")}},
        ),
        (
            "no acknowledged job is lost",
            "job 6 ended as success for user, and is error now",
            {"jobs": {**RIGHT.jobs, 6: Job(6, "script-1", "error")}},
        ),
        (
            "every accepted job ends",
            "job 5 does not end: it is running",
            {"jobs": {**RIGHT.jobs, 5: Job(5, "delay-1", "running")}},
        ),
        ("no job runs twice", "opcode 2 of job 6 began 2 times", {"executions": {(6, 2): 2}}),
        (
            "no job runs twice",
            "the script of script-1 ran 2 times",
            {"scripts": [*RIGHT.scripts, Interval(WEB, "script-1", 9.0, 9.3)]},
        ),
        ("no job runs twice", "its script did not run", {"scripts": []}),
        (
            "one master",
            "node1: config of epoch 1 after epoch 2",
            {"promises": {"node1": [*PROMISES, Promise((2, "b"), (1, "a"), (2, "b"))]}},
        ),
        (
            "one master",
            "node1: obeys of epoch 2 after epoch 2",
            {"promises": {"node1": [*PROMISES, Promise((2, "a"), (2, "b"), (2, "b"))]}},
        ),
        (
            "one guest",
            f"instance {WEB} runs on node1 since 1.000 and on node2 since 1.500",
            {"guests": [Interval(WEB, "node1", 1.0, 2.0), Interval(WEB, "node2", 1.5, None)]},
        ),
        (
            "one job at an instance",
            "scripts script-1 and other run",
            {"scripts": [Interval(WEB, "script-1", 3.0, 3.3), Interval(WEB, "other", 3.2, 3.6)]},
        ),
        (
            "one job at an instance",
            "job 5 began while job 6 worked on its instance",
            {"jobs": {**RIGHT.jobs, 5: Job(5, "delay-1", "error", refused_for=6)}},
        ),
    ],
)  # fmt: skip
def test_a_planted_violation_is_found(promise: str, text: str, changes: dict[str, object]) -> None:
    found = broken(**changes)
    assert list(found) == [promise]
    assert text in found[promise]


def test_every_promise_is_planted() -> None:
    (mark,) = test_a_planted_violation_is_found.pytestmark  # type: ignore[attr-defined]
    assert {case[0] for case in mark.args[1]} == set(checker.CHECKS)


def test_a_job_which_has_begun_may_end_for_what_its_node_lacks() -> None:
    jobs = {**RIGHT.jobs, 5: Job(5, "delay-1", "error", lacking="Too many open files")}
    assert checker.check(HISTORY, dataclasses.replace(RIGHT, jobs=jobs)) == []


def test_two_jobs_never_get_the_same_number() -> None:
    twice = [*HISTORY, told(history.SUBMIT, "rest-2", job=7)]
    assert "job 7 was given to rest-1, rest-2" in broken(twice)["no acknowledged job is lost"]


def test_what_was_not_acknowledged_may_be_there_or_not() -> None:
    for there in (frozenset({"tag-2"}), frozenset({"tag-2", "tag-4", "tag-5"})):
        assert not broken(tags={**RIGHT.tags, "cluster/": there})


def test_after_a_removal_without_an_answer_both_are_right() -> None:
    unknown = [one for one in HISTORY if one.kind != history.REMOVE_TAG]
    unknown.append(told(history.REMOVE_TAG, "cluster/", "tag-3", BEGUN))
    for there in (frozenset({"tag-2"}), frozenset({"tag-2", "tag-3"})):
        assert not broken(unknown, tags={**RIGHT.tags, "cluster/": there})


def test_an_instance_that_was_removed_is_there_again() -> None:
    removed = [*HISTORY, told(history.REMOVE, WEB)]
    assert "is there again" in broken(removed)["no acknowledged instance is lost"]


def test_work_left_by_a_job_that_broke_off_is_no_violation() -> None:
    jobs = {**RIGHT.jobs, 6: Job(6, "script-1", "success", refused_for=5)}
    assert not broken(jobs=jobs)


def test_while_users_work_jobs_may_be_unfinished() -> None:
    jobs = {**RIGHT.jobs, 5: Job(5, "delay-1", "running")}
    running = dataclasses.replace(RIGHT, jobs=jobs)
    assert not checker.check(HISTORY, running, all_ended=False)


def test_a_history_is_kept(tmp_path: Path) -> None:
    records = history.History(tmp_path / "history")
    for one in HISTORY:
        records.add(one)
    records.close()
    assert history.read(tmp_path / "history") == HISTORY
    assert records.counts()[history.ADD_TAG, OK] == 3
    (tmp_path / "history").write_text('{"user": "x"}\n')
    with pytest.raises(ValueError, match="is not a history"):
        history.read(tmp_path / "history")


# -- reading the evidence ------------------------------------------------------------------------


def test_intervals_of_guests() -> None:
    text = (
        f"1.0 node1 {WEB} begun\n3.0 node1 {WEB} ended\n2.0 node2 {WEB} begun\n"
        "4.0 node1 a ended\n5.0 node1 cut of"
    )
    assert evidence.parse_guests(text) == [
        Interval(WEB, "node1", 1.0, 3.0), Interval(WEB, "node2", 2.0, None),
    ]  # fmt: skip


def test_intervals_of_scripts() -> None:
    text = f"1.0 {WEB} token begun\n1.3 {WEB} token ended\n"
    assert evidence.parse_scripts(text) == [Interval(WEB, "token", 1.0, 1.3)]


def test_promises_of_nodes() -> None:
    state = "epoch 3 uuid-a\nconfig 2 uuid-b\nqueue 0\ndemoted 0 0\n"
    promise = Promise((3, "uuid-a"), (2, "uuid-b"), (0, ""))
    assert evidence.promise_of(state) == promise
    text = "node1 3 uuid-a | 2 uuid-b | 0\nnode2\nnode1\n"
    assert evidence.parse_promises(text) == {"node1": [promise, None], "node2": [None]}


def test_executions_in_logs() -> None:
    log = (
        "2026-11-25 10:00:00,000: ganeti-masterd pid=1/x INFO job 7 begins with TAGS_SET (1 of 2)\n"
        "2026-11-25 10:00:00,000: ganeti-masterd pid=1/x INFO job 7 begins with TAGS_SET (2 of 2)\n"
    )
    assert evidence.count_executions([log, log]) == {(7, 1): 2, (7, 2): 2}


def test_tags_of_a_configuration() -> None:
    config = {
        "cluster": {"tags": ["a"]},
        "instances": {"u1": {"name": WEB, "tags": ["b"]}},
        "nodes": {"u2": {"name": "node1"}},
        "nodegroups": {},
    }
    assert evidence.tags_of(config) == {
        "cluster/": {"a"}, f"instance/{WEB}": {"b"}, "node/node1": frozenset(),
    }  # fmt: skip
