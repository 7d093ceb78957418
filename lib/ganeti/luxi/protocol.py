"""Framing of the master's local socket: JSON text, then one ETX byte.

Both ends use this file: the client (:mod:`ganeti.luxi.client`) and the master's server. It knows
what a request and an answer look like (seed 001, *The LUXI protocol*) and nothing about what is
asked. ETX cannot stand inside JSON text, so a message ends at the first one; a message that grows
beyond the limit is thrown away up to its ETX without being kept in memory, and reported, so that
the connection stays usable and the answers stay in order.
"""

from __future__ import annotations

from ganeti import errors
from ganeti.constants import luxi as const
from ganeti.wire import errors as wire_errors
from ganeti.wire import json

TYPE_CHECKING = False  # the name type checkers look for; importing typing costs milliseconds
if TYPE_CHECKING:
    from typing import Any

VERSION = const.VERSION
ETX = const.TERMINATOR

# 5,000 jobs (the queue's limit) of several KiB each fit; what is larger is a mistake or an attack.
MAX_MESSAGE_BYTES = 32 << 20

# A wait for a job that saw no change: the client asks again, the master is known to live.
NO_CHANGE = "nochange"

METHODS = (
    "ArchiveJob",
    "AutoArchiveJobs",
    "CancelJob",
    "ChangeJobPriority",
    "DeleteFilter",
    "PickupJob",
    "Query",
    "QueryClusterInfo",
    "QueryConfigValues",
    "QueryExports",
    "QueryFields",
    "QueryFilters",
    "QueryGroups",
    "QueryInstances",
    "QueryJobs",
    "QueryNetworks",
    "QueryNodes",
    "QueryTags",
    "ReplaceFilter",
    "SetDrainFlag",
    "SetWatcherPause",
    "SubmitJob",
    "SubmitJobToDrainedQueue",
    "SubmitManyJobs",
    "WaitForJobChange",
)


# Ours: other masters do not have these.
EXTENSIONS = (
    "CheckGuests",
    "ExplainJob",
    "QueryConfigHistory",
    "QueryConfigChanges",
    "QueryConfigAt",
    "WaitForEvents",
)


class Splitter:
    """Cuts a stream of bytes into messages.

    :param limit_bytes: messages above this size come out as None.
    """

    __slots__ = ("_dropping", "_limit_bytes", "_parts", "_size")

    def __init__(self, limit_bytes: int = MAX_MESSAGE_BYTES) -> None:
        self._limit_bytes = limit_bytes
        self._parts: list[bytes] = []
        self._size = 0
        self._dropping = False

    def feed(self, data: bytes) -> list[bytes | None]:
        """The messages which `data` completes, without their ETX; None for one above the limit."""
        pieces = data.split(ETX)
        found: list[bytes | None] = []
        for piece in pieces[:-1]:
            self._keep(piece)
            found.append(None if self._dropping else b"".join(self._parts))
            self._parts.clear()
            self._size = 0
            self._dropping = False
        self._keep(pieces[-1])
        return found

    @property
    def partial(self) -> bool:
        """Whether part of a message has arrived."""
        return self._size > 0

    def _keep(self, piece: bytes) -> None:
        self._size += len(piece)
        if self._size > self._limit_bytes:
            self._dropping = True
            self._parts.clear()
        if piece and not self._dropping:
            self._parts.append(piece)


def encode_request(method: str, args: list[Any] | tuple[Any, ...]) -> bytes:
    """One request, ready to send.

    :raises errors.ProgrammerError: an argument cannot be written as JSON.
    """
    message = {"method": method, "args": args, "version": VERSION}
    return json.dumps(message).encode("ascii") + ETX


def parse_request(message: bytes) -> tuple[str, list[Any]]:
    """Read a request: ``(method, args)``.

    A client's version is not compared: the fields a request has are the same in all of them.

    :raises errors.ParseError: says what is wrong with the message.
    """
    request = json.loads(message)
    if not isinstance(request, dict):
        raise errors.ParseError("a request is a JSON object with 'method' and 'args'")
    for key in ("method", "args"):
        if key not in request:
            raise errors.ParseError(f"the request has no '{key}'")
    method, args = request["method"], request["args"]
    if not isinstance(method, str):
        raise errors.ParseError("the request's 'method' is not a string")
    if not isinstance(args, list):
        # Clients of old send an empty object, or nothing, where a method takes no arguments.
        if args:
            raise errors.ParseError(f"the arguments of {method} are not a list")
        args = []
    return method, args


def encode_answer(result: Any) -> bytes:
    """The answer to a request that succeeded.

    :raises errors.ProgrammerError: the result cannot be written as JSON.
    """
    return json.dumps({"success": True, "result": result}).encode("ascii") + ETX


def encode_error(error: BaseException) -> bytes:
    """The answer to a request that was understood and failed."""
    try:
        text = json.dumps({"success": False, "result": wire_errors.encode(error)})
    except errors.ProgrammerError:
        # An argument of the error is no JSON; its words still reach the client.
        text = json.dumps({"success": False, "result": ["GenericError", [str(error)]]})
    return text.encode("ascii") + ETX


def encode_refusal(reason: str) -> bytes:
    """The answer to something that is no request."""
    text = json.dumps({"success": False, "result": f"failed to parse request: {reason}"})
    return text.encode("ascii") + ETX


def parse_answer(message: bytes) -> Any:
    """Read an answer and return its result.

    :raises errors.GenericError: the error which the master reported, by its class.
    :raises errors.RequestError: the master refused the request in words, or reported an error this
        program does not know.
    :raises errors.LuxiError: the master speaks another version.
    :raises errors.ProtocolError: this is no answer.
    """
    try:
        answer = json.loads(message)
    except errors.ParseError as err:
        raise errors.ProtocolError(f"cannot read the master's answer: {err}") from err
    if not (isinstance(answer, dict) and "success" in answer and "result" in answer):
        raise errors.ProtocolError("the master's answer lacks 'success' or 'result'")
    version = answer.get("version")
    if version is not None and version != VERSION:
        raise errors.LuxiError(f"the master speaks version {version}, this program {VERSION}")
    if not answer["success"]:
        wire_errors.maybe_raise(answer["result"])
        raise errors.RequestError(_refusal_text(answer["result"]))
    return answer["result"]


def _refusal_text(result: Any) -> str:
    return result if isinstance(result, str) else json.dumps(result)
