"""The forms in which a password may stand in the users file.

================================ ===============================================================
``secret``                       the password itself, when it does not begin with a brace
``{CLEARTEXT}secret``            the password itself
``{HA1}<32 hexadecimal digits>`` MD5 of ``user:realm:password``
``{SCRYPT}n,r,p$salt$hash``      what ``rapi-passwd`` writes; salt and hash in Base64
================================ ===============================================================

Names of forms are case-insensitive. Only the last form is safe in a file that somebody reads: the
others are there because files made for other programs have them.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import os
import re
from typing import Final, NamedTuple

from ganeti import errors

REALM: Final = "Ganeti Remote API"

# 32 MiB and some hundredths of a second for each try.
SCRYPT_COST: Final = (1 << 15, 8, 3)
_SCRYPT_BYTES: Final = 32
# What a file may demand of us.
_SCRYPT_MOST_MEMORY: Final = 256 << 20
_FORM: Final = re.compile(r"\{([^}]*)\}(.*)", re.DOTALL)


class Password(NamedTuple):
    """A password as it stands in the file.

    :ivar form: ``cleartext``, ``ha1`` or ``scrypt``.
    """

    form: str
    value: str

    @property
    def slow(self) -> bool:
        """Whether checking takes long enough that a loop must not wait for it."""
        return self.form == "scrypt"


def parse(text: str) -> Password:
    """Read the second word of a line.

    :raises errors.ParseError: an unknown form, or one with a wrong content.
    """
    match = _FORM.fullmatch(text)
    if match is None:
        if text.startswith("{"):
            raise errors.ParseError("a brace begins the form of a password, and is not closed")
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
    raise errors.ParseError(f"unknown form of a password: {{{match[1][:20]}}}")


def matches(password: Password, user: str, given: str) -> bool:
    """Whether this is the password; takes as long for a wrong one as for a right one."""
    raw = given.encode("utf-8", "surrogatepass")
    if password.form == "scrypt":
        cost, salt, wanted = _scrypt_parts(password.value)
        return hmac.compare_digest(_scrypt(raw, salt, cost, len(wanted)), wanted)
    if password.form == "ha1":
        found = hashlib.md5(f"{user}:{REALM}:".encode() + raw, usedforsecurity=False).hexdigest()
        return hmac.compare_digest(found, password.value)
    # Digests, so that not even the length is told by the time it takes.
    return hmac.compare_digest(
        hashlib.sha256(raw).digest(),
        hashlib.sha256(password.value.encode("utf-8", "surrogatepass")).digest(),
    )


def hashed(given: str, cost: tuple[int, int, int] = SCRYPT_COST) -> str:
    """A password in the form that is safe to keep."""
    salt = os.urandom(16)
    digest = _scrypt(given.encode(), salt, cost, _SCRYPT_BYTES)
    n, r, p = cost
    return f"{{SCRYPT}}{n},{r},{p}${_b64(salt)}${_b64(digest)}"


def waste_time() -> None:
    """Take as long as checking a password of the slow form."""
    _scrypt(b"", b"0123456789abcdef", SCRYPT_COST, _SCRYPT_BYTES)


def _scrypt(password: bytes, salt: bytes, cost: tuple[int, int, int], size: int) -> bytes:
    n, r, p = cost
    return hashlib.scrypt(
        password, salt=salt, n=n, r=r, p=p, dklen=size, maxmem=_SCRYPT_MOST_MEMORY + (1 << 20)
    )


def _scrypt_parts(value: str) -> tuple[tuple[int, int, int], bytes, bytes]:
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
        raise errors.ParseError("a password of form {SCRYPT} has costs or lengths that cannot be")
    return (n, r, p), *parts


def _b64(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")
