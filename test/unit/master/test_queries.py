"""The master asks nodes, queue and lock manager for what a query needs, and for no more."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from types import SimpleNamespace

import pytest

from ganeti import errors, objects
from ganeti.jqueue import job as jobs
from ganeti.locking import Level, LockManager, Owner
from ganeti.master.queries import service as queries
from ganeti.objects import codec
from ganeti.platform import paths
from ganeti.utils import fs
from ganeti.wire import calls

DATA = Path(__file__).parents[2] / "data"
CONFIG_TEXT = (DATA / "query_cluster.json").read_text()
QUEUE = {2: "success", 3: "error", 10: "running"}


class FakeRpc:
    """Answers from a table of (call name, node name); an exception there is a failure."""

    def __init__(self, config):
        self.config = config
        self.answers = {}
        self.calls = []

    def call_many(self, call, node_uuids, *, per_node=None, **args):
        results = {}
        for uuid in node_uuids:
            name = self.config.nodes[uuid].name
            answer = self.answers.get((call.name, name))
            sent = {**args, **(per_node or {}).get(uuid, {})}
            if self.config.nodes[uuid].offline:
                answer = errors.NodeOffline(name, call.name)
            else:
                self.calls.append((call.name, name, sent))
            failed = isinstance(answer, Exception)
            if call is calls.ALL_INSTANCES_INFO and not failed:
                answer = calls.Guests(answer or {}, getattr(answer, "problems", {}))
            results[uuid] = SimpleNamespace(
                data=None if failed else answer,
                failure=answer if failed else None,
                offline=isinstance(answer, errors.NodeOffline),
                node_name=name,
            )
        return results


class FakeQueue:
    drained = False

    def __init__(self):
        self.asked = []

    def query(self, ids, fields, *, archived=False):
        jobs.check_fields(fields)
        self.asked.append((ids, list(fields), archived))
        rows = []
        for job_id in sorted(QUEUE) if ids is None else ids:
            values = {
                "id": job_id,
                "status": QUEUE.get(job_id),
                "archived": False,
                "start_ts": None,
                "summary": ["X"],
            }
            rows.append([values[name] for name in fields] if job_id in QUEUE else None)
        return rows


@pytest.fixture
def context():
    config = codec.from_dict(objects.ConfigData, json.loads(CONFIG_TEXT))
    made = SimpleNamespace(
        locks=LockManager(), queue=FakeQueue(), rpc=FakeRpc(config), live_seen=None
    )
    made.config = SimpleNamespace(snapshot=lambda: made.rpc.config)
    return made


def change_node(context, name, **changes):
    config = context.rpc.config
    node = next(n for n in config.nodes.values() if n.name == name)
    context.rpc.config = dataclasses.replace(
        config, nodes={**config.nodes, node.uuid: dataclasses.replace(node, **changes)}
    )


def test_configuration_alone_asks_nobody(context):
    answer = queries.query(context, "node", ["name", "role"])
    assert [row[0][1] for row in answer["data"]] == [f"node{n}.example.com" for n in range(1, 5)]
    assert context.rpc.calls == []


def test_status_of_instances_in_one_fan_out(context):
    up = {"memory": 64, "state": 0, "vcpus": 1, "time": 1.0}
    change_node(context, "node3.example.com", offline=True)
    context.rpc.answers = {
        ("all_instances_info", "node1.example.com"): {},
        ("all_instances_info", "node2.example.com"): errors.NodeUnreachable("n", "c", "gone"),
        ("all_instances_info", "node4.example.com"): {"instance1.example.com": up},
    }
    answer = queries.query(context, "instance", ["name", "status", "oper_ram"])
    found = {row[0][1].split(".")[0]: (row[1], row[2]) for row in answer["data"]}
    assert found["instance1"] == ([0, "running"], [0, 64])
    assert found["instance4"] == ([0, "ERROR_down"], [3, None])
    assert found["instance2"] == ([0, "ERROR_nodedown"], [2, None])
    assert found["instance7"] == ([0, "ERROR_nodeoffline"], [4, None])
    asked = [(name, node) for name, node, _ in context.rpc.calls]
    assert asked == sorted(set(asked)) or len(asked) == len(set(asked))
    assert {node for _, node in asked} == {"node2.example.com", "node4.example.com"}
    assert context.rpc.calls[0][2]["hypervisors"] == ["fake"]
    assert list(context.rpc.calls[0][2]["hvparams"]) == ["fake"]


def test_a_hypervisor_which_fails_does_not_hide_the_guests_of_others(context):
    """Its own guests may run; nobody may take them for stopped."""
    config = context.rpc.config
    node = next(one for one in config.nodes.values() if one.name == "node4.example.com")
    mine = [one for one in config.instances.values() if one.primary_node == node.uuid]
    one, other = (dataclasses.replace(mine[0], hypervisor="kvm"), mine[1])
    context.rpc.config = dataclasses.replace(
        config, instances={**config.instances, one.uuid: one, other.uuid: other}
    )
    context.rpc.answers = {
        ("all_instances_info", node.name): calls.Guests({}, {"kvm": "no answer"}),
        ("all_instances_info", "node2.example.com"): {},
    }
    answer = queries.query(context, "instance", ["name", "status"])
    found = {row[0][1]: row[1][1] for row in answer["data"]}
    assert found[one.name] == "ERROR_nodedown"
    assert found[other.name] == "ERROR_down"
    assert context.rpc.calls[0][2]["apart"] is True


def test_checking_the_guests_asks_each_node_once(context):
    seen = []
    context.live_seen = lambda view, instances: seen.append((view, list(instances)))
    context.rpc.answers = {
        ("all_instances_info", node.name): {} for node in context.rpc.config.nodes.values()
    }
    queries.check_guests(context)
    asked = [(name, node) for name, node, _ in context.rpc.calls]
    assert {name for name, _ in asked} == {"all_instances_info"}
    assert len(asked) == len(set(asked)) > 1
    ((view, instances),) = seen
    assert {one.uuid for one in instances} == set(context.rpc.config.instances)
    assert set(view.live["instances"]) == set(context.rpc.config.instances)


def test_an_instance_found_on_its_secondary_is_on_the_wrong_node(context):
    config = context.rpc.config
    nodes = {node.name: node.uuid for node in config.nodes.values()}
    one, two = nodes["node1.example.com"], nodes["node2.example.com"]
    disk = objects.Disk(dev_type="drbd", logical_id=(one, two, 1, 0, 0, "s"), size=1, uuid="d")
    instance = next(i for i in config.instances.values() if i.name == "instance8.example.com")
    instance = dataclasses.replace(instance, primary_node=one, disks=("d",))
    context.rpc.config = dataclasses.replace(
        config, disks={"d": disk}, instances={instance.uuid: instance}
    )
    context.rpc.answers = {
        ("all_instances_info", "node1.example.com"): {},
        ("all_instances_info", "node2.example.com"): {instance.name: {"state": 0}},
    }
    answer = queries.query(context, "instance", ["status", "snodes"])
    assert answer["data"] == [[[0, "ERROR_wrongnode"], [0, ["node2.example.com"]]]]


def test_facts_of_nodes(context):
    for number in range(1, 5):
        context.rpc.answers["node_info", f"node{number}.example.com"] = [
            "boot-id",
            [
                {
                    "type": "file",
                    "name": "/srv/ganeti-peer/storage/file",
                    "storage_free": 10,
                    "storage_size": 20,
                }
            ],
            [{"memory_total": 100, "memory_free": 40, "memory_dom0": 7, "cpu_total": 2}],
        ]
    units = queries.query(context, "node", ["storage"])["data"][0][0]
    assert units == [
        0,
        [{"sunit": ["file", "/srv/ganeti-peer/storage/file", []], "free": 10, "total": 20}],
    ]
    context.rpc.calls.clear()
    context.rpc.answers["node_info", "node2.example.com"] = errors.NodeCallFailed("n", "c", "bad")
    change_node(context, "node3.example.com", offline=True)
    change_node(context, "node4.example.com", vm_capable=False)
    answer = queries.query(
        context,
        "node",
        ["mtotal", "mfree", "mnode", "dtotal", "dfree", "ctotal", "bootid", "spfree"],
    )
    assert answer["data"] == [
        [[0, 100], [0, 40], [0, 7], [0, 20], [0, 10], [0, 2], [0, "boot-id"], [2, None]],
        [[2, None]] * 8,
        [[4, None]] * 8,
        [[2, None]] * 8,
    ]
    sent = context.rpc.calls[0][2]
    # The first stands for the node; the others only fill its list of storage units.
    assert sent["storage_units"] == [
        ["file", "/srv/ganeti-peer/storage/file", []],
        ["sharedfile", "/srv/ganeti-peer/storage/shared", []],
    ]
    assert sent["hv_specs"] == [["fake", {"migration_mode": "live"}]]


def test_storage_units(context):
    cluster = dataclasses.replace(
        context.rpc.config.cluster,
        volume_group_name="xenvg",
        enabled_disk_templates=("drbd", "file"),
    )
    assert queries.storage_units(cluster, {"exclusive_storage": True}) == [
        ["lvm-vg", "xenvg", [True]],
        ["lvm-pv", "xenvg", [True]],
    ]
    cluster = dataclasses.replace(
        cluster, enabled_disk_templates=("diskless", "sharedfile"), shared_file_storage_dir="/s"
    )
    assert queries.storage_units(cluster, {}) == [["sharedfile", "/s", []]]
    cluster = dataclasses.replace(cluster, enabled_disk_templates=("diskless",))
    assert queries.storage_units(cluster, {}) == []


def test_jobs(context):
    answer = queries.query(context, "job", ["id", "status", "start_ts", "nosuch"])
    assert [row[:2] for row in answer["data"]] == [
        [[0, 2], [0, "success"]],
        [[0, 3], [0, "error"]],
        [[0, 10], [0, "running"]],
    ]
    assert answer["data"][0][2:] == [[3, None], [1, None]]
    assert context.queue.asked == [(None, ["id", "start_ts", "status"], False)]


def test_a_choice_of_jobs_reads_no_others(context):
    answer = queries.query(
        context,
        "job",
        ["status", "archived"],
        ["|", ["==", "id", 10], ["==", "id", "2"], ["==", "id", 99]],
    )
    assert [row[0][1] for row in answer["data"]] == ["running", "success"]
    assert context.queue.asked == [([2, 10, 99], ["archived", "id", "status"], True)]


def test_filter_on_a_field_nobody_wants_to_see(context):
    answer = queries.query(context, "job", ["id"], ["==", "status", "error"])
    assert answer["data"] == [[[0, 3]]]


@pytest.mark.parametrize("qfilter", [["bogus"], ["==", "id", "x"], "text"])
def test_a_bad_filter_is_refused_before_the_queue_is_asked(context, qfilter):
    with pytest.raises(errors.ParameterError):
        queries.query(context, "job", ["id"], qfilter)
    assert context.queue.asked == []


def test_locks(context):
    owner = Owner(7, "job-7")
    context.locks.add(Level.NODE, ["n2", "n10"])
    context.locks.acquire(owner, Level.NODE, ["n2", "n10"], shared=False)
    answer = queries.query(context, "lock", ["name", "mode", "owner", "pending"])
    rows = {row[0][1]: row[1:] for row in answer["data"]}
    assert rows["node/n10"] == [[0, "exclusive"], [0, ["7"]], [0, None]]
    names = list(rows)
    assert names.index("node/n2") < names.index("node/n10")


def test_operating_systems(context):
    row = ["tiny", "/os/tiny", True, "", ["plain"], [["size", "text"]], [20], True]
    for number in range(1, 5):
        context.rpc.answers["os_diagnose", f"node{number}.example.com"] = [row]
    context.rpc.answers["os_diagnose", "node4.example.com"] = []
    answer = queries.query(
        context, "os", ["name", "valid", "api_versions", "os_hvp", "node_status"]
    )
    assert answer["data"][0][:4] == [[0, "tiny"], [0, False], [0, [20]], [0, {}]]
    assert sorted(answer["data"][0][4][1]) == [f"node{n}.example.com" for n in range(1, 5)]


def test_cluster(context, tmp_path):
    with paths.override(paths.Paths(root=str(tmp_path))):
        where = paths.current().watcher_pausefile
        fs.make_dirs(str(Path(where).parent), 0o755)
        ask = [
            "name",
            "master_node",
            "drain_flag",
            "watcher_pause",
            "config_version",
            "volume_group_name",
        ]
        answer = queries.query(context, "cluster", ask, ["==", "name", "cluster"])
        assert answer["data"] == [
            [
                [0, "cluster.example.com"],
                [0, "node1.example.com"],
                [0, False],
                [3, None],
                [0, 3010000],
                [3, None],
            ]
        ]
        fs.write_file(where, "4000000000.5\n")
        assert queries.watcher_pause() == 4000000000.5
        fs.write_file(where, "5\n")
        assert queries.watcher_pause() is None
        fs.write_file(where, "soon\n")
        assert queries.watcher_pause() is None


def test_exports(context):
    for number in (1, 2):
        context.rpc.answers["export_list", f"node{number}.example.com"] = ["web10", "web2"]
    context.rpc.answers["export_list", "node3.example.com"] = errors.NodeCallFailed("n", "c", "x")
    context.rpc.answers["export_list", "node4.example.com"] = []
    answer = queries.query(context, "export", ["node", "export"], ["!=", "node", "node1"])
    assert answer["data"] == [
        [[0, "node2.example.com"], [0, "web2"]],
        [[0, "node2.example.com"], [0, "web10"]],
        [[0, "node3.example.com"], [2, None]],
    ]


def test_details_of_exports_are_asked_where_there_are_exports(context):
    for number in range(1, 5):
        context.rpc.answers["export_list", f"node{number}.example.com"] = []
    source = next(
        node for node in context.rpc.config.nodes.values() if node.name == "node4.example.com"
    )
    context.rpc.answers["export_list", "node1.example.com"] = ["web2", "odd"]
    context.rpc.answers["export_list", "node2.example.com"] = ["web3"]
    context.rpc.answers["export_list", "node3.example.com"] = errors.NodeCallFailed("n", "c", "x")
    facts = {"ctime": 1000, "size": 3 * 2**20 + 1, "instance": "web2", "source": source.uuid}
    context.rpc.answers["export_details", "node1.example.com"] = {"web2": facts}
    # A node of the release before.
    context.rpc.answers["export_details", "node2.example.com"] = errors.NodeCallFailed("n", "c", "")
    fields = ["export", "ctime", "size", "instance", "source"]
    missing = [[2, None]] * 4
    assert queries.query(context, "export", fields)["data"] == [
        [[0, "odd"], *missing],
        [[0, "web2"], [0, 1000], [0, 4], [0, "web2"], [0, "node4.example.com"]],
        [[0, "web3"], *missing],
        [[2, None], *missing],
    ]
    asked = [node for name, node, _ in context.rpc.calls if name == "export_details"]
    # The third one did not answer, and the fourth one has none.
    assert asked == ["node1.example.com", "node2.example.com"]
    queries.query(context, "export", ["export"])
    assert len([1 for name, _, _ in context.rpc.calls if name == "export_details"]) == len(asked)


def test_external_storage(context):
    row = ["prov", "/ext/prov", True, "", [["pool", "doc"]]]
    for number in range(1, 5):
        context.rpc.answers["extstorage_diagnose", f"node{number}.example.com"] = [row]
    answer = queries.query(context, "extstorage", ["name", "nodegroup_status", "parameters"])
    assert answer["data"] == [[[0, "prov"], [0, {"default": True}], [0, [["pool", "doc"]]]]]
    context.rpc.answers["extstorage_diagnose", "node4.example.com"] = []
    answer = queries.query(context, "extstorage", ["nodegroup_status"])
    assert answer["data"] == [[[0, {"default": False}]]]


def test_uptime_and_addresses_are_asked_for_all_guests_of_a_node_at_once(context, monkeypatch):
    monkeypatch.setattr("time.time", lambda: 5000.0)
    change_node(context, "node3.example.com", offline=True)
    context.rpc.answers = {
        ("guest_details", "node2.example.com"): errors.NodeUnreachable("n", "c", "gone"),
        ("guest_details", "node4.example.com"): {
            "instance1.example.com": {"started": 1400.5, "addresses": [["192.0.2.7", "lease"]]},
        },
    }
    answer = queries.query(context, "instance", ["name", "uptime", "addresses"])
    found = {row[0][1].split(".")[0]: (row[1], row[2]) for row in answer["data"]}
    assert found["instance1"][0] == [0, 3599]
    assert found["instance1"][1][1][0] == "192.0.2.7"
    # It does not run; what its NIC has is known nevertheless.
    assert found["instance4"] == ([3, None], [0, ["203.0.113.3"]])
    assert found["instance2"] == ([2, None], [2, None])
    assert found["instance7"][0] == [4, None]
    asked = [node for name, node, _ in context.rpc.calls if name == "guest_details"]
    assert sorted(asked) == ["node2.example.com", "node4.example.com"]
    guests = dict(context.rpc.calls[-1][2]["guests"])
    assert guests and all(hypervisor == "fake" for hypervisor, _macs in guests.values())


def test_consoles(context):
    answer = queries.query(context, "instance", ["console"], ["==", "name", "instance4"])
    status, console = answer["data"][0][0]
    assert (status, console["instance"], console["kind"]) == (0, "instance4.example.com", "msg")
    assert context.rpc.calls == []


def test_older_queries_give_plain_values(context):
    assert queries.query_values(
        context,
        "instance",
        ["instance4", "instance2.example.com"],
        ["name", "disk.count", "ip", "disk.name/1"],
    ) == [
        ["instance4.example.com", 3, "203.0.113.3", None],
        ["instance2.example.com", 0, None, None],
    ]
    assert len(queries.query_values(context, "node", [], ["name"])) == 4
    assert queries.query_values(context, "job", [10], ["id", "status"]) == [[10, "running"]]
    assert queries.query_values(context, "job", ["10"], ["id"]) == [[10]]


@pytest.mark.parametrize(
    ("names", "fields", "ecode"),
    [
        (["nosuch"], ["name"], errors.ECODE_NOENT),
        (["instance"], ["name"], errors.ECODE_NOENT),
        (["instance4", "instance99"], ["name"], errors.ECODE_NOENT),
        ([], ["nosuch"], errors.ECODE_INVAL),
    ],
)
def test_older_queries_refuse_what_is_unknown(context, names, fields, ecode):
    with pytest.raises(errors.OpPrereqError) as caught:
        queries.query_values(context, "instance", names, fields)
    assert caught.value.ecode == ecode


def test_fields_and_unknown_resources(context):
    assert queries.query_fields("lock")["fields"][0]["name"] == "mode"
    assert len(queries.query_fields("instance", [])["fields"]) >= 292
    for ask in (
        lambda: queries.query_fields("tape"),
        lambda: queries.query(context, "tape", ["name"]),
    ):
        with pytest.raises(errors.OpPrereqError, match="tape"):
            ask()


@pytest.mark.parametrize("fields", ["name", [["name"]], [None], {"name": 1}])
def test_fields_must_be_names(context, fields):
    for ask in (
        lambda: queries.query_fields("node", fields),
        lambda: queries.query(context, "node", fields),
        lambda: queries.query_values(context, "node", [], fields),
    ):
        with pytest.raises(errors.OpPrereqError, match="fields must be"):
            ask()


@pytest.mark.parametrize("what", ["instance", "node", "group"])
def test_a_choice_of_names_refuses_an_unknown_one(context, what):
    """``gnt-instance list nosuch`` is a slip; a filter that finds nothing is an answer."""
    known = queries.query(context, what, ["name"])["data"][0][0][1]
    both = ["|", ["==", "name", known], ["==", "name", "nosuch"]]
    with pytest.raises(errors.OpPrereqError, match="'nosuch' is not known") as caught:
        queries.query(context, what, ["name"], both)
    assert caught.value.ecode == errors.ECODE_NOENT
    assert not context.rpc.calls
    nothing = ["&", ["==", "name", "nosuch"], ["==", "name", "nosuch"]]
    assert queries.query(context, what, ["name"], nothing)["data"] == []
    with pytest.raises(errors.OpPrereqError, match="'nosuch' is not known"):
        queries.query(context, "filter", ["uuid"], ["|", ["==", "uuid", "nosuch"]])


def test_jobs_that_are_gone_are_no_slip(context):
    assert queries.query(context, "job", ["id"], ["|", ["==", "id", 99]])["data"] == []


def rename(context, table, old, new):
    config = context.config.snapshot()
    named = {
        uuid: dataclasses.replace(one, name=new) if one.name == old else one
        for uuid, one in getattr(config, table).items()
    }
    changed = dataclasses.replace(config, **{table: named})
    context.config.snapshot = lambda: changed


def test_an_exact_name_means_that_object_alone(context):
    rename(context, "instances", "instance2.example.com", "instance1")
    for names in (["instance1"], ["instance1"] * 5):
        assert queries.query_values(context, "instance", names, ["name"]) == [["instance1"]]
        qfilter = ["|", *(["==", "name", name] for name in names)]
        data = queries.query(context, "instance", ["name"], qfilter)["data"]
        assert data == [[[0, "instance1"]]]
    both = ["instance1", "instance1.example.com"]
    assert queries.query_values(context, "instance", both, ["name"]) == [[name] for name in both]
    others = queries.query(context, "instance", ["name"], ["!=", "name", "instance1"])["data"]
    assert [[0, "instance1.example.com"]] in others
    assert [[0, "instance1"]] not in others


def test_an_exact_name_of_a_node_means_that_node_alone(context):
    pnodes = queries.query_values(context, "instance", None, ["pnode"])
    (first, *_), (other, *_) = sorted({tuple(row) for row in pnodes})[:2]
    short = first.partition(".")[0]
    before = queries.query(context, "instance", ["pnode"], ["==", "pnode", short])["data"]
    assert {row[0][1] for row in before} == {first}
    rename(context, "nodes", other, short)
    assert queries.query_values(context, "node", [short], ["name"]) == [[short]]
    after = queries.query(context, "instance", ["pnode"], ["==", "pnode", short])["data"]
    assert {row[0][1] for row in after} == {short}


def test_a_command_refuses_a_name_which_stands_for_several_objects(context):
    rename(context, "instances", "instance2.example.com", "instance1.example.org")
    with pytest.raises(errors.OpPrereqError) as caught:
        queries.query_values(context, "instance", ["instance1"], ["name"])
    assert caught.value.args[1] == errors.ECODE_NOENT
    assert "instance1.example.com, instance1.example.org" in str(caught.value)
    # A list shows both, so that the user sees what there is.
    shown = queries.query(context, "instance", ["name"], ["==", "name", "instance1"])["data"]
    assert len(shown) == 2


def test_named_objects_are_in_the_order_of_the_request(context):
    """Two of the names are short; the whole list stays in natural order."""

    def names(what, qfilter, field="name"):
        return [row[0][1] for row in queries.query(context, what, [field], qfilter)["data"]]

    wanted = ["node3.example.com", "node1", "node4", "node2.example.com"]
    full = [name if "." in name else f"{name}.example.com" for name in wanted]
    by_name = ["|", *(["=", "name", name] for name in wanted)]
    assert names("node", by_name) == full
    assert names("node", ["&", ["!", ["?", "offline"]], by_name]) == full
    assert queries.query_values(context, "node", wanted, ["name"]) == [[name] for name in full]
    assert names("node", None) == sorted(full)
    assert names("node", ["|", ["=", "name", "node2"], ["?", "master"]])[0] == "node1.example.com"
    by_id = ["|", *(["=", "id", number] for number in (10, 2, 3))]
    assert names("job", by_id, "id") == [10, 2, 3]


def test_older_names_of_parameters(context):
    """Ganeti design 2.0, *Opcode changes*: ``beparam/NAME`` and ``hvparam/NAME``."""
    old = ["beparam/memory", "beparam/vcpus", "hvparam/kernel_path"]
    new = ["be/memory", "be/vcpus", "hv/kernel_path"]
    found = queries.query(context, "instance", old)
    assert found["data"] == queries.query(context, "instance", new)["data"]
    assert [field["name"] for field in found["fields"]] == old
    assert all(field["kind"] != "unknown" for field in found["fields"])
    values = queries.query_values(context, "instance", None, old)
    assert values == queries.query_values(context, "instance", None, new)
    assert (
        queries.query(context, "instance", ["name"], [">", "beparam/memory", 1 << 40])["data"] == []
    )
    assert queries.query_fields("instance", ["hvparam/nosuch"])["fields"][0]["kind"] == "unknown"
    assert not {"beparam/memory"} & {
        field["name"] for field in queries.query_fields("instance")["fields"]
    }
