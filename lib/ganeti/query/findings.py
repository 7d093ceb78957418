"""Reads the findings of cluster verification from the log of its jobs.

The log of a job of the verification with ``error_codes`` has lines of these forms::

    * Checking nodes
      - ERROR:ENODERPC:node:node1.example.com:text
      - WARNING:ENODEN1:node:node1.example.com:text
      - NOTICE: text
"""

from __future__ import annotations

from ganeti.constants import verify as const

_MARK = "  - "
_SEVERITIES = (const.ERROR, const.WARNING)


class Finding:
    """One finding of cluster verification.

    :ivar severity: ``ERROR``, ``WARNING`` or ``NOTICE``.
    :ivar code: published code; empty for a notice.
    :ivar kind: type of the object, such as ``node``; empty for a notice.
    :ivar name: name of the object; empty for the cluster and for a notice.
    :ivar text: what was found; may have several lines.
    """

    __slots__ = ("code", "kind", "name", "severity", "text")

    def __init__(self, severity: str, code: str, kind: str, name: str, text: str) -> None:
        self.severity = severity
        self.code = code
        self.kind = kind
        self.name = name
        self.text = text

    def key(self) -> tuple[str, ...]:
        """Return all members; two findings with the same members are one."""
        return (self.severity, self.code, self.kind, self.name, self.text)


def parse_finding(message: str) -> Finding | None:
    """Read one message of the log of a verification; None when it is no finding."""
    if not message.startswith(_MARK):
        return None
    severity, _, rest = message[len(_MARK) :].partition(":")
    if severity == const.NOTICE:
        return Finding(const.NOTICE, "", "", "", rest.strip())
    words = rest.split(":", 3)
    if severity not in _SEVERITIES or len(words) != 4:
        return None
    return Finding(severity, words[0], words[1], words[2], words[3].strip())
