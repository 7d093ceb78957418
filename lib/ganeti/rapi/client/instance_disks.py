"""The disks of an instance, and their snapshots."""

# ruff: noqa: N802 - the names of methods are published

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .constants import REPLACE_DISK_AUTO
from .transport import Transport, given, options


class InstanceDisks(Transport):
    """The disks of an instance, and their snapshots."""

    def ActivateInstanceDisks(
        self, instance: str, ignore_size: bool | None = None, reason: str | None = None
    ) -> int:
        """Activate the disks on the nodes of an instance."""
        return int(
            self._put(
                self._path("instances", instance, "activate-disks"),
                options(reason, ignore_size=ignore_size),
            )
        )

    def DeactivateInstanceDisks(
        self, instance: str, reason: str | None = None, force: bool = False
    ) -> int:
        """Deactivate the disks of an instance."""
        return int(
            self._put(
                self._path("instances", instance, "deactivate-disks"), options(reason, force=force)
            )
        )

    def RecreateInstanceDisks(
        self,
        instance: str,
        disks: Sequence[Any] | None = None,
        nodes: Sequence[str] | None = None,
        reason: str | None = None,
        iallocator: str | None = None,
    ) -> int:
        """Recreate lost disks, empty."""
        return int(
            self._post(
                self._path("instances", instance, "recreate-disks"),
                options(reason),
                given(disks=disks, nodes=nodes, iallocator=iallocator),
            )
        )

    def GrowInstanceDisk(
        self,
        instance: str,
        disk: int,
        amount: int,
        wait_for_sync: bool | None = None,
        reason: str | None = None,
    ) -> int:
        """Grow a disk by `amount` MiB."""
        return int(
            self._post(
                self._path("instances", instance, "disk", disk, "grow"),
                options(reason),
                given(amount=amount, wait_for_sync=wait_for_sync),
            )
        )

    def GetInstanceSnapshots(self, instance: str, reason: str | None = None) -> dict[str, Any]:
        """Return the snapshots of the disks of an instance, in ``snapshots``.

        Nodes that did not report theirs are named in ``warnings``.
        """
        return dict(self._get(self._path("instances", instance, "snapshots"), options(reason)))

    def SnapshotInstance(
        self,
        instance: str,
        snapshot_name: str | None = None,
        disks: list[int] | None = None,
        shutdown: bool | None = None,
        shutdown_timeout: int | None = None,
        dry_run: bool = False,
        reason: str | None = None,
    ) -> int:
        """Make a snapshot of disks; the result of the job is its name."""
        return int(
            self._post(
                self._path("instances", instance, "snapshots"),
                options(reason, dry_run=dry_run),
                given(
                    snapshot_name=snapshot_name,
                    disks=disks,
                    shutdown=shutdown,
                    shutdown_timeout=shutdown_timeout,
                ),
            )
        )

    def DeleteInstanceSnapshot(
        self, instance: str, snapshot_name: str, dry_run: bool = False, reason: str | None = None
    ) -> int:
        """Remove a snapshot."""
        return int(
            self._delete(
                self._path("instances", instance, "snapshots", snapshot_name),
                options(reason, dry_run=dry_run),
            )
        )

    def RestoreInstanceSnapshot(
        self, instance: str, snapshot_name: str, dry_run: bool = False, reason: str | None = None
    ) -> int:
        """Restore the disks of a stopped instance from a snapshot."""
        return int(
            self._post(
                self._path("instances", instance, "snapshots", snapshot_name, "restore"),
                options(reason, dry_run=dry_run),
            )
        )

    def ReplaceInstanceDisks(
        self,
        instance: str,
        disks: Sequence[int] | None = None,
        mode: str = REPLACE_DISK_AUTO,
        remote_node: str | None = None,
        iallocator: str | None = None,
        reason: str | None = None,
        early_release: bool | None = None,
    ) -> int:
        """Replace the storage of mirrored disks."""
        return int(
            self._post(
                self._path("instances", instance, "replace-disks"),
                options(reason),
                {
                    "mode": mode,
                    **given(
                        disks=disks,
                        remote_node=remote_node,
                        iallocator=iallocator,
                        early_release=early_release,
                    ),
                },
            )
        )
