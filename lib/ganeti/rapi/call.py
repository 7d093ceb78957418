"""One request while it is served."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from ganeti.http.event_server import Incoming
from ganeti.opcodes.base import OpCode
from ganeti.rapi.compression import Coding
from ganeti.rapi.events import Hub
from ganeti.rapi.job_limits import JobLimits
from ganeti.rapi.master import Master
from ganeti.rapi.placement import Placement
from ganeti.rapi.proofs import Proofs
from ganeti.rapi.scope import Limits
from ganeti.rapi.users import User
from ganeti.rapi.webhooks.sender import Webhooks
from ganeti.utils import author, clock

_USER_SOURCE: Final = "gnt:user"
_LIBRARY_SOURCE: Final = "gnt:library:rlib2:"


class State(NamedTuple):
    """The parts of the server which resources about the server need.

    :ivar description: makes the OpenAPI description.
    :ivar page: makes the documentation in HTML.
    :ivar arguments: names of the query arguments of all operations.
    :ivar batch: carries out the operations of a batch; returns the answers.
    :ivar check_opcodes: refuses opcodes which a user may not submit
        (:mod:`ganeti.rapi.opcode_rights`), or not for these instances (:mod:`.limited_ops`).
    :ivar placement: answers questions about placement.
    :ivar proofs: what proves identities: records, users.
    :ivar webhooks: sends events to receivers.
    """

    hub: Hub
    description: Callable[[], dict[str, Any]]
    page: Callable[[], str]
    arguments: frozenset[str]
    batch: Callable[[Call], Awaitable[Any]]
    job_limits: JobLimits
    check_opcodes: Callable[[User, Sequence[OpCode]], Awaitable[None]]
    placement: Placement
    proofs: Proofs
    webhooks: Webhooks


@dataclass(slots=True)
class Call:
    """A request which was checked against its declaration; the argument of every operation.

    :ivar handler: the published name of the resource.
    :ivar uri: values of the names in the path.
    :ivar given: names of the query arguments which the client sent.
    :ivar query: every declared argument by its name, converted.
    :ivar body: the body, checked unless an opcode is made from it; None when there is none.
    :ivar user: name of the user; empty for a request without one.
    :ivar why: the reason which the client gives; empty for none.
    :ivar who: the user with his rights; None for a request without one.
    :ivar limits: what a user with rights for some instances may see and do; None for everything.
    :ivar etag: the operation sets it to the tag of the state of the object.
    :ivar unchanged: the operation sets it when the client has this state, and returns nothing.
    :ivar answer_headers: the operation adds further headers of the answer, and declares them.
    :ivar status: the operation sets another status of its answer, and declares it.
    :ivar incoming: head of the request and address of the client; None within a batch.
    :ivar secret: the operation sets it when its answer has a secret; it is not compressed then.
    :ivar coding: whether the client takes a compressed answer.
    """

    master: Master
    state: State
    handler: str
    uri: Mapping[str, str]
    headers: Mapping[str, str]
    given: frozenset[str]
    query: dict[str, Any]
    body: Any
    user: str
    why: str
    limits: Limits | None = None
    etag: str = ""
    unchanged: bool = False
    answer_headers: list[tuple[str, str]] = field(default_factory=list)
    who: User | None = None
    status: int = 200
    incoming: Incoming | None = None
    secret: bool = False
    coding: Coding = Coding()

    @property
    def identity(self) -> Proofs:
        """Return what proves identities: records, users."""
        return self.state.proofs

    @property
    def address(self) -> str:
        """Return the address of the client; empty within a batch."""
        return "" if self.incoming is None else self.incoming.peer

    def user_reason(self) -> list[list[Any]]:
        """Return the reason of the user, as a reason trail."""
        return [[_USER_SOURCE, self.why, clock.now_ns()]] if self.why else []

    def reason(self) -> list[list[Any]]:
        """Return the reason trail of the request."""
        return [
            *self.user_reason(),
            [_LIBRARY_SOURCE + self.handler, "", clock.now_ns()],
            *author.entry_for(self.user, clock.now_ns()),
        ]
