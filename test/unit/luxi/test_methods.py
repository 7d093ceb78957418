"""The table of methods, against the functions of the client and the calls by name."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from ganeti import errors, ht
from ganeti.luxi import methods
from ganeti.luxi.client import Client
from ganeti.luxi.methods import Arg, Method

LIB = Path(__file__).resolve().parents[3] / "lib" / "ganeti"

#: A value for each parameter of the client, all of them different.
SAMPLES: dict[str, Any] = {
    "action": "ACCEPT",
    "age_s": 5,
    "changes": [["remove", "session", "ab12"]],
    "content": "lines",
    "drained": False,
    "drained_ok": True,
    "fields": ["name"],
    "first": 11,
    "instance_name": "web1",
    "job_id": 17,
    "job_ids": [17, 18],
    "jobs": [[{"OP_ID": "OP_TEST_DELAY"}]],
    "kinds": ["node", "log"],
    "kill": True,
    "kind": "node",
    "last": 12,
    "limit": 13,
    "lines": 14,
    "name": "node1",
    "names": ["node2"],
    "nodes": ["node3"],
    "op": {"OP_ID": "OP_INSTANCE_SNAPSHOT_LIST"},
    "ops": [{"OP_ID": "OP_TEST_DELAY"}],
    "page": {"limit": 21},
    "place": ["epoch", 1],
    "point": 15,
    "position": "after",
    "predicates": [["jobid", [">", "id", 9]]],
    "prev_info": ["running"],
    "prev_log_serial": 16,
    "priority": 19,
    "qfilter": ["==", "name", "node4"],
    "reason": [["user", "why", 20]],
    "since": 21,
    "tags": ["tag"],
    "timeout_s": 7,
    "until": 1e9,
    "use_locking": True,
    "uuid": "4d0a3b2c",
    "uuids": ["4d0a3b2d"],
    "what": "instance",
}
#: Parameters of the client which have a unit or another word than the argument.
SPELLED = {
    "age_s": ("age",),
    "content": ("text",),
    "drained": ("flag",),
    "instance_name": ("instance",),
    "job_id": ("job",),
    "job_ids": ("ids", "job"),
    "prev_info": ("prev_job_info",),
    "timeout_s": ("timeout",),
}
#: Methods which only the REST daemon uses; it calls them by their names.
REST_ONLY = {"FindAuditLines", "FindCommits", "QueryFindings", "QueryObjectsAt", "QueryQueue"}
#: Parameters which choose the method, and are sent to nobody.
CHOOSES = {"drained_ok"}


class Sent(Exception):
    """A request was made."""

    def __init__(self, method: str, args: tuple[Any, ...]) -> None:
        self.method = methods.TABLE[method]
        self.given: list[Any] = list(args)


class _Recorder(Client):
    def call(self, method: str, *args: Any) -> Any:
        raise Sent(method, args)


def _functions() -> Iterator[tuple[str, Callable[..., Any]]]:
    """Return the functions of the client which send a request."""
    transport = {"call", "close", "pipeline"}
    for name, function in inspect.getmembers(Client, inspect.isfunction):
        if not name.startswith("_") and name not in transport:
            yield name, function


def _sent(function: Callable[..., Any], values: dict[str, Any]) -> Sent:
    with pytest.raises(Sent) as sent:
        function(_Recorder("/nowhere"), **values)
    return sent.value


@pytest.mark.parametrize(("name", "function"), _functions())
def test_a_function_of_the_client_sends_the_arguments_of_the_table(
    name: str, function: Callable[..., Any]
) -> None:
    parameters = [
        parameter
        for parameter in inspect.signature(function).parameters.values()
        if parameter.name != "self" and parameter.name not in CHOOSES
    ]
    sent = _sent(function, {parameter.name: SAMPLES[parameter.name] for parameter in parameters})
    assert sent.method.check_args(sent.given) == sent.given
    if name == "explain_queue":
        assert sent.given == [None]
        return
    assert len(parameters) == len(sent.method.args) == len(sent.given)
    for parameter, arg, value in zip(parameters, sent.method.args, sent.given, strict=True):
        assert arg.name in SPELLED.get(parameter.name, (parameter.name,))
        assert value == SAMPLES[parameter.name], parameter.name
        if not arg.required:
            assert parameter.default == arg.default, parameter.name


@pytest.mark.parametrize(("name", "function"), _functions())
def test_the_defaults_of_the_client_are_good_arguments(
    name: str, function: Callable[..., Any]
) -> None:
    needed = {
        parameter.name: SAMPLES[parameter.name]
        for parameter in inspect.signature(function).parameters.values()
        if parameter.name != "self" and parameter.default is parameter.empty
    }
    sent = _sent(function, needed)
    assert sent.method.check_args(sent.given) == sent.given


def test_the_client_has_a_function_for_every_method() -> None:
    sent = {
        _sent(
            function,
            {
                name: SAMPLES[name]
                for name in inspect.signature(function).parameters
                if name != "self" and (chosen or name not in CHOOSES)
            },
        ).method.name
        for _name, function in _functions()
        for chosen in (False, True)
    }
    # The master refuses the last one.
    assert sent == methods.TABLE.keys() - REST_ONLY - {"PickupJob"}


def _calls_by_name() -> Iterator[tuple[str, str, int]]:
    """Return file, method and number of arguments of each request which names its method."""
    for path in sorted(LIB.rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        for node in ast.walk(ast.parse(text)) if ".call(" in text else ():
            if (
                isinstance(node, ast.Call)
                and isinstance(node.func, ast.Attribute)
                and node.func.attr == "call"
                and node.args
                and isinstance(node.args[0], ast.Constant)
                and isinstance(node.args[0].value, str)
                and node.args[0].value[0].isupper()
                # A function which passes on what it gets has no number of arguments.
                and not any(isinstance(one, ast.Starred) for one in node.args)
            ):
                yield str(path.relative_to(LIB)), node.args[0].value, len(node.args) - 1


def test_requests_which_name_their_method() -> None:
    found = list(_calls_by_name())
    assert len(found) > 40
    for path, name, count in found:
        method = methods.TABLE[name]
        assert method.required <= count <= len(method.args), (path, name)


def test_arguments_are_checked() -> None:
    method = Method("Try", "Tries", (Arg("first", ht.Int), Arg("second", ht.Bool, default=False)))
    assert method.check_args([1]) == [1, False]
    assert method.check_args([1, True]) == [1, True]
    with pytest.raises(errors.ParseError, match=r"Try takes 2 arguments \(first, second\), not 0"):
        method.check_args([])
    with pytest.raises(errors.ParseError, match="not 3"):
        method.check_args([1, True, None])
    with pytest.raises(errors.ParseError, match="argument 'second' must be true or false, not 2"):
        method.check_args([1, 2])
    assert Method("Nothing", "Does nothing").check_args([1, 2]) == []


def test_lists_of_names_have_a_largest_size() -> None:
    for method, others in (
        (methods.QUERY_NODES, [["name"], False]),
        (methods.QUERY_EXPORTS, [False]),
        (methods.EXPLAIN_JOB, []),
    ):
        one: object = 7 if method is methods.EXPLAIN_JOB else "a"
        assert method.check_args([[one] * 20_000, *others])
        with pytest.raises(errors.ParseError) as caught:
            method.check_args([[one] * 20_001, *others])
        assert len(str(caught.value)) < 400


def test_arguments_with_a_default_are_the_last_ones() -> None:
    for method in methods.TABLE.values():
        needs = [arg.required for arg in method.args]
        assert needs == sorted(needs, reverse=True), method.name


def test_what_changes_something() -> None:
    assert {method.name for method in methods.TABLE.values() if method.changes} == {
        "ArchiveJob",
        "AutoArchiveJobs",
        "CancelJob",
        "ChangeAccessRecords",
        "ChangeJobPriority",
        "DeleteDocument",
        "DeleteFilter",
        "ReplaceDocument",
        "ReplaceFilter",
        "SetDrainFlag",
        "SetWatcherPause",
        "SubmitJob",
        "SubmitJobToDrainedQueue",
        "SubmitManyJobs",
    }
