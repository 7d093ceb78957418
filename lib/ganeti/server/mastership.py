"""Whether the master daemon may run on this node, and what an override of the vote may destroy."""

from __future__ import annotations

from ganeti.constants import cli as exit_codes
from ganeti.platform import machine
from ganeti.server import daemon

NAME = "ganeti-masterd"

#: What ``--no-voting`` may destroy.
OVERRIDE_WARNING = """\
Starting without a vote. If another node is the master, or has newer data, jobs and
changes which it has acknowledged are lost: the configuration and the jobs of this node
replace those of all other nodes."""


def check_master(name: str) -> None:
    """Check that the node with this name is the present one.

    :raises StartRefused: it is not; exit code 11.
    """
    own = machine.current().hostname()
    if name.lower() != own:
        raise daemon.StartRefused(
            f"this node ({own}) is not the master; the master is {name}",
            exit_codes.EXIT_NOTMASTER,
        )
