"""The program ``gnt-os``: operating systems which the nodes can install."""

from __future__ import annotations

from collections.abc import Sequence

from ganeti import TYPE_CHECKING, errors
from ganeti.cli import failures, jobs, listing, main, terminal
from ganeti.cli import options as opt
from ganeti.cli.command import Argument, Command, Program, Values
from ganeti.client.gnt_os.images import IMAGES
from ganeti.constants import query as query_const

if TYPE_CHECKING:
    from typing import Any

    from ganeti.luxi import client as luxi


def _diagnose(
    values: Values, fields: Sequence[str], client: luxi.Client | None = None
) -> list[list[Any]]:
    """Ask the nodes for these fields of each OS definition.

    :raises OpExecError: the job returned no list.
    """
    from ganeti.opcodes.os import OpOsDiagnose

    rows = jobs.run_opcode(
        OpOsDiagnose(output_fields=list(fields), names=[], **jobs.common_params(values)),
        values,
        client=client,
    )
    if not isinstance(rows, list):
        raise errors.OpExecError("can't get the OS list")
    return rows


def os_names(name: str, variants: Sequence[str] | None) -> list[str]:
    """Return the names for the installation of an OS: one for each variant, or its own name."""
    return [f"{name}+{variant}" for variant in variants] if variants else [name]


def _format_pairs(value: Any) -> str:
    """Write a list of parameters and their descriptions as the names of the parameters."""
    return listing.join_list(pair[0] for pair in value)


LIST_FIELDS = ("name", "valid", "variants")
_FORMATTERS: dict[str, listing.Formatter] = {
    "variants": listing.join_list,
    "api_versions": listing.join_list,
    "parameters": _format_pairs,
}


_LISTING = listing.Listing("os", LIST_FIELDS, _FORMATTERS)


def list_os(values: Values, arguments: list[str]) -> int:
    """List the operating systems that can be installed (``list``).

    With names, a filter, ``-o FIELDS``, ``--sort-by`` or ``--watch``, list the definitions and not
    the variants.
    """
    if arguments or any(
        values.get(name) for name in ("output", "force_filter", "sort_by", "watch", "interval")
    ):
        return _LISTING.run(values, arguments)
    rows = _diagnose(values, ("name", "variants"))
    names = [name for os_name, variants in rows for name in os_names(os_name, variants)]
    if values.output_format in opt.DATA_FORMATS:
        from ganeti.cli import output

        output.write_data([{"name": name} for name in names], values.output_format)
        return failures.EXIT_SUCCESS
    for line in names if values.no_headers else ["Name", *names]:
        terminal.out(line)
    return failures.EXIT_SUCCESS


_INFO_FIELDS = (*query_const.OS_FIELDS, "os_versions", "hypervisors")


def show_info(values: Values, arguments: list[str]) -> int:
    """Show variants and parameters of OS definitions (``info``)."""
    from ganeti.cli import output

    found = {
        row[0]: dict(zip(_INFO_FIELDS, row, strict=True)) for row in _diagnose(values, _INFO_FIELDS)
    }
    wanted = arguments or list(found)
    unknown = [name for name in wanted if name not in found]
    if values.output_format in opt.DATA_FORMATS:
        output.write_data([found[name] for name in wanted if name in found], values.output_format)
    else:
        for name in wanted:
            terminal.out(_describe(name, found.get(name)))
    for name in unknown:
        terminal.err(f"no node has an OS definition '{name}'")
    return failures.EXIT_FAILURE if unknown else failures.EXIT_SUCCESS


def _describe(name: str, info: dict[str, Any] | None) -> str:
    """Return one OS definition as text, in its published form."""
    if info is None:
        return f"{name}: \n"
    lines = [f"{name}:"]
    lines += [f"  - {key}: {bool(info[key])}" for key in ("valid", "hidden", "blacklisted")]
    lines.append("  - API versions:")
    lines += [f"    - {version}" for version in sorted(info["api_versions"])]
    if any(info["os_versions"]):
        lines.append(f"  - OS version: {_versions(info['os_versions'])}")
    if info["hypervisors"]:
        lines.append(f"  - hypervisors: {', '.join(info['hypervisors'])}")
    lines.append("  - variants:")
    lines += [f"    - {variant}" for variant in info["variants"] or ()]
    lines.append("  - parameters:")
    lines += [f"    - {parameter[0]}: {parameter[1]}" for parameter in info["parameters"] or ()]
    lines.append(f"  - trusted: {bool(info['trusted'])}")
    return "\n".join([*lines, ""])


