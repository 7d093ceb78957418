"""The commands of ``gnt-cluster`` for the role of the master.

``master-failover`` moves the role to this node, ``failover-status`` shows what the nodes know
about the master and whether its role would move by itself, ``master-ping`` checks whether the
master answers, ``activate-master-ip`` and ``deactivate-master-ip`` set up and remove its address.
"""

from __future__ import annotations

import time

from ganeti import TYPE_CHECKING, errors
from ganeti.cli import failures, jobs, terminal, value_types
from ganeti.cli import options as opt
from ganeti.cli.command import Command, Option, Values
from ganeti.constants import failover as failover_c

if TYPE_CHECKING:
    from ganeti.bootstrap.failover import Survey
    from ganeti.luxi.answers import FailoverNode, FailoverReport, WitnessReport

_NO_VOTING_QUESTION = """\
This node will become the master without a vote of the other nodes. Data which only the other nodes
have are lost, even if they were acknowledged. Do this only when the other nodes are lost for ever.
Continue?"""


def master_failover(values: Values, arguments: list[str]) -> int:
    """Make this node the master (``master-failover``); this needs no master daemon."""
    from ganeti.bootstrap import failover

    ignore_offline = _ignore_offline(values)
    if values.dry_run:
        return _show_vote(failover.survey(ignore_offline=ignore_offline))
    if values.no_voting and not values.yes_do_it:
        if not terminal.confirm(_NO_VOTING_QUESTION):
            terminal.err(
                "Nothing was changed. Use --yes-do-it to confirm --no-voting without a question."
            )
            return failures.EXIT_CONFIRMATION
    warnings = failover.failover(
        no_voting=values.no_voting, ignore_offline=ignore_offline, say=terminal.out
    )
    for warning in warnings:
        terminal.err(f"Warning: {warning}")
    return failures.EXIT_SUCCESS


def _ignore_offline(values: Values) -> bool:
    given = values.ignore_offline_nodes
    if isinstance(given, bool):
        return given
    try:
        return value_types.parse_bool(given)
    except errors.ParameterError as err:
        raise errors.OpPrereqError(f"--ignore-offline-nodes: {err}", errors.ECODE_INVAL) from err


def _show_vote(found: Survey) -> int:
    """Print the answers of all nodes and the result of the vote; return the exit code."""
    from ganeti.cli.table import Column, format_table

    rows = []
    for name in sorted(found.members.nodes, key=_by_name):
        one = found.votes.answers.get(name)
        voter = "yes" if name in found.voting.ballot.voters else "no"
        if one is None:
            rows.append([name, voter, "-", "-", "-", "-", found.votes.failures.get(name, "")])
            continue
        serial = f"{one.config[0].number}/{one.config[1]}" if any(one.config) else "-"
        rows.append(
            [
                name,
                voter,
                one.master,
                str(one.epoch.number),
                serial,
                f"{one.jobs[0].number}/{one.jobs[1]}",
                "answers",
            ]
        )
    columns = [
        Column("Node"),
        Column("Voter"),
        Column("Master"),
        Column("Epoch", right=True),
        Column("Config", right=True),
        Column("Job", right=True),
        Column("State"),
    ]
    for line in format_table(columns, rows):
        terminal.out(line)
    if found.old.name.lower() == found.me:
        terminal.out(
            f"{found.me} is already the master; its master daemon does not run and would be"
            " started."
        )
        return failures.EXIT_SUCCESS
    if found.can_move:
        for source, what in zip(found.fetches, ("configuration", "jobs"), strict=True):
            if source is not None:
                terminal.out(f"{source} has newer {what}, which would be fetched.")
        terminal.out(f"{found.me} may become the master in place of {found.old.name}.")
        return failures.EXIT_SUCCESS
    terminal.out(f"{found.me} may not become the master: {found.verdict}.")
    return failures.EXIT_FAILURE


def _by_name(name: str) -> list[object]:
    from ganeti.utils import text

    return list(text.natural_key(name))


def master_ping(values: Values, arguments: list[str]) -> int:
    """Check whether the master answers (``master-ping``); the exit code is 0 when it does."""
    try:
        jobs.connect().query_cluster_info()
    except errors.GenericError as err:
        reason = failures.explain_no_master(err) if isinstance(err, errors.NoMasterError) else err
        text = failures.describe(reason)[1].removeprefix("Failure: ")
        terminal.err(f"The master does not answer: {text}")
        return failures.EXIT_FAILURE
    return failures.EXIT_SUCCESS


