"""From an error to what the user sees: a text and an exit code.

The first line of each text is published: scripts look for ``Failure: prerequisites not met for this
operation:`` and for ``error type: unknown_entity``. So are the exit codes:

==== =========================================================
0    success
1    failure
2    configuration error, or an option that cannot be read
5    no cluster here
11   this node is not the master
12   a node could not be set up
13   the user said no
14   a field was asked for that does not exist
==== =========================================================
"""

from __future__ import annotations

import errno
import os

from ganeti import errors
from ganeti.platform import machine

EXIT_SUCCESS = 0
EXIT_FAILURE = 1
EXIT_USAGE = 2
EXIT_NOTCLUSTER = 5
EXIT_NOTMASTER = 11
EXIT_NODESETUP_ERROR = 12
EXIT_CONFIRMATION = 13
EXIT_UNKNOWN_FIELD = 14


class NotClusterError(errors.GenericError):
    """This machine belongs to no cluster."""


class NotMasterError(errors.GenericError):
    """Another node is the master; `master` is its name."""

    def __init__(self, master: str, here: str) -> None:
        super().__init__(
            f"this node ({here}) is not the master of its cluster. Run the command on {master}."
        )
        self.master = master


class MasterDownError(errors.GenericError):
    """This node is the master, but its daemon does not answer."""


def describe(err: BaseException) -> tuple[int, str]:
    """What to print on standard error, and the exit code.

    The text may have several lines. It is empty when nothing is left to say.
    """
    if isinstance(err, errors.OpPrereqError):
        return EXIT_FAILURE, _prerequisites(err)
    if isinstance(err, errors.OpExecError):
        return EXIT_FAILURE, f"Failure: command execution error:\n{err}"
    if isinstance(err, errors.HooksAbort):
        return EXIT_FAILURE, "\n".join(
            ["Failure: hooks execution failed:", *(_hook(*row) for row in err.failures)]
        )
    if isinstance(err, errors.HooksFailure):
        return EXIT_FAILURE, f"Failure: hooks general failure: {err}"
    if isinstance(err, errors.ConfigurationError):
        where = f" (at {err.path})" if err.path else ""
        return EXIT_USAGE, f"Corrupt configuration: {err}{where}"
    if isinstance(err, errors.ResolverError):
        return EXIT_FAILURE, f"Failure: {err}"
    if isinstance(err, errors.TypeEnforcementError):
        return EXIT_FAILURE, f"Parameter Error: {err}"
    if isinstance(err, errors.QueryFilterParseError):
        return EXIT_FAILURE, "\n".join(["Error while parsing query filter:", *err.details()])
    if isinstance(err, errors.ParameterError):
        # A bare name, as the published text has it, or a sentence about it.
        text = str(err)
        return EXIT_FAILURE, (
            f"Failure: unknown/wrong parameter: {text}"
            if " " in text
            else f"Failure: unknown/wrong parameter name '{text}'"
        )
    if isinstance(err, errors.TagError):
        return EXIT_FAILURE, f"Failure: invalid tag(s) given:\n{err}"
    if isinstance(err, errors.JobQueueFull):
        return EXIT_FAILURE, (
            "Failure: the job queue is full. Wait for jobs to end, and archive"
            " old ones with 'gnt-job autoarchive'."
        )
    return _outside(err)


def _outside(err: BaseException) -> tuple[int, str]:
    """Errors on the way to the master, and those nobody declared."""
    if isinstance(err, NotClusterError):
        return EXIT_NOTCLUSTER, f"Failure: {err}"
    if isinstance(err, NotMasterError):
        return EXIT_NOTMASTER, f"Failure: {err}"
    if isinstance(err, MasterDownError):
        return EXIT_FAILURE, f"Failure: {err}"
    if isinstance(err, errors.LuxiPermissionError):
        return EXIT_FAILURE, (
            f"Failure: this user may not talk to the master daemon: {err}."
            " Commands are for root, or for members of its socket's group."
        )
    if isinstance(err, errors.LuxiTimeout):
        return EXIT_FAILURE, (
            "Failure: the master daemon did not answer in time. Jobs that were"
            f" submitted go on. Details: {err}"
        )
    if isinstance(err, errors.ConnectionClosedError):
        return EXIT_FAILURE, (
            "Failure: the master daemon closed the connection. It may have been"
            f" stopped; see its log. Details: {err}"
        )
    if isinstance(err, errors.ProtocolError):
        return EXIT_FAILURE, f"Unhandled protocol error while talking to the master daemon:\n{err}"
    if isinstance(err, errors.JobQueueDrainError):
        return EXIT_FAILURE, (
            f"Unhandled Ganeti error: {err}. The job queue takes no new jobs until it is undrained."
        )
    if isinstance(err, errors.JobLost):
        return EXIT_FAILURE, f"Error checking job status: {err}"
    if isinstance(err, errors.GenericError):
        return EXIT_FAILURE, f"Unhandled Ganeti error: {err}"
    if isinstance(err, OSError) and err.errno == errno.ENOSPC and err.filename is None:
        return EXIT_FAILURE, f"Failure: the output cannot be written: {err.strerror}"
    return EXIT_FAILURE, f"Unhandled error ({type(err).__name__}): {err}"


def _prerequisites(err: errors.OpPrereqError) -> str:
    lines = ["Failure: prerequisites not met for this operation:"]
    # Three of the published programs leave the code out; then there is nothing to report.
    if err.ecode:
        lines.append(f"error type: {err.ecode}, error details:")
    return "\n".join([*lines, str(err)])


def _hook(node: str, script: str, output: str) -> str:
    text = (
        f"  node: {node}, script: {script}, output: {output}"
        if output
        else f"  node: {node}, script: {script} (no output)"
    )
    return text.rstrip("\n")


def explain_no_master(err: errors.ProtocolError) -> errors.GenericError:
    """Find out why nobody answers on the master's socket.

    :returns: the error that says what to do.
    """
    from ganeti.platform import paths

    here = paths.current()
    master = _read_line(here.ssconf_file("master_node"))
    if not os.path.exists(here.cluster_conf_file) and not master:
        return NotClusterError(
            "no cluster here: this machine belongs to none, or its cluster is not initialised yet."
            " Make one with 'gnt-cluster init', or add this machine with 'gnt-node add' on the"
            " master."
        )
    own_name = machine.current().hostname()
    if master and master != own_name:
        return NotMasterError(master, own_name)
    start = machine.current().start_command("ganeti-masterd")
    return MasterDownError(
        f"the master daemon does not run on this node. Start it with '{start}'; if it ends at once,"
        f" {here.log_file('ganeti-masterd')} says why. Details: {err}"
    )


def _read_line(path: str) -> str:
    """First line of a file; empty when there is no such file."""
    from ganeti.utils import fs

    try:
        return fs.read_file(path).partition("\n")[0].strip()
    except OSError:
        return ""
