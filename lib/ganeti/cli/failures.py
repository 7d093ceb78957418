"""Turn an error into the text and the exit code which the user gets.

There are two forms. Scripts look for ``Failure: prerequisites not met for this operation:`` and for
``error type: unknown_entity``, so these published first lines are written when standard error is
not a terminal (:func:`describe`). People on a terminal get one frame for all errors
(:func:`for_people`): ``Error:``, the sentence, the hint. The exit codes are published, too:

==== =========================================================
0    success
1    failure
2    configuration error, or an option that is not valid
5    this machine is in no cluster
11   this node is not the master
12   a node could not be set up
13   the user answered a question with no
14   a requested field does not exist
==== =========================================================
"""

from __future__ import annotations

import errno
import os

from ganeti import errors
from ganeti.constants.cli import EXIT_CONFIRMATION as EXIT_CONFIRMATION
from ganeti.constants.cli import EXIT_FAILURE as EXIT_FAILURE
from ganeti.constants.cli import EXIT_NODESETUP_ERROR as EXIT_NODESETUP_ERROR
from ganeti.constants.cli import EXIT_NOTCLUSTER as EXIT_NOTCLUSTER
from ganeti.constants.cli import EXIT_NOTMASTER as EXIT_NOTMASTER
from ganeti.constants.cli import EXIT_SUCCESS as EXIT_SUCCESS
from ganeti.constants.cli import EXIT_UNKNOWN_FIELD as EXIT_UNKNOWN_FIELD
from ganeti.constants.cli import EXIT_USAGE as EXIT_USAGE
from ganeti.platform import machine


class NotClusterError(errors.GenericError):
    """This machine belongs to no cluster."""


class NotMasterError(errors.GenericError):
    """Another node is the master; the attribute `master` is its name."""

    def __init__(self, master: str, here: str) -> None:
        super().__init__(
            f"this node ({here}) is not the master of its cluster. Run the command on {master}."
        )
        self.master = master


class MasterDownError(errors.GenericError):
    """This node is the master, but its daemon does not answer."""


