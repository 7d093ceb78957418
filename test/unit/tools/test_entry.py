"""What the entry points of the programs share."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from ganeti import errors
from ganeti.tools.entry import reports_errors


@reports_errors("some-tool")
def main(argv: Sequence[str] | None = None) -> int:
    """Fail as the argument says."""
    failures: dict[str, Exception] = {
        "error": errors.OpPrereqError("no such disk", errors.ECODE_NOENT),
        "system": FileNotFoundError(2, "No such file or directory", "/x"),
        "bug": ValueError("a bug"),
    }
    for word in argv or ():
        raise failures[word]
    return 7


@pytest.mark.parametrize(
    ("word", "text"),
    [
        ("error", "some-tool: no such disk\n"),
        ("system", "some-tool: [Errno 2] No such file or directory: '/x'\n"),
    ],
)
def test_an_error_is_one_line_and_the_exit_code_1(
    word: str, text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([word]) == 1
    assert capsys.readouterr() == ("", text)


def test_the_program_chooses_its_own_exit_code(capsys: pytest.CaptureFixture[str]) -> None:
    assert main() == 7
    assert capsys.readouterr() == ("", "")


def test_a_fault_of_the_program_stays_visible() -> None:
    with pytest.raises(ValueError, match="a bug"):
        main(["bug"])
