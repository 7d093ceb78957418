"""The processor: order of phases, locks, hooks, results; nothing is left behind on any path."""

from __future__ import annotations

import pytest

from fakes.config import cluster_of, commit, instance_of, uuid_of
from fakes.master import Master
from ganeti import errors, ht
from ganeti.cmdlib import base, hooks, processor
from ganeti.cmdlib.base import LogicalUnit, LuContext, ResultWithJobs
from ganeti.locking import ALL, Level, Owner
from ganeti.objects import updated
from ganeti.opcodes.base import OpCode, opcode, param


@opcode(summary="instance_name")
class OpProbe(OpCode):
    """Used by these tests only. Result: text."""

    instance_name: str = param(ht.Str, "Instance", default="web")
    RESULT = ht.Str


class LUProbe(LogicalUnit):
    """Remembers its phases; each may be told to fail."""

    OPCODE = OpProbe
    HOOKS = hooks.InstanceHooks("probe")
    phases: list[str]
    fail: dict[str, Exception]
    result: object = "done"
    created: str | None = None

    def _phase(self, name):
        self.phases.append(name)
        if name in self.fail:
            raise self.fail[name]

    def expand_names(self):
        self._phase("expand_names")
        self.lock_instance(self.op.instance_name)
        if self.created:
            self.need_new(Level.INSTANCE, self.created)

    def declare_locks(self, level):
        if level is Level.NODE:
            self._phase("declare_locks")
            assert self.owned(Level.INSTANCE)
            self.lock_nodes_of(self.instance, resources=True)

    def check_prereq(self):
        self._phase("check_prereq")
        assert self.owned(Level.NODE_RES) == {uuid_of("node1")}
        return "plan"

    def hook_env(self, plan):
        assert plan == "plan"
        return {"PROBE": "yes"}

    def exec(self, plan):
        self._phase("exec")
        assert plan == "plan"
        return self.result


@pytest.fixture
def probe(monkeypatch):
    """The unit class of OpProbe, registered for the test."""
    unit = type("LUProbeHere", (LUProbe,), {"phases": [], "fail": {}})
    monkeypatch.setitem(base.UNITS, OpProbe.OP_ID, unit)
    return unit


@pytest.fixture
def master():
    return Master(cluster_of(2, (instance_of("web"),)))


def test_phases_run_in_order_between_the_hooks(master, probe):
    assert master.run(OpProbe()) == "done"
    assert probe.phases == ["expand_names", "declare_locks", "check_prereq", "exec"]
    assert master.job.started
    assert master.rpc.hooks() == [
        ("probe", "pre", "node1.example.com"),
        ("probe", "post", "node1.example.com"),
    ]


@pytest.mark.parametrize("phase", ["expand_names", "declare_locks", "check_prereq", "exec"])
def test_a_failing_phase_leaves_no_locks_and_no_reservations(master, probe, phase):
    probe.fail[phase] = errors.OpExecError("broken on purpose")
    with pytest.raises(errors.OpExecError, match="broken on purpose"):
        master.run(OpProbe())
    assert probe.phases[-1] == phase
    assert len(master.config.released) == 1


def test_even_a_programming_error_releases_everything(master, probe):
    probe.fail["exec"] = ZeroDivisionError("bug")
    with pytest.raises(ZeroDivisionError):
        master.run(OpProbe())


def test_an_unknown_instance_is_refused(master, probe):
    text = master.refused(OpProbe(instance_name="nosuch"), errors.ECODE_NOENT)
    assert "nosuch" in text


def test_node_errors_before_exec_refuse_and_later_fail(master, probe):
    probe.fail["check_prereq"] = errors.NodeUnreachable("node1", "node_info", "timed out")
    with pytest.raises(errors.OpPrereqError) as refused:
        master.run(OpProbe())
    assert refused.value.ecode == errors.ECODE_ENVIRON
    probe.fail.clear()
    probe.fail["exec"] = errors.NodeUnreachable("node1", "instance_start", "timed out")
    with pytest.raises(errors.OpExecError, match="timed out"):
        master.run(OpProbe())


def test_a_result_of_the_wrong_shape_is_an_error(master, probe):
    probe.result = 5
    with pytest.raises(errors.OpResultError, match="5"):
        master.run(OpProbe())


def test_a_dry_run_stops_after_the_pre_hooks(master, probe):
    assert master.run(OpProbe(dry_run=True)) is None
    assert "exec" not in probe.phases
    assert [phase for _dir, phase, _node in master.rpc.hooks()] == ["pre"]


