"""Texts which are numbers. A module of its own, because every command imports it."""

from __future__ import annotations


def is_number(text: str, digits: int = 18) -> bool:
    """Return True if a text consists of ASCII digits, and of at most `digits`.

    ``int`` accepts what passes: it refuses thousands of digits, and some characters which
    :meth:`str.isdigit` accepts, such as a superscript two.
    """
    return text.isascii() and text.isdigit() and len(text) <= digits
