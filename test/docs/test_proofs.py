"""The tests which ``doc/*-proofs.rst`` and ``doc/design-data-safety.rst`` name exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TEXT = "".join(
    path.read_text(encoding="utf-8")
    for path in (*sorted((ROOT / "doc").glob("*-proofs.rst")), ROOT / "doc/design-data-safety.rst")
)
NAMED = sorted(set(re.findall(r"``([a-z0-9_/]*test_[a-z0-9_]+\.py)(?:::(\w+))?``", TEXT)))


def test_something_is_named() -> None:
    assert len(NAMED) > 100


@pytest.mark.parametrize(("file", "test"), NAMED)
def test_it_exists(file: str, test: str) -> None:
    found = [
        path
        for path in (ROOT / "test").rglob(file.rpartition("/")[2])
        if str(path.relative_to(ROOT)).endswith(f"/{file}") or str(path.relative_to(ROOT)) == file
    ]
    assert found, f"no file {file}"
    if "/" in file:
        assert len(found) == 1, f"{file} is not the name of one file"
    if test:
        assert any(f"def {test}(" in path.read_text(encoding="utf-8") for path in found), (
            f"no test {test} in {file}"
        )
