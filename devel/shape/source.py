"""Read the Python files of a tree once, as text and as syntax trees."""

from __future__ import annotations

import ast
import gc
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path

TOP = Path(__file__).resolve().parents[2]
LIB = TOP / "lib" / "ganeti"


@dataclass(frozen=True)
class Source:
    """One Python file."""

    #: Relative to the directory that was read, with slashes.
    name: str
    text: str

    @cached_property
    def tree(self) -> ast.Module:
        """Syntax tree of the file."""
        return ast.parse(self.text, self.name)

    @cached_property
    def nodes(self) -> tuple[ast.AST, ...]:
        """All nodes of the tree; most figures need them, and a walk takes long."""
        return tuple(ast.walk(self.tree))

    @property
    def package(self) -> str:
        """First folder of the name, or the name of a module at the top."""
        return self.name.split("/")[0].removesuffix(".py")


@cache
def read(root: Path = LIB, package: str = "") -> tuple[Source, ...]:
    """Read all Python files below a directory once, sorted by name.

    :param package: read only this folder, such as ``jqueue`` or ``cmdlib/ops``; names stay relative
        to ``root``.
    """
    found = tuple(
        Source(str(path.relative_to(root)), path.read_text(encoding="utf-8"))
        for path in sorted((root / package).rglob("*.py"))
    )
    # Millions of nodes live until the end; each search for garbage among them takes a second.
    gc.disable()
    for source in found:
        assert source.nodes
    gc.freeze()
    gc.enable()
    return found


@cache
def programs(top: Path = TOP) -> tuple[Source, ...]:
    """Read the programs in Python outside of ``lib`` once: starters, and those of developers."""
    found = []
    for folder in ("daemons", "scripts", "tools", "devel", "doc/examples"):
        for path in sorted((top / folder).rglob("*")):
            if path.is_symlink() or not path.is_file() or path.suffix not in ("", ".py"):
                continue
            try:
                source = Source(str(path.relative_to(top)), path.read_text(encoding="utf-8"))
            except UnicodeDecodeError:
                continue
            first = source.text.split("\n", 1)[0]
            if path.suffix == ".py" or ("python" in first and _parses(source)):
                found.append(source)
    return tuple(found)


def statements_in(node: ast.AST) -> Iterator[ast.AST]:
    """Yield the statements directly inside a statement, handlers and cases among them."""
    for field in ("body", "orelse", "finalbody", "handlers", "cases"):
        yield from getattr(node, field, ())


def _parses(source: Source) -> bool:
    try:
        return bool(source.tree)
    except SyntaxError:
        return False


def code_lines(source: Source) -> Iterator[tuple[int, str]]:
    """Yield number and text of each line with code, without indentation.

    Empty lines, comments, import statements, docstrings and lines of punctuation are left out.
    """
    hidden: set[int] = set()
    for node in source.nodes:
        is_text = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        if is_text or isinstance(node, ast.Import | ast.ImportFrom):
            assert isinstance(node, ast.stmt)
            hidden.update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    for number, line in enumerate(source.text.splitlines(), 1):
        text = " ".join(line.split())
        if number in hidden or text.startswith("#") or not any(map(str.isalnum, text)):
            continue
        yield number, text
