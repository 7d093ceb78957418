"""Every command which takes the name of an object takes its UUID, too, and does the same.

Each line below is executed twice, with names and with UUIDs, against the real queries of a small
cluster. The master then finds the objects of the opcodes which it was sent.
"""

from __future__ import annotations

import importlib
import json
import re
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest

from fakes.config import FakeConfig
from fakes.luxi_master import FakeMaster
from fakes.master import FakeJob
from fakes.rpc import FakeRpc
from ganeti import client, cmdlib, errors, objects, opcodes
from ganeti.cli import confirmation
from ganeti.cli.command import Program
from ganeti.cmdlib.base import LuContext, MasterContext
from ganeti.confd import client as confd_client
from ganeti.confd.queries import ConfigFacts
from ganeti.config.view import View
from ganeti.constants import confd
from ganeti.locking import LockManager
from ganeti.master.queries import service
from ganeti.objects import codec

from .conftest import Ended, Gnt

TEXT = (Path(__file__).parents[2] / "data/query_cluster.json").read_text(encoding="utf-8")
DATA = codec.from_dict(objects.ConfigData, json.loads(TEXT))

#: Names of objects in the lines below.
NODE, OTHER = "node2.example.com", "node3.example.com"
INSTANCE, GROUP, NETWORK = "instance1.example.com", "rack2", "net1"
UUIDS = {
    one.name: one.uuid
    for table in (DATA.nodes, DATA.instances, DATA.nodegroups, DATA.networks)
    for one in table.values()
    if one.name in (NODE, OTHER, INSTANCE, GROUP, NETWORK)
}
#: Kinds of arguments and of the completion of options, in which a user names an object.
KINDS = {"node", "pnode:snode", "nodegroup", "instance", "group", "network"}

