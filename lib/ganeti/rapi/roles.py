"""The roles file of the REST interface: roles, pools of instances, and quotas.

It lies beside the users file, and is distributed with it. A line defines one thing::

    # comment
    pool  web     = tag:web, instance:www-*
    role  tenant  = write@own, networks
    role  webteam = operator@pool:web, console@pool:web
    quota alice   = instances 10, memory 64g, disk 2t, vcpus 40
    quota pool:web = instances 100
    quota *       = instances 3, memory 8g

A wrong line is reported and defines nothing; the other lines are valid. A role may name roles of
lines before it. When the file cannot be read, nothing changes.

The owner of a quota is a user (his instances have the tag ``owner:USER``), a selector (the
instances for which it holds, except for node groups: which one an instance gets is decided when
its job runs), or ``*``: each user who has no quota of his own. :mod:`ganeti.rapi.quotas` counts.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Final

from ganeti import errors
from ganeti.rapi import rights, selectors
from ganeti.rapi.selectors import GROUP, OWN, POOL, TAG, Selector
from ganeti.utils import author, suggest, text

#: What a quota limits, and the unit: memory and disk are in MiB.
INSTANCES, MEMORY, DISK, VCPUS = "instances", "memory", "disk", "vcpus"
LIMITED: Final = (INSTANCES, MEMORY, DISK, VCPUS)
EACH: Final = "*"
_SIZES: Final = (MEMORY, DISK)
_NAME: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}")
_MOST_DIGITS: Final = 12


@dataclass(frozen=True, slots=True)
class Quota:
    """How much the instances of an owner may have together.

    :ivar owner: as the file names it.
    :ivar selector: the instances; None for those of a user, or of each user.
    :ivar limits: name of what is limited -> the limit.
    """

    owner: str
    selector: Selector | None
    limits: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Rules:
    """What the roles file says.

    :ivar roles: also those which always exist.
    :ivar lines: ``kind name`` -> number of its line.
    """

    roles: Mapping[str, Collection[str]] = field(default_factory=lambda: dict(rights.ROLES))
    pools: Mapping[str, tuple[Selector, ...]] = field(default_factory=dict)
    quotas: Mapping[str, Quota] = field(default_factory=dict)
    lines: Mapping[str, int] = field(default_factory=dict)

    def tags_with_rights(self) -> frozenset[str]:
        """Return the tags which a pool, a role or a quota names."""
        found = {one.value for pool in self.pools.values() for one in pool if one.kind == TAG}
        found |= {
            quota.selector.value
            for quota in self.quotas.values()
            if quota.selector is not None and quota.selector.kind == TAG
        }
        for words in self.roles.values():
            found |= {word.partition("@tag:")[2] for word in words}
        return frozenset(found - {""})


class _Reader:
    """Reads the lines of a file."""

    def __init__(self, handlers: Collection[str]) -> None:
        self._handlers = handlers
        self.roles: dict[str, Collection[str]] = dict(rights.ROLES)
        self.pools: dict[str, tuple[Selector, ...]] = {}
        self.quotas: dict[str, Quota] = {}
        self.lines: dict[str, int] = {}

    def read(self, number: int, line: str) -> None:
        """Read one line.

        :raises errors.ParseError: it is wrong.
        """
        head, equals, rest = line.partition("=")
        words = head.split()
        readers: dict[str, Callable[[str, list[str]], None]] = {
            "role": self._role,
            "pool": self._pool,
            "quota": self._quota,
        }
        if not equals or len(words) != 2 or words[0] not in readers:
            raise errors.ParseError(
                "the line is not 'role NAME = right, ...', 'pool NAME = selector, ...' or"
                " 'quota OWNER = instances 10, ...'"
            )
        kind, name = words
        items = [item.strip() for item in rest.split(",")]
        if not all(items):
            raise errors.ParseError(f"{kind} {name} has an empty item between commas")
        key = f"{kind} {name}"
        if key in self.lines:
            raise errors.ParseError(
                f"{key} is already defined in line {self.lines[key]}, which counts"
            )
        readers[kind](name, items)
        self.lines[key] = number

    def _role(self, name: str, items: list[str]) -> None:
        role = f"@{_checked_name(name, 'role')}"
        if role in rights.ROLES:
            raise errors.ParseError(f"role {name} always exists and cannot be changed")
        _rights, problems = rights.parse(",".join(items), self.roles, self._handlers)
        if problems:
            raise errors.ParseError(f"role {name}: {problems[0]}")
        self.roles[role] = frozenset(items)

    def _pool(self, name: str, items: list[str]) -> None:
        _checked_name(name, "pool")
        found = [selectors.parse(item) for item in items]
        for one in found:
            if one.kind in (POOL, OWN):
                raise errors.ParseError(f"pool {name} cannot contain '{one}'")
        self.pools[name] = tuple(found)

    def _quota(self, name: str, items: list[str]) -> None:
        selector = None
        if ":" in name:
            selector = selectors.parse(name)
            if selector.kind == POOL and selector.value not in self.pools:
                raise errors.ParseError(f"quota {name}: there is no pool '{selector.value}' above")
            if any(one.kind == GROUP for one in selectors.simple(selector, self.pools)):
                raise errors.ParseError(
                    f"quota {name}: a quota cannot be for a node group; limit what its nodes take"
                    " with 'gnt-group modify --ipolicy-...'"
                )
        elif name != EACH and not author.is_name(name):
            raise errors.ParseError(f"'{name}' is neither the name of a user nor a selector")
        limits: dict[str, int] = {}
        for item in items:
            what, limit = _limit(item)
            if what in limits:
                raise errors.ParseError(f"quota {name} limits {what} twice")
            limits[what] = limit
        self.quotas[name] = Quota(name, selector, limits)


def _checked_name(name: str, kind: str) -> str:
    if not _NAME.fullmatch(name):
        raise errors.ParseError(f"'{name}' cannot be the name of a {kind}")
    return name


def _limit(item: str) -> tuple[str, int]:
    what, _blank, value = item.partition(" ")
    value = value.strip()
    if what not in LIMITED:
        hint = suggest.did_you_mean(what, LIMITED)
        raise errors.ParseError(
            f"'{what}' cannot be limited; {', '.join(LIMITED)} can{'.' + hint if hint else ''}"
        )
    if what in _SIZES:
        try:
            return what, text.parse_unit(value)
        except errors.GenericError as err:
            raise errors.ParseError(f"{what}: {err}") from err
    if not (value.isascii() and value.isdigit() and len(value) <= _MOST_DIGITS):
        raise errors.ParseError(f"{what} needs a number, not '{value}'")
    return what, int(value)


def parse(content: str, handlers: Collection[str] = ()) -> tuple[Rules, list[str]]:
    """Read the roles file.

    :param handlers: names of resources; other names are reported.
    :returns: what it says, and its problems, each with the number of the line.
    """
    reader = _Reader(handlers)
    problems = []
    for number, line in enumerate(content.splitlines(), 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        try:
            reader.read(number, line)
        except errors.ParseError as err:
            problems.append(f"line {number}: {err}")
    return Rules(reader.roles, reader.pools, reader.quotas, reader.lines), problems
