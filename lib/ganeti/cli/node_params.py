"""Parameters of nodes, converted from the command line to their types.

The programs ``gnt-node``, ``gnt-group`` and ``gnt-cluster`` use them.
"""

from __future__ import annotations

from collections.abc import Sequence

from ganeti import TYPE_CHECKING, errors
from ganeti.cli import value_types
from ganeti.constants import node as const

if TYPE_CHECKING:
    from typing import Any

_HV_STATE_TYPES = dict.fromkeys(const.HV_STATE_PARAMS, "int")
_DISK_STATE_TYPES = dict.fromkeys(("disk_overhead", "disk_reserved", "disk_total"), "int")


def node_params(given: dict[str, Any] | None) -> dict[str, Any]:
    """Return node parameters such as ``ssh_port`` in their types.

    :raises TypeEnforcementError: unknown parameter, or wrong type of a value.
    """
    return value_types.typed_params(given or {}, const.ND_PARAM_TYPES, allowed=("default",))


def hv_state(given: Sequence[tuple[str, Any]]) -> dict[str, dict[str, Any]]:
    """Turn options such as ``kvm:mem_total=1024`` into ``{"kvm": {"mem_total": 1024}}``.

    :raises OpPrereqError: an option removes a state.
    :raises TypeEnforcementError: unknown parameter, or wrong type of a value.
    """
    state: dict[str, dict[str, Any]] = {}
    for hypervisor, params in given:
        if not isinstance(params, dict):
            raise errors.OpPrereqError(
                f"the state of hypervisor '{hypervisor}' cannot be removed", errors.ECODE_INVAL
            )
        state.setdefault(hypervisor, {}).update(value_types.typed_params(params, _HV_STATE_TYPES))
    return state


def disk_state(given: Sequence[tuple[str, Any]]) -> dict[str, dict[str, dict[str, Any]]]:
    """Turn options such as ``plain/xenvg:disk_total=1024`` into ``{"plain": {"xenvg": {...}}}``.

    :raises OpPrereqError: an option names no storage, or removes a state.
    :raises TypeEnforcementError: unknown parameter, or wrong type of a value.
    """
    state: dict[str, dict[str, dict[str, Any]]] = {}
    for ident, params in given:
        storage_type, slash, name = ident.partition("/")
        if not slash or not name:
            raise errors.OpPrereqError(
                f"disk state '{ident}' names no storage. Write {storage_type}/NAME:KEY=VALUE.",
                errors.ECODE_INVAL,
            )
        if not isinstance(params, dict):
            raise errors.OpPrereqError(
                f"the state of storage '{ident}' cannot be removed", errors.ECODE_INVAL
            )
        state.setdefault(storage_type, {})[name] = value_types.typed_params(
            params, _DISK_STATE_TYPES
        )
    return state
