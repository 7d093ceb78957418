"""The life of a guest and what may fail, with a real QEMU and Linux, and without daemons.

Two node roots share a storage directory, as two nodes of a virtual cluster do. Emulated guests
boot in about four seconds each. Further subjects: ``test_qemu_migration.py``,
``test_qemu_console.py``, ``test_qemu_users.py``, ``test_qemu_node.py``, ``test_qemu_os.py``.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from kvm_node import (
    NAME,
    PATIENCE_S,
    SHARED,
    Node,
    find_qemu,
    status,
    wait_until,
)

from ganeti import errors
from ganeti.backend.instance import hotplug, lifecycle
from ganeti.backend.storage import blockdev
from ganeti.hypervisor.kvm.driver import KvmHypervisor
from ganeti.hypervisor.kvm.qmp import Qmp
from ganeti.objects.instance import FilledInstance
from ganeti.platform import paths
from ganeti.utils import process

HERE = Path(__file__).resolve().parent

pytestmark = pytest.mark.skipif(
    not os.access(find_qemu(), os.X_OK), reason="QEMU (qemu-system-x86) is not installed"
)


# Life of a guest


def test_start_info_and_acpi_shutdown(node: Node, guest: FilledInstance) -> None:
    node.start(guest)
    boot, _ = node.wait_booted(guest)
    assert boot.startswith("1-")
    assert node.running() == [NAME]
    info = node.info(guest)
    assert (info["memory"], info["vcpus"], info["state"]) == (96, 1, 0)
    assert info["time"] > 0
    node.start(guest)  # starting a running guest changes nothing
    assert node.running() == [NAME]
    pid = node.pid(guest)
    node.shutdown(guest)
    assert "going down (off)" in node.console(guest)  # it shut itself down
    assert not process.is_alive(pid)
    assert node.running() == []
    assert node.info(guest) == {}
    assert node.leftovers() == []


def test_forced_stop(node: Node, guest: FilledInstance) -> None:
    node.start(guest)
    pid = node.pid(guest)
    node.shutdown(guest, timeout_s=0)
    assert not process.is_alive(pid)
    assert "going down" not in node.console(guest)
    assert node.leftovers() == []
    node.shutdown(guest, timeout_s=0)  # and once more changes nothing


def test_guest_that_does_not_react_is_stopped_hard(node: Node, guest: FilledInstance) -> None:
    node.start(guest)
    node.wait_booted(guest)
    with Qmp(node.socket(guest, "qmp"), NAME) as control:
        control.execute("stop")  # its processor stands still: it feels no button
    pid = node.pid(guest)
    node.shutdown(guest, timeout_s=1)
    assert not process.is_alive(pid)
    assert node.leftovers() == []


def test_shutdown_while_another_program_holds_the_control_socket(
    node: Node, guest: FilledInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ganeti.hypervisor.kvm.qmp.TIMEOUT_S", 0.5)
    node.start(guest)
    with Qmp(node.socket(guest, "qmp"), NAME):
        assert node.info(guest)["memory"] == 96  # from the command line
        node.shutdown(guest, timeout_s=1)
    assert node.leftovers() == []


def test_paused_start(node: Node, guest: FilledInstance) -> None:
    node.start(guest, paused=True)
    assert status(node, guest) == "prelaunch"
    assert node.console(guest) == ""
    assert node.running() == [NAME]
    node.shutdown(guest, timeout_s=int(PATIENCE_S))  # needs nothing of the guest
    assert node.leftovers() == []


@pytest.mark.long
def test_reboots_count_on_the_disk(node: Node, guest: FilledInstance) -> None:
    node.start(guest)
    assert node.wait_booted(guest)[0].startswith("1-")
    for kind, number in (("soft", 2), ("hard", 3)):
        before, pid = len(node.lines(guest)), node.pid(guest)
        with paths.override(node.paths):
            lifecycle.reboot(guest, kind, 60, [])
        assert node.pid(guest) != pid
        wait_until(
            lambda n=number: any(boot.startswith(f"{n}-") for boot, _ in node.lines(guest)),
            f"boot number {number}",
        )
        assert len(node.lines(guest)) > before
    node.shutdown(guest)
    with paths.override(node.paths), pytest.raises(errors.HypervisorError, match="not running"):
        lifecycle.reboot(guest, "soft", 5, [])


def test_soft_reboot_keeps_the_hardware_hard_takes_the_new(
    node: Node, guest: FilledInstance
) -> None:
    node.start(guest)
    node.wait_booted(guest)
    larger = node.instance(NAME, memory_mib=112)
    for kind, memory_mib in (("soft", 96), ("hard", 112)):
        with paths.override(node.paths):
            lifecycle.reboot(larger, kind, 60, [])
        assert node.info(guest)["memory"] == memory_mib
        node.wait_booted(guest, more_than=len(node.lines(guest)))


def test_diskless_guest(node: Node) -> None:
    guest = node.instance("nodisk.example.com", disks=0)
    node.start(guest)
    wait_until(lambda: "tiny: diskless boot" in node.console(guest), "it runs from memory")
    node.shutdown(guest)
    assert node.leftovers() == []


def test_a_guest_cannot_make_another_format_of_its_disk(node: Node, tmp_path: Path) -> None:
    """A header of qcow2 in a raw disk is content, also when the disk is plugged in."""
    secret = tmp_path / "secret"
    secret.write_bytes(b"of the node" + bytes(4096))
    guest = node.instance("header.example.com", disks=3)
    node.install(guest)
    header = tmp_path / "header"
    process.run(
        ["qemu-img", "create", "-q", "-f", "qcow2", "-F", "raw", "-b", str(secret), str(header)],
        timeout_s=60,
    )
    for index in (1, 2):
        with node.disk_file(guest, index).open("r+b") as stream:
            stream.write(header.read_bytes())
    first = replace(guest, disks_info=guest.disks_info[:2])
    node.start(first, paused=True)
    with paths.override(node.paths):
        plugged = guest.disks_info[2]
        _device, link, uri = blockdev.assemble(plugged, guest, True, 2)
        hotplug.hotplug_device(first, "hotadd", "disk", plugged, [link, uri], 2)
    with Qmp(node.socket(guest, "qmp"), guest.name) as control:
        nodes = control.execute("query-named-block-nodes")
    formats = {block["file"]: block["drv"] for block in nodes if block["drv"] != "file"}
    assert len(formats) == 3 and set(formats.values()) == {"raw"}
    assert str(secret) not in str(nodes)


def test_q35_with_scsi_disk(node: Node) -> None:
    """Other hardware than the default finds its place on the guest's buses."""
    guest = node.instance(
        "q35.example.com",
        disks=2,
        machine_version="q35",
        nic={"mode": "user", "link": ""},
        disk_type="scsi-hd",
        scsi_controller_type="virtio-scsi-pci",
    )
    node.install(guest)
    node.start(guest, paused=True)
    with Qmp(node.socket(guest, "qmp"), guest.name) as control:
        names = {
            block["qdev"].split("/")[-1] if "qdev" in block else ""
            for block in control.execute("query-block")
        }
    assert f"disk-{'-'.join(guest.disks_info[1].uuid.split('-')[:3])}" in names


