"""Transactions, commits, and what happens when the disk or the other nodes say no."""

from __future__ import annotations

import errno
import json
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from fakes.config import commit
from ganeti import errors
from ganeti.config import Config, Distribution, DistributionFailure, sending
from ganeti.config import store as store_module
from ganeti.config.index_keys import INSTANCE_NAME
from ganeti.config.sending import CONFIG, SSCONF
from ganeti.config.store import ConfigStore
from ganeti.config.text import ConfigText
from ganeti.configfile.files import write_config_file
from ganeti.objects import ConfigData, codec, updated
from ganeti.utils import retry

from .samples import disk_of, group_of, instance_of, node_of, small_cluster, uuid_of

EC = "job-1"


class _Disk:
    """A file in memory which can be full, and can be stopped in the middle of a write."""

    def __init__(self) -> None:
        self.written: list[bytes] = []
        self.error: OSError | None = None
        self.fails_once = False
        self.gate: threading.Event | None = None
        self.entered = threading.Event()

    def write(self, path: str, text: Sequence[bytes]) -> None:
        self.entered.set()
        if self.gate is not None:
            self.gate.wait()
        if self.error is not None:
            error = self.error
            if self.fails_once:
                self.error = None
            raise error
        self.written.append(b"".join(text))


class _Nodes:
    """The other nodes."""

    def __init__(self) -> None:
        self.received: list[Distribution] = []
        self.failures: list[DistributionFailure] = []

    def __call__(self, what: Distribution) -> Sequence[DistributionFailure]:
        self.received.append(what)
        return self.failures


def _config(disk: _Disk, nodes: _Nodes | None = None, data: ConfigData | None = None) -> Config:
    return Config(
        ConfigStore(
            "config.data",
            data or small_cluster(),
            distribute=nodes,
            now=lambda: 2000.0,
            write=disk.write,
        )
    )


def _parse(text: bytes) -> ConfigData:
    return codec.from_dict(ConfigData, json.loads(text))


def _until(condition: Callable[[], bool]) -> None:
    """Wait for another thread to get somewhere."""
    retry.until(lambda: _again(condition()), timeout_s=120, delay=(0.001, 1, 0.001))


def _again(reached: bool) -> None:
    if not reached:
        raise retry.Again


def test_a_change_is_written_before_it_returns() -> None:
    disk = _Disk()
    config = _config(disk)
    before = config.snapshot()
    commit(config).add_instance(instance_of(1), [disk_of(1)], EC)
    assert config.snapshot() is not before
    assert len(before.instances) == 0
    written = _parse(disk.written[-1])
    assert written == config.snapshot()
    assert written.serial_no == before.serial_no + 1
    assert written.mtime == 2000.0
    instance = written.instances[instance_of(1).uuid]
    assert (instance.serial_no, instance.ctime, instance.mtime) == (1, 2000.0, 2000.0)


def test_the_text_is_what_the_codec_says_after_any_change() -> None:
    disk = _Disk()
    config = _config(disk)
    commit(config).add_instance(instance_of(1), [disk_of(1)], EC)
    commit(config).add_instance(instance_of(2), [], EC)
    commit(config).mark_instance(instance_of(1).uuid, "up")
    commit(config).remove_instance(instance_of(1).uuid)
    commit(config).add_group(group_of(7), EC)
    commit(config).allocate_port()
    for text in disk.written:
        assert json.loads(text) == json.loads(
            b"".join(ConfigText(_parse(text)).render(_parse(text), ()))
        )
    assert _parse(disk.written[-1]) == config.snapshot()
    assert list(config.snapshot().instances) == [instance_of(2).uuid]


def test_an_exception_in_the_block_changes_nothing() -> None:
    disk = _Disk()
    config = _config(disk)
    before = config.snapshot()
    with pytest.raises(KeyError), config.transaction() as change:
        change.add_instance(instance_of(1), [disk_of(1)], EC)
        raise KeyError
    assert config.snapshot() is before
    assert disk.written == []


def test_no_change_no_write() -> None:
    disk = _Disk()
    config = _config(disk)
    with config.transaction() as change:
        assert change.data is config.snapshot()
    assert disk.written == []


def test_a_transaction_sees_its_own_changes_and_others_do_not() -> None:
    config = _config(_Disk())
    with config.transaction() as change:
        change.add_instance(instance_of(1), [disk_of(1)], EC)
        change.mark_instance(instance_of(1).uuid, "up")
        assert change.data.instances[instance_of(1).uuid].admin_state == "up"
        assert config.snapshot().instances == {}
    assert config.instance(instance_of(1).uuid).admin_state == "up"


