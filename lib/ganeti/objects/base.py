"""Base of all objects: declarations of fields, and how a changed object is made.

The declaration of a field decides how it is stored; :mod:`ganeti.objects.codec` uses nothing else.
A field without default must be present; a field with default None is left out when it has no value;
a field with another default is always written, unless it was made with :func:`unstored`.
"""

from __future__ import annotations

import dataclasses
from typing import Any, TypeVar

from ganeti.utils import clock

T = TypeVar("T")


def unstored(default: Any) -> Any:
    """Declare a field which is left out while it has its default, an immutable value."""
    return dataclasses.field(default=default, metadata={"unstored": True})


def parameters(
    known: frozenset[str] | None = None, *, filled: bool = False, optional: bool = False
) -> Any:
    """Declare a field which has a dictionary of parameters.

    :param known: the names which may occur; None for any names.
    :param filled: all of them must be present.
    :param optional: the field may be missing and is then an empty dictionary.
    """
    metadata = {"known": known, "filled": filled}
    if optional:
        return dataclasses.field(default_factory=dict, metadata=metadata)
    return dataclasses.field(metadata=metadata)


def updated(obj: T, *, now: float | None = None, **changes: Any) -> T:
    """Return a copy with changes, the next serial number and a new time of change.

    :param now: time in seconds since 1970; the present time if not given.
    """
    fields = {field.name for field in dataclasses.fields(obj)}  # type: ignore[arg-type]
    if "serial_no" in fields:
        changes.setdefault("serial_no", obj.serial_no + 1)  # type: ignore[attr-defined]
    if "mtime" in fields:
        changes.setdefault("mtime", clock.now() if now is None else now)
    return dataclasses.replace(obj, **changes)  # type: ignore[type-var]
