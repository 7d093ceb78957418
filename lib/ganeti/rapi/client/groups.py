"""Node groups."""

# ruff: noqa: N802 - the names of methods are published

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .transport import Transport, given, options


class Groups(Transport):
    """Node groups."""

    def GetGroups(self, bulk: bool = False, reason: str | None = None) -> list[Any]:
        """Return the names of the node groups, or whole objects."""
        return list(self._list("groups", "name", bulk, reason))

    def GetGroup(self, group: str, reason: str | None = None) -> dict[str, Any]:
        """Return the description of a node group."""
        return dict(self._get(self._path("groups", group), options(reason)))

    def CreateGroup(
        self,
        name: str,
        alloc_policy: str | None = None,
        dry_run: bool = False,
        reason: str | None = None,
    ) -> int:
        """Create a node group."""
        return int(
            self._post(
                self._path("groups"),
                options(reason, dry_run=dry_run),
                given(name=name, alloc_policy=alloc_policy),
            )
        )

    def ModifyGroup(self, group: str, reason: str | None = None, **kwargs: Any) -> int:
        """Change the parameters of a node group."""
        return int(self._put(self._path("groups", group, "modify"), options(reason), kwargs))

    def DeleteGroup(self, group: str, dry_run: bool = False, reason: str | None = None) -> int:
        """Remove an empty node group."""
        return int(self._delete(self._path("groups", group), options(reason, dry_run=dry_run)))

    def RenameGroup(self, group: str, new_name: str, reason: str | None = None) -> int:
        """Rename a node group."""
        return int(
            self._put(
                self._path("groups", group, "rename"), options(reason), {"new_name": new_name}
            )
        )

    def AssignGroupNodes(
        self,
        group: str,
        nodes: Sequence[str],
        force: bool = False,
        dry_run: bool = False,
        reason: str | None = None,
    ) -> int:
        """Move nodes into a group."""
        return int(
            self._put(
                self._path("groups", group, "assign-nodes"),
                options(reason, dry_run=dry_run, force=force),
                {"nodes": nodes},
            )
        )
