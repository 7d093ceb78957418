"""The job queue, with one candidate: an acknowledged job is not lost, and none runs twice."""

from __future__ import annotations

from typing import Any

from crash_points.engine import Points, Subject
from unit.jqueue import load


class Queue(Subject):
    """Submissions of every kind, dependencies, cancels, archiving; also on the candidate's disk."""

    name = "job queue"
    promise = "an acknowledged job is not lost, none runs twice, and the candidate has the same"
    # Threads commit together, in another way each time.
    steady = False

    def make(self) -> None:
        self.directory.mkdir()

    def work(self, points: Points) -> None:
        def inject(step: str) -> None:
            # The steps on the disks are seen by the calls of the system themselves.
            if step.startswith("rpc "):
                points.reach(step)

        with (
            points.on_disk(self.directory / "queue"),
            points.on_disk(self.directory / load.CANDIDATE),
        ):
            run = load.Run(str(self.directory), inject)
            run.queue.start()
            load.work(run)
            run.stop()

    def recover(self, survivors: Any) -> None:
        load.check(str(self.directory), load.Run(str(self.directory), load.no_step))
