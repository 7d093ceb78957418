"""The second factor of a user, his passkeys, and the login with one: each user manages his own.

A new factor or passkey needs the password once more: a person at an open session of another user
cannot add one. Programs with a token or a certificate cannot, either.
"""

from __future__ import annotations

from typing import Any, Final, TypedDict

from ganeti import ht
from ganeti.http.messages import Refused
from ganeti.objects import AccessRecord
from ganeti.rapi import passkeys, typed
from ganeti.rapi.call import Call
from ganeti.rapi.declare import (
    ANYBODY,
    DELETE,
    GET,
    POST,
    PUT,
    USERS,
    DirectChange,
    Field,
    Read,
    Resource,
    Result,
)
from ganeti.rapi.passkeys import Passkeys
from ganeti.rapi.resources import sessions
from ganeti.rapi.resources.common import NULL
from ganeti.rapi.totp_factor import TotpFactor

_PERSONS: Final = ("password", "session")
_PASSWORD: Final = Field(ht.NonEmptyString, "the password of the user, once more", required=True)
_CREDENTIAL: Final = Field(
    ht.Dict,
    "what the browser has returned, as its method toJSON() writes it: id, rawId, type, response",
    required=True,
)


class _State(TypedDict):
    active: bool
    recovery_codes: int


class _Begun(TypedDict):
    secret: str
    uri: str


class _Codes(TypedDict):
    recovery_codes: list[str]


class _Passkey(TypedDict):
    id: str
    label: str
    ctime: float
    used: float | None


def _person(call: Call) -> str:
    """Return the name of the user who sends a request by himself.

    :raises Refused: 403 for a program with a token or a certificate.
    """
    assert call.who is not None
    if call.who.by not in _PERSONS:
        raise Refused(
            403, f"a {call.who.by} cannot be used for this; log in as user {call.who.name}"
        )
    return call.who.name


async def _check_password(call: Call) -> None:
    """Check the password in the body.

    :raises Refused: 403 if it is wrong, 429 after too many wrong ones.
    """
    users = call.identity.users
    name = _person(call)
    if users is None or await users.check(name, call.body["password"], call.address) is None:
        raise Refused(403, f"the password of user {name} is wrong")


def _totp(call: Call) -> TotpFactor:
    """Return the one-time codes of the cluster.

    :raises Refused: 403: the server has none.
    """
    if call.identity.totp is None:
        raise Refused(403, "this server has no one-time codes")
    return call.identity.totp


def _passkeys(call: Call) -> Passkeys:
    """Return the passkeys of the cluster.

    :raises Refused: 403: the server has none.
    """
    if call.identity.passkeys is None:
        raise Refused(403, "this server has no passkeys")
    return call.identity.passkeys


async def _show_totp(call: Call) -> _State:
    owner, codes = _person(call), call.identity.totp
    left = None if codes is None else await codes.recovery_left(owner)
    return {"active": left is not None, "recovery_codes": left or 0}


async def _begin_totp(call: Call) -> _Begun:
    await _check_password(call)
    begun = await _totp(call).begin(_person(call))
    return {"secret": begun.secret, "uri": begun.uri}


async def _confirm_totp(call: Call) -> _Codes:
    return {"recovery_codes": await _totp(call).confirm(_person(call), call.body["code"])}


async def _list_passkeys(call: Call) -> list[_Passkey]:
    owner, keys = _person(call), call.identity.passkeys
    return [] if keys is None else [_shown(one) for one in await keys.of(owner)]


async def _begin_passkey(call: Call) -> dict[str, Any]:
    await _check_password(call)
    return await _passkeys(call).creation_options(_person(call))


async def _add_passkey(call: Call) -> _Passkey:
    return _shown(
        await _passkeys(call).add(_person(call), call.body["credential"], call.body["label"])
    )


async def _remove_passkey(call: Call) -> None:
    await _passkeys(call).remove(_person(call), call.uri["passkey_id"])


def _shown(record: AccessRecord) -> _Passkey:
    return {
        "id": passkeys.public_id(record),
        "label": passkeys.label(record),
        "ctime": record.ctime,
        "used": record.used,
    }


