"""Waiting for mirrors is a point where a job may be canceled, where everything can be undone."""

from __future__ import annotations

import dataclasses
from types import SimpleNamespace
from typing import Any

import pytest

from fakes.config import disk_of, instance_of
from fakes.master import FakeJob
from ganeti import errors
from ganeti.cmdlib.ops.disks import sync
from ganeti.objects import BlockDevStatus, Disk, Instance


class Unit:
    """As much of a logical unit as the waiting needs; the mirror never gets ready."""

    def __init__(self, disk: Disk, instance: Instance) -> None:
        self.job = FakeJob(1)
        self.ctx = SimpleNamespace(callbacks=self.job)
        self.config = SimpleNamespace(node=lambda uuid: SimpleNamespace(name=uuid, uuid=uuid))
        self.looks = 0
        status = BlockDevStatus(
            dev_path="/dev/drbd0",
            major=147,
            minor=0,
            sync_percent=12.0,
            estimated_time=60.0,
            is_degraded=True,
            ldisk_status=1,
        )
        self._answer = SimpleNamespace(failure=None, data=[status])
        self.rpc = SimpleNamespace(call=self._call)

    def _call(self, *args: Any, **kwargs: Any) -> Any:
        self.looks += 1
        return self._answer

    def info(self, text: str) -> None:
        self.job.feedback(text)


@pytest.mark.parametrize("cancelable", [True, False])
def test_cancel_while_mirrors_synchronise(cancelable: bool) -> None:
    disk = dataclasses.replace(disk_of("web"), dev_type="drbd")
    instance = instance_of("web", disks=(disk.uuid,))
    unit = Unit(disk, instance)

    def sleep(_seconds: float) -> None:
        if unit.job.cancel and unit.looks > 3:
            raise TimeoutError
        unit.job.cancel = True

    with pytest.raises(errors.JobCanceled if cancelable else TimeoutError):
        sync.wait_for_sync(
            unit,
            instance,
            [disk],
            cancelable=cancelable,  # type: ignore[arg-type]
            sleep=sleep,
        )
    assert unit.looks == (1 if cancelable else 4)
