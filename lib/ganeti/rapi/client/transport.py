"""Requests over HTTPS: connections, errors, and what all methods of the client share."""

# ruff: noqa: N802 - the names of methods are published

from __future__ import annotations

import functools
import html
import io
import json
import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final
from urllib.parse import quote, urlencode

import pycurl

from .constants import (
    GANETI_RAPI_PORT,
    GANETI_RAPI_VERSION,
    HTTP_APP_JSON,
    HTTP_DELETE,
    HTTP_GET,
    HTTP_NOT_FOUND,
    HTTP_OK,
    HTTP_POST,
    HTTP_PUT,
)

# Errors of libcurl: the certificate is wrong, or the file with the authorities is unreadable.
_CERTIFICATE_ERRORS: Final = frozenset((51, 60, 77, 83))
# The key of the server is not the pinned one.
_PINNED_KEY_ERROR: Final = 90

_MAX_HEAD_BYTES: Final = 64 * 1024
_KIND_HEADER: Final = "x-ganeti-error"
# CURLAUTH_BEARER of libcurl, for which pycurl has no name.
_HTTPAUTH_BEARER: Final = 1 << 6

CurlConfig = Callable[[pycurl.Curl, logging.Logger], None]
Query = list[tuple[str, Any]]


class Error(Exception):
    """Base class of the errors of this module."""


class GanetiApiError(Error):
    """The server refused the request, or could not be reached.

    :ivar code: HTTP status; None when there was no answer.
    :ivar reason: the sentence of the server; the text of the error without an answer.
    :ivar kind: class of the error in the cluster, such as ``OpPrereqError``, and its code, such as
        ``wrong_state``; empty when the server does not say it.
    :ivar request: method and path, such as ``PUT /2/queue/drain``; empty when none was sent.
    """

    def __init__(
        self,
        msg: str,
        code: int | None = None,
        *,
        reason: str = "",
        kind: tuple[str, str] = ("", ""),
        request: str = "",
    ) -> None:
        super().__init__(msg)
        self.code = code
        self.reason = reason or msg
        self.kind = kind
        self.request = request


class CertificateError(GanetiApiError):
    """The certificate of the server is not trusted."""


class PinnedKeyError(CertificateError):
    """The server has another key than the pinned one."""


def EpochNano() -> int:
    """Return the present time in nanoseconds since 1970, for reason trails."""
    return int(time.time() * 1_000_000_000)


def UsesRapiClient(fn: Callable[..., Any]) -> Callable[..., Any]:
    """Decorator for functions which use the client: initialise libcurl, and clean up afterwards."""

    @functools.wraps(fn)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        pycurl.global_init(pycurl.GLOBAL_ALL)
        try:
            return fn(*args, **kwargs)
        finally:
            # Another thread may use libcurl; the end of the program cleans up, too.
            if threading.active_count() == 1:
                pycurl.global_cleanup()

    return wrapper


