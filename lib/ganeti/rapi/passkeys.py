"""The passkeys of users: their records, the challenges, and the two ceremonies.

A passkey is an access record of the kind ``passkey``. Its key is the SHA-256 of the id which the
authenticator has given it; its data are the id, the public key, the counter and a label. Nobody can
log in with what is in the record.

A challenge is signed by this daemon and says when it was made and for what, so nothing is kept for
challenges that nobody answers, and a flood of questions has nothing to fill. One that was answered
is remembered until its end: it counts once. Another daemon, or this one after a restart, refuses
it, and the person begins again.

:mod:`ganeti.rapi.webauthn` checks the answers of authenticators.
"""

from __future__ import annotations

import dataclasses
import hashlib
import hmac
import logging
import os
import time
from collections.abc import Callable, Mapping
from typing import Any, Final

from ganeti import errors
from ganeti.http import peers
from ganeti.http.messages import Refused
from ganeti.objects import AccessRecord
from ganeti.rapi import kept_records, webauthn
from ganeti.rapi.guesses import ADDRESS_BURST, ADDRESS_INTERVAL_S
from ganeti.rapi.kept_records import KeptRecords
from ganeti.rapi.pace import Pace, TooMany
from ganeti.rapi.webauthn import PasskeyError

_log = logging.getLogger(__name__)

#: The kind of the access records.
KIND: Final = "passkey"
#: Seconds in which a challenge has to be answered.
CHALLENGE_S: Final = 300.0
#: Largest number of passkeys of a user.
MOST: Final = 20
LABEL_LENGTH: Final = 100

_LOGIN: Final = "login"
_NONCE_BYTES, _TIME_BYTES, _MAC_BYTES = 16, 8, 32
_ID, _PUBLIC_KEY, _COUNTER, _LABEL = "id", "public_key", "counter", "label"
_ID_LENGTH: Final = 12


