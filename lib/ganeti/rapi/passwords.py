"""The forms of a password in the users file.

================================ ===============================================================
``secret``                       the password itself, when it does not begin with a brace
``{CLEARTEXT}secret``            the password itself
``{HA1}<32 hexadecimal digits>`` MD5 of ``user:realm:password``
``{SCRYPT}n,r,p$salt$hash``      made by ``rapi-passwd``; salt and hash in Base64
``{PAM}`` or ``{PAM}service``    no password: PAM checks what the user types
================================ ===============================================================

Names of forms are case-insensitive. Only the last two forms are safe when the file becomes known;
the others exist because the files of other programs have them. :mod:`ganeti.rapi.pam` checks the
passwords of the last form.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import os
import re
from collections.abc import Iterable
from typing import Final, NamedTuple

from ganeti import errors

REALM: Final = "Ganeti Remote API"
#: The form of a password which PAM checks, and the usual service.
PAM: Final = "pam"
PAM_SERVICE: Final = "ganeti-rapi"

#: What a check by scrypt costs: n, r and p.
Cost = tuple[int, int, int]

# Each check takes 32 MiB and some hundredths of a second.
SCRYPT_COST: Final[Cost] = (1 << 15, 8, 3)
_SCRYPT_BYTES: Final = 32
# For a check whose result does not count.
_NO_SALT: Final = bytes(16)
# Limits for the costs which a file may demand.
_SCRYPT_MOST_MEMORY: Final = 256 << 20
_SERVICE: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")
_FORM: Final = re.compile(r"\{([^}]*)\}(.*)", re.DOTALL)


class Password(NamedTuple):
    """A password in the form of the file.

    :ivar form: ``cleartext``, ``ha1``, ``scrypt`` or ``pam``.
    :ivar value: what the form stores; of the last form the name of the service.
    """

    form: str
    value: str

    @property
    def cost(self) -> Cost | None:
        """What a check costs; None for a form whose check is quick."""
        return _scrypt_parts(self.value)[0] if self.form == "scrypt" else None


def parse(text: str) -> Password:
    """Parse the password field of a line.

    :raises errors.ParseError: the form is unknown, or its content is wrong.
    """
    match = _FORM.fullmatch(text)
    if match is None:
        if text.startswith("{"):
            raise errors.ParseError(
                "the form of the password begins with a brace which is not closed"
            )
        return Password("cleartext", text)
    form, value = match[1].lower(), match[2]
    if form == "cleartext":
        return Password(form, value)
    if form == "ha1":
        if not re.fullmatch(r"[0-9a-fA-F]{32}", value):
            raise errors.ParseError("a password of form {HA1} has 32 hexadecimal digits")
        return Password(form, value.lower())
    if form == "scrypt":
        _scrypt_parts(value)
        return Password(form, value)
    if form == PAM:
        if value and not _SERVICE.fullmatch(value):
            raise errors.ParseError(
                "a password of form {PAM} is followed by nothing, or by the name of a service,"
                " which has letters, digits, - and _"
            )
        return Password(form, value or PAM_SERVICE)
    raise errors.ParseError(f"unknown form of a password: {{{match[1][:20]}}}")


def matches(password: Password, user: str, given: str) -> bool:
    """Return whether a password is right, in the same time for right and wrong ones."""
    return check(password, user, given, () if password.cost is None else (password.cost,))


def check(password: Password | None, user: str, given: str, costs: Iterable[Cost]) -> bool:
    """Return whether a password is right, in a time that is the same for all users of a file.

    The time shows neither whether there is such a user, nor the form or the cost of the stored
    password: the work of every form, and of each cost, is done for each of them.

    A password of form ``{PAM}`` is never right here.

    :param password: what is stored; None for a name which no user has.
    :param costs: all different costs of the passwords in the file.
    """
    raw = given.encode("utf-8", "surrogatepass")
    ha1 = hashlib.md5(
        f"{user}:{REALM}:".encode("utf-8", "surrogatepass") + raw, usedforsecurity=False
    ).hexdigest()
    # Digests are compared, so that the time does not depend on the length.
    digest = hashlib.sha256(raw).digest()
    own = None if password is None else password.cost
    right = False
    for cost in costs:
        if password is not None and cost == own:
            _cost, salt, wanted = _scrypt_parts(password.value)
            right = hmac.compare_digest(_scrypt(raw, salt, cost, len(wanted)), wanted)
        else:
            _scrypt(raw, _NO_SALT, cost, _SCRYPT_BYTES)
    if password is None or own is not None or password.form == PAM:
        return right
    if password.form == "ha1":
        return hmac.compare_digest(ha1, password.value)
    stored = hashlib.sha256(password.value.encode("utf-8", "surrogatepass")).digest()
    return hmac.compare_digest(digest, stored)


def hashed(given: str, cost: Cost = SCRYPT_COST) -> str:
    """Return a password in the form which is safe to store."""
    salt = os.urandom(16)
    digest = _scrypt(given.encode(), salt, cost, _SCRYPT_BYTES)
    n, r, p = cost
    return f"{{SCRYPT}}{n},{r},{p}${_b64(salt)}${_b64(digest)}"


def _scrypt(password: bytes, salt: bytes, cost: Cost, size: int) -> bytes:
    n, r, p = cost
    return hashlib.scrypt(
        password, salt=salt, n=n, r=r, p=p, dklen=size, maxmem=_SCRYPT_MOST_MEMORY + (1 << 20)
    )


def _scrypt_parts(value: str) -> tuple[Cost, bytes, bytes]:
    try:
        costs, salt, digest = value.split("$")
        n, r, p = (int(word) for word in costs.split(","))
        parts = base64.b64decode(salt, validate=True), base64.b64decode(digest, validate=True)
    except (ValueError, binascii.Error):
        raise errors.ParseError(
            "a password of form {SCRYPT} is n,r,p$salt$hash. Program 'rapi-passwd' makes one."
        ) from None
    if (
        n < 2
        or n & (n - 1)
        or not 0 < r <= 64
        or not 0 < p <= 64
        or 128 * n * r > _SCRYPT_MOST_MEMORY
        or len(parts[1]) < 16
        or len(parts[0]) < 8
    ):
        raise errors.ParseError(
            "a password of form {SCRYPT} has costs or lengths outside of the limits"
        )
    return (n, r, p), *parts


def _b64(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")
