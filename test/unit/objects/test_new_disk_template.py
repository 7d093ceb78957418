"""A disk template which only this test knows goes through the whole life of an instance.

Its descriptor and the class of its devices are files of the test. The nodes run their real code
(:mod:`fakes.node_side`), so a place which asks for templates by name, instead of asking the
descriptor, shows here.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fakes import node_side
from fakes.config import cluster_of
from fakes.node_side import SHARED, Cluster
from fakes.rpc import FakeRpc
from fakes.transfers import Transfers
from ganeti import storage
from ganeti.client.gnt_instance.program import PROGRAM
from ganeti.client.htools import program
from ganeti.cmdlib.ops.transfer import disk_copy
from ganeti.master import queries
from ganeti.objects import Disk, Instance, disk_templates, ipolicy
from ganeti.opcodes import instance as ops
from ganeti.opcodes.backup import OpBackupExport
from ganeti.opcodes.cluster import OpClusterSetParams, OpClusterVerifyConfig, OpClusterVerifyGroup
from ganeti.opcodes.group import OpGroupVerifyDisks
from ganeti.rpc import Result
from ganeti.utils import clock
from ganeti.wire.calls import NODE_VERIFY, Call

LIB = Path(__file__).resolve().parents[3] / "lib"
WEB = "web.example.com"
MIB = 1 << 20
SIZE_MIB = 4

DESCRIPTOR = """
from ganeti.objects.disk_templates.descriptor import (
    MIRRORED_BY_STORAGE, DiskTemplateDescriptor, Parameter)

DESCRIPTOR = DiskTemplateDescriptor(
    name="cabinet",
    storage_type="cabinets",
    mirroring=MIRRORED_BY_STORAGE,
    htools_name="DTCabinet",
    device="cabinet_device:Drawer",
    parameters={"locks": Parameter("int", 1)},
    new_id=lambda request: ("cabinet", request.name()),
    can_grow=True,
    may_hold_old_data=True,
)
"""
DEVICE = f'''
import os
from ganeti.platform import paths
from ganeti.storage.base import BlockDevice

class Drawer(BlockDevice):
    """A file in a directory which all nodes share."""

    @property
    def path(self):
        name = f"/{SHARED}/{{self.disk.logical_id[1]}}"
        return paths.current().to_local(name)

    @property
    def unique_id(self):
        return self.disk.logical_id[1]

    def create(self, size_mib, *, exclusive=False, owner=""):
        with open(self.path, "xb") as stream:
            stream.truncate(size_mib << 20)

    def remove(self):
        if self.exists():
            os.unlink(self.path)

    def exists(self):
        return os.path.exists(self.path)

    def assemble(self):
        os.stat(self.path)

    def grow(self, amount_mib, *, dry_run, backing_store, exclusive=False):
        if backing_store and not dry_run:
            os.truncate(self.path, self.size_bytes() + (amount_mib << 20))

    def rename(self, new_id):
        raise self.fail("a drawer keeps its name")

    def size_bytes(self):
        return os.path.getsize(self.path)
'''


class Nodes(Transfers):
    """Nodes of which verification finds all but the disks in order."""

    def _answer(self, call: Call, node_name: str, args: dict[str, Any]) -> Result:
        if call is NODE_VERIFY:
            healthy = FakeRpc(self.config)
            healthy.answers["time"] = lambda _node: list(clock.split(clock.now()))
            return Result(node_name, healthy._node_verify(node_name, args))
        return super()._answer(call, node_name, args)


@pytest.fixture(autouse=True)
def _template(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Make the template known, as a package of its own could."""
    for directory, name, text in (
        ("templates", "cabinet", DESCRIPTOR),
        ("devices", "cabinet_device", DEVICE),
    ):
        (tmp_path / directory).mkdir()
        (tmp_path / directory / f"{name}.py").write_text(text)
    monkeypatch.setattr(
        disk_templates, "__path__", [*disk_templates.__path__, str(tmp_path / "templates")]
    )
    monkeypatch.syspath_prepend(tmp_path / "devices")
    monkeypatch.setattr(node_side, "NodeSide", Nodes)
    monkeypatch.setattr(disk_copy, "POLL_MIN_S", 0.0)
    yield