def _versions(versions: Sequence[str]) -> str:
    """Return the version, or the different versions of the nodes."""
    if len(versions) == 1:
        return versions[0]
    return "differs between nodes: " + ", ".join(version or "none" for version in versions)


_DIAGNOSE_FIELDS = (
    "name",
    "valid",
    "variants",
    "node_status",
    "hidden",
    "blacklisted",
    "os_versions",
)


def diagnose(values: Values, arguments: list[str]) -> int:
    """Show each OS definition on each node with its errors (``diagnose``)."""
    client = jobs.connect()
    rows = [
        dict(zip(_DIAGNOSE_FIELDS, row, strict=True))
        for row in _diagnose(values, _DIAGNOSE_FIELDS, client)
    ]
    healthy = all(row["valid"] for row in rows)
    if values.output_format in opt.DATA_FORMATS:
        from ganeti.cli import output

        output.write_data(rows, values.output_format)
    else:
        # The answer contains UUIDs; users need the names of nodes.
        names = {uuid: name for uuid, name in client.query_nodes([], ["uuid", "name"], False)}
        for row in rows:
            terminal.out("\n".join([*_diagnosis(row, names), ""]))
    return failures.EXIT_SUCCESS if healthy else failures.EXIT_FAILURE


def _diagnosis(row: dict[str, Any], names: dict[str, str]) -> list[str]:
    marks = [mark for mark in ("hidden", "blacklisted") if row[mark]]
    state = "valid" if row["valid"] else "invalid"
    lines = [
        f"OS: {row['name']} [global status: {state}]" + "".join(f" [{mark}]" for mark in marks)
    ]
    if row["variants"]:
        lines.append(f"  Variants: [{', '.join(row['variants'])}]")
    if len(row["os_versions"]) > 1:
        lines.append(f"  OS version {_versions(row['os_versions'])}")
    for uuid, places in row["node_status"].items():
        node = names.get(uuid, uuid)
        if not places:
            lines.append(f"  Node: {node}, status: not found")
            continue
        for number, place in enumerate(places):
            line = _node_line(*place)
            # Only the first definition with a name in the search path is used.
            lines.append(f"  Node: {node}, {line}" if not number else f"    [hidden] {line}")
    return lines


def _node_line(
    path: str,
    valid: bool,
    message: str,
    variants: Sequence[str],
    parameters: Sequence[Sequence[str]],
    api_versions: Sequence[int],
    trusted: bool = True,
    os_version: str = "",
    hypervisors: Sequence[str] = (),
) -> str:
    text = f"status: {'valid' if valid else 'invalid'} (path: {path})"
    if not valid:
        return f"{text} {message}"
    text += f" [API versions: {', '.join(str(version) for version in api_versions)}]"
    if os_version:
        text += f" [OS version: {os_version}]"
    if hypervisors:
        text += f" [hypervisors: {', '.join(hypervisors)}]"
    if variants:
        text += f" [variants: {', '.join(variants)}]"
    if parameters:
        text += f" [parameters: {', '.join(parameter[0] for parameter in parameters)}]"
    return text + (" [trusted]" if trusted else " [untrusted]")


NO_CHANGE = "Please give at least one of the parameters."


