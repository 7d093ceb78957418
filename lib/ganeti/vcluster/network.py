"""A network for a virtual cluster: addresses in 127.0.0.0/8 on which nobody listens."""

from __future__ import annotations

import contextlib
import random
import socket
from collections.abc import Callable, Iterator

from ganeti import errors
from ganeti.platform import hosts

_TRIES = 200


def is_free(ip: str, port: int) -> bool:
    """Whether nobody listens there."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        # Connections of an earlier cluster that are only being forgotten do not count.
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
    """A network on which this cluster will be alone; nobody else gets it inside the block.

    :param nodes: how many addresses must be free.
    :raises ConfigurationError: none was found.
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
        f"no network 127.A.B.0/24 where port {port} is free was found in {_TRIES} tries"
    )
