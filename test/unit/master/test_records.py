"""Searches in history and audit log, the queue and earlier states, through the socket."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from ganeti import errors
from ganeti.config import history as config_history
from ganeti.config.history import History
from ganeti.jobstore import audit as store
from ganeti.locking import Level, Owner
from ganeti.luxi import answers
from ganeti.luxi import client as luxi
from ganeti.master import audit_search, history
from ganeti.opcodes.tags import OpTagsDel, OpTagsSet
from ganeti.rapi import typed

from .test_luxi_service import Master, client, master, until, wait

__all__ = ["client", "master"]


@pytest.fixture
def kept(master: Master, tmp_path: Path) -> History:
    made = History(str(tmp_path / "history"), file_commits=3)
    master.config._store._history = made
    return made


def _tag(client: luxi.Client, tag: str, person: str = "", **params: Any) -> None:
    params.setdefault("kind", "cluster")
    reason = [["gnt:person", person, 1]] if person else []
    op = OpTagsSet(tags=[tag], reason=reason, **params)
    assert wait(client, client.submit_job([op])) == "success"


def _fits(hint: Any, value: Any) -> Any:
    assert typed.of(hint)(json.loads(json.dumps(value)))
    return value


# -- history ---------------------------------------------------------------------------------------


def test_commits_are_found_by_what_they_changed(kept: History, client: luxi.Client) -> None:
    _tag(client, "a")
    _tag(client, "b", kind="node", name="node1.example.com")
    wait(client, client.submit_job([OpTagsDel(kind="cluster", tags=["a"])]))

    def found(**chosen: Any) -> list[int]:
        page = _fits(answers.CommitPage, client.call("FindCommits", chosen, 100, None))
        assert page["next"] is None
        return [commit["job"] for commit in page["commits"]]

    assert found() == [3, 2, 1]
    assert found(object="node1") == found(object="node1.example.com") == [2]
    assert found(object="node") == []
    assert found(kind="cluster") == [3, 1]
    assert found(kind="cluster", object="node1") == []
    assert found(job=2) == [2] and found(opcode="OP_TAGS_DEL") == [3]
    (middle,) = client.call("FindCommits", {"job": 2}, 1, None)["commits"]
    assert found(until=middle["time"])[0] == 2 and found(since=middle["time"])[-1] == 2
    assert found(since=middle["time"] + 1e6) == [] == found(person="nobody")


def test_pages_are_complete_while_commits_are_added(kept: History, client: luxi.Client) -> None:
    for number in range(7):
        _tag(client, f"t{number}")
    seen: list[int] = []
    before = None
    while True:
        page = client.call("FindCommits", {}, 2, before)
        seen += [commit["job"] for commit in page["commits"]]
        assert len(page["commits"]) <= 2
        before = page["next"]
        if before is None:
            break
        _tag(client, f"more{before}")
    assert seen == [7, 6, 5, 4, 3, 2, 1]


def test_a_search_is_bounded_and_goes_on(
    kept: History, client: luxi.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(5):
        _tag(client, f"t{number}")
    monkeypatch.setattr(history, "MOST_EXAMINED", 2)
    found, before = [], None
    pages = 0
    while pages == 0 or before is not None:
        page = client.call("FindCommits", {"job": 1}, 10, before)
        found += [commit["job"] for commit in page["commits"]]
        before, pages = page["next"], pages + 1
    assert (found, pages) == ([1], 3)


def test_later_files_are_not_read_for_an_older_page(
    kept: History, client: luxi.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(7):
        _tag(client, f"t{number}")
    (oldest,) = client.call("FindCommits", {"job": 1}, 100, None)["commits"]
    read = []
    parse = config_history._parse
    monkeypatch.setattr(
        config_history, "_parse", lambda path, text: read.append(path) or parse(path, text)
    )
    page = client.call("FindCommits", {}, 100, oldest["serial"] + 1)
    assert [commit["job"] for commit in page["commits"]] == [1] and len(read) == 1


def test_what_a_large_commit_changed_is_not_known(kept: History, client: luxi.Client) -> None:
    _tag(client, "a")
    (commit,) = list(kept.commits())
    assert history._is_chosen(commit._replace(changes=None), {"object": "web1"})
    assert not history._is_chosen(commit, {"object": "web1"})


# -- earlier states --------------------------------------------------------------------------------


def test_an_earlier_state_has_the_fields_of_the_present(
    kept: History, master: Master, client: luxi.Client
) -> None:
    before = master.config.snapshot()
    fields = ["name", "tags", "pinst_cnt", "mfree", "role"]
    _tag(client, "old", kind="node", name="node1.example.com")
    _tag(client, "new", kind="node", name="node1.example.com")
    middle = master.config.snapshot().serial_no - 1

    found = _fits(
        answers.PastObjects, client.call("QueryObjectsAt", middle, "node", ["node1"], fields)
    )
    ((name, tags, _count, free, role),) = found["rows"]
    assert (name, tags, free, role) == ("node1.example.com", ["old"], None, "M")
    assert found["serial"] == middle
    every = client.call("QueryObjectsAt", before.serial_no, "node", None, ["name", "tags"])["rows"]
    assert [row[0] for row in every] == [node.name for node in master.config.nodes()]
    assert all(row[1] == [] for row in every)
    status = client.call("QueryObjectsAt", middle, "instance", None, ["name", "status"])["rows"]
    assert all(row[1] is None for row in status)
    _tag(client, "c")
    last = master.config.snapshot().serial_no
    for serial, tags in ((last, ["c"]), (before.serial_no, [])):
        names = ["tags", "name", "vcs_version"]
        rows = client.call("QueryObjectsAt", serial, "cluster", None, names)
        assert rows["rows"] == [[tags, "cluster.example.com", None]]


def test_questions_about_the_past_which_are_refused(
    kept: History, master: Master, client: luxi.Client
) -> None:
    _tag(client, "a")
    serial = master.config.snapshot().serial_no
    for args, said in (
        ((serial + 5, "node", None, ["name"]), "there is no serial number"),
        ((0, "node", None, ["name"]), "the history reaches back to"),
        ((serial, "job", None, ["id"]), "the history has no objects of kind 'job'"),
        ((serial, "node", None, ["nosuch"]), "unknown fields of node: nosuch"),
        ((serial - 1, "node", ["node99"], ["name"]), "node 'node99' is not known"),
    ):
        with pytest.raises(errors.OpPrereqError, match=said):
            client.call("QueryObjectsAt", *args)


# -- the queue -------------------------------------------------------------------------------------


def test_the_queue_with_jobs_that_wait_for_a_lock(master: Master, client: luxi.Client) -> None:
    daemon = Owner(None, "daemon")
    node = master.config.nodes()[0]
    master.locks.acquire(daemon, Level.NODE, [node.uuid], shared=False)
    ids = [client.submit_job([OpTagsSet(kind="node", name=node.name, tags=[tag])]) for tag in "ab"]
    for job_id in ids:
        until(lambda job=job_id: "lock" in str(client.explain_job(job)["reasons"]))  # type: ignore[misc]
    found = _fits(answers.QueueOverview, client.call("QueryQueue", 10))
    assert [(one["job"]["id"], one["position"]) for one in found["jobs"]] == [
        (ids[0], 1),
        (ids[1], 2),
    ]
    (lock,) = [one for one in found["locks"] if one["name"] == f"node/{node.name}"]
    assert lock["holders"] == [{"job": None, "name": "daemon"}]
    assert [one["job"] for one in lock["waiting"]] == ids
    assert client.call("QueryQueue", 1)["more_jobs"] == 1
    master.locks.free(daemon)
    assert [wait(client, job_id) for job_id in ids] == ["success"] * 2


# -- the audit log ---------------------------------------------------------------------------------


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """12 lines in three files, one of them compressed."""
    path = tmp_path / "audit.log"
    chain = store.Chain(str(path))
    for number in range(1, 7):
        name = "web1" if number % 2 else "db1.example.com"
        trail = [["gnt:client:gnt-instance", "x"], ["gnt:person", "bob"]]
        chain.add(
            {
                "time": 100.0 + number,
                "event": event,
                "job": number,
                "status": "queued" if event == "accepted" else "success",
                "ops": [f"INSTANCE_STARTUP({name})"],
                "reason": trail,
            }
            for event in ("accepted", "ended")
        )
        if number == 2:
            (tmp_path / "audit.log-20261101.gz").write_bytes(gzip.compress(path.read_bytes()))
            path.unlink()
        if number == 4:
            path.rename(tmp_path / "audit.log.1")
    return path


def _lines(log: Path, chosen: dict[str, Any], limit: int = 100, before: int | None = None) -> Any:
    return _fits(answers.AuditPage, audit_search.find(str(log), chosen, limit, before))


def test_lines_are_found_in_all_files(log: Path) -> None:
    def found(**chosen: Any) -> list[int]:
        return [one["line"] for one in _lines(log, chosen)["entries"]]

    assert found() == list(range(12, 0, -1))
    assert found(event="ended", object="web1.example.com") == [10, 6, 2]
    assert found(object="db1", event="accepted") == [11, 7, 3]
    assert found(object="db") == [] == found(status="error")
    assert found(job=3) == [6, 5]
    assert found(since=105, until=105.5) == [10, 9]
    (entry, *_rest) = _lines(log, {})["entries"]
    assert entry["program"] == "gnt-instance"


@pytest.mark.parametrize("most", [1, 3, 10_000])
def test_pages_of_the_log_lack_and_repeat_nothing(
    log: Path, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store, "MOST_LINES", most)
    for limit in (1, 2, 5, 12):
        seen, before = [], None
        while True:
            page = _lines(log, {}, limit, before)
            seen += [one["line"] for one in page["entries"]]
            before = page["next"]
            if before is None:
                break
        assert seen == list(range(12, 0, -1))


def test_a_search_in_the_log_is_bounded(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audit_search, "MOST_EXAMINED", 5)
    page = _lines(log, {"job": 1})
    assert (page["entries"], page["next"]) == ([], 8)


def test_damaged_lines_are_counted_and_stop_nothing(log: Path) -> None:
    whole = log.read_bytes().splitlines(keepends=True)
    odd = {"n": 10, "prev": "x", "time": [], "event": 1, "job": "a", "status": 1, "ops": 5}
    whole[1] = json.dumps(odd).encode() + b"\n"
    whole[2] = b"not a line\n"
    log.write_bytes(b"".join(whole) + b'{"n": 13, "ti')
    page = _lines(log, {})
    assert [one["line"] for one in page["entries"]] == [12, 9, *range(8, 0, -1)]
    assert page["unreadable"] == 3


def test_no_log_is_not_an_empty_log(tmp_path: Path, client: luxi.Client) -> None:
    with pytest.raises(errors.OpPrereqError, match="the master has no audit log yet"):
        client.call("FindAuditLines", {}, 10, None)


def test_wrong_questions_are_refused(client: luxi.Client) -> None:
    for method in ("FindCommits", "FindAuditLines"):
        for args in (({"other": 1}, 1, None), ({}, 0, None), ({}, 1001, None), ({}, 1, -1)):
            with pytest.raises(errors.GenericError, match=method):
                client.call(method, *args)
