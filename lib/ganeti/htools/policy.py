"""Instance policies: how large instances may be, and how far nodes may be overcommitted."""

from __future__ import annotations

import math

from ganeti.objects import disk_templates
from ganeti.utils.records import record


@record(frozen=True, slots=True)
class Spec:
    """A size of instances, or one end of a range of sizes; memory and disk size are in MiB."""

    memory: int
    cpus: int
    disk_size: int
    disk_count: int
    nics: int
    spindle_use: int


@record(frozen=True, slots=True)
class Range:
    """The smallest and the largest permitted size."""

    smallest: Spec
    largest: Spec


@record(frozen=True, slots=True)
class Policy:
    """The instance policy of a group or of the cluster."""

    ranges: tuple[Range, ...]
    standard: Spec
    templates: tuple[str, ...]
    vcpu_ratio: float
    spindle_ratio: float


def most_vcpus(ratio: float, processors: float) -> int:
    """Return the virtual CPUs which ``vcpu-ratio`` permits on a node, its own included."""
    return math.floor(ratio * processors)


def most_spindles(ratio: float, spindles: int) -> float:
    """Return the use of spindles which ``spindle-ratio`` permits on a node."""
    return ratio * spindles


def default() -> Policy:
    """Return the policy of a cluster which has none of its own."""
    return Policy(
        ranges=(Range(Spec(128, 1, 1024, 1, 1, 1), Spec(32768, 8, 1048576, 16, 8, 12)),),
        standard=Spec(128, 1, 1024, 1, 1, 1),
        templates=tuple(disk_templates.ALL),
        vcpu_ratio=4.0,
        spindle_ratio=32.0,
    )
