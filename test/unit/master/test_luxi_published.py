"""The methods of the master's socket against the published ones (``test/data/luxi_methods.json``).

Each difference is named here with its reason.
"""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fakes.config import FakeConfig, cluster_of
from fakes.rpc import FakeRpc
from ganeti import errors, ht
from ganeti.cmdlib.base import MasterContext
from ganeti.locking import LockManager
from ganeti.luxi import protocol as wire
from ganeti.master.luxi_service import LuxiService
from ganeti.wire import errors as wire_errors

PUBLISHED: dict[str, Any] = json.loads(
    (Path(__file__).parents[2] / "data/luxi_methods.json").read_text()
)

#: Methods nobody else has.
OWN_METHODS = {
    "CheckGuests": "a guest that stopped by itself becomes an event of the REST interface",
    "ExplainJob": "why a job waits (gnt-job explain, gnt-job top)",
    "QueryConfigHistory": "who changed the configuration, and when (gnt-cluster history)",
    "QueryConfigChanges": "what was changed",
    "QueryConfigAt": "the configuration as it was",
    "WaitForEvents": "what happened to jobs and instances, as it happens",
}
#: Keys of the cluster information nobody else has.
OWN_KEYS = {
    "hv_state": "otherwise nobody sees what gnt-cluster modify --hypervisor-state has set",
    "disk_state": "likewise --disk-state",
    "rapi_require_authentication": "whether the REST interface can be read without a password",
}
#: Published keys which are not there.
MISSING_KEYS: dict[str, str] = {}


@pytest.fixture
def service() -> LuxiService:
    config = FakeConfig(cluster_of())
    return LuxiService(MasterContext(config, LockManager({}), FakeRpc(config)))  # type: ignore[arg-type]


def test_methods_and_their_arguments(service: LuxiService) -> None:
    ours = {
        name: [arg for arg, _shape in method.args] for name, method in service._methods().items()
    }
    assert set(ours) - set(PUBLISHED["methods"]) == set(OWN_METHODS) == set(wire.EXTENSIONS)
    assert set(wire.METHODS) == set(PUBLISHED["methods"])
    for name, arguments in PUBLISHED["methods"].items():
        assert len(ours[name]) == len(arguments), name


def test_arguments_which_programs_leave_open_may_be_null(service: LuxiService) -> None:
    methods = service._methods()
    for name in (
        "QueryJobs",
        "QueryFilters",
        "QueryInstances",
        "QueryNodes",
        "QueryGroups",
        "QueryNetworks",
        "QueryExports",
    ):
        shape: ht.Type = methods[name].args[0][1]
        assert shape.check(None) and shape.check([]), name


def test_keys_of_the_cluster_information(service: LuxiService) -> None:
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
        samples: dict[str, Any] = {
            "list(str)": ["a"],
            "list([node, script, output])": [["node1", "10-check", "no"]],
            "expected int": 3,
            "actual int": 2,
            "code int": 5,
        }
        values = [samples.get(argument, argument) for argument in arguments]
        error = wire_errors.decode([name, values])
        assert error is not None and type(error).__name__ == name
        assert wire_errors.encode(error) == [name, values]


_JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-3, 300)
    | st.floats(allow_nan=False)
    | st.text(max_size=8)
    | st.sampled_from(["name", "node1", "instance", "uuid", "cluster", "=="]),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner, max_size=3)
    ),
    max_leaves=8,
)
_QUERIES = (
    "Query",
    "QueryFields",
    "QueryInstances",
    "QueryNodes",
    "QueryGroups",
    "QueryNetworks",
    "QueryExports",
    "QueryFilters",
    "QueryTags",
    "QueryConfigValues",
    "QueryClusterInfo",
    "ArchiveJob",
    "WaitForJobChange",
    "CancelJob",
    "DeleteFilter",
    "ReplaceFilter",
)


class Refused(Exception):
    """The request was refused in words."""


def _refuse(text: str) -> None:
    assert text and "Traceback" not in text
    raise Refused(text)


@settings(
    max_examples=400, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(st.sampled_from(_QUERIES), st.lists(_JSON, max_size=6))
def test_any_arguments_are_answered_or_refused(
    service: LuxiService,
    method: str,
    args: list[Any],
) -> None:
    answers: list[Any] = []
    request = SimpleNamespace(args=args, answer=answers.append, refuse=_refuse)
    handler = service.handler(method)
    assert handler is not None
    try:
        handler.begin(request)  # type: ignore[arg-type]
    except (Refused, errors.GenericError):
        return
    except AttributeError as err:
        # It reached the queue, which is not here; so its arguments were good.
        assert "'NoneType'" in str(err) and method not in _QUERIES[:11]
        return
    json.dumps(answers)
