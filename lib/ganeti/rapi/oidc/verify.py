"""Whether an ID token is valid: signature, issuer, audience, times and nonce, by Authlib.

What Authlib leaves to its caller is decided here: which signatures count, which keys of the
provider may have made one, that a token names an audience and a subject at all, and that the header
demands nothing which nobody understands.

Source: OpenID Connect Core 1.0, section 3.1.3.7; RFC 8725.
"""

from __future__ import annotations

import base64
import binascii
import warnings
from collections.abc import Mapping, Sequence
from typing import Any, Final

from ganeti import errors
from ganeti.rapi.oidc.settings import ALGORITHMS
from ganeti.wire import json

#: Seconds by which the clocks of both servers may differ.
LEEWAY_S: Final = 120
#: The longest token; one with a hundred groups has 8 KiB.
MOST_BYTES: Final = 64 * 1024
_SUBJECT: Final = 255


class InvalidToken(errors.GenericError):
    """The token is not valid; the text has no part of it."""


class UnknownKey(InvalidToken):
    """None of the keys has made the signature: the provider may have new ones."""


class LibraryMissing(errors.GenericError):
    """Authlib is not installed."""


def verify(
    token: str,
    keys: Sequence[Mapping[str, Any]],
    *,
    issuer: str,
    client_id: str,
    nonce: str,
    access_token: str,
    now: float,
) -> dict[str, Any]:
    """Return the claims of a token.

    :param keys: the keys of the provider (JWK).
    :param now: seconds since 1970.
    :raises UnknownKey: with other keys it may be valid.
    :raises InvalidToken: it is not valid.
    :raises LibraryMissing: Authlib is missing.
    """
    header = _header(token)
    algorithm = header.get("alg")
    if algorithm not in ALGORITHMS:
        raise InvalidToken("its signature has a method which is not accepted (alg)")
    if "crit" in header:
        raise InvalidToken("its header demands an extension (crit)")
    wanted = [key for key in keys if _may_be(key, header)]
    if not wanted:
        raise UnknownKey("the provider has no key for its signature (kid)")
    claims = _valid_claims(
        token,
        wanted,
        options={
            "iss": {"essential": True, "value": issuer},
            "aud": {"essential": True, "value": client_id},
            "sub": {"essential": True},
            "exp": {"essential": True},
            "iat": {"essential": True},
            "nonce": {"essential": True, "value": nonce},
        },
        params={"client_id": client_id, "nonce": nonce, "access_token": access_token},
        now=now,
    )
    subject = claims.get("sub")
    if not isinstance(subject, str) or not 0 < len(subject) <= _SUBJECT or not claims.get("aud"):
        raise InvalidToken("it names no subject or no audience (sub, aud)")
    return claims


def _header(token: str) -> dict[str, Any]:
    if len(token) > MOST_BYTES or token.count(".") != 2:
        raise InvalidToken("it is not a signed token (JWS)")
    part = token.partition(".")[0]
    try:
        raw = base64.b64decode(part + "=" * (-len(part) % 4), altchars=b"-_", validate=True)
        found = json.loads_strict(raw)
    except (ValueError, binascii.Error, errors.ParseError) as err:
        raise InvalidToken("its header cannot be read") from err
    if not isinstance(found, dict):
        raise InvalidToken("its header cannot be read")
    return found


def _may_be(key: Mapping[str, Any], header: Mapping[str, Any]) -> bool:
    """Return whether a key may have made the signature."""
    kind = "EC" if header["alg"].startswith("ES") else "RSA"
    return (
        key.get("kty") == kind
        and key.get("use", "sig") == "sig"
        and key.get("alg", header["alg"]) == header["alg"]
        and header.get("kid") in (None, key.get("kid"))
    )


def _valid_claims(
    token: str,
    keys: Sequence[Mapping[str, Any]],
    *,
    options: Mapping[str, Any],
    params: Mapping[str, Any],
    now: float,
) -> dict[str, Any]:
    """Verify the signature, and then the claims.

    :raises InvalidToken: as :func:`verify`.
    :raises LibraryMissing: Authlib is missing.
    """
    try:
        with warnings.catch_warnings():
            # Later versions announce another package, which Debian 12 does not have.
            warnings.simplefilter("ignore")
            from authlib.common.errors import AuthlibBaseError
            from authlib.jose import JsonWebKey, JsonWebToken
            from authlib.jose.errors import BadSignatureError
            from authlib.oidc.core import CodeIDToken
    except ImportError as err:
        raise LibraryMissing(f"the package python3-authlib (Authlib) is missing: {err}") from err
    failures: tuple[type[Exception], ...] = (AuthlibBaseError, *_failures_of_joserfc())
    reader = JsonWebToken(list(ALGORITHMS))
    for raw in keys:
        try:
            # The public part only; a library could take a private one.
            public = {name: value for name, value in raw.items() if name in _PUBLIC}
            claims = reader.decode(
                token,
                JsonWebKey.import_key(public),
                claims_cls=CodeIDToken,
                claims_options=options,
                claims_params=params,
            )
            claims.validate(now=int(now), leeway=LEEWAY_S)
        except BadSignatureError:
            continue
        except failures as err:
            raise InvalidToken(str(err)) from err
        except (ValueError, TypeError, KeyError, AttributeError) as err:
            raise InvalidToken(f"it cannot be read ({type(err).__name__})") from err
        return dict(claims)
    raise UnknownKey("no key of the provider has made its signature")


def _failures_of_joserfc() -> tuple[type[Exception], ...]:
    """Return the errors of the package with which later versions of Authlib check claims."""
    try:
        from joserfc.errors import JoseError
    except ImportError:
        return ()
    return (JoseError,)


_PUBLIC: Final = frozenset({"kty", "kid", "use", "alg", "n", "e", "crv", "x", "y"})
