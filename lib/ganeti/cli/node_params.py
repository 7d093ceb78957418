"""Parameters of nodes from the command line, in their types; for ``gnt-node`` and ``gnt-cluster
init``.
"""

from __future__ import annotations

from collections.abc import Sequence

from ganeti import errors
from ganeti.cli import value_types
from ganeti.constants import node as const

TYPE_CHECKING = False  # the name type checkers look for; importing typing costs milliseconds
if TYPE_CHECKING:
    from typing import Any

_HV_STATE_TYPES = dict.fromkeys(const.HV_STATE_PARAMS, "int")
_DISK_STATE_TYPES = dict.fromkeys(("disk_overhead", "disk_reserved", "disk_total"), "int")


def node_params(given: dict[str, Any] | None) -> dict[str, Any]:
    """Node parameters such as ``ssh_port``."""
    return value_types.typed_params(given or {}, const.ND_PARAM_TYPES, allowed=("default",))


def hv_state(given: Sequence[tuple[str, Any]]) -> dict[str, dict[str, Any]]:
    """``kvm:mem_total=1024`` as ``{"kvm": {...}}``.

    :raises OpPrereqError: a removal.
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
    """``plain/xenvg:disk_total=1024`` as ``{"plain": {"xenvg": {...}}}``.

    :raises OpPrereqError: no storage is named, or a removal.
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
