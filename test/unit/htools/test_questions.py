"""Questions of the REST daemon about placement, to a master that is made up."""

from __future__ import annotations

from typing import Any

import pytest

from ganeti import errors
from ganeti.client.htools import luxi, options, questions
from ganeti.constants import query

from .test_master import FakeMaster, instance, node

SMALL = {"memory": 512, "vcpus": 1, "disks": [1024], "disk_template": "ext"}


@pytest.fixture
def master(monkeypatch: pytest.MonkeyPatch) -> FakeMaster:
    found = FakeMaster()
    monkeypatch.setattr(luxi, "connect", lambda _socket: found)
    return found


def ask(question: str, *words: str, **body: Any) -> dict[str, Any]:
    return questions.answer(question, words, body)


def test_how_many_more_fit_and_what_stops_further_ones(master: FakeMaster) -> None:
    found = ask("capacity", "--disk-template=ext", "--static-kvm-node-memory=0")
    assert found["disk_template"] == "ext"
    standard = found["standard"]
    assert standard["instances"] == 43
    assert standard["failures"]
    assert "GiB of memory" in standard["reasons"][0]
    limited = ask("capacity", "--disk-template=ext", "--max-length=3")
    assert (limited["standard"]["instances"], limited["standard"]["reasons"]) == (3, [])


def test_a_cluster_without_a_usable_node(master: FakeMaster) -> None:
    master.objects["node"] = [node("n1", offline=True, mtotal=None)]
    master.objects["instance"] = []
    with pytest.raises(questions.NoCapacityError):
        ask("capacity", "--disk-template=ext")


def test_moves_have_scores_and_opcodes(master: FakeMaster) -> None:
    master.objects["instance"][1]["status"] = "ADMIN_down"
    (group,) = ask("balance")["groups"]
    assert group["group"] == "default" and group["uuid"] == "u1"
    assert group["final_score"] < group["initial_score"]
    moves = [move for some in group["job_sets"] for move in some]
    assert moves
    assert moves[-1]["score"] == pytest.approx(group["final_score"])
    for move in moves:
        (op,) = move["opcodes"]
        stopped = move["instance"] == "i1"
        assert op["OP_ID"] == ("OP_INSTANCE_FAILOVER" if stopped else "OP_INSTANCE_MIGRATE")
        assert (op["instance_name"], op["target_node"]) == (move["instance"], move["to"][0])


def test_options_reach_the_search(master: FakeMaster) -> None:
    assert len(ask("balance", "--max-length=1")["groups"][0]["job_sets"]) == 1
    assert ask("balance", "--no-instance-moves")["groups"][0]["job_sets"] == []
    assert ask("balance", "--evac-mode")["groups"][0]["job_sets"] == []
    only = ask("balance", "--select-instances=i2")["groups"][0]["job_sets"]
    assert [move["instance"] for some in only for move in some] == ["i2"]


def test_a_node_which_does_not_answer_is_neither_full_nor_empty(master: FakeMaster) -> None:
    master.objects["node"].append(node("n4", mtotal=None, mfree=None, mnode=None, ctotal=None))
    master.objects["node"].append(node("n5", drained=True, mtotal=None))
    found = ask("place", **SMALL)
    # n3 is offline and n5 drained: nobody expects an answer from them.
    assert found["unknown_nodes"] == ["n4"]
    assert found["chosen"] == ["n2"]
    reasons = {row["node"]: row["reason"] for row in found["nodes"]}
    assert (reasons["n3"], reasons["n5"]) == ("offline", "drained")
    assert all(row["score"] is None for row in found["nodes"] if row["node"] in ("n3", "n4"))
    assert ask("capacity", "--disk-template=ext")["unknown_nodes"] == ["n4"]


def test_a_place_with_the_reason_for_each_node(master: FakeMaster) -> None:
    found = ask("place", **SMALL, name="web9")
    assert (found["instance"], found["chosen"], found["reasons"]) == ("web9", ["n2"], [])
    assert found["nodes"][0]["reason"].startswith("the best place: score ")
    assert [row["chosen"] for row in found["nodes"]] == ["primary", None, None]
    assert ask("place", **SMALL, nodes=["n1"])["chosen"] == ["n1"]


def test_no_place_says_why(master: FakeMaster) -> None:
    found = ask("place", **{**SMALL, "memory": 9000})
    assert found["chosen"] == [] and len(found["reasons"]) >= 1
    assert "memory" in found["reasons"][0]
    found = ask("place", **SMALL, networks=["no-such-network"])
    assert found["chosen"] == []


def test_a_mirrored_instance_gets_two_nodes(master: FakeMaster) -> None:
    found = ask("place", **{**SMALL, "disk_template": "drbd"})
    assert sorted(found["chosen"]) == ["n1", "n2"]