def test_a_transaction_in_a_transaction_is_refused() -> None:
    config = _config(_Disk())
    with config.transaction(), pytest.raises(errors.ProgrammerError), config.transaction():
        pass


def test_a_full_disk_changes_nothing() -> None:
    disk = _Disk()
    config = _config(disk)
    commit(config).add_instance(instance_of(1), [disk_of(1)], EC)
    before = config.snapshot()
    disk.error = OSError(errno.ENOSPC, "No space left on device")
    with pytest.raises(
        errors.ConfigurationError,
        match=r"cannot write config.data: No space left on device. Nothing was",
    ):
        commit(config).mark_instance(instance_of(1).uuid, "up")
    assert config.snapshot() is before
    disk.error = None
    commit(config).set_disks_active(instance_of(1).uuid, True)
    written = _parse(disk.written[-1])
    assert written == config.snapshot()
    assert written.instances[instance_of(1).uuid].admin_state == "down"
    assert written.instances[instance_of(1).uuid].disks_active


def test_many_wait_for_one_write() -> None:
    disk = _Disk()
    disk.gate = threading.Event()
    nodes = _Nodes()
    config = _config(disk, nodes)
    threads = [
        threading.Thread(
            target=commit(config).add_instance, args=(instance_of(number), [], EC), daemon=True
        )
        for number in range(2, 12)
    ]
    threads[0].start()
    _until(disk.entered.is_set)
    for thread in threads[1:]:
        thread.start()
    _until(lambda: len(config._store._queue) == 9)
    assert len(config.snapshot().instances) == 0
    disk.gate.set()
    for thread in threads:
        thread.join()
    assert len(disk.written) == 2
    assert len(nodes.received) == 2
    assert len(config.snapshot().instances) == 10
    assert _parse(disk.written[-1]) == config.snapshot()


@pytest.mark.parametrize("fails_once", [False, True])
def test_what_was_built_on_a_lost_change_is_lost_with_it(fails_once: bool) -> None:
    disk = _Disk()
    disk.fails_once = fails_once
    config = _config(disk)
    commit(config).add_instance(instance_of(1), [disk_of(1)], EC)
    disk.gate = threading.Event()
    disk.entered.clear()
    disk.error = OSError(errno.EIO, "Input/output error")
    refused: list[str] = []

    def change(number: int) -> None:
        try:
            commit(config).add_instance(instance_of(number), [], EC)
        except errors.ConfigurationError as err:
            refused.append(str(err))

    threads = [threading.Thread(target=change, args=(number,), daemon=True) for number in (2, 3, 4)]
    threads[0].start()
    _until(disk.entered.is_set)
    for thread in threads[1:]:
        thread.start()
    _until(lambda: len(config._store._queue) == 2)
    disk.gate.set()
    for thread in threads:
        thread.join()
    assert len(refused) == 3
    assert list(config.snapshot().instances) == [instance_of(1).uuid]
    disk.gate, disk.error = None, None
    commit(config).add_instance(instance_of(5), [], EC)
    assert _parse(disk.written[-1]) == config.snapshot()
    assert set(config.snapshot().instances) == {instance_of(1).uuid, instance_of(5).uuid}


def test_distribution_goes_to_candidates_and_ssconf_to_all_online() -> None:
    disk, nodes = _Disk(), _Nodes()
    data = small_cluster(
        5, {4: {"master_candidate": False}, 5: {"master_candidate": False, "offline": True}}
    )
    config = _config(disk, nodes, data)
    commit(config).add_instance(instance_of(1), [disk_of(1)], EC)
    first = nodes.received[-1]
    assert first.candidates == (uuid_of("node2"), uuid_of("node3"))
    assert first.nodes == tuple(uuid_of(f"node{number}") for number in range(1, 5))
    assert first.text == disk.written[-1]
    assert first.ssconf is not None
    assert first.ssconf["instance_list"] == "instance1.example.com\n"
    commit(config).mark_instance(instance_of(1).uuid, "up")
    assert nodes.received[-1].ssconf is None
    commit(config).remove_instance(instance_of(1).uuid)
    # Nothing else has changed for those who have all the rest.
    assert nodes.received[-1].ssconf == {"instance_list": ""}
    commit(config).add_node(node_of(9), EC)
    last = nodes.received[-1].ssconf
    assert last is not None
    assert {"instance_list", "node_list", "cluster_name"} < last.keys()


