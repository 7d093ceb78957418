"""The node's end of a call: decodes a request, calls the handler, encodes the answer.

Runs in the child process of the request. An exception of a handler becomes the published answer
``[false, text]``; its class and arguments are in a header for clients which can decode them
(:data:`ganeti.http.ERROR_HEADER`).
"""

from __future__ import annotations

import contextlib
import logging
import re
import signal
import time
from collections.abc import Callable, Mapping
from typing import Any

from ganeti import RELEASE, errors, http
from ganeti.backend import caller, registry
from ganeti.http import server
from ganeti.platform import master_epoch
from ganeti.storage import node_work
from ganeti.storage.lvm import facts as lvm
from ganeti.utils import tracing
from ganeti.wire import calls, json, neighbour
from ganeti.wire import errors as wire_errors

_log = logging.getLogger(__name__)

# The caller gave up long before: a handler which still runs after this time hangs.
_HANG_FACTOR = 2.0
_HANG_EXTRA_S = 60.0
# Proxies and libraries of others may refuse longer headers.
_HEADER_MAX_CHARS = 4096
_EPOCH_KEY = http.EPOCH_HEADER.lower()
_WORK_KEY = http.WORK_HEADER.lower()
_RELEASE_KEY = http.RELEASE_HEADER.lower()
_WORK = re.compile(r"(-|[1-9][0-9]{0,18}) ([0-9a-f]{1,64})", re.ASCII)


class Dispatcher:
    """Answers requests with the handlers of this package.

    :param handlers: name of the call -> handler.
    """

    def __init__(self, handlers: Mapping[str, registry.Handler]) -> None:
        self._handlers = handlers

    def __call__(self, request: server.AuthorisedRequest) -> server.Response:
        """Decode a request, call its handler, and encode the answer."""
        peer = neighbour.peer_of(request.headers.get(_RELEASE_KEY, ""))
        response = self._answer(request, peer)
        if peer is None:
            return response
        ignored = neighbour.ignored_text(peer)
        named = {http.IGNORED_HEADER: ignored} if ignored else {}
        return response._replace(
            headers={**response.headers, http.RELEASE_HEADER: RELEASE, **named}
        )

    def _answer(
        self, request: server.AuthorisedRequest, peer: neighbour.Peer | None
    ) -> server.Response:
        call = calls.TABLE.get(request.procedure)
        handler = self._handlers.get(request.procedure)
        if call is None or handler is None:
            unknown = f"unknown procedure {request.procedure:.100}"
            return server.Response(404, _with_releases(unknown, peer))
        try:
            refusal = self._admit(call, request)
            args = call.decode_args(_loaded(request.body), peer)
            serving = _serving(call, args, request)
        except errors.ParseError as err:
            text = _with_releases(str(err), peer)
            _log.warning(
                "node call %s from %s cannot be read: %s",
                call.name,
                request.peer,
                text.decode("utf-8"),
            )
            return server.Response(400, text)
        if refusal is not None:
            return refusal
        signal.setitimer(signal.ITIMER_REAL, call.time_limit_s(args) * _HANG_FACTOR + _HANG_EXTRA_S)
        parent = tracing.parse_traceparent(request.headers.get(tracing.HEADER))
        span = (
            tracing.begin(f"node {call.name}", tracing.SERVER, parent, rpc_method=call.name)
            if parent
            else tracing.NOTHING
        )
        # One child may serve several requests: facts which an earlier one read may have changed.
        lvm.here().forget()

        def carry_out() -> bytes:
            with serving, span.current():
                if call.work:
                    # Once more: the record says now that this node works for that master.
                    master_epoch.require(caller.epoch())
                result = handler(**args)
            return json.dumps([True, call.result.encode(result)]).encode("ascii")

        response, error = _outcome(call, request, carry_out)
        span.end(error)
        return response

    def _admit(self, call: calls.Call, request: server.AuthorisedRequest) -> server.Response | None:
        """Refuse a request of any master but the newest; return the answer of a refusal.

        :raises ParseError: the caller's epoch is malformed.
        """
        epoch = master_epoch.parse(request.headers.get(_EPOCH_KEY, "0"))
        caller.act_for(epoch)
        if call.any_epoch:
            return None
        try:
            master_epoch.admit(epoch)
        except master_epoch.StaleEpochError as err:
            return _stale(call, request, err)
        except (errors.GenericError, OSError) as err:
            _log.error(
                "node call %s from %s failed: it is not known which node is the master: %s",
                call.name,
                request.peer,
                err,
            )
            return failed(err)
        return None


