"""What gnt-cluster init chooses when no option says it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ganeti import bootstrap, errors, hypervisor
from ganeti.bootstrap import detection, node_state
from ganeti.bootstrap.requirements import Findings
from ganeti.objects import hvparams, hypervisors
from ganeti.platform import machine, paths
from ganeti.utils import process

ADDRESS = "192.0.2.7"
# The kernel which a guest of KVM boots when nobody has chosen another one.
KERNEL = "/boot/vmlinuz-3-kvmU"


def _address(text: str) -> dict[str, str]:
    """An address as ``ip -json address show`` prints it."""
    return {"family": "inet", "local": text, "scope": "global"}


class Box:
    """A machine of its own whose programs answer as told."""

    def __init__(self, directory: Path) -> None:
        self.programs = {"ip", "vgs", "drbdsetup"}
        self.groups = "  xenvg 102400.00\n"
        self.addresses = [
            {"ifname": "lo", "addr_info": [_address("127.0.0.1")]},
            {"ifname": "ens3", "addr_info": [_address("192.0.2.6"), _address(ADDRESS)]},
        ]
        self.qemu: str | None = None
        self.lxc: str | None = "lxc-start"
        self.files = {KERNEL}
        self.net = directory
        for name in ("lo", "ens3"):
            (directory / name).mkdir(parents=True)

    def bridge(self, *names: str) -> None:
        for name in names:
            (self.net / name / "bridge").mkdir(parents=True)

    def run(self, argv: list[str], **_: object) -> process.Completed:
        if argv[0] == "vgs":
            if not self.groups:
                raise errors.CommandError(argv, 5)
            return process.Completed(tuple(argv), 0, self.groups, "", None)
        assert argv[0] == "ip"
        return process.Completed(tuple(argv), 0, json.dumps(self.addresses), "", None)

    def choose(self, **given: Any) -> detection.Choice:
        params = bootstrap.InitParams(cluster_name="cluster.example.com", **given)
        self.findings = Findings()
        return detection.complete(params, ADDRESS, self.findings)


@pytest.fixture
def box(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Box:
    made = Box(tmp_path / "net")
    monkeypatch.setenv("GANETI_ROOTDIR", str(tmp_path / "root"))
    monkeypatch.setenv("GANETI_HOSTNAME", "node1.example.com")
    monkeypatch.setattr(type(machine.current()), "has_own_system", True)
    monkeypatch.setattr(detection, "_NET_DIR", str(made.net))
    monkeypatch.setattr(detection, "is_installed", lambda name: name in made.programs)
    monkeypatch.setattr(detection, "_has_file", lambda path: path in made.files)
    monkeypatch.setattr(process, "run", made.run)
    for name in hypervisor.known():
        if name not in ("fake", "kvm", "lxc"):
            monkeypatch.setattr(type(hypervisor.of(name)), "missing_program", lambda *_: "it")
    monkeypatch.setattr(type(hypervisor.of("chroot")), "missing_program", lambda *_: None)
    monkeypatch.setattr(type(hypervisor.of("kvm")), "missing_program", lambda *_: made.qemu)
    monkeypatch.setattr(type(hypervisor.of("lxc")), "missing_program", lambda *_: made.lxc)
    return made


def test_a_machine_with_everything(box: Box) -> None:
    box.bridge("br0")
    params, words, makes = box.choose()
    assert params.enabled_hypervisors == ("kvm",)
    assert params.enabled_disk_templates == ("drbd", "plain", "diskless")
    assert (params.vg_name, params.master_netdev) == ("xenvg", "ens3")
    assert params.nicparams == {"link": "br0"}
    assert words == [
        "the hypervisor kvm",
        "the disk templates drbd and plain and diskless, in volume group xenvg",
        "the network interface ens3 for the address of the cluster",
        "the bridge br0 for instances",
    ]
    assert not makes
    assert box.findings.missing == []


def test_guests_boot_their_disks_where_the_usual_kernel_is_missing(box: Box) -> None:
    box.files = set()
    for given in ({}, {"enabled_hypervisors": ["kvm"]}):
        params, words, _ = box.choose(hvparams={"kvm": {"acpi": False}}, **given)
        assert params.hvparams == {"kvm": {"acpi": False, "kernel_path": ""}}
        assert "guests of kvm boot what is on their disks (kvm:kernel_path=)" in words
    # With KVM in a second place, and beside a hypervisor which has no kernel.
    params, _, _ = box.choose(enabled_hypervisors=["fake", "kvm"])
    assert params.hvparams == {"kvm": {"kernel_path": ""}}


def test_a_kernel_which_was_chosen_or_exists_stays(box: Box) -> None:
    assert box.choose().params.hvparams == {}
    box.files = set()
    chosen = {"kvm": {"kernel_path": "/boot/own"}}
    assert box.choose(hvparams=chosen).params.hvparams == chosen
    assert box.choose(enabled_hypervisors=["fake"]).params.hvparams == {}
    assert box.choose(enabled_hypervisors=["no-such-one"]).params.hvparams == {}


def test_grub_of_xen_is_chosen_only_where_it_is(box: Box) -> None:
    box.files = set()
    assert box.choose(enabled_hypervisors=["xen-pvm"]).params.hvparams == {}
    needed = hypervisors.of("xen-pvm").boot_from_disk(hvparams.defaults("xen-pvm"), {})
    box.files = {needed["kernel_path"]}
    assert box.choose(enabled_hypervisors=["xen-pvm"]).params.hvparams == {"xen-pvm": needed}


def test_what_is_given_is_never_changed(box: Box) -> None:
    box.bridge("br0")
    params, words, makes = box.choose(
        enabled_hypervisors=["fake"],
        enabled_disk_templates=["diskless"],
        master_netdev="lo",
        nicparams={"mode": "bridged", "link": "br7"},
    )
    assert (params.enabled_hypervisors, params.enabled_disk_templates) == (["fake"], ["diskless"])
    assert (params.master_netdev, params.nicparams["link"]) == ("lo", "br7")
    assert (words, makes) == ([], False)


def test_no_hypervisor_is_an_error_and_not_a_guess(box: Box) -> None:
    box.qemu = "QEMU at /usr/bin/kvm"
    box.choose()
    ((text, _code),) = box.findings.missing
    assert "there is no hypervisor. Install the package qemu-system-x86" in text
    assert "fake" in text


def test_containers_without_qemu_and_never_directories(box: Box) -> None:
    box.qemu, box.lxc = "QEMU at /usr/bin/kvm", None
    assert box.choose().params.enabled_hypervisors == ("lxc",)


@pytest.mark.parametrize(
    ("groups", "group"),
    [
        ("  xenvg 102400.00\n  other 999999.00\n", "xenvg"),
        ("  data 30720.00\n", "data"),
        ("  data 30720.00\n  more 40000.00\n", None),  # nobody knows which
        ("  data 30720.00\n  small 100.00\n", "data"),
        ("  xenvg 1024.00\n", None),
        ("", None),
    ],
)
def test_the_volume_group(box: Box, groups: str, group: str | None) -> None:
    box.groups = groups
    params, _words, makes = box.choose()
    if group is None:
        assert params.enabled_disk_templates == ("file", "diskless")
        assert makes
    else:
        assert params.vg_name == group
        assert not makes


def test_without_drbd_disks_are_plain(box: Box) -> None:
    box.programs.remove("drbdsetup")
    assert box.choose().params.enabled_disk_templates == ("plain", "diskless")


def test_without_lvm_disks_are_files(box: Box) -> None:
    box.programs.remove("vgs")
    assert box.choose().params.enabled_disk_templates == ("file", "diskless")


def test_a_given_directory_is_not_made(box: Box) -> None:
    box.groups = ""
    assert not box.choose(file_storage_dir="/srv/mine").makes_file_storage


@pytest.mark.parametrize(
    ("bridges", "given", "link"),
    [
        ([], {}, None),
        (["br0"], {}, "br0"),
        (["br0", "br1"], {}, None),
        (["br0", "xen-br0"], {}, None),  # the default exists
        (["br0"], {"mode": "routed"}, None),
        (["br0"], {"mode": "bridged"}, "br0"),
    ],
)
def test_the_bridge(box: Box, bridges: list[str], given: dict[str, str], link: str | None) -> None:
    box.bridge(*bridges)
    assert box.choose(nicparams=given).params.nicparams.get("link") == link


def test_the_bridge_which_has_the_address_of_this_machine(box: Box) -> None:
    box.bridge("br0", "br1")
    box.addresses.append({"ifname": "br1", "addr_info": [_address(ADDRESS)]})
    box.addresses[1]["addr_info"] = []
    params = box.choose().params
    assert (params.master_netdev, params.nicparams) == ("br1", {"link": "br1"})


def test_an_address_which_no_interface_has(box: Box) -> None:
    box.addresses.clear()
    assert box.choose().params.master_netdev is None


def test_a_virtual_cluster_has_no_network_to_choose(
    box: Box, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(type(machine.current()), "has_own_system", False)
    params = box.choose().params
    assert (params.master_netdev, params.nicparams) == (None, {})


@pytest.mark.parametrize("fails", [False, True])
def test_the_directory_of_file_storage_is_made_and_the_failure_undone(
    box: Box, fails: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    box.groups = ""
    (tmp_path / "hosts").write_text(
        "127.9.8.1 node1.example.com node1\n127.9.8.250 cluster.example.com\n", encoding="ascii"
    )
    monkeypatch.setenv("GANETI_VCLUSTER", str(tmp_path))
    monkeypatch.setattr(type(machine.current()), "has_own_system", False)

    def daemon_util(*words: str, env: object = None) -> None:
        if fails and words == ("start", "ganeti-masterd"):
            raise errors.OpExecError("the port is in use")

    monkeypatch.setattr(node_state, "daemon_util", daemon_util)
    here = paths.current()
    directory = Path(here.to_local(paths.DEFAULT_FILE_STORAGE_DIR))
    listing = Path(here.file_storage_paths_file)
    params = bootstrap.InitParams(
        cluster_name="cluster.example.com", modify_ssh_setup=False, enabled_hypervisors=["fake"],
        nicparams={"mode": "user", "link": ""},
    )  # fmt: skip
    make: Callable[[], object] = lambda: bootstrap.init_cluster(params)  # noqa: E731
    if fails:
        with pytest.raises(errors.OpExecError, match="in use"):
            make()
    else:
        make()
    assert (directory.is_dir(), listing.exists()) == (not fails, not fails)


def test_what_exists_is_kept(box: Box) -> None:
    here = paths.current()
    listing = Path(here.file_storage_paths_file)
    listing.parent.mkdir(parents=True)
    listing.write_text("/srv/mine\n", encoding="ascii")
    made = detection.make_file_storage(here)
    assert made == [here.to_local(paths.DEFAULT_FILE_STORAGE_DIR)]
    assert listing.read_text(encoding="ascii") == "/srv/mine\n"
    (Path(made[0]) / "disk").touch()
    detection.remove_file_storage(made)
    assert Path(made[0]).is_dir()
