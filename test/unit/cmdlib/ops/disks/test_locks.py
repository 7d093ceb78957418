"""Disk operations on one node share the node and take turns at its disks."""

from __future__ import annotations

import threading
import time
from typing import Any

from fakes.config import cluster_of, disk_of, instance_of, uuid_of
from fakes.master import Master
from ganeti.constants import disk as disk_c
from ganeti.locking import Level, Owner
from ganeti.opcodes.instance import OpInstanceGrowDisk

PATIENCE_S = 60.0


def test_the_second_waits_for_the_disks_and_not_for_the_node() -> None:
    disks = (disk_of("web", template=disk_c.FILE), disk_of("db", template=disk_c.FILE))
    master = Master(
        cluster_of(
            1,
            (instance_of("web", disks=(disks[0].uuid,)), instance_of("db", disks=(disks[1].uuid,))),
            disks,
        )
    )
    growing, go_on = threading.Event(), threading.Event()

    def grow(node: str, args: dict[str, Any]) -> None:
        growing.set()
        assert go_on.wait(PATIENCE_S)

    master.rpc.answers["blockdev_grow"] = grow
    jobs = [master.new_job(), master.new_job()]
    threads = [
        threading.Thread(
            target=master.processor.execute,
            daemon=True,
            args=(OpInstanceGrowDisk(instance_name=f"{name}.example.com", disk=0, amount=128), job),
        )
        for name, job in zip(("web", "db"), jobs, strict=True)
    ]
    node = uuid_of("node1")
    threads[0].start()
    assert growing.wait(PATIENCE_S)
    threads[1].start()
    deadline = time.monotonic() + PATIENCE_S
    while (wait := master.locks.waiting(jobs[1].owner)) is None:
        assert time.monotonic() < deadline
        time.sleep(0.005)
    assert wait.lock == f"node-res/{node}"
    assert wait.holders == (jobs[0].owner,)
    assert [master.locks.owned(job.owner, Level.NODE) for job in jobs] == [{node: "shared"}] * 2
    # Somebody who needs the node and no disks goes past both.
    other = Owner(99, "start of an instance")
    assert master.locks.acquire(other, Level.NODE, [node], shared=True, timeout_s=0) == {node}
    master.locks.release(other)
    go_on.set()
    for thread in threads:
        thread.join(PATIENCE_S)
    assert master.locks.owners() == []
    assert len(master.rpc.of("blockdev_grow")) >= 2
