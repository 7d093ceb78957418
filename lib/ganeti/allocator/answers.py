"""What every answer of an allocator has in common: ``success``, ``info`` and ``result``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ganeti import errors
from ganeti.wire import json

# Enough of a strange answer to recognise it.
_SHOWN = 200


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer in its outer shape; ``result`` depends on the mode and is not checked yet."""

    success: bool
    info: str
    result: Any


def parse(allocator: str, text: str) -> Answer:
    """Read what an allocator printed.

    :raises AllocatorError: it is not an answer; says what is wrong with it.
    """
    try:
        found = json.loads(text)
    except errors.ParseError as err:
        shown = text.strip()[:_SHOWN]
        raise errors.AllocatorError(
            f"the answer of instance allocator {allocator} cannot be read: {err}. It began with"
            f" {shown!r}."
        ) from err
    if not isinstance(found, dict):
        raise _wrong(allocator, f"is not a JSON object but {found!r:.{_SHOWN}}")
    if "result" not in found and "nodes" in found:
        # The name of the key until version 2 of the format.
        found = {**found, "result": found["nodes"]}
    for key in ("success", "info", "result"):
        if key not in found:
            raise _wrong(allocator, f"has no key {key!r}")
    if not isinstance(found["success"], bool):
        raise _wrong(allocator, f"has {found['success']!r:.{_SHOWN}} for success, not a boolean")
    if not isinstance(found["info"], str):
        raise _wrong(allocator, f"has {found['info']!r:.{_SHOWN}} for info, not a text")
    return Answer(found["success"], found["info"], found["result"])


def _wrong(allocator: str, text: str) -> errors.AllocatorError:
    return errors.AllocatorError(f"the answer of instance allocator {allocator} {text}")