def test_nodes_fail_at_once(master: FakeMaster) -> None:
    found = ask("what-if", changes=["fail-node=n1"])
    (change,) = found["changes"]
    assert sorted(change["moved"]) == ["i0", "i1", "i2", "i3"] and not change["without_place"]
    assert found["moves"][0] == {"instance": "i0", "from": ["n1"], "to": ["n2"]}
    assert (found["before"]["offline_nodes"], found["after"]["offline_nodes"]) == (1, 2)
    assert found["after"]["nodes"] == 3 and found["after"]["not_evacuable"] == ["n2"]
    both = ask("what-if", changes=["fail-node=n1,n2"])
    assert sorted(both["changes"][0]["without_place"]) == ["i0", "i1", "i2", "i3"]
    assert both["moves"] == []


def test_a_drained_node_keeps_its_instances_and_takes_no_more(master: FakeMaster) -> None:
    found = ask("what-if", changes=["drain-node=n2"], balance=True)
    assert found["moves"] == [] and found["changes"][0]["moved"] == []
    assert found["after"]["more_instances"] < found["before"]["more_instances"] + 1
    assert found["balance"][0]["job_sets"] == []
    assert ask("what-if", changes=[], balance=True)["balance"][0]["job_sets"]
    assert "balance" not in ask("what-if", changes=[])


def test_nodes_and_groups_are_removed(master: FakeMaster) -> None:
    found = ask("what-if", changes=["remove-node=n1,n3"])
    assert found["after"]["nodes"] == 1 and len(found["moves"]) == 4
    found = ask("what-if", changes=["remove-group=default"])
    assert found["after"]["nodes"] == 0 and found["after"]["instances"] == 0


def test_instances_are_added(master: FakeMaster) -> None:
    found = ask("what-if", changes=["add-instances=2:1g,512m,1:ext"])
    assert found["after"]["instances"] == found["before"]["instances"] + 2


@pytest.mark.parametrize(
    ("question", "words", "body", "text"),
    [
        ("capacity", ["--group=nosuch"], {}, "unknown node group 'nosuch'; there are default"),
        ("balance", ["--group=nosuch"], {}, "unknown node group 'nosuch'; there are default"),
        ("capacity", ["--standard-alloc=1"], {}, "Invalid standard specification"),
        ("capacity", ["--max-cpu=0"], {}, "max-cpu"),
        ("balance", ["--min-gain=x"], {}, "min gain: cannot parse string 'x'"),
        ("what-if", [], {"changes": ["fail-node=x"]}, "unknown node 'x'"),
        ("what-if", [], {"changes": ["remove-group=defualt"]}, "Did you mean 'default'"),
        ("what-if", [], {"changes": ["x"]}, "unknown change 'x'"),
        ("place", [], {**SMALL, "group": "g"}, "unknown node group 'g'"),
        ("place", [], {**SMALL, "nodes": ["n9"]}, "there is no node 'n9'"),
        ("place", [], {**SMALL, "disk_template": "x"}, "there is no disk template 'x'"),
    ],
)
def test_a_wrong_question_says_what_is_wrong(
    master: FakeMaster, question: str, words: list[str], body: dict[str, Any], text: str
) -> None:
    with pytest.raises(errors.GenericError) as caught:
        questions.answer(question, words, body)
    assert text in str(caught.value)


def test_no_question_takes_an_option_which_reads_or_writes_files(master: FakeMaster) -> None:
    for _function, names in questions.QUESTIONS.values():
        for name in names:
            option = options.ALL[name]
            assert option.metavar != "FILE" and name not in ("exec", "luxi", "master", "save")


def test_a_master_which_does_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_socket: str) -> None:
        raise errors.NoMasterError("the master daemon does not run")

    monkeypatch.setattr(luxi, "connect", refuse)
    with pytest.raises(errors.GenericError, match="does not run"):
        ask("balance")


def test_a_group_can_be_chosen(master: FakeMaster) -> None:
    master.objects["group"].append({**master.objects["group"][0], "name": "rack2", "uuid": "u2"})
    master.objects["node"] += [
        node("m1", **{"group.uuid": "u2"}),
        node("m2", **{"group.uuid": "u2"}),
    ]
    master.objects["instance"].append(instance("j1", "m1"))
    assert [one["group"] for one in ask("balance")["groups"]] == ["default", "rack2"]
    assert [one["group"] for one in ask("balance", "--group=rack2")["groups"]] == ["rack2"]
    assert ask("capacity", "--group=rack2", "--disk-template=ext")["initial"]["instances"] == 1
    found = ask("place", **SMALL, group="rack2")
    assert found["chosen"] == ["m2"]
    assert query.RS_NORMAL == 0