def GenericCurlConfig(
    verbose: bool = False,
    use_signal: bool = False,
    use_curl_cabundle: bool = False,
    cafile: str | None = None,
    capath: str | None = None,
    proxy: str | None = None,
    verify_hostname: bool = False,
    connect_timeout: int | None = None,
    timeout: int | None = None,
    pinned_key: str | None = None,
    compressed: bool = False,
    _pycurl_version_fn: Callable[[], tuple[Any, ...]] = pycurl.version_info,
) -> CurlConfig:
    """Return the settings for connections.

    :param use_signal: let libcurl use signals, which is wrong in programs with threads.
    :param use_curl_cabundle: trust the authorities which libcurl trusts.
    :param cafile: file with the certificates of authorities to trust.
    :param capath: directory with such files.
    :param verify_hostname: the certificate must have the name of the server.
    :param connect_timeout: seconds to connect.
    :param timeout: seconds for a request.
    :param pinned_key: hash of the public key of the server, ``sha256//BASE64``; it suffices to
        trust the server, because nobody else has the key.
    :param compressed: accept compressed answers.
    :raises Error: the settings exclude each other, or libcurl does not support them.
    """
    if use_curl_cabundle and (cafile or capath):
        raise Error("cannot trust both libcurl's authorities and others")
    if capath:
        backend = str(_pycurl_version_fn()[5] or "").partition("/")[0].lower()
        if backend not in ("openssl", "libressl", "boringssl", "wolfssl", "nss"):
            raise Error(f"libcurl with {backend or 'no TLS'} cannot use a directory of authorities")

    def configure(curl: pycurl.Curl, logger: logging.Logger) -> None:
        curl.setopt(pycurl.VERBOSE, verbose)
        curl.setopt(pycurl.NOSIGNAL, not use_signal)
        if proxy is not None:
            curl.setopt(pycurl.PROXY, str(proxy))
        curl.setopt(pycurl.SSL_VERIFYHOST, 2 if verify_hostname else 0)
        verify = bool(cafile or capath or use_curl_cabundle)
        curl.setopt(pycurl.SSL_VERIFYPEER, verify)
        if cafile:
            curl.setopt(pycurl.CAINFO, str(cafile))
        if capath:
            curl.setopt(pycurl.CAPATH, str(capath))
        if not verify:
            logger.debug("the server's certificate is not checked")
        if connect_timeout is not None:
            curl.setopt(pycurl.CONNECTTIMEOUT, connect_timeout)
        if timeout is not None:
            curl.setopt(pycurl.TIMEOUT, timeout)
        if pinned_key is not None:
            curl.setopt(pycurl.PINNEDPUBLICKEY, pinned_key)
        if compressed:
            # An empty list stands for all encodings which this libcurl can read.
            curl.setopt(pycurl.ACCEPT_ENCODING, "")

    return configure


def given(**values: Any) -> dict[str, Any]:
    """Return the members which are not None."""
    return {name: value for name, value in values.items() if value is not None}


def options(
    reason: str | None = None, *, dry_run: bool = False, force: bool = False, **values: Any
) -> Query:
    """Return the arguments of the query."""
    found: Query = []
    if dry_run:
        found.append(("dry-run", 1))
    if force:
        found.append(("force", 1))
    found += [
        (
            name.replace("_", "-") if name == "auto_promote" else name,
            int(value) if isinstance(value, bool) else value,
        )
        for name, value in values.items()
        if value is not None
    ]
    if reason:
        found.append(("reason", reason))
    return found


def _error_text(body: Mapping[str, Any], status: int) -> str:
    """Return the text of an error, with the reason which this server adds for a 404."""
    # Servers of other versions escape the text for browsers.
    words = [html.unescape(str(body.get(key, ""))) for key in ("message", "explain")]
    text = f"{body.get('code', status)} {words[0]}: {words[1]}"
    reason = str(body.get("reason") or words[1])
    return text if reason == words[1] else f"{text} ({reason})"


def _error_class(code: Any) -> type[GanetiApiError]:
    """Return the class for an error of libcurl."""
    if code == _PINNED_KEY_ERROR:
        return PinnedKeyError
    return CertificateError if code in _CERTIFICATE_ERRORS else GanetiApiError


class KeptConnection:
    """A connection which stays open between requests, for programs with one thread.

    Its method :meth:`begin` is a ``curl_factory``.
    """

    def __init__(self) -> None:
        self._curl = pycurl.Curl()

    def begin(self) -> Any:
        """Return the handle for a request, which closes the request and not the connection."""
        return _Request(self._curl)

    def close(self) -> None:
        """Close the connection."""
        self._curl.close()


class _Request:
    """A handle of libcurl whose ``close`` forgets the options, and keeps the connection."""

    def __init__(self, curl: pycurl.Curl) -> None:
        self._curl = curl
        self.close = curl.reset

    def __getattr__(self, name: str) -> Any:
        return getattr(self._curl, name)


