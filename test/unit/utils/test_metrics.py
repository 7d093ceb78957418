"""Counters and histograms: what is counted, by many threads, and the limit of their memory."""

from __future__ import annotations

import json
import threading

import pytest

from ganeti.utils import metrics


@pytest.fixture(autouse=True)
def _own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics, "_ALL", [])


def test_a_counter() -> None:
    counter = metrics.Counter("ganeti_x", "help", ("a", "b"))
    assert metrics.snapshot() == []
    counter.add("1", "2")
    counter.add("1", "2", amount=2)
    assert metrics.snapshot() == [
        {"name": "ganeti_x", "kind": "counter", "help": "help", "labels": ["a", "b"],
         "series": [[["1", "2"], 3]]}
    ]  # fmt: skip


def test_a_counter_without_labels_begins_with_nothing() -> None:
    """Prometheus sees that a series grows, and not that it appears."""
    counter = metrics.Counter("ganeti_x", "help")
    assert counter.series() == [[[], 0]]
    counter.add()
    assert counter.series() == [[[], 1]]


@pytest.mark.parametrize(
    ("seconds", "place"), [(-5.0, 0), (0.0, 0), (0.001, 0), (0.0011, 1), (3600.0, 9), (1e9, 10)]
)
def test_a_duration_is_in_one_class(seconds: float, place: int) -> None:
    histogram = metrics.Histogram("ganeti_x_seconds", "help")
    histogram.observe(seconds)
    ((_labels, counts, total),) = histogram.series()
    assert [index for index, count in enumerate(counts) if count] == [place]
    assert total == max(0.0, seconds)
    (shown,) = metrics.snapshot()
    assert shown["bounds"] == list(metrics.BOUNDS_S) and len(counts) == len(shown["bounds"]) + 1


def test_many_threads_lose_nothing() -> None:
    counter, histogram = metrics.Counter("a", ""), metrics.Histogram("b_seconds", "")

    def work() -> None:
        for _ in range(1000):
            counter.add()
            histogram.observe(0.002)

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert counter.series() == [[[], 8000]]
    assert histogram.series()[0][1][1] == 8000


def test_labels_cannot_use_up_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics, "MAX_SERIES", 2)
    counter, histogram = metrics.Counter("a", "", ("l",)), metrics.Histogram("b", "", ("l",))
    for value in "xyzx":
        counter.add(value)
        histogram.observe(1.0, value)
    assert counter.series() == [[["x"], 2], [["y"], 1]]
    assert [row[0] for row in histogram.series()] == [["x"], ["y"]]


def test_what_was_taken_is_added_elsewhere_and_not_taken_again() -> None:
    counter = metrics.Counter("ganeti_x", "help", ("a",))
    plain, silent = metrics.Counter("ganeti_y", "help"), metrics.Counter("ganeti_z", "help")
    histogram = metrics.Histogram("ganeti_x_seconds", "help", ("a",))
    counter.add("1", amount=2)
    plain.add()
    histogram.observe(0.002, "1")
    histogram.observe(5.0, "2")
    before = metrics.snapshot()
    taken = json.loads(json.dumps(metrics.take()))
    assert [name for name, _series in taken] == ["ganeti_x", "ganeti_y", "ganeti_x_seconds"]
    assert metrics.take() == []
    assert (counter.series(), plain.series(), silent.series()) == ([], [[[], 0]], [[[], 0]])
    metrics.merge(taken)
    assert metrics.snapshot() == before
    metrics.merge([*taken, ["ganeti_of_another_release", [[[], 1]]]])
    assert counter.series() == [[["1"], 4]] and plain.series() == [[[], 2]]
    assert [sum(counts) for _labels, counts, _total in histogram.series()] == [2, 2]


def test_a_merge_keeps_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics, "MAX_SERIES", 2)
    histogram = metrics.Histogram("ganeti_x_seconds", "help", ("a",))
    for name in "abc":
        histogram.merge([[[name], [1] * (len(metrics.BOUNDS_S) + 1), 1.0]])
    assert [labels for labels, _counts, _total in histogram.series()] == [["a"], ["b"]]
