"""Nodes, their maintenance and their storage."""

# ruff: noqa: N802 - the names of methods are published

from __future__ import annotations

from typing import Any

from .constants import NODE_EVAC_RES1, NODE_MIGRATE_REQV1
from .transport import GanetiApiError, Transport, given, options


class Nodes(Transport):
    """Nodes, their maintenance and their storage."""

    def GetNodes(self, bulk: bool = False, reason: str | None = None) -> list[Any]:
        """Return the names of the nodes, or whole objects."""
        return list(self._list("nodes", "id", bulk, reason))

    def GetNode(self, node: str, reason: str | None = None) -> dict[str, Any]:
        """Return a node."""
        return dict(self._get(self._path("nodes", node), options(reason)))

    def EvacuateNode(
        self,
        node: str,
        iallocator: str | None = None,
        remote_node: str | None = None,
        dry_run: bool = False,
        early_release: bool | None = None,
        mode: str | None = None,
        accept_old: bool = False,
        reason: str | None = None,
    ) -> int:
        """Move the instances of a node to other nodes; the result of the job names their jobs.

        :param accept_old: also use an old server with another answer.
        :raises GanetiApiError: both `iallocator` and `remote_node` are given.
        """
        if iallocator and remote_node:
            raise GanetiApiError("give either an allocator or a node to move to")
        if not accept_old and NODE_EVAC_RES1 not in self.GetFeatures():
            raise GanetiApiError("the server is too old for this way to evacuate nodes")
        return int(
            self._post(
                self._path("nodes", node, "evacuate"),
                options(reason, dry_run=dry_run),
                given(
                    iallocator=iallocator,
                    remote_node=remote_node,
                    early_release=early_release,
                    mode=mode,
                ),
            )
        )

    def GetNodeMaintenance(self, node: str, reason: str | None = None) -> dict[str, Any] | None:
        """Return the state of the maintenance of a node, and what its end brings back; None
        without a maintenance.
        """
        found = self._get(self._path("nodes", node, "maintenance"), options(reason))
        return None if found is None else dict(found)

    def StartNodeMaintenance(
        self,
        node: str,
        evacuate: bool | None = None,
        stop: bool | None = None,
        iallocator: str | None = None,
        remote_node: str | None = None,
        dry_run: bool = False,
        reason: str | None = None,
    ) -> int:
        """Empty a node for work on its machine; the result of the job names further jobs.

        :param evacuate: move all instances and all replicas away.
        :param stop: stop the instances which cannot be moved.
        """
        return int(
            self._put(
                self._path("nodes", node, "maintenance"),
                options(reason, dry_run=dry_run),
                given(evacuate=evacuate, stop=stop, iallocator=iallocator, remote_node=remote_node),
            )
        )

    def EndNodeMaintenance(
        self,
        node: str,
        move_back: bool | None = None,
        dry_run: bool = False,
        reason: str | None = None,
    ) -> int:
        """Bring back what a node had before its maintenance; the result names further jobs.

        :param move_back: False leaves what was moved where it is.
        """
        return int(
            self._delete(
                self._path("nodes", node, "maintenance"),
                options(reason, dry_run=dry_run),
                given(move_back=move_back),
            )
        )

    def MigrateNode(
        self,
        node: str,
        mode: str | None = None,
        dry_run: bool = False,
        iallocator: str | None = None,
        target_node: str | None = None,
        reason: str | None = None,
    ) -> int:
        """Migrate all instances which run on a node."""
        path = self._path("nodes", node, "migrate")
        if NODE_MIGRATE_REQV1 in self.GetFeatures():
            return int(
                self._post(
                    path,
                    options(reason, dry_run=dry_run),
                    given(mode=mode, iallocator=iallocator, target_node=target_node),
                )
            )
        if target_node is not None:
            raise GanetiApiError("the server is too old for a target of the migration")
        return int(self._post(path, options(reason, dry_run=dry_run, mode=mode)))

    def GetNodeRole(self, node: str, reason: str | None = None) -> str:
        """Return the role of a node."""
        return str(self._get(self._path("nodes", node, "role"), options(reason)))

    def SetNodeRole(
        self,
        node: str,
        role: str,
        force: bool = False,
        auto_promote: bool | None = None,
        reason: str | None = None,
    ) -> int:
        """Change the role of a node."""
        return int(
            self._put(
                self._path("nodes", node, "role"),
                options(reason, force=force, auto_promote=auto_promote),
                role,
            )
        )

    def PowercycleNode(self, node: str, force: bool = False, reason: str | None = None) -> int:
        """Power-cycle a node."""
        return int(
            self._post(self._path("nodes", node, "powercycle"), options(reason, force=force))
        )

    def ModifyNode(self, node: str, reason: str | None = None, **kwargs: Any) -> int:
        """Change the parameters of a node."""
        return int(self._post(self._path("nodes", node, "modify"), options(reason), kwargs))

    def GetNodeStorageUnits(
        self, node: str, storage_type: str, output_fields: str, reason: str | None = None
    ) -> int:
        """List the storage units of a node, in the result of the job.

        :param output_fields: separated by commas.
        """
        return int(
            self._get(
                self._path("nodes", node, "storage"),
                options(reason, storage_type=storage_type, output_fields=output_fields),
            )
        )

    def ModifyNodeStorageUnits(
        self,
        node: str,
        storage_type: str,
        name: str,
        allocatable: bool | None = None,
        reason: str | None = None,
    ) -> int:
        """Change a storage unit."""
        return int(
            self._put(
                self._path("nodes", node, "storage", "modify"),
                options(reason, storage_type=storage_type, name=name, allocatable=allocatable),
            )
        )

    def RepairNodeStorageUnits(
        self, node: str, storage_type: str, name: str, reason: str | None = None
    ) -> int:
        """Repair a storage unit."""
        return int(
            self._put(
                self._path("nodes", node, "storage", "repair"),
                options(reason, storage_type=storage_type, name=name),
            )
        )