@pytest.mark.long
def test_reboot_from_inside(node: Node, guest: FilledInstance) -> None:
    """The same QEMU goes on; with reboot_behavior=exit it ends, for the watcher to start it."""
    node.start(guest)
    node.wait_booted(guest)
    pid = node.pid(guest)
    node.type_in(guest, "power reboot", lambda: node.lines(guest)[-1][0].startswith("2-"))
    assert node.pid(guest) == pid and node.running() == [NAME]
    node.shutdown(guest, 0)
    ending = node.instance(NAME, reboot_behavior="exit")
    node.start(ending)
    wait_until(lambda: node.lines(guest)[-1][0].startswith("3-"), "boot number 3")
    pid = node.pid(guest)
    node.type_in(guest, "power reboot", lambda: not process.is_alive(pid))
    assert node.running() == []
    node.shutdown(ending, 0)
    assert node.leftovers() == []


def test_removing_the_disk_at_the_end(node: Node, guest: FilledInstance) -> None:
    with paths.override(node.paths):
        for disk in guest.disks_info:
            blockdev.assemble(disk, guest, True, 0)
            blockdev.shutdown(disk)
            blockdev.remove(disk)
            blockdev.remove(disk)
        blockdev.file_storage_dir_remove(str(Path(guest.disks_info[0].logical_id[1]).parent))
    assert node.leftovers() == []
    assert list((node.root.parent / "shared").rglob("*")) == []


# Failure


def test_interrupted_start_is_completed_or_undone(node: Node, guest: FilledInstance) -> None:
    """As after a power cut of the node daemon between any two steps of a start."""
    node.start(guest, paused=True)  # cut before the guest was let run
    pid = node.pid(guest)
    node.start(guest, paused=True)
    assert status(node, guest) == "prelaunch"
    node.start(guest)
    assert node.pid(guest) == pid
    node.wait_booted(guest)
    Path(f"{node.paths.kvm_root}/conf/{NAME}.runtime").unlink()  # cut before the record
    node.start(guest)
    assert node.pid(guest) != pid and not process.is_alive(pid)
    wait_until(lambda: node.lines(guest)[-1][0].startswith("2-"), "it has booted again")
    node.shutdown(guest)
    assert node.leftovers() == []


