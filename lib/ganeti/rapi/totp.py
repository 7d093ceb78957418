"""One-time codes of a time (TOTP): the secrets of users, the codes, and the recovery codes.

This module has no clock, no files and no limits. The factor of a user is one access record with

* ``secret``: the secret, encrypted (:mod:`ganeti.rapi.sealed`);
* ``step``: the step of the last code that was used, as a code counts once;
* ``recovery``: the SHA-256 of the recovery codes which are left. They have 80 random bits, so a
  slow hash is not necessary.

The package *pyotp* makes the codes. Recovery codes need neither the package nor the secret, so
they are valid also where one of them is missing.

Source: RFC 6238, sections 4 and 5.2; RFC 4226, section 7.4.
"""

from __future__ import annotations

import base64
import dataclasses
import hashlib
import hmac
import re
import secrets
from typing import Any, Final

from ganeti import errors
from ganeti.objects import AccessRecord
from ganeti.rapi.sealed import Seal

#: The kind of the access records.
KIND: Final = "totp"
STEP_S: Final = 30
#: How many steps the clocks of server and user may differ.
SKEW_STEPS: Final = 1
RECOVERY_CODES: Final = 10

_RECOVERY_BYTES: Final = 10
_GROUP: Final = 4
_CODE: Final = re.compile(r"[0-9]{6}", re.ASCII)
_RECOVERY: Final = re.compile(r"[A-Z2-7]{16}", re.ASCII)
_SECRET, _STEP, _LEFT = "secret", "step", "recovery"


def new_secret() -> str:
    """Make a secret of 160 random bits, in Base32.

    :raises ConfigurationError: the package *pyotp* is not installed.
    """
    _package()
    return base64.b32encode(secrets.token_bytes(20)).decode("ascii")


def uri(secret: str, user: str, cluster: str) -> str:
    """Return the address from which an app takes a secret (``otpauth://``).

    :raises ConfigurationError: the package *pyotp* is not installed.
    """
    return str(_package().TOTP(secret).provisioning_uri(name=user, issuer_name=cluster))


def step_of(secret: str, code: str, now: float, after: int = -1) -> int | None:
    """Return the step whose code this is; None if the code is wrong.

    :param after: the step of the last code that was used; earlier steps do not count.
    :raises ConfigurationError: the package *pyotp* is not installed.
    """
    present = int(now // STEP_S)
    codes = _package().TOTP(secret)
    found = None
    for step in range(present - SKEW_STEPS, present + SKEW_STEPS + 1):
        if step < 0:
            continue
        # All are compared, so that the time does not tell which one was nearly right.
        same = hmac.compare_digest(str(codes.generate_otp(step)).encode(), code.encode())
        if same and step > after and found is None:
            found = step
    return found


def plain(code: str) -> str:
    """Return a code as it is compared: people write blanks, hyphens and small letters."""
    return re.sub(r"[\s-]", "", code).upper()


def is_recovery_code(code: str) -> bool:
    """Return whether a code has the form of a recovery code."""
    return _RECOVERY.fullmatch(plain(code)) is not None


def key_of(owner: str) -> str:
    """Return the key of the record of a user; names have characters which keys do not have."""
    return hashlib.sha256(owner.encode("utf-8", "backslashreplace")).hexdigest()


def make(
    owner: str, secret: str, step: int, seal: Seal, now: float
) -> tuple[AccessRecord, list[str]]:
    """Make the factor of a user who has shown a right code.

    :param step: the step of this code, which counts no second time.
    :returns: the record, and the recovery codes, which are shown once.
    """
    codes = [_recovery_code() for _number in range(RECOVERY_CODES)]
    data: dict[str, Any] = {
        _SECRET: seal.close(secret.encode(), _purpose(owner)),
        _STEP: step,
        _LEFT: [_hashed(plain(code)) for code in codes],
    }
    record = AccessRecord(uuid="", kind=KIND, key=key_of(owner), owner=owner, ctime=now, data=data)
    return record, codes


def recovery_left(record: AccessRecord) -> int:
    """Return how many recovery codes of a user are left."""
    return len(record.data.get(_LEFT, ()))


def after_use(
    record: AccessRecord, code: str, seal: Seal | None, now: float
) -> AccessRecord | None:
    """Check a code or a recovery code; return the record without it, None if it is wrong.

    The code counts once, when the caller keeps the record which is returned.

    :param seal: None where there is no confd key.
    :raises ConfigurationError: codes cannot be checked here; recovery codes can.
    """
    given = plain(code)
    if is_recovery_code(given):
        return _without_recovery_code(record, given)
    if not _CODE.fullmatch(given):
        return None
    try:
        if seal is None:
            raise errors.ParseError("this node has no confd key")
        secret = seal.open(str(record.data.get(_SECRET, "")), _purpose(record.owner)).decode()
    except errors.ParseError as err:
        raise errors.ConfigurationError(
            f"the one-time codes of user {record.owner} cannot be checked: {err}. Use a recovery"
            f" code, or 'rapi-passwd totp remove {record.owner}' on the master and begin again."
        ) from err
    step = step_of(secret, given, now, int(record.data.get(_STEP, -1)))
    if step is None:
        return None
    return dataclasses.replace(record, used=now, data={**record.data, _STEP: step})


def _without_recovery_code(record: AccessRecord, given: str) -> AccessRecord | None:
    digest = _hashed(given)
    left = [one for one in record.data.get(_LEFT, ()) if not hmac.compare_digest(one, digest)]
    if len(left) == recovery_left(record):
        return None
    return dataclasses.replace(record, data={**record.data, _LEFT: left})


def _recovery_code() -> str:
    """Make a recovery code, such as ``ABCD-EFGH-IJKL-MNOP``."""
    text = base64.b32encode(secrets.token_bytes(_RECOVERY_BYTES)).decode("ascii")
    return "-".join(text[place : place + _GROUP] for place in range(0, len(text), _GROUP))


def _hashed(text: str) -> str:
    return hashlib.sha256(text.encode("ascii")).hexdigest()


def _purpose(owner: str) -> str:
    return f"{KIND}/{owner}"


def _package() -> Any:
    """Load *pyotp* when it is needed: it is optional.

    :raises ConfigurationError: it is not installed.
    """
    try:
        import pyotp
    except ImportError as err:
        raise errors.ConfigurationError(
            "one-time codes need the package python3-pyotp on this node, which is not installed"
        ) from err
    return pyotp
