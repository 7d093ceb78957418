"""``doc/index.rst`` links every page of the documentation exactly once, and only existing pages."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

TOP = Path(__file__).resolve().parents[2]
DOC = TOP / "doc"
LINKS = re.findall(r"`[^`<]+<([^>`]+)>`__", (DOC / "index.rst").read_text(encoding="utf-8"))
PAGES = sorted(
    str(path.relative_to(DOC))
    for path in DOC.rglob("*.rst")
    if path != DOC / "index.rst" and DOC / "examples" not in path.parents
)
MANUAL = sorted(f"../man/{path.name}" for path in (TOP / "man").glob("*.rst"))


def test_there_are_links() -> None:
    assert len(LINKS) > 50


@pytest.mark.parametrize("link", LINKS)
def test_the_target_of_a_link_exists(link: str) -> None:
    assert (DOC / link).is_file()
    assert LINKS.count(link) == 1, f"{link} is linked more than once"


@pytest.mark.parametrize("page", [*PAGES, *MANUAL])
def test_a_page_is_linked(page: str) -> None:
    assert page in LINKS, f"add {page} to doc/index.rst, with one sentence about its content"
