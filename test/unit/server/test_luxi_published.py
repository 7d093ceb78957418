"""The methods of the master's socket against the published ones (``test/data/luxi_methods.json``).

Each difference is named here with its reason.
"""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from fakes.config import FakeConfig, cluster_of
from fakes.rpc import FakeRpc
from ganeti import ht
from ganeti.cmdlib.base import MasterContext
from ganeti.locking import LockManager
from ganeti.server.luxi_service import Service
from ganeti.wire import errors as wire_errors
from ganeti.wire import luxi as wire

PUBLISHED: dict[str, Any] = json.loads(
    (Path(__file__).parents[2] / "data/luxi_methods.json").read_text())

#: Methods nobody else has.
OWN_METHODS = {
    "ExplainJob": "why a job waits (gnt-job explain, gnt-job top)",
    "QueryConfigHistory": "who changed the configuration, and when (gnt-cluster history)",
    "QueryConfigChanges": "what was changed",
    "QueryConfigAt": "the configuration as it was",
    "WaitForEvents": "what happened to jobs and instances, as it happens",
}
#: Keys of the cluster information nobody else has.
OWN_KEYS: dict[str, str] = {}
#: Published keys which are not there.
MISSING_KEYS: dict[str, str] = {}


@pytest.fixture
def service() -> Service:
    config = FakeConfig(cluster_of())
    return Service(MasterContext(config, LockManager({}), FakeRpc(config)))  # type: ignore[arg-type]


def test_methods_and_their_arguments(service: Service) -> None:
    ours = {name: [arg for arg, _shape in method.args]
            for name, method in service._methods().items()}
    assert set(ours) - set(PUBLISHED["methods"]) == set(OWN_METHODS) == set(wire.EXTENSIONS)
    assert set(wire.METHODS) == set(PUBLISHED["methods"])
    for name, arguments in PUBLISHED["methods"].items():
        assert len(ours[name]) == len(arguments), name


def test_arguments_which_programs_leave_open_may_be_null(service: Service) -> None:
    methods = service._methods()
    for name in ("QueryJobs", "QueryFilters", "QueryInstances", "QueryNodes", "QueryGroups",
                 "QueryNetworks", "QueryExports"):
        shape: ht.Type = methods[name].args[0][1]
        assert shape.check(None) and shape.check([]), name


def test_keys_of_the_cluster_information(service: Service) -> None:
    answers: list[dict[str, Any]] = []
    service._methods()["QueryClusterInfo"].begin(SimpleNamespace(answer=answers.append))
    ours = set(answers[0])
    published = set(PUBLISHED["cluster_info_keys"])
    assert published - ours == set(MISSING_KEYS)
    assert ours - published == set(OWN_KEYS)


def test_arguments_of_the_errors() -> None:
    for name, arguments in PUBLISHED["exception_args"].items():
        if name == "default":
            continue
        samples: dict[str, Any] = {"list(str)": ["a"], "list([node, script, output])": [
            ["node1", "10-check", "no"]], "expected int": 3, "actual int": 2, "code int": 5}
        values = [samples.get(argument, argument) for argument in arguments]
        error = wire_errors.decode([name, values])
        assert error is not None and type(error).__name__ == name
        assert wire_errors.encode(error) == [name, values]
