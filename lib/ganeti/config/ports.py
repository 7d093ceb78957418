"""The TCP ports which the cluster gives to instances and to mirrored disks.

``highest_used_port`` is the highest one which was ever given; those below it which no object has
are in ``tcpudp_port_pool``. A job reserves a port (:class:`.reservations.Reservations`), and the
commit of the object which has it takes it out of these two, so a job which fails loses none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from ganeti import errors
from ganeti.constants import net as net_const
from ganeti.objects import Cluster, updated


def free(cluster: Cluster) -> Iterator[int]:
    """Iterate over the ports which no object has; those of the pool come first."""
    yield from cluster.tcpudp_port_pool
    yield from range(cluster.highest_used_port + 1, net_const.LAST_PORT + 1)


def none_is_free() -> errors.OpPrereqError:
    """Make the error for a cluster whose ports are all in use."""
    return errors.OpPrereqError(
        f"the cluster's ports up to {net_const.LAST_PORT} are all in use", errors.ECODE_NORES
    )


def without(cluster: Cluster, port: int, in_use: Callable[[int], bool], now: float) -> Cluster:
    """Return the cluster when an object has taken a port.

    :param in_use: tells whether an object has a port.
    """
    pool, highest = set(cluster.tcpudp_port_pool), cluster.highest_used_port
    if highest < port <= net_const.LAST_PORT:
        # Those between may be reserved for objects which will never be added.
        pool.update(one for one in range(highest + 1, port) if not in_use(one))
        highest = port
    elif port not in pool:
        return cluster
    return updated(
        cluster,
        now=now,
        tcpudp_port_pool=tuple(sorted(pool - {port})),
        highest_used_port=highest,
    )
