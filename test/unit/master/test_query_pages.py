"""Pages of lists over the real tables of fields: whom the master asks, and when it need not ask."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from ganeti import errors
from ganeti.master.queries import pages
from unit.master.test_queries import change_node, context

__all__ = ["context"]


def ask(context: Any, what: str, fields: list[str], qfilter: Any = None, **page: Any) -> Any:
    return pages.query_page(context, what, fields, qfilter, page)


def names(found: Any) -> list[str]:
    return [row[0][1].split(".")[0] for row in found["answer"]["data"]]


def test_a_page_of_instances(context):
    found = ask(context, "instance", ["name"], limit=3)
    assert names(found) == ["instance1", "instance2", "instance3"]
    assert (found["total"], found["next"]) == (10, ["instance3.example.com"])
    found = ask(context, "instance", ["name"], limit=9, after=found["next"])
    assert names(found) == [f"instance{n}" for n in (4, 5, 6, 7, 8, 21, 23)]
    assert found["next"] is None
    assert context.rpc.calls == []


def test_a_filter_is_a_text_or_a_list(context):
    text = 'be/maxmem >= 128 and name =* "instance?"'
    listed = ["&", [">=", "be/maxmem", 128], ["=~", "name", "^instance[0-9][.]"]]
    for qfilter in (text, listed):
        found = ask(context, "instance", ["name"], qfilter, order="-be/maxmem", limit=2)
        assert names(found) == ["instance2", "instance1"]
    by_node = ask(context, "instance", ["name", "pnode"], order="pnode,-name", limit=100)
    rows = [(row[1][1], row[0][1]) for row in by_node["answer"]["data"]]
    assert [node for node, _ in rows] == sorted(node for node, _ in rows)


def test_only_the_nodes_of_the_page_are_asked(context):
    context.rpc.answers = {("all_instances_info", f"node{n}.example.com"): {} for n in range(1, 5)}
    found = ask(context, "instance", ["name", "status"], limit=1)
    asked = {node for _, node, _ in context.rpc.calls}
    assert names(found) == ["instance1"] and len(asked) < 3
    context.rpc.calls.clear()
    ask(context, "instance", ["name", "status"], order="status", limit=1)
    assert {node for _, node, _ in context.rpc.calls} > asked


def test_a_node_which_does_not_answer_hides_no_object(context):
    """An instance whose state is not known passes a filter of states, and is on some page."""
    change_node(context, "node2.example.com", offline=True)
    context.rpc.answers = {("all_instances_info", f"node{n}.example.com"): {} for n in (1, 3, 4)}
    found = ask(context, "instance", ["name", "oper_ram"], "oper_ram > 5", order="-oper_ram")
    assert found["total"] == len(names(found)) > 0


def test_jobs_are_read_whole_for_the_page_alone(context):
    found = ask(context, "job", ["id", "status", "summary"], order="-id", limit=2)
    assert [row[0][1] for row in found["answer"]["data"]] == [10, 3]
    assert (found["total"], found["next"]) == (3, [3, 3])
    assert context.queue.asked == [
        (None, ["id"], False),
        ([10, 3], ["id", "status", "summary"], False),
    ]
    found = ask(context, "job", ["id"], order="-id", limit=2, after=[3, 3])
    assert [row[0][1] for row in found["answer"]["data"]] == [2]
    assert found["state"] is None


def test_a_list_with_archived_jobs(context):
    ask(context, "job", ["id", "archived"], limit=2)
    assert context.queue.asked[0][2] is True


def test_the_state_of_the_configuration(context):
    first = ask(context, "node", ["name", "role"], 'role == "M"')["state"]
    assert first is not None
    same = ask(context, "node", ["name", "role"], 'role == "M"', known=first)
    assert (same["answer"], same["state"]) == (None, first)
    config = context.rpc.config
    for changes in ({"serial_no": config.serial_no + 1}, {"mtime": config.mtime + 0.25}):
        context.rpc.config = dataclasses.replace(config, **changes)
        other = ask(context, "node", ["name", "role"], 'role == "M"', known=first)
        assert other["answer"] is not None and other["state"] != first


@pytest.mark.parametrize(
    ("what", "fields", "qfilter", "order"),
    [
        ("node", ["mfree"], None, ""),
        ("node", ["name"], "mfree > 1", ""),
        ("node", ["name"], None, "-mfree"),
        ("job", ["id"], None, ""),
        ("lock", ["name"], None, ""),
    ],
)
def test_what_the_configuration_does_not_decide_has_no_state(context, what, fields, qfilter, order):
    context.rpc.answers = {
        ("node_info", f"node{n}.example.com"): ("boot", [], [{"memory_free": n}])
        for n in range(1, 5)
    }
    found = ask(context, what, fields, qfilter, order=order, known="x")
    assert found["state"] is None and found["answer"] is not None


def test_names_which_nothing_has_are_an_empty_list(context):
    found = ask(context, "instance", ["name"], 'name == "nosuch"')
    assert (found["answer"]["data"], found["total"]) == ([], 0)
    uuid = next(iter(context.rpc.config.instances))
    assert ask(context, "instance", ["name"], ["==", "name", uuid])["total"] == 1


@pytest.mark.parametrize("qfilter", [None, "be/maxmem > 100", [">", "be/maxmem", 100]])
def test_a_second_filter_bounds_what_is_found(context, qfilter):
    within = ["|", ["==", "name", "instance1.example.com"], ["==", "name", "instance3.example.com"]]
    found = ask(context, "instance", ["name"], qfilter, within=within)
    assert names(found) == (["instance1", "instance3"] if qfilter is None else ["instance1"])
    with pytest.raises(errors.ParameterError, match="filter must be a list"):
        ask(context, "instance", ["name"], qfilter, within=[])


def test_errors_say_the_place(context):
    with pytest.raises(errors.QueryFilterParseError, match="at column 9") as caught:
        ask(context, "instance", ["name"], "status =")
    assert caught.value.column == 9
    with pytest.raises(errors.ParameterError, match="Did you mean 'status'"):
        ask(context, "instance", ["name"], 'statsu == "x"')
    with pytest.raises(errors.ParameterError, match="filter must be a list"):
        ask(context, "instance", ["name"], {"a": 1})
    with pytest.raises(errors.OpPrereqError, match="nothing called"):
        ask(context, "nosuch", ["name"])
    with pytest.raises(errors.ParameterError, match="cannot sort by 'nmae'"):
        ask(context, "instance", ["name"], order="nmae")
