"""Reading the part which all answers of allocators share: ``success``, ``info`` and ``result``.

Source: manual page **ganeti-iallocator**.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ganeti import errors
from ganeti.wire import json

# Number of characters of a wrong answer which the error quotes.
_SHOWN = 200


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer of an allocator; ``result`` depends on the mode and is not checked yet.

    :ivar reasons: name of an instance without a place -> why, in sentences
        (:mod:`ganeti.htools.reasons`); only the allocator of the master daemon gives them. They
        are no part of the published form.
    """

    success: bool
    info: str
    result: Any
    reasons: Mapping[str, str] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """Return the answer in its published form."""
        return {"success": self.success, "info": self.info, "result": self.result}


def parse(allocator: str, text: str) -> Answer:
    """Read the output of an allocator.

    :param allocator: name of the allocator, for errors.
    :raises AllocatorError: the output is not an answer.
    """
    try:
        found = json.loads(text)
    except errors.ParseError as err:
        shown = text.strip()[:_SHOWN]
        raise errors.AllocatorError(
            f"the answer of instance allocator {allocator} cannot be read: {err}. It begins with"
            f" {shown!r}."
        ) from err
    if not isinstance(found, dict):
        raise _wrong(allocator, f"is not a JSON object but {found!r:.{_SHOWN}}")
    if "result" not in found and "nodes" in found:
        # The name of this key before version 2 of the format.
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
