"""The program ``gnt-filter``: rules that decide which jobs may run."""

from __future__ import annotations

import time

from ganeti import TYPE_CHECKING
from ganeti.cli import failures, jobs, listing, main, terminal
from ganeti.cli import options as opt
from ganeti.cli.command import Argument, Command, Option, Program, Values
from ganeti.constants import job as const

if TYPE_CHECKING:
    from typing import Any

LIST_FIELDS = ("uuid", "watermark", "priority", "predicates", "action", "reason_trail")
_TITLES = ("UUID", "Watermark", "Priority", "Predicates", "Action", "Reason trail")


def add(values: Values, arguments: list[str]) -> int:
    """Add a rule and print its UUID (``add``)."""
    terminal.out(_store(None, values))
    return failures.EXIT_SUCCESS


def replace(values: Values, arguments: list[str]) -> int:
    """Replace the rule with a UUID, or add it when there is none (``replace``)."""
    _store(arguments[0], values)
    return failures.EXIT_SUCCESS


def _store(uuid: str | None, values: Values) -> str:
    reason: list[list[Any]] = []
    if values.reason:
        reason.append([const.REASON_USER, values.reason, time.time_ns()])
    from ganeti.query import job_rules

    # The master daemon does not name the option when a value has another type than it expects.
    job_rules.check_rule(values.priority, values.predicates, values.action, reason)
    return jobs.connect().replace_filter(
        uuid, values.priority, values.predicates, values.action, reason
    )


def show_info(values: Values, arguments: list[str]) -> int:
    """Show all properties of rules (``info``)."""
    rows = jobs.connect().query_filters(arguments, LIST_FIELDS)
    return listing.show_objects(values, LIST_FIELDS, rows, _show)


def _show(rules: list[dict[str, Any]]) -> None:
    for rule in rules:
        for indent, title, value in zip(
            ("", *["  "] * len(rule)), _TITLES, rule.values(), strict=False
        ):
            terminal.out(f"{indent}{title}: {value}")


def delete(values: Values, arguments: list[str]) -> int:
    """Delete a rule (``delete``)."""
    jobs.connect().delete_filter(arguments[0])
    return failures.EXIT_SUCCESS


_RULE_OPTIONS = (
    Option(
        "--action",
        kind="filteraction",
        default=const.FILTER_CONTINUE,
        metavar="ACTION",
        help="action for these jobs: ACCEPT, PAUSE, REJECT, CONTINUE (apply the next rule;"
        " the default)"
        " or 'RATE_LIMIT n'",
    ),
    Option(
        "--predicates",
        kind="json",
        default=[],
        metavar="JSON",
        help="jobs to which the rule applies, as a list of pairs [type, filter] with the"
        " types jobid,"
        " opcode and reason, all of which must hold; all jobs by default",
    ),
    opt.number(
        "--priority",
        default=0,
        metavar="NUMBER",
        help="rules with lower numbers are applied first; 0 by default",
    ),
)

PROGRAM = Program(
    "gnt-filter",
    "Rules that decide which jobs may run.",
    [
        Command("add", add, [], _RULE_OPTIONS, "Add a rule and print its UUID"),
        *listing.commands(
            listing.Listing("filter", LIST_FIELDS, name_field="uuid"),
            "List the rules in the order in which they are applied",
            usage="",
        ),
        Command(
            "info",
            show_info,
            [Argument("filter")],
            [opt.OUTPUT_FORMAT],
            "Show all properties of rules",
        ),
        Command(
            "replace",
            replace,
            [Argument("filter", 1, 1)],
            _RULE_OPTIONS,
            "Replace the rule with this UUID, or add it",
        ),
        Command("delete", delete, [Argument("filter", 1, 1)], [], "Delete a rule"),
    ],
    examples={
        "add": '--predicates=\'[["jobid", [">", "id", "watermark"]]]\' --action=PAUSE',
        "list": "-o uuid,priority,action",
        "list-fields": "",
        "info": "3fbd2ab4-5a44-4f2c-9c8b-6e0c5d5c9f0d",
        "replace": "--action=ACCEPT 3fbd2ab4-5a44-4f2c-9c8b-6e0c5d5c9f0d",
        "delete": "3fbd2ab4-5a44-4f2c-9c8b-6e0c5d5c9f0d",
    },
)


def run() -> int:
    """Run the program; return the exit code."""
    return main.run(PROGRAM)
