"""Each node has a key of its own: a node of the cluster at another's address gets no call."""

from __future__ import annotations

import os
import ssl
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pycurl
import pytest

from fakes.node_lab import NodeLab
from ganeti import errors
from ganeti.http import client
from ganeti.rpc import AddressRunner, key_pins
from ganeti.utils import x509
from ganeti.wire import calls

FIRST, SECOND = "node1.example.com", "node2.example.com"
ONE, TWO = "uuid-node1", "uuid-node2"


@pytest.fixture(scope="module")
def lab() -> Iterator[NodeLab]:
    with tempfile.TemporaryDirectory() as directory:
        made = NodeLab(directory, 2)
        try:
            made.start()
            yield made
        finally:
            made.close()


@pytest.fixture
def pins(lab: NodeLab) -> Iterator[dict[str, str]]:
    """The key of each node, by its UUID; the configuration has them during the test."""
    found = {}
    for uuid, node in lab.config.nodes.items():
        found[uuid] = x509.key_pin(x509.read_pem(lab.paths(node.name).noded_client_cert_file))
        node.key_pins = (found[uuid],)
    yield found
    for node in lab.config.nodes.values():
        node.key_pins = None


def shown(lab: NodeLab, name: str) -> str:
    """The certificate which a node daemon shows, as another TLS client sees it."""
    return ssl.get_server_certificate((lab.addresses[name], lab.port))


def test_each_node_shows_its_own_certificate(lab: NodeLab) -> None:
    found = {x509.digest(shown(lab, name)) for name in lab.names}
    assert found == {x509.digest_file(lab.paths(name).noded_client_cert_file) for name in lab.names}
    assert len(found) == 2


@pytest.mark.parametrize("call", [calls.VERSION, calls.NODE_VERIFY_LIGHT])
def test_the_node_is_refused_that_has_the_address_of_another(
    lab: NodeLab, pins: dict[str, str], call: calls.base.Call
) -> None:
    args = {} if call is calls.VERSION else {"checks": {}, "cluster_name": "c", "all_hvparams": {}}
    runner = lab.runner()
    good = runner.call_many(call, [ONE, TWO], **args)
    assert all(answer.failure is None for answer in good.values())
    # The addresses of both are swapped: each has the certificate of the cluster, and not its own.
    one, two = lab.config.nodes[ONE], lab.config.nodes[TWO]
    one.primary_ip, two.primary_ip = two.primary_ip, one.primary_ip
    try:
        served = [lab.log(name).count("INFO") for name in lab.names]
        for _ in range(2):
            for answer in runner.call_many(call, [ONE, TWO], **args).values():
                assert answer.data is None
                assert isinstance(answer.failure, errors.NodeKeyMismatch)
                assert isinstance(answer.failure, errors.NodeRefused)
                text = str(answer.failure)
                assert "another key" in text and f"--readd {answer.node_name}" in text
        assert [lab.log(name).count("INFO") for name in lab.names] == served, (
            "nothing was carried out"
        )
    finally:
        one.primary_ip, two.primary_ip = two.primary_ip, one.primary_ip
    again = runner.call_many(call, [ONE, TWO], **args)
    assert all(answer.failure is None for answer in again.values())


def test_nodes_which_are_called_by_address(lab: NodeLab, pins: dict[str, str]) -> None:
    """The vote, the failover and adding nodes: with the keys of the configuration."""
    for runner in (lab.runner(), AddressRunner(lab.client(), lab.port)):
        runner.expect_keys({lab.addresses[FIRST]: [pins[TWO]], lab.addresses[SECOND]: [pins[TWO]]})
        found = runner.call_addresses(calls.VERSION, lab.addresses)
        assert isinstance(found[FIRST].failure, errors.NodeKeyMismatch)
        assert found[SECOND].failure is None
    # Without more, those of the configuration count; a job has its own.
    runner = lab.runner()
    runner.expect_keys({lab.addresses[FIRST]: [pins[TWO]]})
    found = runner.for_job(1, print).call_addresses(calls.VERSION, lab.addresses)
    assert all(answer.failure is None for answer in found.values())
    lab.config.nodes[ONE].key_pins = (pins[TWO],)
    found = runner.for_job(1, print).call_addresses(calls.VERSION, lab.addresses)
    assert isinstance(found[FIRST].failure, errors.NodeKeyMismatch)


def test_first_contact_tells_the_key(lab: NodeLab, pins: dict[str, str]) -> None:
    runner, here = lab.runner(), lab.paths(FIRST)
    for _ in range(2):
        found = runner.first_contact(calls.VERSION, lab.addresses)
        assert key_pins.pin_of(found[FIRST].certificate, here) == pins[ONE]
        assert key_pins.pin_of(found[SECOND].certificate, here) == pins[TWO]
        kept = runner.show_keys([ONE, TWO])
        assert [key_pins.pin_of(kept[uuid].certificate, here) for uuid in (ONE, TWO)] == [
            pins[ONE],
            pins[TWO],
        ]
    # It is not looked at when nobody asks for it, and never believed without the pinned key.
    assert runner.call(calls.VERSION, ONE).certificate == ""
    lab.config.nodes[ONE].key_pins = (pins[TWO],)
    assert isinstance(runner.show_keys([ONE])[ONE].failure, errors.NodeKeyMismatch)


