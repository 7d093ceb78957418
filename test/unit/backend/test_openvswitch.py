"""The switch of a node: what is asked of ovs-vsctl, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from ganeti import errors
from ganeti.backend.node import openvswitch
from ganeti.hypervisor import host
from ganeti.utils import process


class Switch:
    """An ovs-vsctl which knows bridges and the ports of each."""

    def __init__(self) -> None:
        self.ports: dict[str, set[str]] = {}
        self.addresses: dict[str, str] = {}
        self.dead = False

    def run(self, argv: list[str], *, check: bool = True, **_: object) -> process.Completed:
        words = argv[2:]
        code, out = 0, ""
        if self.dead:
            code, out = 1, "database connection failed"
        elif words[0] == "br-exists":
            code = 0 if words[1] in self.ports else 2
        elif words[0] == "port-to-br":
            found = [name for name, ports in self.ports.items() if words[1] in ports]
            code, out = (0, f"{found[0]}\n") if found else (1, "no port")
        else:
            assert words[:2] == ["--may-exist", "add-br"]
            self.ports.setdefault(words[2], set())
            if len(words) > 3:
                assert words[3:6] == ["--", "--may-exist", "add-port"] and words[6] == words[2]
                self.ports[words[2]].add(words[7])
        if check and code:
            raise errors.CommandError(argv, code, out)
        return process.Completed(tuple(argv), code, out, "", None)

    def address(self, name: str, _version: int) -> str:
        if name in self.addresses:
            return self.addresses[name]
        raise errors.HypervisorError("it has no address")


@pytest.fixture
def switch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Switch:
    found = Switch()
    for name in ("eth0", "eth1"):
        (tmp_path / name).mkdir()
    monkeypatch.setattr(openvswitch, "_NET_DIR", str(tmp_path))
    monkeypatch.setattr(process, "run", found.run)
    monkeypatch.setattr(host, "interface_address", found.address)
    monkeypatch.setattr(openvswitch.shutil, "which", lambda *_, **__: "/usr/bin/ovs-vsctl")
    return found


def test_it_is_made_once(switch: Switch) -> None:
    assert openvswitch.problem("sw0", "eth1") == "there is no Open vSwitch sw0"
    openvswitch.configure("sw0", "eth1")
    openvswitch.configure("sw0", "eth1")
    assert switch.ports == {"sw0": {"eth1"}}
    assert openvswitch.problem("sw0", "eth1") is None
    assert openvswitch.problem("sw0", None) is None


@pytest.mark.parametrize("link", [None, ""])
def test_without_an_interface(switch: Switch, link: str | None) -> None:
    openvswitch.configure("sw0", link)
    assert switch.ports == {"sw0": set()}


@pytest.mark.parametrize(
    ("name", "link", "text"),
    [
        ("sw0", "eth0", "interface eth0 has the address 192.0.2.1"),
        (
            "sw0",
            "eth7",
            "interface eth7, which is to be a port of Open vSwitch sw0, does not exist",
        ),
        ("--id=@x", None, "'--id=@x' is not the name of a network interface"),
        ("sw0", "a b", "'a b' is not the name"),
        ("a" * 16, None, "is not the name"),
    ],
)
def test_what_is_refused_changes_nothing(
    switch: Switch, name: str, link: str | None, text: str
) -> None:
    switch.addresses["eth0"] = "192.0.2.1"
    with pytest.raises(errors.ConfigurationError, match=text):
        openvswitch.configure(name, link)
    assert switch.ports == {}


def test_an_interface_with_an_address_may_stay_a_port(switch: Switch) -> None:
    """It was there before; only what would cut the node off now is refused."""
    switch.ports["sw0"] = {"eth0"}
    switch.addresses["eth0"] = "192.0.2.1"
    openvswitch.configure("sw0", "eth0")


def test_problems(switch: Switch, monkeypatch: pytest.MonkeyPatch) -> None:
    switch.ports = {"sw0": set(), "sw1": {"eth1"}}
    assert openvswitch.problem("sw0", "eth1") == (
        "interface eth1 is a port of switch sw1, and not of sw0"
    )
    assert openvswitch.problem("sw0", "eth0") == (
        "interface eth0 is a port of no switch, and not of sw0"
    )
    switch.dead = True
    assert openvswitch.problem("sw0", None) == (
        "Open vSwitch does not answer: database connection failed"
    )
    with pytest.raises(errors.ConfigurationError, match="cannot make Open vSwitch sw0"):
        openvswitch.configure("sw0", None)
    monkeypatch.setattr(openvswitch.shutil, "which", lambda *_, **__: None)
    assert "the program ovs-vsctl is missing" in (openvswitch.problem("sw0", None) or "")
