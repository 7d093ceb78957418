"""Moving the master's role to this node: ``gnt-cluster master-failover``.

The order of the steps makes a failure in each of them harmless:

1. All nodes are asked for their votes; without a won vote nothing is changed. (This is
   :func:`survey`, which is also the simulation for ``--dry-run``.) That another node has newer data
   does not lose the vote, because this node can fetch them.
2. The present master is stopped, if it can be reached: its jobs end, and its last changes arrive.
   Then the nodes vote once more.
3. The nodes promise to obey a new epoch: from now on no node obeys an older master, even if that
   master could not be reached. If a node which promised has newer data, this node fetches them
   (:mod:`.newer_copies`): the master daemon there may have ended with data which only it has.
4. The configuration which names this node as the master is committed to a majority of the
   candidates.
5. The queue of this node accepts jobs again, if it was drained: the administrator drains a queue
   before work on the master, and the new master is ready.
6. The master daemon is started on this node. It is handed the epoch which was won, wins a vote of
   its own among the same nodes, marks the jobs which were running as failed, and updates the nodes
   which lack changes. Without a majority it does not start: only the user overrides a vote.

When step 2 or 3 fails, the old master is started again. After the begin of step 4 it is not,
because some nodes may have the new configuration; the user then runs the command once more.

Source: Ganeti design 2.0, *Master daemon*; the epochs are our own (``doc/design-master-role.rst``).
"""

from __future__ import annotations

import contextlib
import logging
import os
from collections import Counter
from collections.abc import Callable
from typing import Any, NamedTuple

from ganeti import errors
from ganeti.bootstrap import history_copies, newer_copies, node_state
from ganeti.config import Config, ssconf
from ganeti.config import api as config_file
from ganeti.config.history import Author
from ganeti.config.members import Members, read_members
from ganeti.config.role import (
    NewerCopies,
    Outcome,
    Standing,
    Verdict,
    judge,
    judge_promises,
    with_newest,
)
from ganeti.config.role import (
    newer_copies as newest_of,
)
from ganeti.configfile.files import write_config_file
from ganeti.constants import ssconf as ssconf_const
from ganeti.objects import ConfigData, Node, updated
from ganeti.platform import machine, master_epoch, paths
from ganeti.replication.majority import WITNESS
from ganeti.replication.quorum import Record
from ganeti.rpc import AddressRunner, RpcRunner, key_pins, open_client
from ganeti.rpc.distribute import ConfigDistributor
from ganeti.rpc.master_ip import take_down_at
from ganeti.rpc.voting import (
    RoleNotWonError,
    Votes,
    Voting,
    Won,
    failover_ballot,
    witness_of,
)
from ganeti.rpc.witness import Witness, WitnessError
from ganeti.utils import fs
from ganeti.utils.undo import UndoStack
from ganeti.wire.calls import (
    JOBQUEUE_SET_DRAIN_FLAG,
    NODE_START_MASTER_DAEMONS,
    NODE_STOP_MASTER,
)

_log = logging.getLogger(__name__)

Say = Callable[[str], None]

# Besides the configuration, the journal of the queue and small files are written.
_SPARE_BYTES = 1 << 20


class Survey(NamedTuple):
    """The answers of the nodes to the question whether this node can become the master.

    :ivar me: the name of this node.
    :ivar members: the nodes, as this node's configuration has them.
    :ivar voting: asks the nodes again.
    :ivar votes: the answers of the nodes.
    :ivar verdict: whether the vote is won, or why not.
    """

    me: str
    members: Members
    voting: Voting
    votes: Votes
    verdict: Verdict
    #: The present master, as most nodes know it; this node itself, if only its daemon has ended.
    old: Node
    ignore_offline: bool
    hasty: bool = False

    @property
    def fetches(self) -> NewerCopies:
        """The nodes from which newer data would be fetched."""
        if self.me not in self.votes.answers:
            return NewerCopies(None, None)
        return newest_of(self.me, self.votes.answers)

    @property
    def can_move(self) -> bool:
        """True if the role can be moved to this node, after it has fetched newer data."""
        if self.me not in self.votes.answers:
            return False
        return judge(self.voting.ballot, with_newest(self.me, self.votes.answers)).won

    @property
    def lacks_data(self) -> bool:
        """True if other nodes have newer data, which this node can fetch."""
        return self.verdict.outcome is Outcome.STALE and self.can_move

    def refuse(self) -> errors.OpPrereqError:
        """Return the error which says why the role cannot be moved to this node."""
        return _refusal(RoleNotWonError(self.verdict, self.votes.failures, self.votes.broken))


