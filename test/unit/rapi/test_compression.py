"""Compressed answers: who gets one, its entity tags, and what is never compressed."""

from __future__ import annotations

import asyncio
import gzip
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fakes.http_lab import receive_answer
from fakes.rest_client import Rest, rest_lab
from ganeti.rapi import compression
from ganeti.rapi.declare import Job
from ganeti.rapi.resources import RESOURCES

LIST = "/2/instances?bulk=1"
NAMES = [f"instance{number}.example.com" for number in range(200)]


@pytest.fixture
def rest(tmp_path: Path) -> Iterator[Rest]:
    with rest_lab(tmp_path) as one:
        one.master.answers["QueryInstances"] = lambda names, fields, lock: [
            [one.master.value(name, field) for field in fields] for name in names or NAMES
        ]
        yield one


@pytest.mark.parametrize(
    ("accept", "wanted"),
    [
        (None, False),
        ("", False),
        ("identity", False),
        ("br, deflate", False),
        ("gzip", True),
        ("x-gzip", True),
        ("GZIP ; Q=0.5", True),
        ("gzip, deflate, br, zstd", True),
        ("gzip;q=0", False),
        ("gzip;q=0.000", False),
        ("gzip;q=1.000", True),
        ("*", True),
        ("*;q=0", False),
        ("*, gzip;q=0", False),
        ("identity;q=1, gzip;q=0.5", False),
        ("identity;q=0.5, gzip;q=1", True),
        ("identity;q=0, gzip", True),
        # What is not a quality is none.
        ("gzip;q=2", False),
        ("gzip;q=x", False),
        ("gzip;x=1", False),
        (",;,=;q", False),
    ],
)
def test_who_wants_it(accept: str | None, wanted: bool) -> None:
    assert compression.wanted(accept) is wanted


def test_the_same_answer_in_fewer_bytes(rest: Rest) -> None:
    _status, _value, plain = rest("GET", LIST)
    status, data, headers = _coded(rest, LIST)
    assert status == 200 and json.loads(gzip.decompress(data))[7]["name"] == NAMES[7]
    assert int(headers["content-length"]) == len(data) < int(plain["content-length"]) / 5
    assert headers["content-encoding"] == "gzip" and "content-encoding" not in plain
    assert headers["vary"] == plain["vary"] == "Accept, Accept-Encoding"
    # Except for these, a client which does not ask gets what it has always got.
    differ = {"etag", "content-length", "content-encoding", "date"}
    assert {name: value for name, value in plain.items() if name not in differ} == {
        name: value for name, value in headers.items() if name not in differ
    }
    assert _coded(rest, LIST)[1] == data


