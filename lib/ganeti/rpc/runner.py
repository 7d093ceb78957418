"""Make node calls.

A runner turns ``call(INSTANCE_START, node_uuid, instance=..., ...)`` into one HTTPS request, and
``call_many`` or ``call_together`` into several requests at the same time. Arguments are encoded
once for all nodes, from one snapshot of the configuration; a node which is marked as offline is not
called (unless the call is made on such nodes, or the caller does not believe the mark and says
``even_offline``). Any number of threads may use a runner.

:class:`AddressRunner` needs no configuration: it calls nodes which are not in it (yet), and is used
by programs which run while there is no master.
"""

from __future__ import annotations

import copy
import logging
import os
import secrets
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from ganeti import RELEASE, errors, http
from ganeti.http import client as http_client
from ganeti.platform import machine, master_epoch, paths
from ganeti.rpc.filler import FromConfig, NodeFiller, WithoutConfig
from ganeti.rpc.results import Result, from_outcome
from ganeti.utils import metrics, tracing
from ganeti.wire import json
from ganeti.wire.calls import IMPEXP_CLEANUP, NODE_WORK, VERSION
from ganeti.wire.calls.base import Call

if TYPE_CHECKING:
    from ganeti.objects.cluster import ConfigData

#: A fan-out to fewer nodes waits for all of them.
IMPATIENT_FROM = 10
#: See :class:`Impatience`.
IMPATIENT_S = 5.0

_log = logging.getLogger(__name__)

_CALLS = metrics.Counter(
    "ganeti_master_node_calls", "Calls to nodes, by procedure and outcome", ("call", "outcome")
)
_BEGUN = metrics.Counter(
    "ganeti_master_node_calls_begun",
    "Calls to nodes which have begun; those which have not ended are the difference",
    ("call",),
)

#: Seconds within which a node answers that is called although it is marked as offline. A machine
#: which is off costs at most the time limit of the connection (:mod:`ganeti.http.client`).
OFFLINE_TIMEOUT_S = 10.0

#: Seconds for which a node is asked again, when the answer to a call was lost which may still work,
#: and the node does not say whether it does.
PATIENCE_S = 20.0
# The pauses between these questions grow from the first to the second number of seconds.
_PAUSE_S = 0.1
_PAUSE_MAX_S = 2.0


class Transport(Protocol):
    """Sends requests; :class:`ganeti.http.client.Client`, or a fake in tests."""

    def perform(
        self,
        requests: list[http_client.OutgoingRequest],
        on_outcome: http_client.OnOutcome | None = None,
        until: http_client.Until | None = None,
    ) -> list[http_client.Outcome]:
        """Send the requests; return the outcomes in their order."""

    def reset(self, ca_file: str | None = None) -> None:
        """Forget all sessions; trust the certificates in this file from now on."""


def _ignore(_node_name: str, _epoch: str) -> None:
    """Do nothing: a caller which is not the master gets the refusal as a failure."""


class _Target:
    """A node which is called.

    :ivar pin: the keys which it may show; see :class:`ganeti.http.client.OutgoingRequest`.
    :ivar offline: it is called although it is marked as offline.
    """

    __slots__ = ("address", "key", "name", "offline", "pin")

    def __init__(
        self, key: str, name: str, address: str, pin: str = "", *, offline: bool = False
    ) -> None:
        self.key = key
        self.name = name
        self.address = address
        self.pin = pin
        self.offline = offline


class Question(NamedTuple):
    """One of several calls which :meth:`RpcRunner.call_together` makes at the same time.

    :ivar args: arguments, the same for all of the nodes.
    :ivar even_offline: see :meth:`RpcRunner.call_many`.
    """

    call: Call
    node_uuids: Collection[str]
    args: Mapping[str, Any]
    even_offline: bool = False


#: See :meth:`ganeti.http.client.Client.perform`.
Until = http_client.Until
#: Is called with a call, the key of a node, and its result.
OnResult = Callable[[Call, str, Result], None]


