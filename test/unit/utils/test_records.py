"""Records: at run time they are like the data classes which type checkers see."""

from __future__ import annotations

import copy
import pickle
import sys
import typing

import pytest

from ganeti.utils.records import NamedTuple, field, record, replace
from ganeti.wire import json


@record(slots=True)
class Shelf:
    """A shelf."""

    name: str
    books: list[str] = field(default_factory=list)
    height: int = 3

    @property
    def full(self) -> bool:
        return len(self.books) > self.height


@record(frozen=True, slots=True)
class Label:
    text: str
    colour: str = "red"


def test_defaults_are_made_anew() -> None:
    one, other = Shelf("a"), Shelf("a")
    one.books.append("x")
    assert other.books == []
    assert (other.height, other.full) == (3, False)
    assert Shelf("b", ["y"], 0).full
    assert Shelf.__doc__ == "A shelf."


def test_equality_and_text() -> None:
    assert Shelf("a") == Shelf("a")
    assert Shelf("a") != Shelf("a", height=4)
    assert Shelf("a") != Label("a")
    assert repr(Label("a")) == "Label(text='a', colour='red')"
    with pytest.raises(TypeError):
        hash(Shelf("a"))


def test_a_frozen_record_is_a_key_and_cannot_change() -> None:
    label = Label("a")
    assert {label: 1}[Label("a", "red")] == 1
    with pytest.raises(AttributeError, match="colour"):
        label.colour = "blue"  # type: ignore[misc]
    with pytest.raises(AttributeError):
        del label.text
    assert replace(label, colour="blue") == Label("a", "blue")
    assert label.colour == "red"


def test_mistakes() -> None:
    with pytest.raises(TypeError):
        Label()  # type: ignore[call-arg]
    with pytest.raises(TypeError):
        Label("a", size=3)  # type: ignore[call-arg]
    with pytest.raises(AttributeError):
        Shelf("a").width = 3  # type: ignore[attr-defined]


def test_copies() -> None:
    shelf = Shelf("a", ["x"])
    other = copy.deepcopy(shelf)
    other.books.append("y")
    assert shelf.books == ["x"]


class Size(NamedTuple):
    """A size."""

    width: int
    height: int = 2

    @property
    def area(self) -> int:
        return self.width * self.height


class TypingSize(typing.NamedTuple):
    width: int
    height: int = 2


def test_named_tuples_are_like_those_of_typing() -> None:
    one, theirs = Size(3), TypingSize(3)
    assert one == theirs == (3, 2)
    assert hash(one) == hash(theirs)
    assert repr(one) == repr(theirs).replace("TypingSize", "Size")
    assert (one.width, one.height, one.area, Size.__doc__) == (3, 2, 6, "A size.")
    assert one._replace(height=5) == theirs._replace(height=5) == (3, 5)
    assert type(one._replace(width=1)) is Size
    assert one._asdict() == theirs._asdict()
    assert Size._fields == TypingSize._fields
    assert copy.deepcopy(one) == one
    assert pickle.loads(pickle.dumps(one)) == one
    match one:
        case Size(width, height):
            assert (width, height) == (3, 2)
    assert sys.getsizeof(one) == sys.getsizeof(theirs)
    assert json.dumps([one]) == json.dumps([theirs])


def test_named_tuples_refuse_what_those_of_typing_refuse() -> None:
    for kind in (Size, TypingSize):
        for make in (
            lambda kind=kind: kind(),
            lambda kind=kind: kind(1, 2, 3),
            lambda kind=kind: kind(1, depth=2),
        ):
            with pytest.raises(TypeError):
                make()
        # Python 3.13 made a type error of the error in the value.
        with pytest.raises((TypeError, ValueError), match="depth"):
            kind(1)._replace(depth=2)
        with pytest.raises(AttributeError):
            kind(1).width = 2
