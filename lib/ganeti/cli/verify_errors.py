"""Reads what ``gnt-cluster verify --error-codes`` prints, for programs which compare two runs."""

from __future__ import annotations

_ERROR = "- ERROR:"


def parse_verify(text: str) -> dict[str, str]:
    """Read the errors from the output of ``gnt-cluster verify --error-codes``.

    :returns: code, kind and name of the object for each error, such as
        ``ENODELVM node node1.example.com``, and the text of the first such error.
    """
    found: dict[str, str] = {}
    for line in text.splitlines():
        # The time of the message stands before it.
        words = line.partition(_ERROR)[2].split(":", 3)
        if len(words) == 4:
            found.setdefault(" ".join(word for word in words[:3] if word), words[3].strip())
    return found
