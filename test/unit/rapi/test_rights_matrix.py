"""Every role, route and method: the recorded table, and what the application answers.

The table is ``test/data/rapi-rights.txt``. After a change of resources or rights, write it anew::

    PYTHONPATH=lib:test python test/unit/rapi/test_rights_matrix.py > test/data/rapi-rights.txt

and read the difference: each line says who may do an operation. ``all`` is everything, ``own`` is
within the limits of rights for some instances, ``-`` is nothing. The first column is a request
without a user. What such a request may do is also in :data:`WITHOUT_USER`, which nobody can write
without thinking; what a user with rights for some instances may do, is so in
:mod:`ganeti.rapi.scope`.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from fakes.limited_cluster import LimitedCluster
from ganeti.http import messages
from ganeti.http.event_server import Accepted, Incoming
from ganeti.http.messages import Refused, Response
from ganeti.rapi import scope
from ganeti.rapi.application import RestApplication
from ganeti.rapi.declare import Operation, Resource
from ganeti.rapi.identify import Identities
from ganeti.rapi.resources import RESOURCES
from ganeti.rapi.rights import ROLES, Rights, parse
from ganeti.rapi.scope import Scopes
from ganeti.rapi.users import User

TABLE = Path(__file__).resolve().parents[2] / "data" / "rapi-rights.txt"
HANDLERS = {resource.handler for resource in RESOURCES}
#: Title of a column -> the rights.
COLUMNS = {
    "none": "",
    "read": "read",
    "view": "view",
    "cons": "console",
    "oper": "@operator",
    "write": "write",
    "view@": "view@tag:web",
    "cons@": "console@tag:web",
    "oper@": "operator@tag:web",
    "write@": "write@tag:web",
    "own": "write@own,networks",
    "wrong": "write@tga:web",
}
#: Operations which need no user, unless the cluster demands one for every request.
WITHOUT_USER = frozenset(
    """
