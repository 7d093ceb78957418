"""gnt-cluster audit."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ganeti.jobstore.audit import Chain
from ganeti.platform import paths

from ..conftest import Gnt


@pytest.fixture
def log(here: paths.Paths) -> Path:
    path = Path(here.log_audit_file)
    path.parent.mkdir(parents=True)
    chain = Chain(str(path))
    for number in range(3):
        entry = {"time": 1_800_000_000.5, "event": "ended", "job": number, "status": "success"}
        chain.add([{**entry, "ops": [f"INSTANCE_STARTUP(web{number})"], "reason": []}])
    return path


def test_show(gnt: Gnt, log: Path) -> None:
    ended = gnt("cluster audit -n 2 --no-headers --separator=|")
    assert ended.out.splitlines() == [
        "2|2027-01-15 08:00:00|1|ended|success|INSTANCE_STARTUP(web1)",
        "3|2027-01-15 08:00:00|2|ended|success|INSTANCE_STARTUP(web2)",
    ]


def test_who_submitted_a_job(gnt: Gnt, log: Path) -> None:
    chain = Chain(str(log))
    chain.open()
    entry = {"time": 1_800_000_000.5, "event": "ended", "job": 7, "status": "success"}
    trail = [["gnt:library:rlib2:instances", ""], ["gnt:person", "bob"]]
    chain.add([{**entry, "ops": ["NODE_X"], "reason": trail}])
    lines = gnt("cluster audit").out.splitlines()
    assert lines[0].split()[-1] == "Author"
    assert lines[-1].endswith("NODE_X                 bob (REST)")


def test_json(gnt: Gnt, log: Path) -> None:
    assert [row["n"] for row in json.loads(gnt("cluster audit --output=json").out)] == [1, 2, 3]


def test_verify(gnt: Gnt, log: Path) -> None:
    ended = gnt("cluster audit --verify")
    assert (ended.code, ended.out) == (
        0,
        "3 lines; none was changed or removed between the first and the last\n",
    )
    log.write_text(log.read_text().replace("web1", "web9"))
    ended = gnt("cluster audit --verify")
    assert ended.code == 1
    assert ended.out.splitlines() == [
        f"{log}:3: it does not belong after the line before: a line was changed or removed",
        "3 lines, 1 problems",
    ]
    assert json.loads(gnt("cluster audit --verify --output=json").out)["lines"] == 3


def test_files_which_were_rotated_belong_to_it(gnt: Gnt, log: Path) -> None:
    log.rename(f"{log}.1")
    chain = Chain(str(log))
    chain.open()
    entry = {"time": 1_800_000_000.5, "event": "ended", "status": "success", "ops": ["NODE_X"]}
    chain.add([{**entry, "job": 3, "reason": []}])
    assert gnt("cluster audit --verify").out.startswith("4 lines; none was changed")

    def shown(limit: int) -> list[int]:
        return [row["n"] for row in json.loads(gnt(f"cluster audit -n {limit} --output=json").out)]

    assert [shown(limit) for limit in (0, 1, 2)] == [[1, 2, 3, 4], [4], [3, 4]]
    Path(f"{log}.1").write_text(Path(f"{log}.1").read_text().replace("web2", "web9"))
    ended = gnt("cluster audit --verify")
    assert ended.code == 1 and ended.out.startswith(f"{log}:1: it does not belong after")


def test_a_missing_file(gnt: Gnt, here: paths.Paths) -> None:
    assert "there is no audit log" in gnt("cluster audit").err
    assert "cannot read the audit log /missing: No such file" in gnt("cluster audit /missing").err
