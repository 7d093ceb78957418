"""``gnt-node maintenance end`` that is given more than once."""

from __future__ import annotations

from typing import Any

import pytest

from fakes.luxi_master import FakeMaster
from ganeti import errors
from ganeti.client.gnt_node import maintenance

from ..conftest import Gnt, fields_of

NODE = "node2.example.com"
CHECK = {"OP_ID": "OP_NODE_MAINTENANCE_CHECK", "node_name": NODE}


def in_maintenance(master: FakeMaster, state: str | None) -> dict[str, Any]:
    """Node 2 with this value of the field ``maintenance``."""
    row = {"name": NODE, "maintenance": state}
    master.rows["node"] = [row]
    master.fields["job"] = fields_of("job")
    return row


def end_submits(master: FakeMaster, *ops: dict[str, Any]) -> None:
    master.results["OP_NODE_MAINTENANCE_END"] = lambda _op: {
        "jobs": [[True, master.follow_up(op)] for op in ops]
    }


def test_an_end_while_the_first_one_goes_on_waits_for_it(gnt: Gnt, master: FakeMaster) -> None:
    in_maintenance(master, "returning")
    check = master.add_job(CHECK)
    done = gnt(f"node maintenance end {NODE}")
    assert (done.code, done.err) == (0, "")
    assert f"was asked for before, and goes on until job {check} has ended" in done.out
    assert done.out.endswith(f"The maintenance of node {NODE} has ended.\n")
    assert [op["OP_ID"] for op in master.opcodes()] == [CHECK["OP_ID"]], "nothing was submitted"
    ((what, fields, chosen),) = [args for method, args in master.requests if method == "Query"]
    assert (what, fields) == ("job", ["id"])
    assert chosen[2] == ["=[]", "summary", f"NODE_MAINTENANCE_CHECK({NODE})"]


def test_an_end_which_does_not_wait_for_the_first_one(gnt: Gnt, master: FakeMaster) -> None:
    in_maintenance(master, "returning")
    master.hold = "queued"
    check = master.add_job(CHECK)
    done = gnt(f"node maintenance end --submit {NODE}")
    assert done.code == 0 and f"until job {check} has ended. Nothing was submitted." in done.out
    assert len(master.jobs) == 1


def test_an_end_whose_first_one_has_failed_is_a_new_one(gnt: Gnt, master: FakeMaster) -> None:
    in_maintenance(master, "returning")
    end_submits(master, CHECK)
    done = gnt(f"node maintenance end {NODE}")
    assert done.code == 0 and "was asked for before" not in done.out
    assert [op["OP_ID"] for op in master.opcodes()] == ["OP_NODE_MAINTENANCE_END", CHECK["OP_ID"]]


@pytest.mark.parametrize("state", [None, "returning"])
def test_an_end_which_others_have_completed(
    gnt: Gnt, master: FakeMaster, state: str | None
) -> None:
    """Its jobs find nothing to do; what counts is whether the node is in maintenance."""
    row = in_maintenance(master, "ready")

    def check(_op: dict[str, Any]) -> Exception:
        row["maintenance"] = state
        return errors.OpPrereqError(f"node {NODE} is not in maintenance", errors.ECODE_STATE)

    end_submits(master, CHECK)
    master.results[CHECK["OP_ID"]] = check
    done = gnt(f"node maintenance end {NODE}")
    if state is None:
        assert done.code == 0 and done.out.endswith("has ended.\n")
    else:
        assert done.code == 1 and done.err.endswith(f"Node {NODE} is still in maintenance.\n")


def test_the_question_shows_what_will_be_done_and_no_dry_run() -> None:
    stamp = (0, 0)
    plan = (
        "Plan of NODE_MAINTENANCE_START(node2), which was not carried out:\n  asked:\n    x: y\n"
        "  steps:\n    1. migrate web1\n    2. mark node2"
    )
    lines = [
        maintenance._plan_line(stamp, "message", text)
        for text in (" - INFO: dry run: everything is checked, nothing is changed", plan, "a: b")
    ]
    assert lines[:2] == ["", "What will be done:\n    1. migrate web1\n    2. mark node2"]
    assert lines[2].endswith(" a: b")
