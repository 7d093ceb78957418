"""ExplainJob over a real socket, with a real queue and real locks."""

from __future__ import annotations

from typing import Any

import pytest

from ganeti import errors
from ganeti.locking import Level, Owner
from ganeti.luxi import client as luxi
from ganeti.opcodes.test import OpTestDelay

from .test_luxi_service import Master, client, master, until, wait

__all__ = ["client", "master"]


def on_node(*depends: list[Any]) -> OpTestDelay:
    """A job that wants the lock of node1."""
    return OpTestDelay(
        duration=0.0,
        on_master=False,
        on_nodes=["node1"],
        no_locks=False,
        depends=list(depends) or None,
    )


def test_what_a_job_waits_for(master: Master, client: luxi.Client) -> None:
    stranger = Owner(None, "stranger")
    node = master.config.node_by_name("node1.example.com")
    assert node is not None
    master.locks.acquire(stranger, Level.NODE, [node.uuid], shared=False)
    first = client.submit_job([on_node()])
    second = client.submit_job([on_node([first, []])])
    third = client.submit_job([OpTestDelay(duration=0.0, on_master=False, depends=[[second, []]])])
    until(
        lambda: (
            client.query_jobs([first], ["status"]) == [["waiting"]]
            and master.locks.waiting(master.queue.table.owner(first)) is not None
        )
    )

    found = client.explain_job(first)
    (reason,) = found["reasons"]
    assert reason["kind"] == "lock"
    assert reason["lock"] == f"node/{node.uuid}"
    assert reason["text"] == "lock node/node1.example.com (exclusive), held by stranger"
    assert {"lock": "cluster/BGL", "name": "cluster/BGL", "mode": "shared"} in found["holds"]
    assert found["job"]["summary"] == ["TEST_DELAY(0.0)"]

    found = client.explain_job(third)
    assert [reason["kind"] for reason in found["reasons"]] == ["dependency"]
    assert [(entry["depth"], entry["job"]["id"]) for entry in found["chain"]] == [
        (1, second),
        (2, first),
    ]
    assert found["chain"][1]["reasons"] == [reason]

    brief = client.explain_jobs([third, 999, first])
    assert brief[1] is None
    assert brief[2] is not None and brief[2]["reasons"] == [reason]
    master.locks.release(stranger)
    assert [wait(client, job_id) for job_id in (first, second, third)] == ["success"] * 3
    assert client.explain_job(third)["reasons"] == []
    client.archive_job(third)
    assert client.explain_job(third)["job"]["status"] == "success"


def test_a_filter_and_a_drained_queue(client: luxi.Client) -> None:
    uuid = client.replace_filter(None, 0, [], "PAUSE", [["gnt:user", "lunch", 1]])
    job_id = client.submit_job([on_node()])
    client.set_queue_drain_flag(True)
    found = client.explain_job(job_id)
    assert found["reasons"][0]["text"] == f"filter rule {uuid} (lunch) pauses it"
    assert "drained" in found["notes"][0]


def test_workers(master: Master, client: luxi.Client) -> None:
    master.queue.set_max_running(1)
    stranger = Owner(None, "stranger")
    master.locks.acquire(stranger, Level.CLUSTER, ["BGL"], shared=False)
    first, second = (client.submit_job([on_node()]) for _ in range(2))
    until(lambda: client.query_jobs([first], ["status"]) == [["waiting"]])
    (reason,) = client.explain_job(second)["reasons"]
    assert reason["text"] == f"a worker: 1 of 1 are busy (job {first}); it is the next"
    master.locks.release(stranger)
    assert wait(client, second) == "success"


def test_a_rate_limit(master: Master, client: luxi.Client) -> None:
    client.replace_filter(None, 0, [], ["RATE_LIMIT", 1], [])
    stranger = Owner(None, "stranger")
    master.locks.acquire(stranger, Level.CLUSTER, ["BGL"], shared=False)
    first = client.submit_job([on_node()])
    until(lambda: client.query_jobs([first], ["status"]) == [["waiting"]])
    second = client.submit_job([on_node()])
    (reason,) = client.explain_job(second)["reasons"]
    assert (reason["kind"], reason["jobs"]) == ("filter", [first])
    assert client.explain_job(second)["chain"][0]["reasons"][0]["kind"] == "lock"
    master.locks.release(stranger)
    assert wait(client, second) == "success"


def test_the_queue(client: luxi.Client) -> None:
    assert wait(client, client.submit_job([on_node()])) == "success"
    client.replace_filter(None, 0, [], "PAUSE", [])
    client.submit_job([on_node()])
    until(lambda: client.explain_queue()["at_work"] == 0)
    assert client.explain_queue() == {
        "paused": "",
        "paused_since": None,
        "at_work": 0,
        "limit": 20,
        "in_line": 0,
        "unfinished": 1,
        "ended_per_s": 1 / 60,
        "drained": False,
        "ending": False,
    }


def test_what_is_refused(client: luxi.Client) -> None:
    with pytest.raises(errors.JobLost, match="job 999 does not exist"):
        client.explain_job(999)
    for wrong in ("x", -1, [["a"]], [None], {}):
        with pytest.raises(errors.GenericError, match="ExplainJob"):
            client.call("ExplainJob", wrong)
    assert client.explain_jobs([]) == []
