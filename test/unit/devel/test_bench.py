"""Figures, budgets and comparison with an earlier run."""

from __future__ import annotations

from pathlib import Path

import pytest

from devel.bench import figures, placement
from devel.bench import program as bench
from devel.bench import queue as bench_queue
from ganeti import errors
from ganeti.htools.loading import request, text
from ganeti.wire import json


def test_figures() -> None:
    slow = figures.figure("x", "latency", "ms", [3, 1, 2], budget=2)
    assert (slow.value, slow.worst, slow.samples, slow.within_budget) == (2, 3, 3, True)
    fast = figures.figure("y", "rate", "jobs/s", [300, 100, 200], budget=500, more_is_better=True)
    assert (fast.value, fast.worst, fast.within_budget) == (200, 100, False)
    assert figures.figure("z", "free", "ms", [1]).within_budget is None


def test_ratio_above_one_is_better() -> None:
    latency = figures.figure("x", "latency", "ms", [2])
    rate = figures.figure("y", "rate", "jobs/s", [200], more_is_better=True)
    assert figures.ratio(latency, {"x": 4}) == 2
    assert figures.ratio(rate, {"y": 400}) == 0.5
    assert figures.ratio(rate, {"x": 4}) is None
    assert figures.ratio(rate, {"y": 0}) is None


def test_table() -> None:
    rows = [figures.figure("x", "latency", "ms", [2.25], budget=20)._replace(load=1.5)]
    assert figures.table(rows).splitlines() == [
        "What     Median   Worst  Budget  Within  Load",
        "latency  2.2 ms  2.2 ms   20 ms     yes   1.5",
    ]
    assert figures.table(rows, {"x": 4.5}).splitlines()[1].endswith("2.00")
    assert figures.table(rows, {}).splitlines()[1].endswith("-")


def test_a_saved_run_is_a_baseline(tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    path.write_text(json.dumps(figures.to_data([figures.figure("x", "latency", "ms", [2])])))
    assert figures.read_baseline(str(path)) == {"x": 2.0}


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"format": 1, "figures": 3}'])
def test_bad_baseline(tmp_path: Path, content: str) -> None:
    path = tmp_path / "run.json"
    path.write_text(content)
    with pytest.raises(errors.ConfigurationError, match="not the result of a bench run"):
        figures.read_baseline(str(path))
    path.write_text('{"format": 2}')
    with pytest.raises(errors.ConfigurationError, match="format 2"):
        figures.read_baseline(str(path))


def test_sections(capsys: pytest.CaptureFixture[str]) -> None:
    parse = bench._parser().parse_args
    assert parse([]).sections == bench.DEFAULT_SECTIONS
    assert parse(["--sections", "jobs,backlog"]).sections == ("jobs", "backlog")
    assert parse(["--sections", "all"]).sections == tuple(bench.SECTIONS)
    with pytest.raises(SystemExit):
        parse(["--sections", "jobs,x"])
    assert "there is no section 'x'" in capsys.readouterr().err


def test_percentile() -> None:
    assert bench_queue.percentile(range(100), 99) == 99
    assert bench_queue.percentile(range(1000), 99) == 990
    assert bench_queue.percentile([5], 50) == 5


def test_lists_are_measured_with_commands_that_exist() -> None:
    from devel.bench import lists as bench_query
    from devel.completion import tables
    from ganeti.client import PROGRAMS

    programs = {program.name: program for program in tables.load()}
    assert {name for name, _ in bench_query.FIRST_REQUESTS} == set(PROGRAMS)
    assert all(programs[name].find(command) for name, command in bench_query.FIRST_REQUESTS)


def test_growth_is_drawn_with_logarithmic_bars() -> None:
    drawn = placement.plot("hbal", [("10", 10.0, None), ("200", 100.0, 1000.0)], width=20)
    assert drawn.splitlines() == [
        "hbal",
        "10   ### 10 ms",
        "200  ########### 100 ms",
        "     oooooooooooooooooooo 1000 ms, original",
    ]


def test_made_up_clusters_are_complete() -> None:
    made = placement._make(4, 12)
    cluster = text.parse(placement._as_text(made))
    assert (len(cluster.nodes), len(cluster.instances)) == (4, 12)
    asked = request.parse(placement._as_request(made))
    assert [node.free_memory for node in asked.cluster.nodes] == [
        node.free_memory for node in cluster.nodes
    ]
    assert asked.new[0].required == 2


def test_each_step_after_the_first_is_measured() -> None:
    source = placement._as_text(placement._make(5, 30))
    assert len(placement._steps_ms(source, 3)) <= 3
