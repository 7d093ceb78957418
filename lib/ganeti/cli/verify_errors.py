"""Reads the whole output of cluster verification, as programs get it (``--error-codes``)."""

from __future__ import annotations

from ganeti.constants import verify as const
from ganeti.query.findings import parse_finding


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
