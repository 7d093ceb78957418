"""A whole cluster in one process (:mod:`.node_side`) whose guests are containers of a fake LXC.

The driver of the nodes is the real one. Each node has its own container of the instance ``web``.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fakes.config import cluster_of
from fakes.lxc_node import Lxc
from fakes.node_side import Cluster, NodeSide
from ganeti.hypervisor import rootfs
from ganeti.hypervisor.lxc import cgroups, driver, guests, parameters
from ganeti.hypervisor.net import interfaces, veth
from ganeti.objects import Disk, Instance, hvparams
from ganeti.platform import paths
from ganeti.rpc import Result
from ganeti.utils import process
from ganeti.wire.calls import Call

WEB = "web.example.com"


class LxcSide(NodeSide):
    """Nodes with LXC."""

    def __init__(self, config: Any, directory: Path) -> None:
        super().__init__(config, directory)
        self.nodes = {
            node.name: Lxc(self.root(node.name) / "machine", WEB) for node in config.nodes()
        }
        self.here: Lxc = next(iter(self.nodes.values()))

    def _answer(self, call: Call, node_name: str, args: dict[str, Any]) -> Result:
        self.here = self.nodes[node_name]
        cgroups._MOUNTS = str(self.here.mounts)
        return super()._answer(call, node_name, args)

    def run(self, argv: Sequence[str], **options: Any) -> process.Completed:
        """A program of the node which works at present."""
        return self.here.run(argv, **options)

    def running(self) -> dict[str, list[str]]:
        """Instance name to the nodes where its container runs."""
        nodes = [name.split(".")[0] for name, node in self.nodes.items() if node.monitored]
        return {WEB: nodes} if nodes else {}

    def migrating(self) -> dict[str, list[str]]:
        """Containers do not migrate."""
        return {}

    def left(self) -> dict[str, list[str]]:
        """Node -> the directories of containers and of their mounts there."""
        found: dict[str, list[str]] = {}
        for name in self.nodes:
            own = paths.Paths(str(self.root(name)))
            for place in (own.lxc_root, own.lxc_mount_root):
                kept = Path(place).iterdir() if Path(place).exists() else ()
                names = [f"{path.parent.name}/{path.name}" for path in kept if path.name != ".lock"]
                found.setdefault(name.split(".")[0], []).extend(names)
        return {name: sorted(names) for name, names in found.items() if names}


class LxcCluster(Cluster):
    """A master with such nodes."""

    rpc: LxcSide  # type: ignore[assignment]

    def __init__(
        self,
        directory: Path,
        instances: tuple[Instance, ...],
        disks: tuple[Disk, ...],
        **changes: Any,
    ) -> None:
        """Make it; `changes` are those of the cluster."""
        plain = directory / "plain"
        plain.mkdir()
        data = cluster_of(
            3,
            instances,
            disks,
            enabled_hypervisors=("lxc",),
            hvparams={"lxc": hvparams.defaults("lxc")},
            **changes,
        )
        super().__init__(data, plain)
        real = directory / "nodes"
        real.mkdir()
        self.rpc = self.config.node_side = LxcSide(self.config, real)
        self._new_master()

    def check_clean(self) -> None:
        """Also of the containers nothing is left, and nothing is missing."""
        super().check_clean()
        wanted = {
            node: [f"lxc/{WEB}", f"ganeti/{WEB}"]
            for nodes in self.rpc.running().values()
            for node in nodes
        }
        found = self.rpc.left()
        assert {name: set(names) for name, names in found.items()} == {
            name: set(names) for name, names in wanted.items()
        }, f"left or missing: {found}, {wanted}"


def pretend(monkeypatch: Any, side: Any) -> None:
    """Let the driver use the nodes of a cluster.

    :param side: returns the :class:`LxcSide` of the present cluster.
    """
    numbers = itertools.count()

    def own_cgroups(here: driver.Layout) -> dict[str, str]:
        guests.init_pid(here)
        return {"": f"/lxc.payload.{here.name}"}

    monkeypatch.setattr(cgroups, "_MOUNTS", "")
    monkeypatch.setattr(cgroups, "_write", lambda path, value: side().here.kill(path, value))
    monkeypatch.setattr(process, "run", lambda argv, **more: side().run(argv, **more))
    monkeypatch.setattr(parameters, "problem", lambda: None)
    monkeypatch.setattr(guests, "monitored", lambda: sorted(side().here.monitored))
    monkeypatch.setattr(driver, "_own_cgroups", own_cgroups)
    monkeypatch.setattr(rootfs, "is_in_use", lambda _path: False)
    monkeypatch.setattr(interfaces, "check", lambda *_: None)
    monkeypatch.setattr(interfaces.connections, "connect", lambda *_, **__: None)
    monkeypatch.setattr(interfaces.connections, "disconnect", lambda *_: None)
    monkeypatch.setattr(interfaces.tap, "delete", lambda name: None)
    monkeypatch.setattr(veth.VethPair, "make", lambda *_: f"gnt.tap{next(numbers)}")
    monkeypatch.setattr(veth, "give", lambda host, pid: None)
