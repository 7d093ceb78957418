"""The history of the configuration over a real socket, changed by real jobs."""

from __future__ import annotations

from pathlib import Path

import pytest

from ganeti import errors
from ganeti.config.history import History
from ganeti.luxi import client as luxi
from ganeti.master.luxi_server import LuxiRequest
from ganeti.objects import codec
from ganeti.opcodes.tags import OpTagsDel, OpTagsSet

from .test_luxi_service import Master, client, master, wait

__all__ = ["client", "master"]


@pytest.fixture(autouse=True)
def history(master: Master, tmp_path: Path) -> History:
    made = History(str(tmp_path / "history"))
    master.config._store._history = made
    return made


def test_jobs_are_named(master: Master, client: luxi.Client) -> None:
    before = master.config.snapshot()
    op = OpTagsSet(kind="cluster", tags=["a"], reason=[["gnt:user", "because", 1]])
    assert wait(client, client.submit_job([op])) == "success"
    middle = master.config.snapshot()
    assert wait(client, client.submit_job([OpTagsDel(kind="cluster", tags=["a"])])) == "success"
    uuid = client.replace_filter(None, 1, [], "ACCEPT", [["gnt:user", "lunch", 1]])
    client.delete_filter(uuid)

    found = client.query_config_history()
    assert [
        (commit["job"], commit["opcode"], commit["source"], commit["reason"]) for commit in found
    ] == [
        (None, "DeleteFilter", "luxid", ""),
        (None, "ReplaceFilter", "luxid", "lunch"),
        (2, "OP_TAGS_DEL", "gnt:opcode:tags_del", ""),
        (1, "OP_TAGS_SET", "gnt:opcode:tags_set", "because"),
    ]
    assert found[-1]["changes"] == [["cluster", "cluster.example.com", "changed", ["tags"]]]
    assert found[-1]["before"] == before.serial_no
    assert client.query_config_history(1) == found[:1]

    changes = client.query_config_changes(before.serial_no, middle.serial_no)
    assert (changes["first"], changes["last"]) == (before.serial_no, middle.serial_no)
    (change,) = changes["changes"]
    assert (change["old"]["tags"], change["new"]["tags"]) == ([], ["a"])
    state = client.query_config_at(middle.serial_no)
    assert state["cluster"]["tags"] == ["a"]
    assert state["serial_no"] == middle.serial_no
    assert client.query_config_at([middle.mtime]) == state
    assert client.query_config_at(master.config.snapshot().serial_no)["filters"] == {}
    assert set(state) == set(codec.to_dict(middle))


def test_what_is_refused(client: luxi.Client) -> None:
    with pytest.raises(errors.OpPrereqError, match="there is no serial number 99 yet"):
        client.query_config_at(99)
    with pytest.raises(errors.OpPrereqError, match="a time is a list of one number"):
        client.query_config_at([])
    for method, args in (
        ("QueryConfigHistory", (-1,)),
        ("QueryConfigAt", ("x",)),
        ("QueryConfigChanges", (1,)),
    ):
        with pytest.raises(errors.GenericError, match=method):
            client.call(method, *args)


def test_secrets_are_for_root(
    master: Master, client: luxi.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    wait(client, client.submit_job([OpTagsSet(kind="cluster", tags=["a"])]))
    serial = master.config.snapshot().serial_no
    assert client.query_config_at(serial)["serial_no"] == serial
    monkeypatch.setattr(LuxiRequest, "peer_uid", lambda _request: 12345)
    for ask in (
        lambda: client.query_config_at(serial),
        lambda: client.query_config_changes(serial - 1, serial),
    ):
        with pytest.raises(errors.OpPrereqError, match="Only root may use it"):
            ask()
    # Who did what is not secret.
    assert client.query_config_history()[0]["opcode"] == "OP_TAGS_SET"