def test_a_new_node_is_in_the_state_which_is_distributed() -> None:
    nodes = _Nodes()
    config = _config(_Disk(), nodes)
    commit(config).add_node(node_of(9), EC)
    assert uuid_of("node9") in nodes.received[-1].candidates
    assert uuid_of("node9") in nodes.received[-1].data.nodes


def test_a_minority_of_candidates_may_fail() -> None:
    nodes = _Nodes()
    config = _config(_Disk(), nodes)
    nodes.failures = [DistributionFailure(uuid_of("node2"), CONFIG, "no answer")]
    commit(config).add_instance(instance_of(1), [disk_of(1)], EC)
    assert instance_of(1).uuid in config.snapshot().instances


def test_without_a_majority_the_change_is_not_acknowledged() -> None:
    disk, nodes = _Disk(), _Nodes()
    config = _config(disk, nodes)
    nodes.failures = [
        DistributionFailure(uuid_of(name), CONFIG, "no answer") for name in ("node2", "node3")
    ]
    with pytest.raises(
        errors.ConfigurationError,
        match=r"only 1 of 3 master candidates have it \(node2.example.com: no",
    ):
        commit(config).add_instance(instance_of(1), [disk_of(1)], EC)
    assert _parse(disk.written[-1]) == config.snapshot()
    # Taking them out of service needs no majority of those who are gone.
    with config.transaction() as change:
        for name in ("node2", "node3"):
            change.update_node(
                updated(config.node(uuid_of(name)), offline=True, master_candidate=False)
            )


def test_who_missed_ssconf_gets_it_with_the_next_change() -> None:
    nodes = _Nodes()
    config = _config(_Disk(), nodes)
    nodes.failures = [DistributionFailure(uuid_of("node3"), SSCONF, "disk full")]
    commit(config).add_instance(instance_of(1), [disk_of(1)], EC)
    nodes.failures = []
    commit(config).mark_instance(instance_of(1).uuid, "up")
    assert nodes.received[-1].ssconf is not None
    commit(config).mark_instance(instance_of(1).uuid, "down")
    assert nodes.received[-1].ssconf is None


def test_who_missed_something_is_tried_again() -> None:
    nodes = _Nodes()
    store = ConfigStore("config.data", small_cluster(), distribute=nodes, write=_Disk().write)
    config = Config(store)
    nodes.failures = [
        DistributionFailure(uuid_of("node2"), CONFIG, "no answer"),
        DistributionFailure(uuid_of("node2"), SSCONF, "no answer"),
        DistributionFailure(uuid_of("node3"), SSCONF, "no answer"),
    ]
    commit(config).add_instance(instance_of(2), [], EC)
    assert config.lagging() == {uuid_of("node2"): {CONFIG, SSCONF}, uuid_of("node3"): {SSCONF}}
    nodes.failures = nodes.failures[:2]
    assert not store.catch_up()
    tried = nodes.received[-1]
    assert tried.candidates == (uuid_of("node2"),)
    assert tried.nodes == (uuid_of("node2"), uuid_of("node3"))
    assert tried.ssconf is not None
    assert _parse(tried.text) == config.snapshot()
    assert config.lagging() == {uuid_of("node2"): {CONFIG, SSCONF}}
    nodes.failures = []
    assert store.catch_up()
    assert nodes.received[-1].nodes == (uuid_of("node2"),)
    number = len(nodes.received)
    assert store.catch_up()
    assert len(nodes.received) == number


def test_who_goes_offline_is_not_waited_for() -> None:
    nodes = _Nodes()
    config = _config(_Disk(), nodes)
    nodes.failures = [DistributionFailure(uuid_of("node2"), CONFIG, "no answer")]
    commit(config).add_instance(instance_of(2), [], EC)
    commit(config).update_node(
        updated(config.node(uuid_of("node2")), offline=True, master_candidate=False)
    )
    assert config._store.catch_up()
    assert config.lagging() == {}


def test_who_is_no_candidate_any_more_needs_no_configuration() -> None:
    nodes = _Nodes()
    config = _config(_Disk(), nodes)
    nodes.failures = [DistributionFailure(uuid_of("node2"), CONFIG, "no answer")]
    commit(config).add_instance(instance_of(2), [], EC)
    commit(config).update_node(updated(config.node(uuid_of("node2")), master_candidate=False))
    assert config._store.catch_up()
    assert config.lagging() == {}


