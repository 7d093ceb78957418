"""Filter rules of the job queue, over a real socket, with a real queue."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from ganeti import errors
from ganeti.luxi import client as luxi
from ganeti.opcodes.test import OpTestDelay
from ganeti.utils import text

from .test_luxi_service import Master, client, master, wait

__all__ = ["client", "master"]

FIELDS = ["uuid", "watermark", "priority", "predicates", "action", "reason_trail"]
IS_DELAY = ["opcode", ["=", "OP_ID", "OP_TEST_DELAY"]]


def delay() -> OpTestDelay:
    return OpTestDelay(duration=0.0, on_master=False)


def test_a_rule_from_its_making_to_its_end(client: luxi.Client) -> None:
    wait(client, client.submit_job([delay()]))
    uuid = client.replace_filter(None, 5, [IS_DELAY], "REJECT", [["gnt:user", "no", 17]])
    assert text.is_uuid(uuid)
    (row,) = client.query_filters(None, FIELDS)
    assert row[:5] == [uuid, 1, 5, [["opcode", ["==", "OP_ID", "OP_TEST_DELAY"]]], "REJECT"]
    assert row[5][0] == ["gnt:user", "no", 17]
    assert row[5][1][:2] == ["luxid", ""]
    assert client.query_filters([uuid], ["uuid"]) == [[uuid]]
    assert client.query("filter", ["action"])["data"] == [[[0, "REJECT"]]]
    job_id = client.submit_job([delay()])
    assert wait(client, job_id) == "canceled"
    assert client.query_jobs([job_id], ["opresult"]) == [
        [[["JobCanceled", [f"rejected by filter rule {uuid} (no)"]]]]
    ]
    # Replacing: the same rule, with a new watermark.
    assert client.replace_filter(uuid, 0, [], ["RATE_LIMIT", 3], []) == uuid
    (row,) = client.query_filters([uuid], FIELDS)
    assert row[:5] == [uuid, 2, 0, [], ["RATE_LIMIT", 3]]
    assert wait(client, client.submit_job([delay()])) == "success"
    client.delete_filter(uuid)
    assert client.query_filters(None, FIELDS) == []


def test_a_rule_may_be_made_under_a_uuid_of_the_clients_choice(client: luxi.Client) -> None:
    uuid = text.new_uuid()
    assert client.replace_filter(uuid, 0, [], "PAUSE", []) == uuid
    job_id = client.submit_job([delay()])
    assert client.query_jobs([job_id], ["status"]) == [["queued"]]
    client.delete_filter(uuid)
    assert wait(client, job_id) == "success"


def test_the_order_of_the_answer_is_the_order_of_application(client: luxi.Client) -> None:
    for priority in (7, 3, 5):
        client.replace_filter(None, priority, [], "CONTINUE", [])
    assert client.query_filters([], ["priority"]) == [[3], [5], [7]]


@pytest.mark.parametrize(
    ("args", "part"),
    [
        ((None, 0, [], "NOSUCH", []), "no filter action 'NOSUCH'"),
        ((None, 0, [], ["RATE_LIMIT", 0], []), "at least 1"),
        ((None, 0, [["jobid", ["=", "x", 1]]], "PAUSE", []), "no field 'x'"),
        ((None, 0, [], "PAUSE", ["because"]), "reason trail"),
        (("nosuch", 0, [], "PAUSE", []), "'nosuch' is not a uuid"),
    ],
)
def test_refused(client: luxi.Client, args: Any, part: str) -> None:
    with pytest.raises(errors.OpPrereqError, match=part):
        client.replace_filter(*args)
    assert client.query_filters(None, ["uuid"]) == []


@pytest.mark.parametrize(
    "args",
    [
        (None, -1, [], "PAUSE", []),
        (None, "0", [], "PAUSE", []),
        (None, 0, "x", "PAUSE", []),
        (None, 0, [], 5, []),
        (None, 0, [], "PAUSE", "x"),
        (5, 0, [], "PAUSE", []),
        (None,),
    ],
)
def test_arguments_of_another_shape(client: luxi.Client, args: Any) -> None:
    with pytest.raises(errors.GenericError, match="ReplaceFilter"):
        client.call("ReplaceFilter", *args)


def test_what_does_not_exist(client: luxi.Client) -> None:
    with pytest.raises(errors.OpPrereqError, match="filter rule nosuch does not exist"):
        client.delete_filter("nosuch")
    with pytest.raises(errors.OpPrereqError, match="nosuch"):
        client.query_filters(["nosuch"], ["uuid"])


def test_a_uuid_of_something_else(
    master: Master, client: luxi.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    uuid = next(iter(master.config.snapshot().nodes))
    monkeypatch.setattr(text, "is_uuid", lambda value: True)
    with pytest.raises(errors.OpPrereqError, match="belongs to another object"):
        client.replace_filter(uuid, 0, [], "PAUSE", [])


def test_a_configuration_that_cannot_be_written_changes_nothing(
    master: Master, client: luxi.Client
) -> None:
    master.config.errors["transaction"] = errors.ConfigurationError("disk full")
    with pytest.raises(errors.ConfigurationError, match="disk full"):
        client.replace_filter(None, 0, [], "REJECT", [])
    assert wait(client, client.submit_job([delay()])) == "success"


def test_rules_and_jobs_have_a_largest_size(client: luxi.Client) -> None:
    half = [["jobid", ["|", *([">", "id", number] for number in range(1200))]]]
    first = client.replace_filter(None, 0, half, "CONTINUE", [])
    with pytest.raises(errors.OpPrereqError, match="filter rules together would have 2406"):
        client.replace_filter(None, 0, half, "CONTINUE", [])
    assert client.replace_filter(first, 1, half, "CONTINUE", []) == first
    job = delay()
    job.reason = [["gnt:user", "x", 1]] * 5000
    with pytest.raises(errors.OpPrereqError, match="5001 opcodes and reasons"):
        client.submit_job([job])


def test_many_at_once(master: Master) -> None:
    """What the queue obeys at the end is what is stored at the end."""

    def change() -> None:
        with luxi.Client(master.path) as own:
            for _ in range(10):
                own.delete_filter(own.replace_filter(None, 0, [], "REJECT", []))

    threads = [threading.Thread(target=change) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    with luxi.Client(master.path) as own:
        assert own.query_filters(None, ["uuid"]) == []
        assert wait(own, own.submit_job([delay()])) == "success"
