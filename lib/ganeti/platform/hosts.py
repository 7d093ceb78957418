"""Names and addresses of this machine, or of one node of a virtual cluster.

In a virtual cluster all nodes share one machine and nobody may edit ``/etc/hosts``: names are
looked up in ``<virtual cluster>/hosts`` first, and ``GANETI_HOSTNAME`` says which node this
process is.
"""

from __future__ import annotations

import os
import socket
from typing import NamedTuple

from ganeti import errors
from ganeti.platform import paths
from ganeti.utils.net import is_ip, is_ipv6


class Hostname(NamedTuple):
    """A resolved name: the full name and its address."""

    name: str
    ip: str


def hostname() -> str:
    """The full name of this node, in lower case.

    In a virtual cluster from ``GANETI_HOSTNAME``; else the system's name, completed to a full one
    when the resolver can.
    """
    name = os.environ.get(paths.ENV_HOSTNAME, "")
    if name:
        return name.lower()
    name = socket.gethostname()
    return (name if "." in name else socket.getfqdn(name)).lower()


def parse_hosts(text: str) -> dict[str, Hostname]:
    """Read lines of ``address name [alias...]``; comments start with ``#``.

    :returns: every name and alias in lower case, with the first name of its line. The first line
        that has a name wins.
    :raises ParseError: a line without a name, or with something that is no address; carries the
        line.
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


def _virtual_host(name: str) -> Hostname | None:
    directory = paths.vcluster_dir()
    if directory is None:
        return None
    try:
        with open(f"{directory}/hosts", encoding="utf-8") as stream:
            text = stream.read()
    except FileNotFoundError:
        return None
    return parse_hosts(text).get(name.lower())


def cut_addresses() -> frozenset[str]:
    """Addresses which this node of a virtual cluster must not reach, to rehearse a broken network.

    ``<virtual cluster>/cut`` has two names of nodes per line, which do not reach each other.
    """
    directory = paths.vcluster_dir()
    if directory is None:
        return frozenset()
    try:
        with open(f"{directory}/cut", encoding="utf-8") as stream:
            pairs = [line.split() for line in stream]
    except FileNotFoundError:
        return frozenset()
    own = hostname()
    return frozenset(resolve(name) for pair in pairs if own in pair for name in pair if name != own)


def lookup(name: str) -> Hostname:
    """Complete a host name and find its address.

    :raises ResolverError: nobody knows it.
    """
    if is_ip(name):
        return Hostname(name, name)
    host = _virtual_host(name)
    if host is not None:
        return host
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
    return Hostname(canonical.lower(), str(answers[0][4][0]))


def resolve(name: str) -> str:
    """The address of a host name (an address stays as it is).

    :raises ResolverError: nobody knows it.
    """
    return lookup(name).ip


def own_address(ip: str) -> bool:
    """Whether an address belongs to this node.

    In a virtual cluster the machine answers for all of 127.0.0.0/8, so the node's name decides.
    """
    if paths.is_virtual():
        try:
            return resolve(hostname()) == ip
        except errors.ResolverError:
            return False
    family = socket.AF_INET6 if is_ipv6(ip) else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        try:
            probe.bind((ip, 0))
        except OSError:
            return False
    return True


def noded_port() -> int:
    """The TCP port of the node daemon: ``/etc/services`` may change the published one."""
    return service_port("ganeti-noded", NODED_PORT)


def service_port(name: str, default: int, protocol: str = "tcp") -> int:
    """The port of a service by name, else the default."""
    if paths.is_virtual():
        # A rehearsal must not depend on what the machine's own file says.
        return default
    try:
        return socket.getservbyname(name, protocol)
    except OSError:
        return default


NODED_PORT = 1811
