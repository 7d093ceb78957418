"""Storage units and logical volumes of this machine, for administrators.

What they are and how they are handled stands in :mod:`ganeti.storage.units`.
"""

from __future__ import annotations

from typing import Any

from ganeti import errors
from ganeti.backend.registry import serves
from ganeti.storage import units
from ganeti.wire import calls


@serves(calls.STORAGE_LIST)
def storage_list(
    su_name: str, su_args: list[Any], name: str | None, fields: list[str]
) -> list[list[Any]]:
    """Rows of storage units.

    :raises StorageError: unknown kind or field, or it failed.
    """
    return units.list_units(su_name, _directories(su_args), name, fields)


def _directories(su_args: list[Any]) -> list[str]:
    if not su_args:
        return []
    first = su_args[0]
    if (
        len(su_args) != 1
        or not isinstance(first, list)
        or not all(isinstance(path, str) for path in first)
    ):
        raise errors.ParameterError(f"not arguments of a kind of storage: {su_args!r:.200}")
    return first


@serves(calls.STORAGE_MODIFY)
def storage_modify(su_name: str, su_args: list[Any], name: str, changes: dict[str, Any]) -> None:
    """Change a storage unit.

    :raises StorageError: this cannot be changed, or it failed.
    """
    units.modify(su_name, name, changes)


@serves(calls.STORAGE_EXECUTE)
def storage_execute(su_name: str, su_args: list[Any], name: str, op: str) -> None:
    """Repair a storage unit.

    :raises StorageError: it has no such operation, or it failed.
    """
    units.execute(su_name, name, op)


@serves(calls.NODE_VOLUMES)
def node_volumes() -> list[dict[str, Any]]:
    """Logical volumes, one row for each device they are on.

    :raises StorageError: LVM cannot be asked.
    """
    return units.volumes()