def test_the_key_of_the_cluster_is_no_key_of_a_node(lab: NodeLab) -> None:
    here = lab.paths(FIRST)
    assert key_pins.pin_of("", here) is None
    assert key_pins.pin_of(x509.read_pem(here.noded_cert_file), here) is None


def test_old_and_new_key_are_accepted_while_they_change(lab: NodeLab, pins: dict[str, str]) -> None:
    runner, here = lab.runner(), lab.paths(SECOND)
    new = x509.create_signed(SECOND, lab.server_pem)
    assert runner.call(calls.VERSION, TWO).failure is None
    lab.config.nodes[TWO].key_pins = (pins[TWO], x509.key_pin(new))
    assert runner.call(calls.VERSION, TWO).failure is None
    old = x509.read_pem(here.noded_client_cert_file)
    try:
        replace(here.noded_client_cert_file, new)
        assert runner.call(calls.VERSION, TWO).failure is None
        lab.config.nodes[TWO].key_pins = (pins[TWO],)
        assert isinstance(runner.call(calls.VERSION, TWO).failure, errors.NodeKeyMismatch)
        lab.config.nodes[TWO].key_pins = (x509.key_pin(new),)
        assert runner.call(calls.VERSION, TWO).failure is None
    finally:
        replace(here.noded_client_cert_file, old)


@pytest.mark.parametrize("damage", ["missing", "garbage", "of another cluster"])
def test_a_node_without_a_usable_certificate_shows_that_of_the_cluster(
    lab: NodeLab, pins: dict[str, str], damage: str
) -> None:
    here = lab.paths(SECOND)
    old = x509.read_pem(here.noded_client_cert_file)
    try:
        if damage == "missing":
            os.unlink(here.noded_client_cert_file)
        else:
            foreign = x509.create_signed(SECOND, x509.create_self_signed())
            replace(here.noded_client_cert_file, "x" if damage == "garbage" else foreign)
        assert x509.digest(shown(lab, SECOND)) == x509.digest(lab.server_pem)
        # A node which had a key is refused, another one is called as before.
        assert isinstance(lab.runner().call(calls.VERSION, TWO).failure, errors.NodeKeyMismatch)
        lab.config.nodes[TWO].key_pins = None
        assert lab.runner().call(calls.VERSION, TWO).failure is None
        if damage != "missing":
            assert "in place of its own" in lab.log(SECOND)
    finally:
        replace(here.noded_client_cert_file, old)


@pytest.mark.skipif(not client.RESUMES, reason="libcurl on GnuTLS takes no tickets")
def test_pinned_calls_resume_sessions_and_keep_connections(
    lab: NodeLab, pins: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As many handles as without pins: each is used again, for every call."""
    made = []
    original = client.Client._new_handle

    def count(self: client.Client, request: client.OutgoingRequest) -> object:
        made.append(request)
        return original(self, request)

    monkeypatch.setattr(client.Client, "_new_handle", count)
    runner = lab.runner()
    for _ in range(5):
        runner.call_many(calls.VERSION, [ONE, TWO])
        runner.call(calls.NODE_WORK, ONE, revoke=[])
    assert len(made) == 3 and all(request.pin for request in made)
    # Another key: the handles of the former one are not kept.
    lab.config.nodes[ONE].key_pins = (pins[ONE], pins[TWO])
    runner.call(calls.NODE_WORK, ONE, revoke=[])
    kinds = [kind for kind in runner._client._idle if kind[0] == lab.addresses[FIRST]]
    assert len(kinds) == 1 and "; " not in kinds[0][-1] and ";" in kinds[0][-1]


def test_a_pin_adds_nothing_to_a_call_on_a_kept_connection(
    lab: NodeLab, pins: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is compared in the handshake: no new connection, and no step more, for any later call."""
    connections: list[int] = []
    close = client.Client.close

    def count(self: client.Client, transfer: Any, **options: bool) -> None:
        connections.append(transfer.handle.getinfo(pycurl.NUM_CONNECTS))
        close(self, transfer, **options)

    monkeypatch.setattr(client.Client, "close", count)

    def steps() -> int:
        """How many functions one call runs, on a connection which is there."""
        runner = lab.runner()
        for _ in range(2):
            runner.call(calls.NODE_WORK, ONE, revoke=[])
        counted = 0

        def profile(_frame: object, event: str, _arg: object) -> None:
            nonlocal counted
            counted += event in ("call", "c_call")

        before = sys.getprofile()
        sys.setprofile(profile)
        try:
            answer = runner.call(calls.NODE_WORK, ONE, revoke=[])
        finally:
            sys.setprofile(before)
        assert answer.failure is None
        return counted

    pinned = steps()
    lab.config.nodes[ONE].key_pins = None
    assert pinned == steps()
    assert connections == [1, 0, 0] * 2


def replace(path: str, text: str) -> None:
    """Replace a file as the node does."""
    Path(f"{path}.new").write_text(text)
    os.rename(f"{path}.new", path)
