"""A mirrored disk on one node, over a kernel module that is a dictionary."""

from __future__ import annotations

import dataclasses

import pytest

from ganeti import errors
from ganeti.backend.storage import blockdev
from ganeti.backend.storage import drbd as calls
from ganeti.constants.disk import LDS_SYNC, LDS_UNKNOWN
from ganeti.storage.drbd import device, leftover, status
from ganeti.storage.lvm.device import LogicalVolumeDevice

from .drbd_kernel import DATA, META, OTHER, SECRET, mirrored, plain

FRESH = ["new-resource", "new-minor", "apply-al", "dump-md", "attach", "connect"]


def test_activation_takes_a_constant_number_of_commands(kernel):
    device.DrbdDevice(mirrored()).assemble()
    assert kernel.verbs() == FRESH
    assert (kernel.data, kernel.meta, kernel.peer) == (DATA, META, "192.0.2.2:11000")


def test_other_minors_cost_nothing(kernel, monkeypatch):
    others = "".join(
        f" {n}: cs:Connected ro:Primary/Secondary ds:UpToDate/UpToDate C\n" for n in range(1, 200)
    )
    monkeypatch.setattr(status, "_read", lambda: f"version: 8.4.11\n{kernel.state()}{others}")
    device.DrbdDevice(mirrored()).assemble()
    assert kernel.verbs() == FRESH


def test_assembling_again_changes_nothing(kernel):
    kernel.ours()
    device.DrbdDevice(mirrored()).assemble()
    assert kernel.verbs() == []


def test_what_is_missing_is_added(kernel):
    kernel.ours(connected=False)
    device.DrbdDevice(mirrored()).assemble()
    assert kernel.verbs() == ["connect"]


def test_after_a_split_brain_it_looks_for_its_peer_again(kernel):
    kernel.ours()
    kernel.connection = "StandAlone"
    device.DrbdDevice(mirrored()).assemble()
    assert kernel.verbs()[-1] == "connect"
    assert "down" not in kernel.verbs()


def test_storage_that_was_lost_is_attached_again(kernel):
    kernel.ours()
    kernel.data = kernel.meta = None
    device.DrbdDevice(mirrored()).assemble()
    assert "attach" in kernel.verbs() and "connect" not in kernel.verbs()


def test_it_works_without_storage_that_is_lost(kernel):
    kernel.failing["attach"] = "can not open backing device"
    one = device.DrbdDevice(mirrored())
    one.assemble()
    assert kernel.data is None and kernel.peer == "192.0.2.2:11000"


def test_what_was_just_made_must_be_complete(kernel):
    kernel.failing["attach"] = "can not open backing device"
    one = device.DrbdDevice(mirrored())
    one.create(1024)
    with pytest.raises(errors.BlockDeviceError, match="can not open"):
        one.assemble()


def test_without_valid_data_it_waits_for_its_peer(kernel):
    kernel.ours()
    kernel.data = kernel.meta = None
    kernel.connection, kernel.remote = "WFConnection", "DUnknown"

    def sleep(_seconds):
        kernel.connection, kernel.remote = "Connected", "UpToDate"

    one = device.DrbdDevice(mirrored())
    one._wait_for_latest_data(sleep)
    one.open()
    assert kernel.primary


