"""The work of the master daemon from its start to its end; the work is in other packages.

The daemon never forks and runs no programs but one: a node daemon runs what must be run, on the
master node, too. The processes of jobs are made by that one program (:mod:`.fork_server`).

It serves two names in the socket directory: ``ganeti-master``, and ``ganeti-query``, where programs
for Ganeti 3.x look. SIGTERM lets running jobs finish (up to :data:`STOP_WAIT_S`), puts waiting ones
back into the queue and ends the daemon; a second SIGTERM ends it at once. SIGHUP opens the log file
again. When the daemon is killed, the next start marks the jobs which ran as failed and goes on.

Source: Ganeti design 2.0, *Master daemon*, *Job Queue*.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import logging
import os
import resource
import socket
import threading
from functools import partial
from typing import NamedTuple

from ganeti import cmdlib, errors
from ganeti.cmdlib.base import MasterContext
from ganeti.cmdlib.processor import Processor
from ganeti.config import Config, ssconf
from ganeti.config.members import Members, read_members
from ganeti.config.role import Outcome
from ganeti.configfile import files
from ganeti.constants import cli as exit_codes
from ganeti.http import client as http_client
from ganeti.jobexec.executor import ProcessExecutor
from ganeti.jobexec.forker import Forker
from ganeti.jobexec.process import surroundings
from ganeti.jqueue.execution import Execution
from ganeti.jqueue.job import QueuedJob
from ganeti.jqueue.queue import JobQueue
from ganeti.jqueue.replication import Candidates
from ganeti.locking import LockManager
from ganeti.master import queries, startup
from ganeti.master.audit import Archive, JobLog
from ganeti.master.audit_copies import AuditCopies
from ganeti.master.commit_probe import CommitProbe
from ganeti.master.events import EventLog, GuestChanges, finder
from ganeti.master.fence import Fence, FencedQueueStore
from ganeti.master.history_copies import HistoryCopies
from ganeti.master.key_learning import KeyLearning
from ganeti.master.luxi_server import LuxiServer
from ganeti.master.luxi_service import LuxiService
from ganeti.master.node_poll import NodePoll
from ganeti.master.orphaned_work import OrphanedWorkLocks
from ganeti.master.returning import Returning, knock
from ganeti.master.witness import MasterWitness
from ganeti.objects import Cluster, ConfigData
from ganeti.platform import machine, master_epoch, paths, users
from ganeti.rpc import AddressRunner, RpcRunner, key_pins, open_client
from ganeti.rpc.distribute import ConfigDistributor, QueueTransport
from ganeti.rpc.master_ip import activate_master_ip
from ganeti.rpc.voting import RoleNotWonError, Won
from ganeti.server import daemon, fork_server, mastership
from ganeti.utils import filelock, fs, net, process, tracing

SOCKET_MODE = 0o660
#: Seconds which the daemon waits at its end for running jobs.
STOP_WAIT_S = 25.0
# A node daemon that has just written the queue for another master needs some seconds to finish.
_COPY_WAIT_S = 15.0
# The node daemon may be folding in, too.
_FOLD_S = 15.0
_BACKLOG = 4096
_MAX_FILES = 65536


class Copies(NamedTuple):
    """What brings logs of the master to the other candidates."""

    history: HistoryCopies
    audit: AuditCopies


class MasterDaemon(NamedTuple):
    """The parts of a master daemon that has started."""

    queue_lock: filelock.FileLock
    livelock: filelock.FileLock
    context: MasterContext
    queue: JobQueue
    server: LuxiServer
    fence: Fence
    job_log: JobLog
    key_learning: KeyLearning
    node_poll: NodePoll
    witness: MasterWitness
    copies: Copies


def prepare(options: argparse.Namespace) -> MasterDaemon:
    """Take the locks and the role, read configuration and queue, start the threads.

    :raises StartRefused: this node is not the master, or another master daemon works on its queue.
    :raises ConfigurationError: the configuration cannot be used.
    :raises JobQueueError: the queue cannot be used.
    """
    here = paths.current()
    # Import the logical units now, so that no job need wait for it.
    cmdlib.load()
    for directory in (here.livelock_dir, here.queue_dir):
        fs.make_dirs(directory, 0o750)
    around = surroundings(here)
    process.forbid("the master daemon runs no programs, a node daemon does")
    problem = tracing.set_up(mastership.NAME, background=True)
    if problem:
        logging.warning("%s", problem)
    _raise_file_limit()
    fs.remove_file(here.master_stopped_file)
    queue_lock = _lock_queue(here.queue_lock_file)
    role = _win_role(here, override=options.no_voting)
    won, fence = role.won, role.fence
    config, runner = _open_config(here, role)
    witness = MasterWitness(config, runner, fence)
    config.use_witness(witness.record_config)
    _settle_alone(config, override=won.override)
    startup.expect_lagging(config, won)
    key_learning = KeyLearning(config, runner)
    key_learning.adopt_own(role.voters)
    locks = LockManager(startup.lock_keys(config.snapshot()))
    orphaned_work = OrphanedWorkLocks(config, locks, runner, won.epoch, won.promises)
    context = MasterContext(config, locks, runner, orphaned_work=orphaned_work)
    livelock = startup.take_livelock(here.livelock_dir)
    executor = ProcessExecutor(around, Forker(fork_server.start), context, won.epoch, livelock.path)
    fence.before_end = executor.end_all
    orphaned_work.goes_on = executor.goes_on
    queue = _make_queue(role.store, context, executor, orphaned_work, witness, livelock.path)
    events = EventLog(find=finder(config))
    job_log, copies = _start_queue(here, context, queue, events)
    executor.start()
    orphaned_work.clean_up_migrations(queue)
    config.call_on_commit(partial(note_commit, events, queue, executor))
    context.live_seen = GuestChanges(events, context).seen
    server = LuxiServer(_listen(here), LuxiService(context, events))
    # Present objects live as long as the process; the garbage collector need not visit them.
    gc.collect()
    gc.freeze()
    fence.watch()
    _start_probe(context, fence, witness, override=won.override)
    node_poll = NodePoll(config, runner, queue)
    node_poll.start()
    witness.start()
    _start_returning(context, queue, copies, witness)
    return MasterDaemon(
        queue_lock,
        livelock,
        context,
        queue,
        server,
        fence,
        job_log,
        key_learning,
        node_poll,
        witness,
        copies,
    )


class _Role(NamedTuple):
    """The role of the master, which this process has won.

    :ivar voters: calls the nodes by their addresses.
    :ivar store: the files of the job queue, written under the fence.
    """

    client: http_client.Client
    voters: AddressRunner
    won: Won
    fence: Fence
    store: FencedQueueStore


def _win_role(here: paths.Paths, *, override: bool) -> _Role:
    """Let the nodes vote, and put the epoch which was won into the files of this node."""
    members = _read_members(here)
    mastership.check_master(members.master.name)
    client = open_client(here)
    store = FencedQueueStore(here.queue_dir, lock_wait_s=_COPY_WAIT_S)
    store.open()
    voters = AddressRunner(client)
    voters.expect_keys(key_pins.expected(members.nodes.values()))
    won = _take_role(voters, members, override=override)
    fence = Fence(won.epoch)
    store.use_fence(fence, override=won.override)
    fence.adopt_config()
    return _Role(client, voters, won, fence, store)


def _open_config(here: paths.Paths, role: _Role) -> tuple[Config, RpcRunner]:
    """Open the configuration, and call its nodes under the epoch of the role.

    Not earlier: before the nodes made their promises, an older master could write the file.
    """
    fence = role.fence
    config = Config.open(
        here.cluster_conf_file, write=fence.write_config, change=fence.change_config
    )
    mastership.check_master(config.master_node().name)
    runner = RpcRunner(config.snapshot, role.client)
    runner.use_epoch(role.won.epoch, lambda node, known: fence.newer(f"node {node}", known))
    config.use_distribution(ConfigDistributor(runner))
    return config, runner


def _start_probe(
    context: MasterContext, fence: Fence, witness: MasterWitness, *, override: bool
) -> None:
    """Start what knows whether this master can commit, and let it know of all commits."""
    probe = CommitProbe(
        context.config,
        context.rpc,
        fence,
        witness,
        paused=lambda: queries.watcher_pause() is not None,
        override=override,
    )
    fence.on_write = probe.note_write
    context.config.call_when_judged(probe.note_commit)
    context.commit_age = probe.age_s
    probe.start()


def _start_returning(
    context: MasterContext, queue: JobQueue, copies: Copies, witness: MasterWitness
) -> None:
    """Start what sends at once to candidates which answer again."""
    assert queue.replicator is not None
    kinds = (context.config, queue.replicator, *copies)
    Returning(kinds, partial(knock, context.rpc), witness.poll_soon).start()


def _make_queue(
    store: FencedQueueStore,
    context: MasterContext,
    executor: ProcessExecutor,
    orphaned_work: OrphanedWorkLocks,
    witness: MasterWitness,
    livelock: str,
) -> JobQueue:
    """Make the job queue, and let the context and the witness know it."""
    config = context.config
    queue = JobQueue(
        store,
        Execution(
            Processor(context).execute,
            executor,
            locks=context.locks,
            max_running=_most_jobs(config.cluster()),
            interrupted=orphaned_work.survey,
        ),
        candidates=Candidates(
            QueueTransport(context.rpc, config.snapshot),
            majority=lambda: config.cluster().auto_failover is not None,
            witness=witness,
        ),
        livelock=livelock,
        filters=config.filters(),
        fatal=_die,
    )
    witness.last_job = lambda: queue.table.serial
    context.queue = queue
    context.witness = witness
    context.job_files = queue
    context.queries = queries.QueryService(context)
    return queue


def _start_queue(
    here: paths.Paths, context: MasterContext, queue: JobQueue, events: EventLog
) -> tuple[JobLog, Copies]:
    """Start the queue, the logs of its jobs, and what sends logs to the other candidates."""
    job_log = JobLog(here.log_jobs_file, here.log_audit_file)
    audit_copies = AuditCopies(context.config, context.rpc, here.log_audit_file)
    job_log.on_written = audit_copies.note_written
    job_log.start()
    # The start of the queue ends the jobs which ran under an earlier daemon.
    queue.publisher.on_published = partial(_note_jobs, events, job_log)
    queue.publisher.on_logged = events.job_logged
    queue.start()
    with queue.table.lock:
        present = list(queue.table.jobs.values())
    events.recover(present)
    table = queue.table
    job_log.recover(present, Archive(table.store.newest_archived_ids, table.archived))
    audit_copies.start()
    history = HistoryCopies(context.config, context.rpc, here.cluster_conf_history_dir)
    history.start()
    return job_log, Copies(history, audit_copies)


def _settle_alone(config: Config, *, override: bool) -> None:
    """Let the witness know that this node is the only candidate, before anything is acknowledged.

    :raises StartRefused: the witness does not answer, so the other node could become the master.
    """
    if (
        not config.cluster().witness
        or sum(node.master_candidate for node in config.online_nodes()) > 1
    ):
        return
    try:
        config.require_committed()
    except errors.ConfigurationError as err:
        if not override:
            raise daemon.StartRefused(
                f"the witness cannot be informed that this node is the only master candidate: {err}"
            ) from err
        logging.warning("the witness does not know that there is no other candidate: %s", err)


def note_commit(
    events: EventLog,
    queue: JobQueue,
    executor: ProcessExecutor,
    before: ConfigData,
    after: ConfigData,
    changed: set[tuple[str, str]],
) -> None:
    """Tell the job processes, the job queue and clients of a commit of the configuration."""
    executor.note_commit(before, after)
    if _most_jobs(after.cluster) != _most_jobs(before.cluster):
        queue.set_max_running(_most_jobs(after.cluster))
    events.config_changed(before, after, changed)


def _note_jobs(events: EventLog, job_log: JobLog, published: list[QueuedJob]) -> None:
    events.jobs_published(published)
    job_log.jobs_published(published)


def _most_jobs(cluster: Cluster) -> int:
    """Return how many jobs may be executed at once: each of them is watched until its end."""
    return min(cluster.max_running_jobs, cluster.max_tracked_jobs)


def _read_members(here: paths.Paths) -> Members:
    """Read the nodes from the configuration.

    :raises StartRefused: it is missing, empty or damaged; the message names the nodes with a copy.
    """
    try:
        return read_members(here.cluster_conf_file)
    except errors.ConfigVersionMismatch:
        raise
    except errors.ConfigurationError as err:
        own = machine.current().hostname()
        try:
            names = ssconf.SimpleStore(here).master_candidates()
        except errors.ConfigurationError:
            names = []
        others = [name for name in names if name.lower() != own]
        if not others:
            raise
        raise daemon.StartRefused(
            f"{err}. Other master candidates have a copy: {', '.join(others)}. Run 'gnt-cluster"
            " master-failover' on one of them."
        ) from err


def _take_role(runner: AddressRunner, members: Members, *, override: bool) -> Won:
    if override:
        logging.warning("%s", mastership.OVERRIDE_WARNING)
    try:
        return startup.take_role(runner, members, override=override)
    except RoleNotWonError as err:
        outcome = err.verdict.outcome
        raise daemon.StartRefused(
            f"this node may not be the master: {err}. {_HINTS[outcome] or err.advice()}".rstrip(),
            exit_codes.EXIT_NOTMASTER
            if outcome is Outcome.OTHER_MASTER
            else exit_codes.EXIT_FAILURE,
        ) from err


_HINTS = {
    Outcome.NO_QUORUM: "",
    Outcome.STALE: "Run 'gnt-cluster master-failover' on this node, which fetches that data, or on"
    " the other one, to move the role there. When that data is not wanted, --no-voting overrides"
    " this.",
    Outcome.OTHER_MASTER: "To move the role here, use 'gnt-cluster master-failover'.",
    Outcome.WON: "",
}


def _lock_queue(path: str) -> filelock.FileLock:
    try:
        return startup.lock_queue(path)
    except errors.LockError as err:
        raise daemon.StartRefused(
            f"another master daemon works on this job queue ({path} is locked)"
        ) from err


def _listen(here: paths.Paths) -> list[socket.socket]:
    fs.make_dirs(here.socket_dir, 0o1770)
    group = users.group_id(users.current().daemons_group)
    return [
        net.unix_listen(path, SOCKET_MODE, backlog=_BACKLOG, gid=group)
        for path in (here.master_socket, here.query_socket)
    ]


def _raise_file_limit() -> None:
    """Allow as many open files as possible, because each client needs one."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _MAX_FILES if hard == resource.RLIM_INFINITY else min(hard, _MAX_FILES)
    if soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def _die() -> None:
    """End as if killed, after the failure of a thread of the queue. The next start repairs it."""
    logging.critical("a thread of the job queue has failed, the daemon ends")
    logging.shutdown()
    os._exit(exit_codes.EXIT_FAILURE)