def test_jobs_of_a_result_are_submitted_after_the_locks_are_free(master, probe, monkeypatch):
    monkeypatch.setattr(OpProbe, "RESULT", ht.Dict)
    job = master.new_job()
    submit = job.submit_jobs

    def checked(jobs):
        assert master.locks.owners() == []
        return submit(jobs)

    job.submit_jobs = checked
    probe.result = ResultWithJobs([[OpProbe()], [OpProbe(comment="mine")]], extra=1)
    op = OpProbe(reason=[["gnt:user", "because", 1]], priority=10)
    assert master.run(op, job) == {"jobs": [[True, 100], [True, 101]], "extra": 1}
    first, second = job.submitted[0][0], job.submitted[1][0]
    assert first.reason == [["gnt:user", "because", 1]]
    assert first.priority == 10
    assert first.comment == f"Submitted by {OpProbe.OP_ID}"
    assert second.comment == "mine"


# -- locks -----------------------------------------------------------------------


def test_locks_are_those_declared_and_the_big_one_shared(master, probe):
    held = {}

    def remember(self, plan):
        for level in Level:
            held[level] = self.ctx.locks.owned(self.ctx.owner, level)
        return "done"

    probe.exec = remember
    master.run(OpProbe())
    assert held[Level.CLUSTER] == {"BGL": "shared"}
    assert held[Level.INSTANCE] == {uuid_of("web"): "exclusive"}
    assert held[Level.NODE] == {uuid_of("node1"): "exclusive"}
    assert held[Level.NETWORK] == {}


def test_a_unit_may_ask_for_the_big_lock_alone(master, probe):
    probe.REQ_BGL = True
    seen = []
    probe.exec = lambda self, plan: (
        seen.append(self.ctx.locks.owned(self.ctx.owner, Level.CLUSTER)) or "done"
    )
    master.run(OpProbe())
    assert seen == [{"BGL": "exclusive"}]


def test_a_canceled_job_does_not_begin(master, probe):
    job = master.new_job()
    job.cancel = True
    with pytest.raises(errors.JobCanceled):
        master.run(OpProbe(), job)
    assert not job.started
    assert "exec" not in probe.phases


def test_a_running_job_is_canceled_before_it_changes_anything(master, probe):
    """The checks and the hooks before may have taken long."""
    job = master.new_job()
    probe.check_prereq = lambda self: setattr(job, "cancel", True) or "plan"
    with pytest.raises(errors.JobCanceled):
        master.run(OpProbe(), job)
    assert job.started
    assert "exec" not in probe.phases
    assert master.locks.owners() == []


def test_an_instance_removed_while_waiting_is_said_so(master, probe):
    uuid = uuid_of("web")
    other = Owner(99, "remover")
    master.locks.acquire(other, Level.INSTANCE, [uuid], shared=False)

    def remove_meanwhile():
        if uuid in master.config.snapshot().instances:
            commit(master.config).instances.remove(uuid)
            master.locks.remove(Level.INSTANCE, [uuid], other)

    job = master.new_job()
    # Called when the request begins to wait: at that moment the other job finishes.
    calls = []
    job.check_cancel = lambda: calls.append(1) or (len(calls) == 2 and remove_meanwhile())
    with pytest.raises(errors.OpPrereqError, match="was removed while the job waited") as refused:
        master.run(OpProbe(), job)
    assert refused.value.ecode == errors.ECODE_NOENT


def test_an_instance_renamed_while_waiting_is_refused(master, probe):
    def rename(self, level):
        if level is Level.INSTANCE:
            instance = self.config.instance(uuid_of("web"))
            commit(self.config).instances.update(updated(instance, name="other.example.com"))

    probe.declare_locks = rename
    with pytest.raises(errors.OpPrereqError, match="renamed"):
        master.run(OpProbe())


def test_the_lock_of_a_new_object_disappears_when_nothing_was_added(master, probe):
    probe.created = "uuid-new"
    probe.fail["check_prereq"] = errors.OpPrereqError("no", errors.ECODE_STATE)
    with pytest.raises(errors.OpPrereqError):
        master.run(OpProbe())
    assert "uuid-new" not in master.locks.keys(Level.INSTANCE)


def test_it_also_disappears_when_it_was_never_acquired(master, probe):
    probe.created = "uuid-new"

    def fail_after_adding(self, level, *args, **kwargs):
        raise errors.JobCanceled("canceled")

    probe.locks_acquired = fail_after_adding
    with pytest.raises(errors.JobCanceled):
        master.run(OpProbe())
    assert "uuid-new" not in master.locks.keys(Level.INSTANCE)


def test_the_lock_of_a_new_object_stays_with_the_object(master, probe):
    probe.created = uuid_of("db")
    probe.exec = lambda self, plan: (
        commit(self.config).instances.add(instance_of("db"), (), self.ctx.ec_id) or "done"
    )
    master.run(OpProbe())
    assert uuid_of("db") in master.locks.keys(Level.INSTANCE)


