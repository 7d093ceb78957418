"""Creating instances on nodes which an allocator chooses, and with the nodes that are free."""

from __future__ import annotations

import json
import threading

import pytest

from fakes.config import GROUP, cluster_of, commit, instance_of
from fakes.master import FakeJob, Master
from ganeti import errors
from ganeti.htools import place
from ganeti.locking import EXCLUSIVE, SHARED, Level, Owner
from ganeti.opcodes.instance import OpInstanceCreate

PATIENCE_S = 60.0
OTHER = Owner(99, "job 99")


def create(**changes):
    values = {
        "instance_name": "web.example.com",
        "mode": "create",
        "disk_template": "sharedfile",
        "disks": [{"size": 1024}],
        "nics": [{}],
        "os_type": "noop",
        "iallocator": "chooser",
        "start": True,
    }
    return OpInstanceCreate(**{**values, **changes})


def choose(*names):
    """An allocator that chooses these nodes."""
    result = [f"{name}.example.com" for name in names]
    return json.dumps({"success": True, "info": "fine", "result": result})


def first_allowed(node, args):
    """An allocator that takes the first node it may choose."""
    request = json.loads(args["request"])
    usable = [name for name, facts in request["nodes"].items()
              if not (facts["offline"] or facts["drained"])]  # fmt: skip
    names = request["request"].get("restrict-to-nodes", usable)
    return json.dumps({"success": True, "info": "", "result": names[:1]})


@pytest.fixture
def master():
    made = Master(cluster_of(3, (instance_of("other"),)))
    made.rpc.answers["iallocator_runner"] = choose("node2")
    return made


def told(master):
    """The last request as the allocator got it."""
    return json.loads(master.rpc.of("iallocator_runner")[-1][1]["request"])["request"]


def pnode(master, name="web"):
    (found,) = [i for i in master.config.instances() if i.name == f"{name}.example.com"]
    return found.primary_node


def owned(master, job, level):
    return master.locks.owned(job.owner, level)


# -- which allocator -------------------------------------------------------------


def test_the_allocator_chooses(master):
    op = create(beparams={"memory": 256, "vcpus": 2}, tags=["x"])
    assert master.run(op) == ["node2.example.com"]
    assert pnode(master) == "uuid-node2"
    ((node, args),) = master.rpc.of("iallocator_runner")
    assert (node, args["name"]) == ("node1.example.com", "chooser")
    request = told(master)
    assert request["type"] == "allocate"
    assert (request["memory"], request["vcpus"], request["tags"]) == (256, 2, ["x"])
    assert request["disk_space_total"] == 1024
    (nic,) = request["nics"]
    assert nic["mac"] == next(iter(master.config.instances()[-1].nics)).mac
    assert "restrict-to-nodes" not in request
    assert master.job.said(
        " - INFO: Selected nodes for instance web.example.com via iallocator chooser:"
        " node2.example.com"
    )


@pytest.mark.parametrize("given", [None, "."])
def test_the_clusters_default_allocator(given):
    master = Master(cluster_of(3, default_iallocator="dumpin"))
    master.rpc.answers["iallocator_runner"] = choose("node3")
    master.run(create(iallocator=given))
    assert pnode(master) == "uuid-node3"
    assert master.rpc.of("iallocator_runner")[0][1]["name"] == "dumpin"


def test_a_named_node_goes_before_the_default_allocator():
    master = Master(cluster_of(3, default_iallocator="dumpin"))
    master.run(create(iallocator=None, pnode="node1"))
    assert master.rpc.of("iallocator_runner") == []


@pytest.mark.parametrize(
    ("changes", "fragment"),
    [
        ({"pnode": "node1"}, "not both"),
        ({"iallocator": None}, "no default instance allocator"),
        ({"iallocator": "."}, "no default instance allocator"),
        (
            {"iallocator": None, "pnode": "node1", "opportunistic_locking": True},
            "together with an instance allocator",
        ),
    ],
)
def test_contradictions(master, changes, fragment):
    assert fragment in master.refused(create(**changes), errors.ECODE_INVAL)


# -- what the allocator says -----------------------------------------------------