@pytest.fixture
def cluster(tmp_path: Path) -> Cluster:
    """Three nodes where disks can be of that template only."""
    rules = ipolicy.defaults()
    rules["minmax"][0]["min"]["disk-size"] = 1
    (tmp_path / "nodes").mkdir()
    return Cluster(
        cluster_of(
            3, ipolicy=rules, enabled_disk_templates=("cabinet",), enabled_hypervisors=("fake",)
        ),
        tmp_path / "nodes",
    )


def create(**changes: object) -> ops.OpInstanceCreate:
    values: dict[str, object] = {
        "instance_name": WEB,
        "mode": "create",
        "disk_template": "cabinet",
        "pnode": "node1",
        "os_type": "noop",
        "disks": [{"size": SIZE_MIB}],
        "nics": [{}],
    }
    return ops.OpInstanceCreate(**{**values, **changes})


def web(cluster: Cluster) -> Instance:
    (found,) = cluster.config.instances()
    return found


def disk(cluster: Cluster) -> Disk:
    (found,) = cluster.config.instance_disks(web(cluster))
    return found


def content(cluster: Cluster) -> Path:
    """The file of the disk."""
    return Path(cluster.rpc.directory) / "shared" / disk(cluster).logical_id[1]


def test_no_file_of_the_program_names_it() -> None:
    named = [path for path in LIB.rglob("*.py") if "cabinet" in path.read_text().lower()]
    assert named == []


def test_life_of_an_instance(cluster: Cluster) -> None:
    cluster.run(create())
    assert disk(cluster).dev_type == "cabinet"
    assert disk(cluster).logical_id[0] == "cabinet"
    assert disk(cluster).logical_id[1].endswith(".cabinet.disk0")
    assert content(cluster).stat().st_size == SIZE_MIB * MIB
    assert cluster.rpc.running() == {WEB: ["node1"]}

    cluster.run(ops.OpInstanceGrowDisk(instance_name=WEB, disk=0, amount=4))
    assert (disk(cluster).size, content(cluster).stat().st_size) == (8, 8 * MIB)

    cluster.run(ops.OpInstanceMigrate(instance_name=WEB, target_node="node2"))
    assert cluster.rpc.running() == {WEB: ["node2"]}
    cluster.run(ops.OpInstanceFailover(instance_name=WEB, target_node="node3"))
    assert cluster.rpc.running() == {WEB: ["node3"]}

    cluster.run(ops.OpInstanceShutdown(instance_name=WEB))
    content(cluster).write_bytes(bytes([7]) * 8 * MIB)
    cluster.run(OpBackupExport(instance_name=WEB, target_node="node2", long_sleep=True))
    exported = cluster.rpc.root("node2.example.com") / "var/lib/ganeti/export" / WEB
    (copied,) = [path for path in exported.iterdir() if path.name != "config.ini"]
    assert copied.read_bytes() == bytes([7]) * 8 * MIB

    cluster.run(ops.OpInstanceRemove(instance_name=WEB))
    cluster.run(
        create(mode="import", src_node="node2", src_path=WEB, disks=[{"size": 8}], start=False)
    )
    assert content(cluster).read_bytes() == bytes([7]) * 8 * MIB
    changes = [["add", -1, {"size": SIZE_MIB}]]
    cluster.run(ops.OpInstanceSetParams(instance_name=WEB, disks=changes))
    kinds = [one.dev_type for one in cluster.config.instance_disks(web(cluster))]
    assert kinds == ["cabinet", "cabinet"]
    cluster.run(ops.OpInstanceReinstall(instance_name=WEB))
    cluster.run(
        ops.OpInstanceRename(
            instance_name=WEB, new_name="b.example.com", ip_check=False, name_check=False
        )
    )

    cluster.run(ops.OpInstanceRemove(instance_name="b.example.com"))
    assert list((Path(cluster.rpc.directory) / "shared").iterdir()) == []


