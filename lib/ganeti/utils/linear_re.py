"""Search with regular expressions of other people, in time which grows linearly with the text.

The module ``re`` tries one way to match after the other. Some expressions have so many of them
that a search takes years, during which no other thread runs, and a search cannot be interrupted.
:class:`Pattern` follows all ways at once: each character of a text is read once. The syntax is that
of ``re`` (its parser is used), so that an expression has the same result here and there.

These parts of the syntax need the other method and are refused: references to groups (``\\1``),
look-ahead and look-behind (``(?=...)``, ``(?!...)``, ``(?<=...)``, ``(?<!...)``), conditional
groups, atomic groups and possessive repeats. The answer is only "matches" or "does not match",
without groups.

How it works: the expression becomes a list of steps (a nondeterministic automaton); a *state* is
the set of steps which are possible after the characters read so far. The state which follows for a
character is computed once and remembered, so that nearly every character costs one look-up. What is
remembered is limited in size, and so is the work which is not covered by it: see :data:`FREE_WORK`.

Who uses several expressions of one author (a filter, the rules of the queue) gives them one
:class:`Budget`, because each of a thousand expressions would be within the limits of one.

Why no library: ``regex`` 2026 has a deadline for a search, and none for its compiler.
``((a?){1000}){1000}c`` takes 1.8 s and 987 MiB to compile, and ``(a(?1)?b?)c`` 746 MiB within a
search of one second; each of them would end the master daemon. ``google-re2`` has limits for both,
but Debian 12 has no package of it.

Source: K. Thompson, *Regular Expression Search Algorithm*, 1968; Python documentation, *re*.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Iterable
from functools import partial

# The parser has no public name, but reading the syntax a second time would make two syntaxes of it.
# An operator which this module does not know is refused.
from re import _constants, _parser  # type: ignore[attr-defined]
from typing import Any, Final

from ganeti import errors
from ganeti.utils.effort import Effort
from ganeti.utils.text import brief

#: The longest expression, in characters.
MAX_CHARS: Final = 20_000
#: The largest number of steps of an expression; ``x{100}`` has 100.
MAX_STEPS: Final = 20_000
#: Work in steps which a pattern may cause, besides :data:`WORK_PER_CHAR` for each character which
#: it has read; the search which exceeds this is refused.
FREE_WORK: Final = 2_000_000
WORK_PER_CHAR: Final = 100
# A character costs one look-up when its step is remembered; so many of them are a unit of work.
_CHARS_PER_UNIT: Final = 8
# Size of what is remembered, in numbers of steps and of successors.
_MAX_REMEMBERED: Final = 200_000

_MULTILINE, _DOTALL, _IGNORECASE, _ASCII = (
    int(flag) for flag in (re.MULTILINE, re.DOTALL, re.IGNORECASE, re.ASCII)
)

# What stands before or after a place in the text.
_EDGE, _LAST_NEWLINE, _NEWLINE, _ASCII_WORD, _WORD, _OTHER = range(6)

_UNSUPPORTED: Final = {
    "GROUPREF": "references to groups",
    "GROUPREF_EXISTS": "conditional groups",
    "ASSERT": "look-ahead and look-behind",
    "ASSERT_NOT": "look-ahead and look-behind",
    "ATOMIC_GROUP": "atomic groups",
    "POSSESSIVE_REPEAT": "possessive repeats",
}

_Test = Callable[[str], bool]
_Place = Callable[[int, int], bool]


class _Step:
    """One step: a test of a character, a test of a place, or only further steps.

    :ivar char: must hold for the next character, which is then read.
    :ivar place: must hold for what stands before and after the present place.
    :ivar then: the steps which follow; none follow the last step.
    """

    __slots__ = ("char", "place", "then")

    def __init__(
        self,
        then: Iterable[_Step] = (),
        *,
        char: _Test | None = None,
        place: _Place | None = None,
    ) -> None:
        self.then = list(then)
        self.char = char
        self.place = place


class _State:
    """The steps which are possible after some characters, and the states which follow."""

    __slots__ = ("before", "next", "steps")

    def __init__(self, steps: frozenset[_Step], before: int) -> None:
        self.steps = steps
        self.before = before
        self.next: dict[str, _State] = {}


_MATCH, _FAILURE = _State(frozenset(), _EDGE), _State(frozenset(), _EDGE)
# Besides single characters, states have successors for a new line at the very end and for the end.
_FINAL_NEWLINE, _END = "\n$", ""


class Budget:
    """What several expressions may have together: as much as one which stands alone.

    :ivar effort: counts the work of searches in steps, in addition to the limit of each expression.
    :ivar chars_left: characters which further expressions may have.
    :ivar steps_left: steps which they may have.
    :ivar remembered: size of what all of them remember.
    """

    __slots__ = ("chars_left", "effort", "remembered", "steps_left")

    def __init__(self, effort: Effort | None = None) -> None:
        self.effort = effort
        self.chars_left = MAX_CHARS
        self.steps_left = MAX_STEPS
        self.remembered = 0


class Pattern:
    """A compiled regular expression.

    :param text: the expression.
    :param budget: what it shares with others; None for one that stands alone.
    :raises errors.ParameterError: it is wrong, too large, or needs more than linear time.
    """

    def __init__(self, text: str, budget: Budget | None = None) -> None:
        self._budget = budget or Budget()
        self._effort = self._budget.effort
        self._remembered = 0
        self._classes: dict[tuple[int, int], _Test] = {}
        if len(text) > MAX_CHARS:
            raise errors.ParameterError(
                f"the regular expression has {len(text)} characters; {MAX_CHARS} are allowed"
            )
        self._budget.chars_left -= len(text)
        if self._budget.chars_left < 0:
            raise errors.ParameterError(
                f"the regular expressions together have more than {MAX_CHARS} characters"
            )
        try:
            parsed = _parser.parse(text)
            self._build(parsed)
        except (re.error, OverflowError, ValueError) as err:
            raise errors.ParameterError(f"bad regular expression {brief(text)}: {err}") from err
        except RecursionError as err:
            raise errors.ParameterError(
                f"bad regular expression {brief(text)}: it is nested too deeply"
            ) from err
        self._classes.clear()
        self._text = text
        self._work = 0
        self._credit = FREE_WORK
        self._forget()

    def search(self, text: str) -> bool:
        """Return whether the expression matches a part of a text.

        :raises errors.ParameterError: it takes too much work.
        """
        return self._run(self._anywhere, text)

    def fullmatch(self, text: str) -> bool:
        """Return whether the expression matches a whole text.

        :raises errors.ParameterError: it takes too much work.
        """
        return self._run(self._whole, text)

    # -- compiling -------------------------------------------------------------------------------

    def _build(self, parsed: Any) -> None:
        self._has_places = False
        flags = parsed.state.flags
        end = self._place(lambda before, after: after == _EDGE, _Step())
        self._whole = self._sequence(parsed, flags, end)
        # Any characters may stand before the first one which matches.
        self._anywhere = _Step()
        self._anywhere.then = [
            self._sequence(parsed, flags, _Step()),
            _Step([self._anywhere], char=lambda char: True),
        ]

    def _sequence(self, items: Any, flags: int, after: _Step) -> _Step:
        """Return the first step of a sequence which is followed by ``after``."""
        self._spend()
        for operator, argument in reversed(items.data):
            after = self._item(str(operator), argument, flags, after)
        return after

    def _spend(self) -> None:
        self._budget.steps_left -= 1
        if self._budget.steps_left < 0:
            raise ValueError(
                f"it has more than {MAX_STEPS} steps, alone or together with the others"
            )

    def _item(self, operator: str, argument: Any, flags: int, after: _Step) -> _Step:
        self._spend()
        if operator in ("LITERAL", "NOT_LITERAL", "ANY", "IN"):
            return _Step([after], char=self._test(operator, argument, flags))
        if operator == "AT":
            return self._place(_place_test(str(argument), flags), after)
        if operator == "SUBPATTERN":
            _group, added, removed, inner = argument
            return self._sequence(inner, (flags | added) & ~removed, after)
        if operator == "BRANCH":
            return _Step([self._sequence(branch, flags, after) for branch in argument[1]])
        if operator in ("MAX_REPEAT", "MIN_REPEAT"):
            least, most, inner = argument
            return self._repeat(least, most, inner, flags, after)
        raise ValueError(
            f"{_UNSUPPORTED.get(operator, operator)} cannot be used here, because such an"
            " expression may take unlimited time"
        )

    def _test(self, operator: str, argument: Any, flags: int) -> _Test:
        """Return the test of a character; that of a set is made once for all its repeats."""
        if operator != "IN":
            return _char_test(operator, argument, flags)
        key = id(argument), flags
        found = self._classes.get(key)
        if found is None:
            found = self._classes[key] = _char_test(operator, argument, flags)
        return found

    def _repeat(self, least: int, most: int, inner: Any, flags: int, after: _Step) -> _Step:
        first = after
        if most == _constants.MAXREPEAT:
            first = _Step()
            first.then = [self._sequence(inner, flags, first), after]
        else:
            for _ in range(most - least):
                first = _Step([self._sequence(inner, flags, first), after])
        for _ in range(least):
            first = self._sequence(inner, flags, first)
        return first

    def _place(self, test: _Place, after: _Step) -> _Step:
        self._has_places = True
        return _Step([after], place=test)

    # -- searching -------------------------------------------------------------------------------

    def _forget(self) -> None:
        self._states: dict[tuple[frozenset[_Step], int], _State] = {}
        self._budget.remembered -= self._remembered
        self._remembered = 0

    def _remember(self, size: int) -> None:
        self._remembered += size
        self._budget.remembered += size

    def _run(self, first: _Step, text: str) -> bool:
        self._credit += WORK_PER_CHAR * len(text)
        if self._effort is not None:
            self._effort.spend(1 + len(text) // _CHARS_PER_UNIT)
        state = self._state(frozenset((first,)), _EDGE)
        ends_line = text.endswith("\n")
        for char in text[:-1] if ends_line else text:
            after = state.next.get(char)
            if after is None:
                after = self._advance(state, char, char)
            if after is _MATCH or after is _FAILURE:
                return after is _MATCH
            state = after
        if ends_line:
            state = state.next.get(_FINAL_NEWLINE) or self._advance(state, _FINAL_NEWLINE, "\n")
            if state is _MATCH or state is _FAILURE:
                return state is _MATCH
        return (state.next.get(_END) or self._advance(state, _END, "")) is _MATCH

    def _state(self, steps: frozenset[_Step], before: int) -> _State:
        key = steps, before if self._has_places else _OTHER
        found = self._states.get(key)
        if found is None:
            if self._budget.remembered > _MAX_REMEMBERED:
                self._forget()
            found = self._states[key] = _State(steps, before)
            self._remember(len(steps))
        return found

    def _advance(self, state: _State, key: str, char: str) -> _State:
        """Compute and remember the state after one more character, or after the end."""
        after = _LAST_NEWLINE if key == _FINAL_NEWLINE else _kind(char)
        possible: set[_Step] = set()
        seen = set(state.steps)
        waiting = list(state.steps)
        matches = False
        while waiting:
            step = waiting.pop()
            if step.char is not None:
                if char and step.char(char):
                    possible.update(step.then)
                continue
            if step.place is not None and not step.place(state.before, after):
                continue
            if not step.then:
                matches = True
                break
            fresh = set(step.then) - seen
            seen.update(fresh)
            waiting += fresh
        self._work += len(seen)
        if self._effort is not None:
            self._effort.spend(len(seen))
        if self._work > self._credit:
            raise errors.ParameterError(
                f"regular expression {brief(self._text)} takes too much work. Write a simpler"
                " one, for example with smaller numbers of repeats."
            )
        if matches:
            found = _MATCH
        elif not possible:
            found = _FAILURE
        else:
            found = self._state(frozenset(possible), _kind(char))
        state.next[key] = found
        self._remember(1)
        return found


def _kind(char: str) -> int:
    if not char:
        return _EDGE
    if char == "\n":
        return _NEWLINE
    if not (char.isalnum() or char == "_"):
        return _OTHER
    return _ASCII_WORD if char.isascii() else _WORD


def _place_test(name: str, flags: int) -> _Place:
    if name in ("AT_BEGINNING", "AT_BEGINNING_STRING"):
        if name == "AT_BEGINNING" and flags & _MULTILINE:
            return lambda before, after: before in (_EDGE, _NEWLINE)
        return lambda before, after: before == _EDGE
    if name == "AT_END":
        ends = (_EDGE, _LAST_NEWLINE, *((_NEWLINE,) if flags & _MULTILINE else ()))
        return lambda before, after: after in ends
    if name == "AT_END_STRING":
        return lambda before, after: after == _EDGE
    words = (_ASCII_WORD,) if flags & _ASCII else (_ASCII_WORD, _WORD)
    if name == "AT_BOUNDARY":
        return lambda before, after: (before in words) != (after in words)
    if name == "AT_NON_BOUNDARY":
        # In an empty text, "re" finds neither.
        return lambda before, after: (
            (before in words) == (after in words) and not before == after == _EDGE
        )
    raise ValueError(f"{name} is not known")


def _char_test(operator: str, argument: Any, flags: int) -> _Test:
    if operator == "ANY":
        return (lambda char: True) if flags & _DOTALL else (lambda char: char != "\n")
    if operator == "IN":
        members = [(str(name), value) for name, value in argument]
        negated = members[0][0] == "NEGATE"
        test = _member_test(members[1:] if negated else members, flags)
    else:
        negated = operator == "NOT_LITERAL"
        test = _member_test([("LITERAL", argument)], flags)
    return (lambda char: not test(char)) if negated else test


def _member_test(members: list[tuple[str, Any]], flags: int) -> _Test:
    ascii_only = bool(flags & _ASCII)
    singles: set[str] = set()
    ranges: list[tuple[str, str]] = []
    kinds: dict[str, _Test] = {}
    for name, value in members:
        if name == "LITERAL":
            singles.add(chr(value))
        elif name == "RANGE":
            ranges.append((chr(value[0]), chr(value[1])))
        elif name == "CATEGORY":
            kinds[str(value)] = _category_test(str(value), ascii_only)
        else:
            raise ValueError(f"{name} is not known")
    if flags & _IGNORECASE:
        for single in list(singles):
            singles |= _cases(single, ascii_only)

    # A set of thousands of ranges must not take longer than another step.
    lows, highs = _joined(ranges)

    def holds(char: str) -> bool:
        place = bisect_right(lows, char)
        return (
            char in singles
            or (place > 0 and char <= highs[place - 1])
            or any(test(char) for test in kinds.values())
        )

    if not flags & _IGNORECASE:
        return holds if ranges or kinds else singles.__contains__
    return lambda char: any(holds(one) for one in _cases(char, ascii_only))


def _joined(ranges: Iterable[tuple[str, str]]) -> tuple[list[str], list[str]]:
    """Return the first and the last characters of ranges, in order and without overlaps."""
    lows: list[str] = []
    highs: list[str] = []
    for low, high in sorted(ranges):
        if highs and low <= highs[-1]:
            highs[-1] = max(highs[-1], high)
        else:
            lows.append(low)
            highs.append(high)
    return lows, highs


def _cases(char: str, ascii_only: bool) -> set[str]:
    """Return a character with its upper and lower cases."""
    if ascii_only and not char.isascii():
        return {char}
    low, high = char.lower(), char.upper()
    found = {char, low, high, low.upper(), high.lower()}
    return {one for one in found if len(one) == 1 and (one.isascii() or not ascii_only)}


def _category_test(name: str, ascii_only: bool) -> _Test:
    negated = name.startswith("CATEGORY_NOT_")
    test = _CATEGORIES.get(name.replace("NOT_", ""))
    if test is None:
        raise ValueError(f"{name} is not known")
    return partial(_in_category, test, ascii_only, negated)


def _in_category(test: _Test, ascii_only: bool, negated: bool, char: str) -> bool:
    return (test(char) and (char.isascii() or not ascii_only)) != negated


_CATEGORIES: Final[dict[str, _Test]] = {
    "CATEGORY_DIGIT": str.isdecimal,
    "CATEGORY_SPACE": str.isspace,
    "CATEGORY_WORD": lambda char: char.isalnum() or char == "_",
}