def test_the_lock_of_a_removed_object_disappears(master, probe):
    probe.exec = lambda self, plan: commit(self.config).instances.remove(uuid_of("web")) or "done"
    master.run(OpProbe())
    assert uuid_of("web") not in master.locks.keys(Level.INSTANCE)


def test_locks_of_others_new_objects_survive_a_unit_that_holds_the_whole_level(master, probe):
    """Another job has added the lock of an instance which is not in the configuration yet."""
    master.locks.add(Level.INSTANCE, ["uuid-of-other-job"])
    probe.expand_names = lambda self: self.need(Level.INSTANCE, ALL)
    probe.declare_locks = lambda self, level: None
    probe.check_prereq = lambda self: "plan"
    probe.HOOKS = None
    master.run(OpProbe())
    assert "uuid-of-other-job" in master.locks.keys(Level.INSTANCE)


def test_asking_twice_for_a_level_adds_up_and_exclusive_wins(master):
    unit = LUProbe(OpProbe(), LuContext(master.context, master.new_job()))
    unit.need(Level.NODE, ["a"], shared=True)
    assert Level.NODE in unit.shared_levels
    unit.need(Level.NODE, ["b"])
    assert unit.needed_locks[Level.NODE] == {"a", "b"}
    assert Level.NODE not in unit.shared_levels
    unit.need(Level.NODE, ALL, shared=True)
    unit.need(Level.NODE, ["c"], shared=True)
    assert unit.needed_locks[Level.NODE] is ALL


def test_a_job_for_an_instance_that_was_replaced_is_refused(master, probe):
    probe.expand_names = lambda self: self.lock_instance("web", "uuid-of-former-web")
    text = master.refused(OpProbe(), errors.ECODE_NOENT)
    assert "web.example.com is not the one for which the job was submitted" in text


# -- hooks -----------------------------------------------------------------------


def hook_answer(status, output="", on=("node1.example.com",)):
    def answer(node, args):
        if node not in on:
            return []
        return [[f"{args['hpath']}-{args['phase']}.d/50-check", status, output]]

    return answer


def test_a_failing_pre_hook_vetoes(master, probe):
    master.rpc.answers["hooks_runner"] = hook_answer(1, "not today")
    with pytest.raises(errors.HooksAbort) as veto:
        master.run(OpProbe())
    assert veto.value.failures == [("node1.example.com", "probe-pre.d/50-check", "not today")]
    assert "exec" not in probe.phases


def test_a_failing_post_hook_is_a_warning(master, probe):
    def answer(node, args):
        return [["probe-post.d/50-check", 1, "too late"]] if args["phase"] == "post" else []

    master.rpc.answers["hooks_runner"] = answer
    assert master.run(OpProbe()) == "done"
    assert master.job.said("probe-post.d/50-check failed on node node1.example.com: too late")


def test_no_node_to_ask_for_pre_hooks_is_a_failure(master, probe):
    node = "node1.example.com"
    master.rpc.errors["hooks_runner"] = errors.NodeUnreachable(node, "hooks_runner", "refused")
    with pytest.raises(errors.HooksFailure):
        master.run(OpProbe())
    assert "exec" not in probe.phases


def test_one_unreachable_node_is_a_warning(master, probe):
    probe.hook_nodes = lambda self, plan: ([uuid_of("node1"), uuid_of("node2")], [])
    error = errors.NodeUnreachable("node2.example.com", "hooks_runner", "timed out")
    master.rpc.errors["hooks_runner", "node2.example.com"] = error
    assert master.run(OpProbe()) == "done"
    assert master.job.said("pre hooks of node node2.example.com were not run")


def test_hooks_see_values_from_before_and_after(master, probe):
    def act(self, plan):
        commit(self.config).instances.mark(uuid_of("web"), "up")
        return "done"

    probe.exec = act
    master.run(OpProbe())
    pre, post, update = (args["env"] for _node, args in master.rpc.of("hooks_runner"))
    assert pre["GANETI_INSTANCE_STATUS"] == "down"
    assert not [name for name in pre if name.startswith("GANETI_POST_")]
    assert post["GANETI_INSTANCE_STATUS"] == "down"
    assert post["GANETI_POST_INSTANCE_STATUS"] == "up"
    assert post["GANETI_POST_PROBE"] == "yes"
    assert update["GANETI_HOOKS_PATH"] == "config-update"
    assert not [name for name in update if name.startswith("GANETI_POST_")]
    assert master.rpc.hooks()[-1] == ("config-update", "post", "node1.example.com")


