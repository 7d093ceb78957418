"""Moving the master's role, step by step, with nodes that fail at any of them.

The configuration of this node (node2) is a real file; the other nodes are a model that votes,
promises, and remembers what it was told (:class:`Nodes`).
"""

from __future__ import annotations

import dataclasses
import errno
import json
import os
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from fakes.config import cluster_of, uuid_of
from ganeti import errors
from ganeti.bootstrap import failover, node_state
from ganeti.config.members import members_of
from ganeti.config.sending import CONFIG, DistributionFailure
from ganeti.objects import MasterVote, codec
from ganeti.platform import master_epoch, paths
from ganeti.platform.master_epoch import Epoch
from ganeti.rpc import Result
from ganeti.utils import x509

OLD, ME, THIRD = NODES = [f"node{number}.example.com" for number in (1, 2, 3)]
VOTE, CLAIM = "master_vote", "master_claim"
STOP, START = "node_stop_master", "node_start_master_daemons"


def pin_of(name: str) -> str:
    """The key of a node, as the configuration has it."""
    return f"{name.replace('.', '/'):A<43}="


class Nodes:
    """All nodes as the calls of a failover see them; ``errors[call, node]`` lets one fail."""

    def __init__(self) -> None:
        self.serial = dict.fromkeys(NODES, 7)
        self.jobs = dict.fromkeys(NODES, 3)
        self.master = dict.fromkeys(NODES, OLD)
        self.promised = dict.fromkeys(NODES, Epoch(4, uuid_of("node1")))
        self.errors: dict[tuple[str, str], Exception] = {}
        self.events: list[tuple[str, str]] = []
        self.no_voting: bool | None = None
        self.started_under: Epoch | None = None
        self.drained: object = None
        #: The key which the machine at the address of each node shows.
        self.keys = {name: pin_of(name) for name in NODES}
        #: Nodes which do not take the new configuration.
        self.deaf: set[str] = set()

    def call_addresses(self, call, addresses, **args):
        return {name: self._answer(call.name, name, args) for name in addresses}

    def _answer(self, call: str, node: str, args: dict[str, object]) -> Result:
        if call not in (VOTE, CLAIM):
            self.events.append((call, node))
        failure = self.errors.get((call, node), self.errors.get(("any", node)))
        if failure is not None:
            return Result(node, failure=failure)
        if call == CLAIM:
            self.promised[node] = master_epoch.parse(str(args["epoch"]))
        if call == "jobqueue_set_drain_flag":
            self.drained = args["flag"]
        if call == START:
            self.no_voting = bool(args["no_voting"])
        if call in (VOTE, CLAIM):
            return Result(
                node,
                MasterVote(
                    master=self.master[node],
                    epoch=str(self.promised[node]),
                    config_epoch=f"4 {uuid_of('node1')}",
                    config_serial=self.serial[node],
                    config_digest=f"d{self.serial[node]}",
                    queue_epoch=f"4 {uuid_of('node1')}",
                    last_job=self.jobs[node],
                ),
            )
        return Result(node, None)

    def silent(self, *names: str) -> None:
        for name in names:
            self.errors["any", name] = errors.NodeUnreachable(name, "call", "no connection")

    def steps(self) -> list[tuple[str, str]]:
        """What was done, without votes and promises."""
        return self.events


class Runner:
    """In place of both runners."""

    def __init__(self, nodes: Nodes, *args: object) -> None:
        self.nodes = nodes
        self.epoch: Epoch | None = None
        self.expected: dict[str, tuple[str, ...]] = {}

    def call_addresses(self, call, addresses, **args):
        if call.name == START:
            self.nodes.started_under = self.epoch
        wrong = {
            name: Result(name, failure=errors.NodeKeyMismatch(name, call.name, "another key"))
            for name, address in addresses.items()
            if self.nodes.keys[name] not in self.expected.get(address, ())
        }
        right = {name: address for name, address in addresses.items() if name not in wrong}
        return {**wrong, **self.nodes.call_addresses(call, right, **args)}

    def call_many(self, call, uuids, **args):
        assert call.name == "config_history_digests", "other calls go to addresses"
        return {uuid: Result(uuid, {}) for uuid in uuids}

    def expect_keys(self, pins) -> None:
        self.expected = dict(pins)

    def use_epoch(self, epoch: Epoch) -> None:
        self.epoch = epoch


