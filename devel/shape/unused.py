"""Functions, methods and constants which nothing in the program names.

A definition has a caller when its name stands anywhere else in the program: as a name, an
attribute, an argument or a text of its own (``getattr``). Tests do not count. A decorator uses what
it decorates. So the check finds less than there is, and what it finds is nearly always true;
``unused-names`` lists the exceptions with their reasons.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterable, Iterator
from fnmatch import fnmatchcase
from pathlib import Path
from typing import NamedTuple

from devel.shape.source import Source

#: One exception per line: pattern of FILE:NAME, space, reason.
ALLOWED = Path(__file__).with_name("unused-names")


class Unused(NamedTuple):
    """A definition without a caller."""

    file: str
    line: int
    name: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line} {self.name}"


def unused(sources: Iterable[Source], programs: Iterable[Source]) -> list[Unused]:
    """Definitions in ``sources`` which neither ``sources`` nor ``programs`` name elsewhere."""
    sources = list(sources)
    named = Counter(name for source in (*sources, *programs) for name in _names(source))
    return [
        Unused(source.name, line, name)
        for source in sources
        for line, name in _definitions(source)
        if not named[name]
    ]


def allowed(text: str | None = None) -> dict[str, str]:
    """Read the exceptions: a pattern of ``FILE:NAME``, and its reason."""
    text = ALLOWED.read_text(encoding="utf-8") if text is None else text
    lines = (line.split(" ", 1) for line in text.splitlines() if not line.startswith("#"))
    return {parts[0]: parts[1].strip() for parts in lines if len(parts) == 2}


def matches(found: Unused, pattern: str) -> bool:
    """Return True if a pattern of ``unused-names`` means this definition."""
    return fnmatchcase(f"{found.file}:{found.name}", pattern)


def _definitions(source: Source) -> Iterator[tuple[int, str]]:
    for node in (*source.tree.body, *_class_bodies(source)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            if not node.decorator_list and not node.name.startswith("__"):
                yield node.lineno, node.name
        elif isinstance(node, ast.Assign):
            for target in node.targets:
                if isinstance(target, ast.Name) and target.id.isupper():
                    yield node.lineno, target.id
        elif isinstance(node, ast.AnnAssign) and node.value is not None:
            if isinstance(node.target, ast.Name) and node.target.id.isupper():
                yield node.lineno, node.target.id


def _class_bodies(source: Source) -> Iterator[ast.stmt]:
    """Yield the methods of all classes; their constants are often members of an enum."""
    for node in source.nodes:
        if isinstance(node, ast.ClassDef):
            yield from (inner for inner in node.body if isinstance(inner, ast.FunctionDef))


def _names(source: Source) -> Iterator[str]:
    for node in source.nodes:
        if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Store):
            yield node.id
        elif isinstance(node, ast.Attribute):
            yield node.attr
        elif isinstance(node, ast.keyword) and node.arg:
            yield node.arg
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            if node.value.isidentifier():
                yield node.value
