"""The table of requests: each is served, and has a proxy with the same signature."""

from __future__ import annotations

import dataclasses
import inspect
from typing import Any

import pytest

from fakes.config import instance_of
from ganeti import errors
from ganeti.config.history import Author
from ganeti.config.sending import DistributionFailure
from ganeti.jobexec import messages, methods
from ganeti.jobexec.methods import (
    METHODS,
    OPERATIONS,
    SERVICES,
    Acquired,
    Ask,
    Held,
    Method,
    Wanted,
)
from ganeti.jobexec.requests import Requests
from ganeti.jqueue.queue import JobQueue
from ganeti.locking import EXCLUSIVE, SHARED, Level, LockId
from ganeti.master.orphaned_work import OrphanedWorkLocks
from ganeti.master.queries import QueryService
from ganeti.master.witness import MasterWitness
from ganeti.opcodes.test import OpTestDelay
from ganeti.rpc import RpcRunner
from ganeti.wire import json

from .wire_lab import Job, Master

REQUESTS = {str(method): method for methods in METHODS.values() for method in methods.values()}
#: The classes of objects which the laboratory does not have.
ELSEWHERE = {
    "calls": RpcRunner,
    "queries": QueryService,
    "files": JobQueue,
    "orphaned_work": OrphanedWorkLocks,
    "witness": MasterWitness,
}


def served_by(requests: Requests, method: Method) -> Any:
    """Return the method which the master daemon calls, without its first parameter."""
    owner: Any = OPERATIONS.get(method.service) or ELSEWHERE.get(method.service)
    return getattr(owner or getattr(requests.services, method.service), method.name)


def services_of(ask: Ask) -> dict[str, Any]:
    """Return all services which a process has, in and outside of a transaction."""
    outside = methods.proxies(ask)
    names = {field.name for field in dataclasses.fields(outside)}
    return {name: getattr(outside, name) for name in names} | methods.operations(ask)


@pytest.mark.parametrize("request_", REQUESTS.values(), ids=str)
def test_every_request_is_served(master: Master, job: Job, request_: Method) -> None:
    found = served_by(job.link.requests, request_)
    signature = inspect.signature(found)
    if inspect.isfunction(found):
        parameters = list(signature.parameters.values())[1:]
        signature = signature.replace(parameters=parameters)
    required = [
        one for one in request_.signature.parameters.values() if one.kind is one.KEYWORD_ONLY
    ]
    placed = [one for one in request_.signature.parameters.values() if one not in required]
    signature.bind(*placed, **{one.name: None for one in required})


@pytest.mark.parametrize("service", SERVICES)
def test_every_request_has_a_proxy_with_its_signature(service: str) -> None:
    sent: list[tuple[str, list[Any]]] = []
    proxy = services_of(lambda name, args: sent.append((name, args)))[service]
    public = {name for name in dir(proxy) if not name.startswith("_")}
    assert public == METHODS[service].keys()
    for name, method in METHODS[service].items():
        assert inspect.signature(getattr(proxy, name)) == method.signature


def test_the_operations_of_a_transaction_are_requests(master: Master) -> None:
    """It has a field for each kind of object, and no operation of its own."""
    with master.config.transaction() as change:
        fields = {name: type(value) for name, value in vars(change).items() if name[0] != "_"}
    assert fields == OPERATIONS
    assert "update" in METHODS["instances"]


@pytest.mark.parametrize(
    "name", ["locks.steal", "locks", "instances.finish", "change.data", "locks._held", "x.y", ""]
)
def test_an_unknown_request_is_refused(master: Master, job: Job, name: str) -> None:
    with pytest.raises(errors.ProgrammerError, match="a job cannot ask for"):
        job.link.ask(name, [])
    # The connection is as before.
    assert job.locks.keys(Level.INSTANCE) == {"a", "b", "c"}


