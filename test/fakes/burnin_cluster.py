"""A small cluster behind a simulated master, for the tests of ``burnin``.

Four nodes in two groups. The opcodes of instances change a plain model of them, without checks;
each opcode is in :attr:`BurninCluster.log`. A test replaces what an opcode does in
``master.results`` to let it fail or lie.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any, NamedTuple

from fakes.luxi_master import FakeMaster

GROUPS = {"group-a": ("node1", "node2", "node3"), "group-b": ("node4", "node5")}
NODES = tuple(f"{node}.example.com" for names in GROUPS.values() for node in names)
_GROUP_OF = {f"{node}.example.com": group for group, names in GROUPS.items() for node in names}


class Ended(NamedTuple):
    """How a run ended."""

    code: int
    out: str
    err: str


Burnin = Callable[..., Ended]


class BurninCluster:
    """The model.

    :ivar log: OP_ID without ``OP_`` and the object of each opcode which was carried out.
    :ivar tags: name of an instance -> its tags.
    :ivar exports: name of an export -> its node.
    """

    def __init__(self, master: FakeMaster) -> None:
        self.master = master
        self.log: list[tuple[str, str]] = []
        self.tags: dict[str, set[str]] = {}
        self.exports: dict[str, str] = {}
        self._numbers = itertools.count(1)
        master.cluster_info.update(
            name="cluster.example.com",
            master=NODES[0],
            default_hypervisor="fake",
            enabled_hypervisors=["fake"],
            enabled_disk_templates=["drbd", "plain", "diskless", "sharedfile"],
            default_iallocator="hail",
        )
        master.rows["instance"] = []
        master.answers["QueryExports"] = lambda _nodes, _use_locking: [
            [node, name] for name, node in self.exports.items()
        ]
        master.answers["QueryTags"] = lambda _kind, name: sorted(self.tags.get(name, ()))
        master.answers["QueryNodes"] = self._query_nodes
        for op_id, do in {
            "INSTANCE_CREATE": self._create,
            "INSTANCE_REMOVE": self._remove,
            "INSTANCE_SHUTDOWN": lambda op: self._set(op, oper_state=False),
            "INSTANCE_STARTUP": lambda op: self._set(op, oper_state=True),
            "INSTANCE_FAILOVER": self._change_over,
            "INSTANCE_MIGRATE": lambda op: None if op["cleanup"] else self._change_over(op),
            "INSTANCE_MOVE": lambda op: self._set(op, pnode=op["target_node"]),
            "INSTANCE_REPLACE_DISKS": self._replace,
            "INSTANCE_CHANGE_GROUP": self._change_group,
            "INSTANCE_GROW_DISK": self._grow,
            "INSTANCE_RENAME": self._rename,
            "INSTANCE_REINSTALL": lambda op: None,
            "INSTANCE_REBOOT": lambda op: None,
            "INSTANCE_SET_PARAMS": lambda op: [],
            "INSTANCE_ACTIVATE_DISKS": lambda op: [],
            "INSTANCE_DEACTIVATE_DISKS": lambda op: None,
            "NODE_EVACUATE": self._evacuate,
            "BACKUP_EXPORT": self._export,
            "BACKUP_REMOVE": lambda op: self.exports.pop(op["instance_name"]),
            "TAGS_SET": lambda op: self.tags.setdefault(op["name"], set()).update(op["tags"]),
            "TAGS_DEL": lambda op: self.tags[op["name"]].difference_update(op["tags"]),
        }.items():
            self.master.results[f"OP_{op_id}"] = self._logged(op_id, do)

    def _logged(self, op_id: str, do: Any) -> Any:
        def run(op: dict[str, Any]) -> Any:
            self.log.append((op_id, op.get("instance_name") or op.get("node_name") or op["name"]))
            return do(op)

        return run

    def done(self, op_id: str) -> list[str]:
        """The objects on which an opcode was carried out, in this order."""
        return [name for known, name in self.log if known == op_id]

    def add(self, name: str, primary: str = NODES[0], *secondaries: str) -> None:
        """Add an instance of somebody else."""
        self.master.rows["instance"].append(
            {
                "name": name,
                "pnode": primary,
                "snodes": list(secondaries),
                "admin_state": "up",
                "oper_state": True,
                "disk.sizes": [1024],
                "nic.macs": [f"aa:00:00:00:00:{next(self._numbers):02x}"],
            }
        )

    def instance(self, name: str) -> dict[str, Any]:
        """The row of an instance."""
        return next(row for row in self.master.rows["instance"] if row["name"] == name)

    def names(self) -> list[str]:
        """Names of all instances."""
        return [row["name"] for row in self.master.rows["instance"]]

    def _query_nodes(
        self, names: list[str], fields: list[str], _use_locking: bool
    ) -> list[list[Any]]:
        rows = []
        for number, name in enumerate(names or NODES):
            facts = {
                "name": name,
                "pip": f"192.0.2.{number + 1}",
                "group.uuid": _GROUP_OF[name],
                "offline": False,
                "drained": False,
                "vm_capable": True,
                "role": "M" if name == NODES[0] else "C",
                "pinst_list": self._on(name, "pnode"),
                "sinst_list": self._on(name, "snodes"),
            }
            rows.append([facts[field] for field in fields])
        return rows

    def _on(self, node: str, side: str) -> list[str]:
        return [
            row["name"]
            for row in self.master.rows["instance"]
            if node in ([row[side]] if side == "pnode" else row[side])
        ]

    # -- opcodes ----------------------------------------------------------------------------------

    def _set(self, op: dict[str, Any], **changes: Any) -> None:
        self.instance(op["instance_name"]).update(changes)

    def _create(self, op: dict[str, Any]) -> list[str]:
        mirrored = op["disk_template"] == "drbd"
        primary = op.get("pnode") or NODES[0]
        secondary = (op.get("snode") or NODES[1]) if mirrored else None
        self.add(op["instance_name"], primary, *filter(None, [secondary]))
        self._set(op, **{"disk.sizes": [disk["size"] for disk in op["disks"]]})
        if op["mode"] == "import":
            self._set(op, **{"nic.macs": [nic["mac"] for nic in op["nics"]]})
        return [primary]

    def _remove(self, op: dict[str, Any]) -> None:
        self.master.rows["instance"].remove(self.instance(op["instance_name"]))

    def _change_over(self, op: dict[str, Any]) -> None:
        row = self.instance(op["instance_name"])
        if row["snodes"]:
            row["pnode"], row["snodes"] = row["snodes"][0], [row["pnode"]]
        else:
            row["pnode"] = op["target_node"]

    def _replace(self, op: dict[str, Any]) -> None:
        row = self.instance(op["instance_name"])
        if op["mode"] == "replace_new_secondary":
            row["snodes"] = [
                op.get("remote_node")
                or next(node for node in NODES if node not in (row["pnode"], *row["snodes"]))
            ]

    def _change_group(self, op: dict[str, Any]) -> dict[str, Any]:
        (target, *_) = op["target_groups"]
        nodes = [node for node in NODES if _GROUP_OF[node] == target]
        row = self.instance(op["instance_name"])
        row["pnode"] = nodes[0]
        if row["snodes"]:
            row["snodes"] = [nodes[1]]
        return self._follow_up({"OP_ID": "OP_INSTANCE_REPLACE_DISKS_OF_GROUP"})

    def _follow_up(self, op: dict[str, Any]) -> dict[str, Any]:
        """Let an opcode submit a job."""
        return {"jobs": [[True, self.master.follow_up(op)]]}

    def _grow(self, op: dict[str, Any]) -> None:
        row = self.instance(op["instance_name"])
        sizes = list(row["disk.sizes"])
        sizes[op["disk"]] = op["amount"] if op["absolute"] else sizes[op["disk"]] + op["amount"]
        row["disk.sizes"] = sizes

    def _rename(self, op: dict[str, Any]) -> str:
        self._set(op, name=op["new_name"])
        return str(op["new_name"])

    def _evacuate(self, op: dict[str, Any]) -> dict[str, Any]:
        for row in self.master.rows["instance"]:
            if op["node_name"] in row["snodes"]:
                row["snodes"] = [
                    next(node for node in NODES if node not in (row["pnode"], op["node_name"]))
                ]
        return self._follow_up({"OP_ID": "OP_INSTANCE_REPLACE_DISKS_OF_NODE"})

    def _export(self, op: dict[str, Any]) -> list[Any]:
        row = self.instance(op["instance_name"])
        self.exports[row["name"]] = op["target_node"]
        return [True, [True] * len(row["disk.sizes"])]
