"""Text: sorting names as people do, sizes, identifiers, quoting.

Pure functions without state; used from commands and daemons alike, so nothing heavy is imported.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterable

from ganeti import errors

_DIGITS = re.compile(r"(\d+)")
_UNIT = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([A-Za-z]*)\s*")
_UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")

_MIB_PER_UNIT = {"": 1, "m": 1, "mb": 1, "mib": 1, "g": 1024, "gb": 1024, "gib": 1024}
_MIB_PER_UNIT |= {"t": 1024**2, "tb": 1024**2, "tib": 1024**2}

# Volumes are allocated in extents; sizes are kept in multiples of the smallest common one.
SIZE_STEP_MIB = 4


def natural_key(name: str) -> list[tuple[int, int | str]]:
    """A sort key with which ``node2`` comes before ``node10``."""
    # Numbers sort before text at the same place; the pair keeps int and str apart.
    return [
        (0, int(part)) if part.isdecimal() else (1, part) for part in _DIGITS.split(name) if part
    ]


def natural_sorted(names: Iterable[str]) -> list[str]:
    """Names in the order of :func:`natural_key`."""
    return sorted(names, key=natural_key)


def format_unit(size_mib: float, unit: str = "h") -> str:
    """A size for people or programs.

    :param unit: ``m``, ``g``, ``t``: a bare number in that unit; ``h``: the unit that fits, with
        its letter.
    :raises ProgrammerError: another unit.
    """
    if unit == "h":
        if size_mib < 1024:
            return f"{round(size_mib)}M"
        if size_mib < 1024 * 1024:
            return f"{size_mib / 1024:.1f}G"
        return f"{size_mib / 1024 / 1024:.1f}T"
    if unit == "m":
        return f"{round(size_mib)}"
    if unit == "g":
        return f"{size_mib / 1024:.1f}"
    if unit == "t":
        return f"{size_mib / 1024 / 1024:.1f}"
    raise errors.ProgrammerError(f"unknown unit '{unit}' for a size")


def parse_unit(value: str | int | float) -> int:
    """Read a size such as ``512``, ``1.5g`` or ``2T``.

    :returns: MiB, rounded up to a multiple of 4.
    :raises UnitParseError: not a number with an optional unit m, g or t.
    """
    match = _UNIT.fullmatch(str(value))
    if match is None:
        raise errors.UnitParseError(f"cannot read '{value}' as a size. Examples: 512, 512m, 1.5g.")
    number, unit = match.groups()
    factor = _MIB_PER_UNIT.get(unit.lower())
    if factor is None:
        raise errors.UnitParseError(f"unknown unit '{unit}' in size '{value}'. Use m, g or t.")
    # Exact in integers: a float product may round 0.1g the wrong way.
    whole, _, fraction = number.partition(".")
    scaled = int(whole + fraction) * factor
    divisor: int = 10 ** len(fraction)
    mib: int = -(-scaled // divisor)
    return -(-mib // SIZE_STEP_MIB) * SIZE_STEP_MIB


def match_name_component(
    key: str, names: Iterable[str], *, case_sensitive: bool = True
) -> str | None:
    """Find the one name whose leading components are ``key``.

    ``web`` matches ``web.example.com`` but not ``web2.example.com``.

    :returns: the full name; None when nothing or more than one name fits. An exact match always
        wins.
    """
    wanted = key if case_sensitive else key.lower()
    found: list[str] = []
    for name in names:
        candidate = name if case_sensitive else name.lower()
        if candidate == wanted:
            return name
        if candidate.startswith(f"{wanted}."):
            found.append(name)
    return found[0] if len(found) == 1 else None


def shell_quote(value: str) -> str:
    """One word for a POSIX shell."""
    return shlex.quote(value)


def shell_join(argv: Iterable[str]) -> str:
    """A command line that a POSIX shell splits back into ``argv``; only for messages."""
    return " ".join(shlex.quote(word) for word in argv)


def new_uuid() -> str:
    """A random UUID (version 4), lower case. (The uuid module costs commands 5 ms to import.)"""
    raw = bytearray(os.urandom(16))
    raw[6] = raw[6] & 0x0F | 0x40
    raw[8] = raw[8] & 0x3F | 0x80
    digits = raw.hex()
    return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"


def is_uuid(value: str) -> bool:
    """Whether this is a UUID as the configuration writes it."""
    return _UUID.fullmatch(value) is not None


def comma_join(names: Iterable[object]) -> str:
    """``a, b, c`` for messages."""
    return ", ".join(str(name) for name in names)


_TRANSFER_MAGIC = re.compile(r"^[-_.a-zA-Z0-9]{5,100}$")


def is_transfer_magic(word: str) -> bool:
    """Whether a word can mark a transfer of a disk."""
    return bool(_TRANSFER_MAGIC.match(word))