def modify(values: Values, arguments: list[str]) -> int:
    """Change the settings of the cluster for one OS (``modify``)."""
    from ganeti.opcodes.cluster import OpClusterSetParams

    name = arguments[0]
    by_hypervisor = _by_hypervisor(values.hvparams)
    changes: dict[str, Any] = {
        "os_hvp": {name: by_hypervisor} if by_hypervisor else None,
        "osparams": {name: values.osparams} if values.osparams else None,
        "osparams_private_cluster": {name: values.osparams_private}
        if values.osparams_private
        else None,
        "hidden_os": _list_change(values.hidden, name),
        "blacklisted_os": _list_change(values.blacklisted, name),
    }
    if all(change is None for change in changes.values()):
        terminal.err(NO_CHANGE)
        return failures.EXIT_FAILURE
    jobs.run_opcode(OpClusterSetParams(**changes, **jobs.common_params(values)), values)
    return failures.EXIT_SUCCESS


def _by_hypervisor(given: Sequence[tuple[str, Any]]) -> dict[str, dict[str, Any]]:
    """Turn options such as ``kvm:acpi=no`` into typed parameters by hypervisor.

    :raises OpPrereqError: unknown hypervisor, or all its parameters are removed.
    :raises TypeEnforcementError: unknown parameter, or wrong type of a value.
    """
    from ganeti.cli import value_types
    from ganeti.objects import hvparams

    found: dict[str, dict[str, Any]] = {}
    for hypervisor, params in given:
        if hypervisor not in hvparams.TABLES:
            raise errors.OpPrereqError(
                f"unknown hypervisor '{hypervisor}'. Known are:"
                f" {', '.join(sorted(hvparams.TABLES))}.",
                errors.ECODE_INVAL,
            )
        if not isinstance(params, dict):
            raise errors.OpPrereqError(
                f"parameters of hypervisor '{hypervisor}' cannot be removed as a whole. Write"
                f" {hypervisor}:NAME=default.",
                errors.ECODE_INVAL,
            )
        types = {key: parameter.type for key, parameter in hvparams.TABLES[hypervisor].items()}
        found.setdefault(hypervisor, {}).update(
            value_types.typed_params(params, types, allowed=("default",))
        )
    return found


def _list_change(wanted: bool | None, name: str) -> list[list[str]] | None:
    return None if wanted is None else [["add" if wanted else "remove", name]]


PROGRAM = Program(
    "gnt-os",
    "Show the operating systems which the nodes can install.",
    [
        *listing.commands(
            _LISTING,
            "List the operating systems that can be installed on all nodes",
            [*opt.LIST_OPTIONS, opt.PRIORITY],
            run=list_os,
            usage="",
        ),
        Command(
            "info",
            show_info,
            [Argument("os")],
            [opt.PRIORITY, opt.OUTPUT_FORMAT],
            "Show variants and parameters of OS definitions",
        ),
        Command(
            "diagnose",
            diagnose,
            [],
            [opt.PRIORITY, opt.OUTPUT_FORMAT],
            "Show each OS definition on each node with its errors",
        ),
        Command(
            "modify",
            modify,
            [Argument("os", 1, 1)],
            [
                opt.hypervisor_defaults(
                    "hypervisor parameters of instances with this OS; the value default removes"
                    " a value"
                ),
                opt.key_values(
                    "-O",
                    "--os-parameters",
                    dest="osparams",
                    help="parameters of this OS; -KEY removes a parameter",
                ),
                opt.key_values(
                    "--os-parameters-private",
                    dest="osparams_private",
                    help="parameters of this OS which do not appear in logs and job files",
                    kind="keyprivateval",
                ),
                opt.yes_no("--hidden", help="whether list leaves the OS out"),
                opt.yes_no(
                    "--blacklisted",
                    help="whether list leaves the OS out and no new instance can have it",
                ),
                opt.DRY_RUN,
                *opt.SUBMIT_OPTIONS,
                opt.PRIORITY,
            ],
            "Change the settings of the cluster for an OS",
        ),
        IMAGES,
    ],
    aliases={"show": "info"},
    examples={
        "list": "-F 'not valid'",
        "list-fields": "",
        "info": "debian",
        "diagnose": "",
        "images": "fetch debian-12",
        "modify": "-H kvm:acpi=no -O filesystem=xfs debian",
    },
)


def run() -> int:
    """Run the program; return the exit code."""
    return main.run(PROGRAM)
