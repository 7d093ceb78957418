"""Handlers of the storage units and logical volumes of this machine.

:mod:`ganeti.storage.units` does the work.
"""

from __future__ import annotations

from typing import Any

from ganeti import errors
from ganeti.backend.registry import serves
from ganeti.storage import units
from ganeti.wire import calls


@serves(calls.STORAGE_LIST)
def storage_list(
    su_name: str, su_args: list[Any], name: str | None, fields: list[str], apart: bool = False
) -> list[list[Any]]:
    """Return rows of storage units.

    :param apart: each row has one more value: None, or why the unit could not be read.
    :raises StorageError: the kind or a field is unknown, or the storage fails.
    """
    return units.list_units(su_name, _directories(su_args), name, fields, apart=apart)


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

    :raises StorageError: the attribute cannot be changed, or the change failed.
    """
    units.modify(su_name, name, changes)


@serves(calls.STORAGE_EXECUTE)
def storage_execute(su_name: str, su_args: list[Any], name: str, op: str) -> None:
    """Repair a storage unit.

    :raises StorageError: the kind has no such operation, or the repair failed.
    """
    units.execute(su_name, name, op)


@serves(calls.NODE_VOLUMES)
def node_volumes(apart: bool = False) -> list[dict[str, Any]]:
    """Return logical volumes, one row for each device that they use.

    :param apart: a volume group which could not be read has a row with its ``problem``.
    :raises StorageError: the LVM programs fail.
    """
    return [{**row} for row in units.volumes(apart=apart)]
