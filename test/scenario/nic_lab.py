"""All NIC modes at once, with a real guest, in a network of its own.

A program for ``unshare --net --mount``: ``python nic_lab.py DIRECTORY IMAGE`` prints what was seen
as one JSON object. One guest has a card in each mode, is asked to ping around, loses a card, moves
to another node with the example of a protecting ``kvm-vif-bridge``, and tries to lie there.

Everything is in one network namespace but the host ``outside`` behind a wire. The node has
192.0.2.1 and 2001:db8:5::1 (the gateways of the routed network), 198.51.100.1 on the bridge br0 and
203.0.113.1 in VLAN 5 of the switch ovs0.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

TOP = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(TOP / "lib"))

from kvm_node import Node, follow, wait_until  # noqa: E402  (the path must be set first)

from ganeti.backend.instance import hotplug, lifecycle  # noqa: E402
from ganeti.objects.instance import FilledInstance, FilledNic  # noqa: E402
from ganeti.objects.network import Network  # noqa: E402
from ganeti.platform import paths  # noqa: E402
from ganeti.wire import json  # noqa: E402

NAME = "net.example.com"
MACS = ("aa:00:00:12:34:56", "aa:00:00:12:34:57", "aa:00:00:12:34:58")
GUEST6 = "2001:db8:5:0:a800:ff:fe12:3456"
HONEST = ("192.0.2.1", "192.0.2.77", f"-I {GUEST6} 2001:db8:5::1", "-I 198.51.100.5 198.51.100.1")
# From the address of another one; on the bridge the node answers to it.
LIE = "-I 198.51.100.66 198.51.100.1"
# The node's way to this one is not through the guest, so there is no answer in any case.
LIE6 = "-I 2001:db8:5::66 2001:db8:5::1"
ADDRESSES = (
    "ip addr add 192.0.2.5/24 dev eth0",
    f"ip -6 addr add {GUEST6}/64 dev eth0",
    "ip -6 route add default via 2001:db8:5::1 dev eth0",
    "ip -6 addr add 2001:db8:5::66/64 dev eth0",
    "ip addr add 198.51.100.5/24 dev eth1",
    "ip addr add 198.51.100.66/24 dev eth1",
    "ip addr add 203.0.113.5/24 dev eth2",
)
HOOK = TOP / "doc/examples/firewall/kvm-vif-bridge"
WITH_OVS = shutil.which("ovs-vswitchd") is not None
WITH_NFT = shutil.which("nft") is not None


def run(command: str) -> str:
    """A command line of this program's; what it says."""
    done = subprocess.run(command.split(), capture_output=True, text=True, timeout=60, check=False)
    if done.returncode != 0:
        raise SystemExit(f"{command}: {done.stderr}")
    return done.stdout


@contextmanager
def network(directory: Path) -> Iterator[None]:
    """Bridges, addresses, the host behind the wire; everything ends with the namespace."""
    run("mount -t sysfs sys /sys")
    outside = subprocess.Popen(["unshare", "--net", "sleep", "infinity"])
    # Not before it has left our namespace.
    wait_until(
        lambda: os.readlink(f"/proc/{outside.pid}/ns/net") != os.readlink("/proc/self/ns/net"),
        "it is outside",
    )
    enter = f"nsenter -t {outside.pid} -n"
    for command in (
        "ip link set lo up",
        "ip addr add 192.0.2.1/32 dev lo",
        "ip addr add 2001:db8:5::1/128 dev lo",
        "ip link add br0 type bridge",
        "ip link set br0 up mtu 1400",
        "ip addr add 198.51.100.1/24 dev br0",
        f"ip link add wire type veth peer name wire netns {outside.pid}",
        "ip link set wire up",
        "ip route add 192.0.2.77 dev wire",
        f"{enter} ip addr add 192.0.2.77/32 dev wire",
        f"{enter} ip link set wire up",
        f"{enter} ip route add 192.0.2.1 dev wire",
        f"{enter} ip route add 192.0.2.5 via 192.0.2.1",
    ):
        run(command)
    # What the administrator of routers does; the interfaces of guests are our own matter.
    Path("/proc/sys/net/ipv4/conf/wire/forwarding").write_text("1")
    daemons = switch(directory) if WITH_OVS else []
    try:
        yield
    finally:
        outside.kill()
        for pid_file in daemons:
            os.kill(int(pid_file.read_text()), 15)


