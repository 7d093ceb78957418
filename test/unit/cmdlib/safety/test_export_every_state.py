"""An export, in every state of the replicas: it has all confirmed blocks, or there is none.

``test_every_state.py`` looks at what the instance has afterwards, this module at the export, which
is the only copy after ``--remove-instance``. See there for the states.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from fakes import confirmed
from fakes.breaking import WEB
from fakes.confirmed import SPARE, Lab, blocks
from fakes.replica_states import STATES, STOPPED_ONLY
from ganeti import errors
from ganeti.opcodes import instance as ops
from ganeti.opcodes.backup import OpBackupExport
from ganeti.platform import paths

CASES = [
    (state, running)
    for state in STATES
    for running in (True, False)
    if not (running and state in STOPPED_ONLY)
]
#: States in which the replica on the primary node is good, and can be shown to be.
EXPORTED = {("good", True), ("good", False), ("remote_stale", True), ("syncing_remote", True)}


def exported(lab: Lab) -> set[int] | None:
    """The blocks in the complete export; None when there is none."""
    here = paths.Paths(str(lab.nodes.root(f"{SPARE}.example.com")))
    directory = Path(here.export_dir, WEB)
    if not directory.is_dir():
        return None
    (dump,) = (path for path in directory.iterdir() if path.suffix != ".ini")
    return blocks(dump)


@pytest.mark.parametrize("remove", [False, True])
@pytest.mark.parametrize(("state", "running"), CASES)
def test_an_export_has_everything_or_there_is_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, state: str, running: bool, remove: bool
) -> None:
    confirmed.install(monkeypatch)
    lab = Lab(tmp_path / "cluster")
    STATES[state](lab, running)
    op = OpBackupExport(
        instance_name=WEB,
        target_node=SPARE,
        remove_instance=remove,
        # It says nothing about the export.
        ignore_remove_failures=remove,
    )
    problem = None
    try:
        lab.run(op)
    except (errors.OpExecError, errors.OpPrereqError) as err:
        problem = err
    found = exported(lab)
    assert lab.confirmed
    assert (problem is None) >= ((state, running) in EXPORTED), problem
    if found is not None:
        assert not lab.lost(found), problem
    if problem is None:
        assert found is not None
    if lab.instance is None:
        assert remove and found is not None
    else:
        assert not (remove and problem is None)
        # What was there before is still there.
        assert not lab.lost(lab.best())


@pytest.mark.parametrize("state", ["syncing_local", "detached_local"])
def test_a_snapshot_which_a_user_keeps_has_everything_or_there_is_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, state: str
) -> None:
    confirmed.install(monkeypatch)
    lab = Lab(tmp_path / "cluster")
    STATES[state](lab, True)
    before = set(lab.copies())
    with pytest.raises(errors.OpExecError, match="cannot be copied on this node"):
        lab.run(ops.OpInstanceSnapshot(instance_name=WEB, snapshot_name="monday"))
    assert set(lab.copies()) == before
