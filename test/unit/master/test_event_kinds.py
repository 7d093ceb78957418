"""Events of all kinds: what they say, what they cost, and who gets them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from fakes.config import FakeConfig, cluster_of, instance_of
from ganeti.constants import events as const
from ganeti.jqueue.job import OpState, QueuedJob, QueuedOpCode
from ganeti.luxi.answers import VerifyReport
from ganeti.master import event_data
from ganeti.master.events import EventLog, finder
from ganeti.objects import ConfigData, FilterRule, Network
from ganeti.rapi import typed

ALL = frozenset(const.KINDS)


def found(log: EventLog, *kinds: str) -> list[tuple[str, dict[str, Any], dict[str, Any]]]:
    return [
        (one[1], one[2], one[3])  # type: ignore[misc]
        for one in log.after(None, frozenset(kinds or ALL))["events"]
    ]


def changed_cluster(**changes: Any) -> tuple[ConfigData, ConfigData]:
    before = cluster_of(2, (instance_of("web1"),))
    return before, replace(before, cluster=replace(before.cluster, **changes))


def put(data: ConfigData, table: str, obj: Any) -> ConfigData:
    return replace(data, **{table: {**getattr(data, table), obj.uuid: obj}})


def network(**values: Any) -> Network:
    return Network(
        uuid="net-1", name="lan", network="10.0.0.0/24", reservations="", ext_reservations="",
        serial_no=1, **values,
    )  # fmt: skip


# -- objects of the configuration ------------------------------------------------------------------


def test_a_node_says_which_fields_have_changed() -> None:
    log = EventLog()
    before = cluster_of(2)
    node = next(iter(before.nodes.values()))
    after = put(before, "nodes", replace(node, offline=True, tags=("rack:1",), serial_no=7))
    log.config_changed(before, after, {("nodes", node.uuid)})
    ((kind, data, about),) = found(log)
    assert (kind, data["name"], data["change"], data["serial_no"]) == (
        "node", node.name, "changed", 7,
    )  # fmt: skip
    assert data["offline"] is True and data["group"] == "default"
    assert about["members"] == ["offline", "tags"]
    assert (about["tags"], about["tags_added"]) == (["rack:1"], ["rack:1"])
    assert log.after(None)["events"] == [], "clients of before get events of instances and jobs"


def test_groups_networks_and_filters_come_and_go() -> None:
    log = EventLog()
    before = cluster_of(1)
    group = next(iter(before.nodegroups.values()))
    lan, rule = (
        network(),
        FilterRule(
            uuid="rule-1", watermark=0, priority=1, predicates=(), action="ACCEPT", reason_trail=()
        ),
    )
    after = put(put(before, "networks", lan), "filters", rule)
    renamed = put(after, "nodegroups", replace(group, name="rack1"))
    changes = {("networks", lan.uuid), ("filters", rule.uuid)}
    log.config_changed(before, after, changes)
    log.config_changed(after, renamed, {("nodegroups", group.uuid)})
    log.config_changed(renamed, before, changes)
    assert sorted((kind, data["name"], data["change"]) for kind, data, _about in found(log)) == [
        ("filter", "rule-1", "added"),
        ("filter", "rule-1", "removed"),
        ("group", "rack1", "changed"),
        ("network", "lan", "added"),
        ("network", "lan", "removed"),
    ]
    ((_kind, _data, about),) = found(log, "group")
    assert (about["old_name"], about["members"]) == ("default", ["name"])


def test_the_cluster_without_its_bookkeeping() -> None:
    log = EventLog()
    before, after = changed_cluster(tcpudp_port_pool=(11000,), serial_no=9)
    log.config_changed(before, after, {("cluster", "")})
    assert found(log) == []
    before, after = changed_cluster(tags=("prod",), serial_no=9)
    log.config_changed(before, after, {("cluster", ""), ("disks", "x"), ("documents", "y")})
    ((kind, data, about),) = found(log)
    assert (kind, data["name"], about["members"]) == (
        "cluster", before.cluster.cluster_name, ["tags"],
    )  # fmt: skip


def test_keys_of_parameters_and_never_their_values() -> None:
    log = EventLog()
    before = cluster_of(1, (instance_of("web1"),))
    web = next(iter(before.instances.values()))
    after = put(
        before,
        "instances",
        replace(
            web,
            beparams={"maxmem": 4711},
            osparams={"dhcp": "SECRET-0"},
            osparams_private={"root_password": "SECRET-1"},
            hvparams={"vnc_password_file": "SECRET-2"},
        ),
    )
    log.config_changed(before, after, {("instances", web.uuid)})
    ((_kind, data, about),) = found(log)
    assert about["members"] == [
        "beparams/maxmem", "hvparams/vnc_password_file", "osparams/dhcp", "osparams_private",
    ]  # fmt: skip
    text = json.dumps([data, about])
    assert "SECRET" not in text and "4711" not in text and "root_password" not in text


class Counting(dict[str, Any]):
    """A table which counts how often it is asked."""

    asked = 0

    def get(self, key: str, default: Any = None) -> Any:
        Counting.asked += 1
        return super().get(key, default)

    def __iter__(self) -> Iterator[str]:
        raise AssertionError("the whole table is read")


def test_a_commit_costs_what_it_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    """One of 1,000 instances changes: the tables are asked for this one only."""
    before = cluster_of(1, tuple(instance_of(f"web{number}") for number in range(1000)))
    web = next(iter(before.instances.values()))
    after = put(before, "instances", replace(web, admin_state="up", serial_no=2))
    before, after = (replace(one, instances=Counting(one.instances)) for one in (before, after))
    compared: list[str] = []
    difference = event_data._difference
    monkeypatch.setattr(
        event_data,
        "_difference",
        lambda old, new: compared.append(new.name) or difference(old, new),
    )
    Counting.asked = 0
    log = EventLog()
    log.config_changed(before, after, {("instances", web.uuid)})
    assert (Counting.asked, compared) == (2, [web.name])
    assert len(found(log)) == 1


# -- jobs ------------------------------------------------------------------------------------------


def job(number: int, *ops: dict[str, Any], status: str = "running") -> QueuedJob:
    made = QueuedJob(number, [QueuedOpCode(one) for one in ops], (1, 0))
    for op in made.ops:
        op.state = op.published = OpState(status=status)
    return made


START = {
    "OP_ID": "OP_INSTANCE_STARTUP",
    "instance_name": "web1",
    "reason": [["gnt:person", "alice", 1]],
}


def test_a_job_names_its_objects_and_its_user() -> None:
    from ganeti.constants.job import REASON_PERSON

    log = EventLog(
        find=lambda kind, name: event_data.Named(f"{name}.example.com", ("prod",), ("rack1",))
    )
    one = job(1, {**START, "reason": [[REASON_PERSON, "alice", 1]]})
    log.jobs_published([one])
    ((kind, data, about),) = found(log)
    assert (kind, data["id"]) == ("job", 1)
    assert about == {
        "objects": [["instance", "web1.example.com"]], "user": "alice", "tags": ["prod"],
        "groups": ["rack1"], "instances": [["web1.example.com", ["prod"], ["rack1"]]],
    }  # fmt: skip
    assert log.after(None)["events"] == [(1, "job", data)]


def test_what_is_known_about_named_objects() -> None:
    data = cluster_of(1, (instance_of("web1", tags=("prod",)),))
    find = finder(FakeConfig(data))  # type: ignore[arg-type]
    assert find("instance", "web1") == ("web1.example.com", ("prod",), ["default"])
    node = next(iter(data.nodes.values()))
    assert find("node", node.uuid)[::2] == (node.name, ["default"])
    assert find("group", "default").groups == ["default"]
    assert find("instance", "gone") == ("gone", (), ())
    assert find("disk", "x") == ("x", (), ())
    create = {"OP_ID": "OP_INSTANCE_CREATE", "instance_name": "new", "tags": ["test", 3]}
    about = event_data.of_job(job(1, create), find)
    assert (about["tags"], about["instances"]) == (["test"], [["new", ["test"], []]])
    copy = {"OP_ID": "OP_INSTANCE_COPY", "instance_name": "web1", "new_name": "web2"}
    assert event_data.of_job(job(1, copy), find)["instances"] == [
        ["web1.example.com", ["prod"], ["default"]],
        ["web2", ["prod"], ["default"]],
    ]
    move = {"OP_ID": "OP_INSTANCE_MOVE", "instance_name": "web1", "target_node": node.name}
    assert event_data.of_job(job(1, move), find)["instances"] == [
        ["web1.example.com", ["prod"], ["default"]]
    ]


def test_lines_and_progress_only_while_a_client_wants_them() -> None:
    log = EventLog()
    one = job(1, START, START)
    log.jobs_published([one])
    one.add_log(one.ops[0], "message", "nobody wants this", (2, 0))
    log.job_logged(one)
    assert [kind for kind, _data, _about in found(log, "job")] == ["job"]
    log.after(None, frozenset({"log", "progress"}))
    one.add_log(one.ops[0], "message", "- device disk/0: 45.30% done, 9s remaining", (3, 500000))
    log.job_logged(one)
    (line,) = found(log, "log")
    assert line[1] == {
        "id": 1, "serial": 2, "type": "message", "timestamp": 3.5,
        "message": "- device disk/0: 45.30% done, 9s remaining",
    }  # fmt: skip
    assert line[2]["objects"] == [["instance", "web1"]]
    (progress,) = found(log, "progress")
    assert {**progress[1], "timestamp": 0} == {
        "id": 1, "done": 0, "total": 2, "operation": "INSTANCE_STARTUP(web1)", "percent": 45.3,
        "timestamp": 0,
    }  # fmt: skip
    one.ops[0].state = one.ops[0].published = OpState(status="success")
    one.add_log(one.ops[1], "message", "x" * 10_000, (4, 0))
    log.jobs_published([one])
    assert [data["done"] for _kind, data, _about in found(log, "progress")] == [0, 1]
    last = found(log, "log")[-1][1]
    assert last["serial"] == 3 and len(last["message"]) < 5000


def test_lines_do_not_push_out_other_events() -> None:
    log = EventLog(kept=10)
    log.after(None, ALL)
    one = job(1, START)
    log.jobs_published([one])
    for number in range(50):
        one.add_log(one.ops[0], "message", f"line {number}", (2, 0))
        log.job_logged(one)
    place = log.epoch, 0
    assert log.after(place)["lost"] is False
    assert [event[1] for event in log.after(place)["events"]] == ["job"]
    assert log.after(place, frozenset({"job"}))["lost"] is False
    noisy = log.after(place, frozenset({"log"}))
    assert noisy["lost"] is True
    assert noisy["events"][-1][2]["message"] == "line 49"
    assert noisy["dropped"][0] == 0 and noisy["dropped"][1] > 0


def test_a_waiting_client_gets_the_kinds_which_it_names() -> None:
    log = EventLog()
    before = cluster_of(1)
    node = next(iter(before.nodes.values()))
    after = put(before, "nodes", replace(node, drained=True))
    jobs: list[Any] = []
    nodes: list[Any] = []
    assert log.wait((log.epoch, 0), jobs.append)
    assert log.wait((log.epoch, 0), nodes.append, frozenset({"node"}))
    log.config_changed(before, after, {("nodes", node.uuid)})
    assert not jobs and [event[1] for event in nodes[0]["events"]] == ["node"]
    log.jobs_published([job(1, START)])
    assert [event[0] for event in jobs[0]["events"]] == [2]
    # A place before events of other kinds is no reason to answer.
    assert log.wait((log.epoch, 1), nodes.append, frozenset({"node"}))


# -- findings --------------------------------------------------------------------------------------

VERIFY = {"OP_ID": "OP_CLUSTER_VERIFY_GROUP", "group_name": "g1", "error_codes": True}
DOWN = "  - ERROR:EINSTANCEDOWN:instance:web1:it does not run: really"
FULL = "  - WARNING:ENODEN1:node:node1:no capacity"


def verified(number: int, *lines: str, **given: Any) -> QueuedJob:
    made = job(number, {**VERIFY, **given}, status="success")
    for line in ("* Checking nodes", *lines, "  - NOTICE: nothing"):
        made.add_log(made.ops[0], "message", line, (2, 0))
    return made


def findings(log: EventLog) -> list[tuple[str, str, str]]:
    return [(data["change"], data["code"], data["name"]) for _k, data, _a in found(log, "finding")]


def test_findings_appear_and_go() -> None:
    log = EventLog()
    log.jobs_published([verified(1, DOWN, FULL)])
    log.jobs_published([verified(2, DOWN, FULL)])
    assert findings(log) == [
        ("appeared", "EINSTANCEDOWN", "web1"), ("appeared", "ENODEN1", "node1"),
    ]  # fmt: skip
    log.jobs_published([verified(3, FULL), verified(4, DOWN, group_name="g2")])
    assert findings(log)[2:] == [
        ("gone", "EINSTANCEDOWN", "web1"), ("appeared", "EINSTANCEDOWN", "web1"),
    ]  # fmt: skip
    data = found(log, "finding")[0][1]
    assert {**data, "timestamp": 0} == {
        "change": "appeared", "severity": "error", "code": "EINSTANCEDOWN", "object": "instance",
        "name": "web1", "text": "it does not run: really", "job": 1, "timestamp": 0,
    }  # fmt: skip


@pytest.mark.parametrize(
    "job_",
    [
        verified(2, error_codes=False),
        verified(2, debug_simulate_errors=True),
        verified(2, dry_run=True),
        job(2, VERIFY, status="error"),
    ],
)
def test_a_verification_which_says_nothing(job_: QueuedJob) -> None:
    log = EventLog()
    log.jobs_published([verified(1, DOWN)])
    log.jobs_published([job_])
    assert findings(log) == [("appeared", "EINSTANCEDOWN", "web1")]


def test_a_new_master_knows_the_findings_of_the_queue() -> None:
    log = EventLog()
    log.recover([verified(2, DOWN), verified(1, FULL)])
    log.jobs_published([verified(3, DOWN)])
    assert findings(log) == []
    log.jobs_published([verified(4)])
    assert findings(log) == [("gone", "EINSTANCEDOWN", "web1")]


def test_the_last_findings_of_all_parts() -> None:
    log = EventLog()
    assert log.verified(["g1"]) == {"parts": [], "unchecked": [None, "g1"], "findings": []}
    config = {"OP_ID": "OP_CLUSTER_VERIFY_CONFIG"}
    for number, made in enumerate(
        (
            verified(1, FULL),
            verified(2, FULL, DOWN),
            verified(3, DOWN, group_name="gone"),
            verified(4, "  - ERROR:ECLUSTERCFG:cluster::it is wrong", **config),
        )
    ):
        for op in made.ops:
            op.published = op.published._replace(end=(100 + number, 500000))
        log.jobs_published([made])
    report = log.verified(["g1", "g10", "g2"])
    assert typed.of(VerifyReport)(report)
    assert report["unchecked"] == ["g2", "g10"]
    assert report["parts"] == [
        {"group": None, "job": 4, "time": 103.5, "errors": 1, "warnings": 0},
        {"group": "g1", "job": 2, "time": 101.5, "errors": 1, "warnings": 1},
    ]
    shown = [
        (one["severity"], one["code"], one["name"], one["group"], one["job"], one["since"])
        for one in report["findings"]
    ]
    # The warning was there before: it has its time, and its last job. A removed group is left out.
    assert shown == [
        ("error", "ECLUSTERCFG", "", None, 4, 103.5),
        ("error", "EINSTANCEDOWN", "web1", "g1", 2, 101.5),
        ("warning", "ENODEN1", "node1", "g1", 2, 100.5),
    ]
    # What has gone, and comes again, is new.
    log.jobs_published([verified(5), verified(6, FULL)])
    (again,) = [one for one in log.verified(["g1"])["findings"] if one["group"]]
    assert (again["code"], again["since"]) == ("ENODEN1", 0.0)


def test_the_findings_of_a_removed_group_go() -> None:
    log = EventLog()
    before = cluster_of(1)
    group = next(iter(before.nodegroups.values()))
    log.jobs_published([verified(1, DOWN, group_name=group.name)])
    log.config_changed(before, replace(before, nodegroups={}), {("nodegroups", group.uuid)})
    assert findings(log)[1:] == [("gone", "EINSTANCEDOWN", "web1")]
