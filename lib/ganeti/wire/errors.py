"""Encode errors as ``[class name, [arguments]]``.

LUXI, job results and node calls all send errors in this form (Ganeti design 2.0, *The LUXI
protocol*). Names and arguments are published. A class which other programs do not know is sent as
its nearest published ancestor, with the text of the error.
"""

from __future__ import annotations

from ganeti import TYPE_CHECKING, errors

if TYPE_CHECKING:
    from typing import Any


def encode(error: BaseException) -> list[Any]:
    """Return ``[class name, [arguments]]`` for an error.

    An error which is not of our tree becomes ``GenericError``.
    """
    published = errors.PUBLISHED
    name = type(error).__name__
    if published.get(name) is type(error):
        if isinstance(error, errors.GenericError | errors.QuitGanetiException):
            return [name, error.wire_args()]
    for ancestor in type(error).__mro__[1:]:
        if published.get(ancestor.__name__) is ancestor:
            return [ancestor.__name__, [str(error)]]
    return ["GenericError", [str(error) or name]]


def decode(value: Any) -> Exception | None:
    """Return the error which ``value`` describes; None when it describes no known error."""
    if not (isinstance(value, list | tuple) and len(value) == 2):
        return None
    name, args = value
    if not (isinstance(name, str) and isinstance(args, list | tuple)):
        return None
    cls = errors.PUBLISHED.get(name)
    if cls is None:
        return None
    try:
        return cls(*args)
    except (TypeError, ValueError):
        # The arguments are those of another version: keep the class and the whole text.
        try:
            return cls(", ".join(str(arg) for arg in args))
        except (TypeError, ValueError):
            return errors.GenericError(f"{name}: {', '.join(str(arg) for arg in args)}")


def maybe_raise(value: Any) -> None:
    """Raise the error which ``value`` describes; return when it describes none."""
    error = decode(value)
    if error is not None:
        raise error
