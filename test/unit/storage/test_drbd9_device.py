"""A mirrored disk on a node with DRBD 9, over a kernel module that is a dictionary.

The tests which do not depend on the version are those of DRBD 8.4, run once more.
"""

from __future__ import annotations

import dataclasses

import pytest

from ganeti import errors
from ganeti.backend.storage import drbd as calls
from ganeti.storage.drbd import connections, device, leftover, status
from ganeti.storage.lvm.device import LogicalVolumeDevice

from .drbd9_kernel import PROC, Kernel9
from .drbd_kernel import DATA, META, OTHER, plain
from .drbd_kernel import mirrored as mirrored8
from .test_drbd_device import (  # noqa: F401
    test_a_device_which_does_not_grow_is_an_error,
    test_a_minor_which_stays_in_use_is_an_error,
    test_a_replica_is_never_attached_with_less_than_it_had,
    test_a_replica_of_unknown_size_is_not_attached,
    test_growing_in_two_passes,
    test_growing_never_makes_a_device_smaller,
    test_last_good_copy_is_not_detached,
    test_needs_activation,
    test_opening_what_is_not_active,
    test_other_replicas_are_not_marked,
    test_status,
    test_the_only_copy_below_a_primary_without_storage_is_in_order,
)

FRESH = ["down", "new-resource", "new-minor", "apply-al", "dump-md", "attach"]
CONNECT = ["new-peer", "new-path", "peer-device-options", "connect"]


def mirrored(*, node_id=0, **changes):
    disk = mirrored8(**changes)
    return dataclasses.replace(disk, dynamic_params={**disk.dynamic_params, "node-id": node_id})


@pytest.fixture(autouse=True)
def with_node_id(monkeypatch):
    """The disks of the tests of DRBD 8.4 say which node this is, as the master does."""
    real = device.DrbdDevice.__init__

    def init(self, disk):
        real(self, dataclasses.replace(disk, dynamic_params={"node-id": 0, **disk.dynamic_params}))

    monkeypatch.setattr(device.DrbdDevice, "__init__", init)


@pytest.fixture
def kernel(monkeypatch):
    found = Kernel9()
    monkeypatch.setattr(status, "_read", lambda: PROC)
    monkeypatch.setattr(device.process, "run", found.run)
    monkeypatch.setattr(LogicalVolumeDevice, "is_block_device", lambda self: True)
    return found


def assembled(kernel):
    """A device which is connected to its peer."""
    one = device.DrbdDevice(mirrored())
    one.assemble()
    kernel.connection, kernel.local, kernel.remote = "Connected", "UpToDate", "UpToDate"
    kernel.remote_role = "Secondary"
    kernel.commands.clear()
    return one


def test_activation(kernel):
    device.DrbdDevice(mirrored()).assemble()
    assert kernel.verbs() == [*FRESH, *CONNECT]
    assert (kernel.data, kernel.meta, kernel.peer) == (DATA, META, "192.0.2.2:11000")
    assert (kernel.node_id, kernel.connection) == (0, "WFConnection")


def test_assembling_again_changes_nothing(kernel):
    assembled(kernel).assemble()
    assert kernel.verbs() == []


def test_the_other_node_has_the_other_number(kernel):
    device.DrbdDevice(mirrored(node_id=1)).assemble()
    assert kernel.node_id == kernel.meta_node_id == 1


@pytest.mark.parametrize("node_id", [None, 2])
def test_without_its_number_nothing_is_made(kernel, node_id):
    with pytest.raises(errors.BlockDeviceError, match="number of this node"):
        device.DrbdDevice(mirrored(node_id=node_id)).assemble()
    assert kernel.resource is None


def test_a_resource_with_another_number_is_made_anew(kernel):
    """The number of a resource cannot be changed; that of used metadata neither."""
    kernel.ours()
    kernel.node_id = 1
    device.DrbdDevice(mirrored()).assemble()
    assert kernel.verbs()[0] == "down" and kernel.node_id == 0
    kernel.do_down(["drbdsetup", "down", "resource0"])
    one = device.DrbdDevice(mirrored(node_id=1))
    one.assemble()
    # It works without its storage, which belongs to the other place.
    assert kernel.data is None and one.sync_progress().diskless


def test_an_unused_device_which_was_left_is_made_anew(kernel):
    kernel.resource, kernel.node_id = "resource0", 1
    assert status.minor(0) is None
    device.DrbdDevice(mirrored()).assemble()
    assert kernel.node_id == 0 and kernel.data == DATA


def test_after_a_split_brain_it_makes_a_new_connection(kernel):
    one = assembled(kernel)
    kernel.connection = "StandAlone"
    one.assemble()
    assert kernel.verbs() == ["del-peer", *CONNECT]
    assert kernel.connection == "WFConnection"


def test_a_connection_without_a_path_is_replaced(kernel):
    """What an interrupted activation has left."""
    one = assembled(kernel)
    kernel.connection, kernel.peer = "StandAlone", None
    one.assemble()
    assert kernel.peer == "192.0.2.2:11000" and kernel.connection == "WFConnection"


def test_storage_that_was_lost_is_attached_again(kernel):
    one = assembled(kernel)
    kernel.data = kernel.meta = None
    one.assemble()
    assert "attach" in kernel.verbs() and "connect" not in kernel.verbs()


