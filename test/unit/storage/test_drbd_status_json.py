"""What DRBD 9 says about its minors, in the names of DRBD 8.

The connected resource is recorded (ClusterLabs/ha_cluster_exporter, issue 25); the others are
changes of it with the states which drbdsetup(8) of version 9 names.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ganeti import errors
from ganeti.storage.drbd import leftover, status, status_json
from ganeti.utils import process

DATA = Path(__file__).parents[2] / "data/drbd"
RECORDED = (DATA / "drbd-9-connected.status.json").read_text()
PROC = (DATA / "proc_drbd90.txt").read_text()


def changed(connection: str, replication: str, **more: Any) -> str:
    (resource,) = json.loads(RECORDED)
    (peer,) = resource["connections"]
    peer["connection-state"] = connection
    peer["peer_devices"][0] |= {"replication-state": replication, **more}
    return json.dumps([resource])


def test_connected() -> None:
    (state,) = status_json.parse_status(RECORDED).values()
    assert (state.minor, state.connected, state.primary, state.up_to_date) == (2, True, True, True)
    assert (state.remote_role, state.remote_disk) == ("Secondary", "UpToDate")
    assert (state.sync_percent, state.out_of_sync_kib, state.suspended) == (None, 0, False)


@pytest.mark.parametrize(
    ("connection", "replication", "wanted"),
    [
        ("Connecting", "Off", "WFConnection"),
        ("StandAlone", "Off", "StandAlone"),
        ("Connected", "Off", "WFReportParams"),
        ("Connected", "PausedSyncT", "PausedSyncT"),
        ("NetworkFailure", "Off", "NetworkFailure"),
    ],
)
def test_names(connection: str, replication: str, wanted: str) -> None:
    (state,) = status_json.parse_status(changed(connection, replication)).values()
    assert state.connection == wanted and not state.connected


def test_synchronising() -> None:
    details = {"percent-in-sync": 12.5, "estimated-seconds-to-finish": 7, "out-of-sync": 350}
    text = changed("Connected", "SyncTarget", **details)
    (state,) = status_json.parse_status(text).values()
    assert state.resyncing
    assert (state.sync_percent, state.finish_s, state.out_of_sync_kib) == (12.5, 7, 350)


def test_without_a_peer_and_suspended() -> None:
    (resource,) = json.loads(RECORDED)
    del resource["connections"], resource["suspended"]
    resource["suspended-fencing"] = True
    (state,) = status_json.parse_status(json.dumps([resource])).values()
    assert state.standalone and state.suspended and state.remote_disk == "DUnknown"


@pytest.mark.parametrize("text", ["", "{}", "[7]", '[{"devices": 1}]', '[{"devices": [{}]}]'])
def test_other_texts(text: str) -> None:
    with pytest.raises(errors.ParseError):
        status_json.parse_status(text)


@pytest.fixture
def drbd9(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """A machine with the module of DRBD 9; the result has the programs which were run."""
    ran = []

    def run(command: list[str], **_: object) -> process.Completed:
        ran.append(command)
        return process.Completed(tuple(command), 0, RECORDED, "", None)

    monkeypatch.setattr(status, "_read", lambda: PROC)
    monkeypatch.setattr(process, "run", run)
    return ran


def test_minors_of_drbd_9_are_seen(drbd9: list[list[str]]) -> None:
    """/proc/drbd names none, so a minor in use would be taken for a free one."""
    assert status.version() == (9, 0, 0)
    assert list(status.minors()) == [2] and status.minor(3) is None
    assert drbd9[0] == ["drbdsetup", "status", "all", "--json"]


def test_the_configuration_is_asked_of_its_resource(drbd9: list[list[str]]) -> None:
    """``drbdsetup show`` of version 9 takes no minor, and says nothing of an unknown resource."""
    ((number, problem),) = leftover.take_down_all()
    assert number == 2 and problem is not None
    assert drbd9[-1] == ["drbdsetup", "show", "1-single-0"]


def test_a_minor_without_storage_and_peer_is_not_in_use(drbd9: list[list[str]]) -> None:
    (resource,) = json.loads(RECORDED)
    resource |= {"role": "Secondary", "connections": []}
    resource["devices"][0]["disk-state"] = "Diskless"
    (state,) = status_json.parse_status(json.dumps([resource])).values()
    assert not state.configured
    resource["role"] = "Primary"
    (state,) = status_json.parse_status(json.dumps([resource])).values()
    assert state.configured


def test_a_program_which_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    def run(command: list[str], **_: object) -> process.Completed:
        raise errors.CommandError(command, 20, "unrecognized option '--json'")

    monkeypatch.setattr(status, "_read", lambda: PROC)
    monkeypatch.setattr(process, "run", run)
    with pytest.raises(errors.BlockDeviceError, match="DRBD 9.*drbd-utils"):
        status.minors()
