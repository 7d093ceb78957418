"""Waiting for mirrors is a point where a job may be canceled, where everything can be undone."""

from __future__ import annotations

import dataclasses
from types import SimpleNamespace
from typing import Any

import pytest

from fakes.config import disk_of, instance_of
from fakes.master import FakeJob
from ganeti import errors
from ganeti.cmdlib.base import Context, JobLog
from ganeti.cmdlib.ops.disks import sync
from ganeti.objects import BlockDevStatus


class Mirror:
    """A node with a mirror which never gets ready."""

    def __init__(self) -> None:
        self.polls = 0
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

    def call(self, *args: Any, **kwargs: Any) -> Any:
        self.polls += 1
        return self._answer


@pytest.mark.parametrize("cancelable", [True, False])
def test_cancel_while_mirrors_synchronise(cancelable: bool) -> None:
    disk = dataclasses.replace(disk_of("web"), dev_type="drbd")
    instance = instance_of("web", disks=(disk.uuid,))
    job, mirror = FakeJob(1), Mirror()
    config = SimpleNamespace(node=lambda uuid: SimpleNamespace(name=uuid, uuid=uuid))
    ctx = Context(config, mirror, JobLog(job.feedback))  # type: ignore[arg-type]

    def sleep(_seconds: float) -> None:
        if job.cancel and mirror.polls > 3:
            raise TimeoutError
        job.cancel = True

    with pytest.raises(errors.JobCanceled if cancelable else TimeoutError):
        sync.wait_for_sync(
            ctx,
            instance,
            [disk],
            check_cancel=job.check_cancel if cancelable else None,
            sleep=sleep,
        )
    assert mirror.polls == (1 if cancelable else 4)