def _refusal(err: RoleNotWonError) -> errors.OpPrereqError:
    hint = err.advice()
    if err.verdict.outcome is Outcome.STALE:
        hint = "Run the command there. When that data is not wanted, --no-voting overrides this."
    return errors.OpPrereqError(
        f"the role of the master cannot be moved to this node: {err}. {hint}".rstrip(),
        errors.ECODE_STATE,
    )


def survey(*, ignore_offline: bool = True, hasty: bool = False) -> Survey:
    """Ask the nodes for their votes, without changing anything.

    :param ignore_offline: do not count nodes which are marked offline, neither for nor against.
    :param hasty: see :class:`ganeti.rpc.voting.Voting`.
    :raises OpPrereqError: this node is not a master candidate, or its master daemon runs already.
    :raises ConfigurationError: the configuration of this node cannot be used.
    """
    here = paths.current()
    me = machine.current().hostname()
    if not node_state.cluster_traces(here):
        raise errors.OpPrereqError("this machine belongs to no cluster", errors.ECODE_STATE)
    if node_state.running_daemon(here, node_state.MASTER) is not None:
        raise errors.OpPrereqError(
            f"the master daemon runs on this node ({me}) already. Run the command on the node that"
            " is to become the master.",
            errors.ECODE_INVAL,
        )
    if not os.path.exists(here.cluster_conf_file):
        raise _no_candidate(
            f"this node ({me}) is not a master candidate, so it has no copy of the"
            " present configuration",
            here,
        )
    members = read_members(here.cluster_conf_file)
    _require_own_place(me, members)
    runner = _runner(members)
    ballot = failover_ballot(me, members, ignore_offline=ignore_offline)
    voting = Voting(runner, me, members, ballot, hasty=hasty, witness=witness_of(members, ballot))
    votes = voting.ask()
    old = _present_master(here, members, votes)
    verdict = judge(voting.ballot, votes.answers)
    return Survey(me, members, voting, votes, verdict, old, ignore_offline, hasty)


def _runner(members: Members) -> AddressRunner:
    """Return a runner which believes the nodes only if they show their own keys."""
    runner = AddressRunner(open_client())
    runner.expect_keys(key_pins.expected(members.nodes.values()))
    return runner


def _require_candidate(own: Node, here: paths.Paths) -> None:
    wrong = None
    if not own.master_candidate:
        wrong = "is not a master candidate, so it has no copy of the present configuration"
    elif own.offline:
        wrong = "is marked offline"
    elif own.drained:
        wrong = "is marked drained"
    if wrong is not None:
        raise _no_candidate(f"this node ({own.name}) {wrong}", here)


def _no_candidate(problem: str, here: paths.Paths) -> errors.OpPrereqError:
    names = fs.read_file(here.ssconf_file(ssconf_const.MASTER_CANDIDATES)).split()
    return errors.OpPrereqError(
        f"{problem}. Use one of the candidates ({', '.join(names)}), or make it a candidate first.",
        errors.ECODE_STATE,
    )


def _present_master(here: paths.Paths, members: Members, votes: Votes) -> Node:
    """Return the master which most nodes name; without answers, the one that this node knows."""
    named = Counter(one.master for one in votes.answers.values())
    names = [name for name, _ in named.most_common()]
    with contextlib.suppress(FileNotFoundError):
        names.append(fs.read_file(here.ssconf_file(ssconf_const.MASTER_NODE)).strip().lower())
    for name in names:
        if name in members.nodes:
            return members.nodes[name]
    return members.master


