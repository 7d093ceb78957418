"""Ask PAM whether the password of one user is right, in a process which can be ended at any time.

The REST daemon starts it: modules of PAM may wait for a server, and have data of their own in the
process. The request is a JSON object on standard input, so that no list of processes shows the
password: ``service``, ``user``, ``password`` and ``address`` (of the client). The answer is a JSON
object on standard output: ``code`` (a number of PAM, 0 for success), ``text``, and ``stage``:
``auth`` for the password, ``account`` for what PAM says about the account when the password is
right, ``library`` when the package is missing.

Source: pam(3), pam_authenticate(3), pam_acct_mgmt(3); the package *pamela*.
"""

from __future__ import annotations

import os
import resource
import sys
from typing import IO

from ganeti.wire import json

# Modules such as pam_access and pam_time expect a terminal, or a name in its place.
_TERMINAL = "ganeti-rapi"
_DISALLOW_NULL_AUTHTOK = 1


def main() -> int:
    """Answer the request; returns the exit code."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    asked = json.loads(sys.stdin.read())
    with os.fdopen(os.dup(1), "w") as answer:
        # Modules print what they like.
        os.dup2(2, 1)
        _become_quiet(sys.stdin)
        found = check(asked["service"], asked["user"], asked["password"], asked["address"])
        answer.write(json.dumps(found))
    return 0


def _become_quiet(stream: IO[str]) -> None:
    """Replace the input, in which programs that a module starts would read."""
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, stream.fileno())
    os.close(nothing)


def check(service: str, user: str, password: str, address: str) -> dict[str, object]:
    """Ask PAM in one transaction about the password, and then about the account."""
    try:
        import pamela
    except (ImportError, OSError, AttributeError) as err:
        return {"stage": "library", "code": 0, "text": str(err)}
    # The function which gives the password must exist as long as the transaction. It answers one
    # question only: a second one, such as for a new password, fails.
    answering = pamela.new_simple_password_conv((password,), "utf-8")
    stage, code = "auth", 0
    try:
        handle = pamela.pam_start(service, user, conv_func=answering, encoding="utf-8")
        handle.set_item(pamela.PAM_TTY, _TERMINAL)
        handle.set_item(pamela.PAM_RHOST, address)
        code = pamela.PAM_AUTHENTICATE(handle, _DISALLOW_NULL_AUTHTOK)
        if code == 0:
            stage = "account"
            code = pamela.PAM_ACCT_MGMT(handle, _DISALLOW_NULL_AUTHTOK)
        text = pamela.pam_strerror(handle, code)
        pamela.PAM_END(handle, code)
    except pamela.PAMError as err:
        code, text = err.errno or 4, err.message
    return {"stage": stage, "code": code, "text": text}


if __name__ == "__main__":
    sys.exit(main())
