"""Host names: the format of ``hosts`` files, and what the system's resolver knows.

Programs do not ask this module but :func:`ganeti.platform.machine.current`, whose answers also know
the names of a virtual cluster. Used by both kinds of machine and by the program which makes virtual
clusters.
"""

from __future__ import annotations

import socket
from typing import NamedTuple

from ganeti import errors
from ganeti.utils.net import is_ip

#: The published TCP port of the node daemon.
NODED_PORT = 1811
#: The TCP port of the REST daemon, unless its option says otherwise.
RAPI_PORT = 5080


class Hostname(NamedTuple):
    """A resolved name: the full name in lower case, and its address."""

    name: str
    ip: str


def parse_hosts(text: str) -> dict[str, Hostname]:
    """Read lines of ``address name [alias...]``; comments start with ``#``.

    :returns: every name and alias in lower case, with the first name of its line. The first line
        that has a name wins.
    :raises ParseError: a line has no name, or does not begin with an address; carries the line.

    Source: hosts(5).
    """
    found: dict[str, Hostname] = {}
    for number, line in enumerate(text.splitlines(), 1):
        words = line.partition("#")[0].split()
        if not words:
            continue
        if len(words) < 2 or not is_ip(words[0]):
            raise errors.ParseError(f"line {number} is not 'address name [alias]': {line.strip()}")
        host = Hostname(words[1].lower(), words[0])
        for name in words[1:]:
            found.setdefault(name.lower(), host)
    return found


def system_name() -> str:
    """Return the name of this computer, completed to a full one when the resolver can.

    The name is in lower case.
    """
    name = socket.gethostname()
    return (name if "." in name else socket.getfqdn(name)).lower()


def system_lookup(name: str) -> Hostname:
    """Ask the system's resolver for the full name and the address of a host.

    :raises ResolverError: the resolver does not know the name.
    """
    canonical, addresses = _resolved(name)
    return Hostname(canonical.lower(), addresses[0])


def system_addresses(name: str) -> list[str]:
    """Ask the system's resolver for all addresses of a host, those of IPv4 first.

    :raises ResolverError: the resolver does not know the name.
    """
    return _resolved(name)[1]


def _resolved(name: str) -> tuple[str, list[str]]:
    """Return the full name of a host, and its addresses."""
    try:
        answers = socket.getaddrinfo(name, None, type=socket.SOCK_STREAM, flags=socket.AI_CANONNAME)
    except socket.gaierror as err:
        raise errors.ResolverError(name, err.errno or 0, err.strerror or str(err)) from err
    except UnicodeError as err:
        # The resolver's own check of overlong or empty labels.
        raise errors.ResolverError(name, 0, f"not a host name: {err}") from err
    # IPv4 first: a name with both families means the first for every published interface.
    answers.sort(key=lambda answer: answer[0] != socket.AF_INET)
    canonical = next((answer[3] for answer in answers if answer[3]), name)
    return canonical, list(dict.fromkeys(str(answer[4][0]) for answer in answers))
