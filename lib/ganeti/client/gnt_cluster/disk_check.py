"""Which disks are not usable as they should be: the question, and what to do about the answer.

For ``gnt-cluster verify-disks`` and for the watcher, which differ in what they say meanwhile: both
give :func:`check` a way to run jobs, and print or log the :class:`DiskReport` themselves.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

TYPE_CHECKING = False  # the name type checkers look for; importing typing costs milliseconds
if TYPE_CHECKING:
    from typing import Any

    from ganeti.opcodes.base import OpCode

    #: Runs an opcode as a job; its result.
    RunOne = Callable[[OpCode], Any]
    #: Waits for jobs that a job has submitted (rows of ``[True, id]`` or ``[False, message]``); for
    #: each the results of its opcodes, or None when it failed.
    AwaitJobs = Callable[[Sequence[Sequence[Any]]], Iterable[list[Any] | None]]


class DiskReport:
    """What the nodes of all groups said.

    :ivar silent: node -> why it could not be asked.
    :ivar inactive: instances whose disks have to be activated.
    :ivar missing: instance -> devices which are gone, as [node, device].
    :ivar failed: how many groups could not be looked at.
    """

    __slots__ = ("failed", "inactive", "missing", "silent")

    def __init__(self) -> None:
        self.silent: dict[str, str] = {}
        self.inactive: list[str] = []
        self.missing: dict[str, list[list[str]]] = {}
        self.failed = 0

    @property
    def clean(self) -> bool:
        """Whether everything was looked at and nothing is wrong."""
        return not (self.silent or self.inactive or self.missing or self.failed)


def check(
    run: RunOne,
    await_jobs: AwaitJobs,
    *,
    group: str | None = None,
    strict: bool = True,
    **common: Any,
) -> DiskReport:
    """Ask about the disks of all groups, or of one.

    :param strict: whether a node that cannot be asked is told, or left out.
    :param common: parameters of every opcode, such as ``priority`` and ``reason``.
    :raises GenericError: the job that begins it failed.
    """
    from ganeti.opcodes.cluster import OpClusterVerifyDisks

    submitted = run(OpClusterVerifyDisks(group_name=group, is_strict=strict, **common))
    report = DiskReport()
    for results in await_jobs(submitted["jobs"]):
        if results is None:
            report.failed += 1
            continue
        ((silent, inactive, missing),) = results
        report.silent.update(silent)
        report.inactive += inactive
        for name, devices in missing.items():
            report.missing.setdefault(name, []).extend(devices)
    return report


def activation(name: str, **common: Any) -> OpCode:
    """The opcode that makes the disks of an instance usable again."""
    from ganeti.opcodes.instance import OpInstanceActivateDisks

    return OpInstanceActivateDisks(instance_name=name, **common)
