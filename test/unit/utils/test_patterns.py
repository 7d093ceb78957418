"""A pattern with ``$`` is never used with ``match``: ``$`` also fits before a last new line."""

from __future__ import annotations

import ast
from pathlib import Path

LIB = Path(__file__).resolve().parents[3] / "lib" / "ganeti"


def patterns(tree: ast.Module) -> dict[str, str]:
    """Names of patterns of a module, with their texts."""
    found = {}
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Assign)
            and isinstance(node.targets[0], ast.Name)
            and isinstance(node.value, ast.Call)
            and ast.unparse(node.value.func) == "re.compile"
            and isinstance(node.value.args[0], ast.Constant)
        ):
            text = node.value.args[0].value
            found[node.targets[0].id] = text if isinstance(text, str) else text.decode()
    return found


def wrong_uses(source: str) -> list[str]:
    if ".match(" not in source:
        return []
    tree = ast.parse(source)
    known = patterns(tree)
    found = []
    for node in ast.walk(tree):
        if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)):
            continue
        if node.func.attr != "match":
            continue
        name = ast.unparse(node.func.value)
        text = known.get(name, "")
        if name == "re" and node.args and isinstance(node.args[0], ast.Constant):
            text = str(node.args[0].value)
        if text.endswith("$") and not text.endswith(r"\$"):
            found.append(f"line {node.lineno}: {text}")
    return found


def test_no_check_lets_a_new_line_through() -> None:
    wrong = {
        str(path.relative_to(LIB)): found
        for path in sorted(LIB.rglob("*.py"))
        if (found := wrong_uses(path.read_text(encoding="utf-8")))
        # They split lines, which have no new line.
        and str(path.relative_to(LIB)) not in ("storage/lvm/parse.py", "storage/drbd/parse.py")
    }
    assert wrong == {}


def test_the_search_finds_such_a_check() -> None:
    assert wrong_uses('import re\nX = re.compile("^a$")\nX.match("a\\n")\n')
    assert wrong_uses('import re\nre.match("^a$", "a\\n")\n')
    assert not wrong_uses('import re\nX = re.compile("^a$")\nX.fullmatch("a\\n")\n')
