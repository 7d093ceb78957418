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
from ganeti import errors
from ganeti.cmdlib.base import MasterContext
from ganeti.locking import LockManager
from ganeti.luxi import methods
from ganeti.master.luxi_service import LuxiService
from ganeti.wire import errors as wire_errors

PUBLISHED: dict[str, Any] = json.loads(
    (Path(__file__).parents[2] / "data/luxi_methods.json").read_text()
)

#: Methods nobody else has.
OWN_METHODS = {
    "CheckGuests": "a guest that stopped by itself becomes an event of the REST interface",
    "QueryImages": "the catalogue of disk images (gnt-os images list over REST)",
    "QueryFailoverStatus": "whether the role of the master would move (REST)",
    "QueryFindings": "the last findings of verifications (REST)",
    "QueryQueue": "the queue in its predicted order, with locks (REST)",
    "FindCommits": "chosen commits of the history, page by page (REST)",
    "FindAuditLines": "chosen lines of the audit log, page by page (REST)",
    "QueryObjectsAt": "objects of an earlier state, without secrets (REST)",
    "ExplainJob": "why a job waits (gnt-job explain, gnt-job top)",
    "ReadConsoleLog": "what a guest wrote to its console (gnt-instance console --log)",
    "QueryGuestsUsage": "what guests use (gnt-instance top)",
    "QueryPage": "a part of a long list, in an order (REST)",
    "RunQuery": "details and snapshots of an instance without a job (REST)",
    "QueryConfigHistory": "who changed the configuration, and when (gnt-cluster history)",
    "QueryConfigChanges": "what was changed",
    "QueryConfigAt": "the configuration as it was",
    "QueryMetrics": "what the master daemon has measured, for the monitoring daemon",
    "QueryDocuments": "what programs keep in the cluster (REST, /2/documents)",
    "ReplaceDocument": "a conditional write of it",
    "DeleteDocument": "a conditional removal of it",
    "QueryAccessRecords": "sessions and tokens of users of the REST interface",
    "ChangeAccessRecords": "beginning and ending them",
    "WaitForEvents": "what happened to jobs and instances, as it happens",
}
#: Keys of the cluster information nobody else has.
OWN_KEYS = {
    "auto_instance_failover": "whether instances of a dead node start elsewhere by themselves",
    "node_watchdog": "whether nodes restart by their hardware watchdogs when they are cut off",
    "hv_state": "otherwise nobody sees what gnt-cluster modify --hypervisor-state has set",
    "disk_state": "likewise --disk-state",
    "auto_failover": "after how many seconds the role of a lost master moves by itself",
    "witness": "the document which is the third voter of two candidates",
    "auto_balance": "whether and how the watcher balances the cluster",
    "job_execution": "whether jobs are threads or processes",
    "rapi_require_authentication": "whether the REST interface can be read without a password",
}
#: Published keys which are not there.
MISSING_KEYS: dict[str, str] = {}


@pytest.fixture
def service() -> LuxiService:
    config = FakeConfig(cluster_of())
    return LuxiService(MasterContext(config, LockManager({}), FakeRpc(config)))  # type: ignore[arg-type]


def test_methods_and_their_arguments() -> None:
    published = {
        method.name: [arg.name for arg in method.args]
        for method in methods.TABLE.values()
        if method.published
    }
    assert published == PUBLISHED["methods"]
    assert methods.TABLE.keys() - published.keys() == OWN_METHODS.keys()


def test_arguments_which_programs_leave_open_may_be_null() -> None:
    for name in (
        "QueryJobs",
        "QueryFilters",
        "QueryInstances",
        "QueryNodes",
        "QueryGroups",
        "QueryNetworks",
        "QueryExports",
    ):
        first = methods.TABLE[name].args[0].type
        assert first.check(None) and first.check([]), name


def test_keys_of_the_cluster_information(service: LuxiService) -> None:
    answers: list[dict[str, Any]] = []
    handler = service.handler("QueryClusterInfo")
    assert handler is not None
    handler.begin(SimpleNamespace(args=[], answer=answers.append))  # type: ignore[arg-type]
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
    | st.sampled_from(["name", "node1", "instance", "uuid", "cluster", "=="])
    | st.sampled_from([1 << 64, -(1 << 64), 10**400, 1e300, float("nan"), "a\0b", "\ud800"]),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner, max_size=3)
    ),
    max_leaves=8,
)
#: Methods which need no queue.
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
    "QueryConfigHistory",
    "QueryConfigChanges",
    "QueryConfigAt",
    "ReadConsoleLog",
    "QueryGuestsUsage",
    "QueryPage",
    "RunQuery",
    "QueryMetrics",
    "QueryDocuments",
    "ReplaceDocument",
    "DeleteDocument",
)
#: Those which use it.
_OF_JOBS = (
    "ArchiveJob",
    "WaitForJobChange",
    "CancelJob",
    "DeleteFilter",
    "ReplaceFilter",
    "ExplainJob",
    "QueryJobs",
    "ChangeJobPriority",
    "SetDrainFlag",
    "SetWatcherPause",
    "SubmitJob",
    "SubmitManyJobs",
    "AutoArchiveJobs",
)


class Refused(Exception):
    """The request was refused in words."""


def _refuse(text: str) -> None:
    assert text and "Traceback" not in text
    raise Refused(text)


@settings(
    max_examples=400, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(st.sampled_from(_QUERIES + _OF_JOBS), st.lists(_JSON, max_size=6))
def test_any_arguments_are_answered_or_refused(
    service: LuxiService,
    method: str,
    args: list[Any],
) -> None:
    answers: list[Any] = []
    request = SimpleNamespace(
        args=args,
        size=len(json.dumps(args)),
        answer=answers.append,
        refuse=_refuse,
        method=method,
        peer_uid=lambda: 0,
        unwanted=lambda: "",
    )
    handler = service.handler(method)
    assert handler is not None
    try:
        handler.begin(request)  # type: ignore[arg-type]
    except (Refused, errors.GenericError):
        return
    except AttributeError as err:
        # It reached the queue, which is not here; so its arguments were good.
        assert "'NoneType'" in str(err) and method in _OF_JOBS
        return
    json.dumps(answers)