def _coded(rest: Rest, path: str, method: str = "GET", **headers: str) -> Any:
    """Ask for a compressed answer; the body stays as it came."""
    lines = [f"{method} {path} HTTP/1.1", "Host: h", "Authorization: Basic cm9vdDpwdw=="]
    lines += ["Accept-Encoding: gzip", "Connection: close"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    with rest.lab.connect() as sock:
        sock.sendall(("\r\n".join(lines) + "\r\n\r\n").encode())
        if method == "HEAD":
            data = b""
            while more := sock.recv(65536):
                data += more
            head, body = data.split(b"\r\n\r\n", 1)
            first, *rest_of = head.decode().split("\r\n")
            found = {name.lower(): value for name, _, value in (x.partition(": ") for x in rest_of)}
            return int(first.split(" ")[1]), body, found
        status, found, text = receive_answer(sock)
    return status, text, found


def test_small_answers_stay(rest: Rest) -> None:
    status, text, headers = _coded(rest, "/2/features")
    assert status == 200 and json.loads(text)
    assert "content-encoding" not in headers and headers["vary"] == "Accept"


def test_only_json_is_compressed(rest: Rest) -> None:
    status, text, headers = _coded(rest, LIST, accept="application/yaml")
    assert status == 200 and b"instance7.example.com" in text
    assert "content-encoding" not in headers and headers["vary"] == "Accept"
    assert b"<html" in _coded(rest, "/2/doc")[1]


def test_the_head_of_a_compressed_answer(rest: Rest) -> None:
    whole = _coded(rest, LIST)[2]
    status, body, headers = _coded(rest, LIST, "HEAD")
    assert (status, body) == (200, b"")
    for name in ("content-length", "content-encoding", "etag", "vary"):
        assert headers[name] == whole[name]


def test_each_form_has_its_own_tag(rest: Rest) -> None:
    """RFC 9110, section 8.8.3.3."""
    plain = rest("GET", LIST)[2]["etag"]
    coded = _coded(rest, LIST)[2]["etag"]
    assert coded == plain[:-1] + '-gzip"'
    status, text, headers = _coded(rest, LIST, if_none_match=coded)
    assert (status, text, headers["etag"]) == (304, b"", coded)
    assert "content-encoding" not in headers and "content-length" not in headers
    assert headers["vary"] == "Accept, Accept-Encoding"
    # A proxy which has both forms; the plain one is good for everybody.
    status, _text, headers = _coded(rest, LIST, if_none_match=f"{coded}, {plain}")
    assert (status, headers["etag"]) == (304, plain)
    status, _text, headers = _coded(rest, LIST, if_none_match=f"W/{coded}")
    assert (status, headers["etag"]) == (304, coded)
    # Who does not take the compressed form now gets the plain one.
    assert rest("GET", LIST, if_none_match=coded)[0] == 200
    assert rest("GET", LIST, if_none_match=f'"x", {plain}')[0] == 304
    assert _coded(rest, LIST, if_none_match='"x-gzip"')[0] == 200
    assert _coded(rest, LIST, if_none_match="*")[2]["etag"] == plain


def test_an_answer_which_an_operation_found_unchanged(rest: Rest) -> None:
    """Pages compare the tag in the master; there is no body whose length would be known."""
    rest.master.answers["QueryPage"] = lambda what, fields, qfilter, page: {
        "state": "s",
        "total": 200,
        "next": None,
        "next_offset": None,
        "answer": None
        if page["known"]
        else {"fields": [], "data": [[[0, name]] * len(fields) for name in NAMES]},
    }
    path = "/2/query/instance?fields=name&limit=200"
    coded = _coded(rest, path)[2]["etag"]
    assert coded.endswith('-gzip"')
    status, _text, headers = _coded(rest, path, if_none_match=coded)
    assert (status, headers["etag"], headers["vary"]) == (304, coded, "Accept, Accept-Encoding")
    assert rest("GET", path, if_none_match=coded)[0] == 200


def test_a_change_under_the_condition_of_either_tag(rest: Rest) -> None:
    plain = rest("GET", "/2/instances/web")[2]["etag"]
    coded = plain[:-1] + '-gzip"'
    for condition, status in (
        (plain, 200),
        (coded, 200),
        (f'"x", {coded}', 200),
        (f"W/{coded}", 412),
        ('"x-gzip"', 412),
        (plain[:-1] + '-gzip-gzip"', 412),
    ):
        found = rest("POST", "/2/instances/web/reinstall", if_match=condition)
        assert found[0] == status, condition


def test_documents_are_never_compressed(rest: Rest) -> None:
    content = {"token": "x" * 10_000}
    rest.master.answers["QueryDocuments"] = lambda names: [
        {"name": "a", "tag": '"1"', "text": json.dumps(content)}
    ]
    status, text, headers = _coded(rest, "/2/documents/a")
    assert status == 200 and json.loads(text) == content
    assert "content-encoding" not in headers
    assert (headers["etag"], headers["vary"]) == ('"1"', "Accept")


def test_a_stream_is_not_compressed(rest: Rest, monkeypatch: pytest.MonkeyPatch) -> None:
    async def no_event(_method: str, *args: Any) -> Any:
        if args and args[1]:
            await asyncio.Event().wait()
        return {"epoch": "e", "last": 0, "events": [], "lost": False, "dropped": [0, 0]}

    monkeypatch.setattr(rest.master, "call", no_event)
    with rest.lab.connect() as sock:
        sock.sendall(
            b"GET /2/events HTTP/1.1\r\nHost: h\r\nAccept-Encoding: gzip\r\n"
            b"Authorization: Basic cm9vdDpwdw==\r\n\r\n"
        )
        data = b""
        while b"retry: " not in data:
            data += sock.recv(65536)
    assert b"Content-Encoding" not in data and b"text/event-stream" in data


@pytest.mark.parametrize(("field", "secret"), [("opresult", True), ("summary", False)])
def test_results_of_jobs_are_never_compressed(rest: Rest, field: str, secret: bool) -> None:
    rest.master.answers["Query"] = {"fields": [], "data": [[[0, "x" * 10_000]]]}
    headers = _coded(rest, f"/2/query/job?fields=id,{field}")[2]
    assert ("content-encoding" in headers) is not secret


def test_operations_which_declare_a_secret() -> None:
    declared = {
        (resource.path, method)
        for resource in RESOURCES
        for method, one in resource.operations.items()
        if not isinstance(one, Job) and one.secret
    }
    assert {
        ("/2/documents/{document_name}", "GET"),
        ("/2/jobs/{job_id}", "GET"),
        ("/2/jobs/{job_id}/wait", "GET"),
        ("/2/batch", "POST"),
    } <= declared


def test_a_large_answer_is_compressed_in_a_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    threads = []

    def compress(body: bytes) -> bytes:
        threads.append(threading.current_thread())
        return gzip.compress(body)

    monkeypatch.setattr(compression, "_compress", compress)

    async def both() -> None:
        await compression.compressed(b"x" * ((1 << 17) - 1))
        await compression.compressed(b"x" * (1 << 17))

    asyncio.run(both())
    main = threading.main_thread()
    assert [one is main for one in threads] == [True, False]
