"""Texts made of parts of a file: whatever is changed, the bytes are those of the joined texts."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ganeti.configfile.content import Change, Content, Part

_BASE = bytes(range(97, 123)) * 3


def _bytes(content: Content, base: bytes = _BASE) -> bytes:
    return b"".join(
        part if isinstance(part, bytes) else base[part[0] : part[0] + part[1]]
        for part in content.parts
    )


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_any_changes(data: st.DataObject) -> None:
    content, whole = Content.of_file(len(_BASE)), _BASE
    for _ in range(data.draw(st.integers(1, 6))):
        parts: list[Part] = []
        for _ in range(data.draw(st.integers(0, 5))):
            offset = data.draw(st.integers(0, len(whole)))
            length = data.draw(st.integers(0, len(whole) - offset))
            parts.append(data.draw(st.sampled_from([(offset, length), b"XY", b""])))
        content = content.changed(parts)
        whole = b"".join(
            part if isinstance(part, bytes) else whole[part[0] : part[0] + part[1]]
            for part in parts
        )
        assert (_bytes(content), content.size) == (whole, len(whole))


def test_adjacent_parts_are_joined() -> None:
    content = Content.of_file(78).changed([(0, 5), (5, 3), b"a", b"b", (20, 0), (8, 2)])
    assert content.parts == [(0, 8), b"ab", (8, 2)]


@pytest.mark.parametrize("part", [(-1, 2), (0, 79), (78, 1), (5, -1), (500, 0)])
def test_a_range_outside(part: tuple[int, int]) -> None:
    with pytest.raises(ValueError, match="are not in a text of 78 bytes"):
        Content.of_file(78).changed([part])


def test_what_is_new() -> None:
    assert Change(5, b"x", [(0, 2), b"abc", (1, 2), b"d"], 8).fresh_bytes == 4
