"""The command ``gnt-cluster upgrade``: check whether the cluster has a version."""

from __future__ import annotations

from ganeti import errors
from ganeti.cli import failures, jobs, terminal
from ganeti.cli import options as opt
from ganeti.cli.command import Command, Values
from ganeti.cli.options import Option

_HOW_TO = """\
Install version {wanted} on all nodes and restart the daemons ('make install' and packages do both).
The master converts the configuration when it starts; 'tools/cfgupgrade --dry-run' shows whether
this is possible."""


def upgrade(values: Values, arguments: list[str]) -> int:
    """Check whether the cluster has a version (``upgrade``).

    Several versions cannot be installed in parallel, so there is nothing to switch.

    :raises OpPrereqError: not exactly one of ``--to`` and ``--resume``, or not a version.
    """
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
            " installed in parallel, so this command cannot switch. "
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
        f"The master already has version {info['software_version']}. 'gnt-cluster verify'"
        " shows whether all nodes have it."
    )
    return failures.EXIT_SUCCESS


def _version(text: str) -> tuple[int, int]:
    words = text.split(".")
    if not 2 <= len(words) <= 3 or not all(word.isdecimal() for word in words):
        raise errors.OpPrereqError(f"'{text}' is not a version such as 3.1", errors.ECODE_INVAL)
    return int(words[0]), int(words[1])


UPGRADE = Command(
    "upgrade",
    upgrade,
    [],
    [
        Option("--to", kind="string", metavar="VERSION", help="wanted version, such as 3.1"),
        opt.flag("--resume", help="continue an interrupted upgrade"),
    ],
    "Check whether the cluster has a version",
)