def test_what_the_master_daemon_does_not_have_is_refused(master: Master, job: Job) -> None:
    with pytest.raises(errors.ProgrammerError, match=r"witness\.poll is not possible here"):
        job.link.ask("witness.poll", [False])
    with pytest.raises(errors.ProgrammerError, match=r"ports\.allocate is not possible here"):
        job.link.ask("ports.allocate", [])
    with pytest.raises(errors.ProgrammerError, match="does not have a transaction"):
        job.link.ask("transaction.commit", [1])


def test_a_transaction_lets_nothing_wait(master: Master, job: Job) -> None:
    """The store of the configuration is locked meanwhile."""
    with job.config.transaction() as change:
        with pytest.raises(errors.ProgrammerError, match="inside a transaction"):
            job.locks.keys(Level.INSTANCE)
        with pytest.raises(errors.ProgrammerError, match="inside another one"):
            job.link.ask("transaction.begin", [list(Author())])
        port = change.ports.allocate()
    assert master.config.cluster().highest_used_port == port


def test_defaults_and_names_of_arguments_are_those_of_the_declaration() -> None:
    update = METHODS["instances"]["update"]
    packed = messages.pack(instance_of("web"))
    assert update.encode([instance_of("web")], {}) == [packed, None]
    assert update.encode([], {"ec_id": "x", "instance": instance_of("web")}) == [packed, "x"]
    with pytest.raises(TypeError):
        update.encode([], {"instance": instance_of("web"), "uuid": "x"})
    hand_over = METHODS["orphaned_work"]["hand_over"]
    assert hand_over.encode([7, {"node1"}, ["web"]], {}) == [7, ["node1"], ["web"], []]


class Target:
    """Has requests whose values JSON cannot express."""

    def __init__(self) -> None:
        self.got: list[Any] = []

    def __getattr__(self, name: str) -> Any:
        def method(*args: Any, **named: Any) -> Any:
            self.got.append((args, named))
            return RESULTS[name][1]

        return method


HELD: Held = {LockId(Level.NODE, None): SHARED, LockId(Level.INSTANCE, "web"): EXCLUSIVE}
#: Request -> its arguments, as the master daemon gets them, and its result, as the process gets it.
RESULTS: dict[str, tuple[list[Any], Any]] = {
    "acquire": ([Wanted(Level.NODE, ["node1"], True)], Acquired(frozenset({"node1"}), HELD)),
    "poll": ([], "nobody answers"),
    "keys": ([Level.NODE], frozenset({"node1"})),
    "first_free": (["ip", [("net", "10.0.0.1"), ("net", "10.0.0.2")], "x"], ("net", "10.0.0.2")),
    "next_free": (["lv", ["a", ("n", 1)], 2], ["a", ("n", 1)]),
    "taken": (["lv"], frozenset({"xenvg/a", ("node1", 3)})),
    "lagging": ([], {"node1": frozenset({"ssconf"})}),
    "redistribute": ([], [DistributionFailure("node1", "ssconf", "full")]),
    "lost_jobs": ([], {7: "damaged"}),
    "left": ([], [("node1", "copies a disk")]),
    "complete_log": ([[("message", "one"), ("delay", [1])]], None),
    "submit_jobs": ([[[OpTestDelay(duration=1.0)]]], [[True, 8]]),
    "begin": ([Author(7, "OP_X", "gnt:client", "why")], methods.Begun(12, 1.5)),
}
NAMED = {"poll": {"touch": True}}


@pytest.mark.parametrize("name", RESULTS)
def test_values_keep_their_types(name: str) -> None:
    (method,) = (one for one in REQUESTS.values() if one.name == name)
    target = Target()

    def ask(request: str, args: list[Any]) -> Any:
        assert methods.find(request) is method
        return json.loads(json.dumps(method.call(target, json.loads(json.dumps(args)))))

    args, result = RESULTS[name]
    proxy = services_of(ask)[method.service]
    found = getattr(proxy, name)(*args, **NAMED.get(name, {}))
    assert target.got == [(tuple(args), NAMED.get(name, {}))]
    assert found == result and type(found) is type(result)
