"""The program ``gnt-group``: sets of nodes with parameters and a policy of their own."""

from __future__ import annotations

from ganeti import TYPE_CHECKING
from ganeti.cli import (
    change_group,
    failures,
    jobs,
    listing,
    main,
    policy_options,
    selector,
    tags,
    terminal,
)
from ganeti.cli import options as opt
from ganeti.cli.command import Argument, Command, Program, Values

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    from ganeti.cli.output import Pairs

LIST_FIELDS = ("name", "node_cnt", "pinst_cnt", "alloc_policy", "ndparams")
NO_CHANGE = "Please give at least one of the parameters."


def _params_text(params: Mapping[str, Any]) -> str:
    from ganeti.constants import node as const

    # The published order of node parameters in lists.
    order = (
        "oob_program",
        "spindle_count",
        "exclusive_storage",
        "ovs",
        "ovs_name",
        "ovs_link",
        "ssh_port",
        "cpu_speed",
    )
    names = [name for name in order if name in params]
    names += sorted(set(params) - set(names) - (set(const.ND_DEFAULTS) - set(params)))
    from ganeti.cli import output

    return ", ".join(f"{name}={output.value_text(params[name])}" for name in names)


_FORMATTERS = {
    **{name: listing.join_list for name in ("node_list", "pinst_list", "enabled_hypervisors")},
    "ndparams": _params_text,
}


# -- info -----------------------------------------------------------------------------------------

_INFO_FIELDS = (
    "name",
    "ndparams",
    "custom_ndparams",
    "diskparams",
    "custom_diskparams",
    "ipolicy",
    "custom_ipolicy",
)


def _query(values: Values, arguments: list[str], fields: Sequence[str]) -> list[list[Any]]:
    client = jobs.connect()
    names = selector.names("group", values, arguments, client)
    return client.query_groups(names, fields)


def show_info(values: Values, arguments: list[str]) -> int:
    """Show parameters and policy of node groups (``info``)."""
    from ganeti.cli import output

    rows = _query(values, arguments, _INFO_FIELDS)
    return listing.show_objects(
        values, _INFO_FIELDS, rows, lambda groups: output.write_info(list(map(_describe, groups)))
    )


def _describe(group: Mapping[str, Any]) -> Pairs:
    from ganeti.cli import output

    own, whole = group["custom_diskparams"], group["diskparams"]
    return [
        ("Node group", group["name"]),
        (
            "Node parameters",
            output.params_with_defaults(
                group["custom_ndparams"], dict(sorted(group["ndparams"].items()))
            ),
        ),
        (
            "Disk parameters",
            {
                template: _template(own.get(template, {}), params)
                for template, params in whole.items()
            },
        ),
        ("Instance policy", _policy(group["custom_ipolicy"], group["ipolicy"])),
    ]


def _template(own: Mapping[str, Any], whole: Mapping[str, Any]) -> Any:
    from ganeti.cli import output

    return output.params_with_defaults(own, whole) if whole else "default ({})"


def _policy(own: Mapping[str, Any], whole: Mapping[str, Any]) -> Pairs:
    from ganeti.cli import output

    def shown(key: str, text: str) -> str:
        return text if key in own else f"default ({text})"

    bounds = [
        {
            f"{kind}/{index}": {
                name: shown("minmax", output.value_text(value)) for name, value in specs.items()
            }
            for kind, specs in choice.items()
        }
        for index, choice in enumerate(whole["minmax"])
    ]
    return [
        ("bounds specs", bounds),
        ("allowed disk templates", shown("disk-templates", ", ".join(whole["disk-templates"]))),
        *(
            (ratio, shown(ratio, output.value_text(whole[ratio])))
            for ratio in ("vcpu-ratio", "spindle-ratio")
        ),
    ]


def show_ispecs_cmd(values: Values, arguments: list[str]) -> int:
    """Print the commands that add groups with the same bounds (``show-ispecs-cmd``)."""
    import shlex

    field = "ipolicy" if values.include_defaults else "custom_ipolicy"
    for name, policy in _query(values, arguments, ("name", field)):
        words = ["gnt-group", "add"]
        if "minmax" in policy:
            words += policy_options.bounds_words(policy["minmax"])
        terminal.out(shlex.join([*words, name]))
    return failures.EXIT_SUCCESS


