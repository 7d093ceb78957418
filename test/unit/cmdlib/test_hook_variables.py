"""Variables of hooks: scripts get what was written, or can at least be run."""

from __future__ import annotations

import os

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ganeti.cmdlib.hooks import variable
from ganeti.utils import process


@given(st.text(max_size=60))
@example("two\nlines ='\"$x")
def test_a_text_is_given_unchanged(text):
    assert variable(text) == text.replace("\0", "?")
    assert os.fsencode(variable(text)).count(b"\0") == 0


@pytest.mark.programs
@pytest.mark.parametrize("value", ["a\0b", "a\ud800b"])
def test_a_value_which_no_environment_can_have(value):
    done = process.run(
        ["sh", "-c", 'printf %s "$X"'],
        timeout_s=60,
        env={"X": variable(value), "PATH": os.environ["PATH"]},
        exact_env=True,
    )
    assert done.stdout == "a?b"
