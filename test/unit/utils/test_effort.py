"""The work of one request has an end."""

from __future__ import annotations

import pytest

from ganeti import errors
from ganeti.utils import effort, text
from ganeti.utils.effort import Effort


def test_the_limit() -> None:
    one = Effort(limit=100)
    one.spend(60)
    one.spend(40)
    assert one.left == 0
    with pytest.raises(errors.ParameterError, match="more than 100 comparisons"):
        one.spend(1)
    one.renew()
    one.spend(100)


def test_it_asks_now_and_then_whether_the_work_is_wanted() -> None:
    asked = []

    def unwanted() -> str:
        asked.append(1)
        return "the client has gone" if len(asked) > 1 else ""

    one = Effort(unwanted=unwanted)
    one.spend(effort.LOOK_EVERY)
    assert not asked
    one.spend(1)
    assert len(asked) == 1
    one.spend(effort.LOOK_EVERY)
    with pytest.raises(errors.NoMasterError, match="the client has gone"):
        one.spend(1)
    assert len(asked) == 2


class Counted(list):
    """A list which notes that somebody reads it."""

    read = 0

    def __iter__(self):
        for item in super().__iter__():
            type(self).read += 1
            yield item


def test_a_value_for_a_message_is_not_written_whole() -> None:
    assert text.brief(["==", "name", 1]) == "['==', 'name', 1]"
    assert text.brief("web1") == "'web1'"
    shown = text.brief("x" * 10_000)
    assert len(shown) <= 84 and shown.startswith("'xxx")
    Counted.read = 0
    assert len(text.brief(Counted([1] * 10_000))) <= 84
    assert Counted.read <= 11
