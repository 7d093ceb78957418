"""The cluster as a whole."""

# ruff: noqa: N802 - the names of methods are published

from __future__ import annotations

from typing import Any

from .transport import Transport, options


class Cluster(Transport):
    """The cluster as a whole."""

    def GetOperatingSystems(self, reason: str | None = None) -> list[str]:
        """Return the operating systems which can be installed."""
        return list(self._get(self._path("os"), options(reason)))

    def GetImages(self) -> dict[str, Any]:
        """Return the disk ``images`` from which instances are installed, and ``problems``."""
        return dict(self._get(self._path("images")))

    def GetInfo(self, reason: str | None = None) -> dict[str, Any]:
        """Return the description of the cluster."""
        return dict(self._get(self._path("info"), options(reason)))

    def GetQuota(self) -> list[dict[str, Any]]:
        """Return ``owner``, ``limits`` and ``use`` of the user; of all owners for an administrator.

        Memory and disk are in MiB; what is not limited is not in the limits.
        """
        return list(self._get(self._path("quota")))

    def VerifyCluster(self, dry_run: bool = False, reason: str | None = None, **kwargs: Any) -> int:
        """Verify the cluster. The result of the job names further jobs; see ``GetFindings``.

        :param kwargs: ``group_name``, ``skip_checks``, ``ignore_errors``, ``verbose``,
            ``verify_clutter``.
        """
        return int(self._post(self._path("verify"), options(reason, dry_run=dry_run), kwargs))

    def RedistributeConfig(self, reason: str | None = None) -> int:
        """Send the configuration to all nodes again."""
        return int(self._put(self._path("redistribute-config"), options(reason)))

    def ModifyCluster(self, reason: str | None = None, **kwargs: Any) -> int:
        """Change the parameters of the cluster."""
        return int(self._put(self._path("modify"), options(reason), kwargs))
