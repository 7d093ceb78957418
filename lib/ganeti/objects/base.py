"""What all objects share: how they are declared and how a changed one is made.

How a field is stored follows from its declaration, and :mod:`ganeti.objects.codec` reads nothing
else: a field without default must be present; a default None means the key is left out when there
is no value; any other default is written always, unless the field was made with :func:`unstored`.
"""

from __future__ import annotations

import dataclasses
from typing import Any, TypeVar

from ganeti.utils import clock

T = TypeVar("T")


def unstored(default: Any) -> Any:
    """A field whose key is left out while it has its default (an immutable one)."""
    return dataclasses.field(default=default, metadata={"unstored": True})


def parameters(
    known: frozenset[str] | None = None, *, filled: bool = False, optional: bool = False
) -> Any:
    """A field holding a dictionary of parameters.

    :param known: the names which may occur; None when others define them.
    :param filled: every one of them must be present.
    :param optional: the key may be missing and is then an empty dictionary.
    """
    metadata = {"known": known, "filled": filled}
    if optional:
        return dataclasses.field(default_factory=dict, metadata=metadata)
    return dataclasses.field(metadata=metadata)


def updated(obj: T, *, now: float | None = None, **changes: Any) -> T:
    """A copy of `obj` with `changes`, the next serial number and a new time of change.

    :param now: seconds since the epoch; the present if not given.
    """
    fields = {field.name for field in dataclasses.fields(obj)}  # type: ignore[arg-type]
    if "serial_no" in fields:
        changes.setdefault("serial_no", obj.serial_no + 1)  # type: ignore[attr-defined]
    if "mtime" in fields:
        changes.setdefault("mtime", clock.now() if now is None else now)
    return dataclasses.replace(obj, **changes)  # type: ignore[type-var]
