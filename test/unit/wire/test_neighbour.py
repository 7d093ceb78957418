"""Node calls between two releases: what a receiver ignores, adds, and refuses."""

from __future__ import annotations

import dataclasses
import re
from typing import Any

import pytest

from fakes.config import FakeConfig, cluster_of, disk_of, instance_of
from ganeti import RELEASE, errors, ht
from ganeti.backend.node import verify
from ganeti.constants import net
from ganeti.objects import hvparams
from ganeti.wire import calls, json, neighbour
from ganeti.wire.calls import base
from ganeti.wire.neighbour import Peer

INSTANCE = instance_of("web", disks=(disk_of("web").uuid,))


@pytest.fixture
def peer() -> Peer:
    return Peer("9.9.0")


def body_of(call: calls.Call, **args: Any) -> list[Any]:
    config = FakeConfig(cluster_of(instances=(INSTANCE,), disks=(disk_of("web"),)))
    found: list[Any] = json.loads(json.dumps(call.encode_args(args, config)))
    return found


def instance_body() -> tuple[list[Any], dict[str, Any]]:
    body = body_of(calls.INSTANCE_MIGRATABLE, instance=INSTANCE)
    return body, body[0]


def test_only_another_release_is_a_peer() -> None:
    assert neighbour.peer_of("") is None and neighbour.peer_of(RELEASE) is None
    found = neighbour.peer_of("9.9.0")
    assert found is not None and "9.9.0" in str(found) and RELEASE in str(found)


def test_unknown_fields_are_ignored_and_those_with_a_value_named(peer: Peer) -> None:
    body, instance = instance_body()
    expected = calls.INSTANCE_MIGRATABLE.decode_args(json.loads(json.dumps(body)))
    instance["color"] = "red"
    instance["sound"] = None
    instance["beparams"]["sockets"] = 2
    instance["nics"][0]["speed"] = 100
    instance["disks_info"][0]["shape"] = []
    instance["hvparams"]["no-such-parameter"] = "x"
    with pytest.raises(errors.ParseError, match="unknown key"):
        calls.INSTANCE_MIGRATABLE.decode_args(body)
    assert calls.INSTANCE_MIGRATABLE.decode_args(body, peer) == expected
    assert sorted(peer.ignored) == [
        "instance/beparams/sockets",
        "instance/color",
        "instance/hvparams/no-such-parameter",
        "instance/nics/0/speed",
    ]


def test_missing_fields_and_parameters_have_defaults(peer: Peer) -> None:
    """A master of the release before does not send what is new."""
    body, instance = instance_body()
    del instance["tags"], instance["disks_info"][0]["mode"]
    del instance["beparams"]["vcpus"], instance["nics"][0]["nicparams"]["vlan"]
    parameter = next(iter(hvparams.defaults(INSTANCE.hypervisor)))
    del instance["hvparams"][parameter]
    found = calls.INSTANCE_MIGRATABLE.decode_args(body, peer)["instance"]
    assert found.tags == () and found.disks_info[0].mode == "rw"
    assert found.beparams["vcpus"] == 1
    assert found.nics[0].nicparams["vlan"] == net.NIC_DEFAULTS["vlan"]
    assert found.hvparams[parameter] == hvparams.defaults(INSTANCE.hypervisor)[parameter]
    assert peer.ignored == []


def test_a_required_field_and_a_wrong_value_stay_errors(peer: Peer) -> None:
    body, instance = instance_body()
    instance["primary_node"] = 17
    with pytest.raises(errors.ParseError, match="primary_node: must be text"):
        calls.INSTANCE_MIGRATABLE.decode_args(body, peer)
    del instance["primary_node"]
    with pytest.raises(errors.ParseError, match="primary_node: is missing"):
        calls.INSTANCE_MIGRATABLE.decode_args(body, peer)


def test_a_device_of_either_kind(peer: Peer) -> None:
    """The call of a hotplug has a disk or a NIC."""
    _body, instance = instance_body()
    nic = instance["nics"][0]
    nic["speed"] = 100
    del nic["nicparams"]["vlan"]
    device = base.Call("plug", (base.Arg("device", base.DEVICE),))
    assert device.decode_args([nic], peer)["device"].nicparams["vlan"] == ""
    assert peer.ignored == ["device/speed"]
    disk = instance["disks_info"][0]
    assert device.decode_args([disk], peer)["device"].uuid == disk["uuid"]