@pytest.mark.parametrize(
    ("states", "outdated", "problem"),
    [
        (("WFConnection", "UpToDate", "DUnknown"), None, "WFConnection.*it is not known"),
        (("StandAlone", "UpToDate", "DUnknown"), None, "StandAlone.*it is not known"),
        (("WFConnection", "UpToDate", "DUnknown"), "local", "known to have missed writes"),
        (("WFConnection", "UpToDate", "DUnknown"), "remote", None),
        (("WFConnection", "Inconsistent", "DUnknown"), "remote", "no complete replica"),
        (("WFConnection", "Outdated", "DUnknown"), "remote", None),
        (("WFConnection", "Outdated", "DUnknown"), "local", "known to have missed writes"),
        (("WFConnection", "Outdated", "DUnknown"), None, "it is not known"),
        (("Connected", "UpToDate", "UpToDate"), "local", None),
        (("Connected", "UpToDate", "Diskless"), None, None),
        (("Connected", "UpToDate", "Diskless"), "local", "known to have missed writes"),
        (("Connected", "Diskless", "UpToDate"), None, None),
        (("Connected", "Diskless", "Diskless"), None, "no complete replica"),
        (("SyncTarget", "Inconsistent", "UpToDate"), "local", None),
        (("SyncSource", "UpToDate", "Inconsistent"), "remote", None),
        (("SyncSource", "UpToDate", "Inconsistent"), "local", "known to have missed writes"),
        (("Connected", "Inconsistent", "Inconsistent"), None, "no complete replica"),
    ],
)
def test_only_a_replica_with_all_data_is_promoted(kernel, monkeypatch, states, outdated, problem):
    monkeypatch.setattr(device, "_CONNECT_S", 0)
    kernel.ours()
    kernel.connection, kernel.local, kernel.remote = states
    if states[1] == "Diskless":
        kernel.data = kernel.meta = None
    disk = mirrored()
    if outdated:
        disk = dataclasses.replace(
            disk, dynamic_params={**disk.dynamic_params, "outdated": outdated}
        )
    if problem is None:
        device.DrbdDevice(disk).open()
        assert kernel.primary
        # The kernel promotes a replica which is marked as outdated with force only.
        assert ("--force" in kernel.commands[-1]) is (states[1] == "Outdated")
        return
    with pytest.raises(errors.BlockDeviceError, match=problem):
        device.DrbdDevice(disk).open()
    assert kernel.verbs() == []


def outdated_disk(which):
    disk = mirrored()
    return dataclasses.replace(disk, dynamic_params={**disk.dynamic_params, "outdated": which})


def test_the_kernel_knows_that_a_replica_missed_writes(kernel):
    """Before it looks for its peer, so that nobody can promote it in between."""
    kernel.local = "UpToDate"
    device.DrbdDevice(outdated_disk("local")).assemble()
    assert kernel.verbs() == [*FRESH[:-1], "outdate", "connect"]
    assert kernel.local == "Outdated"
    device.DrbdDevice(outdated_disk("local")).assemble()
    assert kernel.verbs()[len(FRESH) + 1 :] == []
    found = device.DrbdDevice(outdated_disk("local")).sync_status()
    assert (found.ldisk_status, found.is_degraded) == (LDS_UNKNOWN, True)
    kernel.connection, kernel.remote = "WFBitMapT", "UpToDate"
    found = device.DrbdDevice(outdated_disk("local")).sync_status()
    assert (found.ldisk_status, found.is_degraded) == (LDS_SYNC, True)


@pytest.mark.parametrize(
    ("which", "primary", "states"),
    [
        ("remote", False, ("WFConnection", "UpToDate", "DUnknown")),
        ("local", False, ("Connected", "UpToDate", "UpToDate")),
        ("local", False, ("SyncTarget", "Inconsistent", "UpToDate")),
        ("local", False, ("WFConnection", "Inconsistent", "DUnknown")),
        ("local", True, ("WFConnection", "UpToDate", "DUnknown")),
    ],
)
def test_other_replicas_are_not_marked(kernel, which, primary, states):
    kernel.ours()
    kernel.primary = primary
    kernel.connection, kernel.local, kernel.remote = states
    device.DrbdDevice(outdated_disk(which)).assemble()
    assert kernel.verbs() == []


def test_a_kernel_which_refuses_the_mark_is_no_error(kernel):
    """The rule of promotion holds without the mark."""
    kernel.local = "UpToDate"
    kernel.failing["outdate"] = "State change failed"
    device.DrbdDevice(outdated_disk("local")).assemble()
    assert kernel.verbs()[-2:] == ["outdate", "connect"]


def test_with_another_peer_it_is_disconnected_first(kernel):
    kernel.ours()
    kernel.peer = "192.0.2.77:11000"
    device.DrbdDevice(mirrored()).assemble()
    assert kernel.verbs() == ["disconnect", "connect"]


def test_with_another_secret_it_is_not_adopted(kernel):
    kernel.ours()
    kernel.secret = "somebody else's"
    device.DrbdDevice(mirrored()).assemble()
    assert kernel.verbs()[0] == "disconnect"
    assert kernel.secret == SECRET


def test_minor_of_somebody_else_is_taken_down(kernel):
    kernel.ours()
    kernel.resource, kernel.data = "users-own", OTHER
    device.DrbdDevice(mirrored()).assemble()
    assert kernel.commands[1] == ["drbdsetup", "down", "users-own"]
    assert kernel.verbs()[1:] == FRESH


def test_with_another_metadata_device_it_is_set_up_anew(kernel):
    kernel.ours()
    kernel.meta = OTHER
    device.DrbdDevice(mirrored()).assemble()
    assert kernel.verbs() == ["down", *FRESH]
    assert kernel.meta == META