def test_the_environment_is_the_published_one(master, probe):
    master.run(OpProbe())
    env = master.rpc.of("hooks_runner")[0][1]["env"]
    expected = {
        "GANETI_CLUSTER": "cluster.example.com",
        "GANETI_HOOKS_PATH": "probe",
        "GANETI_HOOKS_PHASE": "pre",
        "GANETI_HOOKS_VERSION": "2",
        "GANETI_MASTER": "node1.example.com",
        "GANETI_OBJECT_TYPE": "INSTANCE",
        "GANETI_OP_CODE": "OP_PROBE",
        "GANETI_OP_TARGET": "web.example.com",
        "GANETI_PROBE": "yes",
        "GANETI_INSTANCE_NAME": "web.example.com",
        "GANETI_INSTANCE_PRIMARY": "node1.example.com",
        "GANETI_INSTANCE_SECONDARIES": "",
        "GANETI_INSTANCE_OS_TYPE": "noop",
        "GANETI_INSTANCE_STATUS": "down",
        "GANETI_INSTANCE_MINMEM": "128",
        "GANETI_INSTANCE_MAXMEM": "128",
        "GANETI_INSTANCE_MEMORY": "128",
        "GANETI_INSTANCE_VCPUS": "1",
        "GANETI_INSTANCE_DISK_TEMPLATE": "diskless",
        "GANETI_INSTANCE_HYPERVISOR": "fake",
        "GANETI_INSTANCE_DISK_COUNT": "0",
        "GANETI_INSTANCE_TAGS": "",
        "GANETI_INSTANCE_NIC_COUNT": "1",
        "GANETI_INSTANCE_NIC0_UUID": "uuid-web-nic",
        "GANETI_INSTANCE_NIC0_IP": "",
        "GANETI_INSTANCE_NIC0_MAC": "aa:00:00:00:00:03",
        "GANETI_INSTANCE_NIC0_MODE": "bridged",
        "GANETI_INSTANCE_NIC0_LINK": "xen-br0",
        "GANETI_INSTANCE_NIC0_BRIDGE": "xen-br0",
        "GANETI_INSTANCE_NIC0_VLAN": "",
        "GANETI_INSTANCE_BE_always_failover": "False",
        "GANETI_INSTANCE_BE_auto_balance": "True",
        "GANETI_INSTANCE_BE_maxmem": "128",
        "GANETI_INSTANCE_BE_minmem": "128",
        "GANETI_INSTANCE_BE_spindle_use": "1",
        "GANETI_INSTANCE_BE_vcpus": "1",
        "GANETI_INSTANCE_HV_migration_mode": "live",
        "PATH": "/sbin:/bin:/usr/sbin:/usr/bin",
    }
    assert env.pop("GANETI_DATA_DIR")
    assert env == expected


def test_the_processor_module_exports_what_the_queue_needs():
    assert processor.OpCallbacks is base.OpCallbacks
    assert processor.MasterContext is base.MasterContext


def test_nodes_without_hooks_are_asked_once_and_run_nothing(master, probe):
    asked = []

    def present(node, args):
        asked.append((node, args["wanted"]))
        return [False] * len(args["wanted"])

    master.rpc.answers["hooks_present"] = present
    assert master.run(OpProbe()) == "done"
    assert asked == [
        ("node1.example.com", [["probe", "pre"], ["probe", "post"], ["config-update", "post"]])
    ]
    assert master.rpc.of("hooks_runner") == []


def test_nodes_of_the_post_phase_are_asked_in_the_same_breath(master, probe):
    asked = []

    def present(node, args):
        asked.append(node)
        return [False] * len(args["wanted"])

    first, second = uuid_of("node1"), uuid_of("node2")
    probe.hook_nodes = lambda self, plan: ([first], [second, first])
    master.rpc.answers["hooks_present"] = present
    assert master.run(OpProbe()) == "done"
    assert asked == ["node1.example.com", "node2.example.com"]


def test_a_node_of_the_post_phase_that_is_dead_is_told_of_afterwards(master, probe):
    probe.hook_nodes = lambda self, plan: ([uuid_of("node1")], [uuid_of("node2")])
    master.rpc.errors["hooks_present", "node2.example.com"] = errors.NodeUnreachable(
        "node2.example.com", "hooks_present", "no route"
    )
    assert master.run(OpProbe()) == "done"
    assert not master.job.said("pre hooks of node")
    assert master.job.said("post hooks of node node2.example.com were not run")


def test_a_node_of_another_version_runs_hooks_unasked(master, probe):
    master.rpc.errors["hooks_present"] = errors.NodeRefused(
        "node1.example.com", "hooks_present", "unknown procedure"
    )
    master.rpc.answers["hooks_runner"] = hook_answer(1, "not today")
    with pytest.raises(errors.HooksAbort):
        master.run(OpProbe())