def test_a_thread_tries_until_all_have_it() -> None:
    nodes = _Nodes()
    config = Config(
        ConfigStore(
            "config.data",
            small_cluster(),
            distribute=nodes,
            write=_Disk().write,
            catch_up_s=(0.001, 0.002),
        )
    )
    for _ in range(2):
        nodes.failures = [DistributionFailure(uuid_of("node2"), CONFIG, "no answer")]
        commit(config).allocate_port()
        seen = len(nodes.received)
        _until(lambda seen=seen: len(nodes.received) > seen + 3)
        assert config.lagging() == {uuid_of("node2"): {CONFIG}}
        nodes.failures = []
        _until(lambda: config.lagging() == {})
        _until(lambda: config._store._catching_up is None)
    assert _parse(nodes.received[-1].text) == config.snapshot()


def _sleeping_store(
    nodes: Callable[[Distribution], Sequence[DistributionFailure]], data: ConfigData | None = None
) -> ConfigStore:
    """A store whose thread for lagging nodes exists, but sleeps for long."""
    return ConfigStore(
        "config.data",
        data or small_cluster(),
        distribute=nodes,
        write=_Disk().write,
        catch_up_s=(3600.0, 3600.0),
    )


def test_commits_do_not_wait_for_lagging_candidates() -> None:
    nodes = _Nodes()
    store = _sleeping_store(nodes)
    config = Config(store)
    nodes.failures = [DistributionFailure(uuid_of("node2"), CONFIG, "no answer")]
    commit(config).allocate_port()
    assert nodes.received[-1].candidates == (uuid_of("node2"), uuid_of("node3"))
    nodes.failures = []
    commit(config).allocate_port()
    assert nodes.received[-1].candidates == (uuid_of("node3"),)
    assert config.lagging() == {uuid_of("node2"): {CONFIG}}
    commit(config).add_instance(instance_of(2), [], EC)
    assert nodes.received[-1].ssconf is not None
    assert uuid_of("node2") not in nodes.received[-1].nodes
    assert config.lagging() == {uuid_of("node2"): {CONFIG, SSCONF}}
    assert store.catch_up()
    assert _parse(nodes.received[-1].text) == config.snapshot()
    commit(config).allocate_port()
    assert nodes.received[-1].candidates == (uuid_of("node2"), uuid_of("node3"))
    assert nodes.received[-1].ssconf is None


def test_a_lagging_node_is_asked_when_the_others_are_no_majority() -> None:
    nodes = _Nodes()
    config = Config(_sleeping_store(nodes))
    nodes.failures = [
        DistributionFailure(uuid_of(name), CONFIG, "no answer") for name in ("node2", "node3")
    ]
    with pytest.raises(errors.ConfigurationError, match="only 1 of 3"):
        commit(config).allocate_port()
    nodes.failures = nodes.failures[:1]
    commit(config).allocate_port()
    assert nodes.received[-1].candidates == (uuid_of("node2"), uuid_of("node3"))
    assert config.lagging() == {uuid_of("node2"): {CONFIG}}


def test_a_candidate_which_was_left_out_does_not_count() -> None:
    """With two of four candidates nothing is acknowledged, although only one failed just now."""
    nodes = _Nodes()
    config = Config(_sleeping_store(nodes, small_cluster(4)))
    nodes.failures = [DistributionFailure(uuid_of("node2"), CONFIG, "no answer")]
    commit(config).allocate_port()
    nodes.failures = [DistributionFailure(uuid_of("node3"), CONFIG, "disk full")]
    with pytest.raises(errors.ConfigurationError, match="only 2 of 4 master candidates") as caught:
        commit(config).allocate_port()
    assert uuid_of("node2") not in nodes.received[-1].candidates
    assert "node2.example.com: it did not answer before" in str(caught.value)


def test_a_commit_which_needs_a_node_waits_for_the_older_message_to_it() -> None:
    """The node could get the older state last."""
    nodes = _Nodes()
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

    store = _sleeping_store(distribute)
    config = Config(store)
    nodes.failures = [
        DistributionFailure(uuid_of(name), CONFIG, "no answer") for name in ("node2", "node3")
    ]
    with pytest.raises(errors.ConfigurationError, match="only 1 of 3"):
        commit(config).allocate_port()
    order.clear()
    nodes.failures = []
    catching_up = threading.Thread(target=store.catch_up)
    catching_up.start()
    assert sending.wait(120)
    wait = store._under_way.wait

    def waits() -> None:
        let_go.set()
        wait()

    store._under_way.wait = waits  # type: ignore[method-assign]
    commit(config).allocate_port()
    let_go.set()
    catching_up.join()
    assert order == ["older", "newer"]


