"""The log of commands: a line in ``commands.log`` for each command that a user runs.

A line has the published form of a log line, with the arguments as a shell reads them::

    2026-11-23 09:15:02,017: gnt-instance startup pid=4711 INFO run with arguments 'web1' by alice

Values of private and secret OS parameters are hidden. A user who may not write the log can run
commands nevertheless; so can everybody when the disk is full.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence

from ganeti.cli.command import Command, Values
from ganeti.platform import paths

_HIDDEN = "<hidden>"
_MODE = 0o640


def record(
    program: str,
    command: Command,
    words: Sequence[str],
    values: Values,
    environ: Mapping[str, str],
) -> None:
    """Write the line of a command; an error is ignored.

    :param words: options and arguments, as the user gave them.
    :param values: the values of the options.
    """
    here = paths.current()
    data = line(program, command, words, values, environ).encode("utf-8", "backslashreplace")
    try:
        # A logger would cost more than the rest of a command's start. One write keeps lines whole.
        fd = os.open(
            here.log_commands_file,
            os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW,
            _MODE,
        )
    except OSError:
        return
    try:
        os.write(fd, data)
    except OSError:
        return
    finally:
        os.close(fd)


def line(
    program: str,
    command: Command,
    words: Sequence[str],
    values: Values,
    environ: Mapping[str, str],
    now: float | None = None,
) -> str:
    """Return the line of a command.

    :param now: seconds since 1970; None for the present time.
    """
    stamp = time.time() if now is None else now
    moment = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(stamp))
    secrets = [
        value
        for option in command.options
        if option.kind == "keyprivateval"
        for value in _texts(values.get(option.dest))
    ]
    shown = "no arguments"
    if words:
        import shlex

        hidden = [_hide(word, secrets) for word in words]
        # A new line in an argument must not begin another entry.
        shown = f"arguments '{_one_line(' '.join(map(shlex.quote, hidden)))}'"
    return (
        f"{moment},{int(stamp % 1 * 1000):03}: {program} {command.name} pid={os.getpid()} INFO run"
        f" with {shown} by {_one_line(_user(environ))}\n"
    )


def _texts(value: object) -> list[str]:
    found = value.values() if isinstance(value, dict) else ()
    return sorted((str(one) for one in found if one not in (None, "")), key=len, reverse=True)


def _hide(word: str, secrets: Sequence[str]) -> str:
    for secret in secrets:
        word = word.replace(secret, _HIDDEN)
    return word


def _one_line(text: str) -> str:
    return "".join(char if char.isprintable() else f"\\x{ord(char):02x}" for char in text)


def _user(environ: Mapping[str, str]) -> str:
    """Return who runs the command: the user before sudo, or the user of the process."""
    if os.geteuid() == 0 and environ.get("SUDO_USER"):
        return f"{environ['SUDO_USER']} (sudo)"
    import pwd

    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return f"uid {os.getuid()}"
