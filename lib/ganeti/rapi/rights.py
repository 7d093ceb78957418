"""The rights of the users of the REST interface, and the words for them.

============================ ===================================================================
``write``, ``@admin``        everything
``read``, ``@readonly``      reading, also where reading needs a right; also the consoles
``view``, ``@viewer``        like ``read``, without the consoles
``console``, ``@console``    the consoles of instances, and nothing else
``@operator``                like ``read``; start, stop, reboot, move instances; wait for and cancel
                             jobs
``<resource>``               everything at a resource, by its name (``instances_name_tags``)
``<resource>:<METHOD>``      one method of it (``nodes_name_role:PUT``)
``<right>@<selector>``       the right for the instances of a selector
                             (:mod:`ganeti.rapi.selectors`), such as ``operator@tag:web``
``@<role>``                  the rights of a role of the roles file (:mod:`ganeti.rapi.roles`)
============================ ===================================================================

A user without rights may use the operations which need none, and those which need only a user,
because they submit a job. A user who has a right for some instances, and no right to read all, is
*limited*: he sees these instances only (:mod:`ganeti.rapi.scope`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from ganeti import errors
from ganeti.rapi import selectors
from ganeti.rapi.selectors import NOWHERE, Facts, Pools, Selector
from ganeti.utils import suggest

#: The words of which operations need one; every user has the last one.
READ: Final = "read"
WRITE: Final = "write"
USER: Final = "user"

VIEW: Final = "view"
CONSOLE: Final = "console"
#: The right for the consoles covers the resources whose names begin with this.
CONSOLES: Final = "instances_name_console"
_OPERATED: Final = (
    "instances_name_startup",
    "instances_name_shutdown",
    "instances_name_reboot",
    "instances_name_migrate",
    "instances_name_failover",
    "instances_name_activate_disks",
    "instances_name_deactivate_disks",
    "jobs_id",
    "jobs_id_wait",
    "events",
)
_SIGN: Final = "@"
_MAIN: Final = (READ, WRITE, VIEW, CONSOLE)
# Rights which let a user read all objects.
_SEE_ALL: Final = frozenset({READ, WRITE, VIEW})
#: Name of a role, with the sign before it -> the words for which it stands.
Roles = Mapping[str, Collection[str]]
#: The roles which always exist.
ROLES: Final[Mapping[str, frozenset[str]]] = {
    "@admin": frozenset({WRITE, READ}),
    "@readonly": frozenset({READ}),
    "@viewer": frozenset({VIEW}),
    "@console": frozenset({CONSOLE}),
    "@operator": frozenset({READ, *_OPERATED}),
}


class Grant(NamedTuple):
    """Rights for some instances.

    :ivar words: roles are replaced by the words for which they stand.
    :ivar where: all of these selectors must hold for an instance.
    """

    words: frozenset[str]
    where: tuple[Selector, ...]

    def __str__(self) -> str:
        where = "@".join(map(str, self.where))
        return ",".join(f"{word}@{where}" for word in sorted(self.words)) or f"nothing@{where}"


@dataclass(frozen=True, slots=True)
class Area:
    """The instances for which a user has a right.

    :ivar user: the name of the user, for the selector ``own``.
    :ivar choices: an instance belongs to it if all selectors of one of these hold for it.
    """

    user: str
    choices: tuple[tuple[Selector, ...], ...]

    def __str__(self) -> str:
        return " or ".join("@".join(map(str, where)) for where in self.choices)

    def has(self, facts: Facts, pools: Pools) -> bool:
        """Return whether an instance belongs to the area."""
        return any(
            all(selectors.holds(one, facts, self.user, pools) for one in where)
            for where in self.choices
        )

    def as_filter(self, pools: Pools) -> list[object]:
        """Return the filter of a query for the instances of the area."""
        return selectors.any_of(
            _all_of([selectors.as_filter(one, self.user, pools) for one in where])
            for where in self.choices
        )

    def simple(self, pools: Pools) -> set[Selector]:
        """Return the selectors which alone are sufficient for an instance to belong to the area."""
        return {
            one
            for where in self.choices
            if len(where) == 1
            for one in selectors.simple(where[0], pools)
        }


@dataclass(frozen=True, slots=True)
class Rights:
    """What a user may do.

    :ivar words: the words for the whole cluster; roles are replaced by the words for which they
        stand.
    :ivar grants: rights for some instances.
    :ivar bound: each right must be in these, too; None for no such bound.
    """

    words: frozenset[str] = frozenset()
    grants: tuple[Grant, ...] = ()
    bound: Rights | None = None

    def __str__(self) -> str:
        return ",".join([*sorted(self.words), *map(str, self.grants)]) or "-"

    @property
    def limited(self) -> bool:
        """Return whether the user sees only the instances for which he has rights."""
        own = bool(self.grants) and self.words.isdisjoint(_SEE_ALL)
        return own or (self.bound is not None and self.bound.limited)

    def within(self, bound: Rights) -> Rights:
        """Return these rights as far as other ones allow, such as those of the owner of a token."""
        return replace(self, bound=bound if self.bound is None else self.bound.within(bound))

    def may(self, needed: Collection[str], handler: str, method: str) -> bool:
        """Return whether one of the rights is sufficient for an operation on some object.

        :param needed: the rights of which the operation needs one; empty if it needs none.
        :param handler: the published name of the resource.
        """
        choices = self._choices(needed, handler, method)
        return choices is None or bool(choices)

    def area(self, user: str, needed: Collection[str], handler: str, method: str) -> Area | None:
        """Return the instances on which a user may do an operation; None for everything.

        An operation which needs no right may be done on each instance that the user sees.

        :param user: the name of the user with these rights.
        """
        choices = self._choices(needed, handler, method)
        return None if choices is None else Area(user, choices)

    def seen(self, user: str) -> Area | None:
        """Return the instances which a user sees; None for all."""
        return self.area(user, (), "", "")

    def deciding(self, needed: Collection[str], handler: str, method: str) -> list[str]:
        """Return the rights that are sufficient for an operation, in the form of the users file."""
        if not needed or USER in needed:
            if not self.limited:
                return ["this operation needs no right"]
            found = [word for word in sorted(self.words) if _names(word, handler, method)]
            return found + [str(grant) for grant in self.grants]
        found = [w for w in sorted(self.words) if _enough(frozenset({w}), needed, handler, method)]
        for grant in self.grants:
            where = "@".join(map(str, grant.where))
            found += [
                f"{word}@{where}"
                for word in sorted(grant.words)
                if _enough(frozenset({word}), needed, handler, method)
            ]
        return found

    def _choices(
        self, needed: Collection[str], handler: str, method: str
    ) -> tuple[tuple[Selector, ...], ...] | None:
        own = self._own_choices(needed, handler, method)
        if self.bound is None:
            return own
        other = self.bound._choices(needed, handler, method)
        if own is None or other is None:
            return other if own is None else own
        return tuple((*mine, *theirs) for mine in own for theirs in other)

    def _own_choices(
        self, needed: Collection[str], handler: str, method: str
    ) -> tuple[tuple[Selector, ...], ...] | None:
        if not needed or USER in needed:
            limited = bool(self.grants) and self.words.isdisjoint(_SEE_ALL)
            if not limited or any(_names(word, handler, method) for word in self.words):
                return None
            return tuple(grant.where for grant in self.grants)
        if _enough(self.words, needed, handler, method):
            return None
        return tuple(
            grant.where for grant in self.grants if _enough(grant.words, needed, handler, method)
        )


def _names(word: str, handler: str, method: str) -> bool:
    return word in (handler, f"{handler}:{method}")


def _enough(words: frozenset[str], needed: Collection[str], handler: str, method: str) -> bool:
    """Return whether one of the words is sufficient for an operation that needs a right."""
    if WRITE in words or handler in words or f"{handler}:{method}" in words:
        return True
    if handler.startswith(CONSOLES):
        return CONSOLE in words or not words.isdisjoint(needed)
    return not words.isdisjoint(needed) or (VIEW in words and READ in needed)


def _all_of(filters: list[list[object]]) -> list[object]:
    return filters[0] if len(filters) == 1 else ["&", *filters]


def parse(text: str, roles: Roles, handlers: Collection[str]) -> tuple[Rights, list[str]]:
    """Read words for rights, separated by commas; an empty text means none.

    A wrong right for some instances, and a role that does not exist, stand for no instance at all:
    the user does not see everything because of a mistake.

    :param roles: name of a role, with the sign before it -> the words for which it stands; a role
        may name others.
    :param handlers: names of resources; other names are reported.
    :returns: the rights, and the problems of the text.
    """
    words: set[str] = set()
    grants: dict[tuple[Selector, ...], set[str]] = {}
    problems: list[str] = []
    for word in text.split(",") if text else ():
        try:
            for name, where in _expanded(word, roles, handlers):
                if where:
                    grants.setdefault(where, set()).add(name)
                else:
                    words.add(name)
        except errors.ParseError as err:
            problems.append(str(err))
            if _SIGN in word:
                grants.setdefault((NOWHERE,), set())
            else:
                words.add(word)
    found = tuple(Grant(frozenset(names), where) for where, names in grants.items())
    return Rights(frozenset(words), found), problems


def _expanded(
    word: str, roles: Roles, handlers: Collection[str], where: tuple[Selector, ...] = ()
) -> Iterator[tuple[str, tuple[Selector, ...]]]:
    """Iterate over the words for which one stands, each with its selectors.

    :raises errors.ParseError: it is not a right.
    """
    name, selector = _split(word)
    if selector is not None:
        try:
            where = (*where, selectors.parse(selector))
        except errors.ParseError as err:
            raise errors.ParseError(f"'{word}' is not a right: {err}") from err
    role = name if name.startswith(_SIGN) else f"{_SIGN}{name}"
    # The sign of a role may be left out before a selector; names of resources come first.
    if role in roles and (name in roles or (selector is not None and not _known(name, handlers))):
        if role in ROLES:
            yield from ((inner, where) for inner in sorted(ROLES[role]))
            return
        for inner in sorted(roles[role]):
            yield from _expanded(inner, roles, handlers, where)
        return
    if not _known(name, handlers):
        raise errors.ParseError(f"'{word}' is not a right{_hint(name, roles, handlers)}")
    yield name, where


def _split(word: str) -> tuple[str, str | None]:
    """Return the right or role, with its sign, and the selector; None without one."""
    sign = _SIGN if word.startswith(_SIGN) else ""
    name, at, selector = word.removeprefix(_SIGN).partition(_SIGN)
    return sign + name, selector if at else None


def _known(name: str, handlers: Collection[str]) -> bool:
    return name in _MAIN or name.partition(":")[0] in handlers


def _hint(name: str, roles: Roles, handlers: Iterable[str]) -> str:
    hint = suggest.did_you_mean(name, [*roles, *_MAIN, *handlers])
    return f".{hint}" if hint else ""
