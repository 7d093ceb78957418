"""Commits while messages to nodes which do not answer are under way."""

from __future__ import annotations

import threading
from collections.abc import Sequence

import pytest

from fakes.config import commit
from ganeti import errors
from ganeti.config import Config, Distribution, DistributionFailure, sending
from ganeti.config.local_file import LocalFile
from ganeti.config.sending import CONFIG, SSCONF
from ganeti.config.store import ConfigStore
from ganeti.objects import ConfigData, updated

from .samples import instance_of, small_cluster, uuid_of
from .store_lab import EC, Disk, Nodes, parsed, sleeping_store, until


def test_a_commit_which_needs_a_node_waits_for_the_older_message_to_it() -> None:
    """The node could get the older state last."""
    nodes = Nodes()
    order: list[str] = []
    sending, let_go = threading.Event(), threading.Event()

    def distribute(what: Distribution) -> Sequence[DistributionFailure]:
        failures = nodes(what)
        if not failures and not sending.is_set():
            sending.set()
            assert let_go.wait(120)
            order.append("older")
        else:
            order.append("newer")
        return failures

    store = sleeping_store(distribute)
    config = Config(store)
    nodes.failures = [
        DistributionFailure(uuid_of(name), CONFIG, "no answer") for name in ("node2", "node3")
    ]
    with pytest.raises(errors.ConfigurationError, match="only 1 of 3"):
        commit(config).ports.allocate()
    order.clear()
    nodes.failures = []
    catching_up = threading.Thread(target=store.copies.catch_up)
    catching_up.start()
    assert sending.wait(120)
    wait = store.copies._under_way.wait

    def waits() -> None:
        let_go.set()
        wait()

    store.copies._under_way.wait = waits  # type: ignore[method-assign]
    commit(config).ports.allocate()
    let_go.set()
    catching_up.join()
    assert order == ["older", "newer"]


class _HangingNodes(Nodes):
    """Nodes which accept everything; those in ``hanging`` wait until they are let go."""

    def __init__(self, *hanging: str) -> None:
        super().__init__()
        self.hanging = {uuid_of(name) for name in hanging}
        self.let_go = threading.Event()
        self.texts: dict[str, bytes] = {}

    def __call__(self, what: Distribution) -> Sequence[DistributionFailure]:
        self.received.append(what)
        hanging = self.hanging & {*what.candidates, *(what.nodes if what.ssconf else ())}
        for kind, uuids in ((CONFIG, what.candidates), (SSCONF, what.nodes if what.ssconf else ())):
            for uuid in uuids:
                if uuid not in hanging:
                    if kind == CONFIG:
                        self.texts[uuid] = what.text
                    what.accepted(uuid, kind)
        if hanging:
            self.let_go.wait()
        for uuid in hanging & set(what.candidates):
            self.texts[uuid] = what.text
        return self.failures


def _impatient_store(nodes: Nodes, data: ConfigData | None = None) -> ConfigStore:
    return ConfigStore(
        LocalFile("config.data", Disk().write),
        data or small_cluster(),
        distribute=nodes,
        catch_up_s=(0.001, 0.002),
        patience_s=0.001,
    )


def test_a_hanging_candidate_stops_no_change() -> None:
    """The other candidates are a majority: the first change and all later ones return."""
    nodes = _HangingNodes("node2")
    store = _impatient_store(nodes)
    config = Config(store)
    for _ in range(3):
        commit(config).ports.allocate()
    commit(config).instances.add(instance_of(2), [], EC)
    assert config.lagging() == {uuid_of("node2"): {CONFIG, SSCONF}}
    hung = [what for what in nodes.received if uuid_of("node2") in what.candidates]
    assert len(hung) == 1, "one message at a time goes to a node which hangs"
    nodes.hanging.clear()
    nodes.let_go.set()
    until(lambda: config.lagging() == {})
    assert parsed(nodes.texts[uuid_of("node2")]) == config.snapshot()


def test_a_node_gets_nothing_while_an_older_message_to_it_is_under_way() -> None:
    """Also when it was offline in the meantime, so that nothing is known of it any more."""
    nodes = _HangingNodes("node2")
    config = Config(_impatient_store(nodes))
    node2 = uuid_of("node2")
    commit(config).ports.allocate()
    for offline in (True, False):
        with config.transaction() as change:
            change.nodes.update(
                updated(config.node(node2), offline=offline, master_candidate=not offline)
            )
    hung = [what for what in nodes.received if node2 in what.candidates]
    assert len(hung) == 1
    nodes.hanging.clear()
    nodes.let_go.set()
    until(lambda: config.lagging() == {})
    assert parsed(nodes.texts[node2]) == config.snapshot()