GET /
GET /2
GET /2/doc
GET /2/features
GET /2/filters
GET /2/filters/{filter_uuid}
GET /2/groups
GET /2/groups/{group_name}
GET /2/groups/{group_name}/tags
GET /2/info
GET /2/instances
GET /2/instances/{instance_name}
GET /2/instances/{instance_name}/tags
GET /2/jobs
GET /2/jobs/{job_id}
GET /2/networks
GET /2/networks/{network_name}
GET /2/networks/{network_name}/tags
GET /2/nodes
GET /2/nodes/{node_name}
GET /2/nodes/{node_name}/maintenance
GET /2/nodes/{node_name}/role
GET /2/nodes/{node_name}/tags
GET /2/openapi.json
GET /2/os
GET /2/query/{resource}/fields
GET /2/tags
GET /version
POST /2/login
GET /2/login/oidc
GET /2/login/oidc/callback
GET /2/login/oidc/logout
POST /2/login/passkey
POST /2/login/passkey/challenge
POST /2/logout
    """.strip().split("\n")
)
_WORDS = {scope.EVERYTHING: "all", scope.SOME: "own", scope.NOTHING: "-"}
_NAMES = {
    "instance_name": "web1",
    "job_id": "2",
    "resource": "instance",
    "disk_index": "0",
    "serial": "1",
}
CASES = [(resource, method) for resource in RESOURCES for method in sorted(resource.operations)]


def rights(words: str) -> Rights:
    return parse(words, ROLES, HANDLERS)[0]


def table() -> str:
    """The table which the declarations give."""
    titles = ("nobody", *COLUMNS)
    lines = ["operation".ljust(68) + " ".join(title.ljust(6) for title in titles).rstrip()]
    for resource, method in CASES:
        cells = [("-" if resource.operations[method].access else "all").ljust(6)]
        for words in COLUMNS.values():
            needed = resource.operations[method].access
            area = rights(words).area("alice", needed, resource.handler, method)
            cells.append(_WORDS[scope.reach(area, resource.handler, method)].ljust(6))
        lines.append(f"{method} {resource.path}".ljust(67) + " " + " ".join(cells).rstrip())
    return "\n".join(lines) + "\n"


def test_the_recorded_table() -> None:
    assert table() == TABLE.read_text(), "write the table anew, and read the difference"


def test_what_needs_no_user() -> None:
    open_to_all = {
        f"{method} {resource.path}"
        for resource, method in CASES
        if not resource.operations[method].access
    }
    assert open_to_all == WITHOUT_USER, "decide: does this operation need a user (access=...)?"
    assert not any(path.startswith(("PUT", "DELETE")) for path in open_to_all)


class _Nobody:
    """No request has credentials."""

    async def identify(self, _incoming: Incoming) -> None:
        return None


@pytest.mark.parametrize("demanded", [False, True])
def test_a_request_without_a_user(demanded: bool) -> None:
    async def run() -> list[str]:
        wrong = []
        application = RestApplication(
            LimitedCluster(), Identities([_Nobody()]), require_authentication=demanded
        )
        for resource, method in CASES:
            operation = resource.operations[method]
            needed = bool(operation.access) or (demanded and not _identifies(operation))
            status = await _status(application, method, _path(resource), carry_out=False)
            if (status == 401) is not needed:
                wrong.append(f"{method} {resource.path}: {status}")
        return wrong

    assert asyncio.run(run()) == []


def _identifies(operation: Operation) -> bool:
    """Return whether the operation is itself a login, or ends one."""
    return bool(getattr(operation, "identifies", False))


def _path(resource: Resource, instance_name: str = "web1") -> str:
    names = {**_NAMES, "instance_name": instance_name}
    path = resource.path
    for part in resource.names():
        path = path.replace(f"{{{part}}}", names.get(part, "x1"))
    return path


class _Known:
    """The way in which the user of a test is known."""

    def __init__(self, user: User) -> None:
        self._user = user

    async def identify(self, _incoming: Incoming) -> User:
        return self._user


async def _status(application: RestApplication, method: str, path: str, *, carry_out: bool) -> int:
    """The status of the answer; 200 for a request which is accepted and not carried out."""
    head = messages.parse_head(f"{method} {path} HTTP/1.1\r\nHost: h".encode())
    try:
        found = await application.begin(Incoming(head, "127.0.0.1"))
        if isinstance(found, Accepted):
            if not carry_out:
                return 200
            found = await found.answer(b"")
    except Refused as err:
        return err.status
    assert isinstance(found, Response)
    return found.status


@pytest.mark.parametrize("title", COLUMNS)
def test_the_application_does_what_the_table_says(title: str) -> None:
    column = list(COLUMNS).index(title) + 1
    cells = {
        line[:67].strip(): line[68:].split()[column] for line in TABLE.read_text().splitlines()[1:]
    }
    user = User("alice", rights(COLUMNS[title]))
    # A wrong selector stands for no instance at all.
    seen = [] if title == "wrong" else ["web1"]

    async def run() -> list[str]:
        wrong = []
        for resource, method in CASES:
            master = LimitedCluster()
            master.answers["ReadConsoleLog"] = {"text": ""}
            application = RestApplication(master, Identities([_Known(user)]), scopes=Scopes(master))
            said = cells[f"{method} {resource.path}"]
            for name in ("web1", "db1"):
                path = _path(resource, name)
                status = await _status(application, method, path, carry_out=said != "all")
                if said == "-":
                    good = status == 403 or (name == "db1" and status == 404)
                elif said == "own" and name not in seen and "{instance_name}" in resource.path:
                    good = status == 404
                else:
                    good = status not in (401, 403) and (said == "all" or status != 404 or not seen)
                if not good:
                    wrong.append(f"{method} {path}: {said}, but {status}")
        return wrong

    assert asyncio.run(run()) == []


if __name__ == "__main__":
    print(table(), end="")
