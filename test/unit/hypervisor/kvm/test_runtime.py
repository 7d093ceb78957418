"""The runtime file."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ganeti import errors
from ganeti.hypervisor.kvm import runtime

HVINFO = {"driver": "virtio-blk-pci", "id": "disk-1", "bus": "pci.0", "addr": "0x9"}
DISK = {"dev_type": "lvm", "uuid": "u", "hvinfo": HVINFO}
NIC = {"mac": "aa:00:00:00:00:01", "nicparams": {}, "hvinfo": {**HVINFO, "id": "nic-1"}}
# As an older version wrote it: a number among the words, a URI beside the link.
FILE = json.dumps(
    [
        [
            "/usr/bin/kvm",
            "-name",
            "web1",
            "-m",
            1024,
            "-monitor",
            "unix:/vc/a/run/web1.monitor,server",
        ],
        [NIC],
        {"acpi": True},
        [[DISK, "/vc/a/disks/web1:0", None]],
    ]
)


def test_round_trip() -> None:
    record = runtime.loads(FILE, "web1")
    assert record.argv[4] == "1024"
    assert record.disks[0].hvinfo == HVINFO
    assert runtime.loads(record.dumps(), "web1") == record
    assert runtime.values_of(record, "-m") == ["1024"]
    assert json.loads(record.dumps())[0][:3] == ["/usr/bin/kvm", "-name", "web1"]


def test_file_of_another_version() -> None:
    data = Path(__file__).resolve().parents[3] / "data/kvm/kvm_runtime.json"
    record = runtime.loads(data.read_text(), "xen-test-inst2")
    assert runtime.values_of(record, "-m") == ["1024"]
    assert [disk.uri for disk in record.disks] == ["rbd://123451214123/", None]
    assert record.nics[0]["hvinfo"]["addr"] == "0x8"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "null",
        "5",
        "[]",
        "[[], [], {}, []]",
        '[["q"], [], [], []]',
        '[["q"], [], {}, [5]]',
        '[["q"], [], {}, [[{}, "/d", null]]]',
        '[["q"], [{"hvinfo": {"id": "x"}}], {}, []]',
        '[["q"], [{"hvinfo": {"id": "", "driver": "y"}}], {}, []]',
        '[["q"], [], {}]',
        '[["q"], [{"hvinfo": {"id": "x", "driver": "y"}, "uuid": ["z"]}], {}, []]',
    ],
)
def test_damaged(text: str) -> None:
    with pytest.raises(errors.HypervisorError, match="runtime data of instance web1 is"):
        runtime.loads(text, "web1")


def test_file(tmp_path: Path) -> None:
    path = str(tmp_path / "web1.runtime")
    with pytest.raises(errors.HypervisorError, match="cannot read the runtime data"):
        runtime.load(path, "web1")
    record = runtime.loads(FILE, "web1")
    runtime.save(path, record)
    assert runtime.load(path, "web1") == record
    assert Path(path).stat().st_mode & 0o777 == 0o600