#: Commands which find objects by name or UUID on the model of the placement programs.
ON_THE_MODEL = {("gnt-cluster", "simulate")}
#: Commands which check all nodes before they ask; see ``test/unit/upgrading``.
OF_ALL_NODES = {("gnt-cluster", "upgrade")}
#: Commands with the options of another one, whose lines are tried; both call the same function.
LIKE_ANOTHER = {("gnt-instance", "import"): ("gnt-backup", "import")}
#: Program -> lines with every argument and option which names an object; see ``NEW_NAMES``.
LINES = {
    "gnt-backup": [
        f"list -n {NODE}",
        f"export -n {NODE} {INSTANCE}",
        f"import -t plain -n {NODE} --src-node={OTHER} --src-dir=/x copy.example.com",
        "import -t plain --node-group=rack2 --src-node=node3.example.com --src-dir=/x copy",
        f"remove {INSTANCE}",
    ],
    "gnt-cluster": [
        f"verify --node-group={GROUP}",
        f"copyfile -n {NODE} /etc/hosts",
        f"copyfile --node-group={GROUP} /etc/hosts",
        f"command -n {NODE} true",
        f"command --node-group={GROUP} true",
        f"verify-disks --node-group={GROUP}",
        f"repair-disk-sizes {INSTANCE}",
        f"epo --dry-run {OTHER}",
        f"epo --dry-run --groups {GROUP}",
    ],
    "gnt-debug": [
        f"delay -n {NODE} --no-master 1",
        f"iallocator --mode=relocate {INSTANCE}",
        f"iallocator --mode=change-group {INSTANCE}",
    ],
    "gnt-group": [
        f"assign-nodes {GROUP} {NODE} {OTHER}",
        f"list {GROUP}",
        f"info {GROUP}",
        f"modify --alloc-policy=last_resort {GROUP}",
        f"remove {GROUP}",
        f"rename {GROUP} rack7",
        f"evacuate --to={GROUP} {GROUP}",
        f"show-ispecs-cmd {GROUP}",
        f"list-tags {GROUP}",
        f"add-tags {GROUP} a",
        f"remove-tags {GROUP} a",
    ],
    "gnt-instance": [
        f"add -t drbd -s 1g -o noop -n {NODE}:{OTHER} new.example.com",
        f"add -t plain -s 1g -o noop --node-group={GROUP} new.example.com",
        f"remove --force {INSTANCE}",
        f"list -o name {INSTANCE}",
        f"list -o name --node {NODE}",
        f"list -o name --group {GROUP}",
        f"info -s {INSTANCE}",
        f"info -s --node {NODE}",
        f"startup {INSTANCE}",
        f"startup --node --force-multiple {NODE}",
        f"startup --primary --force-multiple {NODE}",
        f"startup --group --force-multiple {GROUP}",
        f"shutdown {INSTANCE}",
        f"reboot {INSTANCE}",
        f"console --show-cmd {INSTANCE}",
        f"change-group --to={GROUP} {INSTANCE}",
        f"migrate --force -n {NODE} {INSTANCE}",
        f"failover --force -n {NODE} --new-secondary={OTHER} {INSTANCE}",
        f"move --force -n {NODE} {INSTANCE}",
        f"modify --new-primary={NODE} {INSTANCE}",
        f"modify -t drbd -n {NODE} {INSTANCE}",
        f"reinstall --force {INSTANCE}",
        f"copy -n {NODE} {INSTANCE} new.example.com",
        f"copy --node-group={GROUP} {INSTANCE} new.example.com",
        f"rename {INSTANCE} new.example.com",
        f"undo --force {INSTANCE}",
        f"activate-disks {INSTANCE}",
        f"deactivate-disks {INSTANCE}",
        f"grow-disk {INSTANCE} 0 1g",
        f"recreate-disks -n {NODE}:{OTHER} {INSTANCE}",
        f"replace-disks -n {NODE} {INSTANCE}",
        f"snapshot {INSTANCE}",
        f"list-snapshots {INSTANCE}",
        f"remove-snapshot {INSTANCE} first",
        f"restore-snapshot --force {INSTANCE} first",
        f"list-tags {INSTANCE}",
        f"add-tags {INSTANCE} a",
        f"remove-tags {INSTANCE} a",
    ],
    "gnt-network": [
        f"connect -N mode=bridged,link=br1 {NETWORK} {GROUP}",
        f"disconnect {NETWORK} {GROUP}",
        f"list {NETWORK}",
        f"info {NETWORK}",
        f"modify --gateway=192.0.2.9 {NETWORK}",
        f"remove {NETWORK}",
        f"rename {NETWORK} office",
        f"list-tags {NETWORK}",
        f"add-tags {NETWORK} a",
        f"remove-tags {NETWORK} a",
    ],
    "gnt-node": [
        f"add --no-ssh-key-check --dry-run --node-group={GROUP} cluster.example.com",
        f"list -o name {OTHER} {NODE}",
        f"list -o name --group {GROUP}",
        f"info {NODE}",
        f"remove {NODE}",
        f"modify --drained=yes {NODE}",
        f"power status {NODE}",
        f"health {NODE}",
        f"powercycle --yes {NODE}",
        f"restricted-command -M true {NODE}",
        f"restricted-command --node-group={GROUP} true",
        f"list-storage {NODE}",
        f"modify-storage --allocatable=no {NODE} lvm-pv /dev/sdb1",
        f"repair-storage {NODE} lvm-vg xenvg",
        f"volumes {NODE}",
        f"list-drbd {NODE}",
        f"evacuate --force -n {OTHER} {NODE}",
        f"migrate --force -n {OTHER} {NODE}",
        f"failover --force -n {OTHER} {NODE}",
        f"maintenance start --force -n {OTHER} {NODE}",
        f"list-tags {NODE}",
        f"add-tags {NODE} a",
        f"remove-tags {NODE} a",
    ],
    "gnt-os": [f"images check -n {NODE}"],
}
#: Commands whose argument is a new name, which nothing has yet; and one which runs until its user
#: ends it.
NEW_NAMES = {("gnt-group", "add"), ("gnt-network", "add"), ("gnt-instance", "top")}
ALL = [(program, line) for program, lines in LINES.items() for line in lines]