def _write_missing_ssconf(say: Say) -> None:
    """Write the ssconf files which this node has lost, from its copy of the configuration.

    Without them its node daemon believes nobody, so that it has no vote.

    :raises ConfigurationError: a file is missing, and the configuration cannot be used.
    """
    here = paths.current()
    needed = (ssconf_const.MASTER_NODE, ssconf_const.MASTER_CANDIDATES_CERTS)
    lost = [name for name in needed if not os.path.exists(here.ssconf_file(name))]
    if not lost or not os.path.exists(here.cluster_conf_file):
        return
    say(f"writing the ssconf files of this node, which has lost {', '.join(lost)}")
    data, _version = config_file.load(here.cluster_conf_file)
    present = ssconf.values(data)
    ssconf.write_local(
        {
            name: value
            for name, value in present.items()
            if not os.path.exists(here.ssconf_file(name))
        },
        here,
    )


def failover(
    *,
    no_voting: bool = False,
    ignore_offline: bool = True,
    unattended: bool = False,
    say: Say = _log.info,
) -> list[str]:
    """Make this node the master.

    :param no_voting: take the role even if the vote is lost. Newer data of other nodes is lost.
    :param ignore_offline: do not count nodes which are marked offline.
    :param unattended: no administrator asks for this: do not wait long for nodes which are not
        needed, and let a drained queue stay drained.
    :param say: gets a message before each step.
    :returns: warnings about failures which did not prevent the move of the role.
    :raises OpPrereqError: this node may not become the master; the old one still runs, or was
        started again.
    :raises OpExecError: the role was not completely moved; the text says what is left.
    """
    _write_missing_ssconf(say)
    found = survey(ignore_offline=ignore_offline, hasty=unattended)
    if not (no_voting or found.can_move):
        raise found.refuse()
    _require_free_space()
    warnings: list[str] = []
    if found.old.name.lower() == found.me:
        say("this node is the master already, but its daemon does not run")
        if not no_voting:
            found, won = _take_role(found, no_voting, say)
            _hand_over(won, ignore_offline)
        _start(found, _runner(found.members), no_voting, say)
        return warnings
    with UndoStack() as undo:
        stopped = _stop_old(found, undo, warnings, say)
        found, won = _take_role(found, no_voting, say)
        undo.commit()
    config, runner = _commit(found, won, warnings, say)
    if stopped:
        failure = take_down_at(runner, config.snapshot(), found.old.uuid)
        if failure is not None:
            warnings.append(
                f"the address of the master may still be active on {found.old.name}: {failure}"
            )
    if not no_voting:
        _hand_over(won, ignore_offline)
    if not unattended:
        _undrain(found, runner, warnings, say)
    _start(found, runner, no_voting, say)
    late = None if unattended else node_state.await_master_address(config.cluster().master_ip)
    return warnings if late is None else [*warnings, late]


def _require_free_space() -> None:
    """Check that this node can write another configuration, before the old master is stopped.

    :raises OpPrereqError: the disk refuses; nothing was changed.
    """
    here = paths.current()
    probe = f"{here.data_dir}/.failover-probe"
    try:
        size = os.stat(here.cluster_conf_file).st_size
        try:
            fs.write_file(probe, b"\0" * (size + _SPARE_BYTES), mode=0o600)
        finally:
            fs.remove_file(probe)
    except OSError as err:
        raise errors.OpPrereqError(
            f"this node cannot write to {here.data_dir}: {err.strerror or err}. Nothing was"
            " changed. Use another master candidate, or repair the disk first.",
            errors.ECODE_ENVIRON,
        ) from err


def _stop_old(found: Survey, undo: UndoStack, warnings: list[str], say: Say) -> bool:
    """Stop the old master, if its node answers; returns whether the node answers."""
    old, runner = found.old, _runner(found.members)
    target = {old.name: old.primary_ip}
    if old.name.lower() not in found.votes.answers:
        # To wait for a node that hangs would prolong the time without a master.
        warnings.append(
            f"the old master {old.name} does not answer and was not stopped. It will end by itself"
            " as soon as it reaches a node which obeys the new master."
        )
        return False

    def start_again() -> None:
        # Nodes may have promised an epoch which this node could not write down.
        runner.use_epoch(max(found.voting.ask().known))
        runner.call_addresses(NODE_START_MASTER_DAEMONS, target, no_voting=False)[
            old.name
        ].payload()

    say(f"stopping the master daemon on {old.name}")
    undo.add(f"the master daemon of {old.name} is stopped", start_again)
    failure = runner.call_addresses(NODE_STOP_MASTER, target)[old.name].failure
    if failure is not None:
        warnings.append(
            f"the old master {old.name} could not be stopped: {failure}. It will end by itself."
        )
    return True


