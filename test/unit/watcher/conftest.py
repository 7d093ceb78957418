"""The master node of a cluster with one node group, and a simulated master daemon."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fakes.luxi_master import FakeMaster
from ganeti.platform import paths
from ganeti.query import engine, resources
from ganeti.query.filter import compile_filter

GROUP = "5a6f0000-0000-4000-8000-000000000001"


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> paths.Paths:
    """The root of node1, which is the master."""
    monkeypatch.setenv("GANETI_ROOTDIR", str(tmp_path / "node1.example.com"))
    monkeypatch.setenv("GANETI_HOSTNAME", "node1.example.com")
    monkeypatch.setenv("GANETI_VCLUSTER", str(tmp_path))
    monkeypatch.delenv("FORCE_LUXI_SOCKET", raising=False)
    here = paths.current()
    for directory in (here.data_dir, here.run_dir, here.lock_dir, here.log_dir, here.conf_dir):
        Path(directory).mkdir(parents=True)
    for key, text in (
        ("master_node", "node1.example.com"),
        ("nodegroups", f"{GROUP} default"),
        ("hypervisor_list", "fake"),
        ("maintain_node_health", "False"),
        ("enabled_user_shutdown", "False"),
    ):
        Path(here.ssconf_file(key)).write_text(f"{text}\n", encoding="utf-8")
    Path(here.noded_cert_file).write_text("", encoding="utf-8")
    (tmp_path / "hosts").write_text("127.0.9.1 node1.example.com node1\n", encoding="utf-8")
    return here


@pytest.fixture
def master(here: paths.Paths) -> Iterator[FakeMaster]:
    """A master daemon with nothing in its configuration."""
    fake = FakeMaster()
    for what in ("node", "instance", "job"):
        fake.fields[what] = engine.definitions(resources.lookup(what), None)["fields"]
        fake.rows[what] = []
    fake.results["OP_GROUP_VERIFY_DISKS"] = [{}, [], {}]
    plain = fake._do_Query

    def query(what: str, names: list[str], qfilter: Any) -> dict[str, Any]:
        compile_filter(qfilter, resources.lookup(what))
        found = plain(what, names, qfilter)
        if what == "job":
            # The simulated master knows no filters by status or time.
            wanted = [
                one
                for one in fake.jobs.values()
                if qfilter[:2] == [">=", "received_ts"] or one.status in ("queued", "running")
            ]
            found["data"] = [[[0, one.job_id], [0, one.ops]] for one in wanted]
        return found

    fake.answers["Query"] = query
    with fake.serve(here):
        yield fake


def add_node(
    master: FakeMaster,
    name: str = "node1",
    boot_id: str | None = "b1",
    maintenance: str | None = None,
) -> None:
    """Add a node; without a boot ID it does not answer."""
    row = {"name": name, "offline": False, "bootid": boot_id, "maintenance": maintenance}
    master.rows["node"].append(row)
    if maintenance is None:
        master.statuses[name, "maintenance"] = 3
    if boot_id is None:
        master.statuses[name, "bootid"] = 2


def add_instance(
    master: FakeMaster, name: str = "web1.example.com", status: str = "ERROR_down", **more: Any
) -> None:
    """Add an instance on node1 with its replicas on node2."""
    row = {"name": name, "status": status, "pnode": "node1", "snodes": ["node2"]}
    master.rows["instance"].append(
        {**row, "disks_active": True, "disk.count": 1, "tags": [], **more}
    )
    master.rows["instance"][-1].setdefault("importing_since", None)
    master.rows["instance"][-1].setdefault("uuid", f"uuid-of-{name}")
