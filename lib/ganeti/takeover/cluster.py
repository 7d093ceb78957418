"""The steps which concern the cluster as a whole. They use the commands of its present daemons.

These are published commands with published output, which the original and this project have in
common: ``gnt-cluster verify --error-codes``, ``gnt-cluster queue``, ``gnt-cluster watcher``,
``gnt-job list``.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from functools import partial

from ganeti.cli.verify_errors import parse_verify
from ganeti.platform import paths
from ganeti.runbook import commands, quiet
from ganeti.takeover.state import State
from ganeti.utils import process

_PAUSE = "24h"
_POLL_S = 2.0
# The daemons of the original need a moment after their start.
_ANSWER_S = 90.0


class Cluster:
    """The cluster of this master.

    :param run: runs a program.
    :param say: prints a line for people.
    :param pause: waits for seconds.
    :param clock: seconds since the epoch.
    :param is_drained: whether the queue is drained.
    """

    def __init__(
        self,
        *,
        run: Callable[..., process.Completed] = process.run,
        say: Callable[[str], object] = print,
        pause: Callable[[float], object] = time.sleep,
        clock: Callable[[], float] = time.time,
        is_drained: Callable[[], bool] = lambda: os.path.exists(paths.current().queue_drain_file),
    ) -> None:
        self._run = run
        self._say = say
        self._pause = pause
        self._clock = clock
        self._is_drained = is_drained

    def _command(self, *argv: str, check: bool = True) -> process.Completed:
        return commands.run(argv, start=self._run, check=check)

    def _found(self) -> dict[str, str]:
        return parse_verify(
            self._command("gnt-cluster", "verify", "--error-codes", check=False).stdout
        )

    def inspect(self, state: State) -> None:
        """Record what verification finds before anything is changed."""
        found = self._found()
        quiet.say_findings(found, self._say)
        # On the way back also what the original has found before the takeover.
        state.verified = tuple(dict.fromkeys([*state.verified, *found]))
        state.unverified = tuple(dict.fromkeys([*state.unverified, *state.left_out]))

    def drain(self, state: State) -> None:
        """Pause the watcher and drain the queue; return when no job is left.

        :raises OpExecError: a command failed.
        """
        self._command("gnt-cluster", "watcher", "pause", _PAUSE)
        self._command("gnt-cluster", "queue", "drain")
        quiet.wait_for_jobs(self.unfinished, self._say, self._pause, _POLL_S)

    def unfinished(self) -> list[str]:
        """Return the numbers of the jobs which have not ended.

        :raises OpExecError: they cannot be listed.
        """
        done = self._command(
            "gnt-job", "list", "--no-headers", f"--separator={quiet.SEPARATOR}", "-o", "id,status"
        )
        return quiet.parse_unfinished(done.stdout)

    def open(self, state: State) -> None:
        """Open the queue, and distribute the configuration.

        :raises OpExecError: the master daemon does not answer, or the job failed.
        """
        ask = partial(self._command, "gnt-cluster", "queue", "info")
        quiet.wait_for_master(ask, self._pause, _POLL_S, _ANSWER_S)
        # The original never answers when an open queue is opened, as after an interruption.
        if self._is_drained():
            self._command("gnt-cluster", "queue", "undrain")
        self._command("gnt-cluster", "redist-conf")
        if not state.served_at:
            state.served_at = self._clock()
            self._say(
                f"  the cluster was without daemons for {state.served_at - state.stopped_at:.0f} s"
            )

    def verify(self, state: State) -> None:
        """Check that verification finds nothing which it has not found before.

        What it finds on a node which it has not verified before is only said: nobody knows whether
        it is new.

        :raises OpExecError: it finds more.
        """
        quiet.require_nothing_new(self._found(), state.verified, state.unverified, self._say)

    def finish(self, state: State) -> None:
        """Let the watcher work again.

        :raises OpExecError: the command failed.
        """
        self._command("gnt-cluster", "watcher", "continue")