class Distributor:
    """Brings the new configuration to the candidates of the model."""

    def __init__(self, nodes: Nodes, runner: Runner) -> None:
        self.nodes = nodes
        self.runner = runner

    def __call__(self, wanted):
        assert self.runner.epoch is not None, "distributed without an epoch"
        # Who missed it is tried again by a thread, which outlives the test.
        if threading.current_thread().name != "config-catch-up":
            self.nodes.events.append(("commit", ""))
        failures = []
        for uuid in wanted.candidates:
            name = f"{uuid.removeprefix('uuid-')}.example.com"
            if name in self.nodes.deaf or ("any", name) in self.nodes.errors:
                failures.append(DistributionFailure(uuid, CONFIG, "no connection"))
        return failures


@pytest.fixture
def nodes() -> Nodes:
    return Nodes()


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, nodes: Nodes) -> Iterator[paths.Paths]:
    monkeypatch.setenv(paths.ENV_HOSTNAME, ME)
    for name, value in (
        ("AddressRunner", partial(Runner, nodes)),
        ("RpcRunner", partial(Runner, nodes)),
        ("ConfigDistributor", partial(Distributor, nodes)),
        ("open_client", lambda *args: None),
        ("take_down_at", lambda runner, data, uuid: nodes.events.append(("take down", uuid))),
    ):
        monkeypatch.setattr(failover, name, value)
    found = paths.Paths(str(tmp_path / ME))
    for directory in (found.data_dir, found.lock_dir, found.run_dir):
        os.makedirs(directory)
    with paths.override(found):
        write(found, cluster_of(3))
        Path(found.ssconf_file("master_node")).write_text(f"{OLD}\n")
        Path(found.ssconf_file("master_candidates")).write_text("\n".join(NODES) + "\n")
        Path(found.ssconf_file("master_candidates_certs")).write_text("")
        yield found


def write(here: paths.Paths, data) -> None:
    nodes = {
        uuid: dataclasses.replace(node, key_pins=(pin_of(node.name),))
        for uuid, node in data.nodes.items()
    }
    data = dataclasses.replace(data, serial_no=7, nodes=nodes)
    Path(here.cluster_conf_file).write_text(json.dumps(codec.to_dict(data)))


@pytest.fixture
def fetched(nodes: Nodes, monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str]]:
    """What was fetched, and from where; the real fetching has tests of its own."""
    seen: list[tuple[str, str]] = []

    def fetch(what: str):
        def take(source, epoch, *_rest):
            assert source.runner.epoch == epoch
            assert all(promised == epoch for promised in nodes.promised.values())
            copies = getattr(nodes, what)
            copies[ME] = copies[source.name]
            seen.append((what, source.name))

        return take

    monkeypatch.setattr(failover.newer_copies, "fetch_jobs", fetch("jobs"))
    monkeypatch.setattr(failover.newer_copies, "fetch_config", fetch("serial"))
    return seen


def master_now(here: paths.Paths) -> str:
    uuid: str = json.loads(Path(here.cluster_conf_file).read_text())["cluster"]["master_node"]
    return uuid


def run(**options) -> tuple[list[str], list[str]]:
    """Warnings and what was said."""
    said: list[str] = []
    return failover.failover(say=said.append, **options), said


# -- it works --------------------------------------------------------------------


def test_the_steps_in_their_order(here: paths.Paths, nodes: Nodes) -> None:
    warnings, said = run()
    assert warnings == []
    assert nodes.steps() == [
        (STOP, OLD),
        ("commit", ""),
        ("take down", uuid_of("node1")),
        (START, ME),
    ]
    assert nodes.no_voting is False
    assert master_now(here) == uuid_of("node2")
    assert set(nodes.promised.values()) == {Epoch(5, uuid_of("node2"))}
    assert master_epoch.read().config == Epoch(5, uuid_of("node2"))
    assert said[0] == f"stopping the master daemon on {OLD}"
    assert "3 of 3 nodes obey epoch 5" in said[1]


def test_a_candidate_which_has_lost_its_ssconf_files(here: paths.Paths, nodes: Nodes) -> None:
    """It has the configuration, from which they are made. Those which are there stay."""
    Path(here.ssconf_file("cluster_name")).write_text("as it was\n")
    for path in Path(here.data_dir).glob("ssconf_master*"):
        path.unlink()
    warnings, said = run()
    assert warnings == [] and master_now(here) == uuid_of("node2")
    assert "has lost master_node, master_candidates_certs" in said[0]
    assert Path(here.ssconf_file("master_candidates")).read_text().split() == NODES
    assert Path(here.ssconf_file("cluster_name")).read_text() == "as it was\n"


