"""The parameter ``vlan`` of a NIC."""

from __future__ import annotations

import re
from typing import NamedTuple

from ganeti import errors

_VLAN_MAX = 4094


class Vlans(NamedTuple):
    """The VLANs of an interface."""

    untagged: int | None  # packets without a tag belong to it
    tagged: tuple[int, ...] = ()


#: Of an interface whose NIC has no parameter ``vlan``.
NO_VLANS = Vlans(None)


def parse_vlans(text: str) -> Vlans:
    """Read the parameter ``vlan``: ``7`` or ``.7``, ``:8:9``, ``.7:8:9``; empty is none.

    :raises HypervisorError: the text has another form, or a number is not a VLAN.
    """
    if not re.fullmatch(r"|\.?\d{1,9}(:\d{1,9})*|(:\d{1,9})+", text, re.ASCII):
        raise errors.HypervisorError(f"{text!r:.100} is not a VLAN like 7, .7, :7:8 or .7:8")
    first, *rest = text.removeprefix(".").split(":")
    wrong = [number for number in (first, *rest) if number and not 1 <= int(number) <= _VLAN_MAX]
    if wrong:
        raise errors.HypervisorError(
            f"VLAN {wrong[0]} is not between 1 and {_VLAN_MAX} (in {text!r})"
        )
    return Vlans(int(first) if first else None, tuple(int(number) for number in rest))
