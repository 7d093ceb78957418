"""Finds a network for a virtual cluster: addresses in 127.0.0.0/8 on which no process listens."""

from __future__ import annotations

import contextlib
import random
import socket
from collections.abc import Callable, Iterator

from ganeti import errors
from ganeti.platform import hosts

_TRIES = 200


def is_free(ip: str, port: int) -> bool:
    """Check whether no process listens on an address and port."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        # Closed connections of an earlier cluster, in the state TIME_WAIT, do not matter.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((ip, port))
        except OSError:
            return False
    return True


@contextlib.contextmanager
def claimed_network(
    nodes: int, *, choose: Callable[[int, int], int] = random.randint
) -> Iterator[str]:
    """Reserve a network for a virtual cluster during the block.

    :param nodes: number of addresses which must be free.
    :param choose: chooses a number in a range, both ends included.
    :returns: the first three numbers of the addresses, such as ``127.12.34``.
    :raises ConfigurationError: no free network was found.
    """
    port = hosts.NODED_PORT
    for _ in range(_TRIES):
        network = f"127.{choose(1, 254)}.{choose(0, 254)}"
        claim = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
        with claim:
            try:
                claim.bind(f"\0ganeti-vcluster/{network}")
            except OSError:
                continue
            if all(is_free(f"{network}.{number}", port) for number in range(1, nodes + 1)):
                yield network
                return
    raise errors.ConfigurationError(
        f"found no network 127.A.B.0/24 in which port {port} is free, after {_TRIES} attempts"
    )
