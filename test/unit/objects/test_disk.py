"""The names for the parts of the id of a disk."""

from __future__ import annotations

from ganeti.objects import Disk


def _disk(dev_type: str, *logical_id: object) -> Disk:
    return Disk(dev_type=dev_type, logical_id=logical_id, size=1024)


def test_the_parts_of_a_mirrored_disk_have_names() -> None:
    found = _disk("drbd", "node-a", "node-b", 11000, 3, 5, "secret").drbd_id
    assert (found.port, found.secret) == (11000, "secret")
    assert found.nodes == ("node-a", "node-b")
    assert found.minors == {"node-a": 3, "node-b": 5}


def test_the_parts_of_other_devices_have_names() -> None:
    volume = _disk("plain", "xenvg", "data").volume_id
    assert (volume.group, volume.name, str(volume)) == ("xenvg", "data", "xenvg/data")
    file = _disk("file", "loop", "/srv/web1/disk0").file_id
    assert (file.driver, file.path) == ("loop", "/srv/web1/disk0")
    assert _disk("ext", "pvdr", "vol1").ext_id.provider == "pvdr"
    assert _disk("rbd", "rbd", "vol2").stored_name == "vol2"


def test_a_damaged_id_of_a_mirrored_disk_is_seen() -> None:
    whole = ("node-a", "node-b", 11000, 3, 5)
    assert _disk("drbd", *whole).has_whole_drbd_id
    assert not _disk("drbd", *whole[:4]).has_whole_drbd_id
    assert not _disk("plain", *whole).has_whole_drbd_id
    assert _disk("drbd", *whole[:2]).all_node_uuids() == ("node-a", "node-b")
