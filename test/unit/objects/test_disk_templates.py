"""Test the descriptors of disk templates and the sets which follow from them."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from itertools import count
from pathlib import Path

import pytest

from ganeti import errors
from ganeti.cli.options import disk_template_names
from ganeti.htools import formats, units
from ganeti.objects import cluster_rules, disk_templates
from ganeti.objects.disk_templates import drbd
from ganeti.objects.disk_templates.descriptor import IdRequest
from ganeti.opcodes import types
from ganeti.storage.drbd import argv


def _request(template, **spec):
    numbers = count(1)
    return IdRequest(template, lambda: f"u{next(numbers)}", 3, spec, "/srv/web1", "loop")


@pytest.mark.parametrize("name", disk_templates.ALL)
def test_module_has_the_name_of_its_template(name):
    assert disk_templates.of(name).name == name


@pytest.mark.parametrize(
    ("template", "spec", "made"),
    [
        ("blockdev", {"adopt": "/dev/sdz"}, ("manual", "/dev/sdz")),
        ("ext", {"provider": "pv"}, ("pv", "u1.ext.disk3")),
        ("file", {}, ("loop", "/srv/web1/u1.file.disk3")),
        ("gluster", {}, ("loop", "ganeti/u1.gluster.disk3")),
        ("plain", {"vg": "xenvg"}, ("xenvg", "u1.disk3")),
        ("rbd", {}, ("rbd", "u1.rbd.disk3")),
        ("sharedfile", {}, ("loop", "/srv/web1/u1.sharedfile.disk3")),
    ],
)
def test_id_of_a_new_disk(template, spec, made):
    assert disk_templates.of(template).new_id(_request(template, **spec)) == made


@pytest.mark.parametrize("template", ["diskless", "drbd"])
def test_template_without_a_single_device_makes_no_id(template):
    with pytest.raises(errors.ProgrammerError):
        disk_templates.of(template).new_id(_request(template))


def test_unknown_template_has_no_descriptor():
    with pytest.raises(errors.ProgrammerError):
        disk_templates.of("mixed")
    assert "mixed" not in disk_templates.MIRRORED


def test_same_parameter_has_one_type():
    found = {}
    for name in disk_templates.ALL:
        for key, parameter in disk_templates.of(name).parameters.items():
            assert found.setdefault(key, parameter.type) == parameter.type


def test_descriptors_are_read_when_the_first_question_is_asked():
    program = textwrap.dedent("""
        import sys
        from ganeti.objects import cluster_rules, disk_templates
        name = "ganeti.objects.disk_templates.plain"
        assert name not in sys.modules
        assert "plain" in disk_templates.GROWABLE and name in sys.modules
    """)
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)


def test_names_have_the_order_of_placement_programs():
    assert " ".join(disk_templates.ALL) == (
        "diskless file sharedfile plain blockdev drbd rbd ext gluster"
    )
    assert list(disk_templates.EXT_MIRRORED) == [
        name for name in disk_templates.ALL if name in disk_templates.EXT_MIRRORED
    ]


def test_template_in_another_directory_belongs_to_all_sets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "striped" not in disk_templates.GROWABLE
    assert not types.DiskTemplate.check("striped")
    (tmp_path / "striped.py").write_text(
        textwrap.dedent("""
        from ganeti.objects.disk_templates.descriptor import (
            NOT_MIRRORED, DiskTemplateDescriptor, Parameter, file_id)

        DESCRIPTOR = DiskTemplateDescriptor(
            name="striped", storage_type="file", mirroring=NOT_MIRRORED, htools_name="DTStriped",
            parameters={"width": Parameter("int", 2)}, new_id=file_id, is_file_based=True,
            directory="file_storage_dir", unit_kind="file", can_grow=True)
        """)
    )
    monkeypatch.setattr(disk_templates, "__path__", [*disk_templates.__path__, str(tmp_path)])
    assert list(disk_templates.ALL)[-1] == "striped"
    assert "striped" in disk_templates.GROWABLE
    assert "striped" in disk_templates.FILE_BASED
    assert "striped" not in disk_templates.MIRRORED
    assert disk_templates.directory_fields()["striped"] == "file_storage_dir"
    assert types.DiskTemplate.check("striped")
    assert "striped" in disk_template_names()
    assert cluster_rules.disk_params({"striped": {"width": 3}}) == {"striped": {"width": 3}}
    assert formats.template_name("striped") == "DTStriped"
    assert units.desired("striped", "/srv", []) == ("file", "/srv")
    monkeypatch.undo()
    assert "striped" not in disk_templates.GROWABLE


@pytest.mark.parametrize(
    ("size_mib", "metadata_mib"),
    [
        (1, 128),
        (1 << 20, 128),
        (4193152, 128),
        (4193153, 132),
        (4 << 20, 132),
        (8 << 20, 260),
        (32 << 20, 1028),
        (drbd.LARGEST_MIB, 32772),
    ],
)
def test_metadata_of_mirrored_disks_follow_from_their_size(
    size_mib: int, metadata_mib: int
) -> None:
    assert drbd.metadata_mib(size_mib) == metadata_mib
    assert disk_templates.space_mib("drbd", size_mib) == size_mib + metadata_mib
    # 36 KiB, and 32 KiB for each GiB.
    assert metadata_mib * 1024 >= 36 + size_mib / 32
    assert drbd.metadata_hold_mib(metadata_mib) >= size_mib
    if metadata_mib > 128:
        assert drbd.metadata_hold_mib(metadata_mib - 4) < size_mib


def test_metadata_that_hold_nothing() -> None:
    assert drbd.metadata_hold_sectors(0) == drbd.metadata_hold_sectors(79) == 0
    assert drbd.metadata_hold_sectors(80) == 128 * 2048
    assert drbd.metadata_hold_mib(128) == 4193152
    # No device is larger, however large its metadata are.
    assert drbd.metadata_hold_mib(1 << 20) == drbd.LARGEST_MIB


@pytest.mark.parametrize("value", ["n", "b", "bf", "fb", "dfb", "d"])
def test_combinations_of_barriers(value: str) -> None:
    given = {"drbd": {"disk-barriers": value}}
    assert cluster_rules.disk_params(given) == given
    assert argv.check_barriers(value) == frozenset(value) - {"n"}


def test_every_default_matches_its_pattern() -> None:
    for name in disk_templates.ALL:
        given = {name: disk_templates.defaults(name)}
        assert cluster_rules.disk_params(given) == given
