"""The program ``gnt-storage``: providers of external storage on the nodes."""

from __future__ import annotations

from ganeti import TYPE_CHECKING
from ganeti.cli import failures, jobs, main, terminal
from ganeti.cli import options as opt
from ganeti.cli.command import Argument, Command, Program, Values

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

_FIELDS = ("name", "node_status", "nodegroup_status", "parameters")


def _providers(values: Values) -> list[dict[str, Any]]:
    from ganeti.opcodes.os import OpExtStorageDiagnose

    rows = jobs.run_opcode(
        OpExtStorageDiagnose(output_fields=list(_FIELDS), names=[], **jobs.common_params(values)),
        values,
    )
    return [dict(zip(_FIELDS, row, strict=True)) for row in rows]


def _none_found() -> int:
    terminal.err("Can't get the list of ExtStorage providers: no node has one")
    return failures.EXIT_FAILURE


def diagnose(values: Values, arguments: list[str]) -> int:
    """Show each provider on each node with its errors (``diagnose``)."""
    providers = _providers(values)
    if values.output_format in opt.DATA_FORMATS:
        from ganeti.cli import output

        output.write_data(providers, values.output_format)
    elif not providers:
        return _none_found()
    else:
        for provider in providers:
            terminal.out("\n".join([*_diagnosis(provider), ""]))
    healthy = all(all(provider["nodegroup_status"].values()) for provider in providers)
    return failures.EXIT_SUCCESS if healthy else failures.EXIT_FAILURE


def _diagnosis(provider: dict[str, Any]) -> list[str]:
    lines = [f"Provider: {provider['name']}"]
    for group, valid in sorted(provider["nodegroup_status"].items()):
        lines.append(f"  Group: {group}, status: {'valid' if valid else 'invalid'}")
    for node, places in provider["node_status"].items():
        if not places:
            lines.append(f"  Node: {node}, status: not found")
        for number, place in enumerate(places):
            line = _place(*place)
            # Only the first provider with a name in the search path is used.
            lines.append(f"    [hidden] {line}" if number else f"  Node: {node}, {line}")
    return lines


def _place(path: str, valid: bool, message: str, parameters: Sequence[Sequence[str]]) -> str:
    if not valid:
        return f"status: invalid (path: {path}) {message}"
    names = ", ".join(parameter[0] for parameter in parameters)
    return f"status: valid (path: {path})" + (f" [parameters: {names}]" if names else "")


def show_info(values: Values, arguments: list[str]) -> int:
    """Show node groups and parameters of providers (``info``)."""
    providers = _providers(values)
    found = {provider["name"]: provider for provider in providers}
    wanted = arguments or list(found)
    unknown = [name for name in wanted if name not in found]
    if values.output_format in opt.DATA_FORMATS:
        from ganeti.cli import output

        output.write_data([found[name] for name in wanted if name in found], values.output_format)
    elif not providers and not arguments:
        return _none_found()
    else:
        for name in wanted:
            if name in found:
                terminal.out("\n".join([*_describe(found[name]), ""]))
    for name in unknown:
        terminal.err(f"no node has a storage provider '{name}'")
    return failures.EXIT_FAILURE if unknown else failures.EXIT_SUCCESS


def _describe(provider: dict[str, Any]) -> list[str]:
    lines = [f"{provider['name']}:", "  - valid in node groups:"]
    lines += [
        f"    - {group}" for group, valid in sorted(provider["nodegroup_status"].items()) if valid
    ]
    lines.append("  - parameters:")
    lines += [f"    - {name}: {text}" for name, text in provider["parameters"]]
    return lines


PROGRAM = Program(
    "gnt-storage",
    "Show the providers of external storage on the nodes.",
    [
        Command(
            "diagnose",
            diagnose,
            [],
            [opt.PRIORITY, opt.OUTPUT_FORMAT],
            "Show each provider on each node with its errors",
        ),
        Command(
            "info",
            show_info,
            [Argument("os")],
            [opt.PRIORITY, opt.OUTPUT_FORMAT],
            "Show in which node groups providers can be used, and their parameters",
            usage="[<options>] [<provider>...]",
        ),
    ],
    examples={
        "diagnose": "",
        "info": "provider1",
    },
)


def run() -> int:
    """Run the program; return the exit code."""
    return main.run(PROGRAM)
