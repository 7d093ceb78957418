"""The two networks of the machines, primary and secondary.

As root they are bridges in a network namespace of the laboratory's own: programs of the host enter
it to talk to a machine, and everything disappears with it. Without root the machines share two
multicast groups of the loopback interface, and the host reaches each of them through a forwarded
port. QEMU cuts the cables in both cases.
"""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import socket
import subprocess

from lab.qemu import NetworkInterface

PREFIX = "10.77"
_SLIRP = "10.77.9"


class Namespace:
    """Bridges in a network namespace."""

    def __init__(self, name: str) -> None:
        self.name = f"gntlab-{name}"

    @staticmethod
    def possible() -> bool:
        """Check whether this user may make a network namespace."""
        return (
            os.geteuid() == 0 and shutil.which("ip") is not None and os.path.exists("/dev/net/tun")
        )

    def up(self) -> None:
        """Make the namespace with its bridges."""
        _ip("netns", "add", self.name)
        self._ip("link", "set", "lo", "up")
        for net in (1, 2):
            self._ip("link", "add", f"br{net}", "type", "bridge")
            self._ip("addr", "add", f"{PREFIX}.{net}.254/24", "dev", f"br{net}")
            self._ip("link", "set", f"br{net}", "up")

    def nics(self, number: int) -> list[NetworkInterface]:
        """Return the NICs of machine `number` (from 1)."""
        nics = []
        for net in (1, 2):
            tap = f"tap{number}.{net}"
            self._ip("tuntap", "add", tap, "mode", "tap")
            self._ip("link", "set", tap, "master", f"br{net}", "up")
            nics.append(
                NetworkInterface(
                    netdev=f"tap,ifname={tap},script=no,downscript=no",
                    mac=f"52:54:00:77:0{net}:{number:02x}",
                )
            )
        return nics

    def addresses(self, number: int) -> list[str]:
        """Return the addresses of its NICs."""
        return [f"{PREFIX}.{net}.{number}/24" for net in (1, 2)]

    def wrap(self, argv: list[str]) -> list[str]:
        """A command line that runs where the machines are."""
        return ["ip", "netns", "exec", self.name, *argv]

    def ssh_target(self, number: int) -> list[str]:
        """Where ssh finds machine `number`."""
        return [f"root@{PREFIX}.1.{number}"]

    def down(self) -> None:
        """Remove everything."""
        if os.path.exists(f"/run/netns/{self.name}"):
            _ip("netns", "del", self.name)

    def _ip(self, *words: str) -> None:
        _ip("-n", self.name, *words)


class Multicast:
    """Multicast groups of the loopback interface; works for every user."""

    def __init__(self) -> None:
        self._group = f"230.{random.randint(1, 254)}.{random.randint(1, 254)}"
        self._ports: dict[int, int] = {}

    def up(self) -> None:
        """Nothing to prepare."""

    def nics(self, number: int) -> list[NetworkInterface]:
        """Return the NICs of machine `number`; the last one is connected to the host."""
        nics = [
            NetworkInterface(
                netdev=f"socket,mcast={self._group}.{net}:4{net}77,localaddr=127.0.0.1",
                mac=f"52:54:00:77:0{net}:{number:02x}",
            )
            for net in (1, 2)
        ]
        port = self._ports[number] = _free_port()
        forward = f"hostfwd=tcp:127.0.0.1:{port}-{_SLIRP}.15:22"
        return [
            *nics,
            NetworkInterface(
                netdev=f"user,restrict=on,net={_SLIRP}.0/24,{forward}",
                mac=f"52:54:00:77:09:{number:02x}",
            ),
        ]

    def addresses(self, number: int) -> list[str]:
        """Return the addresses of its NICs."""
        return [*(f"{PREFIX}.{net}.{number}/24" for net in (1, 2)), f"{_SLIRP}.15/24"]

    def wrap(self, argv: list[str]) -> list[str]:
        """Nothing is needed around a command."""
        return argv

    def ssh_target(self, number: int) -> list[str]:
        """Where ssh finds machine `number`."""
        return ["-p", str(self._ports[number]), "root@127.0.0.1"]

    def down(self) -> None:
        """Nothing remains."""


def choose(name: str) -> Namespace | Multicast:
    """Return the network namespace if this user may make one, otherwise the multicast groups."""
    wanted = os.environ.get("LAB_NETWORK", "")
    if wanted != "multicast" and Namespace.possible():
        return Namespace(name)
    return Multicast()


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True, text=True)


def _free_port() -> int:
    with contextlib.closing(socket.socket()) as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
