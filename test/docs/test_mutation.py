"""``doc/mutation.rst`` names tests which exist, for each promise that a fault once broke unseen."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from devel import mutation_record

ROOT = Path(__file__).resolve().parents[2]
TEXT = (ROOT / "doc/mutation.rst").read_text().partition(mutation_record.MARK)[0]
PROMISES = TEXT.partition("\nPromises which need a certain test\n")[2].partition("\nMeasured")[0]
#: A module below ``test/unit`` and the test in it; empty for the whole module.
NAMED = sorted(set(re.findall(r"``(?!test/)([a-z_/]+/test_\w+\.py)(?:::(\w+))?``", PROMISES)))
ITEMS = [
    item
    for item in re.split(r"(?m)^(?:\* |  - )", PROMISES)[1:]
    if not item.rstrip().endswith(").")
]


def test_there_are_promises() -> None:
    assert len(ITEMS) > 20


@pytest.mark.parametrize(("file", "name"), NAMED)
def test_a_named_test_exists(file: str, name: str) -> None:
    path = ROOT / "test/unit" / file
    if name:
        found = {
            node.name
            for node in ast.parse(path.read_text()).body
            if isinstance(node, ast.FunctionDef)
        }
        assert name in found
    else:
        assert path.is_file()


@pytest.mark.parametrize("item", ITEMS, ids=range(len(ITEMS)))
def test_each_promise_names_a_test(item: str) -> None:
    assert re.search(r"``(?!test/)[a-z_/]+/test_\w+\.py", item), item
