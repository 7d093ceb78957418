"""Messages to users have one form, and no word which a tired administrator has to think about.

The rule is in ``CONTRIBUTING.md``: lower case, no full stop at the end, the object and what
happened; a hint follows as a whole sentence. What needs judgement, whether a message names its
object, is for the reader; this test finds what a program can find.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

LIB = Path(__file__).resolve().parents[2] / "lib" / "ganeti"

LOG_METHODS = {"critical", "debug", "error", "exception", "info", "log", "warning"}
LOGGERS = {"_log", "log", "logging"}
#: What the programs of htools print is published, with another style.
PUBLISHED = ("client/htools/", "htools/")
#: Words which say less than they seem to, or are images; and what to write.
WORDS = {
    r"died|is dead|found dead": "has ended, and why",
    r"nobody (can tell|knows)|who knows": "it is not known",
    r"somebody": "the noun, or the passive voice",
    r"(call|process|thread|worker|(?<!with )(?<!to )%s) broke": "failed with an internal error",
    r"chores?": "task",
    r"greets?": "sends",
    r"oops|weird|silly|bogus|crap": "what is wrong",
    r"in its way": "what it waits for",
    r"(did not|does not|cannot) (like|want)": "refuses, and why",
    r"something (went )?wrong|unknown error|an error occurred": "what happened",
}
#: Beginnings of messages which have a capital: names, and texts which Ganeti published.
CAPITALS = re.compile(
    r"[A-Z0-9_]{2,}|I?Pv[46]|IPv[46]|Content-Length|Gluster volume|Diskless instance but|Command \{"
    r"|Opcode failure was requested|HTTP |[A-Z][\w-]+:"
)


class Message(NamedTuple):
    """A text which a user may read; a dot in braces stands for each value in it."""

    file: str
    line: int
    text: str


def text_of(node: ast.AST) -> str | None:
    """The text of an expression; None if it is not text."""
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) else None
    if isinstance(node, ast.JoinedStr):
        return "".join(
            str(part.value) if isinstance(part, ast.Constant) else "{.}" for part in node.values
        )
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        left, right = text_of(node.left), text_of(node.right)
        return None if left is None and right is None else (left or "{.}") + (right or "{.}")
    return None


def messages_of(source: str, file: str) -> Iterator[Message]:
    """The texts of errors that are raised, and of lines in logs."""
    for node in ast.walk(ast.parse(source)):
        found: list[ast.expr] = []
        if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call):
            found = node.exc.args
        elif (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr in LOG_METHODS
            and ast.unparse(node.func.value) in LOGGERS
        ):
            found = node.args[:2]
        for expression in found:
            text = text_of(expression)
            if text is not None and " " in text.strip():
                yield Message(file, expression.lineno, text)


def all_messages() -> list[Message]:
    return [
        message
        for path in sorted(LIB.rglob("*.py"))
        if not (file := str(path.relative_to(LIB))).startswith(PUBLISHED)
        for message in messages_of(path.read_text(encoding="utf-8"), file)
    ]


def problem_of(text: str) -> str | None:
    """What is wrong with a message; None if nothing is."""
    first = text.lstrip("* ")
    if first[:1].isupper() and not CAPITALS.match(first):
        return "begins with a capital"
    end = text.rstrip()
    sentences = re.split(r"[.?!][)'\"]* ", end)
    if end.endswith(".") and len(sentences) == 1 and "{.}" not in end and not end.endswith("..."):
        return "ends with a full stop, and has no hint"
    for words, better in WORDS.items():
        if found := re.search(rf"(?<!\w)({words})(?!\w)", text, re.IGNORECASE):
            return f"has {found[0]!r}; say {better}"
    return None


def test_messages_have_the_form_of_this_project() -> None:
    found = all_messages()
    assert len(found) > 2000
    wrong = [
        f"{one.file}:{one.line}: {problem}: {one.text}"
        for one in found
        if (problem := problem_of(one.text)) is not None
    ]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize(
    ("code", "part"),
    [
        ("raise Error(f'Instance {name} is not running')", "capital"),
        ("raise Error('instance is not running.')", "full stop"),
        ("_log.error('thread %s died of a bug', name)", "died"),
        ("raise Error('x: ' + 'nobody can tell')", "it is not known"),
        ("_log.exception('call of %s broke', peer)", "broke"),
        ("raise Error('an error occurred')", "what happened"),
    ],
)
def test_the_check_finds(code: str, part: str) -> None:
    (message,) = messages_of(code, "x.py")
    problem = problem_of(message.text)
    assert problem is not None and part in problem


@pytest.mark.parametrize(
    "code",
    [
        "raise Error(f'instance {name} is not running. Start it first.')",
        "raise Error(f'IPv6 gateway {address} needs a network')",
        "_log.warning('the connection to %s broke: %s', peer, err)",
        "raise Error(f'{path} is broken')",
    ],
)
def test_the_check_allows(code: str) -> None:
    (message,) = messages_of(code, "x.py")
    assert problem_of(message.text) is None
