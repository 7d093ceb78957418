"""The out-of-band helper: a program of the administrator which controls the power of machines.

It runs on the master node and concerns *another* node: ``PROGRAM COMMAND NODE``. Its output is
JSON, which the master checks (node parameter ``oob_program``, manual page **gnt-node**).
"""

from __future__ import annotations

import os

from ganeti import errors
from ganeti.backend.registry import serves
from ganeti.constants import node as node_c
from ganeti.utils import process
from ganeti.wire import calls


def oob_argv(program: str, command: str, node_name: str) -> list[str]:
    """Build the command line of the helper."""
    return [program, command, node_name]


@serves(calls.RUN_OOB)
def run(oob_program: str, command: str, remote_node: str, timeout_s: int) -> str:
    """Run the helper for a node.

    :returns: its standard output.
    :raises ConfigurationError: the program is not an executable file, or the command is unknown.
    :raises OpExecError: it failed or took too long; the text has its error output.
    """
    if command not in node_c.OOB_COMMANDS:
        raise errors.ConfigurationError(f"unknown out-of-band command {command!r:.80}")
    if not os.path.isabs(oob_program) or not os.access(oob_program, os.X_OK):
        raise errors.ConfigurationError(
            f"out-of-band helper {oob_program!r:.200} is not an executable file with a full path"
        )
    argv = oob_argv(oob_program, command, remote_node)
    try:
        return process.run(argv, timeout_s=float(timeout_s)).stdout
    except errors.CommandError as err:
        raise errors.OpExecError(
            f"out-of-band command {command} for node {remote_node} failed: {err}"
        ) from err
