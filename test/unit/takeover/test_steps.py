"""The order of the steps, the record of them, and going on after every possible interruption."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from ganeti import errors
from ganeti.runbook import record
from ganeti.runbook.steps import CLUSTER, NODES, StepFailed
from ganeti.takeover import steps
from ganeti.takeover.state import BACK, RUN, State, StateFile, parse_state
from ganeti.takeover.steps import NodeFailed, Run

MASTER = "node1"
NAMES = ["node1", "node2", "node3"]


class Died(BaseException):
    """The program was killed."""


class World:
    """Nodes and a cluster which only remember what was done; each event can be the last one.

    :ivar done: step and node, in order; empty node for the cluster.
    :ivar dies_at: number of the event before which the program dies; None for never.
    """

    def __init__(self) -> None:
        self.done: list[tuple[str, str]] = []
        self.parameters: list[dict[str, Any]] = []
        self.events = 0
        self.dies_at: int | None = None
        self.failures: dict[tuple[str, str], str] = {}
        self.answers: dict[str, dict[str, Any]] = {}

    def event(self) -> None:
        self.events += 1
        if self.events == self.dies_at:
            raise Died

    # Reach
    def each(self, names: Sequence[str], work: Callable[[str], str]) -> Iterator[tuple[str, str]]:
        for name in names:
            yield name, work(name)

    def spread(self, name: str, package: str) -> None:
        self.event()

    def call(self, name: str, step: str, parameters: dict[str, Any]) -> dict[str, Any]:
        self.event()
        if (step, name) in self.failures:
            raise NodeFailed(self.failures[step, name])
        self.done.append((step, name))
        self.parameters.append(parameters)
        self.event()
        normal = {"compare": {"changed": [], "guests": 1, "domains": 2, "compared": 5}}
        return self.answers.get(step, normal.get(step, {}))

    # ClusterSteps
    def __getattr__(self, name: str) -> Callable[[State], None]:
        if name not in ("inspect", "drain", "open", "verify", "finish"):
            raise AttributeError(name)

        def step(state: State) -> None:
            self.event()
            if (name, "") in self.failures:
                raise errors.OpExecError(self.failures[name, ""])
            self.done.append((name, ""))
            self.event()

        return step


def make(world: World, file: StateFile, state: State, said: list[str] | None = None) -> Run:
    def save(changed: State) -> None:
        world.event()
        file.write(changed)
        world.event()

    return Run(
        state, world, world, save=save, taken_over=7,
        say=(said if said is not None else []).append, clock=lambda: 1000.0,
    )  # fmt: skip


def new_state(direction: str) -> State:
    return State(number=7, direction=direction, master=MASTER)


def in_order(direction: str, done: list[tuple[str, str]]) -> None:
    """Each step on each node comes after all steps before it on all nodes."""
    order = [step.name for step in steps.PLANS[direction]]
    last = {pair: number for number, pair in enumerate(done)}
    first: dict[tuple[str, str], int] = {}
    for number, pair in enumerate(done):
        first.setdefault(pair, number)
    for pair, number in last.items():
        for earlier in order[: order.index(pair[0])]:
            for other in [key for key in first if key[0] == earlier]:
                assert first[other] < number, (earlier, pair)


@pytest.fixture
def file(tmp_path: Path) -> StateFile:
    return StateFile(str(tmp_path / "state"))


@pytest.mark.parametrize("direction", [RUN, BACK])
def test_all_steps_are_done_once_and_in_order(direction: str, file: StateFile) -> None:
    world, state = World(), new_state(direction)
    make(world, file, state).execute(NAMES)
    expected = {
        (step.name, name)
        for step in steps.PLANS[direction]
        for name in {CLUSTER: [""], NODES: NAMES}.get(step.place, [MASTER])
    }
    assert set(world.done) == expected and len(world.done) == len(expected)
    in_order(direction, world.done)
    assert [name for step, name in world.done if step == "stop"] == NAMES
    assert [name for step, name in world.done if step == "start"] == ["node2", "node3", "node1"]
    assert state.done and file.read() == state and state.stopped_at == 1000.0


def count(direction: str) -> int:
    world = World()

    class Nowhere(StateFile):
        def write(self, state: State) -> None:
            return

    make(world, Nowhere("/nowhere"), new_state(direction)).execute(NAMES)
    return world.events


@pytest.mark.parametrize("direction", [RUN, BACK])
def test_a_run_goes_on_after_every_interruption(direction: str, tmp_path: Path) -> None:
    """Killed before and after each call, each step of the cluster, and each write of the record."""
    points = count(direction)
    assert points > 100
    for point in range(1, points + 1):
        file = StateFile(str(tmp_path / f"{point}"))
        state = new_state(direction)
        file.write(state)
        world = World()
        world.dies_at = point
        with pytest.raises(Died):
            make(world, file, state).execute(NAMES)
        before = len(world.done)
        world.dies_at = None
        again = file.read()
        assert again is not None
        make(world, file, again).execute(NAMES)
        in_order(direction, world.done)
        assert again.done
        # Only what was being done is done twice, and the queue is looked at again. Machines may
        # have started again, so nodes are stopped once more until they have been started.
        stopped = [name for name in NAMES if ("stop", name) in world.done[before:]]
        repeated = len(world.done) - len(set(world.done)) - len(stopped)
        assert repeated <= 2, (point, before, world.done)
        ended = {name for name in NAMES if ("stop", name) in world.done[:before]}
        started = {name for name in NAMES if ("start", name) in world.done[:before]}
        assert ended - started <= set(stopped), point


def test_a_failure_names_the_nodes_and_the_next_run_goes_on_there(file: StateFile) -> None:
    world, state = World(), new_state(RUN)
    world.failures = {("install", "node2"): "no space", ("install", "node3"): "no network"}
    with pytest.raises(StepFailed) as info:
        make(world, file, state).execute(NAMES)
    assert info.value.failures == {"node2": "no space", "node3": "no network"}
    assert str(info.value) == "step 'install' failed\nnode2: no space\nnode3: no network"
    assert ("settings", "node1") not in world.done
    world.failures = {}
    before = len(world.done)
    again = file.read()
    assert again is not None
    make(world, file, again).execute(NAMES)
    # Machines may have started again meanwhile.
    assert world.done[before : before + 3] == [("stop", name) for name in NAMES]
    assert world.done[before + 3 : before + 5] == [("install", "node2"), ("install", "node3")]


def test_a_failed_step_of_the_cluster_is_repeated(file: StateFile) -> None:
    world, state = World(), new_state(RUN)
    world.failures = {("verify", ""): "a new error"}
    with pytest.raises(StepFailed, match="a new error"):
        make(world, file, state).execute(NAMES)
    assert ("finish", "") not in world.done
    world.failures = {}
    make(world, file, state).execute(NAMES)
    assert world.done[-2:] == [("verify", ""), ("finish", "")]


def test_a_difference_is_a_failure(file: StateFile) -> None:
    world, state = World(), new_state(RUN)
    world.answers["compare"] = {"changed": ["/etc/x has changed"], "guests": 0, "compared": 1}
    with pytest.raises(StepFailed, match="node1: /etc/x has changed"):
        make(world, file, state).execute(NAMES)


def test_the_queue_is_drained_again_while_the_daemons_run(file: StateFile) -> None:
    world, state = World(), new_state(RUN)
    world.failures = {("stop", MASTER): "does not end"}
    for _ in range(2):
        with pytest.raises(StepFailed):
            make(world, file, state).execute(NAMES)
    assert world.done.count(("drain", "")) == 2
    world.failures = {("archive", "node2"): "disk full"}
    with pytest.raises(StepFailed):
        make(world, file, state).execute(NAMES)
    with pytest.raises(StepFailed):
        make(world, file, state).execute(NAMES)
    assert world.done.count(("drain", "")) == 3


def test_nothing_is_drained_while_no_daemon_runs(file: StateFile) -> None:
    """The way back from a takeover which was broken off after its daemons were stopped."""
    world, state = World(), new_state(BACK)
    state.without_daemons = True
    for name in ("inspect", "drain"):
        state.complete(name)
    make(world, file, state).execute(NAMES)
    assert ("drain", "") not in world.done and ("inspect", "") not in world.done
    assert ("open", "") in world.done and state.done


def test_a_node_which_was_left_out_comes_later(file: StateFile) -> None:
    world, state = World(), new_state(RUN)
    make(world, file, state).execute(NAMES[:2])
    assert state.done
    before = len(world.done)
    make(world, file, state).execute(NAMES)
    later = world.done[before:]
    assert {name for _step, name in later} == {"", "node3"}
    assert [step for step, name in later if not name] == ["open", "verify", "finish"]
    make(world, file, state).execute(NAMES)
    assert len(world.done) == before + len(later)


def test_steps_on_nodes_get_the_parameters_which_they_take(file: StateFile) -> None:
    import inspect

    from ganeti.takeover import node_steps

    for direction in (RUN, BACK):
        run = make(World(), file, new_state(direction))
        for step in steps.PLANS[direction]:
            if step.place != CLUSTER:
                signature = inspect.signature(getattr(node_steps.Node, step.name))
                assert set(run.parameters(step.name)) == set(signature.parameters) - {"self"}
                assert step.name in node_steps.STEPS


def test_remarks_of_nodes_are_shown(file: StateFile) -> None:
    world, said = World(), []
    world.answers["prepare"] = {"missing": ["ganeti"]}
    world.answers["settings"] = {"lost": ['LUXID_ARGS="-d"']}
    world.answers["start"] = {"failed": "ganeti-rapi: no"}
    make(world, file, new_state(RUN), said).execute(["node1"])
    text = "\n".join(said)
    assert "node1: ganeti cannot be downloaded any more" in text
    assert 'this has no effect any more: LUXID_ARGS="-d"' in text
    assert "daemon-util said: ganeti-rapi: no" in text
    assert (
        "files which are the same as before: 5; guests of KVM in the same processes: 1; guests of"
        " Xen in the same domains: 2" in text
    )


def test_the_record_survives_the_way_through_its_file(file: StateFile) -> None:
    state = new_state(RUN)
    state.complete("stop", "node2")
    state.complete("stop", "node2")
    state.complete("drain")
    state.original = {"ganeti": "3.0.2-3"}
    assert parse_state(record.to_text(state)) == state
    assert state.nodes["node2"].steps == ("stop",)
    file.write(state)
    other = State(number=9, direction=BACK, master=MASTER)
    file.write(other)
    assert file.read() == other and file.takeover_before(other) == state


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"format": 2}', '{"format": 1, "number": 1}'])
def test_another_file_is_no_record(text: str) -> None:
    with pytest.raises(errors.ConfigurationError):
        parse_state(text)


def test_without_a_takeover_there_is_none_to_take_back(file: StateFile) -> None:
    assert file.read() is None
    file.write(State(number=9, direction=BACK, master=MASTER))
    with pytest.raises(errors.ConfigurationError, match="no record of a takeover"):
        file.takeover_before(State(number=9, direction=BACK, master=MASTER))