def test_a_migration_has_two_writers_and_goes_back(kernel):
    one = assembled(kernel)
    calls.disconnect_net([mirrored()])
    assert not kernel.linked
    calls.disconnect_net([mirrored()])
    calls.attach_net([mirrored()], True)
    assert kernel.dual and kernel.protocol == "C"
    calls.attach_net([mirrored()], True)
    with pytest.raises(errors.BlockDeviceError, match="to another peer or in another mode"):
        calls.attach_net([mirrored()], False)
    kernel.connection, kernel.remote, kernel.remote_role = "Connected", "UpToDate", "Primary"
    kernel.primary = True
    one.close()
    assert not kernel.dual and not kernel.primary
    calls.disconnect_net([mirrored()])
    calls.attach_net([mirrored()], False)
    assert not kernel.dual and kernel.protocol == "A"


def test_what_a_dead_master_left_dual_primary_is_made_single_primary(kernel):
    one = assembled(kernel)
    kernel.dual, kernel.primary = True, True
    one.assemble()
    assert kernel.verbs() == ["net-options"] and not kernel.dual


def test_disconnecting_takes_a_moment(kernel):
    one = assembled(kernel)
    real, waits = kernel.do_disconnect, []
    kernel.do_disconnect = lambda words: real(words) if len(waits) > 2 else None
    one.disconnect_net(sleep=waits.append)
    assert not kernel.linked and len(waits) == 3


def test_new_storage_below(kernel):
    assembled(kernel)
    calls.remove_children(mirrored(), mirrored().children)
    assert kernel.data is None
    kernel.meta_node_id = None
    calls.add_children(mirrored(), (plain("n_data"), plain("n_meta", 128)))
    assert (kernel.data, kernel.meta) == ("/dev/xenvg/n_data", "/dev/xenvg/n_meta")
    assert kernel.verbs() == ["detach", "dd", "1", "apply-al", "dump-md", "attach"]
    assert ["create-md", "1"] in [words[-2:] for words in kernel.commands]


def test_new_storage_of_one_that_stands_alone(kernel):
    kernel.ours(connected=False)
    calls.remove_children(mirrored(), mirrored().children)
    assert status.minor(0) is None
    calls.add_children(mirrored(), mirrored().children)
    assert kernel.data == DATA and kernel.peer == "192.0.2.2:11000"


def test_minor_of_somebody_else_is_taken_down(kernel):
    assembled(kernel)
    kernel.resource, kernel.data = "theirs", OTHER
    device.DrbdDevice(mirrored()).assemble()
    assert ["drbdsetup", "down", "theirs"] in kernel.commands
    assert (kernel.resource, kernel.data) == ("resource0", DATA)


def test_with_another_secret_it_is_not_adopted(kernel):
    assembled(kernel)
    kernel.secret = "other"
    device.DrbdDevice(mirrored()).assemble()
    assert kernel.secret == "c0ffee"
    assert kernel.verbs() == ["disconnect", "del-peer", "del-peer", *CONNECT] or (
        kernel.verbs() == ["disconnect", "del-peer", *CONNECT]
    )


def test_a_replica_without_its_peer_is_not_promoted(kernel, monkeypatch):
    monkeypatch.setattr(device, "_CONNECT_S", 0)
    one = assembled(kernel)
    kernel.connection, kernel.remote = "WFConnection", "DUnknown"
    with pytest.raises(errors.BlockDeviceError, match="not known whether it has all data"):
        one.open()
    kernel.connection, kernel.remote = "Connected", "UpToDate"
    one.open()
    assert kernel.primary and kernel.commands[-1] == ["drbdsetup", "primary", "resource0"]


def test_it_never_promises_to_wait_for_its_peer(kernel):
    one = assembled(kernel)
    kernel.primary = True
    assert not one.wait_for_peer()
    kernel.suspended = True
    one.resume_io()
    assert kernel.verbs() == ["resume-io"] and not kernel.suspended


def test_an_incomplete_assembly_is_taken_down(kernel):
    kernel.failing["connect"] = "no"
    with pytest.raises(errors.BlockDeviceError, match="cannot connect"):
        device.DrbdDevice(mirrored()).assemble()
    assert kernel.resource is None


def test_shutdown(kernel):
    one = assembled(kernel)
    one.shutdown()
    assert kernel.resource is None
    kernel.commands.clear()
    one.shutdown()
    assert kernel.verbs() == []


def test_pause_and_resume(kernel):
    one = assembled(kernel)
    one.pause_sync()
    kernel.connection = "PausedSyncS"
    one.resume_sync()
    assert kernel.verbs() == ["pause-sync", "resume-sync"]


def test_an_unknown_replica_is_taken_down(kernel):
    assembled(kernel)
    assert not leftover.take_down("/dev/xenvg/unknown")
    assert leftover.take_down(DATA) and status.minor(0) is None
    assembled(kernel)
    assert list(leftover.take_down_all()) == [(0, None)]


def test_what_verification_compares(kernel):
    assembled(kernel)
    (found,) = connections.listed()
    assert found["storage"] == DATA and found["connection"] == "Connected"
    assert (found["local"], found["remote"]) == (["192.0.2.1", 11000], ["192.0.2.2", 11000])
    assert found["secret"] and not found["dual_primary"]
