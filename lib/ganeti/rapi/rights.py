"""The rights of the users of the REST interface, and the words for them.

============================ ===================================================================
``write``, ``@admin``        everything
``read``, ``@readonly``      reading, also where reading needs a right
``@operator``                like ``read``; start, stop, reboot, move instances; wait for and cancel
                             jobs
``<resource>``               everything at a resource, by its name (``instances_name_tags``)
``<resource>:<METHOD>``      one method of it (``nodes_name_role:PUT``)
============================ ===================================================================

A user without rights may use the operations which need none, and those which need only a user,
because they submit a job.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Final

from ganeti.rapi.declare import READ, USER, WRITE

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
#: Name of a role, with the sign before it -> the words for which it stands.
ROLES: Final[Mapping[str, frozenset[str]]] = {
    "@admin": frozenset({WRITE, READ}),
    "@readonly": frozenset({READ}),
    "@operator": frozenset({READ, *_OPERATED}),
}


@dataclass(frozen=True, slots=True)
class Rights:
    """What a user may do.

    :ivar words: the words for it; roles are replaced by the words for which they stand.
    """

    words: frozenset[str] = frozenset()

    @property
    def limited(self) -> bool:
        """Return False for rights which hold for the whole cluster."""
        return False

    def may(self, needed: Collection[str], handler: str, method: str) -> bool:
        """Return whether one of the rights is sufficient for an operation on some object.

        :param needed: the rights of which the operation needs one; empty if it needs none.
        :param handler: the published name of the resource.
        """
        return (
            not needed
            or USER in needed
            or WRITE in self.words
            or not self.words.isdisjoint(needed)
            or handler in self.words
            or f"{handler}:{method}" in self.words
        )


def parse(
    text: str, roles: Mapping[str, frozenset[str]], handlers: Collection[str]
) -> tuple[Rights, list[str]]:
    """Read words for rights, separated by commas; an empty text means none.

    :param roles: name of a role, with the sign before it -> the words for which it stands.
    :param handlers: names of resources; other names are reported.
    :returns: the rights, and the problems of the text.
    """
    words: set[str] = set()
    problems = []
    for word in text.split(",") if text else ():
        words |= roles.get(word, {word})
        if (
            word not in roles
            and word not in (READ, WRITE)
            and word.partition(":")[0] not in handlers
        ):
            problems.append(f"'{word}' is not a right")
    return Rights(frozenset(words)), problems
