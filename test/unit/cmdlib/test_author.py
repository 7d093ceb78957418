"""Whom the history of the configuration names when a job changes it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from fakes.config import cluster_of, commit, instance_of
from fakes.master import Master
from ganeti.config.history import Author, History
from ganeti.opcodes.tags import OpTagsSet


def test_a_job_signs_what_it_changes(tmp_path: Path) -> None:
    master = Master(cluster_of(2, [instance_of("web")]))
    master.config._store._history = History(str(tmp_path / "history"))
    master.run(
        OpTagsSet(
            kind="instance",
            name="web.example.com",
            tags=["a"],
            reason=[
                ["gnt:user", "for the shop", 1],
                ["gnt:client:gnt-instance", "add-tags", 2],
                ["gnt:person", "alice", 2],
                ["gnt:opcode:tags_set", "job=1;index=0", 3],
            ],
        )
    )
    master.run(OpTagsSet(kind="instance", name="web.example.com", tags=["b"]))
    commit(master.config).ports.allocate()
    nobody, second, first = master.config.commits()
    assert first.author == Author(
        1, "OP_TAGS_SET", "gnt:client:gnt-instance", "for the shop", "alice"
    )
    assert second.author == Author(2, "OP_TAGS_SET")
    assert nobody.author == Author()


@pytest.mark.parametrize(
    ("trail", "author"),
    [
        ([1], Author(1, "OP_TAGS_SET")),
        ([None, "abc", [], ["a", "b"], {"a": 1}], Author(1, "OP_TAGS_SET")),
        ([["gnt:person", "al\nice", 1], ["gnt:person", 7, 1]], Author(1, "OP_TAGS_SET")),
        ([[1, 2, 3]], Author(1, "OP_TAGS_SET", "1")),
        ([["gnt:user", {"a": 1}, None]], Author(1, "OP_TAGS_SET", "", "{'a': 1}")),
    ],
)
def test_an_odd_reason_trail_stops_no_job(tmp_path: Path, trail: Any, author: Author) -> None:
    """Each user of the REST interface can send one; its published type is a list of anything."""
    master = Master(cluster_of(2, [instance_of("web")]))
    master.config._store._history = History(str(tmp_path / "history"))
    master.run(OpTagsSet(kind="instance", name="web.example.com", tags=["a"], reason=trail))
    assert next(iter(master.config.commits())).author == author