def test_no_place(master):
    master.rpc.answers["iallocator_runner"] = json.dumps(
        {"success": False, "info": "FailMem: 3", "result": []}
    )
    assert "FailMem: 3" in master.refused(create(), errors.ECODE_NORES)
    text = master.refused(create(opportunistic_locking=True), errors.ECODE_TEMP_NORES)
    assert "FailMem: 3" in text


def test_an_allocator_that_fails(master):
    master.rpc.errors["iallocator_runner"] = "instance allocator chooser is in none of /a, /b"
    assert "none of /a, /b" in master.refused(create(), errors.ECODE_ENVIRON)


def test_a_refusal_says_what_to_do(master):
    answer = json.dumps({"success": False, "info": "FailN1: 1", "result": []})
    master.rpc.answers["iallocator_runner"] = answer
    text = master.refused(create(), errors.ECODE_NORES)
    assert text.endswith("FailN1: 1. Use --explain to see the reason for each node.")
    single = Master(cluster_of(1))
    single.rpc.answers["iallocator_runner"] = answer
    assert "with '-n node1.example.com'" in single.refused(create(), errors.ECODE_NORES)


def test_nonsense_is_refused(master):
    master.rpc.answers["iallocator_runner"] = choose("node9")
    assert "node9" in master.refused(create(), errors.ECODE_ENVIRON)


def test_a_dry_run_asks_and_changes_nothing(master):
    assert master.run(create(dry_run=True)) == ["node2.example.com"]
    assert master.config.writes == []


# -- which nodes -----------------------------------------------------------------


def test_only_nodes_that_may_get_instances_are_locked():
    held = {}
    master = Master(
        cluster_of(
            4,
            node_changes={2: {"drained": True}, 3: {"offline": True}, 4: {"vm_capable": False}},
        )
    )

    def look(node, args):
        held.update({level: owned(master, master.job, level) for level in Level})
        return choose("node1")

    master.rpc.answers["iallocator_runner"] = look
    master.run(create())
    assert held[Level.NODE] == {"uuid-node1": SHARED}
    assert held[Level.NODE_RES] == {"uuid-node1": EXCLUSIVE}
    assert held[Level.NODEGROUP] == {GROUP: SHARED}


def test_no_node_may_get_instances():
    master = Master(cluster_of(1, node_changes={1: {"drained": True}}))
    for opportunistic in (False, True):
        op = create(opportunistic_locking=opportunistic)
        text = master.refused(op, errors.ECODE_NORES)
        assert "needs 1 node, only 0 may get new instances" in text


def test_a_group_narrows_the_choice():
    data = cluster_of(3, node_changes={3: {"group": "group-2"}})
    data.nodegroups["group-2"] = type(data.nodegroups[GROUP])(
        name="rack2", alloc_policy="preferred", ndparams={}, ipolicy={}, diskparams={},
        networks={}, uuid="group-2", serial_no=1,
    )  # fmt: skip
    master = Master(data)
    held = {}

    def look(node, args):
        held.update({level: set(owned(master, master.job, level)) for level in Level})
        return choose("node3")

    master.rpc.answers["iallocator_runner"] = look
    master.run(create(group_name="rack2"))
    assert told(master)["group_name"] == "rack2"
    assert held[Level.NODE] == {"uuid-node3"}
    assert held[Level.NODEGROUP] == {"group-2"}
    master.rpc.answers["iallocator_runner"] = choose("node1")
    with pytest.raises(errors.OpPrereqError, match="not in group rack2"):
        master.run(create(group_name="rack2", instance_name="b"))


@pytest.mark.parametrize("opportunistic", [False, True])
def test_locks_of_other_nodes_are_given_back_at_once(master, opportunistic):
    held = {}

    def make(node, args):
        held.update({level: owned(master, master.job, level) for level in Level})

    master.rpc.answers["blockdev_create_multi"] = make
    master.run(create(opportunistic_locking=opportunistic))
    assert held[Level.NODE] == {"uuid-node2": SHARED}
    assert held[Level.NODE_RES] == {"uuid-node2": EXCLUSIVE}


