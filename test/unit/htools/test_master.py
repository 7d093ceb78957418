"""Reading the cluster from the master daemon, and making moves with jobs."""

from __future__ import annotations

import signal
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from ganeti import errors
from ganeti.client.htools import execute, luxi
from ganeti.client.htools.luxi import load

from .conftest import Run

SPEC = {
    "memory-size": 128, "cpu-count": 1, "disk-size": 1024, "disk-count": 1, "nic-count": 1,
    "spindle-use": 1,
}  # fmt: skip
LARGE = {**SPEC, "memory-size": 32768, "cpu-count": 8, "disk-size": 1048576, "disk-count": 16}
POLICY = {
    "std": SPEC,
    "minmax": [{"min": SPEC, "max": LARGE}],
    "disk-templates": ["drbd", "ext"],
    "vcpu-ratio": 4.0,
    "spindle-ratio": 32.0,
}


def node(name: str, **changes: Any) -> dict[str, Any]:
    return {
        "name": name, "mtotal": 8192, "mnode": 512, "mfree": 7680, "dtotal": 100000,
        "dfree": 100000, "ctotal": 8, "cnos": 1, "offline": False, "drained": False,
        "vm_capable": True, "ndp/spindle_count": 1, "group.uuid": "u1", "tags": [],
        "ndp/exclusive_storage": False, "sptotal": 0, "spfree": 0, "ndp/cpu_speed": 1.0,
        "hv_state": {}, "role": "N", **changes,
    }  # fmt: skip


def instance(name: str, primary: str, status: str = "running") -> dict[str, Any]:
    return {
        "name": name, "disk_usage": 0, "be/memory": 512, "be/vcpus": 1, "status": status,
        "pnode": primary, "snodes": [], "tags": [], "oper_ram": 512, "be/auto_balance": True,
        "disk_template": "ext", "be/spindle_use": 1, "disk.sizes": [1024],
        "disk.spindles": [None], "forthcoming": False,
    }  # fmt: skip


class FakeMaster:
    """Answers the requests of the programs; ``failing`` are numbers of jobs that fail."""

    def __init__(self) -> None:
        self.failing: set[int] = set()
        self.submitted: list[list[Any]] = []
        self.during_wait: Callable[[], None] = lambda: None
        self.objects = {
            "group": [
                {
                    "name": "default", "uuid": "u1", "alloc_policy": "preferred",
                    "ipolicy": POLICY, "tags": [], "networks": [],
                }
            ],
            "node": [node("n1", role="M"), node("n2"), node("n3", offline=True, mtotal=None)],
            "instance": [instance(f"i{number}", "n1") for number in range(4)],
        }  # fmt: skip

    def __enter__(self) -> FakeMaster:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def query_cluster_info(self) -> dict[str, Any]:
        return {"tags": [], "ipolicy": POLICY, "default_hypervisor": "kvm"}

    def query(self, what: str, fields: Sequence[str]) -> dict[str, Any]:
        rows = []
        for one in self.objects[what]:
            row = []
            for field in fields:
                value = one.get(field)
                row.append([0, value] if value is not None else [4, None])
            rows.append(row)
        return {"fields": [], "data": rows}

    def submit_many_jobs(self, jobs: Sequence[Sequence[Any]]) -> list[list[Any]]:
        self.submitted += [list(job) for job in jobs]
        first = len(self.submitted) - len(jobs) + 1
        return [[True, first + position] for position in range(len(jobs))]


@pytest.fixture
def master(monkeypatch: pytest.MonkeyPatch) -> FakeMaster:
    made = FakeMaster()

    def wait(_client: object, number: int, _show: object) -> list[Any]:
        made.during_wait()
        if number in made.failing:
            raise errors.OpExecError("the node is broken")
        return []

    monkeypatch.setattr(luxi, "connect", lambda _socket: made)
    monkeypatch.setattr(execute.jobs, "wait_for_job", wait)
    return made


def test_reads_nodes_and_instances(master: FakeMaster) -> None:
    cluster = load("", kvm_memory=0)
    assert [one.name for one in cluster.nodes] == ["n1", "n2", "n3"]
    assert [one.offline for one in cluster.nodes] == [False, False, True]
    assert cluster.nodes[0].master
    assert cluster.nodes[0].own_memory == 512
    assert [one.primary for one in cluster.instances] == [0, 0, 0, 0]
    assert cluster.nodes[0].storage is None


def test_nodes_with_kvm_get_the_wanted_memory(master: FakeMaster) -> None:
    assert load("", kvm_memory=4096).nodes[0].own_memory == 4096


def test_storage_units_are_read(master: FakeMaster) -> None:
    unit = {"sunit": ["drbd8", "xenvg", []], "free": 10, "total": 20}
    master.objects["node"] = [node("n1", storage=[unit])]
    storage = load("", kvm_memory=0).nodes[0].storage
    assert storage is not None
    assert storage[("drbd8", "xenvg")].free == 10


def test_a_master_that_does_not_answer_is_an_error(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_socket: str) -> FakeMaster:
        raise errors.NoMasterError("nobody listens")

    monkeypatch.setattr(luxi, "connect", refuse)
    code, _, err = run("hbal", "-L")
    assert code == 1
    assert "failed to load data" in err


def test_makes_the_moves_with_jobs(run: Run, master: FakeMaster) -> None:
    code, out, _ = run("hbal", "-L", "-X", "--reason=full", "--priority=low")
    assert code == 0
    assert "Got job IDs 1" in out
    for job in master.submitted:
        assert job[0].OP_ID == "OP_INSTANCE_MIGRATE"
        assert job[0].target_node == "n2"
        assert job[0].priority == 10
        assert job[0].reason[0][1] == "full"
    assert len(master.submitted) == 2


def test_an_instance_that_does_not_run_fails_over(run: Run, master: FakeMaster) -> None:
    master.objects["instance"] = [instance(f"i{n}", "n1", "ADMIN_down") for n in range(4)]
    run("hbal", "-L", "-X")
    assert {job[0].OP_ID for job in master.submitted} == {"OP_INSTANCE_FAILOVER"}


def test_only_the_first_set(run: Run, master: FakeMaster) -> None:
    assert run("hbal", "-L", "-X", "--first-job-group")[0] == 0
    assert len(master.submitted) == 1


def test_nothing_follows_a_job_that_failed(run: Run, master: FakeMaster) -> None:
    master.failing = {1}
    code, _, err = run("hbal", "-L", "-X")
    assert code == 1
    assert "job 1: the node is broken" in err
    assert len(master.submitted) == 1


def test_an_interrupt_ends_after_the_running_set(run: Run, master: FakeMaster) -> None:
    master.during_wait = lambda: signal.raise_signal(signal.SIGINT)
    code, _, err = run("hbal", "-L", "-X")
    assert code == 1
    assert "the remaining moves were not begun" in err
    assert len(master.submitted) == 1
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
