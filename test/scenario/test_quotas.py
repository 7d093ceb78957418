"""Quotas in front of a real queue: requests at once, a restart of the daemon, other owners."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from harness import Cluster, wait_until
from test_rapi import CREATE, NODE1, Rest, address, passwd

ALICE = "alice:secret"
ROLES = "quota alice = instances 3, memory 1g, disk 64m\nquota * = instances 1\n"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    found = Cluster(tmp_path_factory.mktemp("quotas") / "vc", 3, "--hypervisor", "fake")
    try:
        found.make_os("noop")
        passwd(found, "root", "write")
        passwd(found, "alice", "write@own")
        found.path(NODE1, "var/lib/ganeti/rapi/roles").write_text(ROLES)
        yield found
    finally:
        found.destroy()


def use(rest: Rest) -> dict[str, int]:
    status, (found,) = rest("GET", "/2/quota", user=ALICE)
    assert status == 200 and found["owner"] == "alice"
    return dict(found["use"])


def create(rest: Rest, name: str, user: str = ALICE, **more: Any) -> tuple[int, Any]:
    wanted = {**CREATE, "name": name, "iallocator": "hail", "beparams": {"memory": 256}, **more}
    del wanted["pnode"]
    return rest("POST", "/2/instances", wanted, user=user)


def test_quotas(cluster: Cluster) -> None:
    rest = Rest(address(cluster, NODE1))
    wait_until(lambda: use(rest)["instances"] == 0, "the quota of the roles file")
    # Jobs wait, so nothing but the queue knows of the first ones.
    cluster.run("gnt-filter", "add", "--action=PAUSE").ok()
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda n: create(rest, f"a{n}.example.com"), range(8)))
    assert sorted(status for status, _body in found) == [200] * 3 + [409] * 5
    assert use(rest) == {"instances": 3, "memory": 768, "disk": 48, "vcpus": 3}
    # Another daemon learns it from the queue.
    cluster.on(NODE1, "daemon-util", "stop", "ganeti-rapi").ok()
    cluster.on(NODE1, "daemon-util", "start", "ganeti-rapi").ok()
    assert create(rest, "b.example.com")[0] == 409
    ((uuid,),) = cluster.rows("gnt-filter", "list", "-o", "uuid")
    cluster.run("gnt-filter", "delete", uuid).ok()
    for _status, body in found:
        if isinstance(body, int):
            assert rest.end_of(body)["status"] == "success"
    names = sorted(row[0] for row in cluster.rows("gnt-instance", "list", "-o", "name"))
    assert len(names) == 3 and use(rest)["instances"] == 3
    path = f"/2/instances/{names[0]}"
    assert rest("POST", f"{path}/disk/0/grow", {"amount": 20}, user=ALICE)[0] == 409
    assert rest("POST", f"{path}/snapshots", {}, user=ALICE)[0] == 200
    wait_until(lambda: use(rest)["disk"] == 64, "the snapshot, which takes space")
    assert rest("POST", f"{path}/snapshots", {}, user=ALICE)[0] == 409
    # A command on the master has no quota, and what it makes counts.
    cluster.run("gnt-instance", "modify", "-B", "memory=2g", names[0]).ok()
    assert use(rest)["memory"] == 2048 + 512
    rest.job("DELETE", path)
    assert use(rest)["instances"] == 2
    assert create(rest, "free.example.com", "root:secret")[0] == 200
