"""Options of out-of-band helpers, for ``gnt-node`` and ``gnt-cluster epo``."""

from __future__ import annotations

from ganeti.cli import options as opt
from ganeti.cli.command import Option
from ganeti.constants import node as const

OOB_TIMEOUT = opt.number(
    "--oob-timeout",
    default=const.OOB_TIMEOUT_S,
    metavar="SECONDS",
    help=f"how long the out-of-band helper may take for one node; {const.OOB_TIMEOUT_S} by default",
)
POWER_DELAY = Option(
    "--power-delay",
    kind="float",
    default=const.OOB_POWER_DELAY_S,
    metavar="SECONDS",
    help=f"pause between switching on two nodes; {const.OOB_POWER_DELAY_S:g} by default",
)
