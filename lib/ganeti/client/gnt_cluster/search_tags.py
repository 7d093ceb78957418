"""The command ``gnt-cluster search-tags``: find tags of all objects."""

from __future__ import annotations

from ganeti.cli import failures, jobs, terminal
from ganeti.cli import options as opt
from ganeti.cli.command import Argument, Command, Values


def search_tags(values: Values, arguments: list[str]) -> int:
    """Find tags by a regular expression (``search-tags``); the exit code is 1 when none matches."""
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


SEARCH_TAGS = Command(
    "search-tags",
    search_tags,
    [Argument("unknown", 1, 1)],
    [opt.PRIORITY, opt.OUTPUT_FORMAT],
    "Find the tags of all objects which match a regular expression",
    usage="[<options>] <expression>",
)