# -- changing -------------------------------------------------------------------------------------


def _parameters(values: Values) -> dict[str, Any]:
    """Return the parameters of a group as opcodes take them; None for those not given."""
    from ganeti.cli import node_params

    return {
        "alloc_policy": values.alloc_policy,
        "ndparams": None if values.ndparams is None else node_params.node_params(values.ndparams),
        "diskparams": policy_options.disk_params(values.diskparams),
        "hv_state": node_params.hv_state(values.hv_state) or None,
        "disk_state": node_params.disk_state(values.disk_state) or None,
        "ipolicy": policy_options.group_policy(values),
        "enabled_hypervisors": _hypervisors(values.enabled_hypervisors),
    }


def _hypervisors(text: str | None) -> list[str] | None:
    if text is None:
        return None
    return [] if text == "default" else [name for name in text.split(",") if name]


def add(values: Values, arguments: list[str]) -> int:
    """Add a node group (``add``)."""
    from ganeti.opcodes.group import OpGroupAdd

    client = jobs.connect()
    result = jobs.run_opcode(
        OpGroupAdd(group_name=arguments[0], **_parameters(values), **jobs.common_params(values)),
        values,
        client=client,
    )
    if not result:
        return failures.EXIT_SUCCESS
    # These jobs connect the group to the network over which guests reach their node.
    outcomes = jobs.await_submitted(result["jobs"], values, client)
    ok = all(outcome.success for outcome in outcomes)
    return failures.EXIT_SUCCESS if ok else failures.EXIT_FAILURE


def modify(values: Values, arguments: list[str]) -> int:
    """Change parameters and policy of a group (``modify``)."""
    from ganeti.opcodes.group import OpGroupSetParams

    parameters = _parameters(values)
    if all(value is None for value in parameters.values()):
        terminal.err(NO_CHANGE)
        return failures.EXIT_FAILURE
    changes = jobs.run_opcode(
        OpGroupSetParams(
            group_name=arguments[0],
            force=values.force or None,
            **parameters,
            **jobs.common_params(values),
        ),
        values,
    )
    if changes and not jobs.has_closing_line(values):
        terminal.out(f"Modified node group {arguments[0]}")
        for name, value in changes:
            terminal.out(f" - {name:<5} -> {value}")
    return failures.EXIT_SUCCESS


def assign_nodes(values: Values, arguments: list[str]) -> int:
    """Move nodes to a group (``assign-nodes``)."""
    from ganeti.opcodes.group import OpGroupAssignNodes

    client = jobs.connect()
    jobs.run_opcode(
        OpGroupAssignNodes(
            group_name=arguments[0],
            nodes=selector.names("node", values, arguments[1:], client),
            force=values.force,
            **jobs.common_params(values),
        ),
        values,
        client=client,
    )
    return failures.EXIT_SUCCESS


def remove(values: Values, arguments: list[str]) -> int:
    """Remove a group without nodes (``remove``)."""
    from ganeti.opcodes.group import OpGroupRemove

    jobs.run_opcode(OpGroupRemove(group_name=arguments[0], **jobs.common_params(values)), values)
    return failures.EXIT_SUCCESS


def rename(values: Values, arguments: list[str]) -> int:
    """Give a group another name (``rename``)."""
    from ganeti.opcodes.group import OpGroupRename

    jobs.run_opcode(
        OpGroupRename(group_name=arguments[0], new_name=arguments[1], **jobs.common_params(values)),
        values,
    )
    return failures.EXIT_SUCCESS


def evacuate(values: Values, arguments: list[str]) -> int:
    """Move all instances of a group to other groups, and wait for these jobs (``evacuate``)."""
    from ganeti.opcodes.group import OpGroupEvacuate

    client = jobs.connect()
    result = jobs.run_opcode(
        OpGroupEvacuate(
            group_name=arguments[0],
            iallocator=values.iallocator,
            target_groups=values.to or None,
            early_release=values.early_release,
            sequential=values.sequential,
            force_failover=values.force_failover,
            **jobs.common_params(values),
        ),
        values,
        client=client,
    )
    return change_group.wait_for_moves(
        result, values, client, "All instances evacuated successfully."
    )


# -- the table ------------------------------------------------------------------------------------

