"""What is taken from a description which somebody else wrote."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from ganeti import errors
from ganeti.objects import description, hvparams
from ganeti.objects.description import Described, Given, KnownDefaults, Taken
from ganeti.objects.hypervisors import parameter
from ganeti.objects.hypervisors.parameter import CONCERNS, STRING, HvParam

ALL = [(name, one) for name, table in sorted(hvparams.TABLES.items()) for one in table.values()]
DEFAULTS = KnownDefaults(
    enabled_hypervisors=("kvm", "lxc"),
    hvparams={"kvm": {**hvparams.defaults("kvm"), "vnc_bind_address": "127.0.0.1"}},
    os_hvp={"debian": {"kvm": {"cdrom_image_path": "/srv/rescue.iso"}}},
    osparams={"debian": {"mirror": "http://mirror.example.com"}},
    osparams_private_cluster={"debian": {"key": "k"}},
    nicparams={"default": {"mode": "bridged", "link": "br0", "vlan": ""}},
)
DESCRIBED = Described(
    source="appliance web.ova",
    hypervisor="kvm",
    hvparams={
        "acpi": False,
        "kvm_extra": "-chardev file,id=x,path=/etc/cron.d/x",
        "kernel_path": "",
        "vnc_bind_address": "127.0.0.1",
        "machine_version": "pc,dumpdtb=/etc/passwd",
        "security_model": "none",
    },
    os="evil",
    osparams={"script": "/tmp/x"},
    osparams_private={"key": "other"},
    nics=[{"mac": "aa:00:00:00:00:01", "mode": "bridged", "link": "br-admin"}],
    tags=["web", "ganeti:watcher:autorepair:reinstall"],
)


def decide(described: Described = DESCRIBED, **given: Any) -> Taken:
    return description.taken(described, Given(**given), DEFAULTS, "kvm")


def names(found: Taken) -> list[str]:
    return [value.name for value in found.refused]


@pytest.mark.parametrize(("hypervisor", "one"), ALL, ids=lambda x: getattr(x, "name", x))
def test_every_parameter_says_what_it_is_about(hypervisor: str, one: HvParam) -> None:
    """A parameter of a program, a file, a device or options of the node says so."""
    assert one.concerns in CONCERNS
    if one.node_check or one.name.endswith(("_path", "_script", "_file", "_extra", "_bind")):
        own = ("root_path", "init_script")  # of the guest
        assert (one.concerns == parameter.GUEST) == (one.name in own), one.name


def test_a_parameter_cannot_be_declared_without() -> None:
    with pytest.raises(TypeError, match="concerns"):
        HvParam("new", STRING, "")  # type: ignore[call-arg]
    with pytest.raises(errors.ProgrammerError, match="concerns 'something'"):
        HvParam("new", STRING, "", "something")


@pytest.mark.parametrize(
    "name",
    [
        "cdrom_image_path", "cdrom2_image_path", "floppy_image_path", "kernel_path", "initrd_path",
        "firmware_path", "firmware_vars_path", "mem_path", "kvm_path", "kvm_extra", "usb_devices",
        "security_model", "security_domain", "use_chroot", "vnc_password_file", "vnc_x509_path",
        "spice_password_file", "spice_bind", "vnc_bind_address", "migration_tls", "cpu_mask",
        "migration_caps", "spice_use_tls",
    ],
)  # fmt: skip
def test_things_of_the_node_are_refused(name: str) -> None:
    """Each of them alone, with a value which is not that of the cluster."""
    value = "user" if hvparams.TYPES[name] == STRING else not DEFAULTS.hvparams["kvm"][name]
    found = decide(Described(source="it", hypervisor="kvm", hvparams={name: value, "acpi": True}))
    assert names(found) == [name] and found.hvparams == {"acpi": True}
    with pytest.raises(errors.OpPrereqError, match=f"{name}={value!r}.*-description={name}"):
        description.require("it", found.refused)


def test_only_the_guest_is_taken() -> None:
    found = decide()
    assert found.hvparams == {
        "acpi": False, "kernel_path": "", "vnc_bind_address": "127.0.0.1", "security_model": "none",
    }  # fmt: skip
    assert (found.os, found.osparams, found.osparams_private) == ("", {}, {})
    assert found.nics == ({"mac": "aa:00:00:00:00:01", "mode": "bridged"},)
    assert found.tags == ("web",)
    assert names(found) == [
        "os", "kvm_extra", "machine_version", "os/script", "os/key", "nic/link", "tags",
    ]  # fmt: skip


def test_the_refusal_has_each_value_and_the_way_out() -> None:
    with pytest.raises(errors.OpPrereqError) as caught:
        description.require(DESCRIBED.source, decide().refused)
    text = str(caught.value)
    for part in (
        "appliance web.ova names things of the node",
        "kvm_extra='-chardev file,id=x,path=/etc/cron.d/x' (options of a program of the node)",
        "interface 0: link='br-admin' (where the node connects the guest; the cluster has 'br0')",
        "-H kvm:kvm_extra=VALUE",
        "--accept-from-description=os,kvm_extra,machine_version,os/script,os/key,nic/link,tags",
    ):
        assert part in text
    # A private parameter stays private.
    assert "other" not in text


def test_what_is_accepted_is_taken_and_named() -> None:
    found = decide(accepted=["kvm_extra", "os", "os/script", "nic/link"])
    assert names(found) == ["machine_version", "os/key", "tags"]
    assert found.hvparams["kvm_extra"].startswith("-chardev")
    assert (found.os, found.osparams) == ("evil", {"script": "/tmp/x"})
    assert found.nics[0]["link"] == "br-admin"
    assert any("kvm_extra='-chardev" in note for note in description.accepted_notes(found))


def test_what_the_administrator_says_counts() -> None:
    found = decide(
        hvparams=["kvm_extra", "machine_version"], os="debian", osparams=["key"], nics=True,
        tags=True,
    )  # fmt: skip
    assert found.refused == () and found.os == "debian"
    # The parameters were for another OS definition.
    assert (found.osparams, found.nics, found.tags) == ({}, (), ())


def test_a_value_which_the_cluster_has_is_taken() -> None:
    described = Described(
        source="it",
        hypervisor="kvm",
        hvparams={"cdrom_image_path": "/srv/rescue.iso"},
        os="debian",
        osparams={"mirror": "http://mirror.example.com"},
        osparams_private={"key": "k"},
    )
    found = decide(described, accepted=["os"])
    assert found.refused == () and found.hvparams and found.osparams and found.osparams_private
    assert names(decide(dataclasses.replace(described, os="image"))) == [
        "cdrom_image_path", "os/mirror", "os/key",
    ]  # fmt: skip


@pytest.mark.parametrize("name", ["chroot", "lxc"])
def test_a_hypervisor_without_a_kernel_for_its_guests(name: str) -> None:
    described = Described(source="it", hypervisor=name)
    assert names(decide(described)) == ["hypervisor"]
    assert decide(described, accepted=["hypervisor"]).hypervisor == name
    assert names(description.taken(described, Given(), DEFAULTS, name)) == []


def test_protection_which_is_switched_off_is_a_value() -> None:
    described = Described(
        source="it", hypervisor="lxc", hvparams={"drop_capabilities": "", "devices": ""}
    )
    found = description.taken(described, Given(), DEFAULTS, "lxc")
    assert names(found) == ["drop_capabilities"] and found.hvparams == {"devices": ""}


def test_interfaces_of_which_a_part_is_given() -> None:
    assert "nic/link" not in names(decide(nic_parts={0: ["link"]}))


@pytest.mark.parametrize("name", ["kvm_exra", "os/", "nic/ip", "all"])
def test_names_which_cannot_exist(name: str) -> None:
    with pytest.raises(errors.OpPrereqError, match="has no value"):
        decide(accepted=[name])


def test_everything_of_the_clusters_own_is_taken() -> None:
    found = description.all_of(DESCRIBED, Given(hvparams=["acpi"], tags=True))
    assert found.hvparams["kvm_extra"] and "acpi" not in found.hvparams
    assert found.os == "evil" and found.tags == () and found.refused == ()


def test_an_answer_which_lacks_the_defaults() -> None:
    """What is not known is not equal."""
    defaults = description.defaults_of_info({"name": "old.example.com"})
    described = Described(source="it", hypervisor="kvm", hvparams={"kvm_path": "/usr/bin/kvm"})
    assert names(description.taken(described, Given(), defaults, "kvm")) == ["kvm_path"]
