"""``doc/design-data-safety.rst`` names places of the code and tests which exist, for every rule."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TEXT = (ROOT / "doc" / "design-data-safety.rst").read_text(encoding="utf-8")
RULES = {
    match[1]: match[2] for match in re.finditer(r"(?m)^([A-Z]\d+)\n((?:    .*\n|\n)+)", TEXT + "\n")
}
_NAME = re.compile(r"``([a-z0-9_/]+\.py)(?:::([\w.]+))?``")
#: Paths of code, each with the name in it (empty for the whole module).
PLACES = sorted({place for place in _NAME.findall(TEXT) if "test_" not in place[0]})


def names_in(path: Path) -> set[str]:
    """Functions, classes and methods of a module, methods as ``Class.method``."""
    found = set()
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            found.add(node.name)
        if isinstance(node, ast.ClassDef):
            found |= {
                f"{node.name}.{part.name}"
                for part in node.body
                if isinstance(part, ast.FunctionDef)
            }
    return found


def test_there_are_rules() -> None:
    assert len(RULES) > 15


def test_rules_are_numbered() -> None:
    for letter in {rule[0] for rule in RULES}:
        numbers = [int(rule[1:]) for rule in RULES if rule[0] == letter]
        assert numbers == list(range(1, len(numbers) + 1)), letter


@pytest.mark.parametrize("rule", RULES)
def test_a_rule_has_its_place_and_its_test(rule: str) -> None:
    enforced, shown = (
        RULES[rule].partition(f"\n    {word} by ")[2] for word in ("Enforced", "Shown")
    )
    assert any("test_" not in path for path, _name in _NAME.findall(enforced.partition("\n\n")[0]))
    assert any("test_" in path for path, _name in _NAME.findall(shown.partition("\n\n")[0]))


def test_references_to_rules_exist() -> None:
    named = set(re.findall(r"\b([APGDU]\d+)\b", TEXT))
    assert named == set(RULES)


@pytest.mark.parametrize(("file", "name"), PLACES)
def test_a_place_exists(file: str, name: str) -> None:
    path = ROOT / "lib" / "ganeti" / file
    if not path.is_file():
        path = ROOT / file
    assert path.is_file(), file
    assert not name or name in names_in(path), f"{file} has no {name}"
