"""A document on a web server, which is read and replaced under conditions.

This is the client for a server outside the cluster: its certificate is checked with its name, as
browsers do, and there are no node calls. A write names the *entity tag* of the content which it
replaces (``If-Match``), or demands that there is none (``If-None-Match: *``); the server refuses it
with status 412 when that has changed. The requests follow RFC 9110, sections 8.8.3 and 13.1.

Errors never contain the password, nor the address with a user in it.
"""

from __future__ import annotations

import os
import threading
from typing import NamedTuple

import pycurl

from ganeti import errors
from ganeti.http.received import Received

#: Time limits in seconds: for a connection, and for a whole request.
CONNECT_S = 3.0
REQUEST_S = 5.0
#: A document is small; more bytes than these are something else.
MAX_BYTES = 64 * 1024

_FOUND_AT_LEAST = 200
_FOUND_BELOW = 300
_MISSING = (404, 410)
_CONFLICT = 412
_FORBIDDEN = (401, 403)


class DocumentError(errors.GenericError):
    """The server cannot be reached, or its answer is none that was asked for."""


class Changed(DocumentError):
    """The write was refused, because the document is not the one which was to be replaced."""


class Found(NamedTuple):
    """The present document.

    :ivar text: its content; None when there is no document.
    :ivar tag: its entity tag, with its quotes; empty when there is no document.
    """

    text: str | None
    tag: str


class Access(NamedTuple):
    """What the server must show, and what it gets.

    :ivar ca_file: certificates to trust; empty for those of the system.
    :ivar auth_file: the file of :func:`parse_auth`, or a PEM file with a certificate and its key;
        empty for none.
    """

    ca_file: str = ""
    auth_file: str = ""


_NO_ACCESS = Access()


class Auth(NamedTuple):
    """Credentials: a user with a password, or the path of a PEM file."""

    user: str = ""
    password: str = ""
    certificate: str = ""

    def __repr__(self) -> str:
        return "Auth(...)"


def parse_auth(text: str, path: str) -> Auth:
    """Read the credentials for a server.

    :param text: a line ``user = NAME`` and a line ``password = SECRET``; lines which begin with
        ``#`` are comments. Or the PEM text of a certificate and its key.
    :param path: the file, for messages; libcurl reads a certificate from there itself.
    :raises ParseError: it is neither. The message does not contain the text.
    """
    if "-----BEGIN " in text:
        if "PRIVATE KEY-----" not in text or "-----BEGIN CERTIFICATE-----" not in text:
            raise errors.ParseError(f"{path} must have both a certificate and its key")
        return Auth(certificate=path)
    found: dict[str, str] = {}
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        word, sign, value = line.partition("=")
        name = word.strip()
        if not sign or name not in ("user", "password") or name in found:
            raise errors.ParseError(
                f"{path}, line {number}: expected 'user = NAME' and 'password = SECRET', each once"
            )
        found[name] = value.strip()
    if not found.get("user") or not found.get("password") or ":" in found["user"]:
        raise errors.ParseError(
            f"{path}: expected 'user = NAME' and 'password = SECRET', or a certificate and its key"
        )
    return Auth(found["user"], found["password"])