def test_a_minor_which_stays_in_use_is_an_error(kernel, monkeypatch):
    """The command has said that it is down, and the kernel says otherwise."""
    kernel.ours()
    kernel.resource, kernel.data = "users-own", OTHER
    monkeypatch.setattr(kernel, "do_down", lambda words: None)
    with pytest.raises(errors.BlockDeviceError, match="was taken down, but is still in use"):
        device.DrbdDevice(mirrored()).assemble()
    assert kernel.verbs() == ["down"]
    assert kernel.data == OTHER


def test_our_devices_below_another_resource_are_set_up_anew(kernel):
    kernel.ours()
    kernel.resource = "users-own"
    device.DrbdDevice(mirrored()).assemble()
    assert kernel.commands[1] == ["drbdsetup", "down", "users-own"]
    assert kernel.verbs()[1:] == FRESH


def test_minor_of_somebody_else_in_use_is_refused(kernel):
    kernel.ours()
    kernel.data = OTHER
    kernel.failing["down"] = "State change failed: Device is held open by someone"
    with pytest.raises(errors.BlockDeviceError, match=f"in use by something else .*{OTHER}.*held"):
        device.DrbdDevice(mirrored()).assemble()
    assert kernel.data == OTHER


def test_diskless_minor_with_another_peer_is_not_ours(kernel):
    kernel.ours()
    kernel.data = kernel.meta = None
    kernel.peer = "192.0.2.77:11000"
    device.DrbdDevice(mirrored()).assemble()
    assert kernel.verbs() == ["down", *FRESH]


def test_an_incomplete_assembly_is_taken_down(kernel):
    kernel.failing["connect"] = "Local address is in use"
    with pytest.raises(errors.BlockDeviceError, match="address is in use"):
        device.DrbdDevice(mirrored()).assemble()
    assert kernel.state() == ""


def test_creation_writes_metadata(kernel):
    device.DrbdDevice(mirrored()).create(1024)
    assert kernel.verbs() == ["dd", "create-md"]
    assert kernel.commands[-1] == [
        "drbdmeta",
        "--force",
        "/dev/drbd0",
        "v08",
        META,
        "flex-external",
        "create-md",
    ]


@pytest.mark.parametrize("method", ["create", "assemble"])
def test_a_minor_which_the_module_cannot_have(kernel, monkeypatch, method):
    disk = mirrored()
    disk = dataclasses.replace(disk, dynamic_params={**disk.dynamic_params, "local-minor": 32})
    one = device.DrbdDevice(disk)
    monkeypatch.setattr(status, "minor_limit", lambda: 33)
    one._require_minor()
    monkeypatch.setattr(status, "minor_limit", lambda: 32)
    with pytest.raises(errors.BlockDeviceError, match="for 32 minors, so it has no minor 32"):
        getattr(one, method)(*([1024] if method == "create" else []))
    assert kernel.verbs() == []


def test_creation_takes_down_what_an_undone_creation_has_left(kernel):
    """Metadata below a minor in use must not be written."""
    kernel.ours(connected=False)
    device.DrbdDevice(mirrored()).create(1024)
    assert kernel.verbs() == ["down", "dd", "create-md"]
    assert kernel.state() == ""


@pytest.mark.parametrize("size_mib", [64, 2048])
def test_metadata_device_of_a_wrong_size(kernel, size_mib):
    kernel.meta_sectors = size_mib * 2048
    with pytest.raises(errors.BlockDeviceError, match=f"has {size_mib} MiB, but must have between"):
        device.DrbdDevice(mirrored()).create(1024)
    assert kernel.verbs() == []


def test_creation_on_both_nodes(kernel, monkeypatch):
    monkeypatch.setattr(LogicalVolumeDevice, "set_info", lambda self, text: None)
    monkeypatch.setattr(blockdev, "_note_owner", lambda *args: None)
    blockdev.create(mirrored(), 1024, "web1", True, "info", False)
    assert kernel.commands[-1] == ["drbdsetup", "primary", "0", "--force"]
    kernel.primary = False
    kernel.do_down(["", "", kernel.resource])
    blockdev.create(mirrored(), 1024, "web1", False, "info", False)
    assert not kernel.primary and kernel.peer


def test_no_replica_on_this_node():
    with pytest.raises(errors.BlockDeviceError, match="no replica on this node"):
        device.DrbdDevice(mirrored(dynamic_params=None))


