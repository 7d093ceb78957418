"""Reads what cluster verification reports: the findings, and the whole output for programs.

The log of a job of the verification with ``error_codes`` has lines of these forms::

    * Checking nodes
      - ERROR:ENODERPC:node:node1.example.com:text
      - WARNING:ENODEN1:node:node1.example.com:text
      - NOTICE: text
"""

from __future__ import annotations

from ganeti.constants import verify as const

NOTICE = "NOTICE"
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
    if severity == NOTICE:
        return Finding(NOTICE, "", "", "", rest.strip())
    words = rest.split(":", 3)
    if severity not in _SEVERITIES or len(words) != 4:
        return None
    return Finding(severity, words[0], words[1], words[2], words[3].strip())


def parse_verify(text: str) -> dict[str, str]:
    """Read the errors from the output of ``gnt-cluster verify --error-codes``.

    :returns: code, kind and name of the object for each error, such as
        ``ENODELVM node node1.example.com``, and the text of the first such error.
    """
    found: dict[str, str] = {}
    for line in text.splitlines():
        # The time of the message stands before it.
        _, mark, rest = line.partition(f"- {const.ERROR}:")
        finding = parse_finding(f"  {mark}{rest}")
        if finding is not None:
            about = (finding.code, finding.kind, finding.name)
            found.setdefault(" ".join(word for word in about if word), finding.text)
    return found
