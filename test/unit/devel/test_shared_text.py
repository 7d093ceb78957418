"""The text which simulated nodes share: the same as the bytes which it stands for."""

from __future__ import annotations

import random

import pytest

from devel.simnodes import shared_text
from devel.simnodes.shared_text import SharedText


@pytest.mark.parametrize("seed", range(30))
def test_it_is_the_same_as_plain_bytes(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_text, "_MAX_PARTS", 6)
    rng = random.Random(seed)
    plain = rng.randbytes(200)
    text = SharedText(plain)
    for _ in range(40):
        first, last = sorted(rng.randrange(len(plain) + 1) for _ in range(2))
        new = rng.randbytes(rng.randrange(20))
        before = text
        text = text.changed([(0, first), new, (last, len(plain) - last)])
        changed = plain[:first] + new + plain[last:]
        assert len(text) == len(changed)
        assert text.endswith(changed[-5:])
        assert not text.endswith(b"x" + changed)
        if rng.random() < 0.2:
            assert text.whole() == changed
            assert text.whole() is text.whole()
        # What others have is not changed.
        assert before.whole() == plain
        plain = changed
    assert text.whole() == plain


def test_a_part_which_is_not_inside() -> None:
    with pytest.raises(ValueError, match="4 bytes at 2"):
        SharedText(b"abc").changed([(2, 4)])
