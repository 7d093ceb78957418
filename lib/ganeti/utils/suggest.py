"""Suggesting the name which a user has misspelt, for the hint after an error.

There are two ways, by the number of known names. Among few names (commands, options, fields,
groups) the most similar one is suggested. Among many (10,000 instances) only names with one wrong
letter are, which a regular expression finds in some milliseconds; to compare all of them would take
half a second. Names which differ only in their numbers are never suggested: a user who asks for
``web9`` does not mean ``web8``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

_FEW = 500
_CUTOFF = 0.7
# Longer words are not misspelt names.
_MAX_LENGTH = 80
_MIN_LENGTH = 3
_SHOWN = 3
# An error lists at most so many known names.
_LISTED = 12
_NUMBERS = re.compile(r"\d+")


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Return a hint with a blank in front, such as `` Did you mean 'web1.example.com'?``.

    :returns: the empty text when no name is similar.
    """
    names = nearest(word, known)
    if not names:
        return ""
    quoted = [f"'{name}'" for name in names]
    listed = quoted[0] if len(quoted) == 1 else f"{', '.join(quoted[:-1])} or {quoted[-1]}"
    return f" Did you mean {listed}?"


def hint(word: str, known: Iterable[str]) -> str:
    """Return a hint for a wrong name: the most similar ones, else all of a few known names.

    A long list would hide the error above it; the reader then finds the names in the manual page.
    """
    names = list(known)
    similar = did_you_mean(word, names)
    if similar or not names:
        return similar
    if len(names) > _LISTED:
        return " The manual page lists all names."
    return f" Known are: {', '.join(sorted(names))}."


def nearest(word: str, known: Iterable[str]) -> list[str]:
    """Return the names which the user may have meant, at most three."""
    if not word or len(word) > _MAX_LENGTH:
        return []
    names = [name for name in known if "\n" not in name]
    found = _one_letter_wrong(word, names)
    if not found and len(names) <= _FEW:
        found = _similar(word, names)
    shape = _NUMBERS.sub("#", word)
    return [
        name for name in found if name == word or _NUMBERS.sub("#", _as_long(name, word)) != shape
    ][:_SHOWN]


def _as_long(name: str, word: str) -> str:
    """Return the leading components of a host name, as many as the word has."""
    return ".".join(name.split(".")[: word.count(".") + 1])


def _one_letter_wrong(word: str, names: list[str]) -> list[str]:
    """Return the names which differ from the word in one letter, two swapped letters, or upper and
    lower case.

    The word may be the leading components of a name.
    """
    if len(word) < _MIN_LENGTH:
        # Too many names differ from a word of two letters in one letter.
        return [name for name in names if name.lower() == word.lower()]
    escaped = [re.escape(letter) for letter in word]
    forms = {re.escape(word)}
    for place in range(len(word)):
        before, after = "".join(escaped[:place]), "".join(escaped[place + 1 :])
        forms.add(f"{before}.?{after}")
        forms.add(f"{before}.{escaped[place]}{after}")
        if after:
            swapped = escaped[place + 1] + escaped[place] + "".join(escaped[place + 2 :])
            forms.add(f"{before}{swapped}")
    forms.add("".join(escaped) + ".")
    pattern = re.compile(rf"^(?:{'|'.join(sorted(forms))})(?:\..*)?$", re.MULTILINE | re.IGNORECASE)
    known = frozenset(names)
    return [match.group() for match in pattern.finditer("\n".join(names)) if match.group() in known]


def _similar(word: str, names: list[str]) -> list[str]:
    import difflib  # it takes time, and only mistakes need it

    by_form: dict[str, str] = {}
    for name in names:
        by_form.setdefault(_as_long(name, word).lower(), name)
        by_form.setdefault(name.lower(), name)
    found = difflib.get_close_matches(word.lower(), list(by_form), n=_SHOWN, cutoff=_CUTOFF)
    # Only the most similar one.
    return [by_form[found[0]]] if found else []
