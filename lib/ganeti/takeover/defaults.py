"""Carry the settings of ``/etc/default/ganeti`` from the original to this project.

Both read one variable for each daemon from this file, such as ``RAPI_ARGS="-b 127.0.0.1"``. The
package replaces the file, so the takeover writes the values of the original behind the text of the
package. Daemons which do not exist here lose their variable. Where the daemons of the original run
under users of their own, ours get the same users.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from typing import NamedTuple

from ganeti.tools import daemon_util

#: The line before what the takeover has written.
MARK = "# Taken over from the original Ganeti by ganeti-takeover; see ganeti-takeover(8)."
_SUFFIX = "_ARGS"
_GROUP = 'DAEMONS_GROUP="gnt-daemons"'
#: Variable -> options with which a daemon drops the rights of root.
_USERS = {
    f"{daemon.upper()}{_SUFFIX}": f"--user=gnt-{daemon} --group=gnt-{daemon}"
    for daemon in ("masterd", "rapi", "confd", "metad")
}
#: Variables of our daemons.
OURS = tuple(
    f"{daemon.removeprefix('ganeti-').upper()}{_SUFFIX}" for daemon in daemon_util.START_ORDER
)


class Setting(NamedTuple):
    """A variable with a value which is not empty."""

    name: str
    value: str


def parse_settings(text: str) -> list[Setting]:
    """Read the arguments of daemons, in the order of the file; the last value of a name counts.

    Lines which a shell would read in another way, with expansions or conditions, are not
    understood and left out; :func:`left_out` names them.
    """
    found: dict[str, str] = {}
    for setting in _settings(text):
        found[setting.name] = setting.value
    return [Setting(name, value) for name, value in found.items() if value]


def _settings(text: str) -> Iterator[Setting]:
    for line in text.splitlines():
        setting = _setting(line)
        if setting is not None:
            yield setting


def _setting(line: str) -> Setting | None:
    try:
        words = shlex.split(line, comments=True)
    except ValueError:
        return None
    if len(words) != 1:
        return None
    name, sign, value = words[0].partition("=")
    if not sign or not name.endswith(_SUFFIX) or "$" in value or "`" in value:
        return None
    return Setting(name, value.strip())


def left_out(text: str) -> list[str]:
    """Name what of the original's file has no effect here: variables, and lines as they are."""
    found = [
        f'{setting.name}="{setting.value}"'
        for setting in parse_settings(text)
        if setting.name not in OURS
    ]
    for line in text.splitlines():
        words = line.strip()
        if words and not words.startswith("#") and _setting(line) is None:
            found.append(words)
    return found


def merged(original: str, ours: str, *, separate_users: bool) -> str:
    """Return the text of the file for our daemons, with the arguments of the original.

    :param original: the file before the takeover.
    :param ours: the file of our package; what an earlier call has added is replaced.
    :param separate_users: let the daemons run under the users of the original.
    """
    values = {one.name: one.value for one in parse_settings(original) if one.name in OURS}
    if separate_users:
        for name, options in _USERS.items():
            values[name] = f"{options} {values.get(name, '')}".rstrip()
    lines = [f'{name}="{_escaped(values[name])}"' for name in OURS if name in values]
    if separate_users:
        lines.append(_GROUP)
    own = ours.partition(MARK)[0].rstrip("\n")
    return "\n".join([own, "", MARK, *lines, ""]) if lines else f"{own}\n"


def changed_since(written: str, present: str) -> list[str]:
    """Name the variables whose value was changed after the takeover.

    :param written: the file as the takeover has written it.
    :param present: the file now.
    """
    before = {one.name: one.value for one in parse_settings(written)}
    now = {one.name: one.value for one in parse_settings(present)}
    return [name for name in OURS if before.get(name) != now.get(name)]


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"')
