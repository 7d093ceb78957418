"""The master daemon's start-up, signals and end. The work is in the rooms of the master wing.

``ganeti-masterd`` runs on the master node only: anywhere else it refuses with exit code 11. Two on
one directory are kept apart by the pid file and by the lock on the queue. After its start it never
forks and never runs a program; whatever must be run is run by a node daemon, also on the master
itself.

It serves two names in the socket directory: ``ganeti-master``, and ``ganeti-query``, where programs
for 3.x look. SIGTERM lets running jobs finish (up to :data:`STOP_WAIT_S`), puts waiting ones back
into the queue and ends; a second one ends at once. SIGHUP opens the log again.

When the daemon is killed, the next start marks what ran as failed, says so, and goes on.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import logging
import os
import resource
import socket
import sys
import threading
import time
from collections.abc import Sequence
from typing import NamedTuple, NoReturn

from ganeti import cmdlib, errors
from ganeti.cmdlib.base import MasterContext
from ganeti.cmdlib.processor import Processor
from ganeti.config import Config, ssconf
from ganeti.config.members import Members, read_members
from ganeti.config.role import Outcome
from ganeti.constants import cli as exit_codes
from ganeti.constants import ssconf as ssconf_const
from ganeti.jqueue.queue import JobQueue
from ganeti.locking import Level, LockManager
from ganeti.master import queries
from ganeti.master.events import EventLog, Guests
from ganeti.master.fence import Fence, FencedQueueStore
from ganeti.master.luxi_server import Server
from ganeti.master.luxi_service import Service
from ganeti.objects import ConfigData
from ganeti.platform import hosts, paths, users
from ganeti.rpc import AddressRunner, RpcRunner, open_client
from ganeti.rpc.distribute import ConfigDistributor, QueueTransport
from ganeti.rpc.master_ip import activate_master_ip
from ganeti.rpc.voting import RoleNotWonError, Voting, Won, start_ballot
from ganeti.server import daemon
from ganeti.utils import filelock, fs, net

NAME = "ganeti-masterd"

SOCKET_MODE = 0o660
# How long an orderly end waits for running jobs.
STOP_WAIT_S = 25.0
# Longer than a moment's look at the lock by somebody else takes.
_LOCK_WAIT_S = 0.5
# A node daemon that has just written the queue for another master needs some seconds to finish.
_COPY_WAIT_S = 15.0
_BACKLOG = 4096
_MAX_FILES = 65536


class Prepared(NamedTuple):
    """What is ready before the daemon says so."""

    queue_lock: filelock.FileLock
    livelock: filelock.FileLock
    context: MasterContext
    queue: JobQueue
    server: Server
    fence: Fence


_OVERRIDE_WARNING = """\
Starting without a vote. If another node is the master, or has newer data, what it
acknowledged is lost, and this node's configuration and jobs replace those of all others."""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Options of this daemon alone."""
    parser.add_argument(
        "--no-voting",
        action="store_true",
        help="do not ask other nodes whether this one may be master (dangerous)",
    )
    parser.add_argument(
        "--yes-do-it", action="store_true", help="do not ask for confirmation of --no-voting"
    )


def check(options: argparse.Namespace) -> None:
    """Refuse to start anywhere but on the master node.

    :raises Refuse: 11 on another node, 5 where there is no cluster; also when ``--no-voting`` is
        not confirmed.
    """
    here = paths.current()
    if not os.path.exists(here.ssconf_file(ssconf_const.MASTER_NODE)):
        raise daemon.Refuse(
            "this machine belongs to no cluster. One is made by gnt-cluster init.",
            exit_codes.EXIT_NOTCLUSTER,
        )
    _check_master(ssconf.SimpleStore(here).master_node())
    if options.no_voting:
        print(f"{NAME}: warning: {_OVERRIDE_WARNING}", file=sys.stderr)
        if not options.yes_do_it and not _confirmed():
            raise daemon.Refuse("--no-voting was not confirmed. Type YES, or give --yes-do-it.")


def _confirmed() -> bool:
    """Ask the person at the terminal, if there is one."""
    if not sys.stdin.isatty():
        return False
    return input("If you are sure, type YES in capital letters: ").strip() == "YES"


