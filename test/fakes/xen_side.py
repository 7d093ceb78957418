"""A whole cluster in one process (:mod:`.node_side`) whose guests are those of a fake ``xl``.

The drivers of the nodes are those of Xen. Each node has its own domains, and a migration is made by
the real program over TLS, on addresses of the loopback interface.
"""

from __future__ import annotations

import dataclasses
import shutil
import socket
from pathlib import Path
from typing import Any

from fakes.config import cluster_of
from fakes.node_side import Cluster, NodeSide
from fakes.xen_node import XenNode
from ganeti.hypervisor.xen import transfer
from ganeti.objects import Disk, Instance, hvparams
from ganeti.rpc import Result
from ganeti.wire.calls import Call

ADDRESSES = "127.0.0.4{}"
_RUNS = ("-b----", "r-----")


class XenSide(NodeSide):
    """Nodes under Xen."""

    def __init__(self, config: Any, directory: Path) -> None:
        super().__init__(config, directory)
        self.nodes = {node.name: XenNode(self.root(node.name)) for node in config.nodes()}

    def _answer(self, call: Call, node_name: str, args: dict[str, Any]) -> Result:
        with self.nodes[node_name].here():
            return super()._answer(call, node_name, args)

    def running(self) -> dict[str, list[str]]:
        """Instance name to the nodes where a domain of it runs."""
        found: dict[str, list[str]] = {}
        for name, node in self.nodes.items():
            for domain in node.domains().values():
                if domain["state"] in _RUNS:
                    found.setdefault(domain["name"], []).append(name.split(".")[0])
        return found

    def migrating(self) -> dict[str, list[str]]:
        """Instance name to the nodes which know of a migration of it."""
        found: dict[str, list[str]] = {}
        for name, node in self.nodes.items():
            with node.here():
                for guest in transfer.names():
                    found.setdefault(guest, []).append(name.split(".")[0])
        return found

    def left(self) -> list[str]:
        """Domains and files which the drivers keep, with the names of their nodes."""
        return sorted(
            f"{name.split('.')[0]}:{what}"
            for name, node in self.nodes.items()
            for what in (*node.domains(), *node.files())
        )

    def end(self) -> None:
        """End the programs of all migrations."""
        for node in self.nodes.values():
            node.behave()
            with node.here():
                for guest in transfer.names():
                    transfer.end_program(guest)


class XenCluster(Cluster):
    """A master with such nodes."""

    rpc: XenSide  # type: ignore[assignment]

    def __init__(
        self,
        directory: Path,
        instances: tuple[Instance, ...],
        disks: tuple[Disk, ...],
        **changes: Any,
    ) -> None:
        """Make it; `changes` are those of the cluster."""
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        params = {**hvparams.defaults("xen-pvm"), "migration_port": port}
        data = cluster_of(
            3,
            instances,
            disks,
            enabled_hypervisors=("xen-pvm",),
            hvparams={"xen-pvm": params},
            **changes,
        )
        nodes = {
            uuid: dataclasses.replace(node, secondary_ip=ADDRESSES.format(number))
            for number, (uuid, node) in enumerate(data.nodes.items(), 1)
        }
        super().__init__(dataclasses.replace(data, nodes=nodes), directory)
        # The configuration's own runner has made them; that of Xen makes them again.
        for path in list(directory.iterdir()):
            shutil.rmtree(path)
        self.rpc = self.config.node_side = XenSide(self.config, directory)
        self._new_master()

    def check_clean(self) -> None:
        """Also of the files and domains of the drivers nothing is left, and nothing is missing."""
        super().check_clean()
        wanted = sorted(
            f"{node}:{what}"
            for name, nodes in self.rpc.running().items()
            for node in nodes
            for what in (
                name,
                f"etc/xen/{name}",
                f"var/run/ganeti/xen-hypervisor/conf/{name}.json",
            )
        )
        found = [one for one in self.rpc.left() if "/nic/" not in one]
        assert found == wanted, f"left or missing: {sorted(set(found) ^ set(wanted))}"