def test_a_vote_without_ssconf_files(here: paths.Paths, nodes: Nodes) -> None:
    Path(here.ssconf_file("master_node")).unlink()
    assert failover.survey().old.name == OLD
    assert not Path(here.ssconf_file("master_node")).exists()


def test_the_new_master_has_the_address_before_the_command_ends(
    here: paths.Paths, nodes: Nodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What uses the address next finds it; nobody waits for a failover of the cluster itself."""
    waited: list[tuple[str, str]] = []

    def wait(ip: str) -> str:
        waited.append((ip, nodes.steps()[-1][0]))
        return "it does not answer"

    monkeypatch.setattr(node_state, "await_master_address", wait)
    assert run()[0] == ["it does not answer"]
    assert waited == [("192.0.2.100", START)]


def test_the_queue_accepts_jobs_again(here: paths.Paths, nodes: Nodes) -> None:
    drain = Path(here.queue_drain_file)
    drain.parent.mkdir(parents=True)
    drain.touch()
    said: list[str] = []
    assert failover.failover(say=said.append) == []
    assert nodes.steps()[-2:] == [("jobqueue_set_drain_flag", ME), (START, ME)]
    assert nodes.drained is False
    assert any("was drained" in text for text in said)


def test_a_queue_which_stays_drained(here: paths.Paths, nodes: Nodes) -> None:
    drain = Path(here.queue_drain_file)
    drain.parent.mkdir(parents=True)
    drain.touch()
    nodes.errors["jobqueue_set_drain_flag", ME] = errors.RpcError(
        ME, "jobqueue_set_drain_flag", "disk full"
    )
    (warning,) = failover.failover()
    assert "still drained: " in warning
    assert nodes.steps()[-1] == (START, ME)


def test_the_dry_run_changes_nothing(here: paths.Paths, nodes: Nodes) -> None:
    before = Path(here.cluster_conf_file).read_bytes()
    found = failover.survey()
    assert found.verdict.won and found.old.name == OLD and found.me == ME
    assert Path(here.cluster_conf_file).read_bytes() == before
    assert nodes.steps() == [] and {epoch.number for epoch in nodes.promised.values()} == {4}


def test_a_dead_master_is_not_waited_for(here: paths.Paths, nodes: Nodes) -> None:
    nodes.silent(OLD)
    warnings, _ = run()
    assert [step for step in nodes.steps() if step[0] == STOP] == []
    assert "was not stopped. It will end by itself" in warnings[0]
    assert master_now(here) == uuid_of("node2")


def test_another_machine_at_the_address_of_a_node_has_no_vote(
    here: paths.Paths, nodes: Nodes
) -> None:
    nodes.keys[THIRD] = pin_of("other")
    run()
    assert nodes.promised[THIRD] == Epoch(4, uuid_of("node1")), "it was never asked for a promise"
    assert master_now(here) == uuid_of("node2")


def test_such_machines_are_no_majority(here: paths.Paths, nodes: Nodes) -> None:
    nodes.silent(OLD)
    nodes.keys[THIRD] = pin_of("other")
    with pytest.raises(errors.OpPrereqError, match="another key"):
        run()
    assert master_now(here) == uuid_of("node1")
    assert nodes.steps() == []


def test_this_node_may_have_the_key_in_its_own_files(here: paths.Paths, nodes: Nodes) -> None:
    node_state.write_credentials(here, node_state.new_credentials(), ME)
    own = x509.key_pin(x509.read_pem(here.noded_client_cert_file))
    nodes.keys[ME] = own
    run()
    assert master_now(here) == uuid_of("node2")


def test_an_old_master_that_cannot_be_stopped(here: paths.Paths, nodes: Nodes) -> None:
    nodes.errors[STOP, OLD] = errors.NodeCallFailed(OLD, STOP, "it hangs")
    warnings, _ = run()
    assert "could not be stopped" in warnings[0] and "it hangs" in warnings[0]
    assert master_now(here) == uuid_of("node2")


def test_an_address_that_stays_up(
    here: paths.Paths, nodes: Nodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(failover, "take_down_at", lambda runner, data, uuid: "no such device")
    warnings, _ = run()
    assert "may still be active" in warnings[0] and "no such device" in warnings[0]


def test_the_master_itself_whose_daemon_is_missing(here: paths.Paths, nodes: Nodes) -> None:
    nodes.master = dict.fromkeys(NODES, ME)
    write(here, cluster_of(3, master_node=uuid_of("node2")))
    _, said = run()
    assert "but its daemon does not run" in said[0]
    assert nodes.steps() == [(START, ME)]


def test_the_master_itself_which_lacks_jobs(
    here: paths.Paths, nodes: Nodes, fetched: list[tuple[str, str]]
) -> None:
    """Its daemon does not start, because only the node of a former master has some jobs."""
    nodes.master = dict.fromkeys(NODES, ME)
    write(here, cluster_of(3, master_node=uuid_of("node2")))
    assert not failover.survey().lacks_data
    nodes.jobs[OLD] += 1
    assert failover.survey().lacks_data
    run()
    assert fetched == [("jobs", OLD)]
    assert nodes.steps() == [(START, ME)]


# -- refusals: nothing is done ---------------------------------------------------


def test_without_a_quorum(here: paths.Paths, nodes: Nodes) -> None:
    nodes.silent(OLD, THIRD)
    with pytest.raises(errors.OpPrereqError, match="only 1 of 3 nodes answer.*--no-voting"):
        run()
    assert nodes.steps() == []


def test_nodes_which_are_broken_are_not_overridden(here: paths.Paths, nodes: Nodes) -> None:
    """A full disk is repaired; --no-voting would lose what is on it."""
    nodes.silent(OLD)
    nodes.errors["any", THIRD] = errors.NodeCallFailed(THIRD, VOTE, "no space left on device")
    with pytest.raises(errors.OpPrereqError, match=f"no space left.*{THIRD} can be reached") as got:
        run()
    assert "--no-voting" not in str(got.value)
    del nodes.errors["any", THIRD]
    nodes.errors[CLAIM, THIRD] = errors.NodeRefused(THIRD, CLAIM, "certificate has expired")
    with pytest.raises(errors.OpPrereqError, match=f"expired.*{THIRD} can be reached") as got:
        run()
    assert "--no-voting" not in str(got.value)


@pytest.mark.parametrize("what", ["serial", "jobs"])
@pytest.mark.parametrize("where", [OLD, THIRD])
def test_newer_data_of_another_node_are_fetched(
    here: paths.Paths, nodes: Nodes, fetched: list[tuple[str, str]], what: str, where: str
) -> None:
    """The master daemon was killed: only its node, or one other, has the last data."""
    getattr(nodes, what)[where] += 1
    _warnings, said = run()
    assert fetched == [(what, where)]
    assert any("fetching" in text and where in text for text in said)
    assert nodes.steps()[-1] == (START, ME)
    assert nodes.no_voting is False
    assert master_now(here) == uuid_of("node2")


def test_the_newest_data_of_several_nodes_are_fetched(
    here: paths.Paths, nodes: Nodes, fetched: list[tuple[str, str]]
) -> None:
    nodes.serial.update({OLD: 8, THIRD: 9})
    nodes.jobs.update({OLD: 5, THIRD: 4})
    run()
    assert fetched == [("jobs", OLD), ("serial", THIRD)]


def test_data_which_cannot_be_fetched(
    here: paths.Paths, nodes: Nodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(source, epoch, *rest):
        raise errors.NodeCallFailed(OLD, "jobqueue_read", "the master daemon holds the queue")

    nodes.jobs[OLD] += 1
    monkeypatch.setattr(failover.newer_copies, "fetch_jobs", fail)
    with pytest.raises(errors.OpPrereqError, match="holds the queue.*Run the command there"):
        run()
    assert nodes.steps() == [(STOP, OLD), (START, OLD)]
    assert master_now(here) == uuid_of("node1")


def test_data_which_are_still_newer_after_the_fetch(
    here: paths.Paths, nodes: Nodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    nodes.jobs[OLD] += 1
    monkeypatch.setattr(failover.newer_copies, "fetch_jobs", lambda *args: None)
    with pytest.raises(errors.OpPrereqError, match="newer jobs.*Run the command there"):
        run()
    assert nodes.steps() == [(STOP, OLD), (START, OLD)]


def test_a_newer_configuration_in_which_this_node_is_no_candidate(
    here: paths.Paths, nodes: Nodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    nodes.serial[OLD] += 1

    def check_only(source, epoch, check):
        check(members_of(json.dumps(codec.to_dict(other)), "the configuration"))

    other = cluster_of(3, node_changes={2: {"master_candidate": False}})
    monkeypatch.setattr(failover.newer_copies, "fetch_config", check_only)
    with pytest.raises(errors.OpPrereqError, match="not a master candidate"):
        run()
    assert master_now(here) == uuid_of("node1")


def test_newer_data_do_not_replace_a_quorum(here: paths.Paths, nodes: Nodes) -> None:
    nodes.jobs[OLD] += 1
    nodes.silent(THIRD)
    nodes.errors[CLAIM, OLD] = errors.NodeUnreachable(OLD, CLAIM, "cut off")
    with pytest.raises(errors.OpPrereqError, match="cut off"):
        run()
    assert nodes.jobs[ME] == 3


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"master_candidate": False}, "is not a master candidate"),
        ({"offline": True}, "is marked offline"),
        ({"drained": True}, "is marked drained"),
    ],
)
def test_a_node_in_another_role(
    here: paths.Paths, nodes: Nodes, changes: dict[str, bool], text: str
) -> None:
    write(here, cluster_of(3, node_changes={2: changes}))
    with pytest.raises(errors.OpPrereqError, match=f"{text}.*{OLD}, {ME}, {THIRD}"):
        failover.survey()


def test_a_node_without_configuration(here: paths.Paths) -> None:
    os.unlink(here.cluster_conf_file)
    with pytest.raises(errors.OpPrereqError, match="is not a master candidate, so it has no copy"):
        failover.survey()


def test_a_machine_of_no_cluster(here: paths.Paths) -> None:
    os.unlink(here.cluster_conf_file)
    os.unlink(here.ssconf_file("master_node"))
    with pytest.raises(errors.OpPrereqError, match="belongs to no cluster"):
        failover.survey()


def test_a_stranger_in_its_own_configuration(
    here: paths.Paths, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(paths.ENV_HOSTNAME, "node9.example.com")
    with pytest.raises(errors.OpPrereqError, match="not in its own configuration"):
        failover.survey()


def test_where_the_master_daemon_runs(here: paths.Paths, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node_state, "running_daemon", lambda where, name: 42)
    with pytest.raises(errors.OpPrereqError, match="runs on this node"):
        failover.survey()


# -- failures on the way ---------------------------------------------------------


def test_the_old_master_got_something_newer_before_it_stopped(
    here: paths.Paths,
    nodes: Nodes,
    fetched: list[tuple[str, str]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The votes are counted once more."""
    answer = nodes._answer

    def stop(call, node, args):
        if call == STOP:
            nodes.serial[OLD] = nodes.serial[THIRD] = 8
        return answer(call, node, args)

    monkeypatch.setattr(nodes, "_answer", stop)
    run()
    assert fetched == [("serial", OLD)]
    assert master_now(here) == uuid_of("node2")


def test_a_full_disk_is_noticed_before_the_old_master_is_stopped(
    here: paths.Paths, nodes: Nodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(path: str, *args: object, **options: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)

    monkeypatch.setattr(failover.fs, "write_file", full)
    with pytest.raises(errors.OpPrereqError, match="No space left.*Nothing was changed"):
        run()
    assert nodes.steps() == []
    monkeypatch.undo()
    assert not [name for name in os.listdir(here.data_dir) if "probe" in name]


def test_the_old_master_is_started_under_the_epoch_which_was_promised(
    here: paths.Paths, nodes: Nodes
) -> None:
    """This node could not write the epoch down, and the others refuse a lower one."""
    nodes.errors[CLAIM, ME] = errors.NodeCallFailed(ME, CLAIM, "disk is full")
    with pytest.raises(errors.OpPrereqError, match="disk is full"):
        run()
    assert nodes.steps() == [(STOP, OLD), (START, OLD)]
    assert nodes.started_under == nodes.promised[OLD] != master_epoch.read().epoch


def test_too_few_promises(here: paths.Paths, nodes: Nodes) -> None:
    for name in (OLD, THIRD):
        nodes.errors[CLAIM, name] = errors.NodeUnreachable(name, CLAIM, "cut off")
    with pytest.raises(errors.OpPrereqError, match="cut off"):
        run()
    assert nodes.steps() == [(STOP, OLD), (START, OLD)]
    assert master_now(here) == uuid_of("node1")


def test_the_old_master_does_not_start_again(here: paths.Paths, nodes: Nodes) -> None:
    """Both are told: why it failed, and what is left."""
    for name in (OLD, THIRD):
        nodes.errors[CLAIM, name] = errors.NodeUnreachable(name, CLAIM, "cut off")
    nodes.errors[START, OLD] = errors.NodeCallFailed(OLD, START, "port is taken")
    with pytest.raises(errors.OpExecError) as caught:
        run()
    for text in ("cut off", "port is taken", f"the master daemon of {OLD} is stopped"):
        assert text in str(caught.value)


def test_a_commit_without_majority(here: paths.Paths, nodes: Nodes) -> None:
    """The change may be somewhere, so the old master is left alone; run again, it is finished."""
    nodes.deaf = {OLD, THIRD}
    with pytest.raises(errors.OpExecError, match="There is no master now. Run this command once"):
        run()
    assert (START, OLD) not in nodes.steps() and (START, ME) not in nodes.steps()
    nodes.deaf = set()
    nodes.events.clear()
    run()
    assert nodes.steps()[-1] == (START, ME)
    assert master_now(here) == uuid_of("node2")
    assert nodes.promised[ME].number > 5


def test_a_minority_that_misses_the_commit(here: paths.Paths, nodes: Nodes) -> None:
    nodes.deaf = {THIRD}
    run()
    assert nodes.steps()[-1] == (START, ME)


def test_a_daemon_that_does_not_start(here: paths.Paths, nodes: Nodes) -> None:
    nodes.errors[START, ME] = errors.NodeCallFailed(ME, START, "no memory")
    with pytest.raises(errors.OpExecError, match="no memory.*daemon-util start-master"):
        run()
    assert master_now(here) == uuid_of("node2")


# -- overriding ------------------------------------------------------------------


def test_without_voting(here: paths.Paths, nodes: Nodes) -> None:
    """Alone, and against others which have something newer."""
    nodes.silent(OLD, THIRD)
    warnings, _ = run(no_voting=True)
    assert nodes.no_voting is True
    assert master_now(here) == uuid_of("node2")
    assert any("was not stopped" in text for text in warnings)


def test_without_voting_although_others_are_newer(here: paths.Paths, nodes: Nodes) -> None:
    nodes.serial[THIRD] = 9
    run(no_voting=True)
    assert master_now(here) == uuid_of("node2")
    assert {epoch.number for epoch in nodes.promised.values()} == {5}


def test_not_even_this_nodes_daemon_answers(here: paths.Paths, nodes: Nodes) -> None:
    nodes.silent(*NODES)
    with pytest.raises(errors.OpPrereqError, match="itself does not answer"):
        run(no_voting=True)
    assert master_now(here) == uuid_of("node1")


def test_nodes_marked_offline_do_not_count_unless_wanted(here: paths.Paths, nodes: Nodes) -> None:
    """The daemon gets the voters of the failover, and no permission to do without a vote."""
    gone = {"offline": True, "master_candidate": False}
    write(here, cluster_of(3, node_changes={1: gone, 3: gone}))
    nodes.silent(OLD, THIRD)
    with pytest.raises(errors.OpPrereqError, match="only 1 of 3"):
        run(ignore_offline=False)
    run()
    assert nodes.no_voting is False
    assert master_now(here) == uuid_of("node2")
    known = master_epoch.read()
    assert known.moved_to(uuid_of("node2")) and known.ignored_offline


def test_too_few_nodes_at_the_start_are_no_override(here: paths.Paths, nodes: Nodes) -> None:
    """Cut off after it won: without a majority the daemon must not become master."""
    commit = nodes.events.append

    class Events(list):
        def append(self, event: tuple[str, str]) -> None:
            commit(event)
            if event[0] == "take down":
                nodes.silent(OLD, THIRD)

    nodes.events = Events()
    run()
    assert nodes.no_voting is False
    known = master_epoch.read()
    assert known.moved_to(uuid_of("node2")) and known.ignored_offline
    assert known.failover == Epoch(5, uuid_of("node2"))


def test_the_masters_own_daemon_gets_no_override(here: paths.Paths, nodes: Nodes) -> None:
    nodes.master = dict.fromkeys(NODES, ME)
    write(here, cluster_of(3, master_node=uuid_of("node2")))
    nodes.silent(THIRD)
    run(ignore_offline=False)
    assert nodes.no_voting is False
    known = master_epoch.read()
    assert known.moved_to(uuid_of("node2")) and not known.ignored_offline
