"""What the REST interface has for a master in unit tests: answers from a table, keeps questions."""

from __future__ import annotations

from typing import Any

from ganeti.rapi.master import Master

UUID = "11111111-2222-4333-8444-555555555555"


class FakeMaster(Master):
    """Keeps what it was asked; answers from a table of functions."""

    def __init__(self) -> None:
        super().__init__("/nonexistent")
        self.asked: list[tuple[str, tuple[Any, ...]]] = []
        self.answers: dict[str, Any] = {
            "SubmitJob": 12,
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
    known = {"status": "success", "opresult": [None]}
    return [
        [job if field == "id" else known.get(field) for field in fields] for job in ids or [1, 2]
    ]


def busy_master() -> FakeMaster:
    """One which has an answer of the right shape to everything that is asked."""
    master = FakeMaster()
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
            "oper_state": True,
            "valid": True,
            "hidden": False,
            "blacklisted": False,
            "variants": [],
        }
        return {
            "fields": [],
            "data": [[[0, cells.get(field, "x")] for field in fields]] if what else [],
        }

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
            "result": [{"snapshot": "before"}]
            if op["OP_ID"] == "OP_INSTANCE_SNAPSHOT_LIST"
            else {"node1": details},
            "warnings": [],
        }

    master.answers.update(
        {
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
            "SubmitManyJobs": lambda jobs: [[True, 12] for _ in jobs],
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
