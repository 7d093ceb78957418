"""Selectors: which instances a right of the REST interface holds for.

================== =============================================================================
``instance:NAME``  the instance; ``*`` and ``?`` stand for any characters of one part of the name
``tag:TAG``        the instances with this tag
``group:NAME``     the instances whose primary node is in this node group (name or UUID)
``pool:NAME``      the instances of any selector of this pool of the roles file
``own``            the instances of the user, which have the tag ``owner:USER``
================== =============================================================================

A name without the last parts (``instance:web1``) stands for all names which begin with these parts,
as everywhere in commands.

:class:`Facts` is what is known of an instance, also of one that a request would make. The same
question is asked of the master as the filter of a query, so that a list does not have to be read
whole.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Final, NamedTuple

from ganeti import errors
from ganeti.utils import text

INSTANCE, TAG, GROUP, POOL, OWN = "instance", "tag", "group", "pool", "own"
KINDS: Final = (INSTANCE, TAG, GROUP, POOL)
#: Beginning of the tag that says who made an instance.
OWNER_TAG: Final = "owner:"
#: The fields of an instance of which :meth:`Facts.of_row` makes facts.
FIELDS: Final = ("name", "uuid", "tags", "pnode.group", "pnode.group.uuid")
#: A filter that no instance matches.
_NOTHING: Final = ["=", "uuid", "-"]
_VALUE: Final = re.compile(r"[^\s,]+")
_POOL_NAME: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")


class Selector(NamedTuple):
    """One selector.

    :ivar value: what follows the kind; empty for :data:`OWN`.
    """

    kind: str
    value: str = ""

    def __str__(self) -> str:
        return f"{self.kind}:{self.value}" if self.value else self.kind


#: The selectors of a pool by its name.
Pools = Mapping[str, Sequence[Selector]]
#: A selector for no instance at all.
NOWHERE: Final = Selector(POOL, "")


@dataclass(frozen=True, slots=True)
class Facts:
    """What decides whether a selector holds for an instance.

    :ivar uuid: empty for an instance that does not exist yet.
    :ivar groups: name and UUID of the node group of its primary node; empty when not known.
    """

    name: str
    uuid: str = ""
    tags: frozenset[str] = frozenset()
    groups: frozenset[str] = frozenset()

    @classmethod
    def of_row(cls, row: Sequence[Sequence[Any]]) -> Facts:
        """Make the facts from a row of a query for :data:`FIELDS`: ``[status, value]`` each."""
        name, uuid, tags, *groups = ([status, value] for status, value in row)
        return cls(
            str(name[1]),
            str(uuid[1]),
            frozenset(tags[1] or ()) if tags[0] == 0 else frozenset(),
            frozenset(str(value) for status, value in groups if status == 0 and value),
        )

    def changed(
        self, *, name: str | None = None, more: Iterable[str] = (), less: Iterable[str] = ()
    ) -> Facts:
        """Return the facts after a change of the name or of tags."""
        tags = (self.tags | frozenset(more)) - frozenset(less)
        return replace(self, name=self.name if name is None else name, tags=tags)


def parse(word: str) -> Selector:
    """Read a selector.

    :raises errors.ParseError: it is none; the message is the end of a sentence about it.
    """
    if word == OWN:
        return Selector(OWN)
    kind, colon, value = word.partition(":")
    if kind not in KINDS or not colon:
        raise errors.ParseError(
            f"'{word}' is not a selector; one is {', '.join(f'{one}:...' for one in KINDS)} or own"
        )
    if not _VALUE.fullmatch(value):
        raise errors.ParseError(f"'{word}' has no name after {kind}:")
    if kind == POOL and not _POOL_NAME.fullmatch(value):
        raise errors.ParseError(f"'{value}' cannot be the name of a pool")
    return Selector(kind, value)


def owner_tag(user: str) -> str:
    """Return the tag of the instances of a user."""
    return f"{OWNER_TAG}{user}"


def holds(selector: Selector, facts: Facts, user: str, pools: Pools) -> bool:
    """Return whether a selector of a user's right holds for an instance."""
    kind, value = selector
    if kind == INSTANCE:
        return _name_pattern(value).search(facts.name) is not None
    if kind == TAG:
        return value in facts.tags
    if kind == OWN:
        return owner_tag(user) in facts.tags
    if kind == GROUP:
        return value in facts.groups
    return any(holds(one, facts, user, pools) for one in pools.get(value, ()) if one.kind != POOL)


def as_filter(selector: Selector, user: str, pools: Pools) -> list[Any]:
    """Return the filter of a query for the instances of a selector."""
    kind, value = selector
    if kind == INSTANCE:
        return ["=~", "name", text.glob_to_regex(value)]
    if kind == TAG:
        return ["=[]", "tags", value]
    if kind == OWN:
        return ["=[]", "tags", owner_tag(user)]
    if kind == GROUP:
        return ["|", ["==", "pnode.group", value], ["==", "pnode.group.uuid", value]]
    return any_of(as_filter(one, user, pools) for one in pools.get(value, ()) if one.kind != POOL)


def any_of(filters: Iterable[list[Any]]) -> list[Any]:
    """Return a filter which is true where one of these is; without any, it is never true."""
    found = list(filters)
    if not found:
        return list(_NOTHING)
    return found[0] if len(found) == 1 else ["|", *found]


def simple(selector: Selector, pools: Pools) -> list[Selector]:
    """Return the selectors for which one stands: those of a pool, or itself."""
    if selector.kind != POOL:
        return [selector]
    return [one for one in pools.get(selector.value, ()) if one.kind != POOL]


@lru_cache(maxsize=1000)
def _name_pattern(value: str) -> re.Pattern[str]:
    return re.compile(text.glob_to_regex(value))