class Challenges:
    """Makes challenges, and recognizes them once.

    :param clock: seconds of a clock which never jumps.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._key = os.urandom(32)
        # Those which were answered -> when they end.
        self._answered: dict[bytes, float] = {}

    def make(self, purpose: str) -> bytes:
        """Make a challenge which can be used for one purpose."""
        body = os.urandom(_NONCE_BYTES) + int(self._clock() * 1000).to_bytes(_TIME_BYTES)
        return body + self._mac(body, purpose)

    def take(self, challenge: bytes, purpose: str) -> None:
        """Use a challenge.

        :raises PasskeyError: it is of somebody else, for something else, too old, or was used.
        """
        body, mac = challenge[:-_MAC_BYTES], challenge[-_MAC_BYTES:]
        if len(body) != _NONCE_BYTES + _TIME_BYTES or not hmac.compare_digest(
            mac, self._mac(body, purpose)
        ):
            raise PasskeyError("the challenge is not one of this server for this purpose")
        now = self._clock()
        end = int.from_bytes(body[_NONCE_BYTES:]) / 1000 + CHALLENGE_S
        if end <= now:
            raise PasskeyError(f"the challenge is older than {CHALLENGE_S:.0f} seconds")
        self._answered = {one: at for one, at in self._answered.items() if at > now}
        if challenge in self._answered:
            raise PasskeyError("the challenge was answered before")
        self._answered[challenge] = end

    def _mac(self, body: bytes, purpose: str) -> bytes:
        return hmac.digest(self._key, body + purpose.encode("utf-8", "surrogatepass"), "sha256")


class Passkeys:
    """The passkeys of this cluster.

    :param host: returns the host name for which passkeys are made; empty if there is none.
    :param clock: seconds of a clock which never jumps.
    """

    def __init__(
        self,
        kept: KeptRecords,
        host: Callable[[], str],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._kept = kept
        self._host = host
        self._challenges = Challenges(clock)
        # No user is named before the answer is accepted, so an address has one counter for all.
        self._wrong: Pace[str] = Pace("from this address", ADDRESS_BURST, ADDRESS_INTERVAL_S, clock)

    async def of(self, owner: str) -> list[AccessRecord]:
        """Return the passkeys of a user, the oldest one first."""
        return await self._kept.of_owner(KIND, owner)

    async def creation_options(self, owner: str) -> dict[str, Any]:
        """Return what a page gives to ``navigator.credentials.create``.

        :raises Refused: 409: the user has too many passkeys, or the cluster has no name; 503: the
            package *fido2* is not installed.
        """
        _require()
        present = await self.of(owner)
        _check_number(present, owner)
        rp_id = self._rp_id()
        return {
            "rp": {"id": rp_id, "name": rp_id},
            "user": {
                "id": webauthn.encode(_handle(owner)),
                "name": owner,
                "displayName": owner,
            },
            "challenge": webauthn.encode(self._challenges.make(_making(owner))),
            "pubKeyCredParams": [
                {"type": "public-key", "alg": number} for number in webauthn.ALGORITHMS
            ],
            "timeout": int(CHALLENGE_S * 1000),
            "excludeCredentials": [
                {"type": "public-key", "id": str(one.data[_ID])} for one in present
            ],
            "authenticatorSelection": {
                "residentKey": "required",
                "requireResidentKey": True,
                "userVerification": "required",
            },
            "attestation": "none",
        }

    async def add(self, owner: str, answer: Mapping[str, Any], label: str) -> AccessRecord:
        """Keep a passkey which an authenticator has made.

        :param answer: what the page got (``RegistrationResponseJSON``).
        :raises Refused: 400: the answer is not accepted; 409: as :meth:`creation_options`, or the
            passkey is there; 503: the package *fido2* is not installed.
        """
        _require()
        if len(label) > LABEL_LENGTH or not label.isprintable():
            raise Refused(
                400, f"the label of a passkey has at most {LABEL_LENGTH} characters, all printable"
            )
        rp_id = self._rp_id()
        try:
            response = _response(answer)
            client_data = _bytes(response, "clientDataJSON")
            challenge = webauthn.challenge_of(client_data)
            self._challenges.take(challenge, _making(owner))
            new = webauthn.made(
                client_data,
                _bytes(response, "attestationObject"),
                webauthn.Expected(challenge, rp_id),
            )
        except PasskeyError as err:
            raise Refused(400, f"the passkey is not accepted: {err}") from err
        _check_number(await self.of(owner), owner)
        key = _key(new.id)
        if await self._kept.get(KIND, key) is not None:
            raise Refused(409, "this passkey is registered already")
        record = AccessRecord(
            uuid="",
            kind=KIND,
            key=key,
            owner=owner,
            ctime=self._kept.now(),
            data={
                _ID: webauthn.encode(new.id),
                _PUBLIC_KEY: webauthn.encode(new.public_key),
                _COUNTER: new.counter,
                _LABEL: label,
            },
        )
        await self._kept.change(kept_records.put(record))
        _log.info("user %s has a new passkey, %s", owner, public_id(record))
        return record

    def login_options(self) -> dict[str, Any]:
        """Return what a page gives to ``navigator.credentials.get``.

        No passkeys are named, so nobody learns from it which users there are; the authenticator
        shows the person those which it has.

        :raises Refused: 409: the cluster has no name; 503: the package *fido2* is not installed.
        """
        _require()
        return {
            "challenge": webauthn.encode(self._challenges.make(_LOGIN)),
            "rpId": self._rp_id(),
            "timeout": int(CHALLENGE_S * 1000),
            "allowCredentials": [],
            "userVerification": "required",
        }

    async def login(self, answer: Mapping[str, Any], address: str) -> str:
        """Check an answer to :meth:`login_options`; returns the name of the user.

        :param answer: what the page got (``AuthenticationResponseJSON``).
        :raises Refused: 401: it is not accepted; 429: too many wrong answers from this address;
            503: passkeys cannot be checked now.
        """
        _require()
        rp_id = self._rp_id()
        place = peers.client_network(address)
        try:
            self._wrong.take(place)
        except TooMany as err:
            raise Refused(
                429, f"too many wrong answers with passkeys {err.of}", headers=[err.retry_after]
            ) from err
        try:
            owner = await self._check(answer, rp_id)
        except PasskeyError as err:
            _log.warning("login with a passkey refused from %s: %s", address, err)
            raise Refused(401, f"the login with a passkey is refused: {err}") from err
        self._wrong.give_back(place)
        return owner

    async def _check(self, answer: Mapping[str, Any], rp_id: str) -> str:
        response = _response(answer)
        client_data = _bytes(response, "clientDataJSON")
        challenge = webauthn.challenge_of(client_data)
        self._challenges.take(challenge, _LOGIN)
        record = await self._kept.get(KIND, _key(_bytes(answer, "id")))
        if record is None:
            raise PasskeyError("the passkey is not known here; it may have been removed")
        handle = response.get("userHandle")
        if handle and not hmac.compare_digest(
            _bytes(response, "userHandle"), _handle(record.owner)
        ):
            raise PasskeyError("the passkey is not one of this user")
        counter = webauthn.signed(
            client_data,
            _bytes(response, "authenticatorData"),
            _bytes(response, "signature"),
            webauthn.decode(str(record.data[_PUBLIC_KEY])),
            webauthn.Expected(challenge, rp_id),
        )
        # Again from the copy: another login with this passkey may have come in between.
        record = await self._kept.get(KIND, record.key) or record
        before = int(record.data[_COUNTER])
        webauthn.check_counter(before, counter)
        if counter != before:
            used = dataclasses.replace(
                record, used=self._kept.now(), data={**record.data, _COUNTER: counter}
            )
            await self._kept.change(kept_records.put(used))
        else:
            self._kept.used(KIND, record.key)
        return record.owner

    async def remove(self, owner: str, shown: str) -> None:
        """Remove a passkey of a user.

        :param shown: its public id.
        :raises Refused: 404: the user has no such passkey.
        """
        for one in await self.of(owner):
            if public_id(one) == shown:
                await self._kept.change(kept_records.remove(KIND, one.key))
                _log.info("passkey %s of user %s was removed", shown, owner)
                return
        raise Refused(404, f"user {owner} has no passkey {shown}")

    def _rp_id(self) -> str:
        host = self._host().lower()
        if not host:
            raise Refused(
                409, "passkeys need the name of a cluster, and this machine is not in a cluster"
            )
        return host


def _require() -> None:
    """Check that passkeys are possible here.

    :raises Refused: 503: the package *fido2* is not installed.
    """
    try:
        webauthn.require()
    except errors.ConfigurationError as err:
        raise Refused(503, str(err)) from err


def public_id(record: AccessRecord) -> str:
    """Return the name of a passkey in lists and messages; nobody can log in with it."""
    return record.key[:_ID_LENGTH]


def label(record: AccessRecord) -> str:
    """Return what its user has called a passkey."""
    return str(record.data.get(_LABEL, ""))


def _check_number(present: list[AccessRecord], owner: str) -> None:
    if len(present) >= MOST:
        raise Refused(409, f"user {owner} has {MOST} passkeys, which is the limit; remove some")


def _making(owner: str) -> str:
    return f"make/{owner}"


def _handle(owner: str) -> bytes:
    """Return what an authenticator keeps as the id of the user: not the name itself."""
    return hashlib.sha256(b"ganeti/" + owner.encode("utf-8", "surrogatepass")).digest()


def _key(credential_id: bytes) -> str:
    return hashlib.sha256(credential_id).hexdigest()


def _response(answer: Mapping[str, Any]) -> Mapping[str, Any]:
    found = answer.get("response")
    if not isinstance(found, Mapping):
        raise PasskeyError("the answer of the browser has no member 'response'")
    return found


def _bytes(answer: Mapping[str, Any], name: str) -> bytes:
    found = answer.get(name)
    if not isinstance(found, str):
        raise PasskeyError(f"the answer of the browser has no member '{name}'")
    return webauthn.decode(found)