@pytest.mark.parametrize("changes", [{"logical_id": ("a", "b")}, {"children": (plain("x"),)}])
def test_wrong_shapes(changes):
    with pytest.raises(errors.BlockDeviceError, match="disk-uuid"):
        device.DrbdDevice(mirrored(**changes))


def test_opening_never_forces(kernel):
    kernel.ours()
    one = device.DrbdDevice(mirrored())
    one.open()
    one.open()
    assert kernel.verbs() == ["primary"]
    assert kernel.commands[-1] == ["drbdsetup", "primary", "0"]
    one.close()
    one.close()
    assert kernel.verbs() == ["primary", "secondary"]


def test_opening_what_is_not_active(kernel):
    with pytest.raises(errors.BlockDeviceError, match="is not active"):
        device.DrbdDevice(mirrored()).open()


def test_two_writers_and_back(kernel):
    kernel.ours()
    calls.disconnect_net([mirrored()])
    calls.disconnect_net([mirrored()])
    calls.attach_net([mirrored()], True)
    assert kernel.dual
    # A dual-primary device needs the synchronous protocol.
    connect = kernel.commands[-1]
    assert connect[connect.index("--protocol") + 1] == "C"
    calls.attach_net([mirrored()], True)
    with pytest.raises(errors.BlockDeviceError, match="to another peer or in another mode"):
        calls.attach_net([mirrored()], False)
    kernel.peer, right = "192.0.2.77:11000", kernel.peer
    with pytest.raises(errors.BlockDeviceError, match="to another peer or in another mode"):
        calls.attach_net([mirrored()], True)
    kernel.peer = right
    calls.disconnect_net([mirrored()])
    calls.attach_net([mirrored()], False)
    assert not kernel.dual
    connect = kernel.commands[-1]
    assert connect[connect.index("--protocol") + 1] == "A"


@pytest.mark.parametrize("roles", ["Primary/Secondary", "Secondary/Primary", "Secondary/Unknown"])
def test_what_a_dead_master_left_dual_primary_is_made_single_primary(kernel, roles):
    kernel.ours()
    kernel.dual = True
    kernel.primary, kernel.remote_role = roles.startswith("Primary"), roles.partition("/")[2]
    device.DrbdDevice(mirrored()).assemble()
    assert kernel.verbs() == ["net-options"] and not kernel.dual
    device.DrbdDevice(mirrored()).assemble()
    assert kernel.verbs() == ["net-options"]


def test_while_both_replicas_are_primary_it_stays_dual_primary(kernel):
    kernel.ours()
    kernel.dual = kernel.primary = True
    kernel.remote_role = "Primary"
    device.DrbdDevice(mirrored()).assemble()
    assert kernel.verbs() == [] and kernel.dual


def test_the_replica_which_leaves_a_dual_primary_device_ends_it(kernel):
    kernel.ours()
    kernel.dual = kernel.primary = True
    kernel.remote_role = "Primary"
    device.DrbdDevice(mirrored()).close()
    assert kernel.verbs() == ["secondary", "net-options"] and not kernel.dual


def test_an_old_module_connects_anew_to_become_single_primary(kernel, monkeypatch):
    kernel.ours()
    kernel.dual = True
    monkeypatch.setattr(device.argv.Commands84, "single_primary", lambda *_args: None)
    device.DrbdDevice(mirrored()).assemble()
    assert kernel.verbs() == ["disconnect", "connect"] and not kernel.dual


def test_disconnecting_takes_a_moment(kernel):
    kernel.ours()
    real, waits = kernel.do_disconnect, []
    kernel.do_disconnect = lambda words: real(words) if len(waits) > 2 else None
    device.DrbdDevice(mirrored()).disconnect_net(sleep=waits.append)
    assert kernel.connection == "StandAlone" and len(waits) == 3


def test_waiting_for_the_peer(kernel):
    kernel.ours()
    kernel.connection = "WFConnection"
    states = iter(["WFConnection", "SyncTarget"])

    def sleep(_seconds):
        kernel.connection = next(states)

    assert calls._wait_sync([device.DrbdDevice(mirrored())], sleep) == [False, 0.0]
    kernel.connection = "Connected"
    assert calls.wait_sync([mirrored()]) == [True, 100.0]


