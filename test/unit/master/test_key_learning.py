"""Nodes whose keys are not known: the master asks them, and writes down what they show."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from fakes.config import FakeConfig, cluster_of, commit, uuid_of
from fakes.rpc import FakeRpc
from ganeti import errors
from ganeti.master import key_learning
from ganeti.master.key_learning import KeyLearning
from ganeti.objects import updated
from ganeti.platform import paths
from ganeti.utils import x509

NODE1, NODE2, NODE3 = (f"node{number}.example.com" for number in (1, 2, 3))


class Lab:
    """A master with three nodes, whose keys are not known."""

    def __init__(self, here: paths.Paths) -> None:
        self.here = here
        self.shared = x509.create_self_signed()
        self.own = {name: x509.create_signed(name, self.shared) for name in (NODE1, NODE2, NODE3)}
        Path(here.data_dir).mkdir(parents=True)
        Path(here.noded_cert_file).write_text(self.shared)
        Path(here.noded_client_cert_file).write_text(self.own[NODE1])
        self.config = FakeConfig(cluster_of(3))
        self.rpc = FakeRpc(self.config)
        self.rpc.shown = dict(self.own)
        self.key_learning = KeyLearning(self.config, self.rpc)  # type: ignore[arg-type]

    def pins(self) -> dict[str, tuple[str, ...] | None]:
        return {node.name: node.key_pins for node in self.config.nodes()}

    def pin(self, name: str) -> tuple[str, ...]:
        return (x509.key_pin(self.own[name]),)

    def know(self, name: str, pins: tuple[str, ...] | None) -> None:
        node = self.config.node_by_name(name)
        commit(self.config).nodes.update(dataclasses.replace(node, key_pins=pins))


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Lab]:
    monkeypatch.setenv(paths.ENV_HOSTNAME, NODE1)
    here = paths.Paths(str(tmp_path))
    with paths.override(here):
        yield Lab(here)


def test_all_nodes_after_an_upgrade(lab: Lab) -> None:
    assert sorted(lab.key_learning.poll()) == sorted(map(uuid_of, ("node1", "node2", "node3")))
    assert lab.pins() == {name: lab.pin(name) for name in lab.own}
    lab.rpc.calls.clear()
    # Then it never asks again, and no machine which gets the address later becomes the node.
    lab.rpc.shown[NODE2] = lab.own[NODE3]
    assert lab.key_learning.poll() == [] and lab.rpc.calls == []


def test_older_nodes_are_asked_until_they_have_a_key(lab: Lab) -> None:
    lab.rpc.shown[NODE3] = lab.shared
    lab.rpc.errors["version", NODE2] = errors.NodeUnreachable(NODE2, "version", "no route")
    assert lab.key_learning.poll() == [uuid_of("node1")]
    assert lab.pins() == {NODE1: lab.pin(NODE1), NODE2: None, NODE3: None}
    lab.rpc.errors.clear()
    lab.rpc.shown[NODE3] = lab.own[NODE3]
    assert lab.key_learning.poll() == [uuid_of("node2"), uuid_of("node3")]


def test_offline_nodes_are_not_asked(lab: Lab) -> None:
    commit(lab.config).nodes.update(updated(lab.config.node_by_name(NODE3), offline=True))
    lab.key_learning.poll()
    assert lab.pins()[NODE3] is None
    assert {node for _, node, _ in lab.rpc.calls} == {NODE1, NODE2}


def test_a_key_which_two_nodes_show_is_nobodys(lab: Lab, caplog: pytest.LogCaptureFixture) -> None:
    lab.rpc.shown[NODE3] = lab.own[NODE2]
    assert lab.key_learning.poll() == [uuid_of("node1")]
    assert f"node {NODE3} shows the key of another node" in caplog.text
    lab.know(NODE2, lab.pin(NODE2))
    assert lab.key_learning.poll() == []


def test_nothing_is_written_while_keys_are_renewed(lab: Lab) -> None:
    """The renewal decides which key is written, because the node will show another one."""
    Path(lab.here.server_ca_file).write_text(lab.shared)
    assert lab.key_learning.poll() == []
    Path(lab.here.server_ca_file).unlink()
    cluster = lab.config.cluster()
    certs = {**cluster.candidate_certs, uuid_of("node1") + "-renewal": "AA"}
    commit(lab.config).cluster.update(updated(cluster, candidate_certs=certs))
    assert lab.key_learning.poll() == []
    assert set(lab.pins().values()) == {None}


def test_a_certificate_that_cannot_be_read(lab: Lab, caplog: pytest.LogCaptureFixture) -> None:
    lab.rpc.shown[NODE2] = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"
    assert lab.key_learning.poll() == [uuid_of("node1"), uuid_of("node3")]
    assert f"node {NODE2}: " in caplog.text


def test_the_master_trusts_its_own_files(lab: Lab, caplog: pytest.LogCaptureFixture) -> None:
    """Its key was replaced: no other node is needed to accept that."""
    caplog.set_level(logging.WARNING)
    lab.know(NODE1, lab.pin(NODE2))
    lab.key_learning.adopt_own(lab.rpc)  # type: ignore[arg-type]
    assert lab.pins()[NODE1] == lab.pin(NODE1)
    assert "another key than in the configuration" in caplog.text
    lab.rpc.calls.clear()
    lab.key_learning.adopt_own(lab.rpc)  # type: ignore[arg-type]
    assert lab.rpc.calls == [], "as long as they agree, nothing is asked"


@pytest.mark.parametrize("shown", ["configured", "foreign", "shared"])
def test_only_what_is_in_its_files(lab: Lab, shown: str) -> None:
    """A node daemon with a certificate of its own (-C) shows neither; and no other is believed."""
    lab.know(NODE1, lab.pin(NODE2))
    texts = {"configured": lab.own[NODE2], "foreign": lab.own[NODE3], "shared": lab.shared}
    lab.rpc.shown[NODE1] = texts[shown]
    lab.key_learning.adopt_own(lab.rpc)  # type: ignore[arg-type]
    assert lab.pins()[NODE1] == lab.pin(NODE2)


def test_a_key_which_is_not_known_is_asked_for_later(lab: Lab) -> None:
    lab.key_learning.adopt_own(lab.rpc)  # type: ignore[arg-type]
    assert lab.rpc.calls == [] and lab.pins()[NODE1] is None


def test_the_thread_goes_on_after_an_error(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(key_learning, "PAUSE_S", 0.0)
    results = iter([errors.ConfigurationError("too few candidates"), None])

    def poll() -> None:
        found = next(results, StopIteration)
        if isinstance(found, Exception):
            raise found
        if found is StopIteration:
            lab.key_learning.stop()

    lab.key_learning.poll = poll  # type: ignore[method-assign,assignment]
    lab.key_learning._run()
    assert next(results, None) is None
