"""``gnt-node list`` on a terminal."""

from __future__ import annotations

import pytest

from fakes.luxi_master import FakeMaster
from ganeti.cli import terminal

from ..conftest import Gnt, fields_of


def node(number: int, role: str) -> dict[str, object]:
    values = dict.fromkeys(("dtotal", "dfree", "mtotal", "mnode", "mfree"), 2048)
    counts = {"pinst_cnt": 1, "sinst_cnt": 0}
    return {"name": f"node{number}", "role": role, "maintenance": "ready", **values, **counts}


@pytest.fixture(autouse=True)
def _nodes(master: FakeMaster) -> None:
    master.fields["node"] = fields_of("node")
    master.rows["node"] = [node(1, "M"), node(2, "D"), node(3, "O")]
    for name in ("node1", "node3"):
        # Not available: no maintenance.
        master.statuses[(name, "maintenance")] = 3


def test_the_list_for_people_has_the_state_of_each_node(
    gnt: Gnt, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(terminal, "is_terminal", lambda stream: True)
    monkeypatch.setenv("NO_COLOR", "1")
    assert gnt("node list").out == (
        "Node  State                DTotal DFree MTotal MNode MFree Pinst Sinst\n"
        "node1 master                 2.0G  2.0G   2.0G  2.0G  2.0G     1     0\n"
        "node2 drained, maintenance   2.0G  2.0G   2.0G  2.0G  2.0G     1     0\n"
        "node3 offline                2.0G  2.0G   2.0G  2.0G  2.0G     1     0\n"
    )
    assert gnt("node list --no-headers").out.splitlines()[0] == (
        "node1 2.0G 2.0G 2.0G 2.0G 2.0G 1 0"
    )


def test_the_list_for_programs_stays(gnt: Gnt) -> None:
    assert gnt("node list").out.splitlines()[0] == (
        "Node  DTotal DFree MTotal MNode MFree Pinst Sinst"
    )