#: Opcodes whose result are jobs, and those whose result is a list.
WITH_JOBS = (
    "OP_CLUSTER_VERIFY_DISKS",
    "OP_GROUP_EVACUATE",
    "OP_INSTANCE_CHANGE_GROUP",
    "OP_NODE_EVACUATE",
    "OP_NODE_MAINTENANCE_START",
    "OP_NODE_MIGRATE",
)
LISTING = (
    "OP_CLUSTER_REPAIR_DISK_SIZES",
    "OP_INSTANCE_SNAPSHOT_LIST",
    "OP_NODE_QUERY_STORAGE",
    "OP_NODE_QUERYVOLS",
    "OP_OOB_COMMAND",
)


class Run(NamedTuple):
    """What a command did."""

    ended: Ended
    ops: list[dict[str, Any]]


def program(name: str) -> Program:
    loaded: Program = importlib.import_module(client.PROGRAMS[name]).PROGRAM
    return loaded


@pytest.fixture
def real_queries(master: FakeMaster) -> Iterator[FakeMaster]:
    """A simulated master whose answers about objects are those of the real one."""
    real = SimpleNamespace(config=View(DATA), rpc=_NoLiveData(), live_seen=None)

    def values(what: str) -> Any:
        return lambda names, fields, _lock: service.query_values(real, what, names, fields)  # type: ignore[arg-type]

    master.answers = {
        "Query": lambda what, fields, qfilter: service.query(real, what, fields, qfilter),  # type: ignore[arg-type]
        "QueryFields": service.query_fields,
        "QueryNodes": values("node"),
        "QueryInstances": values("instance"),
        "QueryGroups": values("group"),
        "QueryNetworks": values("network"),
        "QueryTags": lambda kind, name: [],
        **_history(next(one for one in DATA.instances.values() if one.name == INSTANCE)),
    }
    master.results = {op_id: {"jobs": []} for op_id in WITH_JOBS}
    master.results |= dict.fromkeys(LISTING, [])
    master.results |= {"OP_INSTANCE_QUERY_DATA": {}, "OP_INSTANCE_SNAPSHOT": "at-noon"}
    master.results["OP_RESTRICTED_COMMAND"] = lambda op: [(True, "")] * len(op["nodes"])
    master.results["OP_INSTANCE_CONSOLE"] = {"kind": "msg", "instance": "i", "message": "none"}
    yield master


def _history(instance: objects.Instance) -> dict[str, Any]:
    """Return the answers of a master whose last commit changed the tags of an instance."""
    commit = {
        "serial": 2,
        "before": 1,
        "time": 1764000000.0,
        "job": None,
        "count": 1,
        "changes": [["instances", instance.name, "changed", ["tags"]]],
    }
    change = {
        "kind": "instances",
        "uuid": instance.uuid,
        "name": instance.name,
        "what": "changed",
        "old": {"tags": ["a"]},
        "new": {"tags": []},
    }
    return {
        "QueryConfigHistory": lambda limit: [commit],
        "QueryConfigChanges": lambda first, last: {"changes": [change]},
    }


class _NoLiveData:
    """Nodes of which none answers."""

    def call_many(self, call: Any, node_uuids: Any, **_args: Any) -> dict[str, Any]:
        return {
            uuid: SimpleNamespace(data=None, failure=OSError(), offline=False, node_name=uuid)
            for uuid in node_uuids
        }


def with_uuids(line: str) -> str:
    for name, uuid in UUIDS.items():
        line = re.sub(rf"(?<![\w.]){re.escape(name)}(?![\w.])", uuid, line)
    return line


def with_names(text: str) -> str:
    for name, uuid in UUIDS.items():
        text = text.replace(uuid, name)
    return text


def run(gnt: Gnt, master: FakeMaster, program: str, line: str) -> Run:
    master.jobs.clear()
    master.next_job_id = 1
    ended = gnt(f"{program.removeprefix('gnt-')} {line}")
    ops = json.loads(json.dumps(master.opcodes()))
    for op in ops:
        op.pop("reason", None)  # it has the time
    return Run(ended, ops)


