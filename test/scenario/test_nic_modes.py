"""A guest's network in every mode, and the firewall examples, for real in network namespaces.

One life of one guest (``nic_lab.py``) serves most tests here.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from kvm_node import PATIENCE_S, TOP

from ganeti.platform import paths

HERE = Path(__file__).resolve().parent
GUEST6 = "2001:db8:5:0:a800:ff:fe12:3456"


def _can_unshare() -> bool:
    """Whether a namespace with mounts of its own can be had: not in every chroot or container."""
    if os.geteuid() != 0 or not os.path.exists("/dev/net/tun"):
        return False
    return (
        subprocess.run(
            ["unshare", "--net", "--mount", "ip", "link"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=False,
        ).returncode
        == 0
    )


pytestmark = pytest.mark.skipif(
    not _can_unshare(), reason="networks need root, /dev/net/tun, ip and namespaces of their own"
)
needs_nft = pytest.mark.skipif(
    shutil.which("nft") is None, reason="nft (package nftables) is not installed"
)


def in_namespace(*argv: object) -> Any:
    done = subprocess.run(
        ["unshare", "--net", "--mount", sys.executable, *map(str, argv)],
        capture_output=True,
        text=True,
        timeout=10 * PATIENCE_S,
        check=False,
        env={**os.environ, paths.ENV_VCLUSTER: str(TOP / "build")},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.fixture(scope="module")
def seen(image: Path) -> Iterator[dict[str, Any]]:
    """What happened in a guest's life, see nic_lab.py."""
    directory = Path(tempfile.mkdtemp(prefix="gnt-nic-"))
    try:
        yield in_namespace(HERE / "nic_lab.py", directory, image)
    finally:
        shutil.rmtree(directory)


def test_bridged(seen: dict[str, Any]) -> None:
    """On the bridge while it runs, with the bridge's MTU; the node and the guest meet there.

    Taken out and plugged in again in between.
    """
    assert seen["bridge"] == [True] * 4 and seen["mtu"] == 1400
    assert seen["node to guest"]["198.51.100.5"]


def test_routed(seen: dict[str, Any]) -> None:
    """The guest reaches its gateways, and a host of its subnet that is behind the node."""
    assert seen["first"]
    assert seen["node to guest"] == dict.fromkeys(("192.0.2.5", GUEST6, "198.51.100.5"), True)


def test_openvswitch(seen: dict[str, Any]) -> None:
    """In its VLAN; its port goes when the card is unplugged."""
    if shutil.which("ovs-vswitchd") is None:
        pytest.skip("Open vSwitch (package openvswitch-switch) is not installed")
    assert seen["first"] and seen["tag"] == "5"
    assert seen["ports"] == [True, True]


def test_nothing_is_left(seen: dict[str, Any]) -> None:
    assert seen["left"] == []


def test_an_interface_goes_where_sys_is_of_another_namespace() -> None:
    """As in a container: /sys does not have the tap device of the guest whose start failed."""
    code = f"""
import os, sys
sys.path.insert(0, {str(TOP / "lib")!r})
from ganeti.hypervisor.net import tap
from ganeti.utils import net
name = tap.create(tap.TapFeatures())
made = net.has_interface(name)
seen_in_sys = os.path.exists(f"/sys/class/net/{{name}}")
tap.delete(name)
print(str([made, seen_in_sys, net.has_interface(name)]).lower())
"""
    assert in_namespace("-c", code) == [True, False, False]


@needs_nft
def test_routes_follow_a_guest_when_it_has_arrived(seen: dict[str, Any]) -> None:
    moved = seen["second"]
    assert moved["ended"] == "completed"
    assert moved["waits"] and moved["follows"]


@needs_nft
def test_the_administrators_program_is_called_at_both_ends(seen: dict[str, Any]) -> None:
    """Routed cards last, because they wait for the guest."""
    assert seen["second"]["calls"] == [
        "ACTION=up IP=198.51.100.5 MODE=bridged TAGS=prod",
        "ACTION=up IP=192.0.2.5 MODE=routed NETWORK_TAGS=dmz fast TAGS=prod",
        "ACTION=down IP=192.0.2.5 MODE=routed NETWORK_TAGS=dmz fast TAGS=prod",
        "ACTION=down IP=198.51.100.5 MODE=bridged TAGS=prod",
    ]


@needs_nft
def test_example_against_false_addresses(seen: dict[str, Any]) -> None:
    """The lie that was answered before is no more, the guest's own addresses are."""
    moved = seen["second"]
    assert moved["honest"]
    assert moved["lies"] == moved["other card"] == []
    dropped = " ".join(moved["dropped"])
    assert "ether saddr != aa:00:00:12:34:57" in dropped
    assert "198.51.100.5" in dropped
    assert f"ip6 saddr != {{ ::, {GUEST6}" in dropped
    assert seen["rules left"] == 0


@pytest.mark.parametrize("kind", ["nft", "iptables"])
def test_example_for_the_users_of_qemu(kind: str) -> None:
    """A process of the pool answers and migrates, and reaches nothing else."""
    if shutil.which(kind) is None:
        pytest.skip(f"{kind} (package {'nftables' if kind == 'nft' else kind}) is not installed")
    assert in_namespace(HERE / "firewall_lab.py", kind) == {
        "before": True,
        "others": True,
        "anywhere": False,
        "migration": True,
        "screen": True,
    }