def _check_master(name: str) -> None:
    own = hosts.hostname()
    if name.lower() != own:
        raise daemon.Refuse(
            f"this node ({own}) is not the master; that is {name}", exit_codes.EXIT_NOTMASTER
        )


def prepare(options: argparse.Namespace) -> Prepared:
    """Take the locks, read configuration and queue, begin to work.

    :raises Refuse: this is not the master after all, or another master daemon is at work here.
    :raises errors.ConfigurationError: the configuration cannot be used.
    :raises errors.JobQueueError: the queue cannot be used.
    """
    here = paths.current()
    _raise_file_limit()
    fs.make_dirs(here.queue_dir, 0o750)
    fs.make_dirs(here.livelock_dir, 0o750)
    queue_lock = _lock_queue(here.queue_lock_file)
    members = read_members(here.cluster_conf_file)
    _check_master(members.master.name)
    client = open_client(here)
    store = FencedQueueStore(here.queue_dir, lock_wait_s=_COPY_WAIT_S)
    store.open()
    won = take_role(AddressRunner(client), members, override=options.no_voting)
    fence = Fence(won.epoch)
    store.use_fence(fence)
    fence.adopt_config()
    # Only now: before the promises an older master could have written.
    config = Config.open(here.cluster_conf_file, write=fence.write_config)
    _check_master(config.master_node().name)
    runner = RpcRunner(config.snapshot, client)
    runner.use_epoch(won.epoch, lambda node, known: fence.newer(f"node {node}", known))
    config.use_distribution(ConfigDistributor(runner))
    _bring_up_to_date(config, won)
    locks = LockManager(_lock_keys(config.snapshot()))
    context = MasterContext(config, locks, runner)
    livelock = _take_livelock(here.livelock_dir)
    # The units would otherwise be imported when the first job waits for them.
    cmdlib.load()
    queue = JobQueue(
        store,
        Processor(context).execute,
        locks=locks,
        transport=QueueTransport(runner, config.snapshot),
        livelock=livelock.path,
        filters=config.filters(),
        max_running=config.cluster().max_running_jobs,
        fatal=_die,
    )
    context.queue = queue
    context.queries = queries
    queue.start()
    events = EventLog()
    queue.when_shown(events.jobs_shown)
    config.tell_commits(events.config_changed)
    context.live_seen = Guests(events, context).seen
    server = Server(_listen(here), Service(context, events))
    # What exists now lives as long as we do; the collector need not look at it again and again.
    gc.collect()
    gc.freeze()
    fence.watch()
    return Prepared(queue_lock, livelock, context, queue, server, fence)


def take_role(runner: AddressRunner, members: Members, *, override: bool = False) -> Won:
    """Have the role of the master confirmed, and take an epoch.

    :param override: take it whatever the others say.
    :raises Refuse: 11 when another node is the master, 1 when nobody can say or somebody has what
        is missing here.
    """
    me = hosts.hostname()
    voting = Voting(runner, me, members, start_ballot(me, members))
    try:
        if override:
            logging.warning("%s", _OVERRIDE_WARNING)
            won = voting.claim(voting.ask(), override=True)
        else:
            votes, verdict = voting.ask_patiently()
            if not verdict.won:
                raise RoleNotWonError(verdict, votes.failures)
            won = voting.claim(votes)
    except RoleNotWonError as err:
        outcome = err.verdict.outcome
        raise daemon.Refuse(
            f"this node may not be the master: {err}.{_HINTS[outcome]}",
            exit_codes.EXIT_NOTMASTER
            if outcome is Outcome.OTHER_MASTER
            else exit_codes.EXIT_FAILURE,
        ) from err
    logging.info(
        "master by epoch %s, promised by %d of %d nodes",
        won.epoch,
        len(won.promises),
        len(members.nodes),
    )
    return won


def _bring_up_to_date(config: Config, won: Won) -> None:
    """Those who missed what an earlier master distributed, or who did not answer, get it now."""
    me = config.master_node()
    own = won.promises[me.name.lower()]
    stale, uninformed = [], []
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
    if stale or uninformed:
        config.expect_behind(stale, uninformed)