@pytest.mark.parametrize(("name", "line"), ALL)
def test_a_uuid_does_what_the_name_does(
    name: str,
    line: str,
    gnt: Gnt,
    real_queries: FakeMaster,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    facts = ConfigFacts(DATA)

    class Confd:
        """A configuration daemon which has this cluster."""

        def query(self, kind: int, query: Any) -> Any:
            assert kind == confd.REQ_NODE_DRBD
            rows, _serial = facts.node_drbd(query)
            return SimpleNamespace(ok=True, answer=rows)

    monkeypatch.setattr(confd_client.Client, "of_this_node", lambda: Confd())
    by_name = run(gnt, real_queries, name, line)
    by_uuid = run(gnt, real_queries, name, with_uuids(line))
    assert with_uuids(line) != line
    assert not re.search("Usage|Unhandled error|not known|not in the cluster", by_name.ended.err)
    assert by_uuid.ended.code == by_name.ended.code, by_uuid.ended.err
    assert with_names(by_uuid.ended.err) == by_name.ended.err
    assert with_names(json.dumps(by_uuid.ops)) == json.dumps(by_name.ops)
    for op in by_uuid.ops:
        finds_its_objects(op)


def finds_its_objects(wanted: dict[str, Any]) -> None:
    """Let the master find the objects of an opcode, as it does before anything else."""
    op = opcodes.from_dict(wanted).validate()
    config = FakeConfig(DATA)
    master = MasterContext(config, LockManager(), FakeRpc(config))  # type: ignore[arg-type]
    unit = cmdlib.lookup(op.OP_ID)(op, LuContext(master, FakeJob(1)))  # type: ignore[arg-type]
    try:
        unit.expand_names()
    except errors.GenericError as err:
        # The cluster has few of the things which the operations need; names are another matter.
        assert getattr(err, "ecode", None) != errors.ECODE_NOENT, err


def test_every_command_which_names_objects_is_in_the_table() -> None:
    for name in client.PROGRAMS:
        for word, command in program(name).commands.items():
            table, verb = LIKE_ANOTHER.get((name, word), (name, word))
            lines = [line for line in LINES.get(table, ()) if line.split()[0] == verb]
            needed = [one.names for one in command.options if one.completion in KINDS]
            if any(one.kind in KINDS for one in command.arguments):
                assert lines or (name, word) in NEW_NAMES, f"{name} {word}"
            for spellings in needed if (name, word) not in ON_THE_MODEL | OF_ALL_NODES else ():
                assert any(
                    re.search(rf"(^| ){re.escape(spelling)}[ =]", line)
                    for line in lines
                    for spelling in spellings
                ), f"{name} {word} {spellings}"


@pytest.mark.parametrize(
    ("line", "name"),
    [
        (f"instance remove {INSTANCE}", INSTANCE),
        (f"instance migrate {INSTANCE}", INSTANCE),
        (f"instance failover {INSTANCE}", INSTANCE),
        (f"instance move -n {NODE} {INSTANCE}", INSTANCE),
        (f"instance restore-snapshot {INSTANCE} first", INSTANCE),
        (f"backup export --remove-instance -n {NODE} {INSTANCE}", INSTANCE),
        (f"node powercycle {NODE}", NODE),
        (f"node evacuate {OTHER}", OTHER),
    ],
)
def test_a_question_names_the_object(
    line: str, name: str, gnt: Gnt, real_queries: FakeMaster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who answers it reads which object will change, and not what was typed."""
    asked: list[str] = []

    def ask(_values: object, question: str, *_option: str) -> int:
        asked.append(question)
        return 1

    monkeypatch.setattr(confirmation, "ask", ask)
    for spelling in (line, with_uuids(line), line.replace(name, name.split(".")[0])):
        assert gnt(spelling).code == 1
    assert len(asked) == 3
    assert all(re.search(rf"\b{re.escape(name)}\b", question) for question in asked), asked
    assert real_queries.opcodes() == []
