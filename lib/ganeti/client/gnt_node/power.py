"""The commands ``gnt-node power``, ``health`` and ``powercycle``.

The first two run the out-of-band helper, the program which the node parameter ``oob_program``
names.
"""

from __future__ import annotations

from ganeti import TYPE_CHECKING, errors
from ganeti.cli import failures, jobs, selector, table, terminal
from ganeti.cli import options as opt
from ganeti.cli.command import Argument, Command, Values
from ganeti.cli.oob_options import OOB_TIMEOUT, POWER_DELAY
from ganeti.client.gnt_node.options import AUTO_PROMOTE
from ganeti.constants import query as query_const

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any

    from ganeti.opcodes.base import OpCode


_POWER_COMMANDS = ("cycle", "off", "on", "status")


_POWER_ASK = ("cycle", "off")


def power(values: Values, arguments: list[str]) -> int:
    """Switch nodes, or show whether they are on, with their out-of-band helpers (``power``)."""
    from ganeti.cli import confirmation
    from ganeti.opcodes.misc import OpOobCommand
    from ganeti.opcodes.node import OpNodeSetParams

    command, names = arguments[0], arguments[1:]
    if command not in _POWER_COMMANDS:
        terminal.err(
            f"power subcommand '{command}' not supported. Known are: {', '.join(_POWER_COMMANDS)}."
        )
        return failures.EXIT_FAILURE
    client = jobs.connect()
    names = selector.names("node", values, names, client)
    if command in _POWER_ASK:
        if not names:
            terminal.err("Please provide at least one node for this command")
            return failures.EXIT_FAILURE
        if not values.force:
            code = confirmation.ask(values, f"Power {command} the nodes {', '.join(names)}?")
            if code is not None:
                return code
    common = jobs.common_params(values)
    opcodes: list[OpCode] = []
    if command == "off" and not values.ignore_status:
        _require_helpers(names)
        # In the same job, the nodes are marked offline before they are switched off.
        opcodes += [
            OpNodeSetParams(
                node_name=name,
                offline=True,
                auto_promote=values.auto_promote,
                force=values.force,
                **common,
            )
            for name in names
        ]
    opcodes.append(
        OpOobCommand(
            node_names=names,
            command=f"power-{command}",
            ignore_status=values.ignore_status,
            timeout=values.oob_timeout,
            power_delay=values.power_delay,
            **common,
        )
    )
    result = jobs.run_opcodes(opcodes, values)[-1]
    if values.dry_run:
        return failures.EXIT_SUCCESS
    if values.output_format in opt.DATA_FORMATS:
        return _write_answers(
            result,
            values,
            "powered",
            lambda data: bool(data["powered"]) if command == "status" else command != "off",
        )
    return _show_answers(
        result, values, lambda data: [_power_text(data) if command == "status" else "invoked"]
    )


def _require_helpers(names: Sequence[str]) -> None:
    """Check that nodes have helpers before they are marked offline.

    :raises OpPrereqError: a node has no helper, or is unknown.
    """
    rows = jobs.connect().query_nodes(list(names), ["name", "powered"], False)
    without = [name for name, powered in rows if powered is None]
    if without:
        raise errors.OpPrereqError(
            f"nodes {', '.join(without)} have no out-of-band helper. Set the node parameter"
            " oob_program.",
            errors.ECODE_STATE,
        )


def _power_text(data: Mapping[str, Any]) -> str:
    return "powered" if data["powered"] else "unpowered"


def health(values: Values, arguments: list[str]) -> int:
    """Show the report of the out-of-band helpers about the hardware of nodes (``health``)."""
    from ganeti.opcodes.misc import OpOobCommand

    client = jobs.connect()
    result = jobs.run_opcode(
        OpOobCommand(
            node_names=selector.names("node", values, arguments, client),
            command="health",
            timeout=values.oob_timeout,
            **jobs.common_params(values),
        ),
        values,
        client=client,
    )
    if values.output_format in opt.DATA_FORMATS:
        return _write_answers(result, values, "items", dict)
    return _show_answers(
        result, values, lambda data: [f"{item}={status}" for item, status in data] or [""]
    )


_MARKS = {
    query_const.RS_UNKNOWN: "(unknown)",
    query_const.RS_NODATA: "(nodata)",
    query_const.RS_UNAVAIL: "(unavail)",
    query_const.RS_OFFLINE: "(offline)",
}


