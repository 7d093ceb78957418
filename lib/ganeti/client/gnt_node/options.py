"""Options which several commands of ``gnt-node`` share."""

from __future__ import annotations

from ganeti.cli import options as opt
from ganeti.cli.command import Option

AUTO_PROMOTE = opt.flag(
    "--auto-promote", help="make other nodes master candidates if there would be too few"
)


def yes_no(*names: str, help: str, dest: str | None = None) -> Option:
    """Return an option with the value ``yes`` or ``no``."""
    return Option(*names, kind="bool", metavar="yes|no", help=help, dest=dest)


NEW_SECONDARY = Option(
    "-n",
    "--new-secondary",
    kind="string",
    dest="dst_node",
    metavar="NODE",
    completion="node",
    help="target node",
)
