"""The descriptors of the hypervisors, and that only they know hypervisors by name."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from ganeti import errors
from ganeti import hypervisor as drivers
from ganeti.constants import hv
from ganeti.hypervisor.base import Migration
from ganeti.hypervisor.kvm import argv
from ganeti.objects import hypervisors
from ganeti.objects.hypervisors import kvm
from ganeti.objects.hypervisors.descriptor import GuestDevices
from ganeti.tools import daemon_util

LIB = Path(__file__).resolve().parents[3] / "lib" / "ganeti"
CONSTANTS = ("CHROOT", "FAKE", "KVM", "LXC", "XEN_HVM", "XEN_PVM")
#: Where names of hypervisors are: the descriptors, and the table of the drivers.
HOME = ("constants/hv.py", "objects/hypervisors/", "hypervisor/__init__.py")
#: Other files which may hold such a name, and why.
EXCEPTIONS = {
    "client/htools/show.py": "the published form of a cluster names them as in another language",
    "config/newer_values.py": "earlier versions of the original have fewer values of parameters",
    "config/upgrade.py": "old versions of the configuration had other parameters",
    "foreign/machine.py": "machines of other programs run under one of the hypervisors",
    "htools/loading/rest.py": "an option is about nodes with one of the hypervisors",
    "hypervisor/chroot/": "a driver knows its own name",
    "hypervisor/fake/": "a driver knows its own name",
    "hypervisor/kvm/": "a driver knows its own name",
    "hypervisor/lxc/": "a driver knows its own name",
    "mond/collectors/xen.py": "two published collectors are about Xen",
    "hypervisor/xen/": "a driver knows its own name",
    "takeover/": "the configuration of another program and versions of programs are checked",
    "platform/paths.py": "names of directories",
    "vcluster/command.py": "a virtual cluster supports two of the hypervisors",
    "vcluster/creation.py": "a virtual cluster supports two of the hypervisors",
    "vcluster/like.py": "the guests of a simulation are those of one of the hypervisors",
}


def names_in(tree: ast.AST) -> list[str]:
    """``line: name`` for each name of a hypervisor in a module, without docstrings and comments."""
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and node.attr in CONSTANTS:
            found.append((node.lineno, node.attr))
        elif isinstance(node, ast.ImportFrom):
            found += [(node.lineno, one.name) for one in node.names if one.name in CONSTANTS]
        elif isinstance(node, ast.Constant) and node.value in hv.ALL:
            found.append((node.lineno, repr(node.value)))
    return [f"{line}: {name}" for line, name in sorted(found)]


def files() -> list[str]:
    return sorted(str(path.relative_to(LIB)) for path in LIB.rglob("*.py"))


@pytest.mark.parametrize("file", [file for file in files() if not file.startswith(HOME)])
def test_no_other_module_names_a_hypervisor(file: str) -> None:
    found = names_in(ast.parse((LIB / file).read_text(encoding="utf-8")))
    if not file.startswith(tuple(EXCEPTIONS)):
        assert not found, f"{file}: ask the descriptor, see ganeti.objects.hypervisors: {found}"


@pytest.mark.parametrize("place", EXCEPTIONS)
def test_every_exception_is_needed(place: str) -> None:
    found = [file for file in files() if file.startswith(place)]
    assert any(names_in(ast.parse((LIB / file).read_text(encoding="utf-8"))) for file in found)


@pytest.mark.parametrize(
    "code", ["if hv == 'kvm': pass", "x in (hv.XEN_PVM,)", "from ganeti.constants.hv import FAKE"]
)
def test_the_check_finds(code: str) -> None:
    assert names_in(ast.parse(code))


def test_all_published_hypervisors_have_a_descriptor() -> None:
    assert tuple(hypervisors.ALL) == hv.ALL
    with pytest.raises(errors.HypervisorError, match="there is no hypervisor 'nosuch'"):
        hypervisors.of("nosuch")


@pytest.mark.parametrize("name", drivers.known())
def test_a_driver_does_what_its_descriptor_says(name: str) -> None:
    driver = drivers.of(name)
    assert driver.DESCRIPTOR is hypervisors.of(name)
    migrates = type(driver.migration) is not Migration
    assert driver.DESCRIPTOR.can_migrate == migrates


def test_every_published_hypervisor_has_a_driver() -> None:
    assert sorted(drivers.known()) == sorted(hv.ALL)


def test_a_hypervisor_without_a_driver_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    # Taken out and put back, it would be the last one, and the order counts.
    left = {name: where for name, where in drivers._DRIVERS.items() if name != hv.LXC}
    monkeypatch.setattr(drivers, "_DRIVERS", left)
    with pytest.raises(errors.HypervisorError, match="is not supported by this version"):
        drivers.of(hv.LXC)


@pytest.mark.parametrize("descriptor", hypervisors.ALL.values(), ids=hypervisors.ALL)
def test_descriptors_are_complete(descriptor: hypervisors.HypervisorDescriptor) -> None:
    assert list(descriptor.parameters) == sorted(descriptor.parameters)
    assert descriptor.shutdown_daemon in ("", *daemon_util.START_ORDER)
    migration = "migration_mode" in descriptor.parameters
    assert descriptor.can_migrate == migration


def test_xen_resets_the_machine_below_the_kernel() -> None:
    assert hypervisors.of(hv.KVM).reset_argv == ("reboot", "-n", "-f")
    assert hypervisors.of(hv.XEN_PVM).reset_argv[0] == "xl"


@pytest.mark.parametrize(
    ("params", "disks", "nics", "problem"),
    [
        ({}, 16, 3, ""),
        ({}, 16, 4, "need 20 PCI slots, and kvm_pci_reservations=12 leaves 19"),
        ({"kvm_pci_reservations": 7}, 16, 8, ""),
        ({"nic_type": "ne2k_isa"}, 16, 8, ""),
        ({"disk_type": "ide"}, 4, 8, ""),
        ({"disk_type": "ide"}, 5, 1, "has 5 disks and CD drives, and the IDE controller"),
        ({"disk_type": "ide", "cdrom_image_path": "/x"}, 4, 1, "has 5 disks and CD drives"),
        ({"disk_type": "ide", "cdrom_image_path": "/x", "cdrom_disk_type": "scsi"}, 4, 1, ""),
        ({"disk_type": "ide", "machine_version": "pc-q35-8.2"}, 6, 1, ""),
        ({"disk_type": "ide", "machine_version": "pc-q35-8.2"}, 7, 1, "has 6 places"),
        ({"disk_type": "scsi"}, 7, 8, ""),
        ({"disk_type": "scsi"}, 8, 8, "scsi_controller_type=lsi has 7 addresses"),
        ({"disk_type": "scsi-hd", "scsi_controller_type": "virtio-scsi-pci"}, 16, 8, ""),
        ({"disk_type": "scsi", "cdrom_image_path": "/x"}, 7, 1, "has 8 disks and CD drives"),
    ],
)
def test_devices_for_which_a_guest_has_no_place(params, disks, nics, problem):
    known = hypervisors.of("kvm")
    defaults = {name: parameter.default for name, parameter in known.parameters.items()}
    guest = GuestDevices("web.example.com", disks, nics)
    found = known.impossible({**defaults, **params}, guest)
    assert problem in found and bool(problem) == bool(found)


def test_a_name_of_which_no_socket_can_be_made():
    known = hypervisors.of("kvm")
    suffix = max((".monitor", ".serial", ".qmp", ".kvmd", ".qga", ".tpm"), key=len)
    assert kvm.LONGEST_NAME_BYTES + len(suffix) == argv.SOCKET_PATH_MAX_BYTES
    assert known.impossible({}, GuestDevices("x" * 99, 1, 1)) == ""
    found = known.impossible({}, GuestDevices("x" * 100, 1, 1))
    assert "the name of the instance has 100 bytes" in found
    assert hypervisors.of("fake").impossible({}, GuestDevices("x" * 200, 16, 8)) == ""