def _loaded(body: bytes) -> Any:
    """Read the arguments of a call.

    :raises ParseError: they are not JSON, or contain a zero character, with which the system takes
        no name of a file and no argument of a program.
    """
    values = json.loads(body)
    if b"\\u0000" in body:
        json.check_nesting(values)
        json.check_no_zero(values)
    return values


def _with_releases(text: str, peer: neighbour.Peer | None) -> bytes:
    full = text if peer is None else f"{text}; {peer}"
    return full.encode("utf-8", "backslashreplace")


def _serving(
    call: calls.Call, args: Mapping[str, Any], request: server.AuthorisedRequest
) -> contextlib.AbstractContextManager[None]:
    """Make the block in which this process works on a call.

    :raises ParseError: the header which names the job is malformed.
    """
    if not call.work:
        return contextlib.nullcontext()
    job, token = None, ""
    given = request.headers.get(_WORK_KEY)
    if given is not None:
        words = _WORK.fullmatch(given)
        if words is None:
            raise errors.ParseError(
                f"header {http.WORK_HEADER} must have a job and the name of a call,"
                f" not {given!r:.100}"
            )
        job, token = None if words[1] == "-" else int(words[1]), words[2]
    return node_work.Serving(
        node_work.describe(
            call.name, call.work, args, job=job, epoch=str(caller.epoch()), token=token
        )
    )


def _stale(
    call: calls.Call, request: server.AuthorisedRequest, err: master_epoch.StaleEpochError
) -> server.Response:
    _log.warning("node call %s from %s is refused: %s", call.name, request.peer, err)
    return server.Response(403, str(err).encode(), {http.EPOCH_HEADER: str(err.known)})


def _outcome(
    call: calls.Call, request: server.AuthorisedRequest, carry_out: Callable[[], bytes]
) -> tuple[server.Response, str]:
    """Carry out a call, and log how it ends.

    :returns: the answer, and the text of the error; it is empty if there was none.
    """
    start = time.monotonic()
    try:
        body = carry_out()
    except errors.QuitGanetiException as err:
        _log.info("node call %s from %s asks this daemon to end", call.name, request.peer)
        ok, payload = err.args
        body = json.dumps([bool(ok), payload]).encode()
        return server.Response(200, body, quit=True), ""
    except master_epoch.StaleEpochError as err:
        return _stale(call, request, err), str(err)
    except (errors.GenericError, OSError) as err:
        _log.error(
            "node call %s from %s failed after %.3f s: %s",
            call.name,
            request.peer,
            time.monotonic() - start,
            err,
        )
        return failed(err), str(err)
    except Exception as err:  # noqa: BLE001  # the entry point of a node call
        _log.exception(
            "node call %s from %s failed with an internal error", call.name, request.peer
        )
        return failed(err), f"{type(err).__name__}: {err}"
    # Calls which arrive many times a second would fill the log and hide the others.
    _log.log(
        logging.DEBUG if call.keep else logging.INFO,
        "node call %s from %s took %.3f s",
        call.name,
        request.peer,
        time.monotonic() - start,
    )
    return server.Response(200, body, keep=call.keep), ""


def failed(err: Exception) -> server.Response:
    """Make the answer for an exception of a handler."""
    known = isinstance(err, errors.GenericError | OSError)
    text = str(err) if known and str(err) else f"{type(err).__name__}: {err}"
    coded = json.dumps(wire_errors.encode(err))
    headers = {http.ERROR_HEADER: coded} if len(coded) <= _HEADER_MAX_CHARS else {}
    return server.Response(200, json.dumps([False, text]).encode("ascii"), headers)
