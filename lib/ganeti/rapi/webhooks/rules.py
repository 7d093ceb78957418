"""The rules of webhooks: which events go to which receiver.

A rule is an access record of the kind :data:`KIND` (``doc/design-rest-identities.rst``), so it is
on all candidates, and moves with the role of the master. The key of the record is the name of the
rule. What the daemon knows about the deliveries is in another record (:data:`STATE_KIND`), so that
the daemon and an administrator never replace what the other one has written.
"""

from __future__ import annotations

import base64
import binascii
import re
import secrets
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from ganeti import errors
from ganeti.constants.events import FINDING, INSTANCE, JOB, KINDS, NODE, NOISY
from ganeti.http import web
from ganeti.rapi import events
from ganeti.rapi.events import Event, Filter

KIND: Final = "webhook"
STATE_KIND: Final = "webhook-state"
#: The largest number of rules in a cluster.
MOST_RULES: Final = 50

INFO, WARNING, ERROR = "info", "warning", "error"
#: From the least severe one.
SEVERITIES: Final = (INFO, WARNING, ERROR)
#: The kinds of a rule which names none.
USUAL_KINDS: Final = tuple(kind for kind in KINDS if kind not in NOISY)

_SECRET_PREFIX: Final = "whsec_"
_SECRET_BYTES: Final = 32
# What the specification allows for the key.
_LEAST_KEY, _MOST_KEY = 24, 64
_NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")
_MOST_URL: Final = 1000
_MOST_WORDS: Final = 20
_MOST_WORD: Final = 128
_JOB_SEVERITIES: Final = {"error": ERROR, "canceled": WARNING, "canceling": WARNING}


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule.

    :ivar kinds: kinds of events.
    :ivar names: patterns, of which one must match the name of an object of the event; empty for
        all.
    :ivar tags: one of them must be a tag of an object of the event; empty for all.
    :ivar severity: the least severe events.
    :ivar made: when the rule was added; another rule with the same name has another time.
    """

    name: str
    url: str
    secret: str
    kinds: tuple[str, ...] = USUAL_KINDS
    names: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    severity: str = INFO
    owner: str = ""
    made: float = 0.0

    def filter(self) -> Filter:
        """Return which events the rule wants."""
        return events.make_filter(self.kinds, self.names, _Chosen(self.tags, self.severity))

    def record(self) -> dict[str, Any]:
        """Return the access record of the rule."""
        data = {
            "url": self.url,
            "secret": self.secret,
            "kinds": list(self.kinds),
            "names": list(self.names),
            "tags": list(self.tags),
            "severity": self.severity,
        }
        return {
            "kind": KIND,
            "key": self.name,
            "owner": self.owner,
            "ctime": self.made,
            "data": data,
        }

    def shown(self) -> dict[str, Any]:
        """Return what users see: neither the secret nor the path of the URL, which may be one."""
        return {
            "name": self.name,
            "receiver": web.server_of(self.url),
            "kind": list(self.kinds),
            "match": list(self.names),
            "tag": list(self.tags),
            "severity": self.severity,
            "owner": self.owner,
            "ctime": self.made,
        }


class _Chosen(NamedTuple):
    """The part of a rule which :class:`Filter` takes as a scope."""

    tags: tuple[str, ...]
    severity: str

    def sees(self, event: Event) -> bool:
        """Tell whether the rule wants the event."""
        if self.tags and not set(self.tags) & set(event.about.get("tags", ())):
            return False
        return SEVERITIES.index(severity_of(event)) >= SEVERITIES.index(self.severity)


def severity_of(event: Event) -> str:
    """Return how severe an event is.

    An event of another version may lack members: it is no error then, and stops no webhook. A
    finding has its own severity, also when it has gone. A job that has failed is an error, like
    the state of a guest that begins with ``ERROR_``.
    """
    data = event.data
    if event.kind == FINDING:
        return ERROR if data.get("severity") == ERROR else WARNING
    if event.kind == JOB:
        return _JOB_SEVERITIES.get(str(data.get("status")), INFO)
    if event.kind == INSTANCE and data.get("change") == "state":
        status = str(data.get("status"))
        return ERROR if status.startswith("ERROR_") else WARNING if status == "USER_down" else INFO
    if event.kind == NODE and (data.get("offline") or data.get("drained")):
        changed = set(event.about.get("members", ())) if data.get("change") == "changed" else ()
        return WARNING if {"offline", "drained"}.intersection(changed) else INFO
    return INFO


def make(
    name: str, url: str, given: Mapping[str, Any], *, owner: str, made: float, secret: str = ""
) -> Rule:
    """Make a rule from what a user gives.

    :param given: ``kind``, ``match``, ``tag`` (lists) and ``severity``; each may be missing.
    :param secret: the secret for the signatures; empty for a new one.
    :raises errors.ParameterError: a part of it is not allowed; says which, and never the URL.
    """
    if not _NAME.fullmatch(name):
        raise errors.ParameterError(
            f"'{name[:100]}' cannot be the name of a webhook: at most 64 letters, digits, '-' and"
            " '_'"
        )
    try:
        web.server_of(url)
    except web.WebError as err:
        raise errors.ParameterError(f"webhook {name}: {err}") from err
    if len(url) > _MOST_URL:
        raise errors.ParameterError(f"webhook {name}: the URL has more than {_MOST_URL} characters")
    severity = given.get("severity") or INFO
    if severity not in SEVERITIES:
        raise errors.ParameterError(
            f"webhook {name}: the severity is {', '.join(SEVERITIES[:-1])} or {SEVERITIES[-1]}, not"
            f" '{severity[:100]}'"
        )
    kinds, names, tags = (_words(name, what, given.get(what)) for what in ("kind", "match", "tag"))
    secret = secret or new_secret()
    key_of(secret)
    rule = Rule(
        name,
        url,
        secret,
        USUAL_KINDS if not kinds else KINDS if "*" in kinds else kinds,
        names,
        tags,
        severity,
        owner,
        made,
    )
    try:
        rule.filter()
    except errors.ParseError as err:
        raise errors.ParameterError(f"webhook {name}: {err}") from err
    return rule


def _words(name: str, what: str, given: Any) -> tuple[str, ...]:
    words = tuple(dict.fromkeys(given or ()))
    if len(words) > _MOST_WORDS or not all(0 < len(word) <= _MOST_WORD for word in words):
        raise errors.ParameterError(
            f"webhook {name}: '{what}' has at most {_MOST_WORDS} words, of 1 to {_MOST_WORD}"
            " characters each"
        )
    return words


def of_record(record: Mapping[str, Any]) -> Rule:
    """Return the rule of an access record.

    :raises errors.ParameterError: another version has written it, and this one cannot use it.
    """
    name, data = str(record["key"]), record["data"]
    try:
        given = {"kind": data["kinds"], "match": data["names"], "tag": data["tags"]}
        return make(
            name,
            data["url"],
            {**given, "severity": data["severity"]},
            owner=record["owner"],
            made=record["ctime"],
            secret=data["secret"],
        )
    except (KeyError, TypeError, AttributeError) as err:
        raise errors.ParameterError(f"the record of webhook {name} is damaged") from err


def new_secret() -> str:
    """Return a new secret for signatures."""
    return _SECRET_PREFIX + base64.b64encode(secrets.token_bytes(_SECRET_BYTES)).decode("ascii")


def key_of(secret: str) -> bytes:
    """Return the key of which a secret is the text.

    :raises errors.ParameterError: it is not such a text.
    """
    try:
        key = base64.b64decode(secret.removeprefix(_SECRET_PREFIX), validate=True)
    except (binascii.Error, ValueError):
        key = b""
    if not secret.startswith(_SECRET_PREFIX) or not _LEAST_KEY <= len(key) <= _MOST_KEY:
        raise errors.ParameterError(
            f"the secret of a webhook is '{_SECRET_PREFIX}' and then {_LEAST_KEY} to {_MOST_KEY}"
            " bytes in base64"
        )
    return key


def check_new(present: Collection[str], name: str) -> None:
    """Refuse a rule whose name is in use, or which is one too many.

    :param present: the names of the rules.
    :raises errors.OpPrereqError: says which.
    """
    if name in present:
        raise errors.OpPrereqError(
            f"there is a webhook {name}; remove it first, or choose another name",
            errors.ECODE_EXISTS,
        )
    if len(present) >= MOST_RULES:
        raise errors.OpPrereqError(
            f"there are {MOST_RULES} webhooks, which is the limit; remove one of them",
            errors.ECODE_NORES,
        )


def unknown(name: str) -> errors.OpPrereqError:
    """Return the error for a rule which does not exist."""
    return errors.OpPrereqError(f"there is no webhook {name}", errors.ECODE_NOENT)