class _HangingNodes(_Nodes):
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


def _impatient_store(nodes: _Nodes, data: ConfigData | None = None) -> ConfigStore:
    return ConfigStore(
        "config.data",
        data or small_cluster(),
        distribute=nodes,
        write=_Disk().write,
        catch_up_s=(0.001, 0.002),
        patience_s=0.001,
    )


def test_a_hanging_candidate_stops_no_change() -> None:
    """The other candidates are a majority: the first change and all later ones return."""
    nodes = _HangingNodes("node2")
    store = _impatient_store(nodes)
    config = Config(store)
    for _ in range(3):
        commit(config).allocate_port()
    commit(config).add_instance(instance_of(2), [], EC)
    assert config.lagging() == {uuid_of("node2"): {CONFIG, SSCONF}}
    hung = [what for what in nodes.received if uuid_of("node2") in what.candidates]
    assert len(hung) == 1, "one message at a time goes to a node which hangs"
    nodes.hanging.clear()
    nodes.let_go.set()
    _until(lambda: config.lagging() == {})
    assert _parse(nodes.texts[uuid_of("node2")]) == config.snapshot()


def test_a_node_gets_nothing_while_an_older_message_to_it_is_under_way() -> None:
    """Also when it was offline in the meantime, so that nothing is known of it any more."""
    nodes = _HangingNodes("node2")
    config = Config(_impatient_store(nodes))
    node2 = uuid_of("node2")
    commit(config).allocate_port()
    for offline in (True, False):
        with config.transaction() as change:
            change.update_node(
                updated(config.node(node2), offline=offline, master_candidate=not offline)
            )
    hung = [what for what in nodes.received if node2 in what.candidates]
    assert len(hung) == 1
    nodes.hanging.clear()
    nodes.let_go.set()
    _until(lambda: config.lagging() == {})
    assert _parse(nodes.texts[node2]) == config.snapshot()


def test_threads_which_send_end_when_they_have_no_work(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sending, "_IDLE_S", 0.001)
    store = _impatient_store(_HangingNodes())
    config = Config(store)
    for _ in range(3):
        commit(config).allocate_port()
        _until(lambda: store._threads._idle == [])
    assert config.lagging() == {}


def test_a_hanging_node_which_is_no_candidate_stops_no_change() -> None:
    nodes = _HangingNodes("node3")
    data = small_cluster()
    regular = updated(data.nodes[uuid_of("node3")], master_candidate=False)
    config = Config(
        _impatient_store(nodes, updated(data, nodes={**data.nodes, regular.uuid: regular}))
    )
    for number in (2, 3):
        commit(config).add_instance(instance_of(number), [], EC)
    assert config.lagging() == {regular.uuid: {SSCONF}}
    nodes.let_go.set()
    _until(lambda: config.lagging() == {})


def test_a_change_waits_for_hanging_candidates_when_they_are_needed() -> None:
    nodes = _HangingNodes("node2", "node3")
    config = Config(_impatient_store(nodes))
    thread = threading.Thread(target=commit(config).allocate_port)
    thread.start()
    _until(lambda: bool(nodes.received))
    thread.join(0.05)
    assert thread.is_alive(), "one of three candidates is no majority"
    nodes.let_go.set()
    thread.join()
    _until(lambda: config.lagging() == {})


def test_the_refusal_of_a_node_which_hung_is_noted() -> None:
    nodes = _HangingNodes("node2")
    nodes.failures = [DistributionFailure(uuid_of("node2"), CONFIG, "disk is full")]
    store = _impatient_store(nodes)
    config = Config(store)
    commit(config).allocate_port()
    nodes.let_go.set()
    _until(lambda: len([one for one in nodes.received if len(one.candidates) == 1]) > 2)
    assert config.lagging() == {uuid_of("node2"): {CONFIG}}
    nodes.failures = []
    _until(lambda: config.lagging() == {})


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
    commit(config).allocate_port()
    nodes.let_go.set()
    _until(lambda: config.lagging() == {})
    assert _parse(nodes.texts[uuid_of("node2")]) == config.snapshot()


def _overtaken(nodes: _Nodes) -> ConfigStore:
    """A store in which somebody else commits while the first catch-up waits for its answer."""
    committed: list[int] = []

    def distribute(what: Distribution) -> Sequence[DistributionFailure]:
        answer = nodes(what)
        if what.candidates == (uuid_of("node2"),) and not committed:
            committed.append(commit(Config(store)).allocate_port())
        return answer

    store = _sleeping_store(distribute)
    return store


