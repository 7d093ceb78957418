"""Requests to a server outside of the cluster: trust, limits, addresses, the end of a task."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from fakes import endless_server
from fakes.endless_server import EndlessServer
from fakes.web_server import Answer, Hangup, Request, WebServer, web_server
from ganeti.http import web
from ganeti.utils import x509

pytestmark = pytest.mark.programs


@pytest.fixture
def server(tmp_path: Path) -> Iterator[WebServer]:
    with web_server(tmp_path, lambda request: Answer(body=request.body)) as running:
        yield running


def ask(server: WebServer, method: str = "GET", path: str = "/x", **more: object) -> web.Answer:
    options = {"timeout_s": 60, "most_bytes": 1000, "ca_file": server.ca_file, **more}
    return asyncio.run(web.request(method, server.url + path, **options))  # type: ignore[arg-type]


def test_a_request_arrives_as_it_was_made(server: WebServer) -> None:
    server.respond = lambda request: Answer(201, request.body, (("X-Two", "a"), ("X-Two", "b")))
    answer = ask(
        server, "POST", "/hook?a=%20b", body=b"\0text", headers=[("X-One", "1"), ("E", "")]
    )
    assert (answer.status, answer.body) == (201, b"\0text")
    assert [value for name, value in answer.headers if name == "x-two"] == ["a", "b"]
    assert (answer.header("X-Two"), answer.header("missing")) == ("a", "")
    (request,) = server.requests
    assert (request.method, request.path, request.body) == ("POST", "/hook?a=%20b", b"\0text")
    assert (request.headers["x-one"], request.headers["e"]) == ("1", "")
    assert "accept-encoding" not in request.headers
    assert "expect" not in request.headers


@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE"])
def test_a_method_without_content(server: WebServer, method: str) -> None:
    ask(server, method)
    assert [(request.method, request.body) for request in server.requests] == [(method, b"")]


def test_an_empty_content_is_sent(server: WebServer) -> None:
    ask(server, "POST", body=b"")
    assert server.requests[0].headers["content-length"] == "0"


def test_a_redirection_is_an_answer(server: WebServer) -> None:
    server.respond = lambda _request: Answer(302, headers=(("Location", server.url + "/other"),))
    assert ask(server).status == 302
    assert len(server.requests) == 1


def test_the_certificate_must_be_trusted_and_have_the_name(server: WebServer) -> None:
    with pytest.raises(web.WebError, match="certificate"):
        ask(server, ca_file="")
    server.url = server.url.replace("localhost", "127.0.0.1")
    with pytest.raises(web.WebError, match="127.0.0.1"):
        ask(server)
    assert not server.requests


def test_no_proxy_of_the_environment(server: WebServer, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("https_proxy", "HTTPS_PROXY", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    assert ask(server).status == 200


def test_an_announced_size_is_refused(server: WebServer) -> None:
    server.respond = lambda _request: Answer(body=b"x" * 1001)
    with pytest.raises(web.WebError, match="more than 1000 bytes"):
        ask(server)


@pytest.mark.parametrize("answer", endless_server.ANSWERS)
def test_an_answer_without_end_is_not_received(tmp_path: Path, answer: str) -> None:
    pem = tmp_path / "server.pem"
    pem.write_text(x509.create_self_signed("localhost", host_names=["localhost"]))
    with EndlessServer(str(pem), answer, address="127.0.0.1") as server:
        url = f"https://localhost:{server.port}/x"
        with pytest.raises(web.WebError, match="answer has more than 65536 bytes"):
            asyncio.run(web.request("GET", url, timeout_s=60, most_bytes=65536, ca_file=str(pem)))
        assert server.sent_bytes < 16 << 20


def test_an_error_does_not_contain_the_path(server: WebServer) -> None:
    def hang_up(_request: Request) -> Answer:
        raise Hangup

    server.respond = hang_up
    with pytest.raises(web.WebError, match="https://localhost:") as caught:
        ask(server, path="/secret")
    assert "secret" not in str(caught.value)


def test_a_slow_answer_ends_at_the_limit(server: WebServer) -> None:
    done = threading.Event()

    def wait(_request: Request) -> Answer:
        done.wait(60)
        return Answer()

    server.respond = wait
    try:
        with pytest.raises(web.WebError, match="timed out"):
            ask(server, timeout_s=0.2)
    finally:
        done.set()


def test_an_address_which_is_not_allowed_gets_nothing(server: WebServer) -> None:
    asked: list[str] = []

    def allowed(address: str) -> bool:
        asked.append(address)
        return False

    with pytest.raises(web.WebError, match="address .* is not allowed"):
        ask(server, address_allowed=allowed)
    assert set(asked) <= {"127.0.0.1", "::1"}
    assert asked
    assert not server.requests
    assert ask(server, address_allowed=lambda _address: True).status == 200


def test_a_cancelled_task_ends_the_transfer(server: WebServer) -> None:
    began, done = threading.Event(), threading.Event()

    def wait(_request: Request) -> Answer:
        began.set()
        done.wait(60)
        return Answer()

    async def cancel() -> None:
        task = asyncio.ensure_future(
            web.request(
                "GET", server.url + "/", timeout_s=600, most_bytes=10, ca_file=server.ca_file
            )
        )
        await asyncio.to_thread(began.wait, 60)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        # The thread is free again although the server has not answered.
        await asyncio.wait_for(_idle(), 60)

    async def _idle() -> None:
        loop = asyncio.get_running_loop()
        barrier = threading.Barrier(web.AT_ONCE)
        await asyncio.gather(
            *(loop.run_in_executor(web._pool(), barrier.wait, 60) for _ in range(web.AT_ONCE))
        )

    server.respond = wait
    try:
        asyncio.run(cancel())
    finally:
        done.set()


@pytest.mark.parametrize(
    "url",
    [
        "http://localhost/", "https:///x", "https://user:pass@host/", "https://host/a b",
        "https://host/\r\nX: y", "https://host:99999/", "https://[::1/", "file:///etc/passwd",
        "https://host\\@other/", "https://h/#part", "https://hö/", "",
    ],
)  # fmt: skip
def test_a_url_which_cannot_be_used(url: str) -> None:
    with pytest.raises(web.WebError, match="URL") as caught:
        asyncio.run(web.request("GET", url, timeout_s=1, most_bytes=1))
    assert "pass" not in str(caught.value)


@pytest.mark.parametrize("header", [("X-A", "b\r\nX-C: d"), ("X\n", "a"), ("A:", "b"), ("", "b")])
def test_a_header_with_a_wrong_character(header: tuple[str, str]) -> None:
    with pytest.raises(ValueError, match="cannot be sent"):
        asyncio.run(
            web.request("GET", "https://localhost/", timeout_s=1, most_bytes=1, headers=[header])
        )


def test_the_name_of_a_server() -> None:
    assert web.server_of("https://[::1]:8443/x?y") == "https://[::1]:8443"
    assert web.server_of("https://host:443/") == "https://host"