def switch(directory: Path) -> list[Path]:
    """Open vSwitch without a kernel module; its pid files."""
    for name in ("RUNDIR", "LOGDIR", "DBDIR", "SYSCONFDIR"):
        os.environ[f"OVS_{name}"] = str(directory)
    database, server, daemon = (directory / name for name in ("conf.db", "db.pid", "vs.pid"))
    schema = "/usr/share/openvswitch/vswitch.ovsschema"
    run(f"ovsdb-tool create {database} {schema}")
    run(
        f"ovsdb-server {database} --remote=punix:{directory}/db.sock --pidfile={server} "
        "--detach --no-chdir --log-file"
    )
    run(f"ovs-vswitchd --pidfile={daemon} --detach --no-chdir --log-file")
    run(
        "ovs-vsctl --timeout=60 add-br ovs0 -- set bridge ovs0 datapath_type=netdev -- "
        "add-port ovs0 vlan5 tag=5 -- set interface vlan5 type=internal"
    )
    run("ip addr add 203.0.113.1/24 dev vlan5")
    run("ip link set vlan5 up")
    return [daemon, server]


def cards() -> tuple[FilledNic, ...]:
    routed = Network(
        name="net1",
        uuid="77777777-0000-4000-8000-000000000001",
        serial_no=1,
        network="192.0.2.0/24",
        gateway="192.0.2.1",
        network6="2001:db8:5::/64",
        gateway6="2001:db8:5::1",
        tags=("dmz", "fast"),
    )
    params: list[dict[str, Any]] = [
        {
            "ip": "192.0.2.5",
            "netinfo": routed,
            "network": routed.uuid,
            "nicparams": {"mode": "routed", "link": "", "vlan": ""},
        },
        {"ip": "198.51.100.5", "nicparams": {"mode": "bridged", "link": "br0", "vlan": ""}},
    ]
    if WITH_OVS:
        params.append(
            {
                "ip": "203.0.113.5",
                "nicparams": {"mode": "openvswitch", "link": "ovs0", "vlan": ".5"},
            }
        )
    return tuple(
        FilledNic(mac=MACS[number], uuid=f"{number:08x}-0000-4000-8000-00000000000a", **one)
        for number, one in enumerate(params)
    )


class Visit:
    """The guest on one node."""

    def __init__(self, node: Node, guest: FilledInstance) -> None:
        self.node, self.guest = node, guest

    def taps(self) -> list[str]:
        directory = Path(self.node.paths.kvm_root) / "nic" / NAME
        return [(directory / str(number)).read_text() for number in range(len(self.guest.nics))]

    def reaches(self, *pings: str) -> set[str]:
        """Which pings are answered, all at once; each is ``[-I SOURCE] TARGET``."""
        # The guest's shell reads lines of a thousand characters.
        self.node.ask(
            self.guest,
            "p() { n=0; until ping -c 1 -W 1 $* >/dev/null 2>&1; do "
            'n=$((n+1)); [ $n -lt 2 ] || return; done; echo "yes: $*" >>/tmp/yes; }',
        )
        at_once = " ".join(f"p {words} &" for words in pings)
        said = self.node.ask(self.guest, f"rm -f /tmp/yes; {at_once} wait; cat /tmp/yes")
        return {
            line.removeprefix("yes: ").strip()
            for line in said.splitlines()
            if line.startswith("yes: ")
        }


def reached(address: str) -> bool:
    """Whether the guest answers to the node: it has no such service, and says so."""

    def answers() -> bool:
        try:
            socket.create_connection((address, 9), timeout=2).close()
        except ConnectionRefusedError:
            return True
        except OSError:
            return False
        return True

    return bool(wait_until(answers, f"{address} answers"))


def ports() -> set[str]:
    return set(run("ovs-vsctl list-ports ovs0").split())


