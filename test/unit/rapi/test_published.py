"""The declarations against the published interface; every difference is named with its reason."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ganeti.opcodes.base import COMMON_PARAMS
from ganeti.rapi import declare
from ganeti.rapi.declare import BODY_COMMON, Job, Operation
from ganeti.rapi.resources import RESOURCES, cluster, groups, instances, jobs, networks, nodes
from ganeti.server import rapi

PUBLISHED = json.loads(
    (Path(__file__).resolve().parents[2] / "data" / "rapi.json").read_text(encoding="utf-8")
)
OURS = {resource.path: resource for resource in RESOURCES}

_INSTANCE = "/2/instances/{instance_name}"
OWN_RESOURCES = {
    ("/2/batch", "POST"): "several operations with dependencies in one request",
    ("/2/doc", "GET"): "the documentation, for people",
    ("/2/documents", "GET"): "documents with conditional writes",
    ("/2/documents/{document_name}", "GET"): "documents with conditional writes",
    ("/2/documents/{document_name}", "PUT"): "documents with conditional writes",
    ("/2/documents/{document_name}", "DELETE"): "documents with conditional writes",
    ("/2/events", "GET"): "what happens, so that nobody has to ask again and again",
    ("/2/events/log", "GET"): "events for programs which have no stream",
    ("/2/openapi.json", "GET"): "the description, for programs",
    ("/2/jobs", "POST"): "commands on a machine outside of the cluster",
    ("/2/jobs/archive", "POST"): "commands on a machine outside of the cluster",
    ("/2/jobs/{job_id}/archive", "POST"): "commands on a machine outside of the cluster",
    ("/2/jobs/{job_id}/priority", "PUT"): "commands on a machine outside of the cluster",
    ("/2/run-query", "PUT"): "commands on a machine outside of the cluster",
    ("/2/config-values", "GET"): "commands on a machine outside of the cluster",
    ("/2/queue/drain", "PUT"): "commands on a machine outside of the cluster",
    ("/2/queue/drain", "DELETE"): "commands on a machine outside of the cluster",
    ("/2/watcher/pause", "GET"): "commands on a machine outside of the cluster",
    ("/2/watcher/pause", "PUT"): "commands on a machine outside of the cluster",
    ("/2/watcher/pause", "DELETE"): "commands on a machine outside of the cluster",
    ("/2/guests/usage", "GET"): "commands on a machine outside of the cluster",
    (f"{_INSTANCE}/console-log", "GET"): "what a guest wrote, without a terminal on its node",
    ("/2/nodes/{node_name}/maintenance", "DELETE"): "maintenance of a node as one command",
    ("/2/nodes/{node_name}/maintenance", "GET"): "maintenance of a node as one command",
    ("/2/nodes/{node_name}/maintenance", "PUT"): "maintenance of a node as one command",
    (f"{_INSTANCE}/snapshots", "GET"): "snapshots that stay",
    (f"{_INSTANCE}/snapshots", "POST"): "snapshots that stay",
    (f"{_INSTANCE}/snapshots/{{snapshot_name}}", "DELETE"): "snapshots that stay",
    (f"{_INSTANCE}/snapshots/{{snapshot_name}}/restore", "POST"): "snapshots that stay",
    ("/2/tokens", "GET"): "access tokens for programs",
    ("/2/tokens", "POST"): "access tokens for programs",
    ("/2/tokens/{token_id}", "DELETE"): "access tokens for programs",
    ("/2/certificates", "GET"): "client certificates of programs",
    ("/2/certificates/{certificate_id}", "DELETE"): "client certificates of programs",
    **dict.fromkeys(
        (
            ("/2/login", "POST"),
            ("/2/logout", "POST"),
            ("/2/session", "GET"),
            ("/2/sessions", "GET"),
            ("/2/sessions/{session_id}", "DELETE"),
        ),
        "sessions of browsers",
    ),
    ("/2/login/oidc", "GET"): "login at another server",
    ("/2/login/oidc/callback", "GET"): "login at another server",
    ("/2/login/oidc/logout", "GET"): "login at another server",
    ("/2/login/passkey", "POST"): "login with a passkey",
    ("/2/login/passkey/challenge", "POST"): "login with a passkey",
    ("/2/totp", "GET"): "one-time codes as a second factor",
    ("/2/totp", "POST"): "one-time codes as a second factor",
    ("/2/totp", "PUT"): "one-time codes as a second factor",
    ("/2/passkeys", "GET"): "login with a passkey",
    ("/2/passkeys", "POST"): "login with a passkey",
    ("/2/passkeys/challenge", "POST"): "login with a passkey",
    ("/2/passkeys/{passkey_id}", "DELETE"): "login with a passkey",
    ("/2/capacity", "GET"): "how many more instances fit (hspace)",
    ("/2/balance", "GET"): "the moves which balance the cluster (hbal)",
    ("/2/what-if", "POST"): "the cluster after changes which nobody makes",
    ("/2/place", "POST"): "where an instance would be put, and why",
    ("/2/quota", "GET"): "use and limits of the user, or of all owners",
    (f"{_INSTANCE}/copy", "POST"): "a new instance from another one",
    ("/2/jobs/{job_id}/explain", "GET"): "why a job waits",
    ("/2/jobs/explain", "GET"): "why jobs wait",
    ("/2/queue", "GET"): "the queue in the predicted order, and the locks",
    ("/2/images", "GET"): "the catalogue of disk images",
    ("/2/failover-status", "GET"): "whether the role of the master would move",
    ("/2/verify", "GET"): "the last findings of verifications",
    ("/2/verify", "POST"): "programs verify the cluster without a shell",
    ("/2/history", "GET"): "the history of the configuration",
    ("/2/audit", "GET"): "the audit log",
    ("/2/webhooks", "GET"): "events for servers which wait for them",
    ("/2/webhooks", "POST"): "events for servers which wait for them",
    ("/2/webhooks/{webhook_name}", "DELETE"): "events for servers which wait for them",
    ("/2/webhooks/{webhook_name}/test", "POST"): "events for servers which wait for them",
    **dict.fromkeys(
        (
            (f"/2/at/{{serial}}/{what}", "GET")
            for what in (
                "info",
                "instances",
                "instances/{instance_name}",
                "nodes",
                "nodes/{node_name}",
                "groups",
                "groups/{group_name}",
                "networks",
                "networks/{network_name}",
            )
        ),
        "earlier states of the configuration",
    ),
}
# Query arguments which only our version has: most programs cannot send a body with GET.
OWN_QUERY = {
    (f"{_INSTANCE}/info", "GET"): {"job"},
    **dict.fromkeys(
        [(f"/2/{kind}", "GET") for kind in ("instances", "nodes", "groups", "networks", "jobs")],
        {"after", "fields", "filter", "limit", "offset", "sort"},
    ),
    ("/2/query/{resource}", "GET"): {"after", "filter", "limit", "offset", "sort"},
    ("/2/query/{resource}", "PUT"): {"after", "limit", "offset", "sort"},
    ("/2/jobs/{job_id}/wait", "GET"): {
        "fields",
        "previous_job_info",
        "previous_log_serial",
        "timeout",
    },
    ("/2/jobs/{job_id}", "DELETE"): {"kill"},
}
# Members of bodies which only our version has.
OWN_MEMBERS = {
    "/2/query/{resource}": {"names"},
    "/2/instances": {"accept_from_description", "exact_name", "explain"},
    "/2/instances/{instance_name}/rename": {"exact_name"},
    _INSTANCE: {"unfinished_import"},
    f"{_INSTANCE}/modify": {"hypervisor"},
    "/2/networks": {"add_reserved_ips6"},
    "/2/networks/{network_name}/modify": {
        "add_reserved_ips6",
        "conflicts_check",
        "remove_reserved_ips6",
    },
    "/2/groups": {"enabled_hypervisors"},
    "/2/groups/{group_name}/modify": {"enabled_hypervisors", "force"},
    "/2/modify": {
        "auto_balance",
        "auto_failover",
        "witness",
        "auto_instance_failover",
        "node_watchdog",
        "rapi_require_authentication",
        "job_execution",
    },
    f"{_INSTANCE}/failover": {"new_secondary", "wait_for_sync"},
    "/2/networks/{network_name}/connect": {"more_groups"},
    "/2/networks/{network_name}/disconnect": {"more_groups"},
}
# What a published member of a body is called here.
OTHER_BODIES = {
    ("/2/filters", "POST"),
    ("/2/filters/{filter_uuid}", "PUT"),
    ("/2/jobs/{job_id}/wait", "GET"),
    ("/2/query/{resource}", "PUT"),  # these belong to no opcode; the table words them differently
    ("/2/instances/{instance_name}/reinstall", "POST"),  # several opcodes
    ("/2/instances-multi-alloc", "POST"),  # the table has the opcode's: a list of anything
}
# A job according to the table, a plain question here: nothing waits in the queue to be told.
NO_JOB = {("/2/os", "GET"): "operating systems are a question to the nodes, which needs no locks"}
# Open to everybody according to the table, to users here.
NEEDS_USER = {
    ("/2/instances/{instance_name}/info", "GET"): "everybody could fill the queue with it"
}
OPTIONS_OF_ALL = {"--user", "--group", "--version", "-h/--help"}
# Ours: limits for the jobs of each user.
OWN_OPTIONS = {
    "--max-user-jobs",
    "--max-user-jobs-per-minute",
    "--webhook-ca",
    "--webhook-network",
    "--passkey-host",
    "--session-hours",
    "--session-idle",
}

CASES = [
    (path, method)
    for path, resource in sorted(PUBLISHED["resources"].items())
    for method in resource["methods"]
]


def operation(path: str, method: str) -> Operation:
    return OURS[path].operations[method]


def test_resources_and_methods() -> None:
    ours = {(path, method) for path, one in OURS.items() for method in one.operations}
    own = set(OWN_RESOURCES)
    assert ours - own == set(CASES) and all(OWN_RESOURCES.values())
    assert own <= ours and len(CASES) == 84


@pytest.mark.parametrize("path", sorted(PUBLISHED["resources"]))
def test_names_of_resources(path: str) -> None:
    assert OURS[path].handler == PUBLISHED["resources"][path]["handler"]


@pytest.mark.parametrize(("path", "method"), CASES)
def test_method(path: str, method: str) -> None:
    wanted = PUBLISHED["resources"][path]["methods"][method]
    ours = operation(path, method)
    rights = {"none": set(), "write": {"write"}, "read/write": {"read", "write"}}
    if (path, method) in NEEDS_USER:
        assert wanted["access"] == "none" and ours.access == declare.USERS
    else:
        assert set(ours.access) == rights[wanted["access"]]
    assert isinstance(ours, Job) == (wanted["submits_job"] and (path, method) not in NO_JOB)
    if isinstance(ours, Job):
        assert wanted["opcode"] == ours.opcode.OP_ID
    assert set(wanted["query"]) <= {query.name for query in ours.query}
    extra = {query.name for query in ours.query} - set(wanted["query"])
    assert extra == OWN_QUERY.get((path, method), set())


@pytest.mark.parametrize(("path", "method"), CASES)
def test_body(path: str, method: str) -> None:
    wanted: dict[str, Any] = PUBLISHED["resources"][path]["methods"][method]
    ours = operation(path, method)
    found = OURS[path].body_fields(method)
    published = set(wanted.get("body", {})) - set(wanted.get("forbidden", ()))
    members = set(found) - (set(BODY_COMMON) - published) - {"__version__"}
    assert members - OWN_MEMBERS.get(path, set()) == published
    if not isinstance(ours, Job):
        return
    assert dict(ours.rename) == wanted.get("renames", {})
    assert list(ours.forbidden) == wanted.get("forbidden", [])
    if (path, method) in OTHER_BODIES:
        return
    for name in published:
        kind, required, default = wanted["body"][name]
        field = found[name]
        assert (str(field.type), field.required) == (kind, required), name
        assert required or field.default == default, name


def test_common_parameters_of_bodies() -> None:
    assert set(BODY_COMMON) < set(COMMON_PARAMS)


def test_fields_of_objects() -> None:
    fields = PUBLISHED["fields"]
    assert list(instances.TABLE.fields) == fields["instances"]
    # Ours, for the REST source ("HTools support for multiple storage units per node").
    assert [field for field in nodes.TABLE.fields if field != "storage"] == fields["nodes"]
    assert list(groups.TABLE.fields) == fields["groups"]
    assert list(networks.TABLE.fields) == fields["networks"]
    results = {
        path: OURS[path].operations["GET"].result.fields
        for path in OURS
        if "GET" in OURS[path].operations
    }
    assert list(results["/2/jobs"]) == fields["jobs"]
    assert list(results["/2/jobs/{job_id}"]) == fields["job"]
    assert list(results["/2/os"]) == fields["os"]
    assert list(results["/2/filters"]) == fields["filters"]
    assert jobs.RESOURCES


def test_features() -> None:
    assert sorted(cluster.FEATURES) == PUBLISHED["features"]


def test_options_of_the_daemon() -> None:
    parser = rapi.DAEMON.parser()
    ours = {"/".join(action.option_strings) for action in parser._actions}
    assert ours == set(PUBLISHED["daemon_options"]) | OPTIONS_OF_ALL | OWN_OPTIONS
    options = parser.parse_args([])
    assert (options.port, options.max_clients) == (5080, 20)
