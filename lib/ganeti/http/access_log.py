"""The access log: a line for each request, in the combined log format of web servers.

A line is ``host - user [time] "request" status bytes "referer" "agent"``. Texts which a client sent
are escaped, so that a client cannot add lines or fields. The arguments with which a browser returns
from the login at a provider could be used for a login for a short time, so they are left out.
"""

from __future__ import annotations

import logging
import os
import re
import time
from typing import Final

from ganeti import errors
from ganeti.http.event_server import Exchange
from ganeti.utils import fs

_log = logging.getLogger(__name__)

_ESCAPES: Final = {code: f"\\x{code:02x}" for code in (*range(32), *range(127, 160))} | {
    ord('"'): '\\"',
    ord("\\"): "\\\\",
}
# Arguments of an answer by OpenID Connect (RFC 6749, section 4.1.2).
_SECRETS: Final = re.compile(r"(?<=[?&])(code|state)=[^&\s]*")


def format_line(exchange: Exchange, now: float) -> str:
    """Return the line of one exchange.

    :param now: the time in seconds since 1970.
    """
    stamp = time.strftime("%d/%b/%Y:%H:%M:%S %z", time.localtime(now))
    line, referer, agent, user = (
        text.translate(_ESCAPES)
        for text in (
            _without_secrets(exchange.line) or "-",
            _without_secrets(exchange.referer),
            exchange.agent,
            exchange.user.replace(" ", "_"),
        )
    )
    return (
        f'{exchange.peer} - {user} [{stamp}] "{line}" {exchange.status}'
        f' {exchange.sent or "-"} "{referer}" "{agent}"\n'
    )


def _without_secrets(text: str) -> str:
    return _SECRETS.sub(r"\1=...", text)


class AccessLog:
    """The file of an access log.

    :raises ConfigurationError: the file cannot be opened.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        try:
            self._fd = self._open()
        except OSError as err:
            raise errors.ConfigurationError(
                f"cannot open access log {path}: {err.strerror}"
            ) from err
        self._failing = False

    def write(self, exchange: Exchange) -> None:
        """Append the line of an exchange; a failure is logged once and not raised."""
        line = format_line(exchange, time.time()).encode("utf-8", "backslashreplace")
        try:
            os.write(self._fd, line)
        except OSError as err:
            if not self._failing:
                _log.error("cannot write %s: %s", self.path, err.strerror)
            self._failing = True
        else:
            self._failing = False

    def reopen(self) -> None:
        """Open the file again, after it was renamed; keep the old one if that fails."""
        try:
            fresh = self._open()
        except OSError as err:
            _log.error("cannot open access log %s again: %s", self.path, err.strerror)
            return
        old, self._fd = self._fd, fresh
        os.close(old)

    def close(self) -> None:
        """Close the file."""
        os.close(self._fd)

    def _open(self) -> int:
        return fs.open_or_create(self.path, os.O_WRONLY | os.O_APPEND)
