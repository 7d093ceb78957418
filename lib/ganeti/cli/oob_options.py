"""Options about out-of-band helpers, for ``gnt-node`` and ``gnt-cluster epo``."""

from __future__ import annotations

from ganeti.cli.options import Option
from ganeti.constants import node as const

OOB_TIMEOUT = Option(
    "--oob-timeout",
    kind="int",
    default=const.OOB_TIMEOUT_S,
    metavar="SECONDS",
    help="how long the out-of-band helper may take",
)
POWER_DELAY = Option(
    "--power-delay",
    kind="float",
    default=const.OOB_POWER_DELAY_S,
    metavar="SECONDS",
    help="pause between switching on two nodes",
)
