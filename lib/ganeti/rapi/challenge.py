"""The answer to a request which has no credentials, or wrong ones.

The header ``WWW-Authenticate`` makes a browser ask for a name and a password, in a window which no
page controls. A person who opens an address needs it; a script of our page shows its own form, and
gets the answer without the header. A script is recognized by the headers ``Sec-Fetch-Mode`` and
``Sec-Fetch-Dest``, which all current browsers send over TLS and no page can choose, or by the
cookie of a session which has ended.

Source: RFC 9110, section 11.6.1; W3C *Fetch Metadata Request Headers*.
"""

from __future__ import annotations

from typing import Final

from ganeti.http.messages import Head, Refused
from ganeti.rapi import passwords

#: Name of the cookie with the secret of a session. A browser accepts a name with this prefix from
#: this server only, over TLS, for all paths and for no other host (RFC 6265bis, section 4.1.3.2).
SESSION_COOKIE: Final = "__Host-ganeti-session"

_BASIC: Final = ("WWW-Authenticate", f'Basic realm="{passwords.REALM}"')
# RFC 6750, section 3: the answer to a token which is not valid.
_BEARER: Final = (
    "WWW-Authenticate",
    f'Bearer realm="{passwords.REALM}", error="invalid_token"',
)
_SCRIPT_MODES: Final = ("cors", "no-cors", "same-origin", "websocket")
# What a person or a program has to do after an answer 401.
_MISSING: Final = (
    "this request needs a user name and a password (HTTP basic authentication);"
    " 'rapi-passwd NAME' on the master adds a user"
)


def unauthorized(head: Head, message: str = _MISSING, *, bearer: bool = False) -> Refused:
    """Make the error 401 for a request without credentials, or with wrong ones.

    :param bearer: the request has a token, which is not valid.
    """
    sent = _BEARER if bearer else _BASIC
    return Refused(401, message, headers=() if from_page(head) else [sent])


def from_page(head: Head) -> bool:
    """Return whether a script of a page sent the request, or a browser with a session."""
    headers = head.headers
    return (
        headers.get("sec-fetch-mode", "").strip().lower() in _SCRIPT_MODES
        or headers.get("sec-fetch-dest", "").strip().lower() == "empty"
        or f"{SESSION_COOKIE}=" in headers.get("cookie", "")
    )
