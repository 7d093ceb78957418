"""Documents which programs keep in the cluster, over a real socket."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest

from ganeti import errors
from ganeti.config import documents
from ganeti.luxi import client as luxi

from .test_luxi_service import Master, client, master

__all__ = ["client", "master"]


def test_a_document_from_its_making_to_its_end(client: luxi.Client) -> None:
    first = client.replace_document("w", None, '{"a":1}')
    (found,) = client.query_documents()
    assert (found["name"], found["text"], found["tag"]) == ("w", '{"a":1}', first)
    second = client.replace_document("w", [first], '{"a":2}')
    assert second != first
    third = client.replace_document("w", ["*"], '{"a":1}')
    assert third not in (first, second)
    assert [one["tag"] for one in client.query_documents(["w"])] == [third]
    client.delete_document("w", ['"x"', third])
    assert client.query_documents() == []
    assert client.replace_document("w", None, '{"a":1}') not in (first, second, third)


@pytest.mark.parametrize("tags", [None, [], ['"x"'], ['W/"x"']])
def test_a_condition_which_does_not_hold(client: luxi.Client, tags: list[str] | None) -> None:
    tag = client.replace_document("w", None, "{}")
    with pytest.raises(errors.OpPrereqError, match="document w") as caught:
        client.replace_document("w", tags, '{"a":1}')
    assert caught.value.ecode == errors.ECODE_STATE
    if tags is not None:
        with pytest.raises(errors.OpPrereqError, match="has changed meanwhile"):
            client.delete_document("w", tags)
    assert client.query_documents(["w"])[0]["tag"] == tag


def test_a_document_which_does_not_exist(client: luxi.Client) -> None:
    for call in (
        lambda: client.query_documents(["w"]),
        lambda: client.delete_document("w", ["*"]),
    ):
        with pytest.raises(errors.OpPrereqError, match="does not exist") as caught:
            call()
        assert caught.value.ecode == errors.ECODE_NOENT
    with pytest.raises(errors.OpPrereqError, match="not exist any more") as caught:
        client.replace_document("w", ["*"], "{}")
    assert caught.value.ecode == errors.ECODE_STATE


def test_what_is_refused(client: luxi.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(errors.OpPrereqError, match="JSON object"):
        client.replace_document("w", None, "[]")
    monkeypatch.setattr(documents, "MAX_DOCUMENTS", 1)
    client.replace_document("w", None, "{}")
    with pytest.raises(errors.OpPrereqError, match="which is the limit"):
        client.replace_document("v", None, "{}")
    client.replace_document("w", ["*"], '{"a":1}')
    assert [one["name"] for one in client.query_documents()] == ["w"]


def _written(
    path: str, tag: str, barrier: threading.Barrier, number: int
) -> tuple[int, str] | None:
    """One of the writers; its number and the new tag, or None when it was refused."""
    with luxi.Client(path) as client:
        barrier.wait()
        try:
            return number, client.replace_document("w", [tag], f'{{"writer":{number}}}')
        except errors.OpPrereqError as err:
            assert err.ecode == errors.ECODE_STATE
            return None


def test_one_of_two_writers_wins(master: Master) -> None:
    """Eight writers replace the same content at once, again and again: one succeeds each time."""
    with luxi.Client(master.path) as own:
        tag = own.replace_document("w", None, '{"writer":-1}')
        for _round in range(10):
            with ThreadPoolExecutor(8) as pool:
                write = partial(_written, master.path, tag, threading.Barrier(8))
                ((winner, tag),) = [found for found in pool.map(write, range(8)) if found]
            (found,) = own.query_documents(["w"])
            assert (found["text"], found["tag"]) == (f'{{"writer":{winner}}}', tag)
