"""The hooks of the operations on node groups, and the check of new names."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from ganeti import errors
from ganeti.cmdlib.hooks import Hooks

if TYPE_CHECKING:
    from ganeti.config import Config

_NAME = re.compile(r"^[^\s/-][^\s/]*$")


class GroupHooks(Hooks):
    """Hooks of an operation on a node group."""

    def __init__(self, directory: str) -> None:
        super().__init__(directory, "GROUP")


def require_new_name(config: Config, name: str, what: str) -> None:
    """Check a new name for a node group or a network.

    The name is a part of REST paths and a column of lists, so some characters are not allowed.

    :param what: ``node group`` or ``network``.
    :raises errors.OpPrereqError: the form of the name is wrong, or the name is in use.
    """
    if not _NAME.fullmatch(name):
        raise errors.OpPrereqError(
            f"{name!r} cannot be the name of a {what}: it must not contain blanks or slashes, nor"
            " begin with a dash",
            errors.ECODE_INVAL,
        )
    expand = config.expand_group if what == "node group" else config.expand_network
    try:
        taken = expand(name)
    except errors.OpPrereqError:
        return
    raise errors.OpPrereqError(f"{what} {taken.name} already exists", errors.ECODE_EXISTS)
