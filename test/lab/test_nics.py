"""NICs of guests on a real kernel: VLANs on a bridge and in Open vSwitch, vhost-net.

On node2 and node3 there are switches with a cable: what a guest sends comes out at its far end, and
what is sent there may come to the guest. The guest is the firmware of its NIC, which asks
the network for a system to start: so it sends packets soon, also in an emulation within an
emulation.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from lab import frames
from lab.cluster import Cluster
from lab.machines import Machine

NAME = "nics"
BRIDGE, FLAT_BRIDGE, SWITCH = "vlans", "novlans", "ovs"
FRAMES = "/root/frames.py"
#: Sent into the cable: without a tag, and in VLANs of which the guest has some.
SENT = (0, 7, 8, 9)
_NODES = ("node2", "node3")
_DHCP_S = 600


@pytest.fixture(scope="module", autouse=True)
def switches(cluster: Cluster, kvm: None) -> Iterator[None]:
    """A bridge that separates VLANs, with a cable that has all of them; and one that does not."""
    program = Path(frames.__file__).read_text()
    for name in _NODES:
        machine = cluster.lab[name]
        machine.write(FRAMES, program)
        machine.run(
            "ip link add cable type veth peer name far && ip link set cable up &&"
            f" ip link set far up && ip link add {BRIDGE} type bridge vlan_filtering 1 &&"
            f" ip link add {FLAT_BRIDGE} type bridge && ip link set {BRIDGE} up &&"
            f" ip link set {FLAT_BRIDGE} up && ip link set cable master {BRIDGE}"
        )
        for vlan in SENT[1:]:
            machine.run(f"bridge vlan add dev cable vid {vlan}")
    yield
    for name in _NODES:
        cluster.lab[name].run(f"ip link del cable; ip link del {BRIDGE}; ip link del {FLAT_BRIDGE}")


@pytest.fixture(autouse=True)
def _nothing_stays(cluster: Cluster) -> Iterator[None]:
    yield
    for name in cluster.gnt("instance", "list", "--no-headers", "-o", "name").split():
        cluster.remove(name)
    for name in _NODES:
        assert taps(cluster.lab[name]) == [], name


@pytest.fixture
def node2(cluster: Cluster) -> Machine:
    return cluster.lab["node2"]


def add(cluster: Cluster, nic: str, *, template: str = "plain", hvparams: str = "") -> None:
    """A running guest on node2 with one NIC."""
    nodes = "node2" if template == "plain" else "node2:node3"
    cluster.gnt(
        "instance",
        "add",
        "-t",
        template,
        "--disk",
        "0:size=16M",
        "-n",
        nodes,
        "-H",
        f"kvm:kernel_path=,initrd_path=,boot_order=network{hvparams}",
        "-B",
        "memory=64",
        "--net",
        f"0:{nic}",
        "--no-install",
        "-o",
        "tiny",
        "--no-name-check",
        "--no-ip-check",
        NAME,
    )
    cluster.gnt("instance", "startup", NAME)


def taps(machine: Machine) -> list[str]:
    """Interfaces of guests."""
    return [one["ifname"] for one in json.loads(machine.run("ip -json link show type tun")) if one]


def tap(machine: Machine) -> str:
    """The interface of the only guest."""
    (found,) = taps(machine)
    return found


def vlans(machine: Machine, device: str) -> dict[int, set[str]]:
    """VLAN -> flags of a port of the bridge, as the kernel has them."""
    ports = json.loads(machine.run(f"bridge -json vlan show dev {device}"))
    return {entry["vlan"]: set(entry.get("flags", ())) for port in ports for entry in port["vlans"]}


def seen(text: str) -> list[tuple[str, int]]:
    """(source, tag) from what ``frames.py watch`` printed."""
    return [
        (source, int(tag))
        for source, tag in (line.split() for line in text.splitlines() if line != "watching")
    ]


def leaving(cluster: Cluster, machine: Machine) -> set[int]:
    """Tags of the guest's next packets at the far end of the cable."""
    (mac,) = cluster.fields("instance", NAME, "nic.mac/0")
    text = machine.run(f"timeout {_DHCP_S} python3 {FRAMES} watch far {mac} 3")
    return {tag for _source, tag in seen(text)}


def arriving(machine: Machine) -> dict[int, int]:
    """Send into the cable; VLAN -> the tag with which it comes to the guest, if it does."""
    text = machine.run(
        f"rm -f /run/frames; python3 {FRAMES} watch {tap(machine)} {frames.OURS} >/run/frames &"
        " until grep -qs watching /run/frames; do sleep 0.1; done;"
        f" python3 {FRAMES} send far {' '.join(map(str, SENT))}; sleep 1; kill $!;"
        " cat /run/frames"
    )
    return {int(source.replace(":", "")[-4:], 16): tag for source, tag in seen(text)}


