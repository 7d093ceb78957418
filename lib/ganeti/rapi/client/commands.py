"""What commands outside of the cluster use: jobs of opcodes, settings, what guests write."""

# ruff: noqa: N802 - the names of methods follow those which are published

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from .transport import Transport, options

Opcodes = Sequence[Mapping[str, Any]]


class Commands(Transport):
    """What commands outside of the cluster use: jobs of opcodes, settings, what guests write."""

    def SubmitJob(self, ops: Opcodes, reason: str | None = None) -> int:
        """Submit a job made of opcodes; each is a dictionary with ``OP_ID`` and parameters."""
        return int(self._post(self._path("jobs"), options(reason), {"ops": ops}))

    def SubmitManyJobs(self, jobs: Sequence[Opcodes], reason: str | None = None) -> list[list[Any]]:
        """Submit several jobs; return ``[True, number]`` or ``[False, message]`` for each."""
        return list(self._post(self._path("jobs"), options(reason), {"jobs": jobs}))

    def RunQuery(self, op: Mapping[str, Any]) -> dict[str, Any]:
        """Carry out an opcode that only reads; return its ``result`` and its ``warnings``."""
        return dict(self._put(self._path("run-query"), None, {"op": op}))

    def ArchiveJob(self, job_id: int | str) -> bool:
        """Archive an ended job; return False for a job that has not ended."""
        return bool(self._post(self._path("jobs", job_id, "archive")))

    def ArchiveOldJobs(self, age: int) -> list[int]:
        """Archive the jobs which ended more than ``age`` seconds ago; -1 for all ended jobs.

        :returns: number of archived jobs, number of jobs for which there was no time.
        """
        return list(self._post(self._path("jobs", "archive"), None, {"age": age}))

    def SetJobPriority(self, job_id: int | str, priority: int) -> list[Any]:
        """Change the priority of a job; return whether it was changed, and a sentence."""
        return list(self._put(self._path("jobs", job_id, "priority"), None, priority))

    def GetConfigValues(self, fields: Sequence[str]) -> list[Any]:
        """Return values of the configuration such as ``cluster_name``; None for an unknown one."""
        return list(self._get(self._path("config-values"), options(fields=",".join(fields))))

    def DrainQueue(self) -> bool:
        """Let the queue refuse new jobs."""
        return bool(self._put(self._path("queue", "drain")))

    def UndrainQueue(self) -> bool:
        """Let the queue accept new jobs again."""
        return bool(self._delete(self._path("queue", "drain")))

    def GetWatcherPause(self) -> float | None:
        """Return until when the watcher pauses, in seconds since 1970; None without a pause."""
        found: float | None = self._get(self._path("watcher", "pause"))
        return found

    def PauseWatcher(self, until: float) -> float | None:
        """Pause the watcher until a time in seconds since 1970; return the end of the pause."""
        found: float | None = self._put(self._path("watcher", "pause"), None, {"until": until})
        return found

    def EndWatcherPause(self) -> None:
        """End the pause of the watcher."""
        self._delete(self._path("watcher", "pause"))

    def GetGuestsUsage(self) -> dict[str, Any]:
        """Measure processor time, memory and traffic of the running guests."""
        return dict(self._get(self._path("guests", "usage")))

    def GetInstanceConsoleLog(
        self, instance: str, lines: int | None = None, position: str | None = None
    ) -> dict[str, Any]:
        """Return what an instance wrote to its console.

        :param lines: number of lines at the end of the log.
        :param position: the ``position`` of an earlier answer: only what follows it.
        :returns: ``text``, ``position``, ``lost`` and ``node``.
        """
        path = self._path("instances", instance, "console-log")
        return dict(self._get(path, options(lines=lines, position=position)))