@pytest.mark.parametrize(
    ("connection", "local", "expected"),
    [
        ("Connected", "UpToDate", []),
        ("WFConnection", "UpToDate", []),
        ("StandAlone", "UpToDate", ["disk-uuid"]),
        ("SyncTarget", "Inconsistent", []),
        ("Connected", "Diskless", ["disk-uuid"]),
    ],
)
def test_needs_activation(kernel, connection, local, expected):
    kernel.ours()
    kernel.connection, kernel.local = connection, local
    assert calls.needs_activation([mirrored()]) == expected


def test_what_is_missing_needs_activation(kernel):
    assert calls.needs_activation([mirrored(), plain("x")]) == ["disk-uuid"]


@pytest.mark.parametrize(
    ("connection", "local", "remote", "degraded", "ldisk", "percent"),
    [
        ("Connected", "UpToDate", "UpToDate", False, 1, None),
        ("WFConnection", "UpToDate", "DUnknown", True, 1, None),
        # The kernel remembers the peer's state for a moment after the connection broke.
        ("NetworkFailure", "UpToDate", "UpToDate", True, 1, None),
        ("Connected", "UpToDate", "Diskless", True, 1, None),
        ("SyncTarget", "Inconsistent", "UpToDate", True, 2, 0.0),
        ("Connected", "Diskless", "UpToDate", True, 4, None),
        ("StandAlone", "Inconsistent", "DUnknown", True, 4, None),
    ],
)
def test_status(kernel, connection, local, remote, degraded, ldisk, percent):
    kernel.ours()
    kernel.connection, kernel.local, kernel.remote = connection, local, remote
    found = device.DrbdDevice(mirrored()).sync_status()
    assert (found.dev_path, found.major, found.minor) == ("/dev/drbd0", 147, 0)
    assert (found.is_degraded, found.ldisk_status, found.sync_percent) == (degraded, ldisk, percent)


def test_the_only_copy_below_a_primary_without_storage_is_in_order(kernel):
    kernel.ours()
    kernel.remote, kernel.remote_role = "Diskless", "Primary"
    found = device.DrbdDevice(mirrored()).sync_status()
    assert found.is_degraded is False and found.ldisk_status == 1


#: Roles, connection, disks, protocol and what the configuration says of a replica -> whether its
#: data device alone has everything.
COMPLETE = [
    ("Primary/Secondary", "Connected", "UpToDate/UpToDate", "C", None),
    ("Primary/Secondary", "Connected", "UpToDate/UpToDate", "A", None),
    ("Primary/Secondary", "Connected", "UpToDate/UpToDate", "C", "local"),
    ("Primary/Secondary", "SyncSource", "UpToDate/Inconsistent", "C", "remote"),
    ("Primary/Secondary", "Connected", "UpToDate/Diskless", "C", None),
    ("Primary/Unknown", "WFConnection", "UpToDate/DUnknown", "C", None),
    ("Primary/Unknown", "StandAlone", "UpToDate/DUnknown", "A", "remote"),
    ("Secondary/Secondary", "Connected", "UpToDate/UpToDate", "A", None),
    ("Secondary/Secondary", "SyncSource", "UpToDate/Inconsistent", "C", None),
    ("Secondary/Primary", "Connected", "UpToDate/UpToDate", "C", None),
    ("Secondary/Unknown", "WFConnection", "UpToDate/Outdated", "C", "remote"),
]
INCOMPLETE = [
    ("Primary/Secondary", "SyncTarget", "Inconsistent/UpToDate", "C", None, "Wait until"),
    ("Primary/Secondary", "WFBitMapT", "UpToDate/UpToDate", "C", None, "connection WFBitMapT"),
    ("Primary/Secondary", "PausedSyncT", "Inconsistent/UpToDate", "C", "local", "Wait until"),
    ("Primary/Secondary", "Connected", "Diskless/UpToDate", "C", None, "data are on its peer"),
    ("Primary/Secondary", "Connected", "Outdated/UpToDate", "C", None, "disk Outdated"),
    ("Primary/Unknown", "WFConnection", "Consistent/DUnknown", "C", "remote", "disk Consistent"),
    ("Primary/Unknown", "WFConnection", "UpToDate/DUnknown", "C", "local", "missed writes"),
    ("Secondary/Unknown", "WFConnection", "UpToDate/DUnknown", "C", None, "it is not known"),
    ("Secondary/Unknown", "WFConnection", "UpToDate/DUnknown", "C", "local", "it is not known"),
    ("Secondary/Unknown", "StandAlone", "UpToDate/DUnknown", "C", None, "it is not known"),
    ("Secondary/Secondary", "Connected", "UpToDate/Diskless", "C", None, "it is not known"),
    ("Secondary/Primary", "Connected", "UpToDate/UpToDate", "A", None, "peer confirms writes"),
]