def test_a_commit_during_a_catch_up_goes_ahead_and_is_sent_after_it() -> None:
    nodes = _Nodes()
    store = _overtaken(nodes)
    config = Config(store)
    nodes.failures = [DistributionFailure(uuid_of("node2"), CONFIG, "no answer")]
    commit(config).allocate_port()
    nodes.failures = []
    sent = len(nodes.received)
    assert not store.catch_up()
    assert len(nodes.received) == sent + 2, "the catch-up and the commit meanwhile"
    assert config.lagging() == {uuid_of("node2"): {CONFIG}}
    assert store.catch_up()
    assert nodes.received[-1].candidates == (uuid_of("node2"),)
    assert _parse(nodes.received[-1].text) == config.snapshot()


def test_a_commit_brings_up_to_date_who_was_overtaken_by_another() -> None:
    nodes = _Nodes()
    store = _overtaken(nodes)
    config = Config(store)
    nodes.failures = [
        DistributionFailure(uuid_of("node2"), what, "no answer") for what in (CONFIG, SSCONF)
    ]
    commit(config).add_instance(instance_of(2), [], EC)
    nodes.failures = []
    assert not store.catch_up()
    commit(config).allocate_port()
    assert nodes.received[-1].candidates == (uuid_of("node2"), uuid_of("node3"))
    assert nodes.received[-1].ssconf is not None
    assert config.lagging() == {}


def test_a_commit_reaches_nodes_which_are_lagging_since_an_earlier_master() -> None:
    """They were not asked yet: nobody knows that they would not answer."""
    nodes = _Nodes()
    store = _sleeping_store(nodes)
    config = Config(store)
    me, other = config.master_node().uuid, uuid_of("node2")
    store.expect_lagging([other], [me, other])
    nodes.failures = [DistributionFailure(other, what, "no answer") for what in (CONFIG, SSCONF)]
    commit(config).allocate_port()
    sent = nodes.received[-1]
    assert other in sent.candidates
    assert set(sent.nodes) >= {me, other}
    assert sent.ssconf == store._ssconf
    assert config.lagging() == {other: {CONFIG, SSCONF}}
    commit(config).allocate_port()
    assert other not in nodes.received[-1].candidates


def test_no_commit_waits_for_a_node_which_has_just_not_answered() -> None:
    nodes = _Nodes()
    store = _sleeping_store(nodes)
    config = Config(store)
    other = uuid_of("node2")
    store.expect_lagging([other], [other], [other])
    commit(config).allocate_port()
    assert other not in nodes.received[-1].candidates
    assert config.lagging() == {other: {CONFIG, SSCONF}}
    store.catch_up()
    assert config.lagging() == {}


def test_a_distribution_which_breaks_tells_everybody() -> None:
    config = _config(_Disk())

    def broken(what: Distribution) -> Sequence[DistributionFailure]:
        raise errors.ConfigurationError("no client certificate")

    config.use_distribution(broken)
    with pytest.raises(errors.ConfigurationError, match="no client certificate"):
        commit(config).add_instance(instance_of(1), [disk_of(1)], EC)
    config.use_distribution(_Nodes())
    commit(config).add_instance(instance_of(2), [], EC)
    assert len(config.snapshot().instances) == 2


def test_redistribution_sends_everything() -> None:
    nodes = _Nodes()
    config = _config(_Disk(), nodes)
    failure = DistributionFailure(uuid_of("node3"), SSCONF, "disk full")
    nodes.failures = [failure]
    assert config.redistribute() == [failure]
    assert _parse(nodes.received[-1].text) == config.snapshot()
    assert nodes.received[-1].ssconf is not None


def test_the_file_is_written_whole_with_its_mode(tmp_path: Path) -> None:
    path = tmp_path / "config.data"
    write_config_file(str(path), b"{}")
    assert path.read_bytes() == b"{}"
    assert path.stat().st_mode & 0o777 == 0o640


def _made_from(parts: Sequence[tuple[int, int] | bytes], base: bytes) -> bytes:
    return b"".join(
        part if isinstance(part, bytes) else base[part[0] : part[0] + part[1]] for part in parts
    )


