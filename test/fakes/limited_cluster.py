"""A small cluster in front of which the REST application stands, to test rights for instances.

Queries are evaluated by the filters of the real query engine, over rows of plain values.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from fakes.http_lab import HttpLab
from fakes.rest_client import Rest
from fakes.rest_master import FakeMaster
from ganeti import errors
from ganeti.constants.job import REASON_PERSON
from ganeti.query import filter as query_filter
from ganeti.query import resources
from ganeti.query.field import Field, Mark, Resource
from ganeti.rapi.application import RestApplication
from ganeti.rapi.identify import Identities
from ganeti.rapi.job_limits import JobLimits
from ganeti.rapi.quotas import Quotas
from ganeti.rapi.resources import RESOURCES
from ganeti.rapi.scope import Scopes
from ganeti.rapi.users import Users

Row = dict[str, Any]
HANDLERS = {resource.handler for resource in RESOURCES}
_UUID = "00000000-0000-4000-8000-00000000000{}"


def instance(number: int, name: str, tags: list[str], node: str, group: str, **more: Any) -> Row:
    """One instance; what is not given has small usual values."""
    return {
        "name": name,
        "uuid": _UUID.format(number),
        "serial_no": 1,
        "tags": tags,
        "pnode": node,
        "snodes": [],
        "pnode.group": group,
        "pnode.group.uuid": f"uuid-{group}",
        "status": "running",
        "oper_state": True,
        "console": {"kind": "msg", "message": name},
        "beparams": {"maxmem": 1024, "minmem": 1024, "vcpus": 2},
        "disk.sizes": [10240],
        "disk_usage": 10368,
        "be/maxmem": 1024,
        "be/vcpus": 2,
        **more,
    }


def job(number: int, person: str, *ops: Mapping[str, Any], status: str = "success") -> Row:
    """One job; it came over REST if it has a person."""
    trail = [["gnt:library:rlib2:x", "", 1], [REASON_PERSON, person, 1]] if person else []
    return {
        "id": number,
        "status": status,
        "ops": [{**op, "reason": trail} for op in ops],
        "summary": [str(op["OP_ID"]) for op in ops],
    }


class LimitedCluster(FakeMaster):
    """Three instances in two groups, and a few jobs.

    :ivar users: the users of the application before it, and their file.
    """

    users: Users
    users_path: Path

    def __init__(self) -> None:
        super().__init__()
        self.rows: dict[str, list[Row]] = {
            "instance": [
                instance(1, "web1.example.com", ["web", "owner:alice"], "node1", "rack1"),
                instance(2, "db1.example.com", ["db", "secret-tag"], "node2", "rack2"),
                instance(3, "web2.example.com", ["web"], "node1", "rack1"),
            ],
            "node": [
                {"name": name, "group": group, "group.uuid": f"uuid-{group}"}
                for name, group in (("node1", "rack1"), ("node2", "rack2"), ("node3", "rack2"))
            ],
            "group": [{"name": name, "uuid": f"uuid-{name}"} for name in ("rack1", "rack2")],
            "os": [{"name": "debian"}],
            "job": [
                job(1, "bob", {"OP_ID": "OP_INSTANCE_STARTUP", "instance_name": "db1"}),
                job(
                    2,
                    "bob",
                    {"OP_ID": "OP_INSTANCE_STARTUP", "instance_name": "web1.example.com"},
                ),
                job(3, "alice", {"OP_ID": "OP_INSTANCE_REMOVE", "instance_name": "gone"}),
                job(4, "", {"OP_ID": "OP_CLUSTER_VERIFY"}),
                job(
                    5,
                    "bob",
                    {"OP_ID": "OP_INSTANCE_STARTUP", "instance_name": "web1.example.com"},
                    {"OP_ID": "OP_INSTANCE_STARTUP", "instance_name": "db1.example.com"},
                ),
            ],
        }
        self.answers.update(
            {
                "Query": self.query,
                "QueryPage": self.query_page,
                "QueryJobs": self.query_jobs,
                "QueryInstances": self.query_instances,
                "QueryTags": lambda _kind, name: self.instance(name)["tags"],
                "QueryClusterInfo": {
                    "name": "c",
                    "uuid": "u",
                    "mtime": 1.0,
                    "master": "node1",
                    "beparams": {"default": {"maxmem": 128, "vcpus": 1}},
                },
                "QueryFields": {"fields": []},
                "CancelJob": [True, "canceled"],
                "WaitForJobChange": [["success"], []],
                "QueryNodes": [["node1"]],
                "QueryNetworks": [["net"]],
                "QueryDocuments": [],
                "QueryFilters": [],
                "RunQuery": {"result": {"a": {"name": "a"}}, "warnings": []},
            }
        )

    def instance(self, name: str) -> Row:
        return next(row for row in self.rows["instance"] if row["name"] == name)

    def query(self, what: str, fields: list[str], qfilter: Any) -> dict[str, Any]:
        real = resources.lookup(what)
        made = []
        for row_field in {*fields, *(name for row in self.rows[what] for name in row)}:
            field = real.field(row_field)
            assert field is not None, row_field
            made.append(
                Field(field.name, field.title, field.kind, field.doc, _getter(field.name),
                      compare=field.compare)
            )  # fmt: skip
        resource = Resource(what, made, lambda _view: self.rows[what], real.name_field)
        condition = query_filter.compile_filter(qfilter, resource)
        found = [
            row for row in self.rows[what] if condition is None or condition.matches(self, row)
        ]
        # An unknown job is left out; another unknown name is an error.
        names = () if what == "job" else query_filter.requested_names(qfilter, real.name_field)
        known = {row.get(real.name_field) for row in found}
        for name in names or ():
            if name not in known and not any(str(one).startswith(f"{name}.") for one in known):
                raise errors.OpPrereqError(f"{what} {name!r} is not known", errors.ECODE_NOENT)
        cells = [[_cell(row, field) for field in fields] for row in found]
        return {"fields": [{"name": field} for field in fields], "data": cells}

    def query_page(
        self, what: str, fields: list[str], qfilter: Any, page: Mapping[str, Any]
    ) -> dict[str, Any]:
        given = query_filter.parse(qfilter) if isinstance(qfilter, str) else qfilter
        parts = [one for one in (page.get("within"), given) if one is not None]
        answer = self.query(what, fields, ["&", *parts] if parts else None)
        total = len(answer["data"])
        answer["data"] = answer["data"][: page["limit"]]
        return {"answer": answer, "total": total, "next": None, "next_offset": None, "state": "s"}

    def query_jobs(self, ids: list[int] | None, fields: list[str]) -> list[Any]:
        rows = {row["id"]: row for row in self.rows["job"]}
        found = [rows.get(number) for number in (rows if ids is None else ids)]
        return [None if row is None else [row.get(field) for field in fields] for row in found]

    def query_instances(self, names: list[str], fields: list[str], _lock: bool) -> list[Any]:
        known = {row["name"]: row for row in self.rows["instance"]}
        rows = [known[name] for name in names or known]
        return [[row.get(field) for field in fields] for row in rows]

    def has_name(self, _table: str, name: str) -> bool:
        """Return whether an instance has a name, for comparisons of short names."""
        return any(row["name"] == name for row in self.rows["instance"])


def _getter(name: str) -> Any:
    def get(_view: Any, row: Row) -> Any:
        value = row.get(name)
        return Mark(2) if value is None else value

    return get


def _cell(row: Row, field: str) -> list[Any]:
    value = row.get(field)
    return [2, None] if value is None else [0, value]


@contextmanager
def limited_lab(tmp_path: Path, users: str, roles: str = "") -> Iterator[Rest]:
    """The application in front of the cluster, with these users and roles."""
    file, roles_file = tmp_path / "users", tmp_path / "roles"
    file.write_text(users)
    roles_file.write_text(roles)
    master = LimitedCluster()
    known = Users(str(file), HANDLERS, roles_path=str(roles_file))
    master.users, master.users_path = known, file
    lab = HttpLab(
        lambda: RestApplication(
            master,
            Identities([known]),
            require_authentication=True,
            scopes=Scopes(master, known),
            job_limits=JobLimits(master, quotas=Quotas(master, known)),
        )
    )
    try:
        yield Rest(lab, master)
    finally:
        lab.close()
