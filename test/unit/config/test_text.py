"""The text in pieces, and how one text becomes the next."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ganeti.config import text
from ganeti.config.draft import CLUSTER
from ganeti.config.text import CHUNK, ConfigText, difference
from ganeti.objects import ConfigData, codec

from .samples import instance_of, small_cluster


def _apply(old: bytes, parts: list[Any]) -> bytes:
    return b"".join(
        part if isinstance(part, bytes) else old[part[0] : part[0] + part[1]] for part in parts
    )


def _with(data: ConfigData, numbers: set[int], **changes: Any) -> ConfigData:
    instances = {instance_of(number).uuid: instance_of(number, **changes) for number in numbers}
    return dataclasses.replace(
        data, serial_no=data.serial_no + 1, instances={**data.instances, **instances}
    )


def _without(data: ConfigData, numbers: set[int]) -> ConfigData:
    gone = {instance_of(number).uuid for number in numbers}
    return dataclasses.replace(
        data,
        serial_no=data.serial_no + 1,
        instances={uuid: instance for uuid, instance in data.instances.items() if uuid not in gone},
    )


def _keys(numbers: set[int]) -> set[tuple[str, str]]:
    return {("instances", instance_of(number).uuid) for number in numbers}


def test_little_is_new_when_little_changed() -> None:
    data = _with(small_cluster(), set(range(2, 5 * CHUNK)))
    text = ConfigText(data)
    old = text.render(data, ())
    changed = _with(data, {3}, os="other")
    new = text.render(changed, _keys({3}))
    parts = difference(old, new)
    assert _apply(b"".join(old), parts) == b"".join(new)
    assert len(parts) <= 5
    fresh = sum(len(part) for part in parts if isinstance(part, bytes))
    # Less than the instance which changed, and the end of the file; its neighbours are not new.
    assert fresh < 1000
    assert len(difference(new, new)) <= 2


_SETS = st.sets(st.integers(2, 3 * CHUNK), max_size=20)


@settings(max_examples=80, deadline=None)
@given(
    _SETS | st.just(set(range(2, CHUNK + 10))),
    st.lists(st.tuples(st.sampled_from(("put", "change", "drop", "cluster")), _SETS), max_size=8),
)
def test_any_changes(first: set[int], steps: list[tuple[str, set[int]]]) -> None:
    data = _with(small_cluster(), first)
    text = ConfigText(data)
    old = text.render(data, ())
    for name, numbers in steps:
        keys = _keys(numbers)
        if name == "drop":
            data = _without(data, numbers)
        elif name == "cluster":
            keys = {CLUSTER}
            data = dataclasses.replace(
                data, cluster=dataclasses.replace(data.cluster, tags=("x", *data.cluster.tags))
            )
        else:
            data = _with(data, numbers, os="linux" if name == "put" else "other")
        new = text.render(data, keys)
        whole = b"".join(new)
        assert json.loads(whole) == json.loads(json.dumps(codec.to_dict(data)))
        assert _apply(b"".join(old), difference(old, new)) == whole
        old = new


def test_an_emptied_first_chunk_leaves_no_comma(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text, "CHUNK", 1)
    table = text._Table({})
    monkeypatch.setattr(text.codec, "to_dict", lambda obj: obj)
    for name in ("a", "b", "c"):
        table.put(name, {})
    assert b"".join(table.pieces()) == b'"a":{},"b":{},"c":{}'
    table.put("a", None)
    assert b"".join(table.pieces()) == b'"b":{},"c":{}'
    table.put("b", None)
    table.put("a", {})
    assert sorted(b"".join(table.pieces()).split(b",")) == [b'"a":{}', b'"c":{}']
