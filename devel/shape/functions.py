"""Functions that are too long, too deep or too wide, and helpers that take a whole logical unit."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from devel.shape.source import Source, statements_in

#: Lines of a function, without its docstring.
LONG = 60
#: Statements with a body inside each other.
DEEP = 4
#: Parameters, with ``self``.
WIDE = 10
#: Annotations of a parameter which is a whole logical unit.
UNIT_TYPES = frozenset({"AnyUnit", "LogicalUnit"})

Function = ast.FunctionDef | ast.AsyncFunctionDef
BLOCKS = (ast.If, ast.For, ast.AsyncFor, ast.While, ast.With, ast.AsyncWith, ast.Try, ast.Match)


class Place(NamedTuple):
    """One function, and the number for which it is named."""

    file: str
    line: int
    name: str
    number: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line} {self.name} {self.number}"


def length(function: Function) -> int:
    """Return the number of lines of a function, without its docstring."""
    lines = (function.end_lineno or function.lineno) - function.lineno + 1
    first = function.body[0]
    if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant):
        lines -= (first.end_lineno or first.lineno) - first.lineno + 1
    return lines


def depth(node: ast.AST, level: int = 0) -> int:
    """Deepest level of statements with a body; ``elif`` is on the level of its ``if``."""
    deepest = level
    for child in statements_in(node):
        if isinstance(child, Function | ast.ClassDef):
            continue
        is_elif = isinstance(child, ast.If) and isinstance(node, ast.If) and node.orelse == [child]
        deeper = isinstance(child, BLOCKS) and not is_elif
        deepest = max(deepest, depth(child, level + deeper))
    return deepest


def width(function: Function) -> int:
    """Return the number of parameters which a function names."""
    arguments = function.args
    return len(arguments.posonlyargs) + len(arguments.args) + len(arguments.kwonlyargs)


def takes_unit(function: Function) -> bool:
    """Return True if a parameter is annotated as a whole logical unit."""
    arguments = function.args
    every = (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)
    return any(
        isinstance(one.annotation, ast.Name) and one.annotation.id in UNIT_TYPES for one in every
    )


def functions_of(sources: Iterable[Source]) -> Iterator[tuple[Source, Function]]:
    """Yield all functions and methods, also those inside others."""
    for source in sources:
        for node in source.nodes:
            if isinstance(node, Function):
                yield source, node


def long_functions(sources: Iterable[Source]) -> list[Place]:
    """Functions of more than :data:`LONG` lines, the longest first."""
    return _places(sources, length, LONG + 1)


def deep_functions(sources: Iterable[Source]) -> list[Place]:
    """Functions whose statements are nested deeper than :data:`DEEP`."""
    return _places(sources, depth, DEEP + 1)


def wide_functions(sources: Iterable[Source]) -> list[Place]:
    """Functions with :data:`WIDE` or more parameters."""
    return _places(sources, width, WIDE)


def unit_helpers(sources: Iterable[Source]) -> list[Place]:
    """Functions below ``cmdlib/ops`` which take a whole logical unit."""
    below = (source for source in sources if source.name.startswith("cmdlib/ops/"))
    return _places(below, takes_unit, 1)


def _places(
    sources: Iterable[Source], measure: Callable[[Function], int], least: int
) -> list[Place]:
    found = [
        Place(source.name, function.lineno, function.name, int(number))
        for source, function in functions_of(sources)
        if (number := measure(function)) >= least
    ]
    return sorted(found, key=lambda place: (-place.number, place))
