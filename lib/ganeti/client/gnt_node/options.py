"""Options which several commands of ``gnt-node`` share."""

from __future__ import annotations

from ganeti.cli import options as opt

AUTO_PROMOTE = opt.flag(
    "--auto-promote", help="make other nodes master candidates if there would be too few"
)
NEW_SECONDARY = opt.new_secondary("target node")