def test_each_difference_leads_from_what_was_sent_before() -> None:
    nodes = _Nodes()
    config = _config(_Disk(), nodes)
    for _ in range(4):
        commit(config).allocate_port()
    assert nodes.received[0].difference() is None
    for before, after in zip(nodes.received, nodes.received[1:], strict=False):
        found = after.difference()
        assert found is not None
        assert found.base_bytes == len(before.text)
        assert before.text.endswith(found.base_end)
        assert _made_from(found.parts, before.text) == after.text
        assert found.new_bytes == len(after.text)


def test_a_redistribution_is_complete() -> None:
    """Somebody may have changed the files of a node by hand."""
    nodes = _Nodes()
    config = _config(_Disk(), nodes)
    commit(config).allocate_port()
    commit(config).allocate_port()
    assert nodes.received[-1].difference() is not None
    config._store.redistribute()
    last = nodes.received[-1]
    assert last.difference() is None
    assert last.ssconf is not None and "node_list" in last.ssconf


@pytest.mark.parametrize("gone", ["offline", "removed"])
def test_nodes_which_are_gone_do_not_lag(gone: str) -> None:
    nodes = _Nodes()
    config = _config(_Disk(), nodes)
    nodes.failures = [
        DistributionFailure(uuid_of("node3"), what, "no answer") for what in (CONFIG, SSCONF)
    ]
    commit(config).add_instance(instance_of(2), [], EC)
    assert uuid_of("node3") in config.lagging()
    nodes.failures = []
    if gone == "offline":
        commit(config).update_node(updated(config.node(uuid_of("node3")), offline=True))
    else:
        commit(config).remove_node(uuid_of("node3"))
    assert config.lagging() == {}


def test_offline_candidates_do_not_count() -> None:
    nodes = _Nodes()
    config = _config(_Disk(), nodes, small_cluster(5, {4: {"offline": True}, 5: {"offline": True}}))
    nodes.failures = [
        DistributionFailure(uuid_of(name), CONFIG, "no answer") for name in ("node2", "node3")
    ]
    with pytest.raises(errors.ConfigurationError, match="only 1 of 3 master candidates"):
        commit(config).allocate_port()


def test_values_of_a_lost_change_are_free() -> None:
    disk = _Disk()
    config = _config(disk)
    disk.error, disk.fails_once = OSError(errno.EIO, "Input/output error"), True
    with pytest.raises(errors.ConfigurationError):
        commit(config).add_instance(instance_of(3), [], EC)
    assert not config._store._holds(INSTANCE_NAME, instance_of(3).name)
    commit(config).add_instance(instance_of(3), [], EC)
    assert config._store._holds(INSTANCE_NAME, instance_of(3).name)


def test_values_of_an_abandoned_transaction_are_free() -> None:
    config = _config(_Disk())
    with pytest.raises(KeyError), config.transaction() as change:
        change.add_instance(instance_of(3), [], EC)
        raise KeyError
    assert not config._store._holds(INSTANCE_NAME, instance_of(3).name)


def test_a_failure_does_not_end_the_attempts() -> None:
    nodes = _Nodes()
    broken = threading.Event()

    def distribute(what: Distribution) -> Sequence[DistributionFailure]:
        if not nodes.failures and not broken.is_set():
            broken.set()
            raise errors.ConfigurationError("cannot read a certificate")
        return nodes(what)

    config = Config(
        ConfigStore(
            "config.data",
            small_cluster(),
            distribute=distribute,
            write=_Disk().write,
            catch_up_s=(0.001, 0.002),
        )
    )
    nodes.failures = [DistributionFailure(uuid_of("node2"), CONFIG, "no answer")]
    commit(config).allocate_port()
    nodes.failures = []
    _until(broken.is_set)
    _until(lambda: config.lagging() == {})


def test_a_new_name_and_a_removal_reach_the_nodes() -> None:
    nodes = _Nodes()
    config = _config(_Disk(), nodes)
    commit(config).add_instance(instance_of(2), [], EC)
    commit(config).update_instance(
        updated(config.instance(instance_of(2).uuid), name="other.example.com")
    )
    assert nodes.received[-1].ssconf == {"instance_list": "other.example.com\n"}
    commit(config).remove_instance(instance_of(2).uuid)
    assert nodes.received[-1].ssconf == {"instance_list": ""}