def replica(kernel, roles, connection, disks, protocol, outdated):
    """A device in that state, of which the configuration says that."""
    kernel.ours()
    role, kernel.remote_role = roles.split("/")
    kernel.primary = role == "Primary"
    kernel.connection = connection
    kernel.local, kernel.remote = disks.split("/")
    if kernel.local == "Diskless":
        kernel.data = kernel.meta = None
    disk = mirrored()
    disk.params["protocol"] = protocol
    if outdated is not None:
        disk.dynamic_params["outdated"] = outdated
    return device.DrbdDevice(disk)


@pytest.fixture
def snapshots_taken(monkeypatch):
    """The snapshots which were taken of volumes."""
    taken = []
    monkeypatch.setattr(
        LogicalVolumeDevice, "snapshot", lambda self, name, size: taken.append(name) or (1, name)
    )
    monkeypatch.setattr(
        LogicalVolumeDevice,
        "keep_snapshot",
        lambda self, name, size, *, at_rest: taken.append((name, at_rest)),
    )
    return taken


@pytest.mark.parametrize("state", COMPLETE)
def test_a_complete_replica_is_copied(kernel, snapshots_taken, state):
    found = replica(kernel, *state)
    found.snapshot("d0_data.snap", 1024)
    found.keep_snapshot("monday", 1024, at_rest=True)
    assert snapshots_taken == ["d0_data.snap", ("monday", True)]


@pytest.mark.parametrize("state", INCOMPLETE)
def test_a_replica_which_may_lack_writes_is_not_copied(kernel, snapshots_taken, state):
    *state, reason = state
    found = replica(kernel, *state)
    with pytest.raises(errors.BlockDeviceError, match=reason):
        found.snapshot("d0_data.snap", 1024)
    with pytest.raises(errors.BlockDeviceError, match=reason):
        found.keep_snapshot("monday", 1024, at_rest=True)
    assert snapshots_taken == []


@pytest.mark.parametrize(
    ("state", "reason"),
    [
        (("Primary/Secondary", "Connected", "UpToDate/UpToDate", "C", "local"), None),
        (("Primary/Secondary", "Connected", "Diskless/UpToDate", "C", None), None),
        (("Primary/Secondary", "SyncTarget", "Inconsistent/UpToDate", "C", "local"), None),
        (("Primary/Unknown", "WFConnection", "UpToDate/DUnknown", "C", "remote"), None),
        (("Primary/Unknown", "WFConnection", "UpToDate/DUnknown", "C", "local"), "missed writes"),
        (("Secondary/Primary", "Connected", "UpToDate/UpToDate", "C", None), "not primary"),
    ],
)
def test_reading_the_device_itself(kernel, state, reason):
    """Blocks which the local replica lacks come from the peer."""
    found = replica(kernel, *state)
    if reason is None:
        found.require_latest_data()
        return
    with pytest.raises(errors.BlockDeviceError, match=reason):
        found.require_latest_data()


def test_new_storage_below(kernel):
    kernel.ours()
    old, new = mirrored().children, (plain("n_data"), plain("n_meta", 128))
    with pytest.raises(errors.BlockDeviceError, match="has storage already"):
        calls.add_children(mirrored(), new)
    with pytest.raises(errors.BlockDeviceError, match="n_data"):
        calls.remove_children(mirrored(), new)
    calls.remove_children(mirrored(), old)
    calls.remove_children(mirrored(), old)
    assert kernel.data is None
    calls.add_children(mirrored(), new)
    assert (kernel.data, kernel.meta) == ("/dev/xenvg/n_data", "/dev/xenvg/n_meta")
    assert "create-md" in kernel.verbs()


def test_new_storage_of_one_that_stands_alone(kernel):
    """It is not configured at all between the two: nothing is left of it."""
    kernel.ours(connected=False)
    calls.remove_children(mirrored(), mirrored().children)
    assert kernel.state() == ""
    calls.remove_children(mirrored(), mirrored().children)
    calls.add_children(mirrored(), mirrored().children)
    assert kernel.data == DATA and kernel.peer == "192.0.2.2:11000"


