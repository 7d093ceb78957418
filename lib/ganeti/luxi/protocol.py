"""The format of LUXI messages: JSON text, then one ETX byte.

Both ends use this module: the client (:mod:`ganeti.luxi.client`) and the server
(:mod:`ganeti.master.luxi_server`). It defines the form of requests and answers (Ganeti design 2.0,
*The LUXI protocol*); :mod:`ganeti.luxi.methods` has the methods. JSON text cannot contain ETX, so a
message ends at the first one. A message above the size limit is dropped up to its ETX without being
kept in memory, and reported, so that the connection stays usable and the answers stay in order.
"""

from __future__ import annotations

from ganeti import TYPE_CHECKING, errors
from ganeti.constants import luxi as const
from ganeti.utils import tracing
from ganeti.wire import errors as wire_errors
from ganeti.wire import json

if TYPE_CHECKING:
    from typing import Any

VERSION = const.VERSION
ETX = const.TERMINATOR

# Large enough for 5,000 jobs (the queue's limit) of several KiB each; a larger message is a mistake
# or an attack.
MAX_MESSAGE_BYTES = 32 << 20

# The answer to a wait for a job without a change: the client knows that the master lives, and asks
# again.
NO_CHANGE = "nochange"


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
        """Return the messages which `data` completes, without ETX; None for one above the limit."""
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
        """True if part of a message has arrived."""
        return self._size > 0

    @property
    def kept_bytes(self) -> int:
        """Size of the part of a message which is kept."""
        return 0 if self._dropping else self._size

    def drop(self) -> None:
        """Drop the message of which a part has arrived, as if it were above the limit."""
        self._dropping = True
        self._parts.clear()

    def _keep(self, piece: bytes) -> None:
        self._size += len(piece)
        if self._size > self._limit_bytes:
            self._dropping = True
            self._parts.clear()
        if piece and not self._dropping:
            self._parts.append(piece)


def encode_request(method: str, args: list[Any] | tuple[Any, ...], traceparent: str = "") -> bytes:
    """Return the bytes of a request.

    :param traceparent: the span for which the request is made (:mod:`ganeti.utils.tracing`); only
        a request with one has this key, which other masters ignore.
    :raises errors.ProgrammerError: an argument cannot be written as JSON.
    """
    message = {"method": method, "args": args, "version": VERSION}
    if traceparent:
        message[tracing.HEADER] = traceparent
    return json.dumps(message).encode("ascii") + ETX


def parse_request(message: bytes) -> tuple[str, list[Any], str]:
    """Read a request: ``(method, args, traceparent)``; the last is empty in most requests.

    The version of the client is not compared, because all versions have the same fields.

    :raises errors.ParseError: the message is not a request; says why.
    """
    json.check_items(message, json.MAX_ITEMS)
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
        # Old clients send an empty object, or nothing, where a method takes no arguments.
        if args:
            raise errors.ParseError(f"the arguments of {method} are not a list")
        args = []
    return method, args, tracing.parse_traceparent(request.get(tracing.HEADER))


def encode_answer(result: Any) -> bytes:
    """Return the bytes of the answer to a request that succeeded.

    :raises errors.ProgrammerError: the result cannot be written as JSON.
    """
    return json.dumps({"success": True, "result": result}).encode("ascii") + ETX


def encode_error(error: BaseException) -> bytes:
    """Return the bytes of the answer to a valid request that failed."""
    try:
        text = json.dumps({"success": False, "result": wire_errors.encode(error)})
    except errors.ProgrammerError:
        # An argument of the error cannot be written as JSON; its text still reaches the client.
        text = json.dumps({"success": False, "result": ["GenericError", [str(error)]]})
    return text.encode("ascii") + ETX


def encode_refusal(reason: str) -> bytes:
    """Return the bytes of the answer to a message that is not a valid request."""
    text = json.dumps({"success": False, "result": f"failed to parse request: {reason}"})
    return text.encode("ascii") + ETX


def parse_answer(message: bytes) -> Any:
    """Read an answer and return its result.

    :raises errors.GenericError: the error which the master reported, by its class.
    :raises errors.RequestError: the master refused the request with a text, or reported an error
        which this program does not know.
    :raises errors.LuxiError: the master has another version.
    :raises errors.ProtocolError: the message is not an answer.
    """
    try:
        answer = json.loads(message)
    except errors.ParseError as err:
        raise errors.ProtocolError(f"cannot read the master's answer: {err}") from err
    if not (isinstance(answer, dict) and "success" in answer and "result" in answer):
        raise errors.ProtocolError("the master's answer lacks 'success' or 'result'")
    version = answer.get("version")
    if version is not None and version != VERSION:
        raise errors.LuxiError(
            f"the master has version {version} of the protocol, this program {VERSION}"
        )
    if not answer["success"]:
        wire_errors.maybe_raise(answer["result"])
        raise errors.RequestError(_refusal_text(answer["result"]))
    return answer["result"]


def _refusal_text(result: Any) -> str:
    return result if isinstance(result, str) else json.dumps(result)