async def _begin_login(call: Call) -> dict[str, Any]:
    sessions.sessions_of(call).require_tls()
    return _passkeys(call).login_options()


async def _log_in(call: Call) -> dict[str, Any]:
    found = sessions.sessions_of(call)
    found.require_tls()
    assert call.incoming is not None
    owner = await _passkeys(call).login(call.body["credential"], call.address)
    return sessions.begun(call, await found.open(owner, passkeys.KIND, call.incoming))


_ONE: Final = typed.of(_Passkey)
_OPTIONS: Final = Result(
    ht.Dict, "the options, which PublicKeyCredential.parse...OptionsFromJSON of a browser reads"
)

RESOURCES: Final = (
    Resource(
        "/2/totp",
        "totp",
        {
            GET: Read(
                _show_totp,
                "Show whether the login of the user needs one-time codes (TOTP).",
                Result(typed.of(_State), "whether it does, and how many recovery codes are left"),
                access=USERS,
            ),
            POST: DirectChange(
                _begin_totp,
                "Begin to use one-time codes (TOTP) as a second factor of the user. They are needed"
                " after the confirmation (PUT), which has to come within 10 minutes.",
                Result(
                    typed.of(_Begun),
                    "the secret in Base32, and as an address (otpauth://) for a QR code",
                ),
                fields={"password": _PASSWORD},
                access=USERS,
                secret=True,
                alone=True,
            ),
            PUT: DirectChange(
                _confirm_totp,
                "Confirm the secret with a code. From now on a login needs a code, and a password"
                " in every request is refused.",
                Result(typed.of(_Codes), "ten codes, each for one login without the device"),
                fields={
                    "code": Field(ht.NonEmptyString, "the code of the device", required=True),
                },
                access=USERS,
                secret=True,
                alone=True,
            ),
        },
    ),
    Resource(
        "/2/passkeys",
        "passkeys",
        {
            GET: Read(
                _list_passkeys,
                "List the passkeys of the user.",
                Result(ht.ListOf(_ONE), "the passkeys, the oldest one first"),
                access=USERS,
            ),
            POST: DirectChange(
                _add_passkey,
                "Add a passkey of the user, which a browser has made with the options of"
                " /2/passkeys/challenge.",
                Result(_ONE, "the new passkey"),
                fields={
                    "credential": _CREDENTIAL,
                    "label": Field(ht.Str, "how the user calls the passkey", default=""),
                },
                access=USERS,
                alone=True,
            ),
        },
    ),
    Resource(
        "/2/passkeys/challenge",
        "passkeys_challenge",
        {
            POST: DirectChange(
                _begin_passkey,
                "Make the options with which a browser makes a passkey"
                " (navigator.credentials.create). They are valid once, for 5 minutes.",
                _OPTIONS,
                fields={"password": _PASSWORD},
                access=USERS,
                alone=True,
            ),
        },
    ),
    Resource(
        "/2/passkeys/{passkey_id}",
        "passkeys_id",
        {
            DELETE: DirectChange(
                _remove_passkey,
                "Remove a passkey of the user. Sessions go on.",
                NULL,
                access=USERS,
                alone=True,
            ),
        },
    ),
    Resource(
        "/2/login/passkey/challenge",
        "login_passkey_challenge",
        {
            POST: DirectChange(
                _begin_login,
                "Make the options with which a browser uses a passkey for a login"
                " (navigator.credentials.get). They are valid once, for 5 minutes.",
                _OPTIONS,
                access=ANYBODY,
                waits=True,
                alone=True,
                identifies=True,
            ),
        },
    ),
    Resource(
        "/2/login/passkey",
        "login_passkey",
        {
            POST: DirectChange(
                _log_in,
                "Begin a session with a passkey in place of user name, password and code. The"
                " answer sets the cookie of the session, as that of /2/login does.",
                sessions.RESULT,
                fields={"credential": _CREDENTIAL},
                access=ANYBODY,
                headers=sessions.COOKIE,
                alone=True,
                identifies=True,
            ),
        },
    ),
)
