"""Removing the state of the last node of a cluster, after the job which has checked the cluster."""

from __future__ import annotations

from ganeti.bootstrap import node_state
from ganeti.platform import paths


def finalize_destroy() -> None:
    """Stop the daemons of this machine and remove its cluster state.

    Configuration, credentials, ssconf files and the job queue are removed; logs, hooks, OS
    definitions and disk files stay. After an interruption the function can be called again.

    :raises OpExecError: a daemon cannot be stopped; nothing was removed.
    :raises OSError: a file cannot be removed.
    """
    here = paths.current()
    node_state.daemon_util("stop", node_state.FAILOVERD)
    # The master is stopped first, because it could write the configuration again.
    node_state.daemon_util("stop-master")
    node_state.daemon_util("stop", node_state.CONFD)
    node_state.daemon_util("stop", node_state.NODED)
    node_state.remove_state(here)
