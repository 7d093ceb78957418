"""Fetching images: curl gets the limits wherever it is started."""

from __future__ import annotations

import ast
import functools
import http.server
import shutil
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from fakes.redirecting_server import redirecting_server
from ganeti import errors
from ganeti.storage import copy
from ganeti.utils import process

LIB = Path(copy.__file__).parents[1]


def test_the_limits_of_curl() -> None:
    argv = copy.fetch_argv("https://host/secret", "/target", 12345)
    assert not any("host" in word for word in argv)
    assert argv[:3] == ["prlimit", "--fsize=12345", "curl"] and "--globoff" in argv
    assert argv[argv.index("--max-filesize") + 1] == "12345"
    assert argv[argv.index("--proto") + 1].startswith("=")
    # The address is read from standard input, which other users cannot see.
    assert argv[-2:] == ["--config", "-"]


def test_curl_is_started_in_one_way() -> None:
    """Another call of curl would have to get the same limits."""
    texts = {path: path.read_text(encoding="utf-8") for path in LIB.rglob("*.py")}
    found = [
        path.relative_to(LIB).as_posix()
        for path, text in texts.items()
        if "curl" in text or "wget" in text
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.List | ast.Tuple)
        and node.elts
        and isinstance(node.elts[0], ast.Constant)
        and str(node.elts[0].value).rpartition("/")[2] in ("curl", "wget")
    ]
    assert found == ["storage/copy.py"]


class Handler(http.server.BaseHTTPRequestHandler):
    """Answers each path with itself, 20 bytes or more."""

    def do_GET(self) -> None:
        body = self.path.encode().ljust(20)
        self.send_response(200)
        if "chunked" in self.path:
            # Without a length in advance.
            self.end_headers()
            self.wfile.write(body * 100_000)
            return
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - its name there
        """Nothing to say."""


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as made:
        thread = threading.Thread(target=functools.partial(made.serve_forever, 0.05))
        thread.start()
        yield f"http://127.0.0.1:{made.server_port}"
        made.shutdown()
        thread.join()


def fetch(address: str, target: Path, max_bytes: int, env: Mapping[str, str] | None = None) -> None:
    process.run(
        copy.fetch_argv(address, str(target), max_bytes),
        timeout_s=60,
        stdin=copy.fetch_input(address),
        env=env,
    )


@pytest.mark.programs
@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
class TestCurl:
    def test_brackets_are_no_pattern(self, server: str, tmp_path: Path) -> None:
        for path in ("/image[1-3]", "/image{a,b}", '/a"b\\n'):
            target = tmp_path / "one"
            fetch(f"{server}{path}", target, 1000)
            assert [one.name for one in tmp_path.iterdir()] == ["one"]
            assert target.read_bytes().startswith(b"/")

    def test_a_larger_file_is_an_error(self, server: str, tmp_path: Path) -> None:
        fetch(f"{server}/image", tmp_path / "fits", 20)
        with pytest.raises(errors.CommandError):
            fetch(f"{server}/image", tmp_path / "large", 19)
        assert not (tmp_path / "large").exists() or not (tmp_path / "large").read_bytes()

    def test_a_larger_file_without_a_length_is_an_error(self, server: str, tmp_path: Path) -> None:
        """Version 7.88 of curl compares only the announced length with its limit."""
        target = tmp_path / "large"
        with pytest.raises(errors.CommandError):
            fetch(f"{server}/chunked", target, 100_000)
        assert target.stat().st_size <= 100_000

    def test_redirections_protect_no_less(self, tmp_path: Path) -> None:
        target = tmp_path / "one"
        with redirecting_server(tmp_path) as web:
            env = {"CURL_CA_BUNDLE": web.ca_file}
            for good in (
                f"{web.https}/to/{web.https}/to/{web.https}/image",
                f"{web.http}/to/{web.https}/to/{web.http}/image",
            ):
                fetch(good, target, 1000, env)
                assert target.read_bytes() == b"/image"
                target.unlink()
            web.requests.clear()
            for bad in (
                f"{web.https}/to/{web.http}/image",
                f"{web.https}/to/{web.http}/to/{web.https}/image",
                f"{web.https}/to/ftp://127.0.0.1:1/image",
            ):
                with pytest.raises(errors.CommandError, match="not supported|disabled"):
                    fetch(bad, target, 1000, env)
            assert {scheme for scheme, _path in web.requests} == {"https"}
            with pytest.raises(errors.CommandError, match="not supported|disabled"):
                fetch(f"{web.http}/to/ftp://127.0.0.1:1/image", target, 1000, env)
            assert not target.exists()
