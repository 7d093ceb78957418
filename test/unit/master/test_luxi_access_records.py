"""Access records of the users of the REST interface, over a real socket."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any, cast

import pytest

from ganeti import errors
from ganeti.config import Config, access_records
from ganeti.config.history import ObjectChange
from ganeti.luxi import client as luxi
from ganeti.master import history

from .test_luxi_service import Master, client, master

__all__ = ["client", "master"]


def record(key: str, **changed: Any) -> dict[str, Any]:
    return {
        "kind": "session",
        "key": key,
        "owner": "jack",
        "ctime": 1.0,
        "expires": time.time() + 1000,
        "used": None,
        "data": {"by": "password"},
        **changed,
    }


def keys(client: luxi.Client, kind: str | None = None) -> list[str]:
    return sorted(one["key"] for one in client.query_access_records(kind)["records"])


def test_a_record_from_its_making_to_its_end(client: luxi.Client) -> None:
    first = client.query_access_records()
    assert first["records"] == []
    assert client.query_access_records(None, first["serial"]) == {**first, "records": None}
    made = record("a")
    done = client.change_access_records([["put", made], ["put", record("b", kind="token")]])
    assert done["before"] == first["serial"] != done["serial"]
    found = client.query_access_records(None, first["serial"])
    assert found["serial"] == done["serial"]
    assert [one for one in found["records"] if one["key"] == "a"] == [made]
    assert keys(client, "token") == ["b"]
    client.change_access_records([["used", "session", "a", 7.5], ["used", "session", "a", 6.0]])
    client.change_access_records([["used", "session", "nosuch", 7.5]])
    assert client.query_access_records("session")["records"] == [{**made, "used": 7.5}]
    client.change_access_records([["remove", "session", "a"], ["remove", "session", "nosuch"]])
    assert keys(client) == ["b"]


def test_what_changes_nothing_is_no_commit(client: luxi.Client, master: Master) -> None:
    client.change_access_records([["put", record("a", expires=5e9, used=5.0)]])
    before = master.config.snapshot().serial_no
    serial = client.query_access_records()["serial"]
    done = client.change_access_records(
        [
            ["put", record("a", expires=5e9, used=5.0)],
            ["used", "session", "a", 5.0],
            ["remove", "session", "b"],
        ]
    )
    assert done == {"before": serial, "serial": serial}
    assert client.change_access_records([]) == done
    assert master.config.snapshot().serial_no == before


@pytest.mark.parametrize(
    "change",
    [
        [],
        ["put"],
        ["put", []],
        ["end", "session", "a"],
        ["remove", "session"],
        ["used", "session", "a", "now"],
        ["put", record("a", kind="A")],
        ["put", record("a/b")],
        ["put", record("a", expires="soon")],
        ["put", record("a", data=[])],
        ["put", record("a", secret="x")],
        ["put", {"kind": "session", "key": "a"}],
    ],
)
def test_a_wrong_change_makes_the_others_fail_as_well(
    client: luxi.Client, change: list[Any]
) -> None:
    client.change_access_records([["put", record("old")]])
    with pytest.raises(errors.OpPrereqError) as caught:
        client.change_access_records([["put", record("new")], ["remove", "session", "old"], change])
    assert caught.value.ecode == errors.ECODE_INVAL
    assert keys(client) == ["old"]


def test_ended_records_go_with_the_next_new_one(client: luxi.Client) -> None:
    ended = time.time() - access_records.KEPT_S - 5
    client.change_access_records([["put", record("a")]])
    client.change_access_records([["put", record("b", expires=ended)]])
    client.change_access_records([["put", record("c", expires=time.time() - 5)]])
    assert keys(client) == ["a", "c"]


def test_limits(client: luxi.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(access_records, "MAX_OF_OWNER", 2)
    monkeypatch.setattr(access_records, "MAX_RECORDS", 4)
    client.change_access_records([["put", record("a")], ["put", record("b")]])
    with pytest.raises(errors.OpPrereqError, match="user jack has 2") as caught:
        client.change_access_records([["put", record("c")]])
    assert caught.value.ecode == errors.ECODE_NORES
    # In place of another one, of another kind, and of another owner.
    client.change_access_records([["put", record("c")], ["remove", "session", "a"]])
    client.change_access_records([["put", record("a", kind="token")]])
    client.change_access_records([["put", record("d", owner="jill")]])
    with pytest.raises(errors.OpPrereqError, match="which is the limit") as caught:
        client.change_access_records([["put", record("e", owner="joe")]])
    assert caught.value.ecode == errors.ECODE_NORES
    assert keys(client) == ["a", "b", "c", "d"]


def test_many_changes_at_the_same_time(client: luxi.Client, master: Master) -> None:
    """The numbers before and after a change enclose no change of somebody else."""

    def change(number: int) -> tuple[int, int]:
        with luxi.Client(master.path) as own:
            done = own.change_access_records([["put", record(f"k{number}")]])
        return done["before"], done["serial"]

    with ThreadPoolExecutor(8) as pool:
        found = sorted(pool.map(change, range(40)))
    assert len(keys(client)) == 40
    assert len(set(found)) == 40
    for (_before, serial), (after, _serial) in zip(found, found[1:], strict=False):
        assert serial <= after


def test_the_history_shows_nothing_with_which_somebody_could_log_in() -> None:
    made = {"uuid": "u", **record("0123456789abcdef", data={"secret": "s3cret"})}
    used = ({"used": None, "data": {"secret": "s3cret"}}, {"used": 7.0, "data": {}})

    class Past:
        def compare(self, first: int, last: int) -> tuple[int, int, list[ObjectChange]]:
            return (
                first,
                last,
                [
                    ObjectChange("access_records", "u", "u", None, made),
                    ObjectChange("access_records", "u", "u", *used),
                    ObjectChange("documents", "v", "v", None, {"text": "{}"}),
                ],
            )

    found = history.changes(cast("Config", Past()), 1, 2)["changes"]
    assert [one["old"] for one in found] == [None, {"used": None}, None]
    assert [one["new"] and len(one["new"]) for one in found] == [5, 1, 1]
    assert "0123456789abcdef" not in str(found) and "s3cret" not in str(found)
