"""What the REST interface has for a master in unit tests: answers from a table, keeps questions."""

from __future__ import annotations

from typing import Any

from ganeti import errors
from ganeti.constants import query as const
from ganeti.query import resources
from ganeti.rapi.master import Master

UUID = "11111111-2222-4333-8444-555555555555"
#: The value of each query field of a kind.
VALUES = {
    const.KIND_TEXT: "x",
    const.KIND_BOOL: True,
    const.KIND_NUMBER: 1,
    const.KIND_FLOAT: 1.5,
    const.KIND_UNIT: 64,
    const.KIND_TIMESTAMP: 1.5,
    const.KIND_OTHER: "x",
}


class FakeMaster(Master):
    """Keeps what it was asked; answers from a table of functions."""

    def __init__(self) -> None:
        super().__init__("/nonexistent")
        self.asked: list[tuple[str, tuple[Any, ...]]] = []
        self.answers: dict[str, Any] = {
            "SubmitJob": 12,
            "QueryAccessRecords": {"serial": 1, "records": []},
            "ChangeAccessRecords": {"before": 1, "serial": 1},
            "SubmitManyJobs": lambda jobs: [[True, 20 + place] for place in range(len(jobs))],
            "QueryInstances": lambda names, fields, lock: [
                [self.value(name, field) for field in fields] for name in names or ["b", "a"]
            ],
        }

    @staticmethod
    def value(name: str, field: str) -> Any:
        return {
            "name": name,
            "uuid": UUID,
            "serial_no": 3,
            "beparams": {"maxmem": 64, "minmem": 32},
        }.get(field)

    async def call(self, method: str, *args: Any, timeout_s: float | None = None) -> Any:
        self.asked.append((method, args))
        answer = self.answers[method]
        if isinstance(answer, Exception):
            raise answer
        return answer(*args) if callable(answer) else answer

    @property
    def ops(self) -> list[dict[str, Any]]:
        method, args = self.asked[-1]
        assert method == "SubmitJob"
        return list(args[0])


def jobs_that_succeed(ids: list[int] | None, fields: list[str]) -> list[Any]:
    """The answer to ``QueryJobs`` where every job exists and has ended well."""
    known = {"status": "success", "opresult": [None], "opstatus": ["success"]}
    return [
        [job if field == "id" else known.get(field) for field in fields] for job in ids or [1, 2]
    ]


JOB = {
    "id": 12,
    "status": "waiting",
    "summary": ["INSTANCE_STARTUP(web1)"],
    "priority": 0,
    "opcode": "INSTANCE_STARTUP(web1)",
    "opcode_number": 1,
    "opcodes": 1,
    "since": 1000.5,
    "message": None,
    "message_time": None,
}
REASON = {
    "kind": "lock",
    "text": "lock instance/web1 (exclusive), held by job 11",
    "jobs": [11],
    "lock": "instance/uuid",
    "name": "instance/web1",
    "mode": "exclusive",
    "since": 1000.5,
    "holders": [{"job": 11, "name": "job-11"}],
    "before": [],
    "wanted": ["instance/uuid"],
}
#: Answers about the work of the cluster, of the shapes of :mod:`ganeti.luxi.answers`.
RECORDS: dict[str, Any] = {
    "ExplainJob": {
        "job": JOB,
        "reasons": [REASON],
        "holds": [{"lock": "cluster/BGL", "name": "cluster/BGL", "mode": "shared"}],
        "chain": [{"depth": 1, "job": {**JOB, "id": 11, "status": "running"}, "reasons": []}],
        "more": False,
        "notes": [],
    },
    "QueryQueue": {
        "queue": {
            "at_work": 2,
            "limit": 20,
            "in_line": 0,
            "unfinished": 2,
            "ended_per_s": 0.5,
            "drained": False,
            "ending": False,
            "paused": "",
            "paused_since": None,
        },
        "jobs": [{"job": JOB, "reasons": [REASON], "position": 1, "holds": []}],
        "more_jobs": 1,
        "locks": [
            {
                "lock": "instance/uuid",
                "name": "instance/web1",
                "mode": "exclusive",
                "holders": [{"job": 11, "name": "job-11"}],
                "waiting": [{"job": 12, "name": "job-12", "mode": "exclusive"}],
                "since": 999.0,
            }
        ],
        "more_locks": 0,
    },
    "QueryImages": {
        "images": [
            {
                "name": "debian-12",
                "format": "qcow2",
                "size": 2 << 30,
                "file_size": 400 << 20,
                "sha256": "a" * 64,
                "source": "https://cloud.example.com/debian-12.qcow2",
                "verified": "",
                "fetched": 1000,
            }
        ],
        "problems": ["entry x.json cannot be used: it is not an object"],
    },
    "QueryFailoverStatus": {
        "auto_failover": 30,
        "master": "node1",
        "witness": {
            "url": "https://witness.example.com/c",
            "failure": "no answer",
            "master": None,
            "epoch": None,
            "config_serial": None,
            "last_job": None,
            "written": None,
        },
        "nodes": [
            {
                "name": "node1",
                "master_candidate": True,
                "offline": False,
                "failure": None,
                "sight": {"master": "node1", "daemon": "serving"},
            },
            {
                "name": "node2",
                "master_candidate": False,
                "offline": True,
                "failure": None,
                "sight": None,
            },
        ],
    },
    "QueryFindings": {
        "parts": [
            {"group": None, "job": 7, "time": 1000.5, "errors": 0, "warnings": 0},
            {"group": "default", "job": 8, "time": 1001.5, "errors": 1, "warnings": 1},
        ],
        "unchecked": ["g2", None],
        "findings": [
            {
                "severity": severity,
                "code": code,
                "object": kind,
                "name": name,
                "text": "it is wrong",
                "group": "default",
                "job": 8,
                "since": 900.5,
            }
            for severity, code, kind, name in (
                ("error", "EINSTANCEDOWN", "instance", "web1"),
                ("warning", "ENODEN1", "node", "node1"),
            )
        ],
    },
    "FindCommits": {
        "commits": [
            {
                "serial": 7,
                "time": 1000.5,
                "before": 6,
                "job": 11,
                "opcode": "OP_INSTANCE_STARTUP",
                "source": "gnt:client:gnt-instance",
                "reason": "",
                "person": "alice",
                "count": 1,
                "changes": [["instances", "web1", "changed", ["admin_state"]]],
            }
        ],
        "next": 7,
        "newest": 9,
    },
    "FindAuditLines": {
        "entries": [
            {
                "line": 3,
                "time": 1000.5,
                "event": "ended",
                "job": 11,
                "status": "success",
                "ops": ["INSTANCE_STARTUP(web1)"],
                "person": "alice",
                "program": "REST",
                "reason": [["gnt:user", "because"]],
                "lost": 0,
                "late": None,
            }
        ],
        "next": None,
        "unreadable": 0,
    },
    "QueryObjectsAt": lambda serial, what, names, fields: {
        "serial": serial,
        "time": 1000.5,
        "rows": [
            [{"name": name, "beparams": {"maxmem": 64}}.get(field) for field in fields]
            for name in names or ["a"]
        ],
    },
}


