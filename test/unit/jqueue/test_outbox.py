"""Tests of what is to be sent to a candidate."""

from __future__ import annotations

import pytest

from ganeti.jqueue import outbox
from ganeti.jqueue.outbox import Outbox


@pytest.fixture
def box(monkeypatch: pytest.MonkeyPatch) -> Outbox:
    """An outbox whose messages have at most ten bytes."""
    monkeypatch.setattr(outbox, "MESSAGE_BYTES", 10)
    return Outbox()


def test_newer_content_replaces_older_content(box: Outbox) -> None:
    box.add({"job-1": "old"}, [], 1, ended=False)
    box.add({"job-1": "new"}, [1], 2, ended=True)
    message = box.take()
    assert (message.files, message.archived, message.number) == ({"job-1": "new"}, [1], 2)
    assert box.empty


def test_only_the_last_message_completes_a_commit(box: Outbox) -> None:
    box.add({"job-1": "1234567", "job-2": "1234567"}, [3], 1, ended=False)
    first, last = box.take(), box.take()
    assert (list(first.files), first.archived, first.number) == (["job-1"], [], None)
    assert (list(last.files), last.archived, last.number) == (["job-2"], [3], 1)


def test_a_message_which_was_not_sent_does_not_replace_newer_content(box: Outbox) -> None:
    box.add({"job-1": "old", "job-2": "two"}, [1], 1, ended=False)
    message = box.take()
    box.add({"job-1": "new"}, [2], 2, ended=False)
    box.put_back(message)
    again = box.take()
    assert (again.files, again.archived) == ({"job-1": "new", "job-2": "two"}, [1, 2])


def test_lacking_files_which_do_not_fit_are_read_again(box: Outbox) -> None:
    box.add_lacking({}, ["job-1", "gone", "job-2", "job-3"], [4])
    message = box.take()
    message.read({"job-1": "12345", "job-2": "1234567", "job-3": "1"}.get)
    assert (message.files, message.names) == ({"job-1": "12345"}, ["job-2", "job-3"])
    box.put_back_rest(message)
    rest = box.take()
    assert (rest.names, rest.archived) == (["job-2", "job-3"], [4])


def test_a_lacking_file_which_has_changed_is_sent_once(box: Outbox) -> None:
    box.add({"job-1": "new"}, [], 1, ended=False)
    box.add_lacking({"version": "7"}, ["job-1", "job-2"], [])
    message = box.take()
    assert (list(message.files), message.names) == (["version", "job-1"], ["job-2"])


def test_it_knows_whether_all_its_jobs_have_ended(box: Outbox) -> None:
    box.add({"job-1": "1"}, [], 1, ended=True)
    assert box.ended
    box.add({"job-2": "2"}, [], 2, ended=False)
    assert not box.ended
    box.take()
    assert box.ended
