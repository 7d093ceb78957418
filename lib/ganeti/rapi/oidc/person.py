"""Who has logged in, and which rights his groups give him."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from ganeti.http.messages import Refused
from ganeti.rapi.oidc.settings import Settings

_NAME_LENGTH: Final = 128
_SIGNS: Final = frozenset("._+@-")
#: So many groups of a person are looked at.
MOST_GROUPS: Final = 10_000


class Person(NamedTuple):
    """Who has logged in.

    :ivar groups: those which give rights.
    :ivar rights: the words for the rights of all of these groups.
    """

    name: str
    groups: tuple[str, ...]
    rights: str


def claim(claims: Mapping[str, Any], path: Sequence[str]) -> Any:
    """Return a claim; None when there is none.

    :param path: keys from the outside to the inside. A single key with dots, which is not a claim
        itself, is such a path, too: ``realm_access.roles``.
    """
    if len(path) == 1 and path[0] not in claims:
        path = path[0].split(".")
    found: Any = claims
    for key in path:
        if not isinstance(found, Mapping) or key not in found:
            return None
        found = found[key]
    return found


def is_complete(claims: Mapping[str, Any], settings: Settings) -> bool:
    """Return whether the claims have the name and the groups."""
    wanted = (settings.name_claim, settings.groups_claim)
    return all(claim(claims, path) is not None for path in wanted)


def person(claims: Mapping[str, Any], settings: Settings) -> Person:
    """Return who has logged in.

    :raises Refused: 403 with the reason why he may not.
    """
    name = _name(claims, settings)
    given = _groups(claims, settings)
    mine = tuple(group for group in settings.rights if group in given)
    if not mine:
        raise Refused(
            403,
            f"user '{name}' has no right here: none of his {len(given)} groups is in the settings"
            " of this cluster",
        )
    words = dict.fromkeys(word for group in mine for word in settings.rights[group].split(","))
    return Person(name, mine, ",".join(words))


def _name(claims: Mapping[str, Any], settings: Settings) -> str:
    where = ".".join(settings.name_claim)
    found = claim(claims, settings.name_claim)
    if not isinstance(found, str) or not found:
        raise Refused(403, f"the provider does not name the user: there is no text in '{where}'")
    if where == "email" and claims.get("email_verified") is not True:
        raise Refused(403, "the provider has not verified the address of the user")
    name = settings.name_prefix + found
    plain = all(sign.isascii() and (sign.isalnum() or sign in _SIGNS) for sign in name)
    if not plain or len(name) > _NAME_LENGTH:
        raise Refused(
            403,
            f"the name of the user in '{where}' cannot be used: a name has up to {_NAME_LENGTH}"
            " letters of ASCII, digits, and . _ + @ -",
        )
    return name


def _groups(claims: Mapping[str, Any], settings: Settings) -> frozenset[str]:
    where = ".".join(settings.groups_claim)
    found = claim(claims, settings.groups_claim)
    if found is None:
        sources = claims.get("_claim_names")
        left_out = isinstance(sources, Mapping) and settings.groups_claim[0] in sources
        if left_out or claims.get("hasgroups"):
            raise Refused(
                403,
                "the provider has left the groups out, because the user has too many. Let it send"
                " only the groups which are assigned to this application, or roles of it.",
            )
        raise Refused(
            403,
            f"the provider names no groups: there is no claim '{where}'. A scope may be missing,"
            " or the provider does not send them to this application.",
        )
    if isinstance(found, str):
        found = [found]
    if not isinstance(found, list) or not all(isinstance(one, str) for one in found):
        raise Refused(403, f"the claim '{where}' of the provider is not a list of names")
    if len(found) > MOST_GROUPS:
        raise Refused(403, f"the user has more than {MOST_GROUPS} groups")
    return frozenset(found)
