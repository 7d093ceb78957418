"""A document on a real HTTPS server: conditions, trust, credentials, faults."""

from __future__ import annotations

import ssl
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from fakes import endless_server, witness_server
from fakes.endless_server import EndlessServer
from ganeti import errors
from ganeti.http.document import Access, Changed, DocumentError, WebDocument, parse_auth
from ganeti.utils import retry, x509

pytestmark = pytest.mark.programs


class Lab:
    """A server, and the files of a client."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        pem = x509.create_self_signed("localhost")
        (directory / "server.pem").write_text(pem)
        (directory / "ca.pem").write_text(x509.certificate_part(pem))
        self.auth = directory / "auth"
        self.log_in(witness_server.PASSWORD)
        self.process = subprocess.Popen([sys.executable, witness_server.__file__, str(directory)])
        self.url = ""

    def wait(self) -> None:
        """Wait until the server listens."""
        port = self.directory / "port"
        retry.until(lambda: _again(port.exists()), timeout_s=120, delay=(0.001, 1, 0.01))
        self.url = f"https://localhost:{port.read_text()}{witness_server.PATH}"

    def log_in(self, password: str) -> None:
        self.auth.write_text(f"user = node1\npassword = {password}\n")

    def fault(self, *words: str) -> None:
        (self.directory / "faults").write_text("".join(f"{word}\n" for word in words))

    def open(self, url: str = "", ca: str = "ca.pem") -> WebDocument:
        ca_file = str(self.directory / ca) if ca else ""
        return WebDocument(url or self.url, Access(ca_file, str(self.auth)))


def _again(done: bool) -> None:
    if not done:
        raise retry.Again


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    lab = Lab(tmp_path_factory.mktemp("witness"))
    try:
        lab.wait()
        yield lab
    finally:
        lab.process.terminate()
        lab.process.wait()


@pytest.fixture
def lab(served: Lab) -> Lab:
    served.fault()
    (served.directory / "document").unlink(missing_ok=True)
    served.log_in(witness_server.PASSWORD)
    return served


def test_a_write_replaces_what_was_read(lab: Lab) -> None:
    one, other = lab.open(), lab.open()
    assert one.read() == (None, "")
    one.replace("a", "")
    with pytest.raises(Changed):
        other.replace("b", "")
    text, tag = one.read()
    assert text == "a"
    assert tag
    other.replace("b", tag)
    with pytest.raises(Changed):
        one.replace("c", tag)
    assert one.read().text == "b"


def test_a_lost_answer(lab: Lab) -> None:
    document = lab.open()
    lab.fault("lost")
    with pytest.raises(DocumentError) as caught:
        document.replace("a", "")
    assert not isinstance(caught.value, Changed)
    lab.fault("twice")
    with pytest.raises(Changed):
        document.replace("b", document.read().tag)
    assert document.read().text == "b"


def test_weak_tags_are_refused(lab: Lab) -> None:
    lab.open().replace("a", "")
    lab.fault("weak")
    with pytest.raises(DocumentError, match="no strong entity tag"):
        lab.open().read()


def test_the_certificate_must_be_trusted_and_have_the_name(lab: Lab) -> None:
    with pytest.raises(DocumentError, match="certificate"):
        lab.open(ca="").read()
    with pytest.raises(DocumentError, match="127.0.0.1"):
        lab.open(lab.url.replace("localhost", "127.0.0.1")).read()


def test_errors_name_the_server_and_no_secret(lab: Lab) -> None:
    lab.log_in("wrong secret")
    document = lab.open()
    with pytest.raises(DocumentError, match="does not accept the credentials") as caught:
        document.read()
    assert "wrong secret" not in str(caught.value)
    # A new password counts at once.
    lab.log_in(witness_server.PASSWORD)
    assert document.read().text is None
    lab.fault("deaf")
    with pytest.raises(DocumentError, match="https://localhost"):
        document.read()
    lab.fault("refuse")
    with pytest.raises(DocumentError, match="status 507"):
        document.replace("a", "")


@pytest.mark.parametrize("answer", endless_server.ANSWERS)
def test_an_answer_without_end_is_not_received(tmp_path: Path, answer: str) -> None:
    pem = tmp_path / "server.pem"
    pem.write_text(x509.create_self_signed("localhost"))
    ca = tmp_path / "ca.pem"
    ca.write_text(x509.certificate_part(pem.read_text()))
    with EndlessServer(str(pem), answer, address="127.0.0.1") as server:
        document = WebDocument(f"https://localhost:{server.port}/x", Access(str(ca)))
        with pytest.raises(DocumentError, match="answer has more than 65536 bytes"):
            document.read()
        assert server.sent_bytes < 16 << 20


def test_a_missing_file_is_an_error(lab: Lab) -> None:
    with pytest.raises(DocumentError, match="no-such-file"):
        WebDocument(lab.url, Access(auth_file="/no-such-file")).read()


@pytest.mark.parametrize(
    "text",
    [
        "",
        "user = a\n",
        "password = b\n",
        "user=a\nuser=b\npassword=c",
        "secret",
        "user=a:b\npassword=c",
        "-----BEGIN CERTIFICATE-----\n",
    ],
)
def test_wrong_credentials_are_not_shown(text: str) -> None:
    with pytest.raises(errors.ParseError) as caught:
        parse_auth(text, "/a/file")
    assert "/a/file" in str(caught.value)
    assert "secret" not in str(caught.value).replace("SECRET", "")


def test_credentials_are_not_shown() -> None:
    auth = parse_auth("# x\nuser = a\npassword =  b = c \n", "f")
    assert (auth.user, auth.password) == ("a", "b = c")
    assert "b = c" not in repr(auth)


class _Guarded(BaseHTTPRequestHandler):
    """Shows the subject of the client's certificate as the document."""

    def do_GET(self) -> None:
        assert isinstance(self.connection, ssl.SSLSocket)
        certificate = self.connection.getpeercert()
        assert certificate is not None
        subject = dict(pair for (pair,) in certificate["subject"])
        content = str(subject["commonName"]).encode()
        self.send_response(200)
        self.send_header("ETag", '"1"')
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def guarded(tmp_path: Path) -> Iterator[tuple[Path, str]]:
    """A directory with ``ca.pem`` and ``client.pem``, and a server which demands the latter."""
    server_pem, client_pem = x509.create_self_signed("localhost"), x509.create_self_signed("node1")
    (tmp_path / "server.pem").write_text(server_pem)
    (tmp_path / "ca.pem").write_text(x509.certificate_part(server_pem))
    (tmp_path / "client.pem").write_text(client_pem)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "server.pem")
    context.load_verify_locations(cadata=x509.certificate_part(client_pem))
    context.verify_mode = ssl.CERT_REQUIRED
    with ThreadingHTTPServer(("127.0.0.1", 0), _Guarded) as server:
        server.socket = context.wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield tmp_path, f"https://localhost:{server.server_port}/document"
        server.shutdown()
        thread.join()


def test_the_server_gets_the_certificate_of_the_client(guarded: tuple[Path, str]) -> None:
    directory, url = guarded
    access = Access(str(directory / "ca.pem"), str(directory / "client.pem"))
    assert WebDocument(url, access).read() == ("node1", '"1"')


@pytest.mark.parametrize("other", [False, True])
def test_a_server_which_demands_a_certificate_refuses_others(
    guarded: tuple[Path, str], *, other: bool
) -> None:
    directory, url = guarded
    if other:
        (directory / "other.pem").write_text(x509.create_self_signed("node1"))
    auth = str(directory / "other.pem") if other else ""
    with pytest.raises(DocumentError, match="localhost"):
        WebDocument(url, Access(str(directory / "ca.pem"), auth)).read()
