"""What the master records of the watchdogs of nodes, and in which order it releases them."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from fakes.config import cluster_of, commit, uuid_of
from fakes.master import Master
from ganeti import errors
from ganeti.constants import node_watchdog as const
from ganeti.master import watchdog_records
from ganeti.objects import WatchdogPromise, updated
from ganeti.objects.transfer import WatchdogStatus

TOKEN = "12345678-1234-1234-1234-123456789012"
NODE2 = uuid_of("node2")
ARMED = WatchdogStatus(state=const.ARMED, token=TOKEN, timeout_s=10, promised=TOKEN)
KEPT = WatchdogPromise(token=TOKEN, timeout_s=10)
LEFT = dataclasses.replace(KEPT, left_at=5.0)


def made(status: WatchdogStatus, known: WatchdogPromise | None = None) -> Master:
    """A master whose second node says that, and the others nothing."""
    master = Master(cluster_of(3))
    cluster = dataclasses.replace(master.config.cluster(), node_watchdog=10)
    commit(master.config).cluster.update(cluster)
    if known is not None:
        commit(master.config).nodes.update(updated(master.config.node(NODE2), watchdog=known))
    quiet = WatchdogStatus(state=const.NONE)

    def answer(node: str, _args: dict[str, Any]) -> WatchdogStatus:
        return status if node == "node2.example.com" else quiet

    master.rpc.answers["watchdog_status"] = answer
    master.rpc.answers["watchdog_release"] = None
    return master


def look(master: Master, busy: tuple[str, ...] = ()) -> WatchdogPromise | None:
    watchdog_records.poll(master.config, master.rpc, busy)  # type: ignore[arg-type]
    return master.config.node(NODE2).watchdog


def test_a_promise_is_recorded() -> None:
    assert look(made(ARMED)) == KEPT


def test_nothing_is_written_when_nothing_has_changed() -> None:
    master = made(ARMED, KEPT)
    before = master.config.snapshot().serial_no
    assert look(master) == KEPT
    assert master.config.snapshot().serial_no == before


def test_the_record_goes_before_the_node_is_released() -> None:
    master = made(dataclasses.replace(ARMED, state=const.RELEASE, text="it is stopped"), KEPT)
    seen: list[Any] = []

    def release(_node: str, args: dict[str, Any]) -> None:
        seen.append((args["token"], master.config.node(NODE2).watchdog))

    master.rpc.answers["watchdog_release"] = release
    look(master)
    assert seen == [(TOKEN, WatchdogPromise(reason="it is stopped"))]


def test_without_a_majority_nobody_is_released(monkeypatch: pytest.MonkeyPatch) -> None:
    master = made(dataclasses.replace(ARMED, state=const.RELEASE, text="it is stopped"), KEPT)

    def fail() -> None:
        raise errors.ConfigurationError("only 1 of 3 master candidates")

    monkeypatch.setattr(master.config, "require_committed", fail)
    look(master)
    assert master.rpc.of("watchdog_release") == []


@pytest.mark.parametrize(
    ("promised", "record"),
    [(TOKEN, KEPT), ("", WatchdogPromise(reason="it does not run"))],
)
def test_a_restarting_daemon_keeps_its_record_and_a_lost_promise_does_not(
    promised: str, record: WatchdogPromise
) -> None:
    status = WatchdogStatus(state=const.NONE, text="it does not run", promised=promised)
    assert look(made(status, KEPT)) == record


def test_a_node_which_answers_is_not_left_behind_any_more() -> None:
    assert look(made(ARMED, LEFT)) == KEPT
    # Except while its failover is running.
    assert look(made(ARMED, LEFT), (NODE2,)) == LEFT


def test_a_node_which_does_not_answer_keeps_its_record() -> None:
    master = made(ARMED, LEFT)
    master.rpc.errors["watchdog_status", "node2.example.com"] = errors.NodeUnreachable(
        "node2.example.com", "watchdog_status", "no route to host"
    )
    assert look(master) == LEFT


def test_switched_off_nobody_is_asked() -> None:
    master = made(ARMED)
    cluster = dataclasses.replace(master.config.cluster(), node_watchdog=None)
    commit(master.config).cluster.update(cluster)
    assert look(master) is None
    assert master.rpc.of("watchdog_status") == []
