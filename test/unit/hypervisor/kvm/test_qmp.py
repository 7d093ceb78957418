"""What becomes of QEMU's errors."""

from __future__ import annotations

import pytest

from ganeti.hypervisor.kvm import qmp


@pytest.mark.parametrize(
    ("kind", "description", "wanted"),
    [
        ("DeviceNotFound", "Device 'disk-1' not found", qmp.ObjectNotFound),
        ("GenericError", "Failed to find node with node-name='disk-1'", qmp.ObjectNotFound),
        ("GenericError", "Device disk-1 is already in the process of unplug", qmp.UnplugPending),
        ("GenericError", "Node disk-1 is in use", qmp.QmpError),
        ("CommandNotFound", "The command nosuch has not been found", qmp.QmpError),
    ],
)
def test_errors_have_classes(kind: str, description: str, wanted: type[qmp.QmpError]) -> None:
    assert qmp.error_class(kind, description) is wanted