def test_allocator_chooses_a_node(cluster: Cluster) -> None:
    cluster.run(create(pnode=None, iallocator="hail"))
    assert cluster.rpc.running()[WEB]


def test_parameters(cluster: Cluster) -> None:
    assert cluster.config.cluster().diskparams["cabinet"] == {"locks": 1}
    cluster.run(OpClusterSetParams(diskparams={"cabinet": {"locks": "2"}}))
    cluster.run(create())
    annotated = cluster.config.annotated_disk(disk(cluster), web(cluster))
    assert annotated.params == {"locks": 2}
    assert type(storage.device(annotated)).__name__ == "Drawer"


def complaints(cluster: Cluster) -> list[str]:
    """What the verification of the nodes says."""
    good = cluster.run(OpClusterVerifyGroup(group_name="default"))
    found = [line for line in cluster.job.log if "ERROR" in line]
    assert good is (not found)
    return found


def test_verification_finds_a_lost_disk(cluster: Cluster) -> None:
    cluster.run(create())
    cluster.run(OpClusterVerifyConfig())
    assert complaints(cluster) == []
    assert cluster.run(OpGroupVerifyDisks(group_name="default")) == ({}, [], {})
    content(cluster).unlink()
    (complaint,) = complaints(cluster)
    assert complaint.endswith(f"{WEB}: disk/0 does not exist on node node1.example.com")
    cluster.run(ops.OpInstanceShutdown(instance_name=WEB))
    cluster.run(ops.OpInstanceRecreateDisks(instance_name=WEB))
    assert content(cluster).stat().st_size == SIZE_MIB * MIB
    cluster.run(ops.OpInstanceStartup(instance_name=WEB))
    assert complaints(cluster) == []


def test_lists(cluster: Cluster) -> None:
    cluster.run(create())
    answer = queries.query(
        cluster.context, "instance", ["name", "disk_template", "disk.sizes", "disk_usage", "status"]
    )
    assert answer["data"] == [[[0, WEB], [0, "cabinet"], [0, [4]], [0, 4], [0, "running"]]]
    (shown,) = cluster.run(ops.OpInstanceQueryData(instances=[WEB])).values()
    assert shown["disk_template"] == "cabinet"
    assert [one["dev_type"] for one in shown["disks"]] == ["cabinet"]


def test_command_offers_it() -> None:
    (option,) = [one for one in PROGRAM.commands["add"].options if one.dest == "disk_template"]
    assert "cabinet" in option.choices


POLICY = "128,1,1024,1,1,1|128,1,1,1,1,1;32768,8,1048576,16,8,12|cabinet|4.0|32.0"


def placement(name: str, *words: str) -> str:
    module = importlib.import_module(f"ganeti.client.htools.{name}")
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        assert program.main(module.PROGRAM, list(words)) == 0
    return out.getvalue()


def test_balance_and_capacity(tmp_path: Path) -> None:
    nodes = "\n".join(
        f"node{number}|16384|512|12000|100000|80000|8|N|g1|1||N|0|1|1.0" for number in range(1, 4)
    )
    instances = "\n".join(
        f"inst{number}|4096|2048|1|running|Y|node1||cabinet||1|-|N" for number in range(1, 4)
    )
    text = f"default|g1|preferred||\n\n{nodes}\n\n{instances}\n\n\n|{POLICY}\ndefault|{POLICY}\n"
    path = tmp_path / "cluster"
    path.write_text(text)
    found = placement("hbal", f"--text-data={path}", "--print-commands")
    moved = re.findall(r"inst\d node1 +=> (node\d)", found)
    assert sorted(moved) == ["node2", "node3"]
    assert "gnt-instance migrate -f -n node2" in found
    room = placement(
        "hspace",
        f"--text-data={path}",
        "--disk-template=cabinet",
        "--standard-alloc=10g,1g,1",
    )
    assert "using disk template 'cabinet'" in room
    assert "-   7 instances allocated" in room
