"""``gnt-cluster``: name, version and tags of the cluster."""

from __future__ import annotations

from ganeti import errors
from ganeti.cli import failures, jobs, terminal
from ganeti.cli import options as opt
from ganeti.cli.command import Argument, Command, Values
from ganeti.cli.options import Option


def rename(values: Values, arguments: list[str]) -> int:
    """``rename``."""
    from ganeti.cli import nodes
    from ganeti.opcodes.cluster import OpClusterRename

    client = jobs.connect()
    (old,) = client.query_config_values(["cluster_name"])
    if not values.force and not values.dry_run:
        code = nodes.ask(
            f"The cluster {old} gets the name {arguments[0]} and the address behind it. Programs"
            f" which use the old address will not reach it any more. Continue?"
        )
        if code is not None:
            return code
    name = jobs.run_opcode(
        OpClusterRename(name=arguments[0], **jobs.common_params(values)), values, client=client
    )
    if name:
        terminal.out(f"Cluster renamed from '{old}' to '{name}'")
    return failures.EXIT_SUCCESS


def search_tags(values: Values, arguments: list[str]) -> int:
    """``search-tags``: the exit code says whether anything was found."""
    from ganeti.opcodes.tags import OpTagsSearch

    found = jobs.run_opcode(
        OpTagsSearch(pattern=arguments[0], **jobs.common_params(values)), values
    )
    rows = sorted(tuple(row) for row in found)
    if values.output_format in opt.DATA_FORMATS:
        from ganeti.cli import output

        output.write_data([{"path": path, "tag": tag} for path, tag in rows], values.output_format)
    else:
        for path, tag in rows:
            terminal.out(f"{path} {tag}")
    return failures.EXIT_SUCCESS if found else failures.EXIT_FAILURE


_HOW_TO = """\
Install version {wanted} on all nodes, as this one was installed, and restart the daemons ('make
install' or your package manager do both). The master brings the configuration to the new form when
it starts; 'tools/cfgupgrade --dry-run' shows before whether it can."""


def upgrade(values: Values, arguments: list[str]) -> int:
    """``upgrade``: to the version which is installed, so all it does is look whether that is so."""
    from ganeti.constants import cluster as const

    if (values.to is None) == (not values.resume):
        raise errors.OpPrereqError("give either --to or --resume", errors.ECODE_INVAL)
    if values.resume:
        terminal.out("There is no upgrade to resume.")
        return failures.EXIT_SUCCESS
    wanted = _version(values.to)
    present = (const.CONFIG_MAJOR, const.CONFIG_MINOR)
    if wanted != present:
        terminal.err(
            f"This is version {const.RELEASE_VERSION}; several versions cannot be"
            " installed side by side, so there is nothing to switch to. "
            + _HOW_TO.format(wanted=values.to)
        )
        return failures.EXIT_FAILURE
    info = jobs.connect().query_cluster_info()
    if info["config_version"] != const.CONFIG_VERSION:
        terminal.err(
            f"The master has version {info['software_version']}, this program"
            f" {const.RELEASE_VERSION}. Restart the daemons."
        )
        return failures.EXIT_FAILURE
    terminal.out(
        f"The cluster has version {info['software_version']} already. 'gnt-cluster verify'"
        " shows whether all nodes have it."
    )
    return failures.EXIT_SUCCESS


def _version(text: str) -> tuple[int, int]:
    words = text.split(".")
    if not 2 <= len(words) <= 3 or not all(word.isdecimal() for word in words):
        raise errors.OpPrereqError(f"'{text}' is not a version such as 3.1", errors.ECODE_INVAL)
    return int(words[0]), int(words[1])


#: Rows of the table of ``gnt-cluster``.
COMMANDS = (
    Command(
        "rename",
        rename,
        [Argument("host", 1, 1)],
        [opt.FORCE, opt.DRY_RUN],
        "Give the cluster another name and the address behind it",
        usage="[<options>] <new-name>",
    ),
    Command(
        "upgrade",
        upgrade,
        [],
        [
            Option("--to", kind="string", metavar="VERSION", help="version to change to"),
            opt.flag("--resume", help="go on with an upgrade that was interrupted"),
        ],
        "Look whether the cluster has a version",
    ),
    Command(
        "search-tags",
        search_tags,
        [Argument("unknown", 1, 1)],
        [opt.PRIORITY, opt.OUTPUT_FORMAT],
        "Find tags of any object by a regular expression",
        usage="[<options>] <expression>",
    ),
)