def test_parameters_of_hypervisors_in_all_forms(peer: Peer) -> None:
    defaults = hvparams.defaults("fake")
    sent = {**defaults, "new": 1}
    missing = next(iter(defaults), None)
    if missing is not None:
        del sent[missing]
    for call, body, place in (
        (calls.INSTANCE_INFO, ["web", "fake", sent], "hvparams/new"),
        (calls.INSTANCE_LIST, [["fake"], {"fake": sent}], "hvparams/fake/new"),
        (calls.NODE_INFO, [[], [["fake", sent]]], "hv_specs/fake/new"),
    ):
        peer.ignored.clear()
        found = call.decode_args(body, peer)
        held = found.get("hvparams", {"fake": dict(found.get("hv_specs", ())).get("fake")})
        assert held.get("fake", held) == defaults
        assert peer.ignored == [place]


def test_a_hypervisor_which_this_release_does_not_have(peer: Peer) -> None:
    """The handler says that there is none; the parameters stay as they are."""
    args = calls.INSTANCE_INFO.decode_args(["web", "no-such", {"x": 1}], peer)
    assert args["hvparams"] == {"x": 1}


def test_unknown_checks_of_a_node_are_left_out(peer: Peer) -> None:
    body = [{"time": None, "of-the-next-release": ["x"]}, "cluster", {}]
    assert calls.NODE_VERIFY.decode_args(body, peer)["checks"] == {"time": None}
    assert peer.ignored == ["checks/of-the-next-release"]


def test_every_check_is_known_to_the_call() -> None:
    """Otherwise it would be left out between two releases which both have it."""
    for name in verify._CHECKS:
        peer = Peer("9.9.0")
        calls.NODE_VERIFY.decode_args([{name: "x"}, "cluster", {}], peer)
        assert peer.ignored == []


CALL = base.Call(
    "paint",
    (base.Arg("color", shape=ht.Str), base.Arg("coats", shape=ht.Int, default=1)),
)


def test_an_argument_which_the_release_before_does_not_send(peer: Peer) -> None:
    assert CALL.decode_args(["red"], peer) == {"color": "red", "coats": 1}
    assert CALL.decode_args(["red", 2], peer) == {"color": "red", "coats": 2}
    with pytest.raises(errors.ParseError, match="takes 2 arguments, got 0"):
        CALL.decode_args([], peer)
    with pytest.raises(errors.ParseError, match="takes 2 arguments, got 1"):
        CALL.decode_args(["red"])


@pytest.mark.parametrize("further", [None, False, 0, "", [], {}])
def test_further_arguments_are_ignored_while_they_are_empty(peer: Peer, further: Any) -> None:
    assert CALL.decode_args(["red", 2, further], peer) == {"color": "red", "coats": 2}
    with pytest.raises(errors.ParseError, match="takes 2 arguments, got 3"):
        CALL.decode_args(["red", 2, further])


def test_further_arguments_with_a_value_are_an_error(peer: Peer) -> None:
    """To do less than what was asked could lose data."""
    with pytest.raises(errors.ParseError, match="takes 2 arguments, got 4"):
        CALL.decode_args(["red", 2, None, True], peer)


def test_the_names_fit_into_a_header(peer: Peer) -> None:
    assert neighbour.ignored_text(peer) == ""
    peer.ignored = ["a", "b", "a"]
    assert neighbour.parse_ignored(neighbour.ignored_text(peer)) == ["a", "b"]
    peer.ignored = [f"{number}-{'ü' * 100}\r\n" for number in range(1000)]
    text = neighbour.ignored_text(peer)
    assert len(text) < 4096 and re.fullmatch("[ -~]*", text)
    assert neighbour.parse_ignored(text)[-1] == "and more"


@pytest.mark.parametrize("text", ["", "x", "{}", "17", "[", "[1"])
def test_odd_headers_name_nothing(text: str) -> None:
    assert neighbour.parse_ignored(text) == []


def test_an_instance_of_this_release_is_not_changed(peer: Peer) -> None:
    body, _instance = instance_body()
    plain = calls.INSTANCE_MIGRATABLE.decode_args(body)["instance"]
    same = calls.INSTANCE_MIGRATABLE.decode_args(body, peer)["instance"]
    assert dataclasses.asdict(same) == dataclasses.asdict(plain)