def _write_answers(result: Any, values: Values, member: str, read: Callable[[Any], Any]) -> int:
    """Print the answers for programs, with null for a missing one; return the exit code.

    :param result: rows of name and answer, each as a pair of status and value.
    :param member: key of the answer in the output.
    :param read: converts an answer.
    :returns: 1 when a node has no answer, else 0.
    """
    from ganeti.cli import output

    output.write_data(
        [
            {"node": name, member: read(data) if status == query_const.RS_NORMAL else None}
            for (_, name), (status, data) in result
        ],
        values.output_format,
    )
    failed = any(status != query_const.RS_NORMAL for _, (status, _) in result)
    return failures.EXIT_FAILURE if failed else failures.EXIT_SUCCESS


def _show_answers(result: Any, values: Values, texts: Any) -> int:
    """Print a table of nodes and answers of their helpers; return the exit code.

    :param texts: returns the lines of an answer.
    :returns: 1 when a node has no answer, else 0.
    """
    rows: list[list[str]] = []
    failed = False
    for (_, name), (status, data) in result:
        if status != query_const.RS_NORMAL:
            failed = True
            rows.append([name, _MARKS.get(status, f"({status})")])
            continue
        for number, text in enumerate(texts(data)):
            rows.append([name if number == 0 else "", text])
    _write_table([table.Column("Node"), table.Column("Status")], rows, values)
    return failures.EXIT_FAILURE if failed else failures.EXIT_SUCCESS


def _write_table(
    columns: Sequence[table.Column], rows: Sequence[Sequence[str]], values: Values
) -> None:
    header = not values.no_headers
    lines = table.format_table(columns, rows, header=header, separator=values.separator)
    if header and values.separator is None and not columns[-1].right:
        # The published titles of these tables end with blanks.
        width = max([len(columns[-1].title), *(len(row[-1]) for row in rows)])
        lines[0] += " " * (width - len(columns[-1].title))
    for line in lines:
        terminal.out(line)


def powercycle(values: Values, arguments: list[str]) -> int:
    """Make nodes reset themselves (``powercycle``)."""
    from ganeti.cli import many
    from ganeti.opcodes.node import OpNodePowercycle

    def make(name: str) -> OpCode:
        return OpNodePowercycle(node_name=name, force=values.force, **jobs.common_params(values))

    def report(name: str, text: str | None, several: bool) -> bool:
        if text:
            terminal.err(f"{name}: {text}" if several else text)
        return True

    return many.run(
        values,
        arguments,
        many.Work(
            "node",
            make,
            plan="will be reset without stopping their programs and guests",
            done="reset",
            question="Reset node {name} without stopping its programs and guests?",
            option="--yes",
            report=report,
        ),
    )


_JOB = (*opt.SUBMIT_OPTIONS, opt.PRIORITY)


COMMANDS = (
    Command(
        "power",
        power,
        [Argument("choice", 1, 1, _POWER_COMMANDS), Argument("node")],
        [
            *selector.OPTIONS,
            OOB_TIMEOUT,
            POWER_DELAY,
            AUTO_PROMOTE,
            opt.FORCE,
            opt.flag(
                "--ignore-status",
                help="switch off nodes that are not marked offline, and do not mark them",
            ),
            opt.NO_HEADERS,
            opt.SEPARATOR,
            opt.OUTPUT_FORMAT,
            opt.DRY_RUN,
            *_JOB,
        ],
        "Switch nodes with their out-of-band helpers, or show whether they are on",
        usage="[<options>] on|off|cycle|status [<node>...]",
    ),
    Command(
        "health",
        health,
        [Argument("node")],
        [
            *selector.OPTIONS,
            OOB_TIMEOUT,
            opt.NO_HEADERS,
            opt.SEPARATOR,
            opt.PRIORITY,
            opt.OUTPUT_FORMAT,
        ],
        "Show the report of the out-of-band helpers about the hardware of nodes",
    ),
    Command(
        "powercycle",
        powercycle,
        [Argument("node", 1)],
        [
            *selector.OPTIONS,
            selector.FORCE_MULTIPLE,
            opt.flag("--yes", dest="confirm", help="do not ask for confirmation"),
            opt.flag("-f", "--force", help="reset the node even if it is the master"),
            opt.DRY_RUN,
            *_JOB,
        ],
        "Make nodes reset themselves, without stopping programs and guests",
    ),
)