def describe(err: BaseException) -> tuple[int, str]:
    """Return the exit code for an error, and the text for standard error.

    The text may have several lines.
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
        return EXIT_USAGE, f"{_DAMAGED}{err}{where}"
    if isinstance(err, errors.ResolverError):
        return EXIT_FAILURE, f"Failure: {err}"
    if isinstance(err, errors.TypeEnforcementError):
        return EXIT_FAILURE, f"Parameter Error: {err}"
    if isinstance(err, errors.QueryFilterParseError):
        return EXIT_FAILURE, "\n".join(["Error while parsing query filter:", *err.details()])
    if isinstance(err, errors.ParameterError):
        # The name of a parameter, as in the published text, or a sentence about it.
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


def for_people(err: BaseException) -> str:
    """Return the text about an error for a terminal: ``Error:``, one sentence, and its hint."""
    return f"Error: {sentence(err)}"


def sentence(err: BaseException) -> str:
    """Return what happened and what to do, without the published first lines."""
    if isinstance(err, errors.HooksAbort):
        return "\n".join(["a hook refused the operation:", *(_hook(*row) for row in err.failures)])
    if isinstance(err, errors.QueryFilterParseError):
        return "\n".join(["the filter cannot be read:", *err.details()])
    if isinstance(err, errors.ConfigurationError):
        return f"the configuration is damaged: {describe(err)[1].removeprefix(_DAMAGED)}"
    if isinstance(err, errors.TagError):
        return f"invalid tag: {err}"
    if isinstance(err, errors.OpPrereqError):
        return _without_opcode(err)
    if isinstance(err, _ONLY_TEXT):
        return str(err)
    text = describe(err)[1]
    for start in _STARTS:
        text = text.removeprefix(start)
    return text


_DAMAGED = "Corrupt configuration: "
# Errors whose text says everything.
_ONLY_TEXT = (
    errors.OpExecError,
    errors.TypeEnforcementError,
    errors.JobLost,
)
_STARTS = ("Failure: ", "Unhandled Ganeti error: ", "Unhandled ")


def _outside(err: BaseException) -> tuple[int, str]:
    """Describe errors of the connection to the master, and unexpected errors."""
    if isinstance(err, NotClusterError):
        return EXIT_NOTCLUSTER, f"Failure: {err}"
    if isinstance(err, NotMasterError):
        return EXIT_NOTMASTER, f"Failure: {err}"
    if isinstance(err, MasterDownError):
        return EXIT_FAILURE, f"Failure: {err}"
    if isinstance(err, errors.LuxiPermissionError):
        return EXIT_FAILURE, (
            f"Failure: this user may not connect to the master daemon: {err}."
            " Run the command as root, or as a member of the group of the socket."
        )
    if isinstance(err, errors.LuxiTimeout):
        return EXIT_FAILURE, (
            "Failure: the master daemon did not answer in time. Submitted jobs"
            f" continue. Details: {err}"
        )
    if isinstance(err, errors.ConnectionClosedError):
        return EXIT_FAILURE, (
            "Failure: the master daemon closed the connection. Its log shows"
            f" whether it was stopped. Details: {err}"
        )
    if isinstance(err, errors.RequestError):
        return EXIT_FAILURE, f"Failure: the master daemon refused the request: {err}"
    if isinstance(err, errors.ProtocolError):
        return EXIT_FAILURE, f"Unhandled protocol error while talking to the master daemon:\n{err}"
    if isinstance(err, errors.JobQueueDrainError):
        return EXIT_FAILURE, f"Failure: {err}. Open it with 'gnt-cluster queue undrain'."
    if isinstance(err, errors.JobCanceled):
        return EXIT_FAILURE, f"Failure: the job was canceled: {err}"
    if isinstance(err, errors.JobLost):
        return EXIT_FAILURE, f"Error checking job status: {err}"
    if isinstance(err, errors.GenericError):
        return EXIT_FAILURE, f"Unhandled Ganeti error: {err}"
    if isinstance(err, OSError) and err.errno == errno.ENOSPC and err.filename is None:
        return EXIT_FAILURE, f"Failure: the output cannot be written: {err.strerror}"
    return EXIT_FAILURE, f"Unhandled error ({type(err).__name__}): {err}"


def _prerequisites(err: errors.OpPrereqError) -> str:
    lines = ["Failure: prerequisites not met for this operation:"]
    # An error without a code has no line about it.
    if err.ecode:
        lines.append(f"error type: {err.ecode}, error details:")
    return "\n".join([*lines, _without_opcode(err)])


def _without_opcode(err: errors.OpPrereqError) -> str:
    """Return the text without the opcode, which is for programs: the user knows the command."""
    first, colon, rest = str(err).partition(": ")
    return rest if colon and first.startswith("OP_") and " " not in first else str(err)


def _hook(node: str, script: str, output: str) -> str:
    text = (
        f"  node: {node}, script: {script}, output: {output}"
        if output
        else f"  node: {node}, script: {script} (no output)"
    )
    return text.rstrip("\n")


def explain_no_master(err: errors.ProtocolError) -> errors.GenericError:
    """Find the reason why no daemon answers on the socket of the master.

    :returns: an error whose text gives the reason and the remedy.
    """
    from ganeti.platform import paths

    here = paths.current()
    master = _read_line(here.ssconf_file("master_node"))
    if not os.path.exists(here.cluster_conf_file) and not master:
        return NotClusterError(
            "no cluster here: this machine is not a node of a cluster. Create a cluster with"
            " 'gnt-cluster init', or add this machine to one with 'gnt-node add' on its master."
        )
    own_name = machine.current().hostname()
    if master and master != own_name:
        return NotMasterError(master, own_name)
    if os.path.exists(here.intent_to_upgrade_file):
        return MasterDownError(
            "the master daemon does not run on this node, because an upgrade is not complete."
            f" 'gnt-cluster upgrade --resume' goes on. Details: {err}"
        )
    start = machine.current().start_command("ganeti-masterd")
    return MasterDownError(
        f"the master daemon does not run on this node. Start it with '{start}'. If it ends at once,"
        f" its log {here.log_file('ganeti-masterd')} shows the reason. Details: {err}"
    )


def _read_line(path: str) -> str:
    """Return the first line of a file; an empty text when the file cannot be read."""
    from ganeti.utils import fs

    try:
        return fs.read_file(path).partition("\n")[0].strip()
    except OSError:
        return ""
