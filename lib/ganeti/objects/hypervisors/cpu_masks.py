"""The parameter ``cpu_mask``: the processors of the node on which a guest may run.

Source: manual page **ganeti-kvm**, *PROCESSORS, MEMORY, MACHINE*.
"""

from __future__ import annotations

from ganeti import errors

#: The mask which allows every processor.
CPU_ALL = "all"
#: Stands for :data:`CPU_ALL` in a list of processors.
CPU_ALL_VALUE = -1


def parse_cpu_mask(mask: str) -> list[int]:
    """Read a list of processors: ``"0-2,5"`` -> ``[0, 1, 2, 5]``; empty -> ``[]``.

    :raises errors.ParseError: the text is not a list of numbers and ranges.
    """
    cpus: list[int] = []
    if not mask:
        return cpus
    for part in mask.split(","):
        low, dash, high = part.strip().partition("-")
        try:
            first = int(low)
            last = int(high) if dash else first
        except ValueError as err:
            raise errors.ParseError(
                f"cpu mask {mask!r}: {part!r} is neither a number nor a range"
            ) from err
        if not 0 <= first <= last <= 65535:
            raise errors.ParseError(f"cpu mask {mask!r}: range {part!r} is not possible")
        cpus.extend(range(first, last + 1))
    return cpus


def parse_cpu_masks(masks: str) -> list[list[int]]:
    """Read a list for each virtual processor: ``"0-1:all:5"`` -> ``[[0, 1], [-1], [5]]``.

    :raises errors.ParseError: a part of the text is not a list of numbers and ranges.
    """
    if not masks:
        return []
    pinned = []
    for mask in masks.split(":"):
        if mask == CPU_ALL:
            pinned.append([CPU_ALL_VALUE])
            continue
        cpus = parse_cpu_mask(mask)
        if not cpus:
            raise errors.ParseError(f"cpu masks {masks!r}: one of them is empty")
        pinned.append(cpus)
    return pinned


def cpu_mask(value: str) -> str:
    """Check of a parameter: one list of processors."""
    try:
        parse_cpu_mask(value)
    except errors.ParseError as err:
        return str(err)
    return ""


def cpu_masks(value: str) -> str:
    """Check of a parameter: a list of processors for each virtual processor, or one for all."""
    try:
        parse_cpu_masks(value)
    except errors.ParseError as err:
        return str(err)
    return ""
