"""What ``doc/design-conformance.rst`` names exists: modules and tests; each row is complete."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TEXT = (ROOT / "doc/design-conformance.rst").read_text(encoding="utf-8")
UNTRUE, _, TRUE = TEXT.partition("\nWhat is true\n")
#: Pairs of a module and a test, with the test's name where one test is meant.
ROWS = re.findall(
    r"``([a-z0-9_/]+\.py)`` +``((?:unit|scenario)/[a-z0-9_/]+\.py)(?:::(\w+))?``", TRUE
)
DOCUMENTS = (
    "Ganeti design 2.0",
    "Ganeti design 2.2",
    "Ganeti daemons refactoring",
    "HTools support for multiple storage units per node",
)


def test_every_row_of_what_is_true_was_read() -> None:
    assert len(ROWS) == TRUE.count("``unit/") + TRUE.count("``scenario/") > 80


@pytest.mark.parametrize(("module", "test", "name"), ROWS)
def test_module_and_test_exist(module: str, test: str, name: str) -> None:
    assert (ROOT / "lib/ganeti" / module).is_file()
    text = (ROOT / "test" / test).read_text(encoding="utf-8")
    assert f"def {name}(" in text if name else "def test" in text


@pytest.mark.parametrize("page", sorted(set(re.findall(r"``((?:doc/)?[\w-]+\.rst)``", TEXT))))
def test_pages_exist(page: str) -> None:
    # ``doc/locking.rst`` is named because it is not there.
    assert (ROOT / "doc" / page.removeprefix("doc/")).is_file() or page == "doc/locking.rst"


@pytest.mark.parametrize("document", DOCUMENTS)
def test_each_document_is_in_both_parts(document: str) -> None:
    heading = re.compile(rf"^{re.escape(document)}.*\n-+$", re.MULTILINE)
    assert heading.search(UNTRUE) and heading.search(TRUE)


def test_every_difference_has_its_reason() -> None:
    """The reason is the last of the three columns, and begins with one of three words."""
    column, inside, reasons = 0, 0, []
    for line in UNTRUE.splitlines():
        if re.fullmatch("=+ =+ =+", line):
            inside, column = (inside + 1) % 3, line.rindex(" ") + 1
        elif inside == 2 and line[:1].strip():
            reasons.append(line[column:])
    assert len(reasons) > 45
    words = ("superseded", "decided otherwise: ", "not there yet")
    assert [reason for reason in reasons if not reason.startswith(words)] == []


def test_what_is_missing_is_missing() -> None:
    """The change which adds it takes the sentence out of the page."""
    sentence = "The monitoring daemon runs on all nodes."
    assert (sentence in UNTRUE) != (ROOT / "lib/ganeti/mond").exists()
