"""Forthcoming instances: what is kept for them, what they refuse, how they become real."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import pytest

from fakes.config import cluster_of, disk_of, instance_of, uuid_of
from fakes.master import Master
from ganeti import allocator, errors
from ganeti.allocator import live
from ganeti.cmdlib.ops.disks import capacity
from ganeti.config import verify
from ganeti.constants import disk as disk_c
from ganeti.master.queries import service as query_room
from ganeti.objects import ConfigData, Network, codec
from ganeti.opcodes import backup, group, instance, node
from ganeti.opcodes.cluster import OpClusterVerifyGroup
from ganeti.opcodes.instance import OpInstanceCreate
from ganeti.query import resources
from ganeti.wire import json

WEB = "web.example.com"
NET = "0c60d2ef-3a4b-4c4d-9a69-6b4bd0d8a002"
LATER = "0c60d2ef-3a4b-4c4d-9a69-6b4bd0d8a001"


def reserve(**changes):
    values = {
        "instance_name": WEB,
        "mode": "create",
        "disk_template": "sharedfile",
        "disks": [{"size": 1024}, {"size": 2048, "name": "data", "mode": "ro"}],
        "nics": [{"mac": "aa:00:00:12:34:56", "name": "lan"}],
        "os_type": "noop",
        "pnode": "node2",
        "beparams": {"memory": 256},
        "hvparams": {},
        "tags": ["later"],
        "forthcoming": True,
    }
    return OpInstanceCreate(**{**values, **changes})


def commit(**changes):
    values = {"instance_name": WEB, "mode": "create", "disks": [], "nics": [], "commit": True}
    return OpInstanceCreate(**{**values, **changes})


@pytest.fixture
def master():
    return Master(cluster_of(3, (instance_of("other"),)))


def with_drbd():
    return Master(
        cluster_of(
            3,
            volume_group_name="xenvg",
            drbd_usermode_helper="/bin/true",
            enabled_disk_templates=("plain", "drbd", "diskless"),
        )
    )


def web(master):
    (found,) = [i for i in master.config.instances() if i.name == WEB]
    return found


def consistent(master):
    data = master.config.snapshot()
    # What is stored can be read again.
    assert codec.from_dict(ConfigData, codec.to_dict(data)) == data
    known = {*verify.check(cluster_of(3)), *verify.check(cluster_of(3, (instance_of("other"),)))}
    found = [text for text in verify.check(data) if text not in known]
    assert found == []
    return True


# -- reserved --------------------------------------------------------------------


def test_a_reservation_touches_no_node(master):
    assert master.run(reserve()) == ["node2.example.com"]
    assert master.config.writes == ["instances.add"]
    assert master.rpc.acting() == [] and {name for name, _phase, _node in master.rpc.hooks()} == {
        "config-update"
    }
    found = web(master)
    assert found.forthcoming and found.admin_state == "down" and not found.disks_active
    assert found.primary_node == uuid_of("node2") and found.tags == ("later",)
    disks = master.config.instance_disks(found)
    assert [(d.size, d.name, d.mode, d.forthcoming) for d in disks] == [
        (1024, None, "rw", True),
        (2048, "data", "ro", True),
    ]
    assert consistent(master)


def test_it_is_described_as_one(master):
    master.run(reserve())
    master.rpc.calls.clear()
    facts = master.run(instance.OpInstanceQueryData(instances=[WEB]))[WEB]
    assert facts["forthcoming"] and facts["pnode"] == "node2.example.com"
    assert master.rpc.names() == []


def test_its_name_and_its_addresses_are_taken(master):
    master.run(reserve())
    assert "already in the cluster" in master.refused(
        reserve(forthcoming=False), errors.ECODE_EXISTS
    )
    master.refused(
        reserve(instance_name="www.example.com", forthcoming=False), errors.ECODE_NOTUNIQUE
    )


def test_mirrored_disks_have_their_minors_and_ports():
    master = with_drbd()
    master.rpc.answers["node_info"] = vg_of(8000)
    master.run(reserve(disk_template="drbd", pnode="node1", snode="node2"))
    disks = master.config.instance_disks(web(master))
    assert [d.logical_id[3:5] for d in disks] == [(0, 0), (1, 1)]
    assert consistent(master)


def test_without_an_operating_system(master):
    master.run(reserve(os_type=None))
    assert web(master).os == ""
    assert "no operating system" in master.refused(commit(), errors.ECODE_INVAL)
    master.run(commit(os_type="noop"))
    assert web(master).os == "noop" and master.rpc.where("web") == ["node2"]


@pytest.mark.parametrize(
    ("changes", "fragment"),
    [
        ({"mode": "remote-import"}, "another cluster"),
        ({"disk_template": "blockdev", "disks": [{"adopt": "/dev/disk/a"}]}, "adopts no volumes"),
    ],
)
def test_what_cannot_be_reserved(master, changes, fragment):
    assert fragment in master.refused(reserve(**changes), errors.ECODE_INVAL)


def test_a_dry_run_says_what_would_be_reserved(master):
    job = master.new_job()
    master.run(reserve(dry_run=True), job)
    assert job.said(f"reserve resources for instance {WEB} on node2.example.com")
    assert master.config.writes == []


def test_secrets_are_asked_for_again(master):
    job = master.new_job()
    master.run(reserve(osparams_secret={"pw": "x"}), job)
    assert job.said("give them again with the commit")


# -- made real -------------------------------------------------------------------


def test_a_commit_makes_what_was_reserved(master):
    master.run(reserve())
    before, disks = web(master), master.config.instance_disks(web(master))
    assert master.run(commit()) == ["node2.example.com"]
    after = web(master)
    assert after.forthcoming is None and after.admin_state == "up"
    assert master.rpc.where("web") == ["node2"]
    kept = (
        "uuid",
        "nics",
        "disks",
        "beparams",
        "hvparams",
        "tags",
        "os",
        "hypervisor",
        "ctime",
        "network_port",
        "primary_node",
    )
    assert {key: getattr(after, key) for key in kept} == {key: getattr(before, key) for key in kept}
    assert [replace(d, serial_no=1, mtime=0) for d in master.config.instance_disks(after)] == [
        replace(d, forthcoming=None, serial_no=1, mtime=0) for d in disks
    ]
    assert master.rpc.files == {d.logical_id[1] for d in disks}
    assert ("instance-add", "post", "node2.example.com") in master.rpc.hooks()
    assert consistent(master)


def test_a_commit_may_want_something_else(master):
    master.run(reserve())
    old = {disk.uuid for disk in master.config.instance_disks(web(master))}
    master.run(
        commit(
            disks=[{"size": 4096}],
            nics=[{"mac": "aa:00:00:12:34:56"}, {}],
            pnode="node3",
            beparams={"vcpus": 3},
            tags=["now"],
            start=False,
        )
    )
    found = web(master)
    assert found.primary_node == uuid_of("node3") and found.tags == ("now",)
    assert found.beparams == {"minmem": 256, "maxmem": 256, "vcpus": 3}
    assert [d.size for d in master.config.instance_disks(found)] == [4096]
    assert not old & set(master.config.snapshot().disks)
    assert [nic.mac for nic in found.nics][0] == "aa:00:00:12:34:56" and len(found.nics) == 2
    assert consistent(master)


def test_the_opcode_stays_as_it_was_given(master):
    for op in (reserve(), commit()):
        before = op.to_dict()
        master.run(op)
        assert op.to_dict() == before


def test_another_kind_of_disks_gives_minors_and_ports_back():
    master = with_drbd()
    master.rpc.answers["node_info"] = vg_of(8000)
    master.run(reserve(disk_template="drbd", pnode="node1", snode="node2"))
    used = master.config.cluster().highest_used_port
    master.run(commit(disk_template="plain", start=False))
    assert [d.dev_type for d in master.config.instance_disks(web(master))] == ["plain", "plain"]
    assert master.config.cluster().tcpudp_port_pool == (used - 1, used)
    assert consistent(master)


def test_the_address_of_a_network_is_kept():
    network = Network(name="lan", network="192.0.2.0/24", uuid=NET, serial_no=1)
    data = cluster_of(2)
    nodegroup = data.nodegroups["group-1"]
    connected = replace(nodegroup, networks={NET: {"mode": "bridged", "link": "br0", "vlan": ""}})
    master = Master(replace(data, networks={NET: network}, nodegroups={nodegroup.uuid: connected}))
    master.run(reserve(nics=[{"network": "lan", "ip": "pool"}]))
    (nic,) = web(master).nics
    assert nic.ip is not None
    # Also when it is asked for by hand.
    master.run(commit(nics=[{"network": "lan", "ip": nic.ip, "mac": nic.mac}], start=False))
    assert web(master).nics[0].ip == nic.ip
    assert consistent(master)
    master.run(instance.OpInstanceRemove(instance_name=WEB))
    assert consistent(master)


def test_its_place_is_found_anew_by_an_allocator(master):
    master.run(reserve())
    asked = []

    def choose(_node, args):
        asked.append(args)
        return json.dumps({"success": True, "info": "", "result": ["node3.example.com"]})

    master.rpc.answers["iallocator_runner"] = choose
    master.run(commit(iallocator="any", start=False))
    assert web(master).primary_node == uuid_of("node3")
    # The reservation itself is not in its way.
    (args,) = asked
    assert WEB not in json.loads(args["request"])["instances"]


@pytest.mark.parametrize(
    ("changes", "ecode", "fragment"),
    [
        ({"instance_name": "other.example.com"}, errors.ECODE_STATE, "not forthcoming"),
        ({"instance_name": "nosuch"}, errors.ECODE_NOENT, "nosuch"),
        ({"pnode": "nosuch"}, errors.ECODE_NOENT, "nosuch"),
        ({"disk_template": "diskless", "disks": [{"size": 1}]}, errors.ECODE_INVAL, "diskless"),
        ({"hvparams": {"nosuch": 1}}, errors.ECODE_INVAL, "nosuch"),
    ],
)
def test_refused_commits_leave_the_reservation(master, changes, ecode, fragment):
    master.run(reserve())
    before = master.config.snapshot()
    assert fragment in master.refused(commit(**changes), ecode)
    assert master.config.snapshot() is before


def test_a_commit_that_fails_leaves_a_reservation(master):
    master.run(reserve())
    master.rpc.errors["instance_os_add"] = "mkfs: no space"
    assert "no space" in master.failed(commit())
    found = web(master)
    assert found.forthcoming and found.admin_state == "down" and not found.disks_active
    assert master.rpc.files == set() and consistent(master)
    del master.rpc.errors["instance_os_add"]
    master.run(commit())
    assert web(master).forthcoming is None


def test_a_commit_that_fails_and_leaves_disks_says_so(master):
    master.run(reserve())
    master.rpc.errors["instance_os_add"] = "mkfs: no space"
    master.rpc.errors["blockdev_remove_multi"] = "busy"
    assert "gnt-instance remove --ignore-failures" in master.failed(commit())
    assert web(master).forthcoming is None


def test_the_node_was_lost(master):
    master.run(reserve())
    with master.config.transaction() as change:
        change.nodes.update(replace(master.config.node(uuid_of("node2")), offline=True))
    assert "node2" in master.refused(commit(), errors.ECODE_STATE)
    master.run(commit(pnode="node3"))
    assert master.rpc.where("web") == ["node3"]


def test_it_was_changed_while_the_job_waited(master):
    master.run(reserve())
    op, seen = commit(), web(master)
    original = master.config.expand_instance

    def then_tagged(name):
        found = original(name)
        with master.config.transaction() as change:
            change.instances.update(replace(found, tags=("new",)))
        return found

    master.config.expand_instance = then_tagged
    with pytest.raises(errors.OpPrereqError, match="changed while the job waited"):
        master.run(op)
    assert web(master).uuid == seen.uuid and web(master).forthcoming


# -- removed, and in the way of others ---------------------------------------------


def test_removed_without_asking_a_node(master):
    master.run(reserve())
    with master.config.transaction() as change:
        change.nodes.update(replace(master.config.node(uuid_of("node2")), offline=True))
    job = master.new_job()
    master.run(instance.OpInstanceRemove(instance_name=WEB), job)
    assert master.rpc.acting() == []
    assert not master.config.snapshot().disks and len(master.config.instances()) == 1


OPERATIONS = [
    instance.OpInstanceStartup(instance_name=WEB),
    instance.OpInstanceShutdown(instance_name=WEB),
    instance.OpInstanceReboot(instance_name=WEB, reboot_type="hard"),
    instance.OpInstanceReinstall(instance_name=WEB),
    instance.OpInstanceRename(instance_name=WEB, new_name="www.example.com"),
    instance.OpInstanceActivateDisks(instance_name=WEB),
    instance.OpInstanceDeactivateDisks(instance_name=WEB),
    instance.OpInstanceGrowDisk(instance_name=WEB, disk=0, amount=1),
    instance.OpInstanceRecreateDisks(instance_name=WEB),
    instance.OpInstanceReplaceDisks(instance_name=WEB, mode="replace_auto", disks=[]),
    instance.OpInstanceSetParams(instance_name=WEB, beparams={"vcpus": 2}),
    instance.OpInstanceMigrate(instance_name=WEB, target_node="node3"),
    instance.OpInstanceFailover(instance_name=WEB, target_node="node3"),
    instance.OpInstanceMove(instance_name=WEB, target_node="node3"),
    instance.OpInstanceChangeGroup(instance_name=WEB, iallocator="any"),
    instance.OpInstanceConsole(instance_name=WEB),
    backup.OpBackupExport(instance_name=WEB, target_node="node1"),
    backup.OpBackupPrepare(instance_name=WEB, mode="remote"),
]


@pytest.mark.parametrize("op", OPERATIONS, ids=lambda op: op.OP_ID)
def test_what_needs_a_guest_or_a_disk_refuses(master, op):
    master.run(reserve())
    master.config.writes.clear()
    text = master.refused(op, errors.ECODE_STATE)
    assert f"instance {WEB}: it is forthcoming, only its resources are reserved" in text, text


def test_what_moves_many_leaves_it_where_it_is(master):
    master.run(reserve())
    for op in (
        node.OpNodeEvacuate(node_name="node2", mode="all", remote_node="node3"),
        node.OpNodeMigrate(node_name="node2", target_node="node3"),
        group.OpGroupEvacuate(group_name="default", iallocator="any"),
    ):
        if isinstance(op, group.OpGroupEvacuate):
            master.run(instance.OpInstanceRemove(instance_name="other.example.com"))
        job = master.new_job()
        assert master.run(op, job)["jobs"] == []
        assert job.said(f"forthcoming instance {WEB} stays reserved"), op.OP_ID


def test_a_node_with_a_reservation_is_not_removed(master):
    master.run(reserve())
    assert WEB in master.refused(node.OpNodeRemove(node_name="node2"), errors.ECODE_INVAL)


def test_verification_counts_it_as_reserved_only(master):
    master.run(reserve(disk_template="file"))
    job = master.new_job()
    master.run(OpClusterVerifyGroup(group_name="default", skip_checks=[], error_codes=False), job)
    assert job.said("1 instance(s) are forthcoming")
    # A real one with such disks would be.
    assert not job.said("have their disks on one node only")
    master.run(commit(start=False))
    job = master.new_job()
    master.run(OpClusterVerifyGroup(group_name="default", skip_checks=[], error_codes=False), job)
    assert job.said("1 instance(s) have their disks on one node only")


def test_several_at_once_are_only_new_ones(master):
    op = instance.OpInstanceMultiAlloc(instances=[commit()], iallocator="any")
    assert "Commit it by itself" in master.refused(op, errors.ECODE_INVAL)


# -- counted ---------------------------------------------------------------------


def vg_of(free):
    def answer(_node, args):
        facts = {
            "memory_free": 4096,
            "memory_total": 8192,
            "memory_dom0": 0,
            "cpu_total": 4,
            "cpu_dom0": 0,
        }
        return [
            "boot-id",
            [
                {"type": kind, "name": key, "storage_free": free, "storage_size": 10000}
                for kind, key, _args in args.get("storage_units") or ()
            ],
            [dict(facts) for _ in args["hv_specs"]],
        ]

    return answer


def test_allocators_see_what_is_left():
    master = with_drbd()
    master.rpc.answers["node_info"] = vg_of(8000)
    master.run(reserve(disk_template="drbd", pnode="node1", snode="node2"))
    seen = live.collect(
        master.rpc, master.config.snapshot(), hypervisor=None, template="drbd"
    ).nodes
    taken = 1024 + 2048 + 2 * disk_c.DRBD_META_SIZE_MIB
    assert [seen[uuid_of(f"node{n}")].disk_free_mib for n in (1, 2, 3)] == [
        8000 - taken,
        8000 - taken,
        8000,
    ]
    assert [seen[uuid_of(f"node{n}")].memory_free_mib for n in (1, 2, 3)] == [
        4096 - 256,
        4096,
        4096,
    ]
    described = allocator.describe.cluster(master.config.snapshot(), live.LiveData(seen))[
        "instances"
    ]
    assert described[WEB]["nodes"] == ["node1.example.com", "node2.example.com"]


def test_others_do_not_take_its_space():
    master = with_drbd()
    master.rpc.answers["node_info"] = vg_of(4000)
    master.run(reserve(disk_template="plain", pnode="node1"))
    other = reserve(
        instance_name="www.example.com",
        nics=[],
        disk_template="plain",
        pnode="node1",
        disks=[{"size": 1024}],
        forthcoming=False,
    )
    text = master.refused(other, errors.ECODE_NORES)
    assert "3 GiB of them reserved for forthcoming instances" in text
    # It takes it itself, and then it is the node that counts it.
    master.run(commit(start=False))
    assert capacity.reserved_mib(master.config.snapshot(), uuid_of("node1"), None) == {}


# -- what others have written ------------------------------------------------------


def test_an_instance_of_which_only_the_name_is_known():
    data = codec.to_dict(cluster_of(3))
    data["instances"][LATER] = {"name": "later.example.com", "uuid": LATER, "forthcoming": True}
    master = Master(codec.from_dict(ConfigData, data))
    assert consistent(master)
    op = commit(instance_name="later", os_type="noop", disk_template="diskless", nics=[{}])
    assert "no node is given" in master.refused(op, errors.ECODE_INVAL)
    master.run(
        commit(
            instance_name="later",
            os_type="noop",
            disk_template="diskless",
            nics=[{}],
            pnode="node1",
        )
    )
    assert master.rpc.where("later") == ["node1"]
    assert consistent(master)


@pytest.mark.parametrize("bare", [False, True])
def test_every_field_of_every_list_can_be_shown(master, bare):
    """Also of one of which only the name is known; nodes are asked for others only."""
    if bare:
        data = codec.to_dict(cluster_of(3))
        data["instances"][LATER] = {"name": WEB, "uuid": LATER, "forthcoming": True}
        master = Master(codec.from_dict(ConfigData, data))
    else:
        master.run(reserve())
    context = SimpleNamespace(
        config=master.config,
        rpc=master.rpc,
        locks=master.locks,
        queue=SimpleNamespace(drained=False),
        live_seen=None,
    )
    master.rpc.calls.clear()
    for what in ("instance", "node", "group", "network", "cluster"):
        names = sorted(resources.lookup(what).fields)
        rows = query_room.query(context, what, names)["data"]
        assert all(len(row) == len(names) for row in rows)
    (row,) = query_room.query(
        context,
        "instance",
        ["status", "oper_state", "forthcoming", "pnode", "console"],
        ["=", "name", WEB],
    )["data"]
    assert row[0] == [0, "ADMIN_down"] and row[2] == [0, True]
    assert row[3] == ([0, "node2.example.com"] if not bare else row[3])


def test_it_refuses_the_same_and_is_removed():
    data = codec.to_dict(cluster_of(3))
    data["instances"][LATER] = {"name": "later.example.com", "uuid": LATER, "forthcoming": True}
    master = Master(codec.from_dict(ConfigData, data))
    for op in OPERATIONS:
        changed = type(op)(
            **{**{name: getattr(op, name) for name in op.PARAMS}, "instance_name": "later"}
        )
        assert "it is forthcoming" in master.refused(changed, errors.ECODE_STATE), op.OP_ID
    facts = master.run(instance.OpInstanceQueryData(instances=["later"]))["later.example.com"]
    assert (facts["forthcoming"], facts["pnode"], facts["run_state"]) == (True, None, None)
    master.run(instance.OpInstanceRemove(instance_name="later"))
    assert master.config.instances() == ()


def test_a_disk_of_the_fakes_is_not_forthcoming():
    assert disk_of("web").forthcoming is None
