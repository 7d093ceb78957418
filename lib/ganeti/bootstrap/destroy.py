"""Taking the last node out of its cluster, after the job that checked that it may be done."""

from __future__ import annotations

from ganeti.bootstrap import local
from ganeti.platform import paths


def finalize_destroy() -> None:
    """Stop the daemons of this machine and remove its cluster state.

    Configuration, credentials, ssconf files and the job queue go; logs, hooks, OS definitions and
    disk files stay. Safe to run again when it was interrupted.

    :raises OpExecError: a daemon cannot be stopped; nothing was removed.
    :raises OSError: a file cannot be removed.
    """
    here = paths.current()
    # First the master, which would write the configuration anew.
    local.daemon_util("stop-master")
    local.daemon_util("stop", local.CONFD)
    local.daemon_util("stop", local.NODED)
    local.remove_state(here)