def busy_master() -> FakeMaster:
    """One which has an answer of the right shape to everything that is asked."""
    from fakes.access_master import AccessMaster

    master = AccessMaster()
    row = [["name", "node1"], ["role", "M"], ["uuid", UUID], ["serial_no", 1]]
    values = dict(row)

    def rows(names: list[str] | None, fields: list[str], _lock: bool = False) -> list[Any]:
        return [
            [name if field == "name" else values.get(field) for field in fields]
            for name in names or ["node1"]
        ]

    def query(what: str, fields: list[str], _filter: Any) -> dict[str, Any]:
        cells = {
            "console": {"kind": "msg", "message": "m"},
            "disk.sizes": [1024],
            "hidden": False,
            "blacklisted": False,
            "variants": [],
        }
        known = resources.lookup(what).fields

        def cell(name: str) -> Any:
            return cells.get(name, VALUES.get(known[name].kind) if name in known else None)

        return {"fields": [], "data": [[[0, cell(field)] for field in fields]]}

    def page(what: str, fields: list[str], _filter: Any, _page: Any) -> dict[str, Any]:
        found = query(what, fields, None)
        return {
            "answer": found,
            "total": len(found["data"]),
            "next": None,
            "next_offset": None,
            "state": None,
        }

    def run_query(op: dict[str, Any]) -> dict[str, Any]:
        details = {"name": "node1", "run_state": None}
        return {
            "result": [{"snapshot": "before", "instance": "node1", "size": 1024}]
            if op["OP_ID"] == "OP_INSTANCE_SNAPSHOT_LIST"
            else {"node1": details},
            "warnings": [],
        }

    def events(place: Any, wait_s: float, kinds: Any) -> dict[str, Any]:
        if wait_s:
            raise errors.NoMasterError("this master has no further events")
        found = [[2, "job", {"id": 7, "status": "success", "summary": [], "timestamp": 1.5}]]
        return {"epoch": "e", "last": 2, "events": found, "lost": False, "dropped": [1, 1]}

    master.answers.update(
        {
            **RECORDS,
            "WaitForEvents": events,
            "ExplainJob": lambda job: (
                [{"job": JOB, "reasons": []}, None]
                if isinstance(job, list)
                else RECORDS["ExplainJob"]
            ),
            "RunQuery": run_query,
            "QueryNodes": rows,
            "QueryGroups": rows,
            "QueryNetworks": rows,
            "QueryJobs": jobs_that_succeed,
            "QueryTags": [],
            "QueryClusterInfo": {"uuid": UUID, "mtime": 1.5},
            "QueryFilters": lambda uuids, fields: [[UUID for _ in fields]],
            "ReplaceFilter": UUID,
            "DeleteFilter": None,
            "QueryDocuments": [
                {
                    "name": "d",
                    "text": "{}",
                    "tag": '"1"',
                    "ctime": 1.0,
                    "mtime": 1.0,
                    "serial_no": 1,
                }
            ],
            "ReplaceDocument": '"2"',
            "DeleteDocument": None,
            "CancelJob": [True, "x"],
            "ArchiveJob": True,
            "AutoArchiveJobs": [1, 0],
            "ChangeJobPriority": [True, "x"],
            "QueryConfigValues": lambda fields: [None for _ in fields],
            "SetDrainFlag": lambda flag: flag,
            "SetWatcherPause": lambda until: until,
            "QueryGuestsUsage": {"time": 1.5, "guests": {}},
            "ReadConsoleLog": {"text": "", "position": "1-0", "lost": False, "node": "node1"},
            "Query": query,
            "QueryPage": page,
            "QueryFields": {"fields": []},
            "WaitForJobChange": [["success"], []],
        }
    )
    return master