_HINTS = {
    Outcome.NO_QUORUM: " When the other nodes are lost for good, --no-voting overrides this.",
    Outcome.STALE: " Start the master daemon there, or move the role there with 'gnt-cluster"
    " master-failover'. When that data is not wanted, --no-voting overrides this.",
    Outcome.OTHER_MASTER: " To move the role here, use 'gnt-cluster master-failover'.",
    Outcome.WON: "",
}


def _lock_queue(path: str) -> filelock.FileLock:
    lock = filelock.FileLock(path)
    try:
        lock.acquire(timeout_s=_LOCK_WAIT_S)
    except errors.LockError as err:
        lock.close()
        raise daemon.Refuse(
            f"another master daemon works on this job queue ({path} is locked)"
        ) from err
    return lock


def _take_livelock(directory: str) -> filelock.FileLock:
    """A file that stays locked as long as we live; names us in job files and in locks."""
    for name in fs.list_visible(directory):
        if name.startswith("masterd_"):
            # Whoever else owned one is dead: we hold the lock of the queue.
            fs.remove_file(f"{directory}/{name}")
    lock = filelock.FileLock(f"{directory}/masterd_{os.getpid()}_{int(time.time())}")
    lock.acquire(timeout_s=_LOCK_WAIT_S)
    return lock


def _lock_keys(data: ConfigData) -> dict[Level, list[str]]:
    return {
        Level.INSTANCE: list(data.instances),
        Level.NODEGROUP: list(data.nodegroups),
        Level.NODE: list(data.nodes),
        Level.NODE_RES: list(data.nodes),
        Level.NETWORK: list(data.networks),
    }


def _listen(here: paths.Paths) -> list[socket.socket]:
    fs.make_dirs(here.socket_dir, 0o770)
    group = users.group_id(users.current().daemons_group)
    return [
        net.unix_listen(path, SOCKET_MODE, backlog=_BACKLOG, gid=group)
        for path in (here.master_socket, here.query_socket)
    ]


def _raise_file_limit() -> None:
    """A client is a file descriptor; take as many as we may have."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _MAX_FILES if hard == resource.RLIM_INFINITY else min(hard, _MAX_FILES)
    if soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def _die() -> None:
    """A thread nobody can do without died of a bug: end as if killed; the next start repairs."""
    logging.critical("a thread of the job queue died, ending")
    logging.shutdown()
    os._exit(daemon.EXIT_FAILURE)


def run(options: argparse.Namespace, prepared: Prepared, signals: daemon.Signals) -> int | None:
    """Serve until a signal says to stop."""
    here = paths.current()
    server, queue = prepared.server, prepared.queue
    threading.Thread(
        target=_activate_ip, args=(prepared.context,), name="master-ip", daemon=True
    ).start()
    stopper: list[threading.Thread] = []

    def stop() -> None:
        left = queue.stop(STOP_WAIT_S)
        if left:
            logging.warning(
                "ending while jobs %s run; the next start will mark them as failed",
                ", ".join(map(str, sorted(left))),
            )
        server.stop()

    def on_signal() -> None:
        if not any(number in daemon.STOP_SIGNALS for number in signals.take()):
            return
        if stopper:
            logging.warning("asked to stop again, not waiting any longer")
            server.stop(grace_s=0.0)
        else:
            # In a thread, so that clients are answered while the last jobs finish.
            stopper.append(threading.Thread(target=stop, name="stop", daemon=True))
            stopper[0].start()

    logging.info("serving %s", here.master_socket)
    server.serve(signals.fileno(), on_signal)
    prepared.fence.stop()
    for path in (here.master_socket, here.query_socket):
        fs.remove_file(path)
    with contextlib.suppress(OSError):
        fs.remove_file(prepared.livelock.path)
    prepared.livelock.close()
    prepared.queue_lock.close()
    return None


def _activate_ip(context: MasterContext) -> None:
    """Clients find the master by its address; without it everything else works."""
    failure = activate_master_ip(context.rpc, context.config.snapshot())
    if failure is not None:
        logging.error("the address of the master is not up: %s", failure)


def main(argv: Sequence[str] | None = None) -> NoReturn:
    """Entry point of ``ganeti-masterd``."""
    daemon.main(
        NAME,
        sys.argv[1:] if argv is None else argv,
        check=check,
        prepare=prepare,
        run=run,
        add_options=add_options,
        early_drop=True,
    )
