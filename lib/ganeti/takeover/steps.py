"""The steps of a takeover and of the way back, in their order, and how a run goes through them.

A step concerns the cluster, the master, or each node. Steps on nodes run on several nodes at a
time; where the master must come first or last, it does. After each node the record is written.
When a step fails, the run ends with the nodes and reasons; the next run goes on there.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any, Protocol

from ganeti.cli.remote import NodeFailed
from ganeti.runbook.steps import (
    AMONG,
    CLUSTER,
    FIRST,
    LAST,
    MASTER,
    NODES,
    Step,
    StepFailed,
    execute,
    on_cluster,
)
from ganeti.takeover.state import BACK, RUN, State

_BEFORE = (
    Step("prepare", "Copying the program, and downloading packages", NODES),
    Step("inspect", "Verifying the cluster as it is"),
    Step("drain", "Pausing the watcher, draining the queue and waiting for its jobs"),
    Step("stop", "Stopping the daemons; guests go on", NODES, FIRST),
    Step("archive", "Archiving configuration, keys and queue", NODES),
)
_AFTER = (
    Step("owners", "Setting owners and modes", NODES),
    Step("start", "Starting the daemons", NODES, LAST),
    Step("open", "Opening the queue, and distributing the configuration"),
    Step("compare", "Comparing keys, jobs and guests with what they were", NODES),
    Step("verify", "Verifying the cluster"),
    Step("finish", "Letting the watcher work again"),
)
PLANS: dict[str, tuple[Step, ...]] = {
    RUN: (
        *_BEFORE,
        Step("install", "Replacing the packages", NODES),
        Step("settings", "Carrying over the options of the daemons", NODES),
        Step("upgrade", "Converting the configuration", MASTER),
        *_AFTER,
    ),
    BACK: (
        *_BEFORE,
        Step("downgrade", "Converting the configuration back", MASTER),
        Step("install", "Replacing the packages", NODES),
        Step("settings", "Putting the former options of the daemons back", NODES),
        *_AFTER,
    ),
}
#: Before the end of this step on the master the cluster works as before.
POINT = "stop"
# What is done again when nodes come later, after the cluster has served again.
_AGAIN = ("open", "verify", "finish")


class Reach(Protocol):
    """How the nodes are reached."""

    def each(self, names: Sequence[str], work: Callable[[str], str]) -> Iterable[tuple[str, str]]:
        """Call a function for nodes, several at a time; pairs of node and result, in order."""

    def spread(self, name: str, package: str) -> None:
        """Copy the program and our package to a node.

        :raises NodeFailed: it cannot be done.
        """

    def call(self, name: str, step: str, parameters: dict[str, Any]) -> dict[str, Any]:
        """Carry out a step on a node; returns its answer.

        :raises NodeFailed: it failed, or the node cannot be reached.
        """


class ClusterSteps(Protocol):
    """The steps which concern the cluster; each raises GenericError when it fails."""

    def inspect(self, state: State) -> None:
        """Record what verification finds before anything is changed."""

    def drain(self, state: State) -> None:
        """Pause the watcher and drain the queue; return when no job is left."""

    def open(self, state: State) -> None:
        """Open the queue, and distribute the configuration."""

    def verify(self, state: State) -> None:
        """Check that verification finds nothing which it has not found before."""

    def finish(self, state: State) -> None:
        """Let the watcher work again."""


class Run:
    """One run: a takeover, or the way back.

    :param state: the record; it is changed.
    :param save: writes the record.
    :param taken_over: number of the takeover whose archive has the files of the original.
    :param digest: SHA-256 of our package; empty if apt downloads it.
    :param say: prints a line for people.
    :param clock: seconds since the epoch.
    """

    def __init__(
        self,
        state: State,
        nodes: Reach,
        cluster: ClusterSteps,
        *,
        save: Callable[[State], object],
        taken_over: int,
        digest: str = "",
        say: Callable[[str], object] = print,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._state = state
        self._nodes = nodes
        self._cluster = cluster
        self._save = save
        self._taken_over = taken_over
        self._digest = digest
        self._say = say
        self._clock = clock
        self._names: Sequence[str] = ()
        # Nodes which have been stopped, and whose machine may have started again since then.
        self._stop_again: set[str] = set()

    def execute(self, names: Sequence[str]) -> None:
        """Do all steps which are not complete.

        :param names: the nodes, the master among them.
        :raises StepFailed: a step failed; the record has those before it.
        :raises OSError: the record cannot be written.
        """
        self._names = names
        state = self._state
        plan = PLANS[state.direction]
        late = any(
            not state.is_complete(step.name, name)
            for step in plan
            if step.place == NODES
            for name in names
        )
        if state.is_complete("finish") and late:
            state.cluster = tuple(name for name in state.cluster if name not in _AGAIN)
            state.done = False
        if not state.is_complete(POINT, state.master) and not state.without_daemons:
            # Somebody may have opened the queue meanwhile.
            state.cluster = tuple(name for name in state.cluster if name != "drain")
        self._stop_again = {
            name
            for name in names
            if state.is_complete(POINT, name) and not state.is_complete("start", name)
        }
        execute(plan, self)
        state.done = True
        self._save(state)

    def is_complete(self, step: Step) -> bool:
        """Return True if the record says that a step is complete, on all nodes that it concerns."""
        if step.place == CLUSTER:
            return self._state.is_complete(step.name)
        return not self._pending(step)

    def begin(self, step: Step, label: str) -> bool:
        """Say that a step begins, and on which nodes; record when the first daemon is stopped."""
        where = "" if step.place == CLUSTER else f": {', '.join(self._pending(step))}"
        self._say(f"{label} {step.text}{where}")
        if step.name == POINT and not self._state.stopped_at:
            self._state.stopped_at = self._clock()
            self._save(self._state)
        return True

    def carry_out(self, step: Step) -> None:
        """Do a step on the nodes on which it is not complete, or for the cluster.

        :raises StepFailed: it failed; the record has the nodes on which it is complete.
        """
        state = self._state
        if step.place == CLUSTER:
            on_cluster(step.name, partial(getattr(self._cluster, step.name), state))
            self._note(step.name, None)
            return
        failures: dict[str, str] = {}
        for group in _in_order(step, self._pending(step), state.master):
            for name, reason in self._nodes.each(group, lambda name: self._on_node(step, name)):
                if reason:
                    failures[name] = reason
                else:
                    self._note(step.name, name)
            if failures:
                raise StepFailed(step.name, failures)

    def _pending(self, step: Step) -> list[str]:
        """Return the nodes on which a step is not complete."""
        chosen = [self._state.master] if step.place == MASTER else self._names
        again = self._stop_again if step.name == POINT else ()
        return [
            name for name in chosen if name in again or not self._state.is_complete(step.name, name)
        ]

    def _note(self, step: str, node: str | None) -> None:
        """Record that a step is complete on a node, or for the cluster."""
        if step == POINT and node is not None:
            self._stop_again.discard(node)
        self._state.complete(step, node)
        self._save(self._state)

    def _on_node(self, step: Step, name: str) -> str:
        """Do a step on one node; returns why it failed, or an empty text."""
        try:
            if step.name == "prepare":
                self._nodes.spread(name, self._state.package)
            answer = self._nodes.call(name, step.name, self.parameters(step.name))
        except NodeFailed as err:
            return str(err)
        for line in _remarks(step.name, answer):
            self._say(f"  {name}: {line}")
        if answer.get("changed"):
            return "; ".join(answer["changed"])
        return ""

    def parameters(self, step: str) -> dict[str, Any]:
        """Return the parameters of a step on a node, by name."""
        state = self._state
        known: dict[str, Any] = {
            "package": state.package,
            "digest": self._digest,
            "original": state.original,
            "number": state.number,
            "direction": state.direction,
            "separate_users": state.separate_users,
            "taken_over": self._taken_over,
            "config_version": state.config_version,
        }
        return {name: known[name] for name in _PARAMETERS.get(step, ())}


_PARAMETERS = {
    "prepare": ("package", "digest", "original", "direction"),
    "archive": ("number", "direction"),
    "install": ("package", "original", "direction"),
    "settings": ("number", "direction", "separate_users", "taken_over"),
    "downgrade": ("config_version",),
    "owners": ("direction", "taken_over"),
    "start": ("direction",),
    "compare": ("number", "direction"),
}


def _in_order(step: Step, names: Sequence[str], master: str) -> Iterator[list[str]]:
    if step.order == AMONG or master not in names:
        yield list(names)
        return
    others = [name for name in names if name != master]
    groups = ([master], others) if step.order == FIRST else (others, [master])
    yield from (group for group in groups if group)


def _remarks(step: str, answer: dict[str, Any]) -> Iterator[str]:
    """Yield what a person should know about the answer of a node."""
    for name in answer.get("missing", ()):
        yield f"{name} cannot be downloaded any more; the way back needs it from elsewhere"
    for text in answer.get("lost", ()):
        yield f"/etc/default/ganeti: this has no effect any more: {text}"
    if answer.get("failed"):
        yield f"daemon-util said: {answer['failed']}"
    if step == "compare" and not answer.get("changed"):
        domains = answer.get("domains")
        yield (
            f"files which are the same as before: {answer['compared']};"
            f" guests of KVM in the same processes: {answer['guests']}"
            + (f"; guests of Xen in the same domains: {domains}" if domains else "")
        )
