"""Marks which tell whether two machines see the same directory."""

from __future__ import annotations

import os

import pytest

from ganeti.utils import shared_dir


def test_marks(tmp_path):
    mine, theirs = tmp_path / "mine", tmp_path / "theirs"
    mine.mkdir()
    os.symlink(mine, theirs)
    other = tmp_path / "other"
    other.mkdir()
    shared_dir.mark(str(mine), "t1", "node-1")
    assert shared_dir.seen(str(theirs), "t1", ["node-2", "node-1"]) == ["node-1"]
    assert shared_dir.seen(str(theirs), "t2", ["node-1"]) == []
    for missing in (other, tmp_path / "missing"):
        assert shared_dir.seen(str(missing), "t1", ["node-1"]) == []
    shared_dir.unmark(str(theirs), "t1", "node-1")
    shared_dir.unmark(str(theirs), "t1", "node-1")
    shared_dir.unmark(str(tmp_path / "missing"), "t1", "node-1")
    assert os.listdir(mine) == []
    with pytest.raises(FileNotFoundError):
        shared_dir.mark(str(tmp_path / "missing"), "t1", "node-1")


def test_a_mark_waits_for_no_disk(tmp_path, monkeypatch):
    flushed = []
    for call in ("fsync", "fdatasync"):
        monkeypatch.setattr(os, call, flushed.append)
    shared_dir.mark(str(tmp_path), "t1", "node-1")
    assert shared_dir.seen(str(tmp_path), "t1", ["node-1"]) == ["node-1"]
    shared_dir.unmark(str(tmp_path), "t1", "node-1")
    assert flushed == []


def test_a_forgotten_mark_is_removed_by_the_next_one(tmp_path):
    for token in ("old", "recent"):
        shared_dir.mark(str(tmp_path), token, "gone")
    path = tmp_path / shared_dir.mark_name("old", "gone")
    now = os.stat(path).st_mtime
    os.utime(path, (now - 4000, now - 4000))
    (tmp_path / "data").write_text("x")
    shared_dir.mark(str(tmp_path), "new", "node")
    assert sorted(os.listdir(tmp_path)) == sorted(
        [shared_dir.mark_name("recent", "gone"), shared_dir.mark_name("new", "node"), "data"]
    )


@pytest.mark.parametrize("word", ["", "a/b", "..", "a.b", "x" * 101, "ä"])
def test_a_key_never_leads_elsewhere(tmp_path, word):
    with pytest.raises(ValueError, match="part of the name"):
        shared_dir.mark(str(tmp_path), "token", word)
    with pytest.raises(ValueError, match="part of the name"):
        shared_dir.seen(str(tmp_path), word, ["node"])


@pytest.mark.parametrize(
    ("sees", "wanted"),
    [
        ({}, []),
        ({"a": [], "b": []}, [["a"], ["b"]]),
        ({"a": ["b"], "b": [], "c": ["c"]}, [["a", "b"], ["c"]]),
        ({"a": [], "b": ["a"], "c": ["b"], "d": ["x"]}, [["a", "b", "c"], ["d"]]),
        ({"a": ["c"], "b": [], "c": ["a", "b"]}, [["a", "b", "c"]]),
    ],
)
def test_groups(sees, wanted):
    assert [sorted(one) for one in shared_dir.groups(sees)] == wanted
