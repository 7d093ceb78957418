"""The resource ``/2/documents``: conditions become arguments of the master, and its errors 412."""

from __future__ import annotations

from typing import Any

import pytest

from fakes.rest_client import Rest
from ganeti import errors

from .test_application import rest

__all__ = ["rest"]

KEPT = {
    "name": "w",
    "text": '{"a":1}',
    "tag": '"t1"',
    "ctime": 1.0,
    "mtime": 2.0,
    "serial_no": 3,
}
PATH = "/2/documents/w"


@pytest.fixture
def kept(rest: Rest) -> Rest:
    rest.master.answers.update(QueryDocuments=[KEPT], ReplaceDocument='"t2"', DeleteDocument=None)
    return rest


def test_reading(kept: Rest) -> None:
    assert kept("GET", "/2/documents")[1] == [{"name": "w", "uri": PATH}]
    (listed,) = kept("GET", "/2/documents?bulk=1")[1]
    assert listed == {name: value for name, value in KEPT.items() if name != "text"}
    status, found, headers = kept("GET", PATH)
    assert (status, found, headers["etag"]) == (200, {"a": 1}, '"t1"')
    assert kept("GET", PATH, if_none_match='"t1"')[0] == 304
    kept.master.answers["QueryDocuments"] = errors.OpPrereqError("no", errors.ECODE_NOENT)
    assert kept("GET", PATH)[0] == 404


@pytest.mark.parametrize(
    ("headers", "tags"),
    [
        ({"if_match": '"t1"'}, ['"t1"']),
        ({"if_match": ' "t0" , W/"t1"'}, ['"t0"', 'W/"t1"']),
        ({"if_match": "*"}, ["*"]),
        ({"if_none_match": "*"}, None),
    ],
)
def test_writing(kept: Rest, headers: dict[str, str], tags: list[str] | None) -> None:
    assert kept("PUT", PATH, {"a": 2}, **headers)[:2] == (200, '"t2"')
    assert kept.master.asked == [("ReplaceDocument", ("w", tags, '{"a":2}'))]


@pytest.mark.parametrize(
    "headers",
    [{}, {"if_match": '"t1"', "if_none_match": "*"}, {"if_none_match": '"t1"'}],
)
def test_a_write_without_a_condition_is_refused(kept: Rest, headers: dict[str, str]) -> None:
    status, body, _headers = kept("PUT", PATH, {}, **headers)
    assert status == 428 and "If-None-Match: *" in body["reason"]
    assert kept("DELETE", PATH)[0] == 428
    assert not kept.master.asked


@pytest.mark.parametrize("body", [None, [], "x", 1])
def test_a_document_is_an_object(kept: Rest, body: Any) -> None:
    assert kept("PUT", PATH, body, if_match="*")[0] == 400
    assert not kept.master.asked


def test_removing(kept: Rest) -> None:
    assert kept("DELETE", PATH, if_match='"t1"')[:2] == (200, None)
    assert kept.master.asked == [("DeleteDocument", ("w", ['"t1"']))]


@pytest.mark.parametrize(
    ("code", "status"),
    [(errors.ECODE_STATE, 412), (errors.ECODE_INVAL, 400), (errors.ECODE_NORES, 409)],
)
def test_errors(kept: Rest, code: str, status: int) -> None:
    refused = errors.OpPrereqError("no", code)
    kept.master.answers.update(ReplaceDocument=refused, DeleteDocument=refused)
    assert kept("PUT", PATH, {}, if_match="*")[0] == status
    assert kept("DELETE", PATH, if_match="*")[0] == status


def test_rights(kept: Rest) -> None:
    """A user with the right to documents only can keep the witness of another cluster."""
    for method in ("GET", "PUT", "DELETE"):
        assert kept(method, PATH, user=None)[0] == 401
        assert kept(method, PATH, user="none:pw")[0] == 403
    assert kept("GET", PATH, user="look:pw")[0] == 200
    assert kept("PUT", PATH, {}, user="look:pw", if_match="*")[0] == 403
    assert kept("PUT", PATH, {}, user="keep:pw", if_match="*")[0] == 200
    assert kept("GET", PATH, user="keep:pw")[0] == 200
    assert kept("PUT", "/2/tags?tag=x", user="keep:pw")[0] == 403
