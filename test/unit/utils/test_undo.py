"""Steps are undone in reverse, and what stays behind is named."""

from __future__ import annotations

import pytest

from ganeti import errors
from ganeti.utils.undo import UndoStack


def test_undo_goes_backwards_and_only_on_failure():
    done = []
    with UndoStack() as undo:
        undo.add("a", done.append, "a")
        undo.commit()
    assert done == []
    with pytest.raises(ValueError, match="why"), UndoStack() as undo:
        undo.add("a", done.append, "a")
        undo.add("b", done.append, "b")
        raise ValueError("why")
    assert done == ["b", "a"]


def test_what_stays_behind_is_named():
    def stuck():
        raise errors.BlockDeviceError("busy")

    told = []
    done = []
    with pytest.raises(errors.OpExecError) as failed, UndoStack(told.append, hint="Do it.") as undo:
        undo.add("first", done.append, 1)
        undo.add("disk 7", stuck)
        raise errors.OpExecError("broken")
    assert str(failed.value) == "broken; left behind: disk 7 (busy). Do it."
    assert done == [1]
    assert told == ["could not be removed or undone: disk 7 (busy)"]


def test_a_bug_in_one_step_does_not_stop_the_others():
    done = []
    with pytest.raises(ZeroDivisionError), UndoStack() as undo:
        undo.add("first", done.append, 1)
        undo.add("bug", lambda: 1 // 0)
        raise errors.OpExecError("broken")
    assert done == [1]


def test_a_file_which_cannot_be_removed_is_named():
    def full():
        raise OSError(28, "No space left on device")

    undo = UndoStack()
    undo.add("the file", full)
    assert undo.take_back() == ["the file ([Errno 28] No space left on device)"]


def test_a_block_which_ends_without_commit_is_undone():
    done = []
    with UndoStack() as undo:
        undo.add("a", done.append, "a")
    assert done == ["a"]