def _take_role(found: Survey, no_voting: bool, say: Say) -> tuple[Survey, Won]:
    """Ask for the votes once more, and have the nodes promise to obey a new epoch.

    :returns: the nodes may be others than before, if this node has fetched the configuration.
    :raises OpPrereqError: the vote is lost; only the epoch of some nodes may have changed, and the
        data of this node, if it has fetched newer data.
    """
    votes = found.voting.ask()
    verdict = judge(found.voting.ballot, votes.answers)
    try:
        if not no_voting and verdict.outcome is Outcome.STALE:
            found, won = _fetch_and_claim(found._replace(votes=votes, verdict=verdict), say)
        else:
            if not (no_voting or verdict.won):
                raise RoleNotWonError(verdict, votes.failures, votes.broken)
            won = found.voting.claim(votes, override=no_voting)
    except RoleNotWonError as err:
        raise _refusal(err) from err
    say(f"{len(won.promises)} of {len(found.members.nodes)} nodes obey epoch {won.epoch.number}")
    return found, won


def _fetch_and_claim(found: Survey, say: Say) -> tuple[Survey, Won]:
    """Fetch newer data of other nodes after they have promised a new epoch, then count again.

    The promises come first: from then on no older master changes what is fetched.

    :raises RoleNotWonError: the vote would be lost even with the newest data.
    :raises OpPrereqError: the data cannot be fetched.
    """
    if not found.can_move:
        raise RoleNotWonError(found.verdict, found.votes.failures, found.votes.broken)
    epoch, promised = found.voting.promise(found.votes)
    if found.me in promised.answers:
        verdict = judge_promises(found.voting.ballot, with_newest(found.me, promised.answers))
    else:
        verdict = judge_promises(found.voting.ballot, promised.answers)
    if not verdict.won:
        raise RoleNotWonError(verdict, promised.failures, found.votes.broken | promised.broken)
    runner = _runner(found.members)
    runner.use_epoch(epoch)
    addresses = {name: node.primary_ip for name, node in found.members.nodes.items()}
    sources = newest_of(found.me, promised.answers)
    try:
        if sources.jobs is not None:
            say(f"fetching newer jobs from {sources.jobs}")
            newer_copies.fetch_jobs(
                newer_copies.Source(runner, sources.jobs, addresses[sources.jobs]),
                epoch,
                (
                    promised.answers[found.me].jobs[0],
                    promised.answers[sources.jobs].jobs[0],
                ),
            )
        if sources.config is not None:
            say(f"fetching the newer configuration from {sources.config}")
            newer_copies.fetch_config(
                newer_copies.Source(runner, sources.config, addresses[sources.config]),
                epoch,
                lambda members: _require_own_place(found.me, members),
            )
    except (errors.GenericError, OSError) as err:
        raise errors.OpPrereqError(
            f"newer data of another node cannot be fetched: {err}. Run the command there, or once"
            " more here. When that data is not wanted, --no-voting overrides this.",
            errors.ECODE_ENVIRON,
        ) from err
    members = read_members(paths.current().cluster_conf_file)
    ballot = failover_ballot(found.me, members, ignore_offline=found.ignore_offline)
    found = found._replace(
        members=members,
        voting=Voting(
            _runner(members),
            found.me,
            members,
            ballot,
            hasty=found.hasty,
            witness=witness_of(members, ballot),
        ),
    )
    return found, found.voting.claim(promised._replace(answers=_known(promised, members)))


def _known(votes: Votes, members: Members) -> dict[str, Standing]:
    """Return the answers of the nodes which are in the configuration that was fetched, too."""
    return {name: one for name, one in votes.answers.items() if name in {*members.nodes, WITNESS}}


def _require_own_place(me: str, members: Members) -> None:
    """Check that this node may become master by a configuration.

    :raises OpPrereqError: it may not.
    """
    own = members.nodes.get(me)
    if own is None:
        raise errors.OpPrereqError(
            f"this node ({me}) is not in its own configuration", errors.ECODE_STATE
        )
    _require_candidate(own, paths.current())