def run(options: argparse.Namespace, master: MasterDaemon, signals: daemon.Signals) -> int | None:
    """Serve until a signal says to stop."""
    here = paths.current()
    server, queue = master.server, master.queue
    threading.Thread(
        target=_activate_ip, args=(master.context,), name="master-ip", daemon=True
    ).start()
    master.key_learning.start()
    # Not needed before the daemon serves.
    from ganeti.master.certificate_renewal import CertificateRenewal

    certificates = CertificateRenewal(master.context.config, master.context.rpc, queue)
    certificates.start()
    stopper: list[threading.Thread] = []

    def stop() -> None:
        left = queue.stop(STOP_WAIT_S)
        if left:
            logging.warning(
                "the daemon ends while jobs %s run; the next start marks them as failed",
                ", ".join(map(str, sorted(left))),
            )
        server.stop()

    def on_signal() -> None:
        if not signals.take_stop():
            return
        # Only a master daemon which ends by itself is replaced by an automatic failover.
        fs.write_file(here.master_stopped_file, "", mode=0o644, sync=False)
        server.end_long_work()
        if stopper:
            logging.warning("a second request to stop: the daemon ends without waiting for jobs")
            server.stop(grace_s=0.0)
        else:
            signals.status(f"waiting up to {STOP_WAIT_S:g} s for the end of running jobs")
            # In a thread, so that clients get answers while the last jobs end.
            stopper.append(threading.Thread(target=stop, name="stop", daemon=True))
            stopper[0].start()

    logging.info("serving %s", here.master_socket)
    server.serve(signals.fileno(), on_signal)
    master.node_poll.stop()
    master.witness.stop()
    master.copies.history.stop()
    master.fence.stop()
    master.key_learning.stop()
    certificates.stop()
    master.job_log.close()
    master.copies.audit.stop()
    tracing.flush()
    _fold_journal(here)
    for path in (here.master_socket, here.query_socket):
        fs.remove_file(path)
    with contextlib.suppress(OSError):
        fs.remove_file(master.livelock.path)
    master.livelock.close()
    master.queue_lock.close()
    return None


def _fold_journal(here: paths.Paths) -> None:
    """Leave a file with all changes: an administrator may edit or copy it next.

    A failure is only logged: the changes stay in the journal.
    """
    path = here.cluster_conf_file
    try:
        files.fold_now(path, master_epoch.config_lock, timeout_s=_FOLD_S)
    except (OSError, errors.LockError) as err:
        logging.error(
            "the changes in %s cannot be written into %s: %s", here.cluster_conf_journal, path, err
        )


def _activate_ip(context: MasterContext) -> None:
    """Activate the address of the master, with which clients find it. A failure is only logged."""
    failure = activate_master_ip(context.rpc, context.config.snapshot())
    if failure is not None:
        logging.error("the address of the master could not be activated: %s", failure)