def test_target_of_a_migration_that_never_came(
    nodes: tuple[Node, Node], guest: FilledInstance
) -> None:
    first, second = nodes
    first.start(guest)
    with paths.override(first.paths):
        info = lifecycle.migration_info(guest)
    for finish in (second.shutdown, second.start):
        with paths.override(second.paths):
            lifecycle.accept_instance(guest, info, "127.0.0.31")
        waiting = second.pid(guest)
        if finish == second.start:
            first.shutdown(guest, timeout_s=0)
        finish(guest)
        assert not process.is_alive(waiting)
    second.wait_booted(guest)


def test_crash_is_seen_and_mended(node: Node, guest: FilledInstance) -> None:
    node.start(guest)
    node.wait_booted(guest)
    pid = node.pid(guest)
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: not process.is_alive(pid), "QEMU is gone")
    assert node.running() == []
    assert node.info(guest) == {}
    with paths.override(node.paths), pytest.raises(errors.HypervisorError, match="not running"):
        lifecycle.migration_info(guest)
    assert node.leftovers() != []
    node.start(guest)
    assert node.pid(guest) != pid
    os.kill(node.pid(guest), signal.SIGKILL)
    wait_until(lambda: node.running() == [], "QEMU is gone")
    node.shutdown(guest)
    assert node.leftovers() == []


@pytest.mark.parametrize(
    "params, words",
    [
        ({"kernel_path": "/nonexistent/vmlinux"}, "could not load kernel|could not open kernel"),
        ({"kvm_extra": "-no-such-option"}, "no-such-option: invalid option"),
        ({"machine_version": "pdp11"}, "unsupported machine type"),
        ({"kvm_path": "/nonexistent/kvm"}, "is not an executable file. Is QEMU installed"),
        ({"kvm_path": "/bin/true"}, "/bin/true is not QEMU"),
        ({"vnc_bind_address": "127.0.0.1"}, "no network port for VNC"),
        ({"security_model": "pool"}, "cluster's pool of user ids is empty"),
    ],
)
def test_failing_start_says_why_and_leaves_nothing(
    node: Node, guest: FilledInstance, params: dict[str, str], words: str
) -> None:
    broken = node.instance(NAME, **params)
    with pytest.raises(errors.HypervisorError, match=words):
        node.start(broken)
    assert node.leftovers() == []
    assert node.running() == []


def test_missing_disk(node: Node) -> None:
    with paths.override(node.paths):
        with pytest.raises(errors.BlockDeviceError, match="there is no directory .*Mount"):
            lifecycle.start(node.instance(NAME), False, [])
        blockdev.file_storage_dir_create(f"{SHARED}/{NAME}")
        with pytest.raises(errors.BlockDeviceError, match="does not exist"):
            lifecycle.start(node.instance(NAME), False, [])
    assert node.leftovers() == []


def test_bridged_nic_without_a_bridge_or_root(node: Node, guest: FilledInstance) -> None:
    with_nic = node.instance(NAME, nic={"mode": "bridged", "link": "nobridge0"})
    words = "cannot set up the network" if os.geteuid() == 0 else "needs root"
    interfaces = set(os.listdir("/sys/class/net"))
    with pytest.raises(errors.HypervisorError, match=words):
        node.start(with_nic)
    assert node.leftovers() == []
    assert not [
        name for name in set(os.listdir("/sys/class/net")) - interfaces if name.startswith("gnt.")
    ]


def test_user_networking_is_for_virtual_clusters(node: Node, guest: FilledInstance) -> None:
    from ganeti.hypervisor.kvm import nics

    with paths.override(paths.Paths("")), pytest.raises(errors.HypervisorError, match="virtual"):
        nics.host_nics([{"nicparams": {"mode": "user"}}], NAME)


def test_two_starts_at_once_make_one_guest(node: Node, guest: FilledInstance) -> None:
    argv = [sys.executable, HERE / "kvm_node.py", node.root, node.image, "start", NAME]
    starters = [subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    outputs = [starter.communicate(timeout=PATIENCE_S)[0] for starter in starters]
    assert all("started" in text or "is running already" in text for text in outputs), outputs
    assert node.running() == [NAME]
    node.wait_booted(guest)
    node.shutdown(guest)
    assert "going down (off)" in node.console(guest)  # its sockets were not taken from it


# A process which lives, and a guest which does not run


#: What a guest does to need more space for its disk.
_WRITE = "dd if=/dev/urandom of=/dev/vda bs=4096 seek=3500 count=64; sync"


def go_on(node: Node, guest: FilledInstance) -> dict[str, object]:
    with paths.override(node.paths):
        return lifecycle.go_on(guest, [])


@pytest.fixture
def full_storage(node: Node) -> Iterator[Path]:
    """A small file system for the disks of the guest, with a file which takes its free space."""
    directory = node.root / SHARED[1:] / NAME
    directory.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=6M", "none", str(directory)],
        capture_output=True,
        check=False,
    )
    if mounted.returncode:
        pytest.skip("this user cannot mount a small file system")
    try:
        yield directory / "filler"
    finally:
        node.end_all()
        subprocess.run(["umount", str(directory)], check=True)


