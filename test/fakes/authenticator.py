"""An authenticator and a browser for tests of passkeys, without a device.

Everything that a real one decides can be wrong on request: the keys of `wrong` are the names of the
parameters of :meth:`Authenticator.create` and :meth:`Authenticator.get`.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
from typing import Any

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, padding, rsa

PRESENT, VERIFIED, ATTESTED = 0x01, 0x04, 0x40
EDDSA, ES256, RS256 = -8, -7, -257


def encode(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def decode(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))


def cbor(value: Any) -> bytes:
    """Write what authenticators send as CBOR: small numbers, bytes, texts and objects."""
    if isinstance(value, int):
        return _head(0, value) if value >= 0 else _head(1, -1 - value)
    if isinstance(value, bytes):
        return _head(2, len(value)) + value
    if isinstance(value, str):
        return _head(3, len(value.encode())) + value.encode()
    assert isinstance(value, dict)
    return _head(5, len(value)) + b"".join(cbor(key) + cbor(one) for key, one in value.items())


def _head(kind: int, number: int) -> bytes:
    if number < 24:
        return bytes([kind << 5 | number])
    for code, size in ((24, 1), (25, 2), (26, 4), (27, 8)):
        if number < 1 << 8 * size:
            return bytes([kind << 5 | code]) + number.to_bytes(size)
    raise AssertionError(number)


class Authenticator:
    """Has one passkey; `algorithm` is the kind of its signatures.

    :ivar counter: is added to by each signature; it stays zero when `counts` is false.
    """

    def __init__(self, algorithm: int = ES256, *, counts: bool = True) -> None:
        self.algorithm = algorithm
        self.id = os.urandom(32)
        self.counts = counts
        self.counter = 0
        self.user_handle = b""
        self._key: Any
        if algorithm == EDDSA:
            self._key = ed25519.Ed25519PrivateKey.generate()
        elif algorithm == RS256:
            self._key = rsa.generate_private_key(65537, 2048)
        else:
            self._key = ec.generate_private_key(ec.SECP256R1())

    def create(
        self,
        options: dict[str, Any],
        origin: str,
        *,
        flags: int = PRESENT | VERIFIED | ATTESTED,
        rp_id: str = "",
        client: dict[str, Any] | None = None,
        algorithm: int | None = None,
    ) -> dict[str, Any]:
        """Do what ``navigator.credentials.create`` does; returns ``RegistrationResponseJSON``."""
        self.user_handle = decode(options["user"]["id"])
        key = cbor(self._cose(algorithm or self.algorithm))
        data = self._data(rp_id or options["rp"]["id"], flags)
        data += bytes(16) + len(self.id).to_bytes(2) + self.id + key
        attestation = cbor({"fmt": "none", "attStmt": {}, "authData": data})
        return self._answer(
            clientDataJSON=_client("webauthn.create", options, origin, client),
            attestationObject=attestation,
        )

    def get(
        self,
        options: dict[str, Any],
        origin: str,
        *,
        flags: int = PRESENT | VERIFIED,
        rp_id: str = "",
        client: dict[str, Any] | None = None,
        user_handle: bytes | None = None,
        signature: bytes | None = None,
    ) -> dict[str, Any]:
        """Do what ``navigator.credentials.get`` does; returns ``AuthenticationResponseJSON``."""
        data = self._data(rp_id or options["rpId"], flags)
        client_data = _client("webauthn.get", options, origin, client)
        signed = self._sign(data + hashlib.sha256(client_data).digest())
        return self._answer(
            clientDataJSON=client_data,
            authenticatorData=data,
            signature=signed if signature is None else signature,
            userHandle=self.user_handle if user_handle is None else user_handle,
        )

    def _answer(self, **parts: bytes) -> dict[str, Any]:
        return {
            "id": encode(self.id),
            "rawId": encode(self.id),
            "type": "public-key",
            "response": {name: encode(value) for name, value in parts.items()},
            "clientExtensionResults": {},
        }

    def _data(self, rp_id: str, flags: int) -> bytes:
        self.counter += self.counts
        return hashlib.sha256(rp_id.encode()).digest() + bytes([flags]) + self.counter.to_bytes(4)

    def _sign(self, message: bytes) -> bytes:
        if self.algorithm == EDDSA:
            return bytes(self._key.sign(message))
        if self.algorithm == RS256:
            return bytes(self._key.sign(message, padding.PKCS1v15(), hashes.SHA256()))
        return bytes(self._key.sign(message, ec.ECDSA(hashes.SHA256())))

    def _cose(self, algorithm: int) -> dict[int, Any]:
        public = self._key.public_key()
        if self.algorithm == EDDSA:
            return {1: 1, 3: algorithm, -1: 6, -2: public.public_bytes_raw()}
        numbers = public.public_numbers()
        if self.algorithm == RS256:
            return {1: 3, 3: algorithm, -1: numbers.n.to_bytes(256), -2: numbers.e.to_bytes(3)}
        return {1: 2, 3: algorithm, -1: 1, -2: numbers.x.to_bytes(32), -3: numbers.y.to_bytes(32)}


def _client(kind: str, options: dict[str, Any], origin: str, more: dict[str, Any] | None) -> bytes:
    """Return what a browser says about the page."""
    data = {
        "type": kind,
        "challenge": options["challenge"],
        "origin": origin,
        "crossOrigin": False,
        **(more or {}),
    }
    return json.dumps(data).encode()
