"""The steps of a master daemon before it serves: take the locks of the node, and the master's role.

Two master daemons on one directory are kept apart by the lock on the job queue; two nodes by a vote
and a new epoch (:mod:`ganeti.rpc.voting`). The main function (:mod:`ganeti.server.mastering`) calls
these functions in this order and turns their errors into exit codes.
"""

from __future__ import annotations

import logging
import os
import time

from ganeti import errors
from ganeti.config import Config
from ganeti.config.members import Members
from ganeti.locking import Level
from ganeti.objects import ConfigData
from ganeti.platform import machine, master_epoch
from ganeti.rpc import AddressRunner
from ganeti.rpc.voting import (
    RoleNotWonError,
    Voting,
    Won,
    failover_ballot,
    start_ballot,
    witness_of,
)
from ganeti.utils import filelock, fs

# Longer than it takes another process to look whether the file is locked.
_LOCK_WAIT_S = 0.5
_LIVELOCK_PREFIX = "masterd_"


def lock_queue(path: str) -> filelock.FileLock:
    """Lock the job queue of this node.

    :raises LockError: another process has the lock.
    """
    lock = filelock.FileLock(path)
    try:
        lock.acquire(timeout_s=_LOCK_WAIT_S)
    except errors.LockError:
        lock.close()
        raise
    return lock


def take_livelock(directory: str) -> filelock.FileLock:
    """Lock a new file as long as this process lives; job files and locks name it.

    The caller holds the lock of the queue, so the files of other master daemons are stale; they are
    removed.
    """
    for name in fs.list_visible(directory):
        if name.startswith(_LIVELOCK_PREFIX):
            fs.remove_file(f"{directory}/{name}")
    lock = filelock.FileLock(f"{directory}/{_LIVELOCK_PREFIX}{os.getpid()}_{int(time.time())}")
    lock.acquire(timeout_s=_LOCK_WAIT_S)
    return lock


def take_role(runner: AddressRunner, members: Members, *, override: bool = False) -> Won:
    """Win the vote of the nodes, and have them promise to obey a new epoch.

    After a failover to this node, the nodes which voted there decide, as long as no node that
    answers knows a later master. So offline nodes do not count, and nodes which have not heard of
    the new master yet do no harm; a majority is needed as always.

    :param override: take the role even if the vote is lost.
    :raises RoleNotWonError: another node is the master, too few nodes answer, or a node has data
        which this one has not.
    """
    me = machine.current().hostname()
    ballot = start_ballot(me, members)
    voting = Voting(runner, me, members, ballot, witness=witness_of(members, ballot))
    if override:
        won = voting.claim(voting.ask(), override=True)
    else:
        won = _after_failover(runner, me, members) or _confirmed(voting)
    logging.info(
        "master by epoch %s, promised by %d of %d nodes",
        won.epoch,
        len(won.promises),
        len(members.nodes),
    )
    return won


def _confirmed(voting: Voting) -> Won:
    votes, verdict = voting.ask_patiently()
    if not verdict.won:
        raise RoleNotWonError(verdict, votes.failures, votes.broken)
    return voting.claim(votes)


def _after_failover(runner: AddressRunner, me: str, members: Members) -> Won | None:
    """Take the role which was moved to this node; None when that was not the last thing.

    The daemon takes an epoch of its own, so a failover serves one start only.
    """
    known = master_epoch.read()
    if not known.moved_to(members.nodes[me].uuid):
        return None
    ballot = failover_ballot(me, members, ignore_offline=known.ignored_offline)
    # The old master is probably lost, and waiting for it would prolong the time without a master.
    voting = Voting(runner, me, members, ballot, hasty=True, witness=witness_of(members, ballot))
    votes, verdict = voting.ask_patiently()
    if max(votes.known) > known.epoch:
        return None
    if not verdict.won:
        raise RoleNotWonError(verdict, votes.failures, votes.broken)
    return voting.claim(votes)


def expect_lagging(config: Config, won: Won) -> None:
    """Have nodes updated in the background which lack what an earlier master distributed.

    These are the candidates with another configuration, and all nodes which did not answer or know
    another master.
    """
    me = config.master_node()
    own = won.promises[me.name.lower()]
    stale, uninformed, unresponsive = [], [], []
    for node in config.online_nodes():
        promise = won.promises.get(node.name.lower())
        if (
            node.master_candidate
            and node.uuid != me.uuid
            and (promise is None or promise.digest != own.digest)
        ):
            stale.append(node.uuid)
        if promise is None or promise.master != own.master or won.override:
            uninformed.append(node.uuid)
        if promise is None:
            unresponsive.append(node.uuid)
    if not won.override:
        config.adopt_copies()
    if stale or uninformed:
        config.expect_lagging(stale, uninformed, unresponsive)


def lock_keys(data: ConfigData) -> dict[Level, list[str]]:
    """Return the locks which exist for the objects of a configuration: level -> UUIDs."""
    return {
        Level.INSTANCE: list(data.instances),
        Level.NODEGROUP: list(data.nodegroups),
        Level.NODE: list(data.nodes),
        Level.NODE_RES: list(data.nodes),
        Level.NETWORK: list(data.networks),
    }
