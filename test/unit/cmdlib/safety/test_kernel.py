"""The made-up kernel of these tests behaves as DRBD does where it matters here."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from fakes import confirmed
from fakes.confirmed import PRIMARY, SECONDARY, Lab
from ganeti import errors


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Lab:
    """The guest runs, and both replicas are good."""
    confirmed.install(monkeypatch)
    found = Lab(tmp_path / "lab")
    found.start()
    found.kernel.settle()
    found.write()
    return found


def states(lab: Lab) -> list[tuple[str, str, str]]:
    found = [lab.kernel.look(lab.key(node)) for node in (PRIMARY, SECONDARY)]
    return [(one.connection, one.local_role, one.local_disk) for one in found if one is not None]


def test_replicas_connect_late_and_go_on_alone_meanwhile(lab: Lab) -> None:
    lab.cut()
    lab.write()
    lab.kernel.heal()
    assert [state[0] for state in states(lab)] == ["WFConnection"] * 2
    # None of them knows which one is stale.
    assert [state[2] for state in states(lab)] == ["UpToDate"] * 2
    while lab.kernel.state(lab.key(PRIMARY)).connection == "WFConnection":
        pass  # each look takes time
    assert [state[0] for state in states(lab)] == ["Connected"] * 2
    lab.kernel.restart_node(PRIMARY)
    assert len(lab.best()) == 6
    assert all(len(found) == 6 for found in lab.copies().values())


def test_one_disk_loses_contact(lab: Lab) -> None:
    port = lab.disks[0].logical_id[2]
    lab.kernel.cut(PRIMARY, SECONDARY, port + 1)
    assert [state[0] for state in states(lab)] == ["Connected"] * 2
    lab.kernel.cut(PRIMARY, SECONDARY, port)
    assert [state[0] for state in states(lab)] == ["WFConnection"] * 2


def test_copying_takes_time_and_makes_the_target_incomplete(lab: Lab) -> None:
    lab.cut()
    lab.write()
    lab.kernel.sync_s = math.inf
    lab.kernel.heal()
    lab.kernel.settle()
    assert states(lab) == [
        ("SyncSource", "Primary", "UpToDate"),
        ("SyncTarget", "Secondary", "Inconsistent"),
    ]
    assert lab.kernel.look(lab.key(SECONDARY)).sync_percent == 50.0
    lab.kernel.finish_syncs()
    assert states(lab)[1] == ("Connected", "Secondary", "UpToDate")


def test_a_copy_which_was_broken_off_is_not_promoted(lab: Lab) -> None:
    lab.cut()
    lab.write()
    lab.kernel.sync_s = math.inf
    lab.kernel.heal()
    lab.kernel.settle()
    lab.cut()
    with pytest.raises(errors.BlockDeviceError, match="no valid data"):
        lab.kernel.open(lab.key(SECONDARY), force=False)


def test_two_which_were_promoted_alone_leave_each_other(lab: Lab) -> None:
    lab.cut()
    lab.write()
    lab.kernel.open(lab.key(SECONDARY), force=False)
    lab.kernel.close(lab.key(SECONDARY))
    lab.kernel.heal()
    lab.kernel.settle()
    assert [state[0] for state in states(lab)] == ["StandAlone"] * 2
    assert sorted(map(len, lab.copies().values())) == [3, 6]


def test_a_replica_which_is_known_to_be_outdated_is_not_promoted(lab: Lab) -> None:
    lab.cut()
    lab.kernel.outdate(lab.key(SECONDARY))
    assert states(lab)[1][2] == "Outdated"
    with pytest.raises(errors.BlockDeviceError):
        lab.kernel.open(lab.key(SECONDARY), force=False)
    lab.kernel.heal()
    lab.kernel.settle()
    assert states(lab)[1] == ("Connected", "Secondary", "UpToDate")


def test_a_primary_without_storage_works_with_that_of_its_peer(lab: Lab) -> None:
    lab.kernel.detach(lab.key(PRIMARY))
    lab.write()
    assert lab.seen() == lab.confirmed == set(range(6))
    lab.cut()
    lab.write()
    assert lab.confirmed == set(range(6)), "nobody has what is written now"


def test_the_only_data_of_a_primary_are_not_taken_away(lab: Lab) -> None:
    lab.kernel.detach(lab.key(PRIMARY))
    for take in (lab.kernel.down, lab.kernel.disconnect, lab.kernel.detach):
        with pytest.raises(errors.BlockDeviceError, match="refused by peer"):
            take(lab.key(SECONDARY))
    lab.write()
    assert lab.seen() == lab.confirmed == set(range(6))


def test_a_machine_comes_back_with_old_data(lab: Lab) -> None:
    lab.mark_data(SECONDARY)
    lab.cut()
    lab.kernel.heal()
    lab.kernel.settle()
    lab.write()
    lab.old_data(SECONDARY)
    assert sorted(map(len, lab.copies().values())) == [3, 6]