def opened(machine: Machine) -> list[str]:
    """Files in /dev which the only QEMU has open."""
    return machine.run(
        "readlink /proc/$(pgrep -f '^/usr/bin/qemu-system')/fd/* | grep ^/dev/ | sort"
    ).split()


def test_a_card_in_a_vlan(cluster: Cluster, node2: Machine) -> None:
    add(cluster, f"link={BRIDGE},vlan=7")
    assert vlans(node2, tap(node2)) == {7: {"PVID", "Egress Untagged"}}
    assert arriving(node2) == {7: 0}
    # The guest knows nothing of VLANs; at the other end of the cable its packets have the tag.
    assert leaving(cluster, node2) == {7}


def test_a_card_in_no_vlan(cluster: Cluster, node2: Machine) -> None:
    """The same bridge as every bridge is: without a tag on both sides."""
    add(cluster, f"link={BRIDGE}")
    assert vlans(node2, tap(node2)) == {1: {"PVID", "Egress Untagged"}}
    assert arriving(node2) == {0: 0}
    assert leaving(cluster, node2) == {0}


@pytest.mark.parametrize(
    ("vlan", "expected"),
    [
        (":7:8", {7: 7, 8: 8}),
        (".7:8", {7: 0, 8: 8}),
    ],
)
def test_several_vlans(
    cluster: Cluster, node2: Machine, vlan: str, expected: dict[int, int]
) -> None:
    add(cluster, f"link={BRIDGE},vlan={vlan}")
    assert set(vlans(node2, tap(node2))) == set(expected)
    assert arriving(node2) == expected


def test_a_bridge_that_does_not_separate(cluster: Cluster) -> None:
    add(cluster, f"link={BRIDGE},vlan=7")
    cluster.gnt("instance", "shutdown", "--timeout=0", NAME)
    cluster.gnt("instance", "modify", "--net", f"0:modify,link={FLAT_BRIDGE}", NAME)
    text = cluster.fails("instance", "startup", NAME)
    assert f"bridge {FLAT_BRIDGE} does not separate VLANs" in text, text


def test_the_vlan_goes_with_a_live_migration(cluster: Cluster, node2: Machine) -> None:
    add(cluster, f"link={BRIDGE},vlan=7", template="drbd")
    cluster.gnt("instance", "migrate", "-f", NAME)
    node3 = cluster.lab["node3"]
    assert taps(node2) == []
    assert vlans(node3, tap(node3)) == {7: {"PVID", "Egress Untagged"}}
    assert arriving(node3) == {7: 0}


def test_the_kernel_carries_packets(cluster: Cluster, node2: Machine) -> None:
    """``vhost_net`` opens the kernel's device, and QEMU does without it where there is none."""
    add(cluster, f"link={BRIDGE}", hvparams=",vhost_net=true")
    assert "/dev/vhost-net" not in opened(node2)
    cluster.gnt("instance", "shutdown", "--timeout=0", NAME)
    node2.run("modprobe vhost_net")
    cluster.gnt("instance", "startup", NAME)
    assert "/dev/vhost-net" in opened(node2)
    # A NIC which is added later is passed to QEMU with the device already open.
    cluster.gnt("instance", "modify", "--hotplug", "--net", f"add:link={BRIDGE}", NAME)
    assert opened(node2).count("/dev/vhost-net") == 2
    # The kernel has a thread for each NIC.
    assert len(node2.run("pgrep '^vhost-[0-9]'").split()) == 2
    cluster.gnt("instance", "shutdown", "--timeout=0", NAME)
    cluster.gnt("instance", "modify", "-H", "vhost_net=false", NAME)
    cluster.gnt("instance", "startup", NAME)
    assert "/dev/vhost-net" not in opened(node2) and "/dev/net/tun" in opened(node2)


@pytest.mark.parametrize(
    ("vlan", "expected"),
    [
        ("7", {7: 0}),
        (":7:8", {7: 7, 8: 8}),
        (".7:8", {7: 0, 8: 8}),
    ],
)
def test_open_vswitch(
    cluster: Cluster, node2: Machine, vlan: str, expected: dict[int, int]
) -> None:
    node2.run(
        "/usr/share/openvswitch/scripts/ovs-ctl start --system-id=random >/dev/null &&"
        f" ovs-vsctl --may-exist add-br {SWITCH} && ip link set cable nomaster &&"
        f" ovs-vsctl --may-exist add-port {SWITCH} cable"
    )
    try:
        add(cluster, f"mode=openvswitch,link={SWITCH},vlan={vlan}")
        assert arriving(node2) == expected
        if vlan == "7":
            assert leaving(cluster, node2) == {7}
        cluster.gnt("instance", "shutdown", "--timeout=0", NAME)
        assert node2.run(f"ovs-vsctl list-ports {SWITCH}").split() == ["cable"]
    finally:
        node2.run(f"ovs-vsctl del-port {SWITCH} cable && ip link set cable master {BRIDGE}")
