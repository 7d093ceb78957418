"""Complete the parameters of a new instance with those of a reservation or of an export."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol

from ganeti import ht
from ganeti.cmdlib.ops.params.instance import split_memory

if TYPE_CHECKING:
    from ganeti.opcodes.instance import OpInstanceCreate


class Source(Protocol):
    """What is known of the instance from which the new one is made."""

    @property
    def os(self) -> str: ...
    @property
    def beparams(self) -> Mapping[str, Any]: ...
    @property
    def osparams(self) -> Mapping[str, Any]: ...
    @property
    def osparams_private(self) -> Mapping[str, Any]: ...
    @property
    def tags(self) -> tuple[str, ...]: ...


def completed_op(op: OpInstanceCreate, source: Source) -> OpInstanceCreate:
    """Return the opcode with OS, OS and backend parameters, and tags, where these are not given.

    :raises errors.OpPrereqError: the old backend parameter ``memory`` contradicts its limits.
    """
    given = split_memory(op.beparams)
    os_type = (source.os or None) if op.os_type is None else op.os_type
    return op.replace(
        os_type=os_type,
        beparams={**source.beparams, **given},
        tags=op.tags or list(source.tags),
        **(_osparams(op, source) if os_type == source.os else {}),
    )


def _osparams(op: OpInstanceCreate, source: Source) -> dict[str, Any]:
    """Merge OS parameters; one which is given, in any visibility, replaces that of the source."""
    given = {*op.osparams, *(op.osparams_private or ()), *(op.osparams_secret or ())}

    def kept(values: Mapping[str, Any]) -> dict[str, Any]:
        return {key: value for key, value in values.items() if key not in given}

    private = {**kept(source.osparams_private), **(op.osparams_private or {})}
    return {
        "osparams": {**kept(source.osparams), **op.osparams},
        "osparams_private": ht.PrivateDict(private) if private else None,
    }