class _Received:
    """An answer; its bytes are counted, because libcurl before 8.4 only compares what is announced.

    :ivar headers: name in small letters -> value.
    :ivar excess: why the transfer was ended; empty while it was not.
    """

    def __init__(self, most_bytes: int) -> None:
        self.body = io.BytesIO()
        self.headers: dict[str, str] = {}
        self.excess = ""
        self._most_bytes = most_bytes
        self._head_bytes = 0

    @property
    def kind(self) -> tuple[str, str]:
        """Class and code of the error in the cluster; empty without an error."""
        words = [*self.headers.get(_KIND_HEADER, "").split(), "", ""]
        return words[0], words[1]

    def add_header(self, line: bytes) -> int:
        """Count a line of the head; return 0, which ends the transfer, when it is too large."""
        self._head_bytes += len(line)
        name, colon, value = line.decode("iso-8859-1").partition(":")
        if colon:
            self.headers[name.lower()] = value.strip()
        return self._taken(line, self._head_bytes, _MAX_HEAD_BYTES)

    def write(self, data: bytes) -> int:
        """Take a part of the body; return 0, which ends the transfer, when it is too large."""
        taken = self._taken(data, self.body.tell() + len(data), self._most_bytes)
        return self.body.write(data) if taken else 0

    def _taken(self, data: bytes, size: int, most_bytes: int) -> int:
        if size > most_bytes:
            self.excess = f"the answer has more than {most_bytes} bytes"
            return 0
        return len(data)


def _names(items: Iterable[Mapping[str, Any]], key: str) -> list[Any]:
    return [item[key] for item in items]


