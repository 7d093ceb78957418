"""Mistakes in the options of the placement programs: the error is the first line, and is seen."""

from __future__ import annotations

import pytest

from .conftest import Run

_PROGRAMS = (
    "hail", "harep", "hbal", "hcheck", "hinfo", "hroller", "hscan", "hspace", "hsqueeze",
)  # fmt: skip


@pytest.mark.parametrize("name", _PROGRAMS)
def test_an_unknown_option_ends_with_a_short_hint(run: Run, name: str) -> None:
    code, out, err = run(name, "--no-such-option")
    assert (code, out) == (2, "")
    first, usage, hint = err.splitlines()
    assert first == "Command line error: unrecognized option `--no-such-option'"
    assert usage.startswith(f"Usage: {name} [OPTION...]")
    assert hint == f"Run '{name} --help' to see all options."


@pytest.mark.parametrize("name", _PROGRAMS)
def test_help_names_every_option(run: Run, name: str) -> None:
    code, out, err = run(name, "--help")
    assert (code, err) == (0, "")
    _, completion, _ = run(name, "--help-completion")
    options = {line.split()[0] for line in completion.splitlines() if line.startswith("--")}
    assert options
    assert all(option in out for option in options)