class WebDocument:
    """A document on a server. Thread-safe; requests are made one after the other.

    :param url: ``https://HOST[:PORT]/PATH``.
    """

    def __init__(self, url: str, access: Access = _NO_ACCESS) -> None:
        self.url = url
        self._access = access
        self._lock = threading.Lock()
        self._handle: pycurl.Curl | None = None
        self._files: tuple[float, ...] = ()

    def read(self) -> Found:
        """Read the document.

        :raises DocumentError: no answer, or one which is not a document.
        """
        status, tag, body = self._perform("GET", None, ())
        if status in _MISSING:
            return Found(None, "")
        self._require(status, "read")
        if not tag or tag.startswith("W/"):
            raise DocumentError(
                f"{self.url}: the server gives no strong entity tag (ETag), so writes cannot be"
                " conditional"
            )
        try:
            return Found(body.decode("utf-8"), tag)
        except UnicodeDecodeError as err:
            raise DocumentError(f"{self.url}: the document is not text") from err

    def replace(self, text: str, tag: str) -> None:
        """Write the document if it is still the one with this tag; with no tag, if there is none.

        :raises Changed: the server refused the write for that reason. When a proxy sends a request
            twice, the first one may have been carried out nevertheless.
        :raises DocumentError: no answer, or an error. The write may have been carried out, or may
            be carried out later.
        """
        condition = f"If-Match: {tag}" if tag else "If-None-Match: *"
        status, _tag, _body = self._perform(
            "PUT", text.encode("utf-8"), (condition, "Content-Type: application/json")
        )
        if status == _CONFLICT:
            raise Changed(f"{self.url}: the document has changed meanwhile")
        self._require(status, "written")

    def another(self) -> WebDocument:
        """Return an object for the same document, with a connection of its own."""
        return WebDocument(self.url, self._access)

    def _require(self, status: int, what: str) -> None:
        if _FOUND_AT_LEAST <= status < _FOUND_BELOW:
            return
        hint = ""
        if status in _FORBIDDEN:
            hint = ", so it does not accept the credentials"
        raise DocumentError(
            f"{self.url}: the document cannot be {what}, the server answers with status"
            f" {status}{hint}"
        )

    def _perform(
        self, method: str, content: bytes | None, headers: tuple[str, ...]
    ) -> tuple[int, str, bytes]:
        received = Received(MAX_BYTES)
        with self._lock:
            try:
                handle = self._prepared()
                handle.setopt(pycurl.CUSTOMREQUEST, method)
                handle.setopt(pycurl.HTTPHEADER, ["Expect:", "Accept: application/json", *headers])
                if content is None:
                    handle.setopt(pycurl.HTTPGET, 1)
                else:
                    handle.setopt(pycurl.POSTFIELDS, content)
                handle.setopt(pycurl.WRITEFUNCTION, received.write)
                handle.setopt(pycurl.HEADERFUNCTION, received.add_header)
                handle.perform()
                status = handle.getinfo(pycurl.RESPONSE_CODE)
            except pycurl.error as err:
                self._forget()
                raise DocumentError(f"{self.url}: {failure_text(err, received)}") from err
            except OSError as err:
                raise DocumentError(f"cannot read {err.filename}: {err.strerror}") from err
            except errors.ParseError as err:
                raise DocumentError(str(err)) from err
        tag = ""
        for line in received.headers:
            name, _, value = line.partition(b":")
            if name.strip().lower() == b"etag":
                tag = value.decode("ascii", "replace").strip()
        return status, tag, received.body()

    def _forget(self) -> None:
        if self._handle is not None:
            self._handle.close()
            self._handle = None

    def _prepared(self) -> pycurl.Curl:
        """Return the handle, a new one if a file with credentials or certificates has changed."""
        files = tuple(
            os.stat(path).st_mtime
            for path in (self._access.ca_file, self._access.auth_file)
            if path
        )
        if self._handle is not None and files == self._files:
            return self._handle
        self._forget()
        self._files = files
        handle = self._handle = verified_handle(
            self.url, self._access.ca_file, MAX_BYTES, CONNECT_S, REQUEST_S
        )
        if self._access.auth_file:
            self._authenticate(handle, self._access.auth_file)
        return handle

    @staticmethod
    def _authenticate(handle: pycurl.Curl, path: str) -> None:
        with open(path, encoding="utf-8", errors="replace") as stream:
            auth = parse_auth(stream.read(), path)
        if auth.certificate:
            handle.setopt(pycurl.SSLCERTTYPE, "PEM")
            handle.setopt(pycurl.SSLCERT, path)
            handle.setopt(pycurl.SSLKEY, path)
        else:
            handle.setopt(pycurl.HTTPAUTH, pycurl.HTTPAUTH_BASIC)
            handle.setopt(pycurl.USERNAME, auth.user)
            handle.setopt(pycurl.PASSWORD, auth.password)


def verified_handle(
    url: str, ca_file: str, most_bytes: int, connect_s: float, timeout_s: float
) -> pycurl.Curl:
    """Make a handle of libcurl for a server outside of the cluster.

    :param ca_file: certificates to trust; empty for those of the system.
    """
    handle = pycurl.Curl()
    for option, value in (
        (pycurl.URL, url),
        (pycurl.NOSIGNAL, 1),  # threads
        (pycurl.PROXY, ""),  # even if the environment names one
        (pycurl.USERAGENT, "ganeti"),
        (pycurl.FOLLOWLOCATION, 0),
        # Of the announced length; what comes is counted in Received.
        (pycurl.MAXFILESIZE, most_bytes),
        (pycurl.CONNECTTIMEOUT_MS, max(1, int(connect_s * 1000))),
        (pycurl.TIMEOUT_MS, max(1, int(timeout_s * 1000))),
        (pycurl.SSL_VERIFYPEER, 1),
        (pycurl.SSL_VERIFYHOST, 2),
        (pycurl.SSLVERSION, pycurl.SSLVERSION_TLSv1_2),
        (pycurl.PROTOCOLS, pycurl.PROTO_HTTPS),
    ):
        handle.setopt(option, value)
    if ca_file:
        handle.setopt(pycurl.CAINFO, ca_file)
        # Otherwise the authorities of the system would be trusted in addition.
        handle.unsetopt(pycurl.CAPATH)
    return handle


def failure_text(failure: pycurl.error, received: Received) -> str:
    """Return why a transfer has failed."""
    code, text = (*failure.args, "")[:2]
    if code == pycurl.E_FILESIZE_EXCEEDED:
        received.note_size()
    return received.excess or str(text) or f"failure {code}"
