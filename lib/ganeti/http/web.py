"""One HTTPS request to a server outside of the cluster.

Such a server lets people log in, or receives news. It is checked as browsers do it, by its
certificate and its name. It may nevertheless be slow, broken or hostile: :func:`request` has limits
for the time and for the size of an answer, follows no redirection, uses no proxy, unpacks nothing,
and sends nothing in the clear. Who lets users name servers passes ``address_allowed``: it gets the
address to which the connection is about to be made, so that a name cannot mean another address
between a check and its use.

Errors name the server and not the rest of the URL: the path of a URL may be a secret.
"""

from __future__ import annotations

import asyncio
import functools
import socket
import threading
import urllib.parse
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final, NamedTuple

import pycurl

from ganeti import errors
from ganeti.http.document import failure_text, verified_handle
from ganeti.http.received import Received

#: Seconds for a connection; less if the whole request has less.
CONNECT_S: Final = 5.0
#: Requests which run at the same time; the others wait.
AT_ONCE: Final = 16
_HTTPS: Final = "https"
_PORT: Final = 443


class WebError(errors.GenericError):
    """There is no answer, or it is above a limit. The server may have received the request."""


class Answer(NamedTuple):
    """What the server has answered, with any status.

    :ivar headers: names in lower case with their values, in the order in which they came.
    """

    status: int
    headers: tuple[tuple[str, str], ...]
    body: bytes

    def header(self, name: str) -> str:
        """Return the first header with a name; empty without one."""
        return next((value for found, value in self.headers if found == name.lower()), "")


#: Says whether a connection may be made to an address, such as ``192.0.2.1`` or ``fe80::1``.
AddressAllowed = Callable[[str], bool]


# Threads of their own: slow servers take none from the other work of the process.
@functools.cache
def _pool() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(AT_ONCE, thread_name_prefix="web")


async def request(
    method: str,
    url: str,
    *,
    headers: Sequence[tuple[str, str]] = (),
    body: bytes | None = None,
    timeout_s: float,
    most_bytes: int,
    ca_file: str = "",
    address_allowed: AddressAllowed | None = None,
) -> Answer:
    """Send a request, and return the answer.

    When the task is canceled, the transfer ends, too, at the latest after a second.

    :param body: None for a request without content.
    :param timeout_s: limit for all of it, from the name of the server to the end of its answer.
    :param most_bytes: the largest body of an answer.
    :param ca_file: certificates to trust; empty for those of the system.
    :param address_allowed: None allows all addresses. It is called in another thread.
    :raises WebError: there is no answer, the URL cannot be used, or a limit was reached.
    :raises ValueError: a header has a character which no header may have.
    """
    transfer = _Transfer(url, Received(most_bytes), address_allowed)
    lines = _header_lines(headers)
    send = functools.partial(transfer.run, method, lines, body, timeout_s, most_bytes, ca_file)
    try:
        return await asyncio.get_running_loop().run_in_executor(_pool(), send)
    finally:
        transfer.stopped.set()


def server_of(url: str) -> str:
    """Return the server of a URL for messages: ``https://HOST[:PORT]``.

    :raises WebError: it is not a URL of HTTPS that names a server and nobody's password.
    """
    try:
        parts = urllib.parse.urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        host, port, parts = None, None, urllib.parse.urlsplit("")
    # libcurl and Python read such characters differently.
    plain = all("!" <= sign <= "~" and sign not in '\\"<>^`{|}' for sign in url)
    if parts.scheme != _HTTPS or not host or not plain or parts.fragment:
        raise WebError("the URL is not https://HOST[:PORT]/PATH, with other characters as %XX")
    if "@" in parts.netloc:
        raise WebError(f"the URL of {host} has a user in it, which is not supported")
    host = f"[{host}]" if ":" in host else host
    return f"{_HTTPS}://{host}" + (f":{port}" if port not in (None, _PORT) else "")


def _header_lines(headers: Sequence[tuple[str, str]]) -> list[str]:
    # libcurl adds the first two by itself, which nobody has asked for.
    lines = ["Expect:", "Accept:"]
    for name, value in headers:
        if any(not " " <= sign <= "~" for sign in name + value) or not name or ":" in name:
            raise ValueError(f"a header {name!r} cannot be sent: its value has a wrong character")
        # libcurl removes a header without a value, unless it ends with a semicolon.
        lines.append(f"{name}: {value}" if value else f"{name};")
    return lines


class _Transfer:
    """One request, which a thread of the pool sends.

    :ivar stopped: nobody waits for the answer any more.
    """

    def __init__(self, url: str, received: Received, allowed: AddressAllowed | None) -> None:
        self.stopped = threading.Event()
        self._url = url
        self._server = server_of(url)
        self._received = received
        self._allowed = allowed
        self._refused = ""

    def run(
        self,
        method: str,
        lines: list[str],
        body: bytes | None,
        timeout_s: float,
        most_bytes: int,
        ca_file: str,
    ) -> Answer:
        """Send the request.

        :raises WebError: see :func:`request`.
        """
        handle = None
        try:
            connect_s = min(CONNECT_S, timeout_s)
            handle = verified_handle(self._url, ca_file, most_bytes, connect_s, timeout_s)
            if body is not None:
                handle.setopt(pycurl.POSTFIELDS, body)
            handle.setopt(pycurl.NOBODY, int(method == "HEAD"))
            handle.setopt(pycurl.CUSTOMREQUEST, method)
            handle.setopt(pycurl.HTTPHEADER, lines)
            handle.setopt(pycurl.WRITEFUNCTION, self._received.write)
            handle.setopt(pycurl.HEADERFUNCTION, self._received.add_header)
            handle.setopt(pycurl.OPENSOCKETFUNCTION, self._open)
            handle.setopt(pycurl.NOPROGRESS, 0)
            handle.setopt(pycurl.XFERINFOFUNCTION, lambda *_sizes: int(self.stopped.is_set()))
            handle.perform()
            status = handle.getinfo(pycurl.RESPONSE_CODE)
        except pycurl.error as err:
            why = self._refused or failure_text(err, self._received)
            raise WebError(f"{self._server}: {why}") from err
        finally:
            if handle is not None:
                handle.close()
        return Answer(status, _headers(self._received.headers), self._received.body())

    def _open(self, _purpose: int, where: tuple[int, int, int, tuple[str, int]]) -> object:
        """Open the socket for a connection, unless its address is not allowed."""
        family, kind, protocol, address = where
        host = address[0]
        if self._allowed is not None and not self._allowed(host):
            self._refused = f"a connection to its address {host} is not allowed"
            return pycurl.SOCKET_BAD
        return socket.socket(family, kind, protocol)


def _headers(lines: Sequence[bytes]) -> tuple[tuple[str, str], ...]:
    """Return the headers of the last answer; others are interim ones."""
    found: list[tuple[str, str]] = []
    for line in lines:
        if line.startswith(b"HTTP/"):
            found = []
            continue
        name, colon, value = line.decode("latin-1").partition(":")
        if colon:
            found.append((name.strip().lower(), value.strip()))
    return tuple(found)
