"""The helper by which the cluster of a chaos run switches its nodes off and on.

It has the interface of an out-of-band helper (Ganeti design 2.4, *Out of band management*): a
command and the name of a node. Switching off is a power cut, so the node loses what was not flushed
and its guests end.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from devel.chaos.lab import Lab


def main(directory: str, argv: Sequence[str]) -> int:
    """Run the helper.

    :param directory: of the run.
    :param argv: command, and name of the node.
    """
    command, node = argv
    lab = Lab(Path(directory), 0)
    if command in ("power-off", "power-cycle"):
        lab.power_off([node])
        with (lab.directory / "fenced.log").open("a") as stream:
            stream.write(f"{node}\n")
    if command in ("power-on", "power-cycle"):
        lab.plug_in(node)
    if command == "power-status":
        print(json.dumps({"powered": lab.has_power(node)}))
    if command == "health":
        print("[]")
    return 0