def test_last_good_copy_is_not_detached(kernel):
    kernel.ours()
    kernel.primary, kernel.remote = True, "Inconsistent"
    with pytest.raises(
        errors.BlockDeviceError, match="while the replica of its peer is Inconsistent"
    ):
        calls.remove_children(mirrored(), mirrored().children)
    assert kernel.data == DATA


@pytest.mark.parametrize(
    ("agreed", "size"),
    [(0, "1024m"), (512 * 2048, "1024m"), (1536 * 2048, "1536m"), (1024 * 2048 + 8, "2097160s")],
)
def test_a_replica_is_never_attached_with_less_than_it_had(kernel, agreed, size):
    # A growth ended after the device got larger, and before that was recorded.
    kernel.agreed = f"la-size-sect {agreed};"
    device.DrbdDevice(mirrored()).assemble()
    (attach,) = [words for words in kernel.commands if words[1] == "attach"]
    assert attach[attach.index("--size") + 1] == size


@pytest.mark.parametrize(
    ("recorded_mib", "agreed_mib", "own_mib", "size"),
    [
        # What 128 MiB are enough for; then what an older version recorded after a growth.
        (4193152, 4193152, 128, "4193152m"),
        (4193156, 0, 128, "4193152m"),
        (5242880, 4193152, 128, "4193152m"),
        (5242880, 4194304, 256, "5242880m"),
        # A volume that was extended by hand: the kernel uses the size in the metadata.
        (5242880, 0, None, "4193152m"),
    ],
)
def test_a_replica_is_never_attached_with_more_than_its_metadata_hold(
    kernel, recorded_mib, agreed_mib, own_mib, size
):
    own = "" if own_mib is None else f"# md_size_sect {own_mib * 2048}\n"
    kernel.own_size = own
    kernel.agreed = f"la-size-sect {agreed_mib * 2048};"
    kernel.meta_sectors = (128 if own_mib is None else 1024) * 2048
    device.DrbdDevice(mirrored(size=recorded_mib)).assemble()
    (attach,) = [words for words in kernel.commands if words[1] == "attach"]
    assert attach[attach.index("--size") + 1] == size
    assert kernel.data == DATA


@pytest.mark.parametrize(
    ("backing_store", "dry_run"), [(True, True), (True, False), (False, False)]
)
def test_a_replica_does_not_grow_past_its_metadata(kernel, monkeypatch, backing_store, dry_run):
    kernel.ours()
    grown = []
    monkeypatch.setattr(LogicalVolumeDevice, "grow", lambda self, *args, **rest: grown.append(1))
    monkeypatch.setattr(LogicalVolumeDevice, "size_bytes", lambda self: 4193152 << 20)
    monkeypatch.setattr(device.DrbdDevice, "_kernel_sectors", lambda self: 4193152 * 2048)
    disk = mirrored(size=4193152)
    with pytest.raises(
        errors.BlockDeviceError,
        match="cannot have 4193156 MiB: its metadata device .* is large enough for 4193152 MiB",
    ):
        device.DrbdDevice(disk).grow(4, dry_run=dry_run, backing_store=backing_store)
    assert grown == [] and "resize" not in kernel.verbs()


def test_metadata_which_are_too_small_for_a_new_disk(kernel):
    with pytest.raises(errors.BlockDeviceError, match="large enough for 4193152 MiB"):
        device.DrbdDevice(mirrored(size=4193156)).create(4193156)
    assert kernel.verbs() == []
    kernel.meta_sectors = 132 * 2048
    device.DrbdDevice(mirrored(size=4193156)).create(4193156)
    (wipe,) = [words for words in kernel.commands if words[0] == "dd"]
    # All of it: a former owner may have left metadata or a bitmap there.
    assert "count=132" in wipe


def test_a_replica_of_unknown_size_is_not_attached(kernel):
    kernel.agreed = "# something else"
    device.DrbdDevice(mirrored()).assemble()
    assert "attach" not in kernel.verbs() and kernel.peer


@pytest.mark.parametrize(
    ("found_mib", "resizes"),
    [((1024, 1088), 1), ((1024, 1024, 1024, 1088), 1), ((1088,), 0), ((2048,), 0)],
)
def test_growing_never_makes_a_device_smaller(kernel, monkeypatch, found_mib, resizes):
    """The replicas agree on the new size after the command has ended."""
    kernel.ours()
    sizes = [size * 2048 for size in found_mib]
    monkeypatch.setattr(device.DrbdDevice, "_kernel_sectors", lambda self: sizes.pop(0))
    device.DrbdDevice(mirrored()).grow(64, dry_run=False, backing_store=False)
    assert kernel.verbs().count("resize") == resizes
    assert not sizes