_JOB = (*opt.SUBMIT_OPTIONS, opt.PRIORITY)
_GROUP = Argument("group", 1, 1)
ALLOC_POLICY = opt.text(
    "--alloc-policy",
    metavar="POLICY",
    help="whether allocators may place instances in the group: preferred, last_resort (if no"
    " preferred group has enough free capacity) or unallocable",
)
HYPERVISORS = opt.text(
    "--enabled-hypervisors",
    metavar="NAMES|default",
    help="hypervisors of the nodes of the group, separated by commas; default means all of the"
    " cluster",
)
_PARAMETERS = (
    ALLOC_POLICY,
    HYPERVISORS,
    opt.NODE_PARAMETERS,
    policy_options.DISK_PARAMETERS,
    opt.HV_STATE,
    opt.DISK_STATE,
    *policy_options.GROUP_POLICY,
    opt.DRY_RUN,
    *_JOB,
)

PROGRAM = Program(
    "gnt-group",
    "Sets of nodes with parameters and a policy of their own.",
    [
        Command("add", add, [_GROUP], _PARAMETERS, "Add a node group"),
        Command(
            "assign-nodes",
            assign_nodes,
            [_GROUP, Argument("node")],
            [
                *selector.OPTIONS,
                opt.flag(
                    "-f",
                    "--force",
                    help="move the nodes even if this splits instances between two groups",
                ),
                opt.DRY_RUN,
                *_JOB,
            ],
            "Move nodes from their groups to this group",
            usage="[<options>] <group> <node>...",
        ),
        *listing.commands(
            listing.Listing(
                "group",
                LIST_FIELDS,
                _FORMATTERS,
                # On a terminal without the long parameters of nodes.
                people=listing.PeopleForm(LIST_FIELDS[:-1]),
            ),
            "List node groups",
            [*opt.LIST_OPTIONS, selector.TAGS],
        ),
        Command(
            "info",
            show_info,
            [Argument("group")],
            [selector.FILTER, selector.TAGS, opt.OUTPUT_FORMAT],
            "Show the parameters and the policy of groups",
        ),
        Command(
            "modify",
            modify,
            [_GROUP],
            [
                opt.flag(
                    "-f",
                    "--force",
                    help="set the volume group for metadata of DRBD even if nodes do not have it",
                ),
                *_PARAMETERS,
            ],
            "Change the parameters and the policy of a group",
        ),
        Command(
            "remove", remove, [_GROUP], [opt.DRY_RUN, *_JOB], "Remove a group that has no nodes"
        ),
        Command(
            "rename",
            rename,
            [Argument("group", 2, 2)],
            [opt.DRY_RUN, *_JOB],
            "Give a group another name",
            usage="[<options>] <group> <new name>",
        ),
        Command(
            "evacuate",
            evacuate,
            [_GROUP],
            [
                opt.IALLOCATOR,
                change_group.TO_GROUP,
                change_group.EARLY_RELEASE,
                opt.flag("--sequential", help="move one instance after the other"),
                opt.flag(
                    "--force-failover",
                    help="stop and start instances even if they could be migrated",
                ),
                opt.DRY_RUN,
                *opt.SUBMIT_OPTIONS,
            ],
            "Move all instances of a group to other groups",
        ),
        Command(
            "show-ispecs-cmd",
            show_ispecs_cmd,
            [Argument("group")],
            [
                selector.FILTER,
                selector.TAGS,
                opt.flag(
                    "--include-defaults",
                    help="include bounds that the group inherits from the cluster",
                ),
            ],
            "Print, for each group, the command that adds a group with the same bounds",
        ),
        *tags.commands("nodegroup", "group", "a node group"),
    ],
    env_commands=("list",),
    examples={
        "add": "--alloc-policy=preferred rack2",
        "assign-nodes": "rack2 node3 node4",
        "list": "-o name,node_cnt,pinst_cnt",
        "list-fields": "",
        "info": "rack2",
        "modify": "--alloc-policy=last_resort rack2",
        "remove": "rack2",
        "rename": "rack2 rack7",
        "evacuate": "--to=rack3 rack2",
        "show-ispecs-cmd": "rack2",
        **tags.examples("rack2"),
    },
)


def run() -> int:
    """Run the program; return the exit code."""
    return main.run(PROGRAM)
