"""Serving one request: find the resource, check request and rights, make the representation.

The order of the checks decides what a client learns: path (404), method (405), origin (403, 415),
user (401, 429) and rights (403), representation (406, 415), then the body (400), the state of the
object (412), and finally the answer of the master. The body is not read before it is checked.

At most `at_once` requests are sent to the master at a time; others wait in order. Requests which
only wait (for a job, for events) do not count.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import re
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from typing import Any, Final

from ganeti import errors
from ganeti.http import messages, websocket
from ganeti.http.event_server import Accepted, Incoming
from ganeti.http.messages import JSON, Refused, Response
from ganeti.http.websocket import Socket, SocketClosed, WebSocket
from ganeti.opcodes.base import OpCode
from ganeti.rapi import (
    checks,
    compression,
    console_field,
    declare,
    failures,
    limited_ops,
    listeners,
    opcode_rights,
    openapi,
    origin,
    pages,
    plans,
    represent,
    sessions,
)  # fmt: skip
from ganeti.rapi.batch import Asked, Batch, Prepared, Wanted
from ganeti.rapi.call import Call, State
from ganeti.rapi.console_field import WithoutConsoles
from ganeti.rapi.declare import DELETE, GET, POST, PUT, DirectChange, Job, Operation, Read, Resource
from ganeti.rapi.demand import Demand
from ganeti.rapi.events import Hub
from ganeti.rapi.identify import Identities
from ganeti.rapi.job_limits import JobLimits
from ganeti.rapi.kept_records import KeptRecords
from ganeti.rapi.limited_master import LimitedMaster
from ganeti.rapi.master import Master
from ganeti.rapi.placement import Placement
from ganeti.rapi.proofs import Proofs
from ganeti.rapi.resources import RESOURCES, TABLES
from ganeti.rapi.scope import Limits, Scopes
from ganeti.rapi.users import User
from ganeti.rapi.webhooks.sender import Webhooks
from ganeti.utils import suggest
from ganeti.wire import json

_log = logging.getLogger(__name__)

AT_ONCE: Final = 20
#: Largest body in bytes of a request without a user, where the operation takes one.
ANONYMOUS_BODY_BYTES: Final = 16 * 1024
#: Largest body of a request which only reads, such as a filter with its largest number of
#: conditions.
READ_BODY_BYTES: Final = 2 << 20
# Values in a body: a filter with its largest number of conditions has 80,000.
_BODY_ITEMS: Final = 500_000
# The length of an unknown path which an error repeats.
_SHOWN: Final = 100
# The resources from which people begin, with their handlers: a browser is led to the page of all
# resources, a program finds the page and the description in a header (RFC 8631).
_ENTRANCES: Final = {"/": "R_root", "/2": "R_2"}
_PAGE: Final = "/2/doc"
_LINKS: Final = (
    "Link",
    f'<{_PAGE}>; rel="service-doc", </2/openapi.json>; rel="service-desc"; type="application/json"',
)
_NAME: Final = re.compile(r"[\w._-]+", re.ASCII)
_NUMBER: Final = re.compile(r"[0-9]+")
_PATTERNS: Final = {"job_id": _NUMBER, "disk_index": _NUMBER, "serial": _NUMBER}
_KNOWN_METHODS: Final = (GET, PUT, POST, DELETE, "HEAD")


class Router:
    """Finds the resource of a path."""

    def __init__(self, resources: Sequence[Resource]) -> None:
        self._tree: dict[str, Any] = {}
        for resource in resources:
            place = self._tree
            for word in _segments(resource.path):
                if word.startswith("{"):
                    place["{}"] = place.get("{}", (word[1:-1], {}))
                    place = place["{}"][1]
                else:
                    place = place.setdefault(word, {})
            place[""] = resource

    def find(self, path: str) -> tuple[Resource, dict[str, str]]:
        """Return the resource of a path, and the values of the names in the path.

        :raises Refused: 404 when there is none.
        """
        place = self._tree
        uri: dict[str, str] = {}
        for word in _segments(path):
            if word and word in place:
                place = place[word]
            elif "{}" in place:
                name, inner = place["{}"]
                if _PATTERNS.get(name, _NAME).fullmatch(word) is None:
                    raise _nothing(path, word, place)
                uri[name], place = word, inner
            else:
                raise _nothing(path, word, place)
        resource = place.get("")
        if resource is None:
            raise _nothing(path, "", place)
        return resource, uri


def _nothing(path: str, word: str, place: Mapping[str, Any]) -> Refused:
    """Make the error for an unknown path, with a hint at the segment which is wrong."""
    known = [name for name in place if name and name != "{}"]
    shown = path if len(path) <= _SHOWN else f"{path[:_SHOWN]}..."
    hint = suggest.did_you_mean(word, known) or " /2/doc lists all resources."
    return Refused(404, f"there is no resource {shown}.{hint}")


def _segments(path: str) -> list[str]:
    return [] if path == "/" else path[1:].split("/")


class RestApplication:
    """What the daemon serves.

    :param identities: the ways in which users identify themselves.
    :param require_authentication: every request needs a password.
    :param at_once: how many requests are sent to the master at a time.
    :param job_limits: limits for the jobs of each user; None for the usual ones.
    :param scopes: makes the limits of users with rights for some instances.
    :param webhooks: sends events to receivers, and has the source of events.
    """

    def __init__(
        self,
        master: Master,
        identities: Identities,
        *,
        require_authentication: bool | Demand = False,
        at_once: int = AT_ONCE,
        job_limits: JobLimits | None = None,
        scopes: Scopes | None = None,
        webhooks: Webhooks | None = None,
        resources: Sequence[Resource] = RESOURCES,
    ) -> None:
        self._master = master
        self._identities = identities
        self._require_authentication = require_authentication
        self._job_limits = job_limits or JobLimits(master)
        self._scopes = scopes or Scopes(master)
        self._slots = asyncio.Semaphore(at_once)
        webhooks = webhooks or Webhooks(master, Hub(master))
        self._state = State(
            webhooks.hub,
            openapi.description,
            pages.page,
            frozenset(
                argument.name
                for resource in resources
                for operation in resource.operations.values()
                for argument in declare.arguments(operation)
            ),
            Batch(self).run,
            self._job_limits,
            self._check_opcodes,
            Placement(master),
            identities.proofs or Proofs(KeptRecords(master)),
            webhooks,
        )
        self._offers = opcode_rights.offers(resources)
        self._router = Router(resources)

    # -- what the server calls -------------------------------------------------------------------

    async def begin(self, incoming: Incoming) -> Accepted | Response | WebSocket:
        """Check the head of a request."""
        head = incoming.head
        resource, uri = self._router.find(messages.decode_path(head.path))
        operation = self._operation(resource, head)
        origin.check(head, operation)
        user = await self._user(operation, resource, incoming)
        accept = head.headers.get("accept")
        if resource.path in _ENTRANCES and represent.prefers_html(accept):
            # A browser: a person wants to read.
            return Response(303, b"", [("Location", _PAGE), *represent.SAFETY, represent.NO_STORE])
        query = checks.published_names(messages.parse_query(head.query), self._state.arguments)
        asked = Asked(resource, operation, uri, query, head.headers, user, incoming)
        self._check_arguments(asked, head)
        if isinstance(operation, Read) and operation.socket and websocket.wanted(head):
            return await self._begin_socket(asked, operation.socket)
        media_type = represent.choose(
            accept, "" if isinstance(operation, Job) else operation.produces
        )
        if head.length and origin.media_type(head) != JSON:
            raise Refused(415, f"the body must be {JSON}")

        async def answer(body: bytes) -> Response:
            return await self._answer(asked, media_type, body)

        return Accepted(
            user.name if user is not None else "-",
            answer,
            most_body_bytes=most_body_bytes(operation, anonymous=user is None),
            only_reads=isinstance(operation, Read),
        )

    def refusal(self, refused: Refused) -> Response:
        """Make the answer for a refused request."""
        return represent.error_response(refused)

    # -- steps, also those of one operation of a batch -------------------------------------------

    def ask(self, user: User, wanted: Wanted) -> Asked:
        """Find the operation which a user asks for, within another request.

        :raises Refused: there is no such operation, or the user may not use it.
        """
        resource, uri = self._router.find(messages.decode_path(wanted.path))
        operation = resource.operations.get(wanted.method)
        if operation is None:
            raise _unsupported(resource, wanted.method, wanted.path)
        _permit(user, operation, resource, wanted.method)
        known = checks.published_names(wanted.query, self._state.arguments)
        asked = Asked(resource, operation, uri, known, wanted.headers, user)
        _permit_arguments(asked, user, wanted.method)
        return asked

    async def prepare(self, asked: Asked, body: Any) -> Prepared:
        """Do everything that can refuse an operation before something is changed.

        :param body: the value in the body; None when there is none.
        :raises errors.GenericError: the operation is refused.
        """
        resource, operation, uri, query, sent, user, incoming = asked
        headers, coding = compression.negotiate(sent)
        limits = self._limits(asked)
        if limits is not None:
            uri = await limits.admit(uri)
        call = Call(
            self._master_of(user, limits),
            self._state,
            resource.handler,
            uri,
            headers,
            given=frozenset(query),
            query=checks.query_values(operation, query, self._state),
            body=checks.checked_body(operation, body),
            user="" if user is None else user.name,
            why=query.get(declare.REASON.name, [""])[0],
            limits=limits,
            who=user,
            incoming=incoming,
            coding=coding,
        )
        wanted = headers.get("if-match")
        if wanted is not None and resource.tagged:
            current = await TABLES[resource.tagged].current_etag(
                call.master, next(iter(uri.values()))
            )
            if not represent.tag_matches(wanted, current, weak=False):
                raise Refused(
                    412, f"the {resource.tagged} has changed", headers=[("ETag", current)]
                )
        ops = checks.opcodes(call, operation) if isinstance(operation, Job) else []
        if limits is not None:
            await limited_ops.check(limits, ops)
        return Prepared(resource, operation, call, ops)

    async def carry_out(self, prepared: Prepared) -> Any:
        """Carry out an operation which was prepared; return the value of its answer.

        :raises errors.GenericError: the operation is refused.
        """
        operation, call = prepared.operation, prepared.call
        if not isinstance(operation, Job):
            return await operation.run(call)
        if operation.at_once is not None and not prepared.submits:
            found = await self._master.call("RunQuery", prepared.ops[0].to_dict())
            return operation.at_once(found["result"], found["warnings"])
        return await self._job_limits.submit(call.user, prepared.ops)

    def _limits(self, asked: Asked) -> Limits | None:
        """Return the limits of a user with rights for some instances; None without limits."""
        resource, operation = asked.resource, asked.operation
        (method,) = (name for name, one in resource.operations.items() if one is operation)
        return self._scopes.of(asked.user, operation.access, resource.handler, method)

    def _master_of(self, user: User | None, limits: Limits | None) -> Master:
        """Return the master as a user may ask it."""
        if limits is not None:
            return LimitedMaster(self._master, limits)
        if user is not None and console_field.area(user) is not None:
            return WithoutConsoles(self._master)
        return self._master

    async def _check_opcodes(self, user: User, ops: Sequence[OpCode]) -> None:
        """Refuse opcodes which a user may not submit.

        :raises Refused: 403; 404 for an instance which he does not see.
        """
        if console_field.area(user) is not None:
            for op in ops:
                console_field.check_query(op.to_dict())
        for op, grounds in zip(ops, opcode_rights.check(self._offers, user, ops), strict=True):
            refused = None
            for ground in grounds:
                try:
                    limits = self._scopes.of(user, *ground)
                    if limits is not None:
                        await limited_ops.check(limits, [op])
                    break
                except Refused as err:
                    refused = err
            else:
                raise refused or Refused(403)

    @property
    def job_limits(self) -> JobLimits:
        """The limits for the jobs of each user."""
        return self._job_limits

    @staticmethod
    def _operation(resource: Resource, head: messages.Head) -> Operation:
        operation = resource.operations.get(_method(head.method))
        if operation is None:
            raise _unsupported(resource, head.method, head.path)
        return operation

    async def _user(
        self, operation: Operation, resource: Resource, incoming: Incoming
    ) -> User | None:
        if not isinstance(operation, Job) and operation.identifies:
            return None
        user = await self._identities.identify(incoming)
        if user is not None:
            if user.by == sessions.BY:
                origin.check_session(incoming.head, operation)
            _permit(user, operation, resource, incoming.head.method)
        elif operation.access or self._require_authentication:
            raise self._identities.challenge(incoming.head)
        return user

    def _check_arguments(self, asked: Asked, head: messages.Head) -> None:
        """Refuse arguments for which the user lacks the right.

        :raises Refused: 401 without a user, else 403.
        """
        if asked.user is not None:
            _permit_arguments(asked, asked.user, head.method)
        elif any(one.access and one.name in asked.query for one in asked.operation.query):
            raise self._identities.challenge(head)

    async def _answer(self, asked: Asked, media_type: str, raw: bytes) -> Response:
        try:
            json.check_items(raw, _BODY_ITEMS)
            body = json.loads_strict(raw) if raw else None
        except errors.ParseError as err:
            raise Refused(400, f"cannot parse the body: {err}") from err
        operation = asked.operation
        waits = not isinstance(operation, Job) and operation.waits
        with explained(asked.resource):
            async with contextlib.nullcontext() if waits else self._slots:
                prepared = await self.prepare(asked, body)
                value = await self.carry_out(prepared)
                if not prepared.plans:
                    return await self._represent(operation, prepared.call, value, media_type)
            planned = await plans.of_job(self._master, value)
            return await self._represent(operation, prepared.call, planned, media_type)

    async def _begin_socket(self, asked: Asked, run: declare.RunSocket) -> WebSocket:
        """Return the WebSocket of an operation; what can be checked now is checked."""
        with explained(asked.resource):
            call = (await self.prepare(asked, None)).call

        async def serve(socket: Socket) -> None:
            with explained(asked.resource), contextlib.suppress(SocketClosed):
                await listeners.serve(run(call, socket), self._remains(call))

        return WebSocket(call.user or "-", serve)

    def _remains(self, call: Call) -> listeners.Remains:
        """Return what asks whether the user of an open connection is still the same."""

        account = None if call.who is None else self._identities.account(call.who)

        async def remains() -> bool:
            if call.who is None or call.incoming is None:
                return True
            return await self._identities.remains(call.incoming, call.who, account)

        return remains

    async def _represent(
        self, operation: Operation, call: Call, value: Any, media_type: str
    ) -> Response:
        headers = [("Content-Type", media_type), *represent.SAFETY, *call.answer_headers]
        if call.handler in _ENTRANCES.values():
            headers.append(_LINKS)
        if isinstance(value, AsyncIterator):
            stream = listeners.parts(value, self._remains(call))
            return Response(call.status, stream, [*headers, represent.NO_STORE])
        if isinstance(value, bytes):
            body = value
        else:
            body = b"" if call.unchanged else await represent.render(value, media_type)
        secret = call.secret or (not isinstance(operation, Job) and operation.secret)
        may_compress = media_type == JSON and not secret and len(body) >= compression.LEAST_BYTES
        coded = may_compress and call.coding.gzip
        # What is for one login only has no tag, and nobody stores it.
        once = call.status != 200 or any(name == "Set-Cookie" for name, _ in call.answer_headers)
        if isinstance(operation, Read) and not once:
            etag = call.etag or represent.content_etag(body)
            wanted = call.headers.get("if-none-match")
            unchanged = wanted is not None and represent.tag_matches(wanted, etag, weak=True)
            if unchanged:
                tag = call.coding.tag_of_held(etag)
            else:
                tag = compression.tag_of(etag) if coded else etag
            vary = "Accept, Accept-Encoding" if may_compress or tag != etag else "Accept"
            headers += [("ETag", tag), ("Vary", vary), ("Cache-Control", "no-cache")]
            if unchanged:
                return Response(304, b"", headers[1:])
        else:
            headers.append(represent.NO_STORE)
        if coded:
            body = await compression.compressed(body)
            headers.append(compression.HEADER)
        return Response(call.status, body, headers)


@contextlib.contextmanager
def explained(resource: Resource) -> Iterator[None]:
    """Turn every error of an operation into the answer that the client gets.

    :raises Refused: in place of any other error.
    """
    try:
        yield
    except errors.GenericError as err:
        raise failures.refusal(err) from err
    except Exception as err:  # noqa: BLE001 -- the entry point of a REST request
        _log.exception("internal error at %s", resource.path)
        raise Refused(
            500,
            f"internal error: {type(err).__name__}. The log of the REST daemon has the details.",
        ) from err


def _method(method: str) -> str:
    """Return the declared method which serves a method."""
    return GET if method == "HEAD" else method


def _permit(user: User, operation: Operation, resource: Resource, method: str) -> None:
    """Refuse an operation which the user may not use.

    :raises Refused: 403.
    """
    if not user.may(operation.access, resource.handler, _method(method)):
        raise Refused(403)


def _permit_arguments(asked: Asked, user: User, method: str) -> None:
    """Refuse arguments for which the user lacks the right.

    :raises Refused: 403.
    """
    for one in asked.operation.query:
        if one.access and one.name in asked.query:
            if not user.may(one.access, asked.resource.handler, _method(method)):
                raise Refused(403, f"query argument '{one.name}' needs the right to read")


def _unsupported(resource: Resource, method: str, path: str) -> Refused:
    return Refused(
        405,
        f"method {method} is unsupported for path {path[:200]}",
        headers=[("Allow", ", ".join(_allowed(resource)))],
    )


def most_body_bytes(operation: Operation, *, anonymous: bool) -> int:
    """Return the largest body of a request; 0 for an operation which takes none.

    The body of a job has further members, such as its priority, also where its opcode takes no
    parameter from there. Clients by others send a small one with each change (``DeleteFilter``).
    """
    if not isinstance(operation, Job) and operation.fields is None:
        return ANONYMOUS_BODY_BYTES if isinstance(operation, DirectChange) else 0
    if anonymous:
        return ANONYMOUS_BODY_BYTES
    if isinstance(operation, DirectChange) and operation.most_body_bytes:
        return operation.most_body_bytes
    return READ_BODY_BYTES if isinstance(operation, Read) else messages.MAX_BODY_BYTES


def _allowed(resource: Resource) -> list[str]:
    found = [method for method in _KNOWN_METHODS if method in resource.operations]
    return [*found, "HEAD"] if GET in found else found
