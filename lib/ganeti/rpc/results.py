"""Results of node calls.

A caller which needs the data calls ``result.payload()``, which returns the data or raises the
failure. A caller of several nodes reads ``result.failure``: None, or one of four errors:

================ =========================================================================
NodeOffline      the node is marked as offline; it was not called
NodeUnreachable  no connection, or no answer in time
NodeRefused      the node refused the call: the certificate, the epoch, or (NodeLacksCall) the
                 procedure; or (NodeKeyMismatch) the machine at its address has another key than
                 the node
NodeCallFailed   the node failed (``cause``: the error of the node, if it sent one), its answer
                 cannot be decoded, or the connection broke before the answer was complete
================ =========================================================================
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ganeti import RELEASE, errors
from ganeti.http import client as http_client
from ganeti.objects import codec
from ganeti.platform import machine
from ganeti.utils.text import brief
from ganeti.wire import errors as wire_errors
from ganeti.wire import json, neighbour
from ganeti.wire.calls.base import Call, Failed

# The error page of another HTTP server must not fill the log of a job.
_SHOWN_CHARS = 500

Failure = errors.NodeOffline | errors.NodeUnreachable | errors.NodeRefused | errors.NodeCallFailed


class Result:
    """The answer of one node, or the failure."""

    __slots__ = ("certificate", "data", "failure", "ignored", "node_name", "release")

    def __init__(
        self,
        node_name: str,
        data: Any = None,
        failure: Failure | None = None,
        certificate: str = "",
        release: str = "",
        ignored: Sequence[str] = (),
    ) -> None:
        self.node_name = node_name
        #: PEM of the certificate which the node has shown, if the caller asked for it.
        self.certificate = certificate
        #: The decoded answer; None if the call failed.
        self.data = data
        self.failure = failure
        #: The release of the node, if it is another one than that of this program; else empty.
        self.release = release
        #: What the node has ignored in the arguments, because its release does not know it.
        self.ignored = ignored

    @property
    def offline(self) -> bool:
        """Tell whether the node was not called because it is marked as offline."""
        return isinstance(self.failure, errors.NodeOffline)

    def payload(self) -> Any:
        """Return the decoded answer.

        :raises RpcError: the call failed.
        """
        if self.failure is not None:
            raise self.failure
        return self.data

    def __repr__(self) -> str:
        text = repr(self.data) if self.failure is None else str(self.failure)
        return f"<Result {self.node_name}: {text:.200}>"


def from_outcome(call: Call, node_name: str, outcome: http_client.Outcome) -> Result:
    """Make the result of what the HTTP client returned."""
    if isinstance(outcome, http_client.Failure):
        if outcome.kind == http_client.UNREACHABLE:
            return Result(
                node_name,
                failure=errors.NodeUnreachable(
                    node_name, call.name, outcome.message, outcome.machine_is_on
                ),
            )
        if outcome.wrong_key:
            return Result(
                node_name, failure=errors.NodeKeyMismatch(node_name, call.name, outcome.message)
            )
        kinds: dict[str, type[Failure]] = {
            http_client.REFUSED: errors.NodeRefused,
            http_client.FAILED: errors.NodeCallFailed,
        }
        return Result(node_name, failure=kinds[outcome.kind](node_name, call.name, outcome.message))
    if outcome.status != 200:
        text = outcome.body.decode("utf-8", "replace").strip()[:_SHOWN_CHARS]
        text = text or f"answered with HTTP status {outcome.status}"
        if outcome.status == 404:
            return Result(node_name, failure=errors.NodeLacksCall(node_name, call.name, text))
        if outcome.status in (401, 403):
            return Result(
                node_name, failure=errors.NodeRefused(node_name, call.name, text, outcome.epoch)
            )
        return Result(node_name, failure=errors.NodeCallFailed(node_name, call.name, text))
    try:
        json.check_items(outcome.body, json.MAX_ITEMS)
        answer = json.loads(outcome.body)
        if not (isinstance(answer, list) and len(answer) == 2 and isinstance(answer[0], bool)):
            raise errors.ParseError(f"expected [ok, payload], not {brief(answer, 200)}")
        ok, payload = answer
        if ok:
            return Result(
                node_name,
                _decoded(call, payload, outcome.release),
                certificate=outcome.certificate,
                release=outcome.release,
                ignored=neighbour.parse_ignored(outcome.ignored),
            )
    except (errors.ParseError, errors.ConfigurationError) as err:
        text = f"its answer cannot be decoded: {err}"
        if outcome.release:
            text += f"; the node has release {outcome.release}, the caller {RELEASE}"
        return Result(node_name, failure=errors.NodeCallFailed(node_name, call.name, text))
    message = payload if isinstance(payload, str) else json.dumps(payload)
    return Result(
        node_name,
        failure=errors.NodeCallFailed(node_name, call.name, message, _cause(outcome.error)),
    )


def each(call: Call, result: Result, count: int) -> list[Result]:
    """Return a result for each of the things which a call was about.

    When the call failed as a whole, it failed for each of them.

    :param call: its answer is an :class:`ganeti.wire.calls.base.EachResult`.
    :param count: number of things.
    """
    node, failure = result.node_name, result.failure
    if failure is None and len(result.data) != count:
        failure = errors.NodeCallFailed(
            node, call.name, f"the node answered for {len(result.data)} of {count} things"
        )
    if failure is not None:
        return [Result(node, failure=failure) for _ in range(count)]
    return [
        Result(node, failure=errors.NodeCallFailed(node, call.name, *one))
        if isinstance(one, Failed)
        else Result(node, one)
        for one in result.data
    ]


def whole(result: Result) -> Result:
    """Return a result which has failed as a whole if it has failed for one of several things.

    :param result: of a call whose answer is a :class:`ganeti.wire.calls.base.PartlyResult`.
    """
    if result.failure is not None:
        return result
    for one in result.data:
        if isinstance(one, Failed):
            return Result(
                result.node_name, failure=errors.NodeCallFailed(result.node_name, "", *one)
            )
    return result


def _decoded(call: Call, payload: Any, release: str) -> Any:
    """Decode an answer; one of another release may have fields which this release does not know."""
    if not release:
        return call.result.decode(payload)
    with codec.tolerating():
        return call.result.decode(payload)


def _cause(header: str) -> Exception | None:
    if not header:
        return None
    try:
        return wire_errors.decode(json.loads(header))
    except errors.ParseError:
        # The error as an object is optional; its text is in the body.
        return None


def is_gone(failure: Exception | None) -> bool:
    """Return whether nothing of a machine answers.

    A node daemon which reports an error, and a system which refuses the connection because its node
    daemon is stopped, are signs of life.

    :param failure: of a call to its node daemon; None when it answered.
    """
    return isinstance(failure, errors.NodeUnreachable) and not (
        failure.machine_is_on and machine.current().has_own_system
    )
