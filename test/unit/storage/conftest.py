"""What the tests of several kinds of storage use."""

from __future__ import annotations

import pytest

from ganeti.storage.drbd import device, status
from ganeti.storage.lvm.device import LogicalVolumeDevice

from .drbd_kernel import Kernel


@pytest.fixture
def kernel(monkeypatch):
    found = Kernel()
    monkeypatch.setattr(status, "_read", lambda: f"version: 8.4.11 (api:1)\n{found.state()}")
    monkeypatch.setattr(device.process, "run", found.run)
    monkeypatch.setattr(LogicalVolumeDevice, "is_block_device", lambda self: True)
    return found
