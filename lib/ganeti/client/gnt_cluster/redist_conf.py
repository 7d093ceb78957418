"""The command ``gnt-cluster redist-conf``: send the configuration to the nodes again."""

from __future__ import annotations

from ganeti.cli import failures, jobs
from ganeti.cli import options as opt
from ganeti.cli.command import Command, Values


def redist_conf(values: Values, arguments: list[str]) -> int:
    """Send configuration and common files to all nodes again (``redist-conf``)."""
    from ganeti.opcodes.cluster import OpClusterRedistConf

    jobs.run_opcode(OpClusterRedistConf(**jobs.common_params(values)), values)
    return failures.EXIT_SUCCESS


REDIST_CONF = Command(
    "redist-conf",
    redist_conf,
    [],
    [
        opt.DRY_RUN,
        opt.PRIORITY,
        opt.flag("--yes-do-it", dest="yes_do_it", help="do not ask for confirmation"),
        *opt.SUBMIT_OPTIONS,
    ],
    "Send the configuration and the common files to all nodes again",
)
