"""The command ``gnt-cluster upgrade``: check whether the cluster has a version."""

from __future__ import annotations

from ganeti import FULL_VERSION, errors
from ganeti.cli import failures, jobs, terminal
from ganeti.cli import options as opt
from ganeti.cli.command import Command, Values
from ganeti.cli.options import Option

_HOW_TO = """\
This command does not switch between versions: one version is installed on each machine. To upgrade:
  1. Install version {wanted} on every node. Running daemons go on with the present version.
  2. On the master, let '{cfgupgrade} --dry-run' of that version show whether it
     can read the configuration.
  3. Stop the daemons on every node with '{daemon_util} stop-all'. Guests keep running.
     Before that, use 'gnt-cluster modify --node-watchdog=no' where that is switched on.
  4. Start them with '{daemon_util} start-all', on the master first. The master daemon
     converts the configuration when it starts."""
_DOWNGRADE = """\
To go back to version {wanted}: stop the daemons on all nodes with '{daemon_util} stop-all', run
'{cfgupgrade} --downgrade' on the master, install version {wanted} on every node, and
start its daemons."""
_TOO_OLD = """\
A configuration can be converted back to version {oldest} and no further."""


def upgrade(values: Values, arguments: list[str]) -> int:
    """Check whether the cluster has a version (``upgrade``).

    One version is installed on each machine, so there is nothing to switch; the command says which
    steps lead to another version.

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
        terminal.err(f"This is version {FULL_VERSION}.\n{_steps(wanted, present, values.to)}")
        return failures.EXIT_FAILURE
    info = jobs.connect().query_cluster_info()
    if info["config_version"] != const.CONFIG_VERSION:
        terminal.err(
            f"The master daemon has version {info['software_version']}, this program"
            f" {const.RELEASE_VERSION}. Restart the daemons on every node."
        )
        return failures.EXIT_FAILURE
    terminal.out(
        f"The master already has version {info['software_version']}. 'gnt-cluster verify'"
        " shows whether all nodes have it."
    )
    return failures.EXIT_SUCCESS


def _steps(wanted: tuple[int, int], present: tuple[int, int], name: str) -> str:
    """Return what the administrator does to get a version.

    :param name: the version as the user has written it.
    """
    from ganeti.config import upgrade as config_upgrade
    from ganeti.platform import paths

    daemon_util = paths.daemon_util()
    facts = {
        "wanted": name,
        "daemon_util": daemon_util,
        "cfgupgrade": paths.administrator_tool("cfgupgrade"),
        "oldest": config_upgrade.version_text(config_upgrade.DOWNGRADE_VERSION),
    }
    if wanted > present:
        return _HOW_TO.format(**facts)
    oldest = config_upgrade.DOWNGRADE_VERSION
    if wanted < (oldest // 1_000_000, oldest // 10_000 % 100):
        return _TOO_OLD.format(**facts)
    return _DOWNGRADE.format(**facts)


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
