"""Quotas, over a socket, in front of a small cluster whose jobs end when the test says so."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fakes.limited_cluster import instance, limited_lab
from fakes.rest_client import Rest
from ganeti import errors
from ganeti.opcodes.instance import OpInstanceGrowDisk
from ganeti.rapi.master import Master
from ganeti.rapi.quotas import Quotas
from ganeti.rapi.roles import Rules, parse

USERS = """\
root pw write
alice pw write@own
bob pw write@own
carol pw write@own
team pw write@tag:web
look pw view
quotas pw quota
plain pw
"""
ROLES = """\
pool db = tag:db, instance:db*
quota alice = instances 3, memory 4g, disk 40g, vcpus 8
quota * = instances 1
quota pool:db = memory 3g
quota tag:web = vcpus 100
"""
WEB1 = "web1.example.com"
GIB = 1024
SNAPSHOT = {"instance": WEB1, "snapshot": "s", "disk": 0, "size": 10 * GIB}


class Queue:
    """Numbers the jobs, and keeps them until the test ends them."""

    def __init__(self, rest: Rest) -> None:
        self.rest = rest
        self.master: Any = rest.master
        self.master.answers.update(
            SubmitJob=self.submit,
            SubmitManyJobs=lambda jobs: [[True, self.submit(ops)] for ops in jobs],
            RunQuery=self.run_query,
        )
        self.snapshots: list[dict[str, Any]] = []

    def submit(self, ops: list[dict[str, Any]]) -> int:
        number = 100 + len(self.master.rows["job"])
        self.master.rows["job"].append({"id": number, "status": "waiting", "ops": ops})
        return number

    def end(self, status: str = "success") -> None:
        for row in self.master.rows["job"]:
            row["status"] = status

    def run_query(self, op: dict[str, Any]) -> dict[str, Any]:
        names = {row["name"] for row in self.master.rows["instance"]}
        assert names.issuperset(op["instances"]) and op["instances"]
        found = [one for one in self.snapshots if one["instance"] in op["instances"]]
        return {"result": found, "warnings": []}

    def add(self, number: int, name: str, *tags: str, **more: Any) -> None:
        self.master.rows["instance"].append(
            instance(number, name, list(tags), "node1", "rack1", **more)
        )


@pytest.fixture
def queue(tmp_path: Path) -> Iterator[Queue]:
    with limited_lab(tmp_path, USERS, ROLES) as rest:
        yield Queue(rest)


def new(name: str, memory: Any = 512, disk: Any = 1024, **more: Any) -> dict[str, Any]:
    return {
        "__version__": 1,
        "mode": "create",
        "instance_name": name,
        "disk_template": "plain",
        "disks": [{"size": disk}],
        "nics": [],
        "beparams": {"memory": memory, "vcpus": 1},
        "os_type": "debian",
        **more,
    }


def send(queue: Queue, user: str, method: str, path: str, body: Any = None) -> tuple[int, str]:
    status, found, _headers = queue.rest(method, path, body, user=f"{user}:pw")
    return status, found.get("explain", "") if isinstance(found, dict) else str(found)


def create(queue: Queue, user: str, name: str, *args: Any, **more: Any) -> tuple[int, str]:
    return send(queue, user, "POST", "/2/instances", new(name, *args, **more))


def test_the_message_says_use_limit_and_what_to_do(queue: Queue) -> None:
    status, said = create(queue, "alice", "a", 3 * GIB + 4)
    assert (status, said) == (
        409,
        "this exceeds the quota of alice for memory: 1.0G of 4.0G are in use, and the request needs"
        " 3.0G more. Remove instances, disks or snapshots, or make them smaller; or ask an"
        " administrator for a larger quota. 'GET /2/quota' shows use and limits, which also count"
        " unfinished jobs.",
    )
    assert not any(method == "SubmitJob" for method, _args in queue.master.asked)
    assert create(queue, "alice", "a", 3 * GIB)[0] == 200


def test_unfinished_jobs_count_until_they_end(queue: Queue) -> None:
    assert create(queue, "alice", "a")[0] == create(queue, "alice", "b")[0] == 200
    status, said = create(queue, "alice", "c")
    assert status == 409 and "for instances: 3 of 3 are in use" in said
    # One has failed.
    queue.master.rows["job"][-1]["status"] = "error"
    assert create(queue, "alice", "c")[0] == 200
    # The instance of a job that runs is already there: it counts once, also with its full name.
    queue.add(7, "a.example.com", "owner:alice", **{"be/maxmem": 512, "disk.sizes": [1024]})
    assert create(queue, "alice", "d")[0] == 409
    queue.end("canceled")
    assert create(queue, "alice", "d")[0] == 200


def test_two_requests_at_once(queue: Queue) -> None:
    codes: list[int] = []

    def ask(name: str) -> None:
        codes.append(create(queue, "bob", name)[0])

    threads = [threading.Thread(target=ask, args=(f"b{number}",)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(codes) == [200] + [409] * 7


def test_jobs_of_others_and_of_a_former_daemon_count(queue: Queue) -> None:
    """As after a restart, and as for commands on the master."""
    queue.submit([{"OP_ID": "OP_INSTANCE_CREATE", **_op("b"), "tags": ["owner:bob"]}])
    queue.submit([{"OP_ID": "OP_OF_ANOTHER_VERSION"}])
    queue.submit([{"OP_ID": "OP_INSTANCE_CREATE", **_op("x"), "tags": ["owner:carol"],
                   "dry_run": True}])  # fmt: skip
    assert create(queue, "bob", "b2")[0] == 409
    assert create(queue, "carol", "c")[0] == 200
    queue.end()
    assert create(queue, "bob", "b2")[0] == 200


def _op(name: str, **more: Any) -> dict[str, Any]:
    return {key: value for key, value in new(name, **more).items() if key != "__version__"}


def test_several_in_one_request_count_together(queue: Queue) -> None:
    several = {"instances": [new("a"), new("b"), new("c")]}
    assert send(queue, "alice", "POST", "/2/instances-multi-alloc", several)[0] == 409
    batch = {
        "operations": [
            {"method": "POST", "path": "/2/instances", "body": new(name)} for name in "abc"
        ]
    }
    assert send(queue, "alice", "POST", "/2/batch", batch)[0] == 409
    ops = [{"OP_ID": "OP_INSTANCE_CREATE", **_op(name)} for name in "abc"]
    assert send(queue, "alice", "POST", "/2/jobs", {"ops": ops})[0] == 409
    assert send(queue, "alice", "POST", "/2/jobs", {"jobs": [[op] for op in ops]})[0] == 409
    assert not any(method.startswith("Submit") for method, _args in queue.master.asked)
    several["instances"].pop()
    assert send(queue, "alice", "POST", "/2/instances-multi-alloc", several)[0] == 200
    assert create(queue, "alice", "c")[0] == 409


WEB = f"/2/instances/{WEB1}"


@pytest.mark.parametrize(
    ("method", "path", "too_much", "enough"),
    [
        ("POST", "/disk/0/grow", {"amount": 30 * GIB + 4}, {"amount": 30 * GIB}),
        (
            "POST",
            "/disk/0/grow",
            {"amount": 41 * GIB, "absolute": True},
            {"amount": 40 * GIB, "absolute": True},
        ),
        (
            "POST",
            "/recreate-disks",
            {"disks": [[0, {"size": "41g"}]]},
            {"disks": [[0, {"size": "40g"}]]},
        ),
        ("PUT", "/modify", {"beparams": {"maxmem": "5g"}}, {"beparams": {"maxmem": "4g"}}),
        ("PUT", "/modify", {"beparams": {"memory": 4097}}, {"beparams": {"memory": 4096}}),
        ("PUT", "/modify", {"beparams": {"vcpus": "9"}}, {"beparams": {"vcpus": "8"}}),
        (
            "PUT",
            "/modify",
            {"disks": [["add", {"size": "31g"}]]},
            {"disks": [["add", {"size": "30g"}]]},
        ),
        (
            "PUT",
            "/modify",
            {"disks": [["remove", 0, {}], ["add", -1, {"size": "41g"}]]},
            {"disks": [["remove", 0, {}], ["add", -1, {"size": "40g"}]]},
        ),
        (
            "POST",
            "/copy",
            {"new_name": "w", "disks": [{"size": "31g"}]},
            {"new_name": "w", "disks": [{"size": "30g"}]},
        ),
    ],
)
def test_growth(queue: Queue, method: str, path: str, too_much: Any, enough: Any) -> None:
    status, said = send(queue, "alice", method, WEB + path, too_much)
    assert status == 409 and "quota of alice" in said
    assert send(queue, "root", method, WEB + path, too_much)[0] == 409
    assert send(queue, "alice", method, WEB + path, enough)[0] == 200


def test_growing_twice_counts_twice(queue: Queue) -> None:
    assert send(queue, "alice", "POST", f"{WEB}/disk/0/grow", {"amount": 16 * GIB})[0] == 200
    # The disk has grown, while its job waits for the mirror: the growth counts once.
    queue.master.instance(WEB1)["disk.sizes"] = [26 * GIB]
    assert send(queue, "alice", "POST", f"{WEB}/disk/0/grow", {"amount": 15 * GIB})[0] == 409
    assert send(queue, "alice", "POST", f"{WEB}/disk/0/grow", {"amount": 14 * GIB})[0] == 200
    assert send(queue, "alice", "POST", f"{WEB}/disk/0/grow", {"amount": 4})[0] == 409


def test_snapshots_take_the_space_of_their_disks(queue: Queue) -> None:
    for number in range(3):
        assert send(queue, "alice", "POST", f"{WEB}/snapshots", {})[0] == 200, number
        queue.end()
        queue.snapshots.append(dict(SNAPSHOT))
    status, said = send(queue, "alice", "POST", f"{WEB}/snapshots", {})
    assert status == 409 and "for disk: 40.0G of 40.0G are in use, and the request needs 10.0G" in (
        said
    )
    assert send(queue, "alice", "POST", f"{WEB}/disk/0/grow", {"amount": 4})[0] == 409
    queue.snapshots.pop()
    assert send(queue, "alice", "POST", f"{WEB}/snapshots", {})[0] == 200
    assert send(queue, "alice", "POST", f"{WEB}/snapshots", {})[0] == 409


def test_snapshots_of_nodes_which_do_not_answer(queue: Queue) -> None:
    def run_query(_op: Any) -> Any:
        raise errors.LuxiTimeout("no answer")

    queue.master.answers["RunQuery"] = run_query
    assert send(queue, "alice", "POST", f"{WEB}/disk/0/grow", {"amount": 4})[0] == 200

    def removed(_op: Any) -> Any:
        raise errors.OpPrereqError("instance x does not exist", errors.ECODE_NOENT)

    queue.master.answers["RunQuery"] = removed
    assert send(queue, "alice", "POST", f"{WEB}/disk/0/grow", {"amount": 4})[0] == 503


def test_a_tag_or_a_name_makes_another_owner(queue: Queue) -> None:
    add = "/2/instances/{}/tags?tag={}".format
    assert send(queue, "root", "PUT", add("db1.example.com", "owner:bob"))[0] == 200
    assert send(queue, "root", "PUT", add("web2.example.com", "owner:bob"))[0] == 409
    assert send(queue, "root", "PUT", add("web2.example.com", "other"))[0] == 200
    queue.end()
    # A selector has a quota for all of its instances, also for those of an administrator.
    queue.master.instance("db1.example.com")["be/maxmem"] = 2 * GIB
    queue.master.instance("web2.example.com")["be/maxmem"] = 2 * GIB
    assert send(queue, "root", "PUT", add("web2.example.com", "db"))[0] == 409
    name = {"new_name": "db2.example.com"}
    status, said = send(queue, "root", "PUT", "/2/instances/web2.example.com/rename", name)
    assert status == 409 and "quota of pool:db for memory: 2.0G of 3.0G" in said
    assert create(queue, "root", "db3", 2 * GIB)[0] == 409
    assert create(queue, "root", "free", 200 * GIB)[0] == 200


def test_what_does_not_grow_is_allowed_above_the_limit(queue: Queue) -> None:
    queue.master.instance(WEB1)["be/maxmem"] = 8 * GIB
    queue.master.instance(WEB1)["disk.sizes"] = [80 * GIB]
    smaller = {"beparams": {"memory": "6g"}}
    assert send(queue, "alice", "PUT", f"{WEB}/modify", smaller)[0] == 200
    for action in ("startup", "shutdown", "reboot", "deactivate-disks"):
        method = "POST" if action == "reboot" else "PUT"
        path = f"{WEB}/{action}" + ("?type=hard" if action == "reboot" else "")
        assert send(queue, "alice", method, path)[0] == 200, action
    assert send(queue, "alice", "DELETE", WEB)[0] == 200


def test_what_the_request_does_not_say(queue: Queue) -> None:
    owner = {"tags": ["owner:alice"], "mode": "import"}
    status, said = create(queue, "root", "i", disks=[], **owner)
    assert status == 409 and "Give its memory, vcpus and disks" in said and "instance i" in said
    assert create(queue, "root", "i", beparams={}, **owner)[0] == 409
    assert create(queue, "root", "i", **owner)[0] == 200
    queue.end()
    # The defaults of the cluster count for a new instance, and for a parameter that is reset.
    queue.master.answers["QueryClusterInfo"]["beparams"]["default"]["maxmem"] = 5 * GIB
    assert create(queue, "alice", "a", beparams={"vcpus": 1})[0] == 409
    reset = {"beparams": {"maxmem": "default"}}
    assert send(queue, "alice", "PUT", f"{WEB}/modify", reset)[0] == 409
    attach = {"disks": [["attach", -1, {"uuid": "x"}]]}
    assert send(queue, "root", "PUT", f"{WEB}/modify", attach)[0] == 409
    assert send(queue, "root", "PUT", "/2/instances/web2.example.com/modify", attach)[0] == 200
    # The job refuses what is no size.
    assert create(queue, "alice", "odd", "a lot", "much")[0] == 200


def test_a_dry_run_is_checked_and_does_not_count(queue: Queue) -> None:
    dry = "/2/instances?dry-run=1"
    assert send(queue, "bob", "POST", dry, new("b"))[0] == 200
    assert create(queue, "bob", "b")[0] == 200
    assert send(queue, "bob", "POST", dry, new("c"))[0] == 409


def test_use_and_limits(queue: Queue) -> None:
    def quota(user: str) -> list[Any]:
        status, found, _headers = queue.rest("GET", "/2/quota", user=f"{user}:pw")
        assert status == 200, found
        return [(one["owner"], one["limits"], one["use"]) for one in found]

    limits = {"instances": 3, "memory": 4 * GIB, "disk": 40 * GIB, "vcpus": 8}
    use = {"instances": 1, "memory": GIB, "disk": 10 * GIB, "vcpus": 2}
    nothing = dict.fromkeys(use, 0)
    queue.snapshots.append(SNAPSHOT)
    assert quota("alice") == [("alice", limits, {**use, "disk": 20 * GIB})]
    queue.snapshots.clear()
    assert create(queue, "alice", "a", GIB)[0] == 200
    both = {"instances": 2, "memory": 2 * GIB, "disk": 11 * GIB, "vcpus": 3}
    assert quota("alice") == [("alice", limits, both)]
    assert quota("bob") == [("bob", {"instances": 1}, nothing)]
    web = ("tag:web", {"vcpus": 100}, {name: 2 * value for name, value in use.items()})
    # The limits of what his rights name concern him, too.
    assert quota("team") == [("team", {"instances": 1}, nothing), web]
    assert quota("plain") == [("plain", {"instances": 1}, nothing)]
    everything = [("pool:db", {"memory": 3 * GIB}, use), web, ("alice", limits, both)]
    assert quota("root") == quota("look") == quota("quotas") == everything
    assert queue.rest("GET", "/2/quota", user=None)[0] == 401


def test_a_quota_that_changes_holds_at_once(queue: Queue) -> None:
    file = queue.master.users_path.with_name("roles")
    file.write_text("quota alice = instances 1\n")
    queue.master.users.refresh()
    assert create(queue, "alice", "a")[0] == 409
    file.write_text("")
    queue.master.users.refresh()
    queue.master.asked.clear()
    assert create(queue, "alice", "a")[0] == 200
    # Without quotas nothing is asked.
    assert [method for method, _args in queue.master.asked] == ["SubmitJob"]


def test_a_request_which_is_given_up_frees_the_turn(queue: Queue) -> None:
    class Slow(Master):
        async def call(self, method: str, *args: Any, timeout_s: float | None = None) -> Any:
            return queue.master.answers[method](*args)

    class Known:
        rules: Rules = parse(ROLES)[0]

    async def run() -> None:
        quotas = Quotas(Slow(""), Known())
        grow = [OpInstanceGrowDisk(instance_name="web1", disk=0, amount=16 * GIB)]
        entered = asyncio.Event()

        async def submit() -> None:
            async with quotas.admitted([grow]):
                entered.set()
                await asyncio.Event().wait()

        task = asyncio.create_task(submit())
        await entered.wait()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        async with quotas.admitted([grow]) as note:
            note(["the queue is full"])
        async with quotas.admitted([grow]) as note:
            note([1])

    asyncio.run(run())
