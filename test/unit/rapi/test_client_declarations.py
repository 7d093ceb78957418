"""The client against the declarations of the resources: each function has a resource, each resource
a function, and what a function sends is what the resource declares. Its constants are those of the
server.

Each function is called once with its required parameters, and once more for each further one, which
must change the request.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

from ganeti import errors
from ganeti.constants import cluster as cluster_const
from ganeti.constants import disk, job, node
from ganeti.platform import hosts
from ganeti.rapi import client, declare
from ganeti.rapi.client import constants
from ganeti.rapi.declare import BODY_COMMON, Resource
from ganeti.rapi.resources import RESOURCES, cluster, nodes

NO_REQUEST = {
    "InstanceAllocation": "makes an argument of InstancesMultiAlloc",
    "Plan": "asks for the plan of another function",
    "GetAll": "asks for one page after the other with GetPage",
    "WaitForJobCompletion": "asks again and again with GetJobStatus",
}
NO_FUNCTION = {
    ("GET", "/"): "the published client has none; for people",
    ("GET", "/2"): "the published client has none; for people",
    ("GET", "/2/doc"): "for people",
    ("GET", "/2/openapi.json"): "for programs which make their own client",
    **dict.fromkeys(
        (
            ("GET", "/2/documents"),
            ("GET", "/2/documents/{document_name}"),
            ("PUT", "/2/documents/{document_name}"),
            ("DELETE", "/2/documents/{document_name}"),
        ),
        "needs the headers of conditional requests, which the client does not send",
    ),
    ("POST", "/2/login"): "for browsers; the client sends a password or a token",
    ("POST", "/2/logout"): "for browsers",
    ("GET", "/2/login/oidc"): "for browsers",
    ("GET", "/2/login/oidc/callback"): "for browsers",
    ("GET", "/2/login/oidc/logout"): "for browsers",
    **dict.fromkeys(
        (
            ("POST", "/2/login/passkey"),
            ("POST", "/2/login/passkey/challenge"),
            ("GET", "/2/totp"),
            ("POST", "/2/totp"),
            ("PUT", "/2/totp"),
            ("GET", "/2/passkeys"),
            ("POST", "/2/passkeys"),
            ("POST", "/2/passkeys/challenge"),
            ("DELETE", "/2/passkeys/{passkey_id}"),
        ),
        "for persons with a browser or an app; programs have tokens",
    ),
    ("DELETE", "/2/instances/{instance_name}/export"): "the published client has none",
    ("GET", "/2/events"): "has no end; the client waits with WaitForJobChange",
    ("GET", "/2/query/{resource}"): "the client sends the filter in a body, with PUT",
}
#: Query arguments and members of bodies which a function needs no parameter for.
ALWAYS = {
    "lock": "is accepted and ignored",
    "plan": "Plan adds it to the request of any function",
    "reason": "the client sends it with every request, also where no job records it",
    **dict.fromkeys(BODY_COMMON, "the published functions have no parameter for it"),
}
#: Parameters which do not reach the request.
NOT_SENT = {
    ("EvacuateNode", "accept_old"): "says whether an old server will do",
}
#: Functions which take ``dry_run`` among their other parameters.
DRY_RUN_AMONG_OTHERS = {"CreateInstance", "InstancesMultiAlloc"}
#: What functions send without a declaration, and why.
UNDECLARED = {
    ("CancelJob", "dry-run"): "a published parameter; the resource has no dry run",
    ("CreateNetwork", "network_name"): "the name of the opcode's parameter is accepted, too",
}
#: Function -> what its resource takes and it does not send. The published signatures have no
#: parameter for these, and a client of another version has to accept the same calls. A new member
#: of a body belongs in the function, or here.
MISSING: dict[str, str] = {
    # The server accepts a dry run with every job; the published functions of these do not.
    **dict.fromkeys(
        (
            "ActivateInstanceDisks",
            "DeactivateInstanceDisks",
            "ModifyCluster",
            "ModifyGroup",
            "ModifyInstance",
            "ModifyNetwork",
            "ModifyNode",
            "ModifyNodeStorageUnits",
            "PrepareExport",
            "RedistributeConfig",
            "RenameGroup",
            "RenameNetwork",
            "RepairNodeStorageUnits",
            "SetNodeRole",
        ),
        "dry-run",
    ),
    # One of the two ways in which a request submits jobs.
    "SubmitJob": "jobs",
    "SubmitManyJobs": "ops",
    "AssignGroupNodes": "node_uuids",
    "ConnectNetwork": "conflicts_check more_groups",
    "CreateGroup": "disk_state diskparams enabled_hypervisors hv_state ipolicy ndparams",
    "CreateNetwork": "add_reserved_ips6 conflicts_check name",
    "DeleteNetwork": "force",
    "DisconnectNetwork": "more_groups",
    "EndNodeMaintenance": "node_uuid",
    "EvacuateNode": "ignore_soft_errors node_uuid remote_node_uuid",
    "ExportInstance": (
        "dry-run ignore_remove_failures instance_uuid long_sleep shutdown_timeout"
        " target_node_uuid zero_free_space zeroing_timeout_fixed zeroing_timeout_per_mib"
    ),
    "FailoverInstance": (
        "cleanup dry-run ignore_ipolicy instance_uuid new_secondary shutdown_timeout"
        " target_node_uuid wait_for_sync"
    ),
    "GetInstanceInfo": "job",
    "GetInstanceSnapshots": "job",
    "GetOperatingSystems": "bulk",
    "GrowInstanceDisk": "absolute dry-run ignore_ipolicy instance_uuid",
    "MigrateInstance": (
        "allow_failover allow_runtime_changes dry-run iallocator ignore_hvversions"
        " ignore_ipolicy instance_uuid live target_node_uuid"
    ),
    "MigrateNode": "allow_runtime_changes ignore_ipolicy live node_uuid target_node_uuid",
    "PowercycleNode": "dry-run node_uuid",
    **dict.fromkeys(
        ("GetGroups", "GetInstances", "GetJobs", "GetNetworks", "GetNodes"),
        "after fields filter limit offset sort",  # of GetPage
    ),
    "GetPage": "bulk",
    # The others are given by their names.
    "ExplainPlacement": "ignore-soft-errors no-capacity-checks",
    "Query": "after filter limit offset sort",  # of QueryPage
    "QueryPage": "filter names",
    "RecreateInstanceDisks": "dry-run instance_uuid node_uuids",
    "ReinstallInstance": "dry-run nostartup",
    "RenameInstance": "dry-run instance_uuid",
    "ReplaceInstanceDisks": "dry-run ignore_ipolicy instance_uuid remote_node_uuid",
    "SnapshotInstance": "instance_uuid",
    "StartNodeMaintenance": "node_uuid remote_node_uuid",
    "StartupInstance": "force",
}
#: Kind of a parameter, by its annotation -> a value which is not its default.
VALUES: tuple[tuple[str, Any], ...] = (
    ("bool", True),
    ("Sequence", ["x"]),
    ("Iterable", ["x"]),
    ("list[", ["x"]),
    ("Mapping", {"x": 1}),
    ("int", 7),
    ("", "x"),
)


class Request(NamedTuple):
    """A request: its method, path, query and body."""

    method: str
    path: str
    query: Any
    body: Any

    def names(self) -> set[str]:
        """Return the names of the arguments and of the members of the body."""
        members = self.body if isinstance(self.body, dict) else {}
        return {name for name, _ in self.query or ()} | set(members)


class Answer(dict[str, Any]):
    """An answer which each function can convert."""

    def __int__(self) -> int:
        return 1

    def __missing__(self, name: str) -> list[Any]:
        return []


class Recorder(client.GanetiRapiClient):
    """A client which keeps the last request instead of sending it."""

    last: Request

    def _SendRequest(
        self, method: str, path: str, query: Any, content: Any, headers: Any = None
    ) -> Any:
        self.last = Request(method, path, query, content)
        if path.endswith("/features"):
            return [
                client.INST_CREATE_REQV1, client.INST_REINSTALL_REQV1, client.NODE_EVAC_RES1,
                client.NODE_MIGRATE_REQV1,
            ]  # fmt: skip
        return Answer()


def _functions() -> dict[str, Callable[..., Any]]:
    return {
        name: function
        for name, function in inspect.getmembers(client.GanetiRapiClient, callable)
        if not name.startswith("_") and name not in NO_REQUEST
    }


FUNCTIONS = _functions()


def _value(parameter: inspect.Parameter) -> Any:
    if parameter.name == "kind":
        return "instances"
    value = next(value for kind, value in VALUES if kind in str(parameter.annotation))
    return not parameter.default if value is True and parameter.default is not None else value


def _sent(function: str, /, **values: Any) -> Request:
    recorder = Recorder("cluster.example.com")
    getattr(recorder, function)(**values)
    return recorder.last


def _parameters(name: str) -> tuple[dict[str, Any], dict[str, Any], bool]:
    """Return values of the required and of the other parameters, and if the function has more."""
    required, others, more = {}, {}, False
    for parameter in list(inspect.signature(FUNCTIONS[name]).parameters.values())[1:]:
        if parameter.kind is inspect.Parameter.VAR_KEYWORD:
            more = True
        elif parameter.default is inspect.Parameter.empty:
            required[parameter.name] = _value(parameter)
        else:
            others[parameter.name] = _value(parameter)
    return required, others, more


def _resource(path: str) -> Resource:
    def fits(resource: Resource) -> bool:
        return re.fullmatch(re.sub(r"\{\w+\}", "[^/]+", resource.path), path) is not None

    # A path without names in braces comes first.
    return min(filter(fits, RESOURCES), key=lambda one: len(one.names()))


def _declared(resource: Resource, method: str) -> set[str]:
    arguments = {query.name for query in declare.arguments(resource.operations[method])}
    return arguments | set(resource.body_fields(method))


def _reachable(name: str) -> tuple[Resource, str, set[str]]:
    """Return the resource and the method of a function, and all names which it can send."""
    required, others, more = _parameters(name)
    request = _sent(name, **required)
    resource = _resource(request.path)
    found = request.names()
    for other, value in others.items():
        if (name, other) in NOT_SENT:
            continue
        changed = _sent(name, **required, **{other: value})
        assert changed != request, f"{name}: {other} changes nothing"
        found |= changed.names()
    if more:
        # A function which only reads takes arguments of the query.
        reads = request.method == declare.GET
        fields = _declared(resource, "GET") if reads else resource.body_fields(request.method)
        for field in set(fields) - required.keys() - found - (ALWAYS.keys() if reads else set()):
            changed = _sent(name, **required, **{field: "x"})
            sent = dict(changed.query) if reads else changed.body
            assert sent[field] == "x", f"{name}: {field} is not sent"
            found |= changed.names()
    if name in DRY_RUN_AMONG_OTHERS:
        found |= _sent(name, **required, dry_run=True).names()
    return resource, request.method, found


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_function_sends_what_its_resource_declares(name: str) -> None:
    resource, method, sent = _reachable(name)
    assert method in resource.operations
    declared = _declared(resource, method)
    undeclared = {(name, word) for word in sent - declared - ALWAYS.keys()}
    assert undeclared == {one for one in UNDECLARED if one[0] == name}
    assert declared - sent - ALWAYS.keys() == set(MISSING.get(name, "").split())


def test_every_resource_has_a_function() -> None:
    reached = {(method, resource.path) for resource, method, _ in map(_reachable, FUNCTIONS)}
    declared = {(method, one.path) for one in RESOURCES for method in one.operations}
    assert declared - reached == NO_FUNCTION.keys()


def test_the_lists_of_exceptions_name_functions() -> None:
    named = {*MISSING, *DRY_RUN_AMONG_OTHERS, *(name for name, _ in (*UNDECLARED, *NOT_SENT))}
    assert named <= FUNCTIONS.keys()
    assert not NO_REQUEST.keys() & FUNCTIONS.keys()
    for name in NO_REQUEST:
        assert callable(getattr(client.GanetiRapiClient, name))


def _constants(prefix: str) -> dict[str, Any]:
    """Return the texts among the constants of the client, by name."""
    return {
        name: value
        for name, value in vars(constants).items()
        if name.startswith(prefix) and isinstance(value, str)
    }


#: Beginning of the names of constants of the client -> the values which the server knows.
KNOWN_VALUES = {
    "ECODE_": errors.ECODE_ALL,
    "JOB_STATUS_": frozenset(job.STATUSES),
    "NODE_EVAC_": frozenset((*node.EVAC_MODES, client.NODE_EVAC_RES1)),
    "NODE_ROLE_": frozenset(nodes.ROLES.values()),
    "REPLACE_DISK_": frozenset(disk.REPLACE_MODES),
}


@pytest.mark.parametrize(("prefix", "known"), KNOWN_VALUES.items())
def test_the_client_has_a_constant_for_each_value(prefix: str, known: frozenset[str]) -> None:
    assert frozenset(_constants(prefix).values()) == known


def test_the_constants_have_the_values_of_the_server() -> None:
    for name, value in _constants("ECODE_").items():
        assert value == getattr(errors, name)
    assert constants.ECODE_ALL == errors.ECODE_ALL
    assert constants.JOB_STATUS_ALL == frozenset(job.STATUSES)
    assert constants.JOB_STATUS_PENDING == job.PENDING
    assert constants.JOB_STATUS_FINALIZED == job.FINALIZED
    assert constants.GANETI_RAPI_PORT == hosts.RAPI_PORT
    assert constants.GANETI_RAPI_VERSION == cluster_const.RAPI_VERSION
    features = {
        value for name, value in vars(constants).items() if name.endswith(("_REQV1", "_RES1"))
    }
    assert features == set(cluster.FEATURES)
