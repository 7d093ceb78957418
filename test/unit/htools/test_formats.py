"""Printed numbers: the decimal module, which the programs do not load, gives the same."""

from __future__ import annotations

import math
from decimal import Decimal, localcontext

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ganeti.htools import formats


@given(st.floats(allow_nan=False, allow_infinity=False), st.integers(0, 8))
@example(0.5, 0)
@example(1.5, 0)
@example(0.125, 2)
@example(-2.5e-8, 8)
@example(-0.0, 2)
@example(1e22, 4)
def test_the_shortest_form_is_rounded_to_decimals(value: float, digits: int) -> None:
    with localcontext() as context:
        context.prec = 400
        expected = Decimal(repr(value)).quantize(Decimal(1).scaleb(-digits))
        assert formats.fixed(value, digits) == format(expected, "f")


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_a_number_is_written_so_that_it_can_be_read_again(value: float) -> None:
    written = formats.number(value)
    assert float(written) == value
    assert "." in written
    assert ("e" in written) == (value != 0 and not 0.1 <= abs(value) < 1e7)


@pytest.mark.parametrize(
    ("value", "text"), [(math.nan, "NaN"), (math.inf, "Infinity"), (-math.inf, "-Infinity")]
)
def test_what_is_no_number_has_a_name(value: float, text: str) -> None:
    assert formats.fixed(value, 2) == formats.number(value) == text
