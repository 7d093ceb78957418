"""Which events a user with rights for some instances gets.

He gets those of the instances for which he has the right, those of jobs which name such instances
and no others, and findings about these instances. An event says what is known of its instances at
that moment (:mod:`ganeti.master.event_data`), so nothing has to be asked. When an instance leaves
his area, by another name or without a tag, the event of that change is the last one he gets.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from ganeti.constants.events import FINDING, INSTANCE, INSTANCES
from ganeti.opcodes import subjects
from ganeti.rapi.events import OF_JOBS, Event
from ganeti.rapi.rights import Area
from ganeti.rapi.selectors import Facts, Pools, Selector


@dataclass(frozen=True, slots=True)
class EventScope:
    """The events of an area. Equal scopes share their work (:class:`ganeti.rapi.events.Scope`).

    :ivar pools: the pools of the roles file, as pairs of name and selectors.
    """

    area: Area
    pools: tuple[tuple[str, tuple[Selector, ...]], ...] = ()

    @classmethod
    def of(cls, area: Area, pools: Pools) -> EventScope:
        """Make the scope of an area."""
        return cls(area, tuple((name, tuple(those)) for name, those in sorted(pools.items())))

    def sees(self, event: Event) -> bool:
        """Return whether the user may see an event."""
        if event.kind in OF_JOBS:
            named = event.about.get(INSTANCES, ())
            return bool(named) and all(
                self._has(Facts(name, "", frozenset(tags), frozenset(groups)))
                for name, tags, groups in named
            )
        if event.kind == INSTANCE:
            return any(map(self._has, _of_instance(event)))
        if event.kind == FINDING and event.data["object"] == subjects.INSTANCE:
            return self._has(Facts(event.data["name"], "", *_known(event.about)))
        return False

    def _has(self, facts: Facts) -> bool:
        return self.area.has(facts, _mapping(self.pools))


def _known(about: Mapping[str, Any]) -> tuple[frozenset[str], frozenset[str]]:
    return frozenset(about.get("tags", ())), frozenset(about.get("groups", ()))


def _of_instance(event: Event) -> Iterator[Facts]:
    """Iterate over what an instance is after a change, and what it was before."""
    about = event.about
    facts = Facts(event.data["name"], event.data["uuid"], *_known(about))
    yield facts
    added, removed = about.get("tags_added", ()), about.get("tags_removed", ())
    yield facts.changed(name=about.get("old_name"), more=removed, less=added)


@lru_cache(maxsize=100)
def _mapping(pools: tuple[tuple[str, tuple[Selector, ...]], ...]) -> Pools:
    return dict(pools)