def test_a_node_that_came_while_waiting_is_left_out(master):
    """Its locks are not held."""
    drained = dict(master.config.snapshot().nodes)["uuid-node3"]

    def change(**flags):
        fresh = master.config.node("uuid-node3")
        commit(master.config).nodes.update(
            type(drained)(
                **{**{name: getattr(fresh, name) for name in fresh.__dataclass_fields__}, **flags}
            )
        )

    change(drained=True)
    start = FakeJob.notify_start

    def undrain(job):
        change(drained=False)
        start(job)

    job = master.new_job()
    job.notify_start = lambda: undrain(job)
    master.run(create(), job)
    assert told(master)["restrict-to-nodes"] == ["node1.example.com", "node2.example.com"]


# -- opportunistic ---------------------------------------------------------------


@pytest.fixture
def busy(master):
    """Another job works on disks of nodes."""

    def take(*names, level=Level.NODE_RES):
        keys = [f"uuid-{name}" for name in names]
        master.locks.acquire(OTHER, level, keys, shared=False)

    yield take
    master.locks.release(OTHER)


def run(master, op):
    """As ``master.run``, while another job keeps its locks."""
    job = master.new_job()
    return master.processor.execute(op, job)


def test_only_free_nodes_are_asked_about(master, busy):
    busy("node1", "node2")
    master.rpc.answers["iallocator_runner"] = first_allowed
    assert run(master, create(opportunistic_locking=True)) == ["node3.example.com"]
    assert told(master)["restrict-to-nodes"] == ["node3.example.com"]


def test_a_node_lock_that_is_taken_counts_as_well(master, busy):
    busy("node1", "node3", level=Level.NODE)
    master.rpc.answers["iallocator_runner"] = first_allowed
    assert run(master, create(opportunistic_locking=True)) == ["node2.example.com"]
    assert told(master)["restrict-to-nodes"] == ["node2.example.com"]


def test_none_free_is_a_temporary_failure(master, busy):
    busy("node1", "node2", "node3")
    with pytest.raises(
        errors.OpPrereqError, match="only 0 are not locked at this moment"
    ) as caught:
        run(master, create(opportunistic_locking=True))
    assert caught.value.ecode == errors.ECODE_TEMP_NORES
    assert "of 3 possible ones" in str(caught.value)
    assert master.rpc.of("iallocator_runner") == []
    assert master.locks.owners() == [OTHER]
    assert not master.jobs[-1].started
    master.locks.release(OTHER)
    master.run(create(opportunistic_locking=True))


def test_an_allocator_that_ignores_the_choice_is_noticed(master, busy):
    busy("node2")
    with pytest.raises(errors.OpPrereqError, match="not one of the nodes which"):
        run(master, create(opportunistic_locking=True))


class Creation:
    """A creation on a thread of its own."""

    def __init__(self, master, op):
        self.result = None
        self.error = None
        self.job = master.new_job()
        self._thread = threading.Thread(target=self._run, args=(master, op), daemon=True)
        self._thread.start()

    def _run(self, master, op):
        from ganeti.utils import process

        with process.forbid():
            try:
                self.result = master.processor.execute(op, self.job)
            except errors.GenericError as err:
                self.error = err

    def wait(self):
        self._thread.join(PATIENCE_S)
        assert not self._thread.is_alive(), "the creation hangs"
        if self.error is not None:
            raise self.error
        return self.result


class Pause:
    """A node call that waits for the test, once."""

    def __init__(self, *, answer=None):
        self.reached = threading.Event()
        self.go_on = threading.Event()
        self._answer = answer
        self._used = False

    def __call__(self, node, args):
        if not self._used:
            self._used = True
            self.reached.set()
            assert self.go_on.wait(PATIENCE_S)
        return self._answer(node, args) if self._answer is not None else None


