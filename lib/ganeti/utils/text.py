"""Text: sorting names with numbers, sizes, identifiers, quoting.

Pure functions without state. Commands and daemons use them, so no large module is imported.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterable

from ganeti import errors

_DIGITS = re.compile(r"(\d+)")
# Numbers with more digits are not sizes, and cost time to read.
_SIZE_DIGITS = 30
_UNIT = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([A-Za-z]*)\s*")
_UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")

_MIB_PER_UNIT = {"": 1, "m": 1, "mb": 1, "mib": 1, "g": 1024, "gb": 1024, "gib": 1024}
_MIB_PER_UNIT |= {"t": 1024**2, "tb": 1024**2, "tib": 1024**2}

# Volumes consist of extents; sizes are multiples of the smallest usual one.
SIZE_STEP_MIB = 4


def natural_key(name: str) -> list[tuple[int, int | str]]:
    """Return a sort key with which ``node2`` comes before ``node10``."""
    # Numbers sort before text; with the pair, int and str are never compared.
    return [
        (0, int(part)) if part.isdecimal() else (1, part) for part in _DIGITS.split(name) if part
    ]


def format_unit(size_mib: float, unit: str = "h") -> str:
    """Return a size as text.

    :param size_mib: the size in MiB.
    :param unit: ``m``, ``g`` or ``t`` for a number in MiB, GiB or TiB without a unit; ``h`` for a
        number in a suitable unit, followed by its letter.
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
    """Read a size such as ``512``, ``1.5g`` or ``2T``; without a unit it is in MiB.

    :returns: MiB, rounded up to a multiple of 4.
    :raises UnitParseError: the value is not a number with an optional unit m, g or t.
    """
    match = _UNIT.fullmatch(str(value))
    if match is None or len(match[1]) > _SIZE_DIGITS:
        raise errors.UnitParseError(
            f"cannot read '{str(value):.100}' as a size. Examples: 512, 512m, 1.5g."
        )
    number, unit = match.groups()
    factor = _MIB_PER_UNIT.get(unit.lower())
    if factor is None:
        raise errors.UnitParseError(f"unknown unit '{unit}' in size '{value}'. Use m, g or t.")
    # Integers, because a product of floats may round 0.1g to a wrong number.
    whole, _, fraction = number.partition(".")
    scaled = int(whole + fraction) * factor
    divisor: int = 10 ** len(fraction)
    mib: int = -(-scaled // divisor)
    return -(-mib // SIZE_STEP_MIB) * SIZE_STEP_MIB


def match_name_component(
    key: str, names: Iterable[str], *, case_sensitive: bool = True
) -> str | None:
    """Find the only name whose leading components are ``key``.

    ``web`` matches ``web.example.com`` but not ``web2.example.com``.

    :returns: the full name; None when no name matches, or several do. A name which is equal to
        ``key`` is always taken.
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


def may_be_same(one: str, other: str) -> bool:
    """Tell whether two host names may be of one object: ``web1`` stands for ``web1.example.com``.

    No two objects of a kind have such names.
    """
    return one == other or one.startswith(f"{other}.") or other.startswith(f"{one}.")


def shell_quote(value: str) -> str:
    """Quote a text so that a POSIX shell reads it as one word."""
    return shlex.quote(value)


def shell_join(argv: Iterable[str]) -> str:
    """Return a command line which a POSIX shell splits into ``argv`` again; only for messages."""
    return " ".join(shlex.quote(word) for word in argv)


def wrong_variable(name: str, value: object = "") -> str:
    """Return why no program can get a variable of its environment; empty when it can.

    :param name: of the variable, or the part of it which somebody has chosen.
    """
    if not name or "=" in name:
        return "its name cannot be the one of a variable"
    for part, what in ((name, "its name"), (str(value), "its value")):
        if "\0" in part:
            return f"{what} has a zero character, which no program can be given"
        try:
            part.encode("utf-8", "surrogateescape")
        except UnicodeEncodeError:
            return f"{what} has half of a pair of surrogates, which is no character"
    return ""


def new_uuid() -> str:
    """Return a random UUID (version 4), in lower case."""
    # The module uuid takes 5 ms to import, which is too much for commands.
    raw = bytearray(os.urandom(16))
    raw[6] = raw[6] & 0x0F | 0x40
    raw[8] = raw[8] & 0x3F | 0x80
    digits = raw.hex()
    return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"


def is_uuid(value: str) -> bool:
    """Return True if a text is a UUID in lower case, the form of the configuration."""
    return _UUID.fullmatch(value) is not None


def comma_join(names: Iterable[object]) -> str:
    """Join names as ``a, b, c``, for messages."""
    return ", ".join(str(name) for name in names)


_TRANSFER_MAGIC = re.compile(r"^[-_.a-zA-Z0-9]{5,100}$")


def secret_digest(secret: str) -> str:
    """Return the digest of a random secret, for comparisons which must not show the secret."""
    import hashlib  # costs milliseconds, and commands import this module

    return hashlib.sha256(secret.encode()).hexdigest()


def is_transfer_magic(word: str) -> bool:
    """Return True if a word can be the magic of a transfer of a disk, which both ends must know."""
    return bool(_TRANSFER_MAGIC.fullmatch(word))


def brief(value: object, limit: int = 80) -> str:
    """Return the representation of a value for a message, at most ``limit`` characters and dots.

    The whole representation of what a client has sent may have megabytes, so it is not made.
    """
    if not isinstance(value, str) or len(value) > limit:
        import reprlib  # only errors need it

        short = reprlib.Repr()
        short.maxlist = short.maxtuple = short.maxset = short.maxdict = 10
        short.maxstring = short.maxlong = short.maxother = limit
        shown = short.repr(value)
    else:
        shown = repr(value)
    return shown if len(shown) <= limit else shown[:limit] + "..."


def glob_to_regex(pattern: str) -> str:
    """Return the regular expression for a shell pattern on host names.

    A star matches any text within one component, and further components may follow:
    ``node1*.example.com`` -> ``^node1[^.]*\\.example\\.com(\\..*)?$``.
    """
    out = []
    for char in pattern:
        if char == "*":
            out.append("[^.]*")
        elif char == "?":
            out.append("[^.]")
        else:
            out.append(re.escape(char))
    return f"^{''.join(out)}(\\..*)?$"