def test_a_record_which_too_few_candidates_have_is_not_relied_upon() -> None:
    """The change stays in the present state, so a repetition finds nothing to do."""
    nodes = _Nodes()
    store = ConfigStore("config.data", small_cluster(), distribute=nodes, write=_Disk().write)
    config = Config(store)
    config.require_committed()
    others = [
        node.uuid
        for node in config.nodes()
        if node.master_candidate and node.uuid != config.cluster().master_node
    ]
    nodes.failures = [DistributionFailure(uuid, CONFIG, "no answer") for uuid in others]
    with pytest.raises(errors.ConfigurationError, match="candidates have it"):
        commit(config).add_instance(instance_of(2), [], EC)
    with pytest.raises(errors.ConfigurationError, match="candidates have the present"):
        config.require_committed()
    nodes.failures = []
    store.catch_up()
    config.require_committed()


class _RecordingNodes(_Nodes):
    """Nodes which note what each of them got, and accept it."""

    def names_of(self, number: int) -> list[str]:
        """The lists of instances which a node got."""
        return [
            one.ssconf["instance_list"]
            for one in self.received
            if one.ssconf is not None and uuid_of(f"node{number}") in one.nodes
        ]


def _store_with_many_bytes(nodes: _Nodes, monkeypatch: pytest.MonkeyPatch) -> ConfigStore:
    monkeypatch.setattr(store_module, "_NAMES_BYTES", 0)
    data = small_cluster(5, {number: {"master_candidate": False} for number in (4, 5)})
    store = ConfigStore(
        "config.data", data, distribute=nodes, write=_Disk().write, catch_up_s=(3600.0, 3600.0)
    )
    with store.transaction() as change:
        change.add_group(group_of(7), EC)  # sends all values to all nodes
    return store


def test_names_of_instances_reach_nodes_without_copies_later_and_together(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(store_module, "NAMES_S", 3600.0)
    nodes = _RecordingNodes()
    store = _store_with_many_bytes(nodes, monkeypatch)
    for number in (1, 2, 3):
        with store.transaction() as change:
            change.add_instance(instance_of(number, disks=()), [], EC)
    assert len(nodes.names_of(1)) == len(nodes.names_of(2)) == 4
    assert nodes.names_of(4) == nodes.names_of(5) == [""]
    assert store.lagging() == {}
    assert store.inform_others()
    assert nodes.names_of(4) == nodes.names_of(5) == ["", nodes.names_of(2)[-1]]
    assert not store.inform_others()


def test_a_thread_sends_the_names_and_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_module, "NAMES_S", 0.001)
    nodes = _RecordingNodes()
    store = _store_with_many_bytes(nodes, monkeypatch)
    with store.transaction() as change:
        change.add_instance(instance_of(1), [disk_of(1)], EC)
    _until(lambda: nodes.names_of(4)[-1] == "instance1.example.com\n")
    _until(lambda: store._informing is None)


def test_a_node_which_does_not_take_the_names_is_lagging(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(store_module, "NAMES_S", 3600.0)
    nodes = _RecordingNodes()
    store = _store_with_many_bytes(nodes, monkeypatch)
    with store.transaction() as change:
        change.add_instance(instance_of(1), [disk_of(1)], EC)
    nodes.failures = [DistributionFailure(uuid_of("node4"), SSCONF, "no answer")]
    store.inform_others()
    assert store.lagging() == {uuid_of("node4"): {SSCONF}}
    nodes.failures = []
    assert store.catch_up()
    assert nodes.names_of(4)[-1] == "instance1.example.com\n"


def test_all_values_replace_names_which_were_to_come(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_module, "NAMES_S", 3600.0)
    nodes = _RecordingNodes()
    store = _store_with_many_bytes(nodes, monkeypatch)
    with store.transaction() as change:
        change.add_instance(instance_of(1), [disk_of(1)], EC)
    with store.transaction() as change:
        change.add_group(group_of(8), EC)
    assert nodes.names_of(4)[-1] == "instance1.example.com\n"
    assert not store.inform_others()


@pytest.mark.parametrize("same", [True, False])
def test_after_a_start_candidates_with_the_same_file_get_a_difference(
    tmp_path: Path, same: bool
) -> None:
    path = tmp_path / "config.data"
    data = small_cluster()
    text = ConfigText(data).render(data, ())
    write_config_file(str(path), text if same else b"".join(text) + b" ")
    nodes = _Nodes()
    store = ConfigStore(str(path), data, distribute=nodes)
    store.adopt_copies()
    with store.transaction() as change:
        change.add_instance(instance_of(1), [disk_of(1)], EC)
    difference = nodes.received[-1].difference()
    assert (difference is not None) is same
    if difference is not None:
        assert difference.base_bytes == len(b"".join(text))
        assert _made_from(difference.parts, b"".join(text)) == path.read_bytes()
