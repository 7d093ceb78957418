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
    from ganeti.bootstrap.failover_status import NodeStatus, Status, WitnessStatus

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
    from ganeti.bootstrap import failover_status as status

    found = status.ask()
    if values.output_format in opt.DATA_FORMATS:
        from ganeti.cli import output

        output.write_data(_status_data(found), values.output_format)
        return failures.EXIT_SUCCESS
    if found.limit_s:
        terminal.out(
            f"The master is {found.master}. A candidate takes its role when it is gone for"
            f" {found.limit_s} s."
        )
    else:
        terminal.out(f"The master is {found.master}. Its role does not move by itself.")
    until = max(
        (one.answer.paused_until or 0.0 for one in found.nodes if one.answer is not None),
        default=0.0,
    )
    if until > time.time():
        terminal.out(f"The watcher is paused until {time.ctime(until)}, so the role stays there.")
    from ganeti.cli.table import Column, format_table

    rows = [_status_row(one, found.master, found.limit_s) for one in found.nodes]
    columns = [Column(name) for name in ("Node", "Candidate", "Daemon", "Master daemon", "Report")]
    for line in format_table(columns, rows):
        terminal.out(line)
    if found.witness is not None:
        terminal.out(_witness_text(found.witness))
    for one in found.nodes:
        if one.answer is not None and one.answer.acted:
            terminal.out(f"{one.name} acted: {one.answer.acted}")
    return failures.EXIT_SUCCESS


def _witness_text(found: WitnessStatus) -> str:
    document = found.document
    if document is None:
        return f"The witness does not count: {found.failure}"
    config_serial, last_job = document.config[1], document.jobs[1]
    knows = [f"it obeys master epoch {document.epoch.number} of {document.master}"]
    if config_serial:
        knows.append(f"it knows of configuration {config_serial}")
    if last_job:
        knows.append(f"it knows of job {last_job}")
    return (
        f"The witness {found.url} answers: {', '.join(knows)};"
        f" written {time.ctime(document.written)}."
    )


def _status_row(one: NodeStatus, master: str, limit_s: int) -> list[str]:
    candidate = "yes" if one.candidate else "no"
    if one.answer is None:
        return [one.name, candidate, "-", "-", "offline" if one.offline else one.failure]
    answer = one.answer
    text = answer.text
    state = answer.daemon if one.name == master else answer.state or "-"
    if one.name == master and answer.seen_s is not None:
        text = f"{text} (a majority confirmed {answer.seen_s:.0f} s ago that it can commit)"
        state = failover_c.STALLED if limit_s and answer.seen_s > limit_s else state
    elif answer.watched and answer.seen_s is not None:
        text = f"{text} (seen serving {answer.seen_s:.0f} s ago)"
    return [one.name, candidate, "watches" if answer.watching else "off", state, text]


def _status_data(found: Status) -> dict[str, object]:
    from ganeti.objects import codec

    return {
        "auto_failover": found.limit_s,
        "master": found.master,
        "witness": None if found.witness is None else _witness_data(found.witness),
        "nodes": [
            {
                "name": one.name,
                "master_candidate": one.candidate,
                "offline": one.offline,
                "failure": one.failure or None,
                "sight": None if one.answer is None else codec.to_dict(one.answer),
            }
            for one in found.nodes
        ],
    }


def _witness_data(found: WitnessStatus) -> dict[str, object]:
    document = found.document
    return {
        "url": found.url,
        "failure": found.failure or None,
        "master": None if document is None else document.master,
        "epoch": None if document is None else document.epoch.number,
        "config_serial": None if document is None else document.config[1],
        "last_job": None if document is None else document.jobs[1],
        "written": None if document is None else document.written,
    }


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
