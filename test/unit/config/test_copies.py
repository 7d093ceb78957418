"""What the other nodes get of a commit, how many must have it, and how those catch up which lag."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path

import pytest

from fakes.config import commit
from ganeti import errors
from ganeti.config import Config, Distribution, DistributionFailure, copies
from ganeti.config.local_file import LocalFile
from ganeti.config.sending import CONFIG, SSCONF
from ganeti.config.store import ConfigStore
from ganeti.config.text import ConfigText
from ganeti.configfile.files import write_config_file
from ganeti.objects import updated

from .samples import disk_of, group_of, instance_of, node_of, small_cluster, uuid_of
from .store_lab import EC, Disk, Nodes, config_of, parsed, sleeping_store, until


def test_distribution_goes_to_candidates_and_ssconf_to_all_online() -> None:
    disk, nodes = Disk(), Nodes()
    data = small_cluster(
        5, {4: {"master_candidate": False}, 5: {"master_candidate": False, "offline": True}}
    )
    config = config_of(disk, nodes, data)
    commit(config).instances.add(instance_of(1), [disk_of(1)], EC)
    first = nodes.received[-1]
    assert first.candidates == (uuid_of("node2"), uuid_of("node3"))
    assert first.nodes == tuple(uuid_of(f"node{number}") for number in range(1, 5))
    assert first.text == disk.written[-1]
    assert first.ssconf is not None
    assert first.ssconf["instance_list"] == "instance1.example.com\n"
    commit(config).instances.mark(instance_of(1).uuid, "up")
    assert nodes.received[-1].ssconf is None
    commit(config).instances.remove(instance_of(1).uuid)
    # Nothing else has changed for those who have all the rest.
    assert nodes.received[-1].ssconf == {"instance_list": ""}
    commit(config).nodes.add(node_of(9))
    last = nodes.received[-1].ssconf
    assert last is not None
    assert {"instance_list", "node_list", "cluster_name"} < last.keys()


def test_a_new_node_is_in_the_state_which_is_distributed() -> None:
    nodes = Nodes()
    config = config_of(Disk(), nodes)
    commit(config).nodes.add(node_of(9))
    assert uuid_of("node9") in nodes.received[-1].candidates
    assert uuid_of("node9") in nodes.received[-1].data.nodes


def test_a_minority_of_candidates_may_fail() -> None:
    nodes = Nodes()
    config = config_of(Disk(), nodes)
    nodes.failures = [DistributionFailure(uuid_of("node2"), CONFIG, "no answer")]
    commit(config).instances.add(instance_of(1), [disk_of(1)], EC)
    assert instance_of(1).uuid in config.snapshot().instances


def test_without_a_majority_the_change_is_not_acknowledged() -> None:
    disk, nodes = Disk(), Nodes()
    config = config_of(disk, nodes)
    nodes.failures = [
        DistributionFailure(uuid_of(name), CONFIG, "no answer") for name in ("node2", "node3")
    ]
    with pytest.raises(
        errors.ConfigurationError,
        match=r"only 1 of 3 master candidates have it \(node2.example.com: no",
    ):
        commit(config).instances.add(instance_of(1), [disk_of(1)], EC)
    assert parsed(disk.written[-1]) == config.snapshot()
    # Taking them out of service needs no majority of those who are gone.
    with config.transaction() as change:
        for name in ("node2", "node3"):
            change.nodes.update(
                updated(config.node(uuid_of(name)), offline=True, master_candidate=False)
            )


def test_who_missed_ssconf_gets_it_with_the_next_change() -> None:
    nodes = Nodes()
    config = config_of(Disk(), nodes)
    nodes.failures = [DistributionFailure(uuid_of("node3"), SSCONF, "disk full")]
    commit(config).instances.add(instance_of(1), [disk_of(1)], EC)
    nodes.failures = []
    commit(config).instances.mark(instance_of(1).uuid, "up")
    assert nodes.received[-1].ssconf is not None
    commit(config).instances.mark(instance_of(1).uuid, "down")
    assert nodes.received[-1].ssconf is None


def test_who_missed_something_is_tried_again() -> None:
    nodes = Nodes()
    store = ConfigStore(LocalFile("config.data", Disk().write), small_cluster(), distribute=nodes)
    config = Config(store)
    nodes.failures = [
        DistributionFailure(uuid_of("node2"), CONFIG, "no answer"),
        DistributionFailure(uuid_of("node2"), SSCONF, "no answer"),
        DistributionFailure(uuid_of("node3"), SSCONF, "no answer"),
    ]
    commit(config).instances.add(instance_of(2), [], EC)
    assert config.lagging() == {uuid_of("node2"): {CONFIG, SSCONF}, uuid_of("node3"): {SSCONF}}
    nodes.failures = nodes.failures[:2]
    assert not store.copies.catch_up()
    tried = nodes.received[-1]
    assert tried.candidates == (uuid_of("node2"),)
    assert tried.nodes == (uuid_of("node2"), uuid_of("node3"))
    assert tried.ssconf is not None
    assert parsed(tried.text) == config.snapshot()
    assert config.lagging() == {uuid_of("node2"): {CONFIG, SSCONF}}
    nodes.failures = []
    assert store.copies.catch_up()
    assert nodes.received[-1].nodes == (uuid_of("node2"),)
    number = len(nodes.received)
    assert store.copies.catch_up()
    assert len(nodes.received) == number


def test_who_goes_offline_is_not_waited_for() -> None:
    nodes = Nodes()
    config = config_of(Disk(), nodes)
    nodes.failures = [DistributionFailure(uuid_of("node2"), CONFIG, "no answer")]
    commit(config).instances.add(instance_of(2), [], EC)
    commit(config).nodes.update(
        updated(config.node(uuid_of("node2")), offline=True, master_candidate=False)
    )
    assert config._store.copies.catch_up()
    assert config.lagging() == {}


def test_who_is_no_candidate_any_more_needs_no_configuration() -> None:
    nodes = Nodes()
    config = config_of(Disk(), nodes)
    nodes.failures = [DistributionFailure(uuid_of("node2"), CONFIG, "no answer")]
    commit(config).instances.add(instance_of(2), [], EC)
    commit(config).nodes.update(updated(config.node(uuid_of("node2")), master_candidate=False))
    assert config._store.copies.catch_up()
    assert config.lagging() == {}


def test_a_thread_tries_until_all_have_it() -> None:
    nodes = Nodes()
    config = Config(
        ConfigStore(
            LocalFile("config.data", Disk().write),
            small_cluster(),
            distribute=nodes,
            catch_up_s=(0.001, 0.002),
        )
    )
    for _ in range(2):
        nodes.failures = [DistributionFailure(uuid_of("node2"), CONFIG, "no answer")]
        commit(config).ports.allocate()
        seen = len(nodes.received)
        until(lambda seen=seen: len(nodes.received) > seen + 3)
        assert config.lagging() == {uuid_of("node2"): {CONFIG}}
        nodes.failures = []
        until(lambda: config.lagging() == {})
        until(lambda: config._store.copies._catching_up is None)
    assert parsed(nodes.received[-1].text) == config.snapshot()


def test_commits_do_not_wait_for_lagging_candidates() -> None:
    nodes = Nodes()
    store = sleeping_store(nodes)
    config = Config(store)
    nodes.failures = [DistributionFailure(uuid_of("node2"), CONFIG, "no answer")]
    commit(config).ports.allocate()
    assert nodes.received[-1].candidates == (uuid_of("node2"), uuid_of("node3"))
    nodes.failures = []
    commit(config).ports.allocate()
    assert nodes.received[-1].candidates == (uuid_of("node3"),)
    assert config.lagging() == {uuid_of("node2"): {CONFIG}}
    commit(config).instances.add(instance_of(2), [], EC)
    assert nodes.received[-1].ssconf is not None
    assert uuid_of("node2") not in nodes.received[-1].nodes
    assert config.lagging() == {uuid_of("node2"): {CONFIG, SSCONF}}
    assert store.copies.catch_up()
    assert parsed(nodes.received[-1].text) == config.snapshot()
    commit(config).ports.allocate()
    assert nodes.received[-1].candidates == (uuid_of("node2"), uuid_of("node3"))
    assert nodes.received[-1].ssconf is None


def test_a_lagging_node_is_asked_when_the_others_are_no_majority() -> None:
    nodes = Nodes()
    config = Config(sleeping_store(nodes))
    nodes.failures = [
        DistributionFailure(uuid_of(name), CONFIG, "no answer") for name in ("node2", "node3")
    ]
    with pytest.raises(errors.ConfigurationError, match="only 1 of 3"):
        commit(config).ports.allocate()
    nodes.failures = nodes.failures[:1]
    commit(config).ports.allocate()
    assert nodes.received[-1].candidates == (uuid_of("node2"), uuid_of("node3"))
    assert config.lagging() == {uuid_of("node2"): {CONFIG}}


def test_a_candidate_which_was_left_out_does_not_count() -> None:
    """With two of four candidates nothing is acknowledged, although only one failed just now."""
    nodes = Nodes()
    config = Config(sleeping_store(nodes, small_cluster(4)))
    nodes.failures = [DistributionFailure(uuid_of("node2"), CONFIG, "no answer")]
    commit(config).ports.allocate()
    nodes.failures = [DistributionFailure(uuid_of("node3"), CONFIG, "disk full")]
    with pytest.raises(errors.ConfigurationError, match="only 2 of 4 master candidates") as caught:
        commit(config).ports.allocate()
    assert uuid_of("node2") not in nodes.received[-1].candidates
    assert "node2.example.com: it did not answer before" in str(caught.value)


def test_a_commit_reaches_nodes_which_are_lagging_since_an_earlier_master() -> None:
    """They were not asked yet: nobody knows that they would not answer."""
    nodes = Nodes()
    store = sleeping_store(nodes)
    config = Config(store)
    me, other = config.master_node().uuid, uuid_of("node2")
    store.copies.expect_lagging([other], [me, other])
    nodes.failures = [DistributionFailure(other, what, "no answer") for what in (CONFIG, SSCONF)]
    commit(config).ports.allocate()
    sent = nodes.received[-1]
    assert other in sent.candidates
    assert set(sent.nodes) >= {me, other}
    assert sent.ssconf == store.copies._ssconf
    assert config.lagging() == {other: {CONFIG, SSCONF}}
    commit(config).ports.allocate()
    assert other not in nodes.received[-1].candidates


def test_no_commit_waits_for_a_node_which_has_just_not_answered() -> None:
    nodes = Nodes()
    store = sleeping_store(nodes)
    config = Config(store)
    other = uuid_of("node2")
    store.copies.expect_lagging([other], [other], [other])
    commit(config).ports.allocate()
    assert other not in nodes.received[-1].candidates
    assert config.lagging() == {other: {CONFIG, SSCONF}}
    store.copies.catch_up()
    assert config.lagging() == {}


def test_a_distribution_which_breaks_tells_everybody() -> None:
    config = config_of(Disk())

    def broken(what: Distribution) -> Sequence[DistributionFailure]:
        raise errors.ConfigurationError("no client certificate")

    config.use_distribution(broken)
    with pytest.raises(errors.ConfigurationError, match="no client certificate"):
        commit(config).instances.add(instance_of(1), [disk_of(1)], EC)
    config.use_distribution(Nodes())
    commit(config).instances.add(instance_of(2), [], EC)
    assert len(config.snapshot().instances) == 2


def test_redistribution_sends_everything() -> None:
    nodes = Nodes()
    config = config_of(Disk(), nodes)
    failure = DistributionFailure(uuid_of("node3"), SSCONF, "disk full")
    nodes.failures = [failure]
    assert config.redistribute() == [failure]
    assert parsed(nodes.received[-1].text) == config.snapshot()
    assert nodes.received[-1].ssconf is not None


def _made_from(parts: Sequence[tuple[int, int] | bytes], base: bytes) -> bytes:
    return b"".join(
        part if isinstance(part, bytes) else base[part[0] : part[0] + part[1]] for part in parts
    )


def test_each_difference_leads_from_what_was_sent_before() -> None:
    nodes = Nodes()
    config = config_of(Disk(), nodes)
    for _ in range(4):
        commit(config).ports.allocate()
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
    nodes = Nodes()
    config = config_of(Disk(), nodes)
    commit(config).ports.allocate()
    commit(config).ports.allocate()
    assert nodes.received[-1].difference() is not None
    config._store.redistribute()
    last = nodes.received[-1]
    assert last.difference() is None
    assert last.ssconf is not None and "node_list" in last.ssconf


@pytest.mark.parametrize("gone", ["offline", "removed"])
def test_nodes_which_are_gone_do_not_lag(gone: str) -> None:
    nodes = Nodes()
    config = config_of(Disk(), nodes)
    nodes.failures = [
        DistributionFailure(uuid_of("node3"), what, "no answer") for what in (CONFIG, SSCONF)
    ]
    commit(config).instances.add(instance_of(2), [], EC)
    assert uuid_of("node3") in config.lagging()
    nodes.failures = []
    if gone == "offline":
        commit(config).nodes.update(updated(config.node(uuid_of("node3")), offline=True))
    else:
        commit(config).nodes.remove(uuid_of("node3"))
    assert config.lagging() == {}


def test_offline_candidates_do_not_count() -> None:
    nodes = Nodes()
    config = config_of(
        Disk(), nodes, small_cluster(5, {4: {"offline": True}, 5: {"offline": True}})
    )
    nodes.failures = [
        DistributionFailure(uuid_of(name), CONFIG, "no answer") for name in ("node2", "node3")
    ]
    with pytest.raises(errors.ConfigurationError, match="only 1 of 3 master candidates"):
        commit(config).ports.allocate()


def test_a_failure_does_not_end_the_attempts() -> None:
    nodes = Nodes()
    broken = threading.Event()

    def distribute(what: Distribution) -> Sequence[DistributionFailure]:
        if not nodes.failures and not broken.is_set():
            broken.set()
            raise errors.ConfigurationError("cannot read a certificate")
        return nodes(what)

    config = Config(
        ConfigStore(
            LocalFile("config.data", Disk().write),
            small_cluster(),
            distribute=distribute,
            catch_up_s=(0.001, 0.002),
        )
    )
    nodes.failures = [DistributionFailure(uuid_of("node2"), CONFIG, "no answer")]
    commit(config).ports.allocate()
    nodes.failures = []
    until(broken.is_set)
    until(lambda: config.lagging() == {})


def test_a_new_name_and_a_removal_reach_the_nodes() -> None:
    nodes = Nodes()
    config = config_of(Disk(), nodes)
    commit(config).instances.add(instance_of(2), [], EC)
    commit(config).instances.update(
        updated(config.instance(instance_of(2).uuid), name="other.example.com")
    )
    assert nodes.received[-1].ssconf == {"instance_list": "other.example.com\n"}
    commit(config).instances.remove(instance_of(2).uuid)
    assert nodes.received[-1].ssconf == {"instance_list": ""}


def test_a_record_which_too_few_candidates_have_is_not_relied_upon() -> None:
    """The change stays in the present state, so a repetition finds nothing to do."""
    nodes = Nodes()
    store = ConfigStore(LocalFile("config.data", Disk().write), small_cluster(), distribute=nodes)
    config = Config(store)
    config.require_committed()
    unanswered = [
        node.uuid
        for node in config.nodes()
        if node.master_candidate and node.uuid != config.cluster().master_node
    ]
    nodes.failures = [DistributionFailure(uuid, CONFIG, "no answer") for uuid in unanswered]
    with pytest.raises(errors.ConfigurationError, match="candidates have it"):
        commit(config).instances.add(instance_of(2), [], EC)
    with pytest.raises(errors.ConfigurationError, match="candidates have the present"):
        config.require_committed()
    nodes.failures = []
    store.copies.catch_up()
    config.require_committed()


class _RecordingNodes(Nodes):
    """Nodes which note what each of them got, and accept it."""

    def names_of(self, number: int) -> list[str]:
        """The lists of instances which a node got."""
        return [
            one.ssconf["instance_list"]
            for one in self.received
            if one.ssconf is not None and uuid_of(f"node{number}") in one.nodes
        ]


def _store_with_many_bytes(nodes: Nodes, monkeypatch: pytest.MonkeyPatch) -> ConfigStore:
    monkeypatch.setattr(copies, "_NAMES_BYTES", 0)
    data = small_cluster(5, {number: {"master_candidate": False} for number in (4, 5)})
    store = ConfigStore(
        LocalFile("config.data", Disk().write), data, distribute=nodes, catch_up_s=(3600.0, 3600.0)
    )
    with store.transaction() as change:
        change.groups.add(group_of(7))  # sends all values to all nodes
    return store


def test_names_of_instances_reach_nodes_without_copies_later_and_together(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(copies, "NAMES_S", 3600.0)
    nodes = _RecordingNodes()
    store = _store_with_many_bytes(nodes, monkeypatch)
    for number in (1, 2, 3):
        with store.transaction() as change:
            change.instances.add(instance_of(number, disks=()), [], EC)
    assert len(nodes.names_of(1)) == len(nodes.names_of(2)) == 4
    assert nodes.names_of(4) == nodes.names_of(5) == [""]
    assert store.copies.lagging() == {}
    assert store.copies.inform_others()
    assert nodes.names_of(4) == nodes.names_of(5) == ["", nodes.names_of(2)[-1]]
    assert not store.copies.inform_others()


def test_a_thread_sends_the_names_and_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(copies, "NAMES_S", 0.001)
    nodes = _RecordingNodes()
    store = _store_with_many_bytes(nodes, monkeypatch)
    with store.transaction() as change:
        change.instances.add(instance_of(1), [disk_of(1)], EC)
    until(lambda: nodes.names_of(4)[-1] == "instance1.example.com\n")
    until(lambda: store.copies._informing is None)


def test_a_node_which_does_not_take_the_names_is_lagging(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(copies, "NAMES_S", 3600.0)
    nodes = _RecordingNodes()
    store = _store_with_many_bytes(nodes, monkeypatch)
    with store.transaction() as change:
        change.instances.add(instance_of(1), [disk_of(1)], EC)
    nodes.failures = [DistributionFailure(uuid_of("node4"), SSCONF, "no answer")]
    store.copies.inform_others()
    assert store.copies.lagging() == {uuid_of("node4"): {SSCONF}}
    nodes.failures = []
    assert store.copies.catch_up()
    assert nodes.names_of(4)[-1] == "instance1.example.com\n"


def test_all_values_replace_names_which_were_to_come(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(copies, "NAMES_S", 3600.0)
    nodes = _RecordingNodes()
    store = _store_with_many_bytes(nodes, monkeypatch)
    with store.transaction() as change:
        change.instances.add(instance_of(1), [disk_of(1)], EC)
    with store.transaction() as change:
        change.groups.add(group_of(8))
    assert nodes.names_of(4)[-1] == "instance1.example.com\n"
    assert not store.copies.inform_others()


@pytest.mark.parametrize("same", [True, False])
def test_after_a_start_candidates_with_the_same_file_get_a_difference(
    tmp_path: Path, same: bool
) -> None:
    path = tmp_path / "config.data"
    data = small_cluster()
    text = ConfigText(data).render(data, ())
    write_config_file(str(path), text if same else b"".join(text) + b" ")
    nodes = Nodes()
    store = ConfigStore(LocalFile(str(path)), data, distribute=nodes)
    store.adopt_copies()
    with store.transaction() as change:
        change.instances.add(instance_of(1), [disk_of(1)], EC)
    difference = nodes.received[-1].difference()
    assert (difference is not None) is same
    if difference is not None:
        assert difference.base_bytes == len(b"".join(text))
        assert _made_from(difference.parts, b"".join(text)) == path.read_bytes()
