"""Instances as objects: to list, create, change and remove them."""

# ruff: noqa: N802 - the names of methods are published

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from .constants import INST_CREATE_REQV1
from .transport import GanetiApiError, Transport, given, options

_VERSION_FIELD: Final = "__version__"


class Instances(Transport):
    """Instances as objects: to list, create, change and remove them."""

    def GetInstances(self, bulk: bool = False, reason: str | None = None) -> list[Any]:
        """Return the names of the instances, or whole objects."""
        return list(self._list("instances", "id", bulk, reason))

    def GetInstance(self, instance: str, reason: str | None = None) -> dict[str, Any]:
        """Return the description of an instance."""
        return dict(self._get(self._path("instances", instance), options(reason)))

    def GetInstanceInfo(
        self, instance: str, static: bool | None = None, reason: str | None = None
    ) -> int:
        """Describe an instance with all details, in the result of the job."""
        return int(
            self._get(self._path("instances", instance, "info"), options(reason, static=static))
        )

    @staticmethod
    def _UpdateWithKwargs(base: dict[str, Any], **kwargs: Any) -> None:
        twice = sorted(set(base) & set(kwargs))
        if twice:
            raise GanetiApiError(f"given twice: {', '.join(twice)}")
        base.update(kwargs)

    def InstanceAllocation(
        self,
        mode: str,
        name: str,
        disk_template: str,
        disks: Sequence[Mapping[str, Any]],
        nics: Sequence[Mapping[str, Any]],
        **kwargs: Any,
    ) -> dict[str, Any]:
        """Return the specification of an instance for :meth:`InstancesMultiAlloc`."""
        base: dict[str, Any] = {
            _VERSION_FIELD: 1,
            "mode": mode,
            "name": name,
            "disk_template": disk_template,
            "disks": disks,
            "nics": nics,
        }
        self._UpdateWithKwargs(base, **kwargs)
        return base

    def InstancesMultiAlloc(
        self, instances: Sequence[Mapping[str, Any]], reason: str | None = None, **kwargs: Any
    ) -> int:
        """Create several instances, placed together."""
        dry_run = bool(kwargs.pop("dry_run", False))
        body: dict[str, Any] = {"instances": instances}
        self._UpdateWithKwargs(body, **kwargs)
        return int(
            self._post(self._path("instances-multi-alloc"), options(reason, dry_run=dry_run), body)
        )

    def CreateInstance(
        self,
        mode: str,
        name: str,
        disk_template: str,
        disks: Sequence[Mapping[str, Any]],
        nics: Sequence[Mapping[str, Any]],
        reason: str | None = None,
        **kwargs: Any,
    ) -> int:
        """Create an instance; further parameters by their names, and ``dry_run``."""
        dry_run = bool(kwargs.pop("dry_run", False))
        if INST_CREATE_REQV1 not in self.GetFeatures():
            raise GanetiApiError("the server is too old for this way to create instances")
        body = self.InstanceAllocation(mode, name, disk_template, disks, nics, **kwargs)
        return int(self._post(self._path("instances"), options(reason, dry_run=dry_run), body))

    def DeleteInstance(
        self, instance: str, dry_run: bool = False, reason: str | None = None, **kwargs: Any
    ) -> int:
        """Remove an instance."""
        return int(
            self._delete(
                self._path("instances", instance), options(reason, dry_run=dry_run), kwargs or None
            )
        )

    def ModifyInstance(self, instance: str, reason: str | None = None, **kwargs: Any) -> int:
        """Change the parameters of an instance."""
        return int(self._put(self._path("instances", instance, "modify"), options(reason), kwargs))

    def CopyInstance(
        self,
        instance: str,
        new_name: str,
        dry_run: bool = False,
        reason: str | None = None,
        **kwargs: Any,
    ) -> int:
        """Make a new instance from a stopped one, or from a snapshot.

        :param kwargs: parameters of the opcode, for example ``snapshot_name``, ``pnode``,
            ``disk_template`` or ``start``.
        """
        path = self._path("instances", instance, "copy")
        body = {**kwargs, "new_name": new_name}
        return int(self._post(path, options(reason, dry_run=dry_run), body))

    def RenameInstance(
        self,
        instance: str,
        new_name: str,
        ip_check: bool | None = None,
        name_check: bool | None = None,
        reason: str | None = None,
        exact_name: bool | None = None,
    ) -> int:
        """Rename an instance.

        :param exact_name: accept a name which is the short form of another instance's name.
        """
        return int(
            self._put(
                self._path("instances", instance, "rename"),
                options(reason),
                given(
                    new_name=new_name,
                    ip_check=ip_check,
                    name_check=name_check,
                    exact_name=exact_name,
                ),
            )
        )

    def GetInstanceConsole(self, instance: str, reason: str | None = None) -> dict[str, Any]:
        """Return the console of an instance."""
        return dict(self._get(self._path("instances", instance, "console"), options(reason)))
