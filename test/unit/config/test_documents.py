"""The rules for documents which programs keep in the cluster, and their place in the file."""

from __future__ import annotations

import dataclasses
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ganeti import errors
from ganeti.config import damaged, documents
from ganeti.config.text import ConfigText
from ganeti.config.verify import check
from ganeti.objects import ConfigData, KeptDocument, codec

from .samples import small_cluster

KEPT = KeptDocument(
    uuid="11111111-2222-4333-8444-555555555555",
    name="witness.json",
    text='{"a":1}',
    ctime=5.0,
    mtime=6.0,
    serial_no=3,
)


def with_document(**changed: object) -> ConfigData:
    kept = dataclasses.replace(KEPT, **changed)  # type: ignore[arg-type]
    return dataclasses.replace(small_cluster(), documents={kept.uuid: kept})


@pytest.mark.parametrize("name", ["", ".x", "a/b", "a b", "a" * 65, "ä", "a\n"])
def test_wrong_names(name: str) -> None:
    with pytest.raises(errors.ParameterError, match="cannot be the name"):
        documents.check(name, "{}")


@pytest.mark.parametrize(
    ("content", "fragment"),
    [
        ("", "is not JSON"),
        ("[]", "must be a JSON object"),
        ('{"a":1,"a":2}', "is not JSON"),
        ('{"a":"' + "x" * documents.MAX_BYTES + '"}', "at most 16384"),
    ],
)
def test_wrong_contents(content: str, fragment: str) -> None:
    with pytest.raises(errors.ParameterError, match=fragment):
        documents.check("a", content)


@given(st.integers(1, 3), st.sampled_from(["{}", '{"a":1}', '{"a":2}']), st.sampled_from("12"))
def test_other_states_have_other_tags(serial_no: int, content: str, first: str) -> None:
    """A content which was put back from a backup, or a new document, does not have the old tag."""
    other = dataclasses.replace(
        KEPT, uuid=first * 8 + KEPT.uuid[8:], text=content, serial_no=serial_no
    )
    assert (documents.tag(other) == documents.tag(KEPT)) == (other == KEPT)
    assert documents.matches(KEPT, [documents.tag(other)]) == (other == KEPT)
    assert documents.matches(KEPT, ['"x"', documents.ANY])


def test_the_file_names_documents_only_when_there_are_some() -> None:
    """A cluster without documents has the file of other versions."""
    data = with_document()
    text = ConfigText(data)
    found = json.loads(b"".join(text.render(data, ())))
    assert found["documents"][KEPT.uuid]["text"] == KEPT.text
    assert codec.from_dict(ConfigData, found) == data
    without = dataclasses.replace(data, documents={})
    found = json.loads(b"".join(text.render(without, [("documents", KEPT.uuid)])))
    assert "documents" not in found
    assert codec.from_dict(ConfigData, found) == without


def test_a_wrong_document_is_a_problem_and_stops_nothing() -> None:
    assert [one for one in check(with_document()) if "document" in one] == []
    (problem,) = (one for one in check(with_document(text="[]")) if "document" in one)
    assert problem == "document witness.json: the document must be a JSON object"
    raw = codec.to_dict(with_document())
    raw["documents"][KEPT.uuid]["text"] = 7
    data = damaged.decode(raw)
    assert data.documents == {}
    (problem,) = damaged.problems(data)
    assert "documents/" in problem