class _Lost:
    """A request whose answer was lost; the node may still carry it out.

    :ivar work: what the call does, for people.
    :ivar since: when the node was asked in vain for the first time after its last answer.
    """

    __slots__ = ("since", "target", "token", "work")

    def __init__(self, work: str, target: _Target, token: str) -> None:
        self.work = work
        self.target = target
        self.token = token
        self.since: float | None = None


class Fanout(NamedTuple):
    """One call to several nodes.

    :ivar common: arguments for all nodes.
    :ivar per_node: key of a node -> arguments for this node, in addition to the common ones.
    """

    call: Call
    targets: list[_Target]
    common: Mapping[str, Any]
    filler: NodeFiller
    per_node: Mapping[str, Mapping[str, Any]] | None = None


@dataclass(slots=True)
class _Request:
    """A call to one node.

    :ivar lost: what is remembered in case that the answer is lost; None for a call without work.
    :ivar span: records the call in the trace of its job.
    :ivar result: None until there is an outcome.
    """

    call: Call
    target: _Target
    outgoing: http_client.OutgoingRequest
    lost: _Lost | None
    span: tracing.Span
    result: Result | None = None


class AddressRunner:
    """Calls nodes by their addresses.

    Every call carries a master epoch: the one in the files of this node, unless :meth:`use_epoch`
    has set another one.

    :param port: TCP port of the node daemons.
    """

    def __init__(
        self,
        client: Transport,
        port: int | None = None,
        *,
        sleep: Callable[[float], None] = time.sleep,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._sleep = sleep
        self._clock = clock
        self._client = client
        self._port = port if port is not None else machine.current().noded_port()
        self._epoch: master_epoch.Epoch | None = None
        self._on_newer: Callable[[str, str], None] = _ignore
        # The keys which nodes must show that are called by their addresses: address -> pin.
        self._expected: dict[str, str] = {}
        self._job: int | None = None
        self._tell: Callable[[str], None] = _log.warning
        #: Keys of the nodes which may still work for this runner although it has no call there: the
        #: answer was lost and the node does not say, or the work goes on after the answer.
        self.unsure: set[str] = set()
        # Names of nodes, and what each has ignored and a message has named.
        self._ignored: set[tuple[str, str]] = set()

    def use_epoch(
        self, epoch: master_epoch.Epoch, on_newer: Callable[[str, str], None] | None = None
    ) -> None:
        """Send this epoch with every call from now on.

        :param on_newer: called when a node refuses a call because it has promised a newer epoch,
            with the name of the node and that epoch.
        """
        self._epoch = epoch
        self._on_newer = on_newer or _ignore

    def trust_changed(self) -> None:
        """Use the new certificates of this node after they were replaced."""
        self._client.reset(paths.current().trust_file())

    def expect_keys(self, pins: Mapping[str, Sequence[str] | None]) -> None:
        """Believe the nodes at these addresses only if they show these keys.

        :param pins: IP address -> pins (:func:`ganeti.utils.x509.key_pin`); none for any key.
        """
        self._expected = {
            **self._expected,
            **{address: http_client.pin_text(keys or ()) for address, keys in pins.items()},
        }

    def call_addresses(
        self, call: Call, addresses: Mapping[str, str], **args: Any
    ) -> dict[str, Result]:
        """Call several nodes at the same time.

        :param addresses: node name -> IP address.
        :returns: node name -> result.
        """
        targets = [
            _Target(name, name, address, self._pin(address)) for name, address in addresses.items()
        ]
        return self._ask_all([Fanout(call, targets, args, self._filler())])[0]

    def first_contact(
        self, call: Call, addresses: Mapping[str, str], **args: Any
    ) -> dict[str, Result]:
        """Call several nodes whose keys are not known yet, and keep what each of them shows.

        :param addresses: node name -> IP address.
        :returns: node name -> result, with the certificate of the node.
        """
        targets = [_Target(name, name, address) for name, address in addresses.items()]
        return self._ask_all([Fanout(call, targets, args, self._filler())], show=True)[0]

    def _pin(self, address: str) -> str:
        """Return the pin of the node at an address."""
        return self._expected.get(address, "")

    def call_until(
        self,
        call: Call,
        addresses: Mapping[str, str],
        until: Callable[[Mapping[str, Result]], float | None],
        **args: Any,
    ) -> dict[str, Result]:
        """Call several nodes at the same time, and give up those whose answers are not needed.

        :param addresses: node name -> IP address.
        :param until: gets the results so far, and returns the time of the monotonic clock at which
            the other nodes are given up; None as long as all are waited for.
        :returns: node name -> result; a node which was given up is unreachable.
        """
        targets = [
            _Target(name, name, address, self._pin(address)) for name, address in addresses.items()
        ]
        found: dict[str, Result] = {}

        def note(_call: Call, name: str, result: Result) -> None:
            found[name] = result

        ask = Fanout(call, targets, args, self._filler())
        return self._ask_all([ask], note, lambda: until(found))[0]

    def _filler(self) -> NodeFiller:
        return WithoutConfig()

    def _ask_all(
        self,
        asks: Sequence[Fanout],
        on_result: OnResult | None = None,
        until: http_client.Until | None = None,
        *,
        show: bool = False,
    ) -> list[dict[str, Result]]:
        """Send all requests at the same time."""
        headers = self._headers()
        cut = machine.current().cut_addresses()
        # Calls which belong to no traced job, such as regular polls of the nodes, are not recorded.
        traced = bool(tracing.current())
        prepared = [list(self._prepare(ask, headers, traced, show)) for ask in asks]
        requests = [request for group in prepared for request in group]
        for ask in asks:
            _BEGUN.add(ask.call.name, amount=len(ask.targets))

        def judge(index: int, outcome: http_client.Outcome) -> Result:
            request = requests[index]
            result = request.result = self._judge(request.call, request.target, outcome)
            request.span.end("" if result.failure is None else str(result.failure))
            if on_result is not None:
                on_result(request.call, request.target.key, result)
            return result

        at_once = traced or on_result is not None
        outcomes = self._perform(
            [one.outgoing for one in requests], cut, judge if at_once else None, until
        )
        self._wait_until_over(
            [
                request.lost
                for request, outcome in zip(requests, outcomes, strict=True)
                if request.lost is not None
                and isinstance(outcome, http_client.Failure)
                and outcome.sent
            ]
        )
        results = iter(
            [
                judge(index, outcome) if request.result is None else request.result
                for index, (request, outcome) in enumerate(zip(requests, outcomes, strict=True))
            ]
        )
        return [{request.target.key: next(results) for request in group} for group in prepared]

    def _prepare(
        self, ask: Fanout, headers: tuple[str, ...], traced: bool, show: bool
    ) -> Iterator[_Request]:
        """Make the requests of a call; what is the same for all nodes is encoded once."""
        call, filler, per_node = ask.call, ask.filler, ask.per_node
        body, timeout_s = b"", 0.0
        for number, target in enumerate(ask.targets):
            filler.select_node(target.key)
            if per_node is not None or not number or filler.differs:
                args = {**ask.common, **(per_node.get(target.key, {}) if per_node else {})}
                body = json.dumps(call.encode_args(args, filler)).encode("ascii")
                timeout_s = call.time_limit_s(args)
            lost, named = None, headers
            span: tracing.Span = tracing.NOTHING
            if call.work:
                lost = _Lost(call.work, target, self._new_token())
                named = (*named, f"{http.WORK_HEADER}: {self._job or '-'} {lost.token}")
                if call.lasting:
                    self.unsure.add(target.key)
            if traced:
                span = _call_span(call, target)
                named = (*named, f"{tracing.HEADER}: {span.traceparent}")
            outgoing = http_client.OutgoingRequest(
                target.address,
                self._port,
                call.name,
                body,
                min(timeout_s, OFFLINE_TIMEOUT_S) if target.offline else timeout_s,
                named,
                call.keep and not show,
                call.connection_class,
                target.pin,
                show,
            )
            yield _Request(call, target, outgoing, lost, span)

    def _new_token(self) -> str:
        """Return a new name for a call: up to 64 hexadecimal digits."""
        return secrets.token_hex(8)

    def _headers(self) -> tuple[str, ...]:
        return (
            f"{http.EPOCH_HEADER}: {self._present_epoch()}",
            f"{http.RELEASE_HEADER}: {RELEASE}",
        )

    def _present_epoch(self) -> master_epoch.Epoch:
        """Return the epoch which calls carry now."""
        return master_epoch.read().epoch if self._epoch is None else self._epoch

    def _wait_until_over(self, lost: list[_Lost]) -> None:
        """Wait until nodes do not work any more on calls whose answers were lost.

        Otherwise the caller would undo what is still being done, or release its locks. A node which
        does not say for :data:`PATIENCE_S` whether it works is added to ``unsure``.
        """
        pause_s = _PAUSE_S
        for one in lost:
            self._tell(
                f"node {one.target.name}: the answer about the {one.work} was lost; waiting until"
                " the node does not work on it any more"
            )
        while lost := [one for one in lost if not self._is_over(one)]:
            self._sleep(pause_s)
            pause_s = min(pause_s * 2, _PAUSE_MAX_S)

    def _is_over(self, one: _Lost) -> bool:
        answer = self._ask_one(NODE_WORK, one.target, [[one.token]])
        if answer.failure is None:
            one.since = None
            works = [work for work in answer.data if work.token == one.token]
            for work in works:
                if work.transfer is not None:
                    # The caller did not learn its name, so nobody can use it.
                    self._ask_one(IMPEXP_CLEANUP, one.target, [work.transfer])
            return not works
        if isinstance(answer.failure, errors.NodeRefused) and not isinstance(
            answer.failure, errors.NodeKeyMismatch
        ):
            # It obeys another master, or is of a version without records.
            return True
        now = self._clock()
        one.since = now if one.since is None else one.since
        if now - one.since < PATIENCE_S:
            return False
        self._tell(
            f"node {one.target.name} does not say whether it still works on the {one.work}:"
            f" {answer.failure}"
        )
        self.unsure.add(one.target.key)
        return True

    def _ask_one(self, call: Call, target: _Target, body: list[Any]) -> Result:
        request = http_client.OutgoingRequest(
            target.address,
            self._port,
            call.name,
            json.dumps(body).encode("ascii"),
            call.time_limit_s({}),
            self._headers(),
            call.keep,
            call.connection_class,
            target.pin,
        )
        _BEGUN.add(call.name)
        outcomes = self._perform([request], machine.current().cut_addresses(), None)
        return self._judge(call, target, outcomes[0])

    def _judge(self, call: Call, target: _Target, outcome: http_client.Outcome) -> Result:
        result = from_outcome(call, target.name, outcome)
        _CALLS.add(call.name, _outcome_of(result))
        if result.failure is not None:
            _log.log(
                logging.DEBUG if call.probe else logging.WARNING,
                "%s (call %s)",
                result.failure,
                call.name,
            )
            known = getattr(result.failure, "known_epoch", "")
            if known and not call.any_epoch:
                self._on_newer(target.name, known)
        elif result.ignored:
            self._tell_ignored(result)
        return result

    def _tell_ignored(self, result: Result) -> None:
        """Say what a node of another release has ignored; once for each node and name."""
        names = [name for name in result.ignored if (result.node_name, name) not in self._ignored]
        self._ignored.update((result.node_name, name) for name in names)
        if names:
            self._tell(
                f"node {result.node_name} has release {result.release} and ignores what it does"
                f" not know: {', '.join(names)}"
            )

    def _perform(
        self,
        requests: list[http_client.OutgoingRequest],
        cut: Collection[str],
        on_outcome: http_client.OnOutcome | None,
        until: http_client.Until | None = None,
    ) -> list[http_client.Outcome]:
        """Send requests; in a virtual cluster, some addresses may be cut off."""
        limit: dict[str, Any] = {} if until is None else {"until": until}
        if not cut:
            if on_outcome is None:
                return self._client.perform(requests, **limit)
            return self._client.perform(requests, on_outcome, **limit)
        outcomes: list[http_client.Outcome] = [
            http_client.Failure(http_client.UNREACHABLE, "the virtual network is cut")
        ] * len(requests)
        reached = [index for index, one in enumerate(requests) if one.address not in cut]
        answers = self._client.perform(
            [requests[index] for index in reached],
            None if on_outcome is None else lambda place, one: on_outcome(reached[place], one),
            **limit,
        )
        for index, outcome in zip(reached, answers, strict=True):
            outcomes[index] = outcome
        return outcomes


def _call_span(call: Call, target: _Target) -> tracing.Span:
    return tracing.begin(
        f"node call {call.name}",
        tracing.CLIENT,
        rpc_method=call.name,
        server_address=target.name,
    )


class Impatience:
    """Decides when the slowest nodes of a fan-out are given up, whose answers are not essential.

    When three of four nodes have answered, the others have as much time as these took, three times,
    and at least :data:`IMPATIENT_S` in all. So a list does not wait for a minute because a node
    hangs, and no node is given up for being somewhat slower than the others.

    :param asked: number of nodes.
    :param clock: seconds.
    """

    def __init__(self, asked: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._needed = asked - asked // 4
        self._answered = 0
        self._clock = clock
        self._begun = clock()
        self._limit: float | None = None

    def note(self, _call: Call, _node_uuid: str, _result: Result) -> None:
        """Note that a node has answered, or failed."""
        self._answered += 1
        if self._limit is None and self._answered >= self._needed:
            took_s = self._clock() - self._begun
            self._limit = self._begun + max(IMPATIENT_S, 3 * took_s)

    def __call__(self) -> float | None:
        """Return the time at which the others are given up; None while that is not decided."""
        return self._limit


def _outcome_of(result: Result) -> str:
    if result.failure is None:
        return "answered"
    if isinstance(result.failure, errors.NodeRefused):
        return "refused"
    return "unreachable" if isinstance(result.failure, errors.NodeUnreachable) else "failed"


class RpcRunner(AddressRunner):
    """Calls nodes of the configuration.

    :param config_snapshot: returns the present configuration.
    """

    def __init__(
        self,
        config_snapshot: Callable[[], ConfigData],
        client: Transport,
        port: int | None = None,
        **waiting: Any,
    ) -> None:
        super().__init__(client, port, **waiting)
        self._snapshot = config_snapshot

    def for_job(self, job_id: int | None, feedback: Callable[[str], None]) -> RpcRunner:
        """Return a runner for the calls of one job: nodes know for which job they work.

        :param feedback: adds a line to the log of the job.
        """
        other = copy.copy(self)
        other._job = job_id
        other._tell = feedback
        other.unsure = set()
        other._ignored = set()
        other._expected = {}
        return other

    def call(self, call: Call, node_uuid: str, **args: Any) -> Result:
        """Call one node."""
        return self.call_many(call, (node_uuid,), **args)[node_uuid]

    def call_many(
        self,
        call: Call,
        node_uuids: Iterable[str],
        *,
        per_node: Mapping[str, Mapping[str, Any]] | None = None,
        even_offline: bool = False,
        patient: bool = True,
        **args: Any,
    ) -> dict[str, Result]:
        """Call several nodes at the same time.

        :param patient: wait for all nodes, up to the time limit of the call; otherwise give up the
            few which are much slower than the others, see :class:`Impatience`.
        :param per_node: node UUID -> arguments for this node, in addition to the common ones.
        :param even_offline: call nodes which are marked as offline, too. They have at most
            :data:`OFFLINE_TIMEOUT_S`.
        :returns: node UUID -> result, in the order of the nodes.
        :raises ProgrammerError: the arguments are not those of the call.
        """
        config = self._snapshot()
        results, targets = self._targets(config, call, node_uuids, even_offline)
        asks = [Fanout(call, targets, args, FromConfig(config), per_node)]
        if patient or len(targets) < IMPATIENT_FROM:
            answers = self._ask_all(asks)
        else:
            impatience = Impatience(len(targets))
            answers = self._ask_all(asks, impatience.note, impatience)
        results.update(answers[0])
        return results

    def call_together(
        self,
        questions: Iterable[Question],
        on_result: OnResult | None = None,
    ) -> list[dict[str, Result]]:
        """Make several different calls at the same time; this takes as long as the slowest.

        :param on_result: called with a call, the UUID of a node and its result as soon as the node
            has answered; not for nodes which are not called.
        :returns: the result of :meth:`call_many` for each question.
        """
        config = self._snapshot()
        found: list[dict[str, Result]] = []
        asks: list[Fanout] = []
        for call, node_uuids, args, even_offline in questions:
            results, targets = self._targets(config, call, node_uuids, even_offline)
            found.append(results)
            asks.append(Fanout(call, targets, args, FromConfig(config)))
        for results, answers in zip(found, self._ask_all(asks, on_result), strict=True):
            results.update(answers)
        return found

    def show_keys(self, node_uuids: Iterable[str]) -> dict[str, Result]:
        """Ask several nodes for their version, with a full handshake.

        :returns: node UUID -> result, with the certificate of the node.
        """
        config = self._snapshot()
        results, targets = self._targets(config, VERSION, node_uuids)
        ask = Fanout(VERSION, targets, {}, FromConfig(config))
        results.update(self._ask_all([ask], show=True)[0])
        return results

    @staticmethod
    def _targets(
        config: ConfigData, call: Call, node_uuids: Iterable[str], even_offline: bool = False
    ) -> tuple[dict[str, Result], list[_Target]]:
        """Return a result for each node (a failure for uncalled ones), and the nodes to call."""
        results: dict[str, Result] = {}
        targets = []
        for uuid in dict.fromkeys(node_uuids):
            node = config.nodes.get(uuid)
            if node is None:
                results[uuid] = Result(
                    uuid,
                    failure=errors.NodeUnreachable(
                        uuid, call.name, "it is not in the configuration"
                    ),
                )
            elif node.offline and not (call.offline_ok or even_offline):
                results[uuid] = Result(node.name, failure=errors.NodeOffline(node.name, call.name))
            else:
                probed = node.offline and even_offline
                pin = http_client.pin_text(node.key_pins or ())
                targets.append(_Target(uuid, node.name, node.primary_ip, pin, offline=probed))
                results[uuid] = Result(node.name)
        return results, targets

    def _filler(self) -> NodeFiller:
        return FromConfig(self._snapshot())

    def _pin(self, address: str) -> str:
        if address in self._expected:
            return self._expected[address]
        for node in self._snapshot().nodes.values():
            if node.primary_ip == address:
                return http_client.pin_text(node.key_pins or ())
        return ""


def open_client(here: paths.Paths | None = None) -> http_client.Client:
    """Return a client with the certificate of this node.

    It is in ``client.pem``, or in ``server.pem`` while the former does not exist.

    :raises ConfigurationError: this node has no certificate of the cluster.
    """
    here = here or paths.current()
    if not os.path.exists(here.noded_cert_file):
        raise errors.ConfigurationError(
            f"this node belongs to no cluster: {here.noded_cert_file} is missing"
        )
    own = here.noded_client_cert_file
    return http_client.Client(
        here.trust_file(), own if os.path.exists(own) else here.noded_cert_file
    )
