"""Guessing what a misspelt name was meant to be, for the hint behind an error.

Two ways, by the number of names known. Among few (commands, options, fields, groups) the most
similar one is taken. Among many (10,000 instances) only a slip of one letter counts, which a
regular expression finds in some milliseconds; a similarity of all of them would take half a
second. Names which differ in their numbers alone are never guessed: whoever asks for ``web9``
does not mean ``web8``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

_FEW = 500
_CUTOFF = 0.7
# Longer words are no names, and no slips.
_MAX_LENGTH = 80
_MIN_LENGTH = 3
_SHOWN = 3
_NUMBERS = re.compile(r"\d+")


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """A sentence with a blank in front, such as `` Did you mean 'web1.example.com'?``.

    :returns: the empty text when nothing is near.
    """
    names = nearest(word, known)
    if not names:
        return ""
    quoted = [f"'{name}'" for name in names]
    listed = quoted[0] if len(quoted) == 1 else f"{', '.join(quoted[:-1])} or {quoted[-1]}"
    return f" Did you mean {listed}?"


def nearest(word: str, known: Iterable[str]) -> list[str]:
    """The names that were probably meant, at most three."""
    if not word or len(word) > _MAX_LENGTH:
        return []
    names = [name for name in known if "\n" not in name]
    found = _one_slip(word, names)
    if not found and len(names) <= _FEW:
        found = _similar(word, names)
    shape = _NUMBERS.sub("#", word)
    return [
        name for name in found if name == word or _NUMBERS.sub("#", _as_long(name, word)) != shape
    ][:_SHOWN]


def _as_long(name: str, word: str) -> str:
    """As many leading components of a host name as the word has."""
    return ".".join(name.split(".")[: word.count(".") + 1])


def _one_slip(word: str, names: list[str]) -> list[str]:
    """Names which become the word by one wrong, missing, superfluous or swapped letter, or by case.

    The word may stand for the leading components of a name.
    """
    if len(word) < _MIN_LENGTH:
        # One letter away from a word of two letters is nearly everything.
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
    import difflib  # only mistakes pay for it

    by_form: dict[str, str] = {}
    for name in names:
        by_form.setdefault(_as_long(name, word).lower(), name)
        by_form.setdefault(name.lower(), name)
    found = difflib.get_close_matches(word.lower(), list(by_form), n=_SHOWN, cutoff=_CUTOFF)
    # Only the best, unless others are as good.
    return [by_form[found[0]]] if found else []
