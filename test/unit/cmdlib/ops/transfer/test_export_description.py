"""The description of an export gives back what the instance had."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from fakes.config import cluster_of, disk_of, instance_of
from ganeti import ht
from ganeti.backend.backup import exports
from ganeti.cmdlib.ops.transfer import export_description
from ganeti.objects import fill
from ganeti.utils.receipt import Receipt

USER_DATA = "#cloud-config\nusers:\n  - name: a\n    ; b\n\nruncmd:\n- [ls, -l]\n\n"
PARAMS = st.dictionaries(st.text(min_size=1, max_size=20), st.text(max_size=60), max_size=5)


def described(disk_name=None, hypervisor="kvm", **changes):
    disk = dataclasses.replace(disk_of("web", 0, "file"), name=disk_name)
    stored = instance_of("web", hypervisor=hypervisor, disks=(disk.uuid,), **changes)
    data = cluster_of(1, (stored,), (disk,), enabled_hypervisors=(hypervisor,))
    found = fill.filled_instance(data, stored)
    text = exports.describe(found, found.disks_info, 1, {disk.uuid: Receipt(1 << 30, "5a17")})
    return found, export_description.parse(text, pytest.fail)


@given(PARAMS, PARAMS)
@example({"user-data": USER_DATA}, {"ssh-key": USER_DATA})
@example({"Size": "1", "size": "2", "none": "None"}, {"a=b": " ", "#": ""})
def test_parameters_of_the_os_come_back(public, private):
    _instance, found = described(osparams=public, osparams_private=ht.PrivateDict(private))
    assert (found.osparams, found.osparams_private) == (public, private)


# No program can be given a zero character, so no hypervisor has one in its parameters.
@given(st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=60))
@example("None")
@example(" root=/dev/vda1  ro\n")
def test_parameters_of_the_hypervisor_come_back(kernel_args):
    instance, found = described(hvparams={"kernel_args": kernel_args})
    assert found.hvparams["kernel_args"] == kernel_args
    assert found.beparams == {
        key: value for key, value in instance.beparams.items() if key in found.beparams
    }


@pytest.mark.parametrize("name", [None, "root", "none", "None"])
def test_names_of_disks_come_back(name):
    _instance, found = described(disk_name=name)
    assert [disk.name for disk in found.disks] == [name]
