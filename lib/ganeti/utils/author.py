"""Who submitted a job: the person and the program, as the reason trail of its opcodes says.

A reason trail is a list of ``[source, text, nanoseconds since 1970]``. The entry of the source
:data:`~ganeti.constants.job.REASON_PERSON` has the name of the person: the login behind ``sudo``
for a command, the user of a REST request. Each user may send a trail, and other programs may have
written other values, so everything is checked here before it is used.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence

from ganeti import TYPE_CHECKING
from ganeti.constants import job as const

if TYPE_CHECKING:
    from typing import Any

# Beginning of the source of an entry -> the program, if the rest of the source does not name it.
_PROGRAMS = {
    "gnt:client:": "",
    "gnt:library:rlib2:": "REST",
    "gnt:watcher": "watcher",
    "gnt:daemon:masterd": "master",
}
_NAME = re.compile(r"[\w.][\w.@+$\\-]{0,63}")
_LOGIN_FILE = "/proc/self/loginuid"
# What the kernel says about a process which no login has started.
_NO_LOGIN = 2**32 - 1


def entries(trail: object) -> Iterator[Sequence[Any]]:
    """Iterate over the entries of a reason trail which have the right shape."""
    for entry in trail if isinstance(trail, (list, tuple)) else ():
        # The audit log has no times.
        if isinstance(entry, (list, tuple)) and len(entry) in (2, 3):
            yield entry


def is_name(text: object) -> bool:
    """Return True for a text which can be the name of a user."""
    return isinstance(text, str) and _NAME.fullmatch(text) is not None


def person(trail: object) -> str:
    """Return the person who submitted a job; an empty text when it is not known."""
    return next(
        (
            str(one[1])
            for one in entries(trail)
            if one[0] == const.REASON_PERSON and is_name(one[1])
        ),
        "",
    )


def program(trail: object) -> str:
    """Return the program which submitted a job, such as ``gnt-instance`` or ``REST``.

    :param trail: the reason trail of an opcode.
    :returns: an empty text when it is not known.
    """
    for source, *_rest in entries(trail):
        found = program_of(source)
        if found:
            return found
    return ""


def program_of(source: object) -> str:
    """Return the program which a source of a reason trail stands for; empty for another source."""
    for start, word in _PROGRAMS.items():
        if isinstance(source, str) and source.startswith(start):
            return word or source.removeprefix(start)
    return ""


def describe(who: str, with_what: str) -> str:
    """Return a person and a program in one text: ``alice (gnt-instance)``; each may be empty."""
    return f"{who} ({with_what})" if who and with_what else who or with_what


def of_trail(trail: object) -> str:
    """Return the person and the program which submitted a job, for users."""
    return describe(person(trail), program(trail))


def entry_for(name: str, now_ns: int) -> list[list[Any]]:
    """Return the entry of a reason trail for a person, as a list; empty when it is not known."""
    return [[const.REASON_PERSON, name, now_ns]] if is_name(name) else []


def without_persons(trail: object) -> list[Any]:
    """Return a reason trail of a client without the persons it names: they are not proven."""
    return [
        one
        for one in (trail if isinstance(trail, (list, tuple)) else ())
        if not (isinstance(one, (list, tuple)) and one and one[0] == const.REASON_PERSON)
    ]


def of_process(environ: Mapping[str, str] = os.environ) -> str:
    """Return the name of the person who runs this process.

    For root it is the one behind ``sudo``, or else behind the login (``loginuid`` of proc(5)). Root
    without a login, as in a timer, is no person.

    :returns: an empty text when it is not known.
    """
    uid = os.getuid()
    found = _name_of(uid) if uid != 0 else environ.get("SUDO_USER") or _name_of(_login_uid())
    return found if is_name(found) else ""


def _login_uid() -> int | None:
    """Return the user id of the login which started this process; None when there was none."""
    try:
        with open(_LOGIN_FILE, encoding="ascii") as stream:
            uid = int(stream.read())
    except (OSError, ValueError):
        return None
    return None if uid == _NO_LOGIN else uid


def _name_of(uid: int | None) -> str:
    """Return the name of a user; empty for an unknown user."""
    if uid is None:
        return ""
    import pwd  # needed only where a job is submitted

    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return ""
