"""The commands ``list-tags``, ``add-tags`` and ``remove-tags``, for every kind of object.

:func:`commands` makes the three commands of a program.
"""

from __future__ import annotations

import sys

from ganeti import TYPE_CHECKING, errors
from ganeti.cli import failures, jobs, selector, terminal
from ganeti.cli import options as opt
from ganeti.cli.command import Argument, Command, Values

if TYPE_CHECKING:
    from collections.abc import Callable

    from ganeti.opcodes.base import OpCode

FROM = opt.text(
    "--from",
    dest="tags_source",
    metavar="FILE",
    help="read more tags from this file, one per line; - means standard input",
)


#: Kind of object -> options by which the first argument selects objects in another way.
_SELECTORS = {"instance": selector.CHANGE_INSTANCES, "node": selector.CHANGE_NODES}


def commands(kind: str, argument: str | None, what: str) -> list[Command]:
    """Return the three commands about tags for one kind of object.

    :param kind: kind of object, as opcodes name it.
    :param argument: kind of the argument that names the object; None for the cluster.
    :param what: name of the object in the summaries.
    """
    names = [Argument(argument, 1, 1)] if argument else []
    changing = (
        *_SELECTORS.get(kind, ()),
        FROM,
        opt.DRY_RUN,
        *opt.SUBMIT_OPTIONS,
        opt.PRIORITY,
    )
    return [
        Command("list-tags", _lister(kind), names, [opt.OUTPUT_FORMAT], f"List the tags of {what}"),
        Command(
            "add-tags",
            _changer(kind, add=True),
            [*names, Argument("unknown")],
            changing,
            f"Add tags to {what}",
            usage=_usage(argument),
        ),
        Command(
            "remove-tags",
            _changer(kind, add=False),
            [*names, Argument("unknown")],
            changing,
            f"Remove tags from {what}",
            usage=_usage(argument),
        ),
    ]


def examples(name: str = "") -> dict[str, str]:
    """Return examples of the three commands, as of :class:`ganeti.cli.command.Program`.

    :param name: name of an object; empty for the cluster.
    """
    return {
        "list-tags": name,
        "add-tags": f"{name} owner:web env:test".lstrip(),
        "remove-tags": f"{name} env:test".lstrip(),
    }


def _usage(argument: str | None) -> str:
    return f"[<options>] {f'<{argument}> ' if argument else ''}<tag>..."


def _lister(kind: str) -> Callable[[Values, list[str]], int]:
    def list_tags(values: Values, arguments: list[str]) -> int:
        """List the tags of an object (``list-tags``)."""
        name = arguments[0] if arguments else ""
        tags = sorted(jobs.connect().query_tags(kind, name))
        if values.output_format in opt.DATA_FORMATS:
            from ganeti.cli import output

            output.write_data([{"tag": tag} for tag in tags], values.output_format)
            return failures.EXIT_SUCCESS
        for tag in tags:
            terminal.out(tag)
        return failures.EXIT_SUCCESS

    return list_tags


def _changer(kind: str, *, add: bool) -> Callable[[Values, list[str]], int]:
    def change_tags(values: Values, arguments: list[str]) -> int:
        """Add tags to an object (``add-tags``), or remove them (``remove-tags``)."""
        from ganeti.opcodes.tags import OpTagsDel, OpTagsSet

        has_name = kind != "cluster"
        tags = [*arguments[has_name:], *_read_tags(values.tags_source)]
        if not tags:
            raise errors.OpPrereqError(
                f"no tags to {'add' if add else 'remove'} are given. Name them, or use --from.",
                errors.ECODE_INVAL,
            )
        opcode = OpTagsSet if add else OpTagsDel

        def make(name: str | None) -> OpCode:
            return opcode(kind=kind, name=name, tags=tags, **jobs.common_params(values))

        if selector.given(values):
            from ganeti.cli import many

            verb = "get" if add else "lose"
            work = many.Work(kind, make, plan=f"will {verb} tags {', '.join(tags)}", done="changed")
            return many.run(values, arguments[:1], work)
        jobs.run_opcode(make(arguments[0] if has_name else None), values)
        return failures.EXIT_SUCCESS

    return change_tags


def _read_tags(source: str | None) -> list[str]:
    """Read tags from a file, one per line; ``-`` means standard input.

    :raises OpPrereqError: the file cannot be read.
    """
    if source is None:
        return []
    if source == "-":
        lines = sys.stdin.read().splitlines()
    else:
        try:
            with open(source, encoding="utf-8-sig") as stream:
                lines = stream.read().splitlines()
        except (OSError, UnicodeDecodeError) as err:
            raise errors.OpPrereqError(
                f"cannot read tags from '{source}': {err}", errors.ECODE_INVAL
            ) from err
    return [line.strip() for line in lines if line.strip()]
