"""What cluster verification says of the watchers of the nodes."""

from __future__ import annotations

from typing import Any

import pytest

from fakes.config import cluster_of
from ganeti.cmdlib.ops.verify import watcher
from ganeti.cmdlib.ops.verify.findings import Findings
from ganeti.constants import node_verify as nv
from ganeti.opcodes.cluster import OpClusterVerifyGroup


def _lines(answer: Any) -> list[str]:
    said: list[str] = []
    op = OpClusterVerifyGroup(group_name="default", error_codes=True)
    findings = Findings(said.append, op)
    data = cluster_of(1)
    (node,) = data.nodes.values()
    watcher.node(data, findings, node, {} if answer is None else {nv.WATCHER: answer})
    return said


@pytest.mark.parametrize(
    ("answer", "line"),
    [
        (None, ""),
        ([[], None], ""),
        ([[], 300.0], ""),
        ([[["", 7, 40.0]], 330.0], ""),
        ([[["", 7, 3599.0]], 3800.0], ""),
        ([[["", 7, 7500.0]], 7800.0], "ERROR:ENODESETUP:node:{}:the watcher (process 7) has been"),
        ([[["", 7, 3600.0]], None], "ERROR:ENODESETUP:node:{}:the watcher (process 7) has been"),
        ([[], 7500.0], "WARNING:ENODESETUP:node:{}:the last complete run of the watcher was 2 h 5"),
    ],
)
def test_what_is_reported(answer: Any, line: str) -> None:
    said = _lines(answer)
    assert len(said) == bool(line)
    name = next(iter(cluster_of(1).nodes.values())).name
    assert all(one.startswith(f"  - {line.format(name)}") for one in said)


def test_each_run_of_a_group_is_named() -> None:
    (group,) = cluster_of(1).nodegroups.values()
    said = _lines([[[group.uuid, 7, 7500.0], ["gone", 8, 90000.0], ["x", 9, 5.0]], 90000.0])
    assert len(said) == 2
    assert f"the watcher for node group {group.name} (process 7)" in said[0]
    assert "end it there with 'kill 8'" in said[1] and "for 1 d 1 h" in said[1]