class Transport:
    """Requests to the REST interface of a cluster, and their answers.

    :param token: an access token of the cluster, instead of user name and password.
    """

    USER_AGENT = "Ganeti RAPI Client"
    #: Largest body of an answer in bytes; more ends the request with an error.
    MAX_ANSWER_BYTES = 256 << 20

    def __init__(
        self,
        host: str,
        port: int = GANETI_RAPI_PORT,
        username: str | None = None,
        password: str | None = None,
        logger: Any = logging,
        curl_config_fn: CurlConfig | None = None,
        curl_factory: Callable[[], pycurl.Curl] | None = None,
        token: str | None = None,
    ) -> None:
        if password is not None and username is None:
            raise Error("a password is given without a user name")
        if token is not None and username is not None:
            raise Error("a token and a user name exclude each other")
        self._token = token
        self._username = username
        self._password = password
        self._logger = logger
        self._curl_config_fn = curl_config_fn
        self._curl_factory = curl_factory
        # A URL has an IPv6 address in brackets.
        shown = f"[{host}]" if ":" in host and not host.startswith("[") else host
        self._base_url = f"https://{shown}:{port}"

    def _CreateCurl(self) -> pycurl.Curl:
        curl = (self._curl_factory or pycurl.Curl)()
        curl.setopt(pycurl.VERBOSE, False)
        curl.setopt(pycurl.FOLLOWLOCATION, False)
        curl.setopt(pycurl.NOSIGNAL, True)
        curl.setopt(pycurl.USERAGENT, self.USER_AGENT)
        curl.setopt(pycurl.SSL_VERIFYHOST, 0)
        curl.setopt(pycurl.SSL_VERIFYPEER, False)
        # No "Expect" before a large body: it costs a second with servers which do not answer it.
        curl.setopt(
            pycurl.HTTPHEADER,
            [f"Accept: {HTTP_APP_JSON}", f"Content-type: {HTTP_APP_JSON}", "Expect:"],
        )
        if self._username is not None:
            curl.setopt(pycurl.HTTPAUTH, pycurl.HTTPAUTH_BASIC)
            curl.setopt(pycurl.USERNAME, self._username)
            curl.setopt(pycurl.PASSWORD, self._password or "")
        elif self._token is not None:
            curl.setopt(pycurl.HTTPAUTH, _HTTPAUTH_BEARER)
            curl.setopt(pycurl.XOAUTH2_BEARER, self._token)
        if self._curl_config_fn is not None:
            self._curl_config_fn(curl, self._logger)
        return curl

    def _SendRequest(
        self,
        method: str,
        path: str,
        query: Query | None,
        content: Any,
        headers: dict[str, str] | None = None,
    ) -> Any:
        """Send a request and return the value in its answer.

        :param content: body, as a value; None for no body.
        :param headers: takes the headers of the answer, by their names in small letters.
        :raises CertificateError: the certificate of the server is not trusted.
        :raises GanetiApiError: the server cannot be reached, or refused the request.
        """
        url = self._base_url + path
        request = f"{method} {path}"
        if query:
            url += "?" + urlencode(query)
        curl = self._CreateCurl()
        received = _Received(self.MAX_ANSWER_BYTES)
        try:
            curl.setopt(pycurl.CUSTOMREQUEST, method)
            curl.setopt(pycurl.URL, url)
            curl.setopt(pycurl.WRITEFUNCTION, received.write)
            curl.setopt(pycurl.HEADERFUNCTION, received.add_header)
            if content is not None:
                curl.setopt(pycurl.POSTFIELDS, json.dumps(content))
            elif method in (HTTP_PUT, HTTP_POST):
                curl.setopt(pycurl.POSTFIELDS, "")
                # A request without a body has no content type.
                curl.setopt(
                    pycurl.HTTPHEADER, [f"Accept: {HTTP_APP_JSON}", "Content-Type:", "Expect:"]
                )
            self._logger.debug("%s %s", method, url)
            try:
                curl.perform()
            except pycurl.error as err:
                code, message = (*err.args, "", "")[:2]
                message = received.excess or message
                raise _error_class(code)(
                    f"cannot talk to {self._base_url}: {message}", request=request
                ) from err
            status = int(curl.getinfo(pycurl.RESPONSE_CODE))
        finally:
            curl.close()
        if headers is not None:
            headers.update(received.headers)
        text = received.body.getvalue().decode("utf-8", "replace")
        try:
            value = json.loads(text) if text else None
        except ValueError:
            value = text
        if status == HTTP_OK:
            return value
        if isinstance(value, dict) and "message" in value:
            raise GanetiApiError(
                _error_text(value, status),
                code=status,
                reason=html.unescape(str(value.get("reason") or value.get("explain") or "")),
                kind=received.kind,
                request=request,
            )
        raise GanetiApiError(str(value), code=status, request=request)

    def _get(self, path: str, query: Query | None = None, content: Any = None) -> Any:
        return self._SendRequest(HTTP_GET, path, query, content)

    def _put(self, path: str, query: Query | None = None, content: Any = None) -> Any:
        return self._SendRequest(HTTP_PUT, path, query, content)

    def _post(self, path: str, query: Query | None = None, content: Any = None) -> Any:
        return self._SendRequest(HTTP_POST, path, query, content)

    def _delete(self, path: str, query: Query | None = None, content: Any = None) -> Any:
        return self._SendRequest(HTTP_DELETE, path, query, content)

    def _list(self, kind: str, key: str, bulk: bool, reason: str | None) -> Any:
        path = f"/{GANETI_RAPI_VERSION}/{kind}"
        if bulk:
            return self._get(path, options(reason, bulk=1))
        return _names(self._get(path, options(reason)), key)

    @staticmethod
    def _path(kind: str, name: Any = None, *more: Any) -> str:
        words = [str(word) for word in (name, *more) if word is not None]
        return "/".join([f"/{GANETI_RAPI_VERSION}/{kind}", *(quote(word, "") for word in words)])

    def GetVersion(self) -> int:
        """Return the version of the interface."""
        return int(self._get("/version"))

    def GetFeatures(self) -> list[str]:
        """Return the features of the server; an empty list for old servers."""
        try:
            return list(self._get(self._path("features")))
        except GanetiApiError as err:
            if err.code == HTTP_NOT_FOUND:
                return []
            raise
