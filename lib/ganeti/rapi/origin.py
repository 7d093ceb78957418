"""Requests which a page of another site makes a browser send are refused.

A browser remembers a password and sends it with every request to this server, also with one which
a foreign page starts: a form on any page could reinstall an instance. A page cannot choose these
headers, so they decide:

* ``Sec-Fetch-Site``, which all current browsers send over TLS, says how the page relates to this
  server;
* ``Origin``, which also older browsers send with everything but ``GET``, names the site of the
  page; without ``Sec-Fetch-Site`` it must be the host to which the request was sent;
* ``Content-Type``: a form can only send the types in :data:`_FORM_TYPES`, also without a body.

A link on a foreign page may lead to something which is only read, but not to a WebSocket: a browser
lets the page of another site read from that, and sends the remembered password with the handshake.
With the cookie of a session, everything but reading needs one of the first two headers. Programs
send none of these headers, except that ``curl -d ''`` sends the type of a form.

Source: W3C *Fetch Metadata Request Headers*; WHATWG *Fetch*, sections "Origin header" and "CORS
protocol"; OWASP *Cross-Site Request Forgery Prevention Cheat Sheet*.
"""

from __future__ import annotations

from typing import Final
from urllib.parse import urlsplit

from ganeti.http import websocket
from ganeti.http.messages import JSON, Head, Refused
from ganeti.rapi.declare import Operation, Read

_OWN_SITE: Final = ("same-origin", "none")
_FORM_TYPES: Final = ("application/x-www-form-urlencoded", "multipart/form-data", "text/plain")
_SAFE_METHODS: Final = ("GET", "HEAD")
_PORTS: Final = {"http": 80, "https": 443}


def check(head: Head, operation: Operation) -> None:
    """Refuse a request which a page of another site makes a browser send.

    :raises Refused: 403 for such a page; 415 for the content type of a form.
    """
    headers = head.headers
    reads = head.method in _SAFE_METHODS and isinstance(operation, Read)
    site = headers.get("sec-fetch-site")
    if site is not None:
        follows_link = (
            headers.get("sec-fetch-mode") == "navigate" and reads and not websocket.wanted(head)
        )
        if site.strip().lower() not in _OWN_SITE and not follows_link:
            raise Refused(403, "the request comes from a page of another site")
    elif "origin" in headers and not _is_own(headers["origin"], headers.get("host", "")):
        raise Refused(403, f"the request comes from a page of {headers['origin'][:100]}")
    if head.method not in _SAFE_METHODS and media_type(head) in _FORM_TYPES:
        raise Refused(
            415,
            f"a form cannot be sent here; send Content-Type: {JSON}, or none without a body",
        )


def check_session(head: Head, operation: Operation) -> None:
    """Refuse a change with the cookie of a session which does not say from which page it comes.

    All browsers say it; a program that has stolen or copied a cookie may not, and has other ways.

    :raises Refused: 403.
    """
    reads = head.method in _SAFE_METHODS and isinstance(operation, Read)
    if reads and not websocket.wanted(head):
        return
    if "sec-fetch-site" not in head.headers and "origin" not in head.headers:
        raise Refused(
            403,
            "a change with the cookie of a session needs the header Origin, which browsers send;"
            " a program uses a token or a password",
        )


def media_type(head: Head) -> str:
    """Return the media type of the body, in lower case."""
    return head.headers.get("content-type", "").partition(";")[0].strip().lower()


def _is_own(origin: str, host: str) -> bool:
    try:
        parts = urlsplit(origin)
        ours = urlsplit(f"{parts.scheme}://{host}")
        default = _PORTS.get(parts.scheme)
        return bool(default) and (parts.hostname, parts.port or default) == (
            ours.hostname,
            ours.port or default,
        )
    except ValueError:
        return False
