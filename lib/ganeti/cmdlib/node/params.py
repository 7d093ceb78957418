"""Checks of node parameters."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ganeti import errors
from ganeti.constants.node import ND_PARAM_TYPES
from ganeti.objects import hvparams as hv


def checked_ndparams(given: Mapping[str, Any]) -> dict[str, Any]:
    """Check names and types of parameters of one node.

    :raises errors.OpPrereqError: an unknown name or a wrong type.
    """
    try:
        return hv.force_types(given, ND_PARAM_TYPES)
    except errors.TypeEnforcementError as err:
        raise errors.OpPrereqError(f"node parameters: {err}", errors.ECODE_INVAL) from err
