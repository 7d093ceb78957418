"""The tags of all kinds of objects."""

# ruff: noqa: N802 - the names of methods are published

from __future__ import annotations

from collections.abc import Iterable

from .constants import HTTP_DELETE, HTTP_PUT
from .transport import Transport, options


class Tags(Transport):
    """The tags of all kinds of objects."""

    def _change_tags(
        self, method: str, path: str, tags: Iterable[str], dry_run: bool, reason: str | None
    ) -> int:
        query = [("tag", tag) for tag in tags] + options(reason, dry_run=dry_run)
        return int(self._SendRequest(method, path, query, None))

    def GetClusterTags(self, reason: str | None = None) -> list[str]:
        """Return the tags of the cluster."""
        return list(self._get(self._path("tags"), options(reason)))

    def AddClusterTags(
        self, tags: Iterable[str], dry_run: bool = False, reason: str | None = None
    ) -> int:
        """Add tags to the cluster."""
        return self._change_tags(HTTP_PUT, self._path("tags"), tags, dry_run, reason)

    def DeleteClusterTags(
        self, tags: Iterable[str], dry_run: bool = False, reason: str | None = None
    ) -> int:
        """Remove tags from the cluster."""
        return self._change_tags(HTTP_DELETE, self._path("tags"), tags, dry_run, reason)

    def GetInstanceTags(self, instance: str, reason: str | None = None) -> list[str]:
        """Return the tags of an instance."""
        return list(self._get(self._path("instances", instance, "tags"), options(reason)))

    def AddInstanceTags(
        self, instance: str, tags: Iterable[str], dry_run: bool = False, reason: str | None = None
    ) -> int:
        """Add tags to an instance."""
        return self._change_tags(
            HTTP_PUT, self._path("instances", instance, "tags"), tags, dry_run, reason
        )

    def DeleteInstanceTags(
        self, instance: str, tags: Iterable[str], dry_run: bool = False, reason: str | None = None
    ) -> int:
        """Remove tags from an instance."""
        return self._change_tags(
            HTTP_DELETE, self._path("instances", instance, "tags"), tags, dry_run, reason
        )

    def GetNodeTags(self, node: str, reason: str | None = None) -> list[str]:
        """Return the tags of a node."""
        return list(self._get(self._path("nodes", node, "tags"), options(reason)))

    def AddNodeTags(
        self, node: str, tags: Iterable[str], dry_run: bool = False, reason: str | None = None
    ) -> int:
        """Add tags to a node."""
        return self._change_tags(HTTP_PUT, self._path("nodes", node, "tags"), tags, dry_run, reason)

    def DeleteNodeTags(
        self, node: str, tags: Iterable[str], dry_run: bool = False, reason: str | None = None
    ) -> int:
        """Remove tags from a node."""
        return self._change_tags(
            HTTP_DELETE, self._path("nodes", node, "tags"), tags, dry_run, reason
        )

    def GetNetworkTags(self, network: str, reason: str | None = None) -> list[str]:
        """Return the tags of a network."""
        return list(self._get(self._path("networks", network, "tags"), options(reason)))

    def AddNetworkTags(
        self, network: str, tags: Iterable[str], dry_run: bool = False, reason: str | None = None
    ) -> int:
        """Add tags to a network."""
        return self._change_tags(
            HTTP_PUT, self._path("networks", network, "tags"), tags, dry_run, reason
        )

    def DeleteNetworkTags(
        self, network: str, tags: Iterable[str], dry_run: bool = False, reason: str | None = None
    ) -> int:
        """Remove tags from a network."""
        return self._change_tags(
            HTTP_DELETE, self._path("networks", network, "tags"), tags, dry_run, reason
        )

    def GetGroupTags(self, group: str, reason: str | None = None) -> list[str]:
        """Return the tags of a node group."""
        return list(self._get(self._path("groups", group, "tags"), options(reason)))

    def AddGroupTags(
        self, group: str, tags: Iterable[str], dry_run: bool = False, reason: str | None = None
    ) -> int:
        """Add tags to a node group."""
        return self._change_tags(
            HTTP_PUT, self._path("groups", group, "tags"), tags, dry_run, reason
        )

    def DeleteGroupTags(
        self, group: str, tags: Iterable[str], dry_run: bool = False, reason: str | None = None
    ) -> int:
        """Remove tags from a node group."""
        return self._change_tags(
            HTTP_DELETE, self._path("groups", group, "tags"), tags, dry_run, reason
        )