@pytest.mark.parametrize(
    ("connection", "why"), [("WFConnection", "when both replicas"), ("Connected", "in time")]
)
def test_a_device_which_does_not_grow_is_an_error(kernel, monkeypatch, connection, why):
    monkeypatch.setattr(device, "_GROW_S", 0)
    kernel.ours()
    kernel.connection = connection
    monkeypatch.setattr(device.DrbdDevice, "_kernel_sectors", lambda self: 1024 * 2048)
    with pytest.raises(errors.BlockDeviceError, match=f"has not grown to 1088 MiB.*{why}"):
        device.DrbdDevice(mirrored()).grow(64, dry_run=False, backing_store=False)


def test_growing_in_two_passes(kernel, monkeypatch):
    kernel.ours()
    grown = []
    monkeypatch.setattr(
        LogicalVolumeDevice,
        "grow",
        lambda self, amount, **rest: grown.append((self.name, amount, rest)),
    )
    monkeypatch.setattr(LogicalVolumeDevice, "size_bytes", lambda self: 1024 << 20)
    one = device.DrbdDevice(mirrored())
    one.grow(64, dry_run=False, backing_store=True)
    assert grown == [("d0_data", 64, {"dry_run": False, "backing_store": True, "exclusive": False})]
    one.grow(64, dry_run=True, backing_store=False)
    assert kernel.verbs() == []
    one.grow(64, dry_run=False, backing_store=False)
    assert kernel.commands[-1] == ["drbdsetup", "resize", "0", "--size", "1088m"]


def test_shutdown_of_what_is_not_there(kernel):
    device.DrbdDevice(mirrored()).shutdown()
    assert kernel.commands == []
    kernel.ours()
    device.DrbdDevice(mirrored()).shutdown()
    assert kernel.state() == ""


def test_an_unknown_replica_releases_its_volumes(kernel, monkeypatch):
    removed = []

    def attempt(self):
        if kernel.data == self.path:
            return self.fail("is in use")
        removed.append(self.name)
        return None

    monkeypatch.setattr(LogicalVolumeDevice, "_try_to_remove", attempt)
    monkeypatch.setattr(blockdev, "_forget_owner", lambda path: None)
    kernel.ours()
    blockdev.remove(plain("d0_data"))
    assert (removed, kernel.verbs(), kernel.state()) == (["d0_data"], ["down"], "")
    # Not that of another, and not one in use.
    kernel.ours()
    kernel.data = OTHER
    assert not leftover.take_down(DATA)
    kernel.data = DATA
    kernel.failing["down"] = "Device is held open by someone"
    with pytest.raises(errors.BlockDeviceError, match="minor 0.*held open"):
        blockdev.remove(plain("d0_data"))
    assert removed == ["d0_data"]


def test_without_the_module_nothing_is_above(monkeypatch, tmp_path):
    monkeypatch.setattr(status, "STATUS_FILE", str(tmp_path / "drbd"))
    assert not leftover.take_down(DATA)


def test_pause_and_resume(kernel):
    kernel.ours()
    assert calls.pause_resume_sync([mirrored(), plain("x")], True) == [[True, None], [True, None]]
    kernel.connection = "PausedSyncS"
    calls.pause_resume_sync([mirrored()], False)
    assert kernel.verbs() == ["pause-sync", "resume-sync"]
    kernel.failing["pause-sync"] = "no"
    ((ok, text),) = calls.pause_resume_sync([mirrored()], True)
    assert not ok and "no" in text


def test_module_that_is_not_loaded(monkeypatch, tmp_path):
    monkeypatch.setattr(status, "STATUS_FILE", str(tmp_path / "drbd"))
    monkeypatch.setattr(status, "HELPER_FILE", str(tmp_path / "helper"))
    one = device.DrbdDevice(mirrored())
    one.shutdown()
    with pytest.raises(errors.BlockDeviceError, match="modprobe drbd"):
        one.assemble()
    with pytest.raises(errors.BlockDeviceError, match="kernel module loaded"):
        calls.helper()
    (tmp_path / "helper").write_text("/bin/true\n")
    assert calls.helper() == "/bin/true"


def test_disks_that_are_not_mirrored():
    with pytest.raises(errors.BlockDeviceError, match="not mirrored"):
        calls.attach_net([plain("x")], False)
