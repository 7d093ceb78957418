"""Passwords which the machine checks, by PAM: for ``{PAM}`` in the users file.

A process checks each password (:mod:`ganeti.helpers.pam_check`), because a module of PAM may wait
for a server. At most :data:`AT_ONCE` of them run, one of each address, and each for at most
:data:`TIME_S`. What PAM cannot decide is not a wrong password: the request gets status 503. When
the password is right and the account must not be used (expired, or a new password is due), it gets
403 with the reason.

The passwords of services in which PAM asks more than one question cannot be checked.

Source: the numbers are those of Linux-PAM, ``_pam_types.h``.
"""

from __future__ import annotations

import importlib.util
import logging
import os
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

from ganeti import errors
from ganeti.http import peers
from ganeti.http.messages import Refused
from ganeti.rapi import helper_process
from ganeti.rapi.guesses import Turns
from ganeti.rapi.passwords import PAM, Password
from ganeti.wire import json

_log = logging.getLogger(__name__)

#: Number of processes at a time, and seconds for each.
AT_ONCE: Final = 4
TIME_S: Final = 20.0
#: Seconds for which a right password is not checked again.
FRESH_S: Final = 60.0
#: Where PAM looks for services.
SERVICE_DIRECTORIES: Final = ("/etc/pam.d", "/usr/lib/pam.d")
_AGAIN: Final = (("Retry-After", "10"),)
_SHOWN: Final = 1000
# PAM_PERM_DENIED, PAM_AUTH_ERR, PAM_CRED_INSUFFICIENT, PAM_USER_UNKNOWN, PAM_MAXTRIES: "no".
# PAM_CONV_ERR: the module has asked a second question, or one whose answer would be shown.
# PAM_NEW_AUTHTOK_REQD, PAM_ACCT_EXPIRED, PAM_AUTHTOK_EXPIRED: whether the password was right, is
# not known at this stage. PAM_SYSTEM_ERR: so pam_exec says that its program has said "no".
_WRONG: Final = frozenset({4, 6, 7, 8, 10, 11, 12, 13, 27})
_CONVERSATION: Final = 19
# PAM_PERM_DENIED, PAM_AUTH_ERR, PAM_USER_UNKNOWN, PAM_NEW_AUTHTOK_REQD, PAM_ACCT_EXPIRED,
# PAM_AUTHTOK_EXPIRED: the account must not be used.
_LOCKED: Final = frozenset({6, 7, 10, 12, 13, 27})


class AccountLocked(Refused):
    """The password is right, and the account must not be used: status 403."""


class Pam:
    """Checks passwords with processes.

    :param guesses: returns how many guesses of an address count at present.
    :param command: the program; None for the usual one.
    :ivar wrong_s: how long the last wrong password took.
    """

    def __init__(
        self,
        guesses: Callable[[str], float] = lambda _address: 0,
        *,
        command: Sequence[str] | None = None,
        time_s: float = TIME_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._turns = Turns(AT_ONCE, guesses)
        self._command = command or (sys.executable, "-m", "ganeti.helpers.pam_check")
        self._time_s = time_s
        self._clock = clock
        self.wrong_s = 0.0

    async def check(self, service: str, user: str, password: str, address: str) -> bool:
        """Return whether a password is right.

        :raises AccountLocked: it is right, and the account must not be used.
        :raises Refused: 503 if PAM cannot decide.
        """
        # The empty password counts as no password for many servers of LDAP, and succeeds there.
        if not password or "\0" in password:
            return False
        asked = json.dumps(
            {"service": service, "user": user, "password": password, "address": address}
        )
        async with self._turns.of(peers.client_network(address)):
            began = self._clock()
            try:
                ended = await helper_process.run(self._command, asked, self._time_s)
            except TimeoutError:
                raise _undecided(user, f"there is no answer after {self._time_s:g} s") from None
            found = _answer(user, ended)
            right = _judge(user, service, found)
            if not right:
                self.wrong_s = self._clock() - began
        return right


def missing(
    stored: Iterable[Password], directories: Sequence[str] = SERVICE_DIRECTORIES
) -> list[str]:
    """Return what this machine lacks to check passwords.

    :param stored: the passwords of the users file, of any form.
    """
    services = sorted({one.value for one in stored if one.form == PAM})
    if not services:
        return []
    found = []
    if importlib.util.find_spec("pamela") is None:
        found.append(
            "PAM cannot check passwords on this node: the package python3-pamela is missing"
        )
    for service in services:
        if not any(os.path.exists(os.path.join(place, service)) for place in directories):
            found.append(
                f"PAM has no service '{service}' on this node, so the rules of service 'other'"
                f" hold; a service is a file, here {directories[0]}/{service}"
            )
    return found


def _answer(user: str, ended: helper_process.Ended) -> dict[str, Any]:
    """Return the answer of the process.

    :raises Refused: 503 if it has none.
    """
    try:
        if ended.code == 0:
            return dict(json.loads(ended.output.decode("utf-8")))
    except (UnicodeDecodeError, ValueError, TypeError, errors.ParseError):
        pass
    complaints = ended.complaints[-_SHOWN:].decode("utf-8", "replace")
    raise _undecided(user, f"the process for PAM has ended with {ended.code}: {complaints}")


def _judge(user: str, service: str, found: dict[str, Any]) -> bool:
    """Return what an answer means.

    :raises Refused: as :meth:`Pam.check`.
    """
    stage, code, text = found["stage"], found["code"], found["text"]
    if stage == "library":
        raise _undecided(
            user,
            f"the package python3-pamela (pamela) or the library of PAM is missing ({text})",
        )
    if code == 0:
        return bool(stage == "account")
    if stage == "auth" and code in _WRONG:
        _log.info("PAM service %s says %r about user %r", service, text, user)
        return False
    if stage == "account" and code in _LOCKED:
        _log.warning("user %r must not log in: PAM service %s says %r", user, service, text)
        raise AccountLocked(
            403,
            f"the password is right, but the account of user '{user}' must not be used: PAM says"
            f" '{text}'. It may be locked or expired, or a new password is due.",
        )
    if code == _CONVERSATION:
        text = f"{text}; the service must ask one question only, for the password"
    raise _undecided(user, f"PAM service '{service}' says '{text}' (error {code})")


def _undecided(user: str, why: str) -> Refused:
    _log.error("the password of user %r cannot be checked: %s", user, why)
    return Refused(
        503,
        "the password cannot be checked at present. The log of the REST daemon says why; the"
        " administrator can read it.",
        headers=_AGAIN,
    )