def test_two_creations_on_free_nodes_do_not_wait_for_each_other(master):
    """The first is in the middle of its disks when the second comes, and ends."""
    master.rpc.answers["iallocator_runner"] = first_allowed
    pause = master.rpc.answers["blockdev_create_multi"] = Pause()
    first = Creation(master, create(instance_name="a", opportunistic_locking=True))
    assert pause.reached.wait(PATIENCE_S)
    second = Creation(master, create(instance_name="b", opportunistic_locking=True))
    assert second.wait() == ["node2.example.com"]
    pause.go_on.set()
    assert first.wait() == ["node1.example.com"]


def test_while_the_first_still_chooses_nothing_is_free(master):
    pause = master.rpc.answers["iallocator_runner"] = Pause(answer=first_allowed)
    first = Creation(master, create(instance_name="a", opportunistic_locking=True))
    assert pause.reached.wait(PATIENCE_S)
    with pytest.raises(errors.OpPrereqError) as caught:
        Creation(master, create(instance_name="b", opportunistic_locking=True)).wait()
    assert caught.value.ecode == errors.ECODE_TEMP_NORES
    pause.go_on.set()
    assert first.wait() == ["node1.example.com"]


def test_without_opportunism_the_second_waits_for_the_first(master):
    choice = master.rpc.answers["iallocator_runner"] = Pause(answer=first_allowed)
    first = Creation(master, create(instance_name="a"))
    assert choice.reached.wait(PATIENCE_S)
    second = Creation(master, create(instance_name="b"))

    def waits():
        return any(second.job.owner in owners
                   for row in master.locks.table() for _, owners in row.pending)  # fmt: skip

    pause = threading.Event()
    for _ in range(6000):
        if waits():
            break
        pause.wait(0.01)
    assert waits()
    assert second.result is None
    choice.go_on.set()
    assert first.wait() == ["node1.example.com"]
    assert second.wait() == ["node1.example.com"]
    assert master.locks.owners() == []


# -- explanations ----------------------------------------------------------------


def test_the_choice_is_explained(master):
    (chosen,) = master.run(
        create(iallocator="hail", explain=True, disk_template="diskless", disks=[])
    )
    (text,) = [line for line in master.job.log if "nodes which were looked at" in line]
    _title, _heading, *rows = text.splitlines()
    assert {row.split()[0] for row in rows} == {f"node{n}.example.com" for n in (1, 2, 3)}
    assert rows[0].split()[0] == chosen
    assert "the best place: score" in rows[0]


@pytest.mark.parametrize(
    ("changes", "fragment"),
    [
        ({"iallocator": "chooser"}, "allocator chooser does not explain its choice; use hail"),
        ({"iallocator": None, "pnode": "node1"}, "not for a named node"),
    ],
)
def test_only_the_own_choice_can_be_explained(master, changes, fragment):
    assert fragment in master.refused(create(explain=True, **changes), errors.ECODE_INVAL)


def test_a_refusal_is_explained(master):
    op = create(
        iallocator="hail", explain=True, disk_template="diskless", disks=[],
        beparams={"memory": 30000},
    )  # fmt: skip
    master.refused(op, errors.ECODE_NORES)
    assert master.job.said("[FailMem]")


def test_the_plan_of_a_creation_comes_from_the_model(master, monkeypatch):
    """A dry run shows the node which the model chooses, and the same node is used then."""
    found = []
    real = place.Places.find

    def find(self, instance, required):
        result = real(self, instance, required)
        found.append(result.best.changed[0].name)
        return result

    monkeypatch.setattr(place.Places, "find", find)
    op = create(iallocator="hail", disk_template="diskless", disks=[], dry_run=True)
    master.run(op)
    (planned,) = set(found)
    assert any(planned in line for line in master.job.log)
    assert master.rpc.of("instance_start") == []
    (chosen,) = master.run(create(iallocator="hail", disk_template="diskless", disks=[]))
    assert chosen == planned


@pytest.mark.parametrize(("chosen_by", "questions"), [("hail", 1), ("chooser", 2)])
def test_what_the_own_allocator_asked_is_not_asked_again(master, chosen_by, questions):
    """The answer of a program may come late, so the node is asked again then."""
    (name,) = master.run(create(iallocator=chosen_by, disk_template="diskless", disks=[]))
    asked = [node for node, _args in master.rpc.of("node_info") if node == name]
    assert len(asked) == questions