def _commit(found: Survey, won: Won, warnings: list[str], say: Say) -> tuple[Config, RpcRunner]:
    """Write this node into the configuration as the master.

    :raises OpExecError: the configuration did not reach a majority of the candidates, and the user
        has not overridden the vote.
    """
    here = paths.current()

    def write(path: str, text: Any) -> None:
        try:
            with master_epoch.writing(master_epoch.CONFIG, won.epoch):
                write_config_file(path, text)
        except (errors.LockError, errors.ConfigurationError, master_epoch.StaleEpochError) as err:
            raise OSError(str(err)) from err

    config = Config.open(here.cluster_conf_file, write=write).acting_for(
        Author(None, None, "gnt:client:gnt-cluster", "master-failover")
    )
    runner = RpcRunner(config.snapshot, open_client(here))
    runner.use_epoch(won.epoch)
    runner.expect_keys(key_pins.expected(found.members.nodes.values()))
    config.use_distribution(ConfigDistributor(runner))
    if found.voting.witness is not None:
        config.use_witness(_record(found.voting.witness, found.me, won.epoch))
    unresponsive = [node for name, node in found.members.nodes.items() if name not in won.promises]
    # Do not wait for nodes that hang; the new master sends them the configuration later.
    uuids = [node.uuid for node in unresponsive]
    candidates = [node.uuid for node in unresponsive if node.master_candidate]
    config.expect_lagging(candidates, uuids, uuids)
    warnings += history_copies.complete(
        config,
        runner,
        [
            node.uuid
            for name, node in found.members.nodes.items()
            if name in won.promises and name != found.me
        ],
    )
    say("writing the configuration")
    me = found.members.nodes[found.me].uuid
    try:
        with config.transaction() as change:
            change.cluster.update(updated(config.cluster(), master_node=me))
    except errors.ConfigurationError as err:
        if won.override and config.cluster().master_node == me:
            # This node has the new configuration, and the user does without the other nodes.
            warnings.append(str(err))
            return config, runner
        raise errors.OpExecError(
            f"{err} There is no master now. Run this command once more, here or on another master"
            " candidate."
        ) from err
    return config, runner


def _record(witness: Witness, me: str, epoch: master_epoch.Epoch) -> Record:
    """Return a function which informs the witness of a configuration of this node."""

    def record(data: ConfigData) -> str | None:
        try:
            witness.record(epoch, me, config_serial=data.serial_no)
            # An older document may have been restored while this node obeys another master.
            master_epoch.require(epoch)
        except (WitnessError, errors.ConfigurationError, master_epoch.StaleEpochError) as err:
            return str(err)
        return None

    return record


def _hand_over(won: Won, ignored_offline: bool) -> None:
    """Leave the epoch which was won to the master daemon.

    :raises OpExecError: another node has become master meanwhile, or the disk refuses.
    """
    try:
        master_epoch.record_failover(won.epoch, ignored_offline=ignored_offline)
    except (errors.GenericError, OSError) as err:
        raise errors.OpExecError(
            f"the master daemon cannot be started: {err}. Run this command once more."
        ) from err


def _undrain(found: Survey, runner: AddressRunner, warnings: list[str], say: Say) -> None:
    """Let the queue of this node accept jobs; its master daemon then informs the candidates."""
    if not os.path.exists(paths.current().queue_drain_file):
        return
    say("the job queue was drained; under the new master it accepts new jobs")
    me = found.members.nodes[found.me]
    failure = runner.call_addresses(JOBQUEUE_SET_DRAIN_FLAG, {me.name: me.primary_ip}, flag=False)[
        me.name
    ].failure
    if failure is not None:
        warnings.append(
            f"the job queue is still drained: {failure}. Run 'gnt-cluster queue undrain'."
        )


def _start(found: Survey, runner: AddressRunner, no_voting: bool, say: Say) -> None:
    """Start the daemons of the master.

    :param no_voting: the user has overridden the vote, so the daemon does without one, too.
    :raises OpExecError: a daemon does not start.
    """
    say("starting the master daemon")
    me = found.members.nodes[found.me]
    failure = runner.call_addresses(
        NODE_START_MASTER_DAEMONS, {me.name: me.primary_ip}, no_voting=no_voting
    )[me.name].failure
    if failure is not None:
        raise errors.OpExecError(
            f"this node is the master now, but its daemon does not start: {failure}. Repair that,"
            " then run this command once more, or 'daemon-util start-master'."
        )
