"""The out-of-band helper: a program of the administrator which switches machines.

It runs here, on the master's node, about *another* node: ``PROGRAM COMMAND NODE``. Its output is
JSON and is judged by the master, which knows what was asked (seed 004, node parameter
``oob_program``).
"""

from __future__ import annotations

import os

from ganeti import errors
from ganeti.backend.registry import serves
from ganeti.constants import node as node_c
from ganeti.utils import process
from ganeti.wire import calls


def oob_argv(program: str, command: str, node_name: str) -> list[str]:
    """The helper's command line."""
    return [program, command, node_name]


@serves(calls.RUN_OOB)
def run(oob_program: str, command: str, remote_node: str, timeout_s: int) -> str:
    """Run the helper for a node.

    :returns: what it printed on standard output.
    :raises ConfigurationError: the program cannot be, or the command is none.
    :raises OpExecError: it failed or took too long; with what it printed.
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
