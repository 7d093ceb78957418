"""Checks of node parameters."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ganeti import errors
from ganeti.constants.node import ND_GLOBALS, ND_PARAM_TYPES
from ganeti.objects import hvparams as hv


def checked_ndparams(given: Mapping[str, Any]) -> dict[str, Any]:
    """Check names and types of parameters of one node.

    :raises errors.OpPrereqError: an unknown name, a wrong type, or a parameter which only a group
        or the cluster can have.
    """
    shared = sorted(ND_GLOBALS & set(given))
    if shared:
        raise errors.OpPrereqError(
            f"node parameter {', '.join(shared)} cannot be set for a single node. Set it for its"
            " group or the cluster.",
            errors.ECODE_INVAL,
        )
    try:
        return hv.force_types(given, ND_PARAM_TYPES)
    except errors.TypeEnforcementError as err:
        raise errors.OpPrereqError(f"node parameters: {err}", errors.ECODE_INVAL) from err
