"""Errors on a socket: ``[class name, [arguments]]``.

The local socket, job results and node calls all carry an error in this shape (seed 001, *The LUXI
protocol*). Names and arguments are published, so a class of our own that nobody else knows travels
as its nearest published ancestor with its text.
"""

from __future__ import annotations

from typing import Any

from ganeti import errors


def encode(error: BaseException) -> list[Any]:
    """``[class name, [arguments]]`` for `error`; an error of another tree becomes GenericError."""
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
    """The error which `value` describes; None when it describes none that we know."""
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
        # Right name, arguments of another version: keep the class, keep every word.
        try:
            return cls(", ".join(str(arg) for arg in args))
        except (TypeError, ValueError):
            return errors.GenericError(f"{name}: {', '.join(str(arg) for arg in args)}")


def maybe_raise(value: Any) -> None:
    """Raise the error which `value` describes; return when it describes none."""
    error = decode(value)
    if error is not None:
        raise error
