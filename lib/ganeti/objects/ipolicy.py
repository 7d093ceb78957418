"""Instance policies: limits and defaults for the size of instances.

A policy is a dictionary with the published keys ``minmax`` (a list of alternatives, each with
``min`` and ``max``), ``std``, ``disk-templates``, ``vcpu-ratio`` and ``spindle-ratio``. A group's
policy is inherited from the cluster's (``fill.fill_ipolicy``). All sizes are in MiB.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ganeti import TYPE_CHECKING, errors
from ganeti.constants import disk
from ganeti.objects import disk_templates

if TYPE_CHECKING:
    from typing import Any

MEM_SIZE = "memory-size"
CPU_COUNT = "cpu-count"
DISK_COUNT = "disk-count"
DISK_SIZE = "disk-size"
NIC_COUNT = "nic-count"
SPINDLE_USE = "spindle-use"
SPECS = (CPU_COUNT, DISK_COUNT, DISK_SIZE, MEM_SIZE, NIC_COUNT, SPINDLE_USE)

MINMAX = "minmax"
MIN = "min"
MAX = "max"
STD = "std"
DISK_TEMPLATES = "disk-templates"
VCPU_RATIO = "vcpu-ratio"
SPINDLE_RATIO = "spindle-ratio"
RATIOS = (SPINDLE_RATIO, VCPU_RATIO)
KEYS = frozenset((MINMAX, STD, DISK_TEMPLATES, VCPU_RATIO, SPINDLE_RATIO))


#: The disk with the data of cloud-init, which ``gnt-instance add --image`` makes.
SEED_DISK = "cidata"
# Disks with a special name which are larger than this count like any disk.
_SPECIAL_DISK_MIB = 64


def is_special_disk(name: str | None, size_mib: int) -> bool:
    """Return whether a disk may be smaller than a policy allows, because it holds no data of users.

    That is the disk of cloud-init, and those which the firmware of a guest has.
    """
    if name is None or size_mib > _SPECIAL_DISK_MIB:
        return False
    # hail is started for every instance, and needs none of the descriptors.
    from ganeti.objects import hypervisors

    return name == SEED_DISK or any(
        name in hypervisors.of(one).firmware_disk_names for one in hypervisors.ALL
    )


def defaults() -> dict[str, Any]:
    """Return a new policy with the published defaults."""
    smallest = {
        CPU_COUNT: 1,
        DISK_COUNT: 1,
        DISK_SIZE: 1024,
        MEM_SIZE: 128,
        NIC_COUNT: 1,
        SPINDLE_USE: 1,
    }
    largest = {
        CPU_COUNT: 8,
        DISK_COUNT: disk.MAX_DISKS,
        DISK_SIZE: 1024 * 1024,
        MEM_SIZE: 32 * 1024,
        NIC_COUNT: 8,
        SPINDLE_USE: 12,
    }
    return {
        MINMAX: [{MIN: smallest, MAX: largest}],
        STD: dict(smallest),
        DISK_TEMPLATES: sorted(disk_templates.ALL),
        VCPU_RATIO: 4.0,
        SPINDLE_RATIO: 32.0,
    }


def check_syntax(policy: Mapping[str, Any], *, filled: bool) -> None:
    """Check the syntax of a policy.

    :param filled: all keys must be present, as in the policy of the cluster; otherwise keys may be
        missing, as in the policy of a group.
    :raises errors.ConfigurationError: a key is wrong; the message names the key.
    """
    unknown = sorted(set(policy) - KEYS)
    if unknown:
        raise errors.ConfigurationError(f"instance policy: unknown key {', '.join(unknown)}")
    missing = sorted(KEYS - set(policy)) if filled else []
    if missing:
        raise errors.ConfigurationError(f"instance policy: {', '.join(missing)} is missing")
    for ratio in RATIOS:
        value = policy.get(ratio, 1.0)
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not value > 0:
            raise errors.ConfigurationError(
                f"instance policy: {ratio} must be a number above zero, not {value!r}"
            )
    if DISK_TEMPLATES in policy:
        templates = policy[DISK_TEMPLATES]
        if not isinstance(templates, (list, tuple)) or not templates:
            raise errors.ConfigurationError(
                f"instance policy: {DISK_TEMPLATES} must be a list that is not empty"
            )
        for template in templates:
            if template not in disk_templates.ALL:
                raise errors.ConfigurationError(
                    f"instance policy: there is no disk template {template!r}"
                )
    if STD in policy:
        _check_specs(policy[STD], STD, complete=filled)
    if MINMAX in policy:
        _check_minmax(policy[MINMAX])
        if STD in policy and set(policy[STD]) == set(SPECS):
            _check_std_inside(policy[STD], policy[MINMAX])


def _check_minmax(alternatives: Any) -> None:
    if not isinstance(alternatives, (list, tuple)) or not alternatives:
        raise errors.ConfigurationError(
            f"instance policy: {MINMAX} must be a list that is not empty"
        )
    for place, bounds in enumerate(alternatives):
        where = f"{MINMAX}/{place}"
        if not isinstance(bounds, dict) or set(bounds) != {MIN, MAX}:
            raise errors.ConfigurationError(
                f"instance policy: {where} must have exactly the keys {MAX} and {MIN}"
            )
        for key in (MIN, MAX):
            _check_specs(bounds[key], f"{where}/{key}", complete=True)
        for spec in SPECS:
            if bounds[MIN][spec] > bounds[MAX][spec]:
                raise errors.ConfigurationError(
                    f"instance policy: {where}: {spec} has minimum {bounds[MIN][spec]} above "
                    f"maximum {bounds[MAX][spec]}"
                )


def _check_specs(specs: Any, where: str, *, complete: bool) -> None:
    if not isinstance(specs, dict) or not set(specs) <= set(SPECS):
        raise errors.ConfigurationError(
            f"instance policy: {where} may have the keys {', '.join(SPECS)} only"
        )
    if complete and set(specs) != set(SPECS):
        lacking = ", ".join(sorted(set(SPECS) - set(specs)))
        raise errors.ConfigurationError(f"instance policy: {where} lacks {lacking}")
    for spec, value in specs.items():
        if isinstance(value, bool) or not isinstance(value, int) or value < 0:
            raise errors.ConfigurationError(
                f"instance policy: {where}/{spec} must be an integer from zero, not {value!r}"
            )


def _check_std_inside(std: Mapping[str, int], alternatives: Iterable[Mapping[str, Any]]) -> None:
    for bounds in alternatives:
        if all(bounds[MIN][spec] <= std[spec] <= bounds[MAX][spec] for spec in SPECS):
            return
    raise errors.ConfigurationError(f"instance policy: {STD} is outside of every {MINMAX}")


class Violation(str):
    """The published text about one limit which an instance does not respect.

    :ivar spec: the key of the policy; :data:`DISK_TEMPLATES` for a template.
    :ivar value: what the instance asks for.
    :ivar bounds: the smallest and the largest permitted value; the permitted templates.
    """

    __slots__ = ("bounds", "spec", "value")

    spec: str
    value: Any
    bounds: tuple[Any, ...]

    @classmethod
    def of(cls, text: str, spec: str, value: Any, bounds: Iterable[Any]) -> Violation:
        """Make one."""
        new = cls(text)
        new.spec, new.value, new.bounds = spec, value, tuple(bounds)
        return new


def check(
    policy: Mapping[str, Any],
    *,
    memory_mib: int | None = None,
    vcpus: int | None = None,
    disk_sizes_mib: Iterable[int | None] | None = None,
    nic_count: int | None = None,
    spindle_use: int | None = None,
    disk_template: str | None = None,
) -> list[str]:
    """Return the violations of a filled policy by an instance, one text each.

    Arguments which are None are not checked, nor is a disk whose size is None. Of several
    alternatives, the one with the fewest violations is used.
    """
    violations: list[str] = []
    if disk_template is not None and disk_template not in policy[DISK_TEMPLATES]:
        allowed = sorted(policy[DISK_TEMPLATES])
        text = f"disk template {disk_template} is not allowed (allowed: {', '.join(allowed)})"
        violations.append(Violation.of(text, DISK_TEMPLATES, disk_template, allowed))
    wanted: list[tuple[str, str, int]] = []
    for spec, value in (
        (MEM_SIZE, memory_mib),
        (CPU_COUNT, vcpus),
        (NIC_COUNT, nic_count),
        (SPINDLE_USE, spindle_use),
    ):
        if value is not None:
            wanted.append((spec, spec, value))
    # The number of disks of a diskless instance is not checked.
    if disk_sizes_mib is not None and disk_template != disk.DISKLESS:
        sizes = list(disk_sizes_mib)
        wanted.append((DISK_COUNT, DISK_COUNT, len(sizes)))
        wanted.extend(
            (DISK_SIZE, f"{DISK_SIZE}/{place}", size)
            for place, size in enumerate(sizes)
            if size is not None
        )
    found = [_outside(bounds, wanted) for bounds in policy[MINMAX]]
    return violations + min(found, key=len)


def _outside(
    bounds: Mapping[str, Mapping[str, int]], wanted: Iterable[tuple[str, str, int]]
) -> list[str]:
    return [
        Violation.of(
            f"{label} value {value} is not in range [{bounds[MIN][spec]}, {bounds[MAX][spec]}]",
            spec,
            value,
            (bounds[MIN][spec], bounds[MAX][spec]),
        )
        for spec, label, value in wanted
        if not bounds[MIN][spec] <= value <= bounds[MAX][spec]
    ]
