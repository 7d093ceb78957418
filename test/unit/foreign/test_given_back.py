"""What is written into an appliance is read back."""

from __future__ import annotations

import dataclasses

from hypothesis import example, given
from hypothesis import strategies as st

from ganeti.foreign import ovf, ovf_writer
from ganeti.foreign.machine import Disk, Machine, Nic

USER_DATA = "#cloud-config\nusers:\n  - name: a\n\n"
NAMES = st.text(min_size=1, max_size=20)
PARAMS = st.dictionaries(NAMES, st.text(max_size=60), max_size=5)
NIC = Nic(mac="aa:00:00:00:00:01", mode="openvswitch", link="switch1", vlan="100", ip="192.0.2.7")
MACHINE = Machine(
    name="web.example.com",
    memory_mib=512,
    vcpus=2,
    disks=(Disk("web.disk0.raw", "raw", 1024),),
    nics=(NIC,),
    hypervisor="kvm",
    hvparams={"kernel_path": "/boot/vmlinuz"},
    beparams={"auto_balance": True},
    disk_template="plain",
    os="image",
    tags=("a", "b"),
)


def written(machine):
    images = [
        ovf_writer.Image(disk.path, 1 << 30, disk.format, disk.size_mib << 20, disk.gzip)
        for disk in machine.disks
    ]
    return ovf_writer.describe(machine, images, external=False)


@given(PARAMS, PARAMS)
@example({"user-data": USER_DATA, "1st": "a", "Parameter": "b", "a=b c": " "}, {})
@example({"x": "\r\n\x00\x1f\x7f\ufffe\u2028", "é": "<&>\"']]>"}, {"kernel_args": " ro \\ "})
def test_parameters_come_back(osparams, hvparams):
    machine = dataclasses.replace(
        MACHINE, osparams=osparams, hvparams={**MACHINE.hvparams, **hvparams}
    )
    assert ovf.parse_ovf(written(machine)) == machine


def test_an_interface_in_a_vlan_comes_back():
    assert ovf.parse_ovf(written(MACHINE)).nics == (NIC,)


def test_simple_parameters_are_written_as_before():
    text = written(dataclasses.replace(MACHINE, osparams={"size": "9 GiB"}))
    assert "<gnt:size>9 GiB</gnt:size>" in text
