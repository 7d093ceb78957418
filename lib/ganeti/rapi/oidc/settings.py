"""The file with the settings for OpenID Connect, ``oidc.json`` beside the users file.

It is a JSON object. :data:`MEMBERS` has its members; ``man ganeti-rapi`` describes them. A file
with a problem lets nobody log in, because some of the settings may give rights to the wrong people.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import urlsplit

from ganeti import errors
from ganeti.http import web
from ganeti.utils import suggest
from ganeti.wire import json

#: Where the provider sends the browser back to, below the address of this daemon.
CALLBACK: Final = "/2/login/oidc/callback"
#: Signatures which count. Those with a shared secret (HS256) and ``none`` are never accepted.
ALGORITHMS: Final = (
    "RS256", "RS384", "RS512", "ES256", "ES384", "ES512", "PS256", "PS384", "PS512",
)  # fmt: skip
#: Returns the problems of words for rights.
CheckRights = Callable[[str], list[str]]


@dataclass(frozen=True, slots=True)
class Settings:
    """What the file says.

    :ivar issuer: the address of the provider, as it names itself.
    :ivar client_secret: empty for a client without one.
    :ivar address: how browsers reach this daemon: ``https://HOST[:PORT]``.
    :ivar after: path to which the browser goes after the login.
    :ivar name_claim: where the name of the user is; the keys from the outside to the inside.
    :ivar name_prefix: stands before each name.
    :ivar groups_claim: where the groups are.
    :ivar rights: group -> words for rights.
    :ivar ca_file: certificates to trust; empty for those of the system.
    """

    issuer: str
    client_id: str
    address: str
    client_secret: str = field(default="", repr=False)
    scopes: tuple[str, ...] = ("openid", "profile")
    after: str = "/2/session"
    name_claim: tuple[str, ...] = ("preferred_username",)
    name_prefix: str = ""
    groups_claim: tuple[str, ...] = ("groups",)
    rights: Mapping[str, str] = field(default_factory=dict)
    ca_file: str = ""

    @property
    def callback(self) -> str:
        """The address to which the provider sends the browser back."""
        return self.address + CALLBACK


def parse_settings(text: str, check_rights: CheckRights) -> Settings:
    """Read the settings.

    :raises ParseError: with all problems of the file.
    """
    raw = json.loads_strict(text)
    if not isinstance(raw, dict):
        raise errors.ParseError("it is not a JSON object")
    problems: list[str] = []
    found: dict[str, Any] = {}
    for name, value in raw.items():
        read = MEMBERS.get(name)
        if read is None:
            hint = suggest.did_you_mean(name, list(MEMBERS))
            problems.append(f"there is no member '{name[:50]}'.{hint}")
            continue
        try:
            found[name] = read(value)
        except errors.ParseError as err:
            problems.append(f"member '{name}': {err}")
    for name in _REQUIRED:
        if name not in raw:
            problems.append(f"member '{name}' is missing")
    for group, words in found.get("rights", {}).items():
        problems += [f"rights of group '{group}': {problem}" for problem in check_rights(words)]
    if problems:
        raise errors.ParseError("; ".join(problems))
    return Settings(**found)


def _text(value: Any) -> str:
    if not isinstance(value, str) or not value.isprintable() or not value:
        raise errors.ParseError("it must be a text which is not empty")
    return value


def _issuer(value: Any) -> str:
    url = _text(value)
    try:
        web.server_of(url)
    except web.WebError as err:
        raise errors.ParseError(str(err)) from err
    if "?" in url:
        raise errors.ParseError("the address of a provider has no question mark")
    return url


def _address(value: Any) -> str:
    url = _issuer(value)
    if urlsplit(url).path not in ("", "/"):
        raise errors.ParseError("it must be https://HOST[:PORT], without a path")
    return url.rstrip("/")


def _after(value: Any) -> str:
    path = _text(value)
    # A browser takes //HOST and /\\HOST for another server.
    plain = all("!" <= sign <= "~" and sign not in '\\"<>' for sign in path)
    if not plain or not path.startswith("/") or path.startswith("//"):
        raise errors.ParseError("it must be a path of this server, such as /2/session")
    return path


def _scopes(value: Any) -> tuple[str, ...]:
    found = tuple(_text(one) for one in value) if isinstance(value, list) else ()
    if "openid" not in found or any(" " in one for one in found):
        raise errors.ParseError('it must be a list of words with "openid"')
    return found


def _claim(value: Any) -> tuple[str, ...]:
    if isinstance(value, list) and value:
        return tuple(_text(one) for one in value)
    return (_text(value),)


def _rights(value: Any) -> dict[str, str]:
    if not isinstance(value, dict) or not value:
        raise errors.ParseError("it must be an object: group, and the rights of its members")
    return {_text(group): _text(words) for group, words in value.items()}


def _prefix(value: Any) -> str:
    if not isinstance(value, str) or not all(_is_of_name(sign) for sign in value):
        raise errors.ParseError("it must be a text of letters, digits, and . _ + @ -")
    return value


def _is_of_name(sign: str) -> bool:
    return sign.isascii() and (sign.isalnum() or sign in "._+@-")


#: Name of a member -> reads its value.
MEMBERS: Final[Mapping[str, Callable[[Any], Any]]] = {
    "issuer": _issuer,
    "client_id": _text,
    "client_secret": _text,
    "address": _address,
    "after": _after,
    "scopes": _scopes,
    "name_claim": _claim,
    "name_prefix": _prefix,
    "groups_claim": _claim,
    "rights": _rights,
    "ca_file": _text,
}
_REQUIRED: Final = ("issuer", "client_id", "address", "rights")
