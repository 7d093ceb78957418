"""Representations of answers: choosing one by the headers of a request, and making it.

The default is JSON; YAML is for people who ask for it (``Accept: application/yaml``). Errors are
always JSON.
"""

from __future__ import annotations

import asyncio
import hashlib
from http import HTTPStatus
from typing import Any, Final

from ganeti.http.messages import JSON, Refused, Response
from ganeti.wire import json

YAML: Final = "application/yaml"
_YAML_NAMES: Final = (YAML, "application/x-yaml", "text/yaml", "text/x-yaml")

#: Headers of every answer: a browser does not guess another type, shows no answer inside of another
#: page, runs no script of it, and does not let other sites load it.
SAFETY: Final = (
    ("X-Content-Type-Options", "nosniff"),
    ("X-Frame-Options", "DENY"),
    (
        "Content-Security-Policy",
        "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none';"
        " frame-ancestors 'none'",
    ),
    ("Referrer-Policy", "no-referrer"),
    ("Cross-Origin-Resource-Policy", "same-origin"),
)
#: For answers which nobody stores.
NO_STORE: Final = ("Cache-Control", "no-store")

# Making a longer text would take many seconds of processor time.
_MOST_YAML_BYTES: Final = 2 << 20

_one_yaml = asyncio.Lock()


def choose(accept: str | None, produces: str = "") -> str:
    """Return the media type of the answer.

    :param produces: the only media type of the operation, when it is neither JSON nor YAML.
    :raises Refused: 406 when the client accepts no available media type.
    """
    if not accept or accept == "*/*":
        return produces or JSON
    offers = (produces,) if produces else (JSON, *_YAML_NAMES)
    best, best_quality = "", 0.0
    ranges = [_range(word) for word in accept.split(",") if word.strip()]
    for offer in offers:
        quality = _quality(offer, ranges)
        if quality > best_quality:
            best, best_quality = offer, quality
    if not best:
        raise Refused(406, f"available as {produces or f'{JSON} or {YAML}'}")
    return YAML if best in _YAML_NAMES else best


def prefers_html(accept: str | None) -> bool:
    """Return whether the client names HTML, and likes it better than JSON, as browsers do."""
    if not accept:
        return False
    ranges = [_range(word) for word in accept.split(",") if word.strip()]
    named = any(name == "text/html" for name, _quality_of in ranges)
    return named and _quality("text/html", ranges) > _quality(JSON, ranges)


def _range(word: str) -> tuple[str, float]:
    name, *parameters = word.split(";")
    quality = 1.0
    for parameter in parameters:
        key, _, value = parameter.strip().partition("=")
        if key.lower() == "q":
            try:
                quality = min(1.0, max(0.0, float(value)))
            except ValueError:
                quality = 0.0
    return name.strip().lower(), quality


def _quality(offer: str, ranges: list[tuple[str, float]]) -> float:
    """Return the quality of the most specific media range which matches."""
    kind = offer.partition("/")[0]
    for wanted in (offer, f"{kind}/*", "*/*"):
        found = [quality for name, quality in ranges if name == wanted]
        if found:
            return max(found)
    return 0.0


async def render(value: Any, media_type: str) -> bytes:
    """Encode a value in a representation, with a line end.

    :raises Refused: 406 when it is too large for YAML.
    """
    text = json.dumps_spaced(value)
    if media_type == YAML:
        if len(text) > _MOST_YAML_BYTES:
            raise Refused(406, f"too large for YAML, available as {JSON}")
        # A long list is slow: it is made in a thread, one at a time, while others are served.
        async with _one_yaml:
            return await asyncio.to_thread(_yaml, text)
    return text.encode("ascii") + b"\n"


def _yaml(text: str) -> bytes:
    import yaml

    class Dumper(getattr(yaml, "CSafeDumper", yaml.SafeDumper)):  # type: ignore[misc]
        """Writes a surrogate without its pair, which YAML cannot, as six characters ``\\udXXX``."""

        def represent_str(self, value: str) -> Any:
            return super().represent_str(value.encode("utf-8", "backslashreplace").decode("utf-8"))

    Dumper.add_representer(str, Dumper.represent_str)
    found: bytes = yaml.dump(
        json.loads(text),
        Dumper=Dumper,
        sort_keys=False,
        allow_unicode=True,
        default_flow_style=False,
        encoding="utf-8",
    )
    return found


def content_etag(body: bytes) -> str:
    """Make the tag of a value without serial number."""
    return f'"{hashlib.blake2b(body, digest_size=12).hexdigest()}"'


def tag_matches(wanted: str, etag: str, *, weak: bool) -> bool:
    """Return whether a tag is one of those in ``If-Match`` or ``If-None-Match``.

    :param weak: a weak tag of the client counts, too.
    """
    if wanted.strip() == "*":
        return True
    for word in wanted.split(","):
        one = word.strip()
        if weak:
            one = one.removeprefix("W/")
        if one == etag:
            return True
    return False


def error_body(status: int, reason: str) -> dict[str, Any]:
    """Make the body of an error.

    Programs by others look for ``404 Not Found: Nothing matches the given URI`` when an object does
    not exist, so a 404 always has this explanation; the key ``reason`` says more.

    :param reason: what is wrong with the request; empty when there is nothing to add.
    """
    known = HTTPStatus(status)
    standard = known.description or known.phrase
    if reason == known.phrase:
        reason = ""
    found: dict[str, Any] = {
        "code": status,
        "message": known.phrase,
        "explain": standard if status == HTTPStatus.NOT_FOUND else reason or standard,
    }
    if reason:
        found["reason"] = reason
    return found


def error_response(refused: Refused) -> Response:
    """Make the answer for a refused request."""
    content = error_body(refused.status, str(refused)) | refused.members
    body = json.dumps_spaced(content).encode("ascii") + b"\n"
    headers = [("Content-Type", JSON), NO_STORE, *SAFETY, *refused.headers]
    return Response(refused.status, body, headers)