def life(first: Node, second: Node) -> dict[str, Any]:
    """What the guest and its nodes have seen."""
    guest = replace(first.instance(NAME, disks=1), nics=cards(), tags=("prod",))
    first.install(guest, OSP_QUIET="yes")
    first.start(guest)
    wait_until(lambda: "shell on the serial console" in first.console(guest), "there is a shell")
    here = Visit(first, guest)
    taps = here.taps()
    seen: dict[str, Any] = {
        "taps": len(taps),
        "mtu": int(Path(f"/sys/class/net/{taps[1]}/mtu").read_text()),
    }
    seen["bridge"] = [os.listdir("/sys/class/net/br0/brif") == [taps[1]]]
    if WITH_OVS:
        seen["ports"] = [ports() == {"vlan5", taps[-1]}]
        seen["tag"] = run(f"ovs-vsctl get port {taps[2]} tag").strip()
    last = f"/sys/class/net/eth{len(taps) - 1}"
    first.ask(
        guest,
        f"until [ -e {last} ]; do sleep 1; done; ip link set eth0 up; "
        "ip link set eth1 up; ip link set eth2 up",
    )
    first.ask(guest, "; ".join(ADDRESSES[: None if WITH_OVS else -1]))
    targets = [*HONEST, LIE, *(["203.0.113.1"] if WITH_OVS else [])]
    # A new IPv6 address takes its time, so this is asked until it is right.
    seen["first"] = wait_until(lambda: here.reaches(*targets) == set(targets), "all answer")
    seen["node to guest"] = {one: reached(one) for one in ("192.0.2.5", GUEST6, "198.51.100.5")}
    if WITH_OVS:
        with paths.override(first.paths):
            hotplug.hotplug_device(guest, "hotremove", "nic", guest.nics[2], None, 2)
        guest = here.guest = replace(guest, nics=guest.nics[:2])
        seen["ports"].append(ports() == {"vlan5"})
    # A card that comes while the guest runs works like the one it had.
    with paths.override(first.paths):
        hotplug.hotplug_device(guest, "hotremove", "nic", guest.nics[1], None, 1)
        seen["bridge"].append(os.listdir("/sys/class/net/br0/brif") == [])
        hotplug.hotplug_device(guest, "hotadd", "nic", guest.nics[1], None, 1)
    seen["bridge"].append(os.listdir("/sys/class/net/br0/brif") == [here.taps()[1]])
    first.ask(
        guest,
        "until [ -e /sys/class/net/eth1 ]; do sleep 1; done; ip link set eth1 up; "
        + "; ".join(line for line in ADDRESSES if line.endswith("eth1")),
    )
    wait_until(lambda: here.reaches(HONEST[-1]) == {HONEST[-1]}, "the new card answers")
    if WITH_NFT:
        seen["second"] = moved(first, second, guest)
        second.shutdown(guest, 0)
        seen["rules left"] = run("nft list table netdev ganeti_guests").count("chain")
    else:
        first.shutdown(guest, 0)
    seen["bridge"].append(os.listdir("/sys/class/net/br0/brif") == [])
    seen["left"] = [name for name in os.listdir("/sys/class/net") if name.startswith("gnt.")]
    seen["left"] += first.leftovers() + second.leftovers()
    return seen


def moved(first: Node, second: Node, guest: FilledInstance) -> dict[str, Any]:
    """The guest moves to a node that looks at what it sends, and is no longer believed all."""
    hook = Path(second.paths.to_local("/etc/ganeti/kvm-vif-bridge"))
    hook.parent.mkdir(parents=True)
    calls = second.root / "calls"
    # The example, and a note of each call.
    hook.write_text(
        f'#!/bin/sh\nenv | grep -E "^(ACTION|MODE|IP|NETWORK_TAGS|TAGS)=" | sort | '
        f'paste -sd " " - >> {calls}\nexec {HOOK} "$@"\n'
    )
    hook.chmod(0o755)
    there = Visit(second, guest)
    with paths.override(first.paths):
        info = lifecycle.migration_info(guest)
    second.assemble(guest)
    with paths.override(second.paths):
        lifecycle.accept_instance(guest, info, "127.0.0.31")
    route = "ip -4 route show 192.0.2.5"
    seen: dict[str, Any] = {"waits": Visit(first, guest).taps()[0] in run(route)}
    with paths.override(first.paths):
        lifecycle.migrate("cluster", guest, "127.0.0.31", True)
    seen["ended"] = wait_until(lambda: follow(first, guest), "the migration ends")
    with paths.override(second.paths):
        lifecycle.finalize_migration_dst(guest, info, True)
    with paths.override(first.paths):
        lifecycle.finalize_migration_src(guest, True, True)
    seen["follows"] = there.taps()[0] in run(route)
    seen["honest"] = wait_until(lambda: there.reaches(*HONEST) == set(HONEST), "all answer")
    seen["lies"] = sorted(there.reaches(LIE, LIE6))
    second.ask(
        guest,
        "ip link set eth1 down; ip link set eth1 address aa:00:00:66:66:66; ip link set eth1 up",
    )
    seen["other card"] = sorted(there.reaches("-I 198.51.100.5 198.51.100.1"))
    seen["dropped"] = [
        line.partition(" counter")[0].strip()
        for line in run("nft list table netdev ganeti_guests").splitlines()
        if "counter packets" in line and "counter packets 0 " not in line
    ]
    with paths.override(second.paths):
        lifecycle.shutdown(guest, 0, [])
    seen["calls"] = calls.read_text().splitlines()
    return seen


def main(directory: str, image: str) -> None:
    top = Path(directory)
    (top / "shared").mkdir()
    nodes = [Node(top / name, Path(image), top / "shared") for name in ("a", "b")]
    with network(top):
        try:
            seen = life(*nodes)
        finally:
            for node in nodes:
                node.end_all()
    print(json.dumps(seen))


if __name__ == "__main__":
    main(*sys.argv[1:])
