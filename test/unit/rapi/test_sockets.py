"""An operation which is also a WebSocket: rights, origin and arguments as for its request."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fakes.http_lab import WAIT_S
from fakes.rest_client import Rest, rest_lab
from ganeti import errors, ht
from ganeti.http.websocket import Socket
from ganeti.rapi import declare, openapi
from ganeti.rapi.call import Call
from ganeti.rapi.declare import GET, Query, Read, Resource, Result

client = pytest.importorskip("websockets.sync.client", reason="make venv installs it")
failures = pytest.importorskip("websockets.exceptions")
pytest.importorskip("wsproto", reason="make venv installs it")


async def _answer(call: Call) -> str:
    return "no socket"


async def _talk(call: Call, socket: Socket) -> None:
    await socket.send(json.dumps([call.user, call.uri["instance_name"], call.query["count"]]))
    while (text := await socket.receive()) is not None:
        if text == "ask":
            await call.master.call("QueryClusterInfo")
        if text == "break":
            raise ValueError("a fault")
        await socket.send(text)


RESOURCES = (
    Resource(
        "/2/talk/{instance_name}",
        "talk",
        {
            GET: Read(
                _answer,
                "Talk.",
                Result(ht.Str, "text"),
                (Query("count", "a number", declare.NUMBER, default=1),),
                access=declare.READERS,
                waits=True,
                socket=_talk,
            ),
        },
    ),
    Resource("/2/mute", "mute", {GET: Read(_answer, "Say no.", Result(ht.Str, "text"))}),
)


@pytest.fixture
def rest(tmp_path: Path) -> Iterator[Rest]:
    users = "root pw write\nguest pw\n"
    with rest_lab(tmp_path, users=users, resources=RESOURCES) as one:
        yield one


def connect(rest: Rest, path: str, user: str | None = "root:pw", **headers: str) -> Any:
    sent = {name.replace("_", "-"): value for name, value in headers.items()}
    if user:
        sent["Authorization"] = "Basic " + base64.b64encode(user.encode()).decode()
    where = f"ws://127.0.0.1:{rest.lab.port}{path}"
    return client.connect(where, additional_headers=sent, proxy=None, open_timeout=WAIT_S)


def refused(rest: Rest, path: str, user: str | None = "root:pw", **headers: str) -> int:
    with pytest.raises(failures.InvalidStatus) as caught:
        connect(rest, path, user, **headers)
    status: int = caught.value.response.status_code
    return status


def test_a_socket_gets_the_call(rest: Rest) -> None:
    with connect(rest, "/2/talk/web?count=7") as one:
        assert json.loads(one.recv(WAIT_S)) == ["root", "web", 7]
        one.send("hello")
        assert one.recv(WAIT_S) == "hello"
    assert rest("GET", "/2/talk/web")[:2] == (200, "no socket")


@pytest.mark.parametrize(
    ("status", "path", "user", "headers"),
    [
        (401, "/2/talk/web", None, {}),
        (401, "/2/talk/web", "root:wrong", {}),
        (403, "/2/talk/web", "guest:pw", {}),
        (400, "/2/talk/web?count=x", "root:pw", {}),
        (404, "/2/talk/web/more", "root:pw", {}),
        (403, "/2/talk/web", "root:pw", {"sec_fetch_site": "cross-site"}),
        (403, "/2/talk/web", "root:pw", {"sec_fetch_site": "same-site"}),
        (
            403,
            "/2/talk/web",
            "root:pw",
            {"sec_fetch_site": "cross-site", "sec_fetch_mode": "navigate"},
        ),
        (403, "/2/talk/web", "root:pw", {"origin": "https://evil.example"}),
        (403, "/2/talk/web", "root:pw", {"origin": "null"}),
    ],
)
def test_who_gets_no_socket(
    rest: Rest, status: int, path: str, user: str | None, headers: dict[str, str]
) -> None:
    assert refused(rest, path, user, **headers) == status
    assert not rest.master.asked


def test_the_own_page_gets_one(rest: Rest) -> None:
    own = f"http://127.0.0.1:{rest.lab.port}"
    for headers in ({"origin": own}, {"sec_fetch_site": "same-origin", "origin": "https://front"}):
        with connect(rest, "/2/talk/web", **headers) as one:
            assert one.recv(WAIT_S)


def test_an_operation_without_a_socket_answers_as_always(rest: Rest) -> None:
    assert refused(rest, "/2/mute") == 200


def test_errors_end_the_connection(rest: Rest, caplog: pytest.LogCaptureFixture) -> None:
    rest.master.answers["QueryClusterInfo"] = errors.LuxiError("the master is away")
    for text, code, reason in (
        ("ask", 1013, "the master is away"),
        ("break", 1011, "internal error: ValueError"),
    ):
        with connect(rest, "/2/talk/web") as one:
            one.recv(WAIT_S)
            one.send(text)
            with pytest.raises(failures.ConnectionClosed):
                one.recv(WAIT_S)
        assert one.protocol.close_code == code
        assert reason in one.protocol.close_reason
    assert "a fault" in caplog.text


def test_the_description_has_the_socket(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(openapi.operation_names, "of", lambda _path, _method: "Talk")
    talk, mute = (openapi._path(one)["get"]["responses"] for one in RESOURCES)
    assert "WebSocket" in talk["101"]["description"] and "426" in talk
    assert "101" not in mute and "426" not in mute
