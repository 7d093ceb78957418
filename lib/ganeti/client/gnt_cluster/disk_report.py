"""Find disks which should be usable but are not, for ``gnt-cluster verify-disks``.

:func:`check` runs the jobs through functions which the caller passes, and returns a
:class:`DiskReport`. The caller prints it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from ganeti import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import Any

    from ganeti.opcodes.base import OpCode

    #: Runs an opcode as a job and returns its result.
    RunOne = Callable[[OpCode], Any]
    #: Waits for jobs that a job has submitted (rows ``[True, id]`` or ``[False, message]``).
    #: Returns for each job the results of its opcodes, or None when it failed.
    AwaitJobs = Callable[[Sequence[Sequence[Any]]], Iterable[list[Any] | None]]


class DiskReport:
    """The state of disks, as the nodes of all groups report it.

    :ivar unresponsive: node -> reason why it gave no answer.
    :ivar inactive: names of the instances whose disks have to be activated.
    :ivar missing: instance -> missing devices, as [node, device].
    :ivar failed: number of node groups which could not be checked.
    """

    __slots__ = ("failed", "inactive", "missing", "unresponsive")

    def __init__(self) -> None:
        self.unresponsive: dict[str, str] = {}
        self.inactive: list[str] = []
        self.missing: dict[str, list[list[str]]] = {}
        self.failed = 0

    @property
    def clean(self) -> bool:
        """True if all groups were checked and all disks are usable."""
        return not (self.unresponsive or self.inactive or self.missing or self.failed)


def check(
    run: RunOne,
    await_jobs: AwaitJobs,
    *,
    group: str | None = None,
    strict: bool = True,
    **common: Any,
) -> DiskReport:
    """Check the disks of all node groups, or of one.

    :param run: runs the opcode that submits a job for each group.
    :param await_jobs: waits for these jobs.
    :param group: name of the only group to check; None means all groups.
    :param strict: whether nodes that do not answer are reported, or skipped.
    :param common: parameters of every opcode, such as ``priority`` and ``reason``.
    :raises GenericError: the first job failed.
    """
    from ganeti.opcodes.cluster import OpClusterVerifyDisks

    submitted = run(OpClusterVerifyDisks(group_name=group, is_strict=strict, **common))
    report = DiskReport()
    for results in await_jobs(submitted["jobs"]):
        if results is None:
            report.failed += 1
            continue
        ((unresponsive, inactive, missing),) = results
        report.unresponsive.update(unresponsive)
        report.inactive += inactive
        for name, devices in missing.items():
            report.missing.setdefault(name, []).extend(devices)
    return report


def activation(name: str, **common: Any) -> OpCode:
    """Return the opcode that activates the disks of an instance."""
    from ganeti.opcodes.instance import OpInstanceActivateDisks

    return OpInstanceActivateDisks(instance_name=name, **common)
