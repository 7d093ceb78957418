"""Sentences about refused and failed operations are for people: without opcodes and UUIDs."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import ganeti

_LIB = Path(ganeti.__file__).parent
_CLASSES = ("errors.OpPrereqError", "errors.OpExecError")
_WORDS = re.compile(
    r"\bOP_[A-Z]|\bnode call\b|\bthis call\b|\b(?<!or )(?:uuid|UUID) \{|\bhas (?:uuid|UUID)\b"
)


def texts(source: str) -> Iterator[str]:
    """Yield the texts with which a module raises errors for people; values are in braces."""
    for node in ast.walk(ast.parse(source)):
        if (
            isinstance(node, ast.Call)
            and ast.unparse(node.func) in _CLASSES
            and node.args
            and isinstance(node.args[0], ast.JoinedStr | ast.Constant)
        ):
            yield ast.unparse(node.args[0])


def wrong(text: str) -> bool:
    return bool(_WORDS.search(text) or ".OP_ID" in text)


def test_sentences_of_operations() -> None:
    found = [
        f"{path.relative_to(_LIB)}: {text}"
        for package in ("cmdlib", "backend", "allocator")
        for path in sorted((_LIB / package).rglob("*.py"))
        for text in texts(path.read_text(encoding="utf-8"))
        if wrong(text)
    ]
    assert found == []


def test_what_is_found() -> None:
    source = (
        'raise errors.OpExecError(f"{op.OP_ID} failed")\n'
        'raise errors.OpPrereqError("see OP_BACKUP_PREPARE", 1)\n'
        'raise errors.OpPrereqError(f"node {n.name} has UUID {n.uuid}", 1)\n'
        'raise errors.OpPrereqError(f"node {n.name} is offline", 1)\n'
    )
    assert [wrong(text) for text in texts(source)] == [True, True, True, False]
