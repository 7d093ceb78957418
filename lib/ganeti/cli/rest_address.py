"""Addresses of REST interfaces, as users give them to commands."""

from __future__ import annotations

import urllib.parse

from ganeti import errors


def without_user(address: str) -> str:
    """Return an address without user and password, so that it can be shown."""
    scheme, found, rest_of_it = address.rpartition("://")
    if scheme == "file":
        return address
    return f"{scheme}{found}{rest_of_it.rpartition('@')[2]}"


def split(address: str) -> urllib.parse.SplitResult:
    """Split the address of a REST interface; its port is checked.

    :param address: a host, ``host:port``, or ``https://user:password@host:port``.
    :raises ParseError: it is not valid; the message has no password.
    """
    scheme, found, _ = address.partition("://")
    if found and scheme != "https":
        raise errors.ParseError(f"{without_user(address)}: the REST interface speaks only https")
    if address.count(":") > 1 and not found and "[" not in address and "@" not in address:
        address = f"[{address}]"  # an IPv6 address without a port
    wrong = errors.ParseError(
        f"'{without_user(address)}' is not an address; give HOST, HOST:PORT or"
        " https://HOST:PORT, with a number as the port"
    )
    try:
        where = urllib.parse.urlsplit(address if found else f"https://{address}")
        port = where.port
    except ValueError as failure:
        raise wrong from failure
    if not where.hostname or port == 0 or where.path.rstrip("/") or where.query:
        raise wrong
    return where