def test_threads_which_send_end_when_they_have_no_work(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sending, "_IDLE_S", 0.001)
    store = _impatient_store(_HangingNodes())
    config = Config(store)
    for _ in range(3):
        commit(config).ports.allocate()
        until(lambda: store.copies._threads._idle == [])
    assert config.lagging() == {}


def test_a_hanging_node_which_is_no_candidate_stops_no_change() -> None:
    nodes = _HangingNodes("node3")
    data = small_cluster()
    regular = updated(data.nodes[uuid_of("node3")], master_candidate=False)
    config = Config(
        _impatient_store(nodes, updated(data, nodes={**data.nodes, regular.uuid: regular}))
    )
    for number in (2, 3):
        commit(config).instances.add(instance_of(number), [], EC)
    assert config.lagging() == {regular.uuid: {SSCONF}}
    nodes.let_go.set()
    until(lambda: config.lagging() == {})


def test_a_change_waits_for_hanging_candidates_when_they_are_needed() -> None:
    nodes = _HangingNodes("node2", "node3")
    config = Config(_impatient_store(nodes))
    thread = threading.Thread(target=commit(config).ports.allocate)
    thread.start()
    until(lambda: bool(nodes.received))
    thread.join(0.05)
    assert thread.is_alive(), "one of three candidates is not a majority"
    nodes.let_go.set()
    thread.join()
    until(lambda: config.lagging() == {})


def test_the_refusal_of_a_node_which_hung_is_noted() -> None:
    nodes = _HangingNodes("node2")
    nodes.failures = [DistributionFailure(uuid_of("node2"), CONFIG, "disk is full")]
    store = _impatient_store(nodes)
    config = Config(store)
    commit(config).ports.allocate()
    nodes.let_go.set()
    until(lambda: len([one for one in nodes.received if len(one.candidates) == 1]) > 2)
    assert config.lagging() == {uuid_of("node2"): {CONFIG}}
    nodes.failures = []
    until(lambda: config.lagging() == {})


def test_an_error_after_a_commit_did_not_wait_leaves_the_node_lagging() -> None:
    nodes = _HangingNodes("node2")
    broken: list[str] = []

    def distribute(what: Distribution) -> Sequence[DistributionFailure]:
        failures = nodes(what)
        if not broken:
            broken.append("once")
            raise errors.ProgrammerError("no such thing")
        return failures

    config = Config(_impatient_store(distribute))  # type: ignore[arg-type]
    commit(config).ports.allocate()
    nodes.let_go.set()
    until(lambda: config.lagging() == {})
    assert parsed(nodes.texts[uuid_of("node2")]) == config.snapshot()


def _overtaken(nodes: Nodes) -> ConfigStore:
    """A store in which somebody else commits while the first catch-up waits for its answer."""
    committed: list[int] = []

    def distribute(what: Distribution) -> Sequence[DistributionFailure]:
        answer = nodes(what)
        if what.candidates == (uuid_of("node2"),) and not committed:
            committed.append(commit(Config(store)).ports.allocate())
        return answer

    store = sleeping_store(distribute)
    return store


def test_a_commit_during_a_catch_up_goes_ahead_and_is_sent_after_it() -> None:
    nodes = Nodes()
    store = _overtaken(nodes)
    config = Config(store)
    nodes.failures = [DistributionFailure(uuid_of("node2"), CONFIG, "no answer")]
    commit(config).ports.allocate()
    nodes.failures = []
    sent = len(nodes.received)
    assert not store.copies.catch_up()
    assert len(nodes.received) == sent + 2, "the catch-up and the commit meanwhile"
    assert config.lagging() == {uuid_of("node2"): {CONFIG}}
    assert store.copies.catch_up()
    assert nodes.received[-1].candidates == (uuid_of("node2"),)
    assert parsed(nodes.received[-1].text) == config.snapshot()


def test_a_commit_brings_up_to_date_who_was_overtaken_by_another() -> None:
    nodes = Nodes()
    store = _overtaken(nodes)
    config = Config(store)
    nodes.failures = [
        DistributionFailure(uuid_of("node2"), what, "no answer") for what in (CONFIG, SSCONF)
    ]
    commit(config).instances.add(instance_of(2), [], EC)
    nodes.failures = []
    assert not store.copies.catch_up()
    commit(config).ports.allocate()
    assert nodes.received[-1].candidates == (uuid_of("node2"), uuid_of("node3"))
    assert nodes.received[-1].ssconf is not None
    assert config.lagging() == {}