def failover_status(values: Values, arguments: list[str]) -> int:
    """Show what each node knows about the master (``failover-status``); this needs no master."""
    found = _ask_nodes()
    if values.output_format in opt.DATA_FORMATS:
        from ganeti.cli import output

        output.write_data(found, values.output_format)
        return failures.EXIT_SUCCESS
    limit_s, master, nodes = found["auto_failover"], found["master"], found["nodes"]
    if limit_s:
        terminal.out(
            f"The master is {master}. A candidate takes its role when it is gone for {limit_s} s."
        )
    else:
        terminal.out(f"The master is {master}. Its role does not move by itself.")
    answers = [(one["name"], one["sight"]) for one in nodes if one["sight"] is not None]
    until = max((status.get("paused_until") or 0.0 for _name, status in answers), default=0.0)
    if until > time.time():
        terminal.out(f"The watcher is paused until {time.ctime(until)}, so the role stays there.")
    from ganeti.cli.table import Column, format_table

    rows = [_status_row(one, master, limit_s) for one in nodes]
    columns = [Column(name) for name in ("Node", "Candidate", "Daemon", "Master daemon", "Report")]
    for line in format_table(columns, rows):
        terminal.out(line)
    if found["witness"] is not None:
        terminal.out(_witness_text(found["witness"]))
    for name, status in answers:
        if status["acted"]:
            terminal.out(f"{name} acted: {status['acted']}")
    return failures.EXIT_SUCCESS


def _ask_nodes() -> FailoverReport:
    """Return what all nodes know about the master.

    :raises OpPrereqError: this machine belongs to no cluster.
    """
    from ganeti.cli.over_rest import address

    if address.is_given():
        return jobs.connect().query_failover_status()
    from ganeti.bootstrap import node_state
    from ganeti.platform import paths
    from ganeti.rpc import failover_status as status

    if not node_state.cluster_traces(paths.current()):
        raise errors.OpPrereqError("this machine belongs to no cluster", errors.ECODE_STATE)
    return status.report(status.ask())


def _witness_text(found: WitnessReport) -> str:
    if found["written"] is None:
        return f"The witness does not count: {found['failure']}"
    knows = [f"it obeys master epoch {found['epoch']} of {found['master']}"]
    if found["config_serial"]:
        knows.append(f"it knows of configuration {found['config_serial']}")
    if found["last_job"]:
        knows.append(f"it knows of job {found['last_job']}")
    return (
        f"The witness {found['url']} answers: {', '.join(knows)};"
        f" written {time.ctime(found['written'])}."
    )


def _status_row(one: FailoverNode, master: str, limit_s: int) -> list[str]:
    name, candidate = one["name"], "yes" if one["master_candidate"] else "no"
    status = one["sight"]
    if status is None:
        return [name, candidate, "-", "-", "offline" if one["offline"] else one["failure"] or "-"]
    text, seen_s = status["text"], status.get("seen_s")
    state = status["daemon"] if name == master else status["state"] or "-"
    if name == master and seen_s is not None:
        text = f"{text} (a majority confirmed {seen_s:.0f} s ago that it can commit)"
        state = failover_c.STALLED if limit_s and seen_s > limit_s else state
    elif status["watched"] and seen_s is not None:
        text = f"{text} (seen serving {seen_s:.0f} s ago)"
    return [name, candidate, "watches" if status["watching"] else "off", state, text]


def activate_master_ip(values: Values, arguments: list[str]) -> int:
    """Set up the address of the cluster on the master (``activate-master-ip``)."""
    from ganeti.opcodes.cluster import OpClusterActivateMasterIp

    jobs.run_opcode(OpClusterActivateMasterIp(**jobs.common_params(values)), values)
    return failures.EXIT_SUCCESS


def deactivate_master_ip(values: Values, arguments: list[str]) -> int:
    """Remove the address of the cluster from the master (``deactivate-master-ip``)."""
    if (
        not values.confirm
        and not values.dry_run
        and not terminal.confirm(
            "Programs that use the address of the cluster will not reach the master any more."
            " Continue?"
        )
    ):
        terminal.err("Nothing was changed. Use --yes to confirm without a question.")
        return failures.EXIT_CONFIRMATION
    from ganeti.opcodes.cluster import OpClusterDeactivateMasterIp

    jobs.run_opcode(OpClusterDeactivateMasterIp(**jobs.common_params(values)), values)
    return failures.EXIT_SUCCESS


_YES_DO_IT = opt.flag("--yes-do-it", dest="yes_do_it", help="do not ask for confirmation")

#: The commands of this module.
COMMANDS = (
    Command(
        "master-failover",
        master_failover,
        [],
        [
            opt.flag(
                "--no-voting",
                dest="no_voting",
                help="do not count votes; data which only the other nodes have are lost",
            ),
            Option(
                "--ignore-offline-nodes",
                kind="string",
                dest="ignore_offline_nodes",
                default=True,
                metavar="yes|no",
                help="whether nodes that are marked offline are left out of the vote; yes by"
                " default",
            ),
            opt.flag(
                "--dry-run",
                dest="dry_run",
                help="only show the answers of the nodes and the result of the vote",
            ),
            _YES_DO_IT,
        ],
        "Make this node the master",
    ),
    Command(
        "failover-status",
        failover_status,
        [],
        [opt.OUTPUT_FORMAT],
        "Show what each node knows about the master, and whether its role would move",
    ),
    Command("master-ping", master_ping, [], [], "Check whether the master answers"),
    Command(
        "activate-master-ip",
        activate_master_ip,
        [],
        [opt.DRY_RUN],
        "Set up the address of the cluster on the master",
    ),
    Command(
        "deactivate-master-ip",
        deactivate_master_ip,
        [],
        [opt.flag("--yes", dest="confirm", help="do not ask for confirmation"), opt.DRY_RUN],
        "Remove the address of the cluster from the master",
    ),
)
