"""harep: which instances it repairs, what it remembers in their tags, and what it prints."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

import pytest

from ganeti import errors
from ganeti.client.htools import harep, luxi
from ganeti.htools import repair
from ganeti.htools.repair import PREFIX, Record, State

from .conftest import DATA, Run, run_program
from .test_master import POLICY, node

UUID = "88f4e110-f6fb-46ae-84fe-322e8741676d"
RECORDED: dict[str, dict[str, Any]] = {
    one["name"]: one
    for one in json.loads((DATA / "harep.json").read_text(encoding="utf-8"))["cases"]
}


class FakeMaster:
    """A master daemon with four nodes, whose jobs succeed at once.

    :ivar submitted: opcodes of the jobs; ``failing`` are positions of those which fail.
    """

    def __init__(self, case: dict[str, Any]) -> None:
        self.case = case
        self.submitted: list[list[Any]] = []
        self.failing: set[int] = set()
        self.refusing = False

    def __enter__(self) -> FakeMaster:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def query_cluster_info(self) -> dict[str, Any]:
        tags = self.case.get("cluster_tags", [])
        return {"tags": tags, "ipolicy": POLICY, "default_hypervisor": "kvm"}

    def query(
        self, what: str, fields: Sequence[str], chosen: Sequence[Any] | None = None
    ) -> dict[str, Any]:
        if what == "job":
            assert chosen is not None
            status = self.case.get("archived", {}).get(str(chosen[1][2]))
            return {"data": [] if status is None else [[[0, status]]]}
        rows = []
        for one in getattr(self, f"_{what}s")():
            rows.append(
                [[0, one[name]] if one.get(name) is not None else [2, None] for name in fields]
            )
        return {"data": rows}

    def _groups(self) -> list[dict[str, Any]]:
        return [
            {
                "name": "default", "uuid": "u1", "alloc_policy": "preferred", "ipolicy": POLICY,
                "tags": self.case.get("group_tags", []), "networks": [],
            }
        ]  # fmt: skip

    def _nodes(self) -> list[dict[str, Any]]:
        offline = self.case.get("offline", ["node1"])
        names = [f"node{number}" for number in range(1, 5)]
        return [node(name, offline=name in offline) for name in names]

    def _instances(self) -> list[dict[str, Any]]:
        case = self.case
        return [
            {
                "name": name, "disk_usage": 2048, "be/memory": 1024, "be/vcpus": 1,
                "status": "ERROR_nodeoffline" if primary in case.get("offline", ["node1"])
                else case.get("status", "running"),
                "pnode": primary, "snodes": [secondary] if secondary else [], "tags": tags,
                "oper_ram": 1024, "be/auto_balance": True, "be/spindle_use": 1,
                "disk_template": case.get("template", "drbd"), "disk.sizes": [1024],
                "disk.spindles": [None], "forthcoming": False,
            }
            for name, primary, secondary, tags in case["instances"]
        ]  # fmt: skip

    def submit_job(self, steps: Sequence[Any]) -> int:
        if self.refusing:
            raise errors.JobQueueDrainError("the queue takes no jobs")
        self.submitted.append(list(steps))
        return 100 + len(self.submitted)

    def query_jobs(self, numbers: Sequence[int], fields: Sequence[str]) -> list[Any]:
        assert list(fields) == ["status"]
        known = self.case.get("jobs", {})
        return [[known[str(one)]] if str(one) in known else None for one in numbers]

    def repairs(self) -> list[list[str]]:
        found = [[step.OP_ID for step in steps] for steps in self.submitted]
        return [names for names in found if not names[0].startswith("OP_TAGS")]

    def tag_changes(self) -> list[tuple[str, list[str]]]:
        return [
            (step.OP_ID, step.tags)
            for steps in self.submitted
            for step in steps
            if step.OP_ID.startswith("OP_TAGS")
        ]


def start(monkeypatch: pytest.MonkeyPatch, case: dict[str, Any]) -> FakeMaster:
    """Make a fake master the one which the program asks."""
    master = FakeMaster(case)

    def wait(_client: object, number: int, _show: object) -> list[Any]:
        if number - 101 in master.failing:
            raise errors.OpExecError("the tag is too long")
        return []

    monkeypatch.setattr(luxi, "connect", lambda _socket: master)
    monkeypatch.setattr(harep.jobs, "wait_for_job", wait)
    return master


def neutral(text: str) -> str:
    """Replace what differs from run to run."""
    uuid = r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"
    text = re.sub(rf"(?!{UUID}){uuid}:[0-9]{{10}}", "UUID:TIME", text)
    text = re.sub(rf"(result:[a-z-]+:{UUID}):[0-9]{{10}}", r"\1:TIME", text)
    return re.sub(r'TIME:[0-9]+"', 'TIME:JOBS"', text)


def mended(jobs: list[list[str]]) -> list[list[str]]:
    """What the recorded jobs are here: disks are created again for stopped instances only."""
    return [
        [
            name
            for one in job
            for name in {
                "OP_INSTANCE_RECREATE_DISKS": ["OP_INSTANCE_SHUTDOWN", one],
                "OP_INSTANCE_REINSTALL": [one, "OP_INSTANCE_STARTUP"],
            }.get(one, [one])
        ]
        for job in jobs
    ]


@pytest.mark.parametrize("name", RECORDED)
def test_does_what_the_original_did(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    case = RECORDED[name]
    master = start(monkeypatch, case)
    code, out, _ = run_program("harep", "-L", *case["options"])
    assert code == case["exit"]
    assert neutral(out) == case["stdout"]
    assert master.repairs() == mended(case["repairs"])


def broken(*tags: str, **more: Any) -> dict[str, Any]:
    """A cluster with one instance, whose primary node is offline."""
    return {"instances": [["i1", "node1", "node2", [PREFIX + tag for tag in tags]]], **more}


RUNNING = f"pending:failover:{UUID}:2000:50"


def test_a_running_repair_counts_more_than_an_older_result(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    tags = ("failover", f"result:failover:{UUID}:1000:success:5", RUNNING)
    master = start(monkeypatch, broken(*tags, jobs={"50": "running"}))
    assert "Pending repair: 1" in run("harep", "-L")[1]
    assert not master.submitted


def test_a_missing_permission_is_noted_once(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    old = f"result:failover:{UUID}:1000:enoperm:"
    master = start(monkeypatch, broken("fix-storage", old))
    code, out, _ = run("harep", "-L")
    assert (code, master.submitted) == (0, [])
    assert "Not performing a repair of type ArFailover on i1" in out
    assert "Needs repair: 1" in out


@pytest.mark.parametrize(("status", "result"), [("success", "success"), (None, "failure")])
def test_jobs_in_the_archive_count(
    status: str | None, result: str, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    archived = {} if status is None else {"50": status}
    master = start(monkeypatch, broken(RUNNING, offline=[], archived=archived))
    assert run("harep", "-L")[0] == 0
    (_, added), (_, removed) = master.tag_changes()
    assert re.fullmatch(rf"{PREFIX}result:failover:{UUID}:[0-9]+:{result}:50", added[0])
    assert removed == [PREFIX + RUNNING]


def test_all_unfinished_repairs_of_an_instance_must_end(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = f"pending:fix-storage:{UUID[::-1]}:3000:51"
    case = broken(RUNNING, other, jobs={"50": "success", "51": "waiting"}, offline=[])
    master = start(monkeypatch, case)
    assert "Pending repair: 1" in run("harep", "-L")[1]
    case["jobs"]["51"] = "success"
    assert "Healthy: 1" in run("harep", "-L")[1]
    assert {tag for kind, tags in master.tag_changes() for tag in tags if "DEL" in kind} == {
        PREFIX + RUNNING, PREFIX + other,
    }  # fmt: skip


def test_an_instance_that_is_stopped_is_not_started(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    master = start(monkeypatch, broken("reinstall", offline=["node1", "node2"]))
    monkeypatch.setattr(harep, "_SHOULD_RUN", frozenset())
    run("harep", "-L", "--job-delay=0")
    assert master.repairs() == [["OP_INSTANCE_RECREATE_DISKS", "OP_INSTANCE_REINSTALL"]]


def test_jobs_say_why(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    master = start(monkeypatch, broken("failover"))
    run("harep", "-L", "--reason=disk shelf 3")
    for steps in master.submitted:
        for step in steps:
            assert step.reason[0][:2] == ["harep", "disk shelf 3"]
            assert step.comment == "automated repairs by harep"
    assert master.submitted[0][0].duration == 10


def test_a_dry_run_changes_nothing(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    case = broken("failover")
    case["instances"].append(["i2", "node3", "node4", [PREFIX + RUNNING]])
    case["jobs"] = {"50": "success"}
    master = start(monkeypatch, case)
    code, out, _ = run("harep", "-L", "--dry-run")
    assert (code, master.submitted) == (0, [])
    steps = json.loads(out.partition("jobs: ")[2].splitlines()[0])[0]
    assert [one["OP_ID"] for one in steps] == ["OP_TEST_DELAY", "OP_INSTANCE_FAILOVER"]
    assert 'Moving i2 from "Pending repair" to "Healthy"' in out


def test_one_error_does_not_stop_the_others(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    case = broken("failover")
    case["instances"].append(["i2", "node1", "node2", [PREFIX + "failover"]])
    master = start(monkeypatch, case)
    master.failing = {1}  # the tag of the first instance
    code, out, err = run("harep", "-L")
    assert code == 1
    assert "Error: i1: Failure: command execution error:\nthe tag is too long" in err
    assert len(master.repairs()) == 2
    assert "Pending repair: 2" in out


def test_a_queue_without_admission_is_an_error(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    master = start(monkeypatch, broken("failover"))
    master.refusing = True
    code, out, err = run("harep", "-L")
    assert code == 1
    assert "the queue takes no jobs" in err
    assert "Healthy: 1" in out


def test_an_interrupt_says_what_became_of_jobs(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """While a job is submitted, and while one is waited for."""

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    master = start(monkeypatch, broken("failover"))
    monkeypatch.setattr(harep.jobs, "wait_for_job", interrupt)
    code, _, err = run("harep", "-L")
    assert (code, "jobs that were submitted go on, see 'gnt-job list'" in err) == (1, True)
    monkeypatch.setattr(master, "submit_job", interrupt)
    code, _, err = run("harep", "-L")
    assert (code, "the jobs may have been accepted" in err) == (1, True)


def test_prints_json(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    start(monkeypatch, broken("failover"))
    code, out, _ = run("harep", "-L", "--output=json")
    assert code == 0
    assert json.loads(out) == {
        "instances": [
            {
                "name": "i1", "state": "Pending repair", "needed": "failover",
                "allowed": "failover", "action": "failover", "jobs": [101],
            }
        ],
        "counts": {"Pending repair": 1},
    }  # fmt: skip


@pytest.mark.parametrize("delay", ["nan", "inf", "1e999"])
def test_a_delay_without_end_is_refused(delay: str, run: Run) -> None:
    code, _, err = run("harep", "-L", f"--job-delay={delay}")
    assert code in (1, 2)
    assert "job-delay" in err


# -- tags -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        f"pending:failover:{UUID}:1000:5", f"pending:reinstall:{UUID}:1000:5+6",
        f"result:fix-storage:{UUID}:1000:enoperm:", f"result:migrate:{UUID}:1000:success:7",
    ],
)  # fmt: skip
def test_a_tag_is_read_and_written(text: str) -> None:
    found = repair.parse(PREFIX + text)
    assert found is not None
    again = Record(found.type, found.uuid, found.time, found.jobs, found.result)
    assert again.tag == found.tag == PREFIX + text


@pytest.mark.parametrize(
    "text",
    [
        "", "failover", "pending", f"pending:failover:{UUID}:x:5", f"pending:other:{UUID}:1:5",
        f"pending:failover:{UUID}:1:success:5", f"result:failover:{UUID}:1:5",
        f"result:failover:{UUID}:1:wonder:5", f"pending:failover:{UUID}:1:5+",
        f"pending:failover:{UUID}:1:5\n", f"pending:failover:{UUID}:١:5",
    ],
)  # fmt: skip
def test_other_tags_are_no_repairs(text: str) -> None:
    assert repair.parse(PREFIX + text) is None
    assert repair.history([PREFIX + text]).state == State.HEALTHY


def test_a_suspension_ends_at_its_time() -> None:
    tags = [PREFIX + "failover", PREFIX + "suspend:1000"]
    assert repair.permission([tags], 999.0).suspended_until == 1000
    assert repair.permission([tags], 1000.0).type == "failover"
    far = repair.permission([[PREFIX + "suspend:" + "9" * 40]], 0.0)
    assert repair.show_permission(far) == f"ArSuspended (Until {float('9' * 40):.0f})"
