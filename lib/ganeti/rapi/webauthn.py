"""The answers of authenticators (WebAuthn): check the one for a new passkey, and one for a login.

This module has no clock, no challenges of its own and no records. The package *fido2* reads CBOR
and COSE and checks signatures; the steps of the standard are here, because the classes of the
package for servers have another form in each of its versions, and do not check all of them.

No attestation is asked for: which maker's device a user has is not important here, and an unsigned
statement would prove nothing.

Source: W3C *Web Authentication* Level 2, sections 5.8.1, 6.1, 7.1 and 7.2.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import Mapping
from typing import Any, Final, NamedTuple
from urllib.parse import urlsplit

from ganeti import errors
from ganeti.wire import json

#: The numbers (COSE) of the signatures which are accepted: EdDSA, ES256, RS256.
ALGORITHMS: Final = (-8, -7, -257)
CREATE: Final = "webauthn.create"
GET: Final = "webauthn.get"

_PRESENT, _VERIFIED, _ATTESTED = 0x01, 0x04, 0x40
_MOST_ID_BYTES: Final = 1023
_MOST_KEY_BYTES: Final = 1024
# Hash of the RP ID, flags and counter.
_HEADER_BYTES: Final = 37


class PasskeyError(errors.GenericError):
    """What an authenticator or a browser has sent is not accepted."""


class Expected(NamedTuple):
    """What an answer must be about.

    :ivar rp_id: host name for which passkeys of this cluster are made, in lower case.
    """

    challenge: bytes
    rp_id: str


class NewKey(NamedTuple):
    """A passkey which was made.

    :ivar id: the id which the authenticator has given it.
    :ivar public_key: as COSE.
    """

    id: bytes
    public_key: bytes
    counter: int
    algorithm: int


def encode(data: bytes) -> str:
    """Return bytes as Base64 for addresses, without padding."""
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode("ascii")


def decode(text: str) -> bytes:
    """Read bytes which a browser has written as Base64.

    :raises PasskeyError: it is something else.
    """
    try:
        raw = text.rstrip("=").encode("ascii")
        return base64.b64decode(raw + b"=" * (-len(raw) % 4), altchars=b"-_", validate=True)
    except ValueError as err:
        raise PasskeyError("the answer of the browser is not Base64 for addresses") from err


def require() -> None:
    """Check that passkeys are possible here.

    :raises ConfigurationError: the package *fido2* is not installed.
    """
    _package()


def made(client_data: bytes, attestation: bytes, expected: Expected) -> NewKey:
    """Check the answer to a request for a new passkey.

    :param client_data: ``clientDataJSON``.
    :param attestation: ``attestationObject``.
    :raises PasskeyError: a check fails; the message says which one.
    :raises ConfigurationError: the package *fido2* is not installed.
    """
    _check_client_data(client_data, CREATE, expected)
    parsed = _cbor(attestation)
    data = parsed.get("authData") if isinstance(parsed, Mapping) else None
    if not isinstance(data, bytes):
        raise PasskeyError("the authenticator has sent no data about the passkey")
    counter = _check_authenticator_data(data, expected)
    if not data[32] & _ATTESTED:
        raise PasskeyError("the authenticator has sent no new passkey")
    found, rest = _credential(data)
    key, _extensions = _first_cbor(rest)
    encoded = rest[: len(rest) - len(_extensions)]
    # The package reads bytes that are cut off as if they were whole.
    if len(encoded) > _MOST_KEY_BYTES or _package()[0].encode(key) != encoded:
        raise PasskeyError("the public key of the passkey is not in the form of the standard")
    algorithm = key.get(3) if isinstance(key, Mapping) else None
    if algorithm not in ALGORITHMS:
        raise PasskeyError("the passkey makes signatures of a kind that was not asked for")
    return NewKey(found, encoded, counter, int(algorithm))


def signed(
    client_data: bytes,
    authenticator_data: bytes,
    signature: bytes,
    public_key: bytes,
    expected: Expected,
) -> int:
    """Check the answer to a request for a login; returns the new counter of the authenticator.

    :param public_key: that of the passkey, as it was kept.
    :raises PasskeyError: a check fails; the message says which one.
    :raises ConfigurationError: the package *fido2* is not installed.
    """
    _check_client_data(client_data, GET, expected)
    counter = _check_authenticator_data(authenticator_data, expected)
    message = authenticator_data + hashlib.sha256(client_data).digest()
    _cbor_module, cose = _package()
    try:
        cose.CoseKey.parse(_cbor(public_key)).verify(message, signature)
    # The package raises errors of several packages for keys and signatures that make no sense.
    except Exception as err:
        raise PasskeyError("the signature of the passkey is wrong") from err
    return counter


def check_counter(before: int, now: int) -> None:
    """Compare the counters of an authenticator; those of a passkey in several devices are zero.

    :raises PasskeyError: the counter has not grown, so there may be a copy of the authenticator.
    """
    if (before or now) and now <= before:
        raise PasskeyError(
            "the counter of the authenticator has not grown, so there may be a copy of it"
        )


def challenge_of(client_data: bytes) -> bytes:
    """Return the challenge to which an answer belongs; nothing about it is checked.

    :raises PasskeyError: there is none.
    """
    challenge = _client_data(client_data).get("challenge")
    if not isinstance(challenge, str):
        raise PasskeyError("the answer of the browser has no challenge")
    return decode(challenge)


def _client_data(raw: bytes) -> Mapping[str, Any]:
    """Read what the browser says about the page that has asked the authenticator."""
    try:
        data = json.loads(raw)
    except errors.ParseError as err:
        raise PasskeyError("clientDataJSON of the browser is not JSON") from err
    if not isinstance(data, Mapping):
        raise PasskeyError("clientDataJSON of the browser is not an object")
    return data


def _check_client_data(raw: bytes, kind: str, expected: Expected) -> None:
    data = _client_data(raw)
    if data.get("type") != kind:
        raise PasskeyError(f"the answer of the browser is not of the type {kind}")
    if not hmac.compare_digest(challenge_of(raw), expected.challenge):
        raise PasskeyError("the answer of the browser is for another challenge")
    if not _is_origin(data.get("origin"), expected.rp_id):
        raise PasskeyError(
            f"the page is not one of https://{expected.rp_id}, for which passkeys are valid"
        )
    if data.get("crossOrigin", False) is not False:
        raise PasskeyError("the page is in a frame of another site")


def _is_origin(origin: Any, rp_id: str) -> bool:
    if not isinstance(origin, str):
        return False
    try:
        parts = urlsplit(origin)
        _port = parts.port
    except ValueError:
        return False
    # No path, no user; the port is not a part of what a passkey is made for.
    return (
        parts.scheme == "https"
        and parts.hostname == rp_id
        and not parts.path
        and not parts.query
        and not parts.fragment
        and "@" not in parts.netloc
    )


def _check_authenticator_data(data: bytes, expected: Expected) -> int:
    """Check the part which the authenticator signs; returns its counter."""
    if len(data) < _HEADER_BYTES:
        raise PasskeyError("the data of the authenticator are too short")
    if not hmac.compare_digest(data[:32], hashlib.sha256(expected.rp_id.encode()).digest()):
        raise PasskeyError(f"the passkey is not one for {expected.rp_id}")
    flags = data[32]
    if not flags & _PRESENT:
        raise PasskeyError("nobody was at the authenticator")
    if not flags & _VERIFIED:
        raise PasskeyError(
            "the authenticator has not verified its user; it needs a PIN, a fingerprint or the like"
        )
    return int.from_bytes(data[33:_HEADER_BYTES])


def _credential(data: bytes) -> tuple[bytes, bytes]:
    """Return the id of a new passkey, and what follows it: the key, and extensions."""
    start = _HEADER_BYTES + 16 + 2
    length = int.from_bytes(data[start - 2 : start])
    found = data[start : start + length]
    if not 0 < length <= _MOST_ID_BYTES or len(found) != length:
        raise PasskeyError("the id of the passkey is not one")
    return found, data[start + length :]


def _cbor(raw: bytes) -> Any:
    value, rest = _first_cbor(raw)
    if rest:
        raise PasskeyError("the authenticator has sent more than one object of CBOR")
    return value


def _first_cbor(raw: bytes) -> tuple[Any, bytes]:
    cbor, _cose = _package()
    try:
        value, rest = cbor.decode_from(raw)
    # The package has no error class of its own for wrong input.
    except Exception as err:
        raise PasskeyError("the authenticator has sent something that is not CBOR") from err
    return value, bytes(rest)


def _package() -> tuple[Any, Any]:
    """Load the parts of *fido2* which are needed, when they are needed: the package is optional.

    :returns: its modules ``cbor`` and ``cose``.
    :raises ConfigurationError: it is not installed.
    """
    try:
        from fido2 import cbor, cose
    except ImportError as err:
        raise errors.ConfigurationError(
            "passkeys need the package python3-fido2 on this node, which is not installed"
        ) from err
    return cbor, cose