def test_a_guest_whose_storage_is_full_goes_on_when_it_has_space(
    node: Node, full_storage: Path
) -> None:
    guest = node.instance(NAME)
    node.install(guest)
    node.start(guest)
    node.wait_booted(guest)
    assert "halt_state" not in node.info(guest)
    with open(full_storage, "wb", buffering=0) as stream, pytest.raises(OSError, match="No space"):
        while True:
            stream.write(bytes(1 << 16))
    node.type_in(guest, _WRITE, lambda: status(node, guest) == "io-error")
    pid = node.pid(guest)
    info = node.info(guest)
    assert (info["state"], info["halt_state"], info["halt_kind"]) == (0, "io-error", "continues")
    assert "storage is full" in info["halt_why"]
    # It is not started a second time, and stays halted as long as there is no space.
    assert go_on(node, guest)["halt_state"] == "io-error"
    before = len(node.lines(guest))
    full_storage.unlink()
    assert "halt_state" not in go_on(node, guest)
    node.wait_booted(guest, before)
    assert "I/O error" not in node.console(guest)  # the guest has not noticed anything
    assert node.pid(guest) == pid
    node.shutdown(guest)


def test_a_halted_guest_ends_at_once(node: Node, full_storage: Path) -> None:
    """It would not react to its power button, so nobody waits for that."""
    guest = node.instance(NAME)
    node.install(guest)
    node.start(guest)
    node.wait_booted(guest)
    with open(full_storage, "wb", buffering=0) as stream, pytest.raises(OSError, match="No space"):
        while True:
            stream.write(bytes(1 << 16))
    node.type_in(guest, _WRITE, lambda: status(node, guest) == "io-error")
    pid = node.pid(guest)
    with paths.override(node.paths):
        KvmHypervisor().stop(NAME, guest.hvparams)
    wait_until(lambda: not process.is_alive(pid), "QEMU is gone")
    node.shutdown(guest)
    assert node.leftovers() == []


def test_a_guest_which_somebody_has_paused_goes_on_only_when_asked(
    node: Node, guest: FilledInstance
) -> None:
    node.start(guest)
    node.wait_booted(guest)
    with Qmp(node.socket(guest, "qmp"), guest.name) as control:
        control.execute("stop")
    info = node.info(guest)
    assert (info["halt_state"], info["halt_kind"]) == ("paused", "paused")
    node.start(guest)  # of a guest which lives: it is not changed
    assert status(node, guest) == "paused"
    before = len(node.lines(guest))
    assert "halt_state" not in go_on(node, guest)
    node.wait_booted(guest, before)
    go_on(node, guest)  # it runs
    assert status(node, guest) == "running"


def test_an_interrupted_start_is_not_a_paused_one(node: Node, guest: FilledInstance) -> None:
    node.start(guest, paused=True)
    assert node.info(guest)["halt_kind"] == "paused"
    marker = Path(f"{node.paths.kvm_root}/ctrl/{NAME}.paused")
    marker.unlink()  # as if the node daemon had died before it let the guest run
    assert node.info(guest)["halt_kind"] == "continues"
    assert "halt_state" not in go_on(node, guest)
    node.wait_booted(guest)
    node.shutdown(guest)
    node.start(guest, paused=True)
    assert "halt_state" not in go_on(node, guest)
    assert not marker.exists()
    node.shutdown(guest, timeout_s=0)
    assert node.leftovers() == []


def test_a_guest_which_has_switched_itself_off_is_not_halted(node: Node) -> None:
    guest = node.instance(NAME, kvm_extra="-no-shutdown")
    node.install(guest)
    node.start(guest)
    node.wait_booted(guest)
    node.type_in(guest, "poweroff -f", lambda: status(node, guest) == "shutdown")
    info = node.info(guest)
    assert info["state"] == 1 and "halt_state" not in info
    with pytest.raises(errors.HypervisorError, match="is not running"):
        go_on(node, guest)
    node.shutdown(guest)
    assert node.running() == []
