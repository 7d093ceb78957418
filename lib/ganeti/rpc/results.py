"""What came back from one node.

A caller that needs the data says ``result.payload()`` and gets it, or the error is raised. A
fan-out looks at ``result.failure``: None, or one of four errors that mean different things:

=============== =====================================================================
NodeOffline      the configuration says so; nobody was asked
NodeUnreachable  no connection, or no answer in time
NodeRefused      the node does not obey us: certificate, unknown procedure
NodeCallFailed   the node tried and failed (``cause``: its own error, when it sent one),
                 answered nonsense, or broke off in the middle
=============== =====================================================================
"""

from __future__ import annotations

from typing import Any

from ganeti import errors
from ganeti.http import client as http_client
from ganeti.wire import errors as wire_errors
from ganeti.wire import json
from ganeti.wire.calls.base import Call

# An error page of something that is no node daemon must not fill a job's log.
_SHOWN_CHARS = 500

Failure = errors.NodeOffline | errors.NodeUnreachable | errors.NodeRefused | errors.NodeCallFailed


class Result:
    """The answer of one node, or why there is none."""

    __slots__ = ("data", "failure", "node_name")

    def __init__(self, node_name: str, data: Any = None, failure: Failure | None = None) -> None:
        self.node_name = node_name
        #: The decoded answer; None when there is a failure.
        self.data = data
        self.failure = failure

    @property
    def offline(self) -> bool:
        """Whether nobody was asked because the node is marked offline."""
        return isinstance(self.failure, errors.NodeOffline)

    def payload(self) -> Any:
        """The decoded answer.

        :raises RpcError: the failure, when there is one.
        """
        if self.failure is not None:
            raise self.failure
        return self.data

    def __repr__(self) -> str:
        told = repr(self.data) if self.failure is None else str(self.failure)
        return f"<Result {self.node_name}: {told:.200}>"


def from_outcome(call: Call, node_name: str, outcome: http_client.Outcome) -> Result:
    """Sort what the transport brought."""
    if isinstance(outcome, http_client.Failure):
        kinds: dict[str, type[Failure]] = {
            http_client.UNREACHABLE: errors.NodeUnreachable,
            http_client.REFUSED: errors.NodeRefused,
            http_client.FAILED: errors.NodeCallFailed,
        }
        return Result(node_name, failure=kinds[outcome.kind](node_name, call.name, outcome.message))
    if outcome.status != 200:
        text = outcome.body.decode("utf-8", "replace").strip()[:_SHOWN_CHARS]
        text = text or f"answered with HTTP status {outcome.status}"
        if outcome.status in (401, 403, 404):
            return Result(
                node_name, failure=errors.NodeRefused(node_name, call.name, text, outcome.epoch)
            )
        return Result(node_name, failure=errors.NodeCallFailed(node_name, call.name, text))
    try:
        answer = json.loads(outcome.body)
        if not (isinstance(answer, list) and len(answer) == 2 and isinstance(answer[0], bool)):
            raise errors.ParseError(f"expected [ok, payload], not {answer!r:.200}")
        ok, payload = answer
        if ok:
            return Result(node_name, call.result.decode(payload))
    except (errors.ParseError, errors.ConfigurationError) as err:
        return Result(
            node_name,
            failure=errors.NodeCallFailed(
                node_name, call.name, f"answer of call {call.name} cannot be understood: {err}"
            ),
        )
    message = payload if isinstance(payload, str) else json.dumps(payload)
    return Result(
        node_name,
        failure=errors.NodeCallFailed(node_name, call.name, message, _cause(outcome.error)),
    )


def _cause(header: str) -> Exception | None:
    if not header:
        return None
    try:
        return wire_errors.decode(json.loads(header))
    except errors.ParseError:
        # Only an addition to the text, which arrived.
        return None
