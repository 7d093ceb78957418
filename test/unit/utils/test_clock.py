"""Times as texts."""

from __future__ import annotations

import pytest

from ganeti.utils import clock


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(-5, "0 s"), (0.9, "0 s"), (59.9, "59 s"), (61, "1 min 1 s"), (7500, "2 h 5 min")]
    + [(86400, "1 d"), (90061, "1 d 1 h")],
)
def test_a_span_of_time(seconds: float, text: str) -> None:
    assert clock.format_span(seconds) == text
