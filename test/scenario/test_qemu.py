"""The hypervisor room with a real QEMU and a real Linux in it, without daemons around.

Two node roots share a storage directory, as two nodes of a virtual cluster do. Emulated guests
boot in about four seconds each.
"""

from __future__ import annotations

import contextlib
import json
import os
import pty
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import termios
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest
from kvm_node import NAME, PATIENCE_S, SHARED, TOP, Node, find_qemu, follow, move, wait_until

from ganeti import errors
from ganeti.backend.instance import hotplug, lifecycle
from ganeti.backend.storage import blockdev
from ganeti.hypervisor.kvm import accelerator, facts
from ganeti.hypervisor.kvm.qmp import Qmp
from ganeti.objects.instance import FilledInstance
from ganeti.platform import paths
from ganeti.utils import process

HERE = Path(__file__).resolve().parent

pytestmark = pytest.mark.skipif(
    not os.access(find_qemu(), os.X_OK), reason="QEMU (qemu-system-x86) is not installed"
)


def status(node: Node, guest: FilledInstance) -> str:
    with Qmp(node.socket(guest, "qmp"), guest.name) as control:
        return str(control.execute("query-status")["status"])


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


# Migration


@pytest.mark.parametrize("live", [True, False])
def test_migration_there_and_back(
    nodes: tuple[Node, Node], guest: FilledInstance, live: bool
) -> None:
    first, second = nodes
    first.start(guest)
    boot, _ = first.wait_booted(guest, more_than=1)
    assert move(first, second, guest, live=live) == "completed"
    assert first.running() == []
    assert first.leftovers() == []
    assert second.running() == [NAME]
    before = first.lines(guest)[-1]
    after = second.wait_booted(guest, more_than=1)
    assert after[0] == before[0] == boot  # the same boot ...
    assert second.lines(guest)[0][1] >= before[1]  # ... goes on counting
    # Back again: what was written on the second node serves as the source's record.
    first_lines = len(first.lines(guest))
    assert move(second, first, guest, live=live) == "completed"
    assert first.wait_booted(guest, more_than=first_lines)[0] == boot
    assert second.leftovers() == []
    first.shutdown(guest)
    assert "going down (off)" in first.console(guest)


def test_migration_capabilities_reach_both_ends(nodes: tuple[Node, Node]) -> None:
    first, second = nodes
    guest = first.instance(NAME, migration_caps="xbzrle:auto-converge")
    first.install(guest)
    first.start(guest)
    first.wait_booted(guest)
    assert move(first, second, guest) == "completed"
    with Qmp(second.socket(guest, "qmp"), NAME) as control:
        states = {
            one["capability"]: one["state"] for one in control.execute("query-migrate-capabilities")
        }
    assert states["xbzrle"] and states["auto-converge"] and not states["postcopy-ram"]
    wrong = first.instance(NAME, migration_caps="teleport")
    with paths.override(second.paths), pytest.raises(errors.HypervisorError, match="teleport"):
        lifecycle.migrate("cluster", wrong, "127.0.0.31", True)
    second.wait_booted(guest, more_than=len(second.lines(guest)))


def test_target_that_dies_leaves_the_guest_running(
    nodes: tuple[Node, Node], guest: FilledInstance
) -> None:
    first, second = nodes
    slow = first.instance(NAME, migration_bandwidth=1)
    first.start(slow)
    first.wait_booted(slow)
    with paths.override(first.paths):
        info = lifecycle.migration_info(slow)
    with paths.override(second.paths):
        lifecycle.accept_instance(slow, info, "127.0.0.31")
    with paths.override(first.paths):
        lifecycle.migrate("cluster", slow, "127.0.0.31", True)
    os.kill(second.pid(slow), signal.SIGKILL)
    assert wait_until(lambda: follow(first, slow), "the migration ends") == "failed"
    with paths.override(second.paths):
        lifecycle.finalize_migration_dst(slow, info, False)
    with paths.override(first.paths):
        lifecycle.finalize_migration_src(slow, False, True)
    assert second.leftovers() == []
    assert status(first, slow) == "running"
    first.wait_booted(slow, more_than=len(first.lines(slow)))


def test_cancelled_migration(nodes: tuple[Node, Node], guest: FilledInstance) -> None:
    """The master gives up in the middle: both sides are put in order."""
    first, second = nodes
    slow = first.instance(NAME, migration_bandwidth=1)
    first.start(slow)
    first.wait_booted(slow)
    with paths.override(first.paths):
        info = lifecycle.migration_info(slow)
    with paths.override(second.paths):
        lifecycle.accept_instance(slow, info, "127.0.0.31")
    with paths.override(first.paths):
        lifecycle.migrate("cluster", slow, "127.0.0.31", True)
        lifecycle.finalize_migration_src(slow, False, True)
    with paths.override(second.paths):
        lifecycle.finalize_migration_dst(slow, info, False)
    assert second.leftovers() == [] and second.running() == []
    first.wait_booted(slow, more_than=len(first.lines(slow)))


class Wire:
    """Everything that crosses the network between two nodes, which have it between them."""

    def __init__(self, port: int) -> None:
        self.sent = bytearray()
        self._listener = socket.create_server(("127.0.0.32", port))
        self._port = port
        self._threads = [threading.Thread(target=self._serve)]

    def __enter__(self) -> Wire:
        self._threads[0].start()
        return self

    def __exit__(self, *_: object) -> None:
        for thread in self._threads:
            thread.join()
        self._listener.close()

    def _serve(self) -> None:
        source, _ = self._listener.accept()
        target = socket.create_connection(("127.0.0.31", self._port))
        back = threading.Thread(target=self._pass_on, args=(target, source, bytearray()))
        back.start()
        self._pass_on(source, target, self.sent)
        back.join()
        source.close()
        target.close()

    @staticmethod
    def _pass_on(source: socket.socket, target: socket.socket, seen: bytearray) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(1 << 16):
                seen += data
                target.sendall(data)
            target.shutdown(socket.SHUT_WR)


@pytest.mark.parametrize("params", [{}, {"use_chroot": True}, {"migration_tls": False}])
def test_what_is_seen_on_the_network(nodes: tuple[Node, Node], params: dict[str, bool]) -> None:
    """By default neither the protocol of QEMU nor the memory of the guest is readable."""
    if params.get("use_chroot") and os.geteuid() != 0:
        pytest.skip("use_chroot needs root")
    first, second = nodes
    guest = first.instance(NAME, **params)
    first.install(guest)
    first.start(guest)
    boot, _ = first.wait_booted(guest)
    with Wire(guest.hvparams["migration_port"]) as wire:
        ended = move(first, second, guest, source_address="127.0.0.32")
    assert ended == "completed"
    assert second.wait_booted(guest)[0] == boot
    readable = params.get("migration_tls") is False
    assert wire.sent.startswith(b"QEVM" if readable else b"\x16\x03")
    assert (b"tiny: " in wire.sent) == readable
    assert len(wire.sent) > 1 << 20
    assert not Path(f"{second.paths.kvm_root}/chroot/{NAME}/key").exists()
    # Back again: the target has the key of the first migration, and gets a new one.
    assert move(second, first, guest) == "completed"


def test_nobody_without_the_key_sends_or_receives_a_guest(
    nodes: tuple[Node, Node], guest: FilledInstance
) -> None:
    first, second = nodes
    first.start(guest)
    boot, _ = first.wait_booted(guest)
    address = ("127.0.0.31", guest.hvparams["migration_port"])
    with paths.override(first.paths):
        info = lifecycle.migration_info(guest)
    # A source with another key: it has lost that of the target's.
    with paths.override(second.paths):
        lifecycle.accept_instance(guest, {**info, "key": "0" * 64}, address[0])
    with socket.create_connection(address, timeout=PATIENCE_S) as peer:
        peer.sendall(b"QEVM" + bytes(1 << 16))
        with contextlib.suppress(ConnectionError):
            while peer.recv(1 << 16):
                pass
    assert status(second, guest) == "inmigrate"
    with paths.override(first.paths):
        lifecycle.migrate("cluster", guest, address[0], True)
        assert wait_until(lambda: follow(first, guest), "the migration ends") == "failed"
    with paths.override(second.paths):
        lifecycle.finalize_migration_dst(guest, info, False)
    with paths.override(first.paths):
        lifecycle.finalize_migration_src(guest, False, True)
    assert second.leftovers() == []
    first.wait_booted(guest, more_than=len(first.lines(guest)))
    # The guest was not touched, and the next migration works, also after a stranger.
    assert move(first, second, guest) == "completed"
    assert second.wait_booted(guest)[0] == boot


def test_the_target_obeys_no_word_of_the_source(
    nodes: tuple[Node, Node], guest: FilledInstance, tmp_path: Path
) -> None:
    """A node which is no master candidate may be the source, and QEMU starts as root."""
    first, second = nodes
    first.start(guest)
    boot, _ = first.wait_booted(guest)
    ran = tmp_path / "ran"
    program = tmp_path / "program"
    program.write_text(f"#!/bin/sh\necho $0 >> {ran}\n")
    program.chmod(0o755)
    runtime_file = Path(f"{first.paths.kvm_root}/conf/{NAME}.runtime")
    argv, nics, params, disks = json.loads(runtime_file.read_text())
    argv[0] = str(program)
    argv += ["-chardev", f"file,id=x,path={ran}", "-serial", "chardev:x"]
    params |= {"kvm_path": str(program), "kernel_path": str(program), "mem_path": str(tmp_path)}
    disks[0][1] = str(program)
    runtime_file.write_text(json.dumps([argv, nics, params, disks]))
    assert move(first, second, guest) == "completed"
    assert not ran.exists()
    assert second.wait_booted(guest)[0] == boot
    words = Path(f"/proc/{second.pid(guest)}/cmdline").read_text()
    assert str(tmp_path) not in words


def test_migration_after_the_medium_was_taken_out(nodes: tuple[Node, Node], tmp_path: Path) -> None:
    """The configuration has no CD any more; the guest keeps its drive, which is empty."""
    first, second = nodes
    disc = tmp_path / "disc.iso"
    disc.write_bytes(bytes(1 << 20))
    guest = first.instance(NAME)
    first.install(guest)
    first.start(first.instance(NAME, cdrom_image_path=str(disc), cdrom_disk_type="ide"))
    boot, _ = first.wait_booted(guest)
    assert move(first, second, guest) == "completed"
    assert second.wait_booted(guest)[0] == boot
    assert str(disc) not in Path(f"/proc/{second.pid(guest)}/cmdline").read_text()
    assert move(second, first, guest) == "completed"


def test_migration_port_in_use(nodes: tuple[Node, Node], guest: FilledInstance) -> None:
    first, second = nodes
    first.start(guest)
    with paths.override(first.paths):
        info = lifecycle.migration_info(guest)
    with socket.socket() as taken:
        # Connections of an earlier test may linger on the port.
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        taken.bind(("127.0.0.31", guest.hvparams["migration_port"]))
        taken.listen()
        with (
            paths.override(second.paths),
            pytest.raises(errors.HypervisorError, match="Address already in use"),
        ):
            lifecycle.accept_instance(guest, info, "127.0.0.31")
    assert second.leftovers() == []
    assert first.running() == [NAME]


@pytest.mark.parametrize(
    "info",
    ["", "[]", "{}", "no json", '[["qemu"],[],{},[{}]]', '[["qemu"],[{"mac":"x"}],{},[]]', None, 5],
)
def test_garbage_as_migration_data(node: Node, guest: FilledInstance, info: object) -> None:
    with paths.override(node.paths), pytest.raises(errors.HypervisorError, match=NAME):
        lifecycle.accept_instance(guest, info, "127.0.0.31")
    assert node.leftovers() == []


# Console


class Terminal:
    """A pseudo terminal with ``kvm-console-wrapper`` on it."""

    def __init__(self, node: Node, guest: FilledInstance) -> None:
        self.master, self.slave = pty.openpty()
        self.before = termios.tcgetattr(self.slave)
        self.child = subprocess.Popen(
            [
                TOP / "tools/kvm-console-wrapper",
                "socat",
                guest.name,
                node.socket(guest, "monitor"),
                "STDIO,raw,echo=0,escape=0x1d",
                f"UNIX-CONNECT:{node.socket(guest, 'serial')}",
            ],
            stdin=self.slave,
            stdout=self.slave,
            stderr=self.slave,
            start_new_session=True,
        )
        self.text = ""

    def wait_for(self, words: str) -> None:
        def seen() -> bool:
            if select.select([self.master], [], [], 0.1)[0]:
                self.text += os.read(self.master, 65536).decode(errors="replace")
            return words in self.text

        wait_until(seen, f"the console shows {words!r}; it showed {self.text!r}")

    def type(self, text: str) -> None:
        os.write(self.master, text.encode())

    def raw(self) -> bool:
        return not termios.tcgetattr(self.slave)[3] & termios.ICANON

    def restored(self) -> bool:
        return bool(termios.tcgetattr(self.slave) == self.before)

    def close(self) -> None:
        if self.child.poll() is None:
            self.child.kill()
            self.child.wait()
        os.close(self.master)
        os.close(self.slave)


def test_console_has_a_shell_and_restores_the_terminal(node: Node, guest: FilledInstance) -> None:
    node.start(guest)
    node.wait_booted(guest)
    terminal = Terminal(node, guest)
    try:
        terminal.wait_for("Ctrl-] closes it")
        terminal.wait_for(f"tiny: {NAME}")
        assert terminal.raw()
        terminal.type("echo answer $((6 * 7))\r")
        terminal.wait_for("answer 42")
        second = Terminal(node, guest)
        try:
            second.wait_for(f"the console of instance {NAME} is in use by process")
            assert second.child.wait(PATIENCE_S) == 1
        finally:
            second.close()
        terminal.type("\x1d")
        assert terminal.child.wait(PATIENCE_S) == 0
        assert terminal.restored()
    finally:
        terminal.close()
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        terminal = Terminal(node, guest)
        try:
            terminal.wait_for(f"tiny: {NAME}")
            terminal.child.send_signal(number)
            assert terminal.child.wait(PATIENCE_S) == 128 + number
            assert terminal.restored()
        finally:
            terminal.close()
    terminal = Terminal(node, guest)
    try:
        terminal.wait_for(f"tiny: {NAME}")
        node.shutdown(guest)
        assert terminal.child.wait(PATIENCE_S) == 0
        assert terminal.restored()
    finally:
        terminal.close()
    assert node.leftovers() == []


def test_console_wakes_a_paused_guest(node: Node, guest: FilledInstance) -> None:
    node.start(guest, paused=True)
    terminal = Terminal(node, guest)
    try:
        terminal.wait_for("was paused; it runs now")
        terminal.wait_for(f"tiny: {NAME} boot 1-")
    finally:
        terminal.close()
    assert status(node, guest) == "running"


def test_console_of_a_stopped_guest(node: Node, guest: FilledInstance) -> None:
    terminal = Terminal(node, guest)
    try:
        terminal.wait_for("kvm-console-wrapper: error: ")
        assert terminal.child.wait(PATIENCE_S) == 1
        assert terminal.restored()
    finally:
        terminal.close()


# Other users, paths, networks


def test_long_paths(image: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sockets work where their full path is longer than the kernel takes."""
    directory = Path(tempfile.mkdtemp(prefix="gnt-kvm-"))
    monkeypatch.setenv(paths.ENV_VCLUSTER, str(TOP / "build"))
    node = Node(directory / ("long" * 30), image)
    try:
        guest = node.instance(NAME, nic={"mode": "user", "link": ""})
        node.install(guest)
        node.start(guest)
        assert len(node.socket(guest, "qmp")) > 107
        node.wait_booted(guest)
        assert node.info(guest)["memory"] == 96
        terminal = Terminal(node, guest)
        try:
            terminal.wait_for(f"tiny: {NAME}")
        finally:
            terminal.close()
        with paths.override(node.paths):
            lifecycle.reboot(guest, "soft", 60, [])
        node.shutdown(guest)
        assert node.leftovers() == []
        too_long = node.instance("x" * 110)
        node.install(too_long)
        with pytest.raises(errors.HypervisorError, match="needs a shorter name"):
            node.start(too_long)
        assert node.leftovers() == []
    finally:
        node.end_all()
        shutil.rmtree(directory)


@pytest.mark.skipif(os.geteuid() != 0, reason="becoming another user needs root")
def test_as_an_ordinary_user(image: Path) -> None:
    directory = Path(tempfile.mkdtemp(prefix="gnt-kvm-"))
    try:
        os.chown(directory, 65534, 65534)
        done = subprocess.run(
            [
                "setpriv",
                "--reuid=65534",
                "--regid=65534",
                "--clear-groups",
                sys.executable,
                str(HERE / "kvm_node.py"),
                str(directory / "node"),
                str(image),
                "life",
            ],
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=False,
            env={"PATH": os.environ["PATH"], "HOME": str(directory)},
        )
        assert done.returncode == 0, done.stdout + done.stderr
        assert "lived as uid 65534: 1-" in done.stdout
    finally:
        shutil.rmtree(directory)


@pytest.mark.skipif(os.geteuid() != 0, reason="giving up privileges needs root")
def test_guest_of_root_runs_without_privileges(nodes: tuple[Node, Node]) -> None:
    """Also after a reboot and a migration; in an empty root directory."""
    first, second = nodes
    guest = first.instance(NAME, security_model="user", security_domain="nobody", use_chroot=True)
    first.install(guest)
    first.start(guest)
    first.wait_booted(guest)

    def confined(node: Node) -> bool:
        pid = node.pid(guest)
        uids = Path(f"/proc/{pid}/status").read_text().split("Uid:")[1].split()[:4]
        return uids == ["65534"] * 4 and os.listdir(f"/proc/{pid}/root/") == []

    assert confined(first)
    with paths.override(first.paths):
        lifecycle.reboot(guest, "soft", 60, [])
    assert confined(first)
    first.wait_booted(guest, more_than=len(first.lines(guest)))
    assert move(first, second, guest) == "completed"
    assert confined(second)
    second.wait_booted(guest)
    second.shutdown(guest)
    assert first.leftovers() == second.leftovers() == []
    assert "going down (off)" in second.console(guest)


@pytest.mark.skipif(os.geteuid() != 0, reason="giving up privileges needs root")
def test_each_guest_has_a_user_id_of_its_own(node: Node) -> None:
    """Two ids, two guests; a third must wait until one is free again."""
    pool = Path(node.paths.ssconf_file("uid_pool"))
    pool.parent.mkdir(parents=True, exist_ok=True)
    guests = [
        node.instance(f"{name}.example.com", disks=0, security_model="pool")
        for name in ("one", "two", "three")
    ]
    with pytest.raises(errors.HypervisorError, match="pool of user ids is empty"):
        node.start(guests[0])
    pool.write_text("64201\n64203-64203\n")
    for guest in guests[:2]:
        node.start(guest, paused=True)
    uids = {os.stat(f"/proc/{node.pid(guest)}").st_uid for guest in guests[:2]}
    assert uids == {64201, 64203}
    with pytest.raises(errors.HypervisorError, match="no user id of the cluster's pool is free"):
        node.start(guests[2])
    node.shutdown(guests[0], 0)
    node.start(guests[2], paused=True)
    assert os.stat(f"/proc/{node.pid(guests[2])}").st_uid in uids
    for guest in guests:
        node.shutdown(guest, 0)
    assert node.leftovers() == []


# The accelerator


def test_probe_guest_runs_under_emulation() -> None:
    """The code of the trial guest is right: emulation, which always works, gets to its end."""
    assert accelerator.probe(find_qemu(), accelerator.TCG, timeout_s=PATIENCE_S)


def test_probe_guest_has_a_time_limit(tmp_path: Path) -> None:
    sleeper = tmp_path / "qemu"
    sleeper.write_text("#!/bin/sh\nexec sleep 1000\n")
    sleeper.chmod(0o755)
    started = time.monotonic()
    assert not accelerator.probe(str(sleeper), accelerator.KVM, timeout_s=0.2)
    assert time.monotonic() - started < PATIENCE_S


def test_facts_are_remembered(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(paths.ENV_VCLUSTER)
    with paths.override(node.paths):
        monkeypatch.setattr(facts, "probe", lambda *args, **kwargs: True)
        first = facts.of(find_qemu())
        with process.forbid("the facts are known"):
            assert facts.of(find_qemu()) == first
        # Damage is no obstacle, the question is asked again.
        (remembered,) = Path(node.paths.kvm_root).glob(".qemu-*")
        remembered.write_text("{")
        assert facts.of(find_qemu()) == first


def test_validation_on_the_node(node: Node, guest: FilledInstance, tmp_path: Path) -> None:
    qcow2 = tmp_path / "image"
    qcow2.write_bytes(b"QFI\xfb\0\0\0\3" + bytes(4096))
    with paths.override(node.paths):
        lifecycle.validate_params("kvm", guest.hvparams)
        lifecycle.validate_params(
            "kvm",
            {
                **guest.hvparams,
                "cpu_type": "qemu64,+ssse3",
                "machine_version": "q35",
                "usb_devices": "tablet",
                "migration_caps": "xbzrle:auto-converge",
                "cpu_mask": "0",
            },
        )
        for params, words in (
            ({"initrd_path": "/nonexistent"}, "initrd_path: /nonexistent is not a file"),
            ({"mem_path": "/bin/true"}, "mem_path: /bin/true is not a directory"),
            ({"cdrom_image_path": str(qcow2)}, "cdrom_image_path: .*format qcow2, but must be raw"),
            ({"cdrom2_image_path": str(qcow2)}, "cdrom2_image_path: .*format qcow2"),
            ({"floppy_image_path": str(qcow2)}, "floppy_image_path: .*format qcow2"),
            ({"machine_version": "pdp11"}, "knows no machine pdp11"),
            ({"disk_type": "sd"}, "disk_type: the machines of guests have no sd disks"),
            ({"cpu_type": "8080"}, "cpu_type=8080: .*unable to find CPU model '8080'"),
            ({"vga": "cga", "machine_version": "q35"}, "vga=cga: .*unknown vga type: cga"),
            ({"soundhw": "organ"}, "Unknown sound card name `organ'"),
            ({"usb_devices": "tablet crane"}, "could not add USB device 'crane'"),
            ({"migration_caps": "xbzrle:teleport"}, "has no capability teleport"),
            ({"cpu_mask": "0:70000"}, "range '70000' is not possible"),
            ({"cpu_mask": "0-65535"}, "is not one of the [0-9]+ of this node"),
            ({"disk_aio": "native"}, "native needs disk_cache=none"),
            (
                {"security_model": "user", "security_domain": "nobody-of-that-name"},
                "no user 'nobody-of-that-name'",
            ),
        ):
            with pytest.raises(errors.HypervisorError, match=words):
                lifecycle.validate_params("kvm", {**guest.hvparams, **params})


# The OS definition


def test_os_scripts(node: Node, guest: FilledInstance, tmp_path: Path) -> None:
    disk = node.disk_file(guest)
    assert node.run_script("verify", guest).returncode == 1  # wants an argument
    renamed = node.instance(NAME)
    done = node.run_script(
        "rename", renamed, INSTANCE_NAME="new.example.com", OLD_INSTANCE_NAME=NAME
    )
    assert done.returncode == 0, done.stderr
    exported = subprocess.run(
        [TOP / "doc/examples/os/tiny/export"],
        env={"PATH": os.environ["PATH"], "EXPORT_DEVICE": str(disk)},
        capture_output=True,
        timeout=PATIENCE_S,
        check=True,
    ).stdout
    assert exported == disk.read_bytes()
    other = tmp_path / "other"
    other.write_bytes(bytes(len(exported)))
    imported = subprocess.run(
        [TOP / "doc/examples/os/tiny/import"],
        input=exported,
        timeout=PATIENCE_S,
        check=False,
        env={
            "PATH": "/sbin:/bin:/usr/sbin:/usr/bin",
            "IMPORT_DEVICE": str(other),
            "INSTANCE_NAME": "copy.example.com",
        },
        capture_output=True,
    )
    assert imported.returncode == 0, imported.stderr
    listing = subprocess.run(
        ["debugfs", "-R", "cat /etc/hostname", f"{other}?offset=1048576"],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=True,
        env={"PATH": "/sbin:/bin:/usr/sbin:/usr/bin"},
    )
    assert listing.stdout == "copy.example.com\n"


@pytest.mark.parametrize(
    "env, words",
    [
        ({"OSP_INTERVAL": "0"}, "parameter interval: '0'"),
        ({"OSP_INTERVAL": "1; reboot"}, "parameter interval"),
        ({"OSP_QUIET": "maybe"}, "parameter quiet: 'maybe'"),
        ({"OSP_IMAGE_DIR": "/nonexistent"}, "no boot image in /nonexistent. Run: devel/tiny-image"),
        ({"DISK_0_PATH": "/nonexistent/disk"}, "No such file or directory"),
        ({"INSTANCE_NAME": ""}, "INSTANCE_NAME is not set"),
    ],
)
def test_create_script_refuses_and_says_why(
    node: Node, guest: FilledInstance, env: dict[str, str], words: str
) -> None:
    disk = node.disk_file(guest)
    before = disk.read_bytes()
    argv = {
        "OSP_IMAGE_DIR": str(node.image),
        "DISK_COUNT": "1",
        "DISK_0_PATH": str(disk),
        "INSTANCE_NAME": NAME,
        "PATH": "/sbin:/bin:/usr/sbin:/usr/bin",
        **env,
    }
    done = subprocess.run(
        [TOP / "doc/examples/os/tiny/create"],
        env=argv,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert done.returncode == 1
    assert words in done.stderr and "Traceback" not in done.stderr
    assert disk.read_bytes() == before


def test_image_from_given_files(image: Path, tmp_path: Path) -> None:
    """Without network and packages; two at once make one image, and the OS definition with it."""
    modules = tmp_path / "modules"
    modules.mkdir()
    argv = [
        TOP / "devel/tiny-image",
        "-o",
        tmp_path / "image",
        "--offline",
        "--kernel",
        image / "vmlinux",
        "--modules",
        modules,
        "--busybox",
        image / "busybox",
        "--install-os",
        tmp_path / "os/tiny",
    ]
    builders = [
        subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        for _ in range(2)
    ]
    outputs = [builder.communicate(timeout=PATIENCE_S)[0] for builder in builders]
    assert [builder.returncode for builder in builders] == [0, 0], outputs
    # Only one of them built, the other found it ready.
    assert sorted("kernel vmlinux" in text for text in outputs) == [False, True], outputs
    assert (tmp_path / "image/vmlinux").read_bytes() == (image / "vmlinux").read_bytes()
    assert (tmp_path / "os/tiny/create").stat().st_mode & 0o111
    disk = tmp_path / "disk"
    disk.write_bytes(b"")
    os.truncate(disk, 16 << 20)
    done = subprocess.run(
        [tmp_path / "os/tiny/create"],
        capture_output=True,
        text=True,
        env={
            "PATH": "/sbin:/bin:/usr/sbin:/usr/bin",
            "DISK_COUNT": "1",
            "DISK_0_PATH": str(disk),
            "INSTANCE_NAME": NAME,
        },
        timeout=PATIENCE_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        ".image.lock",
        "disk",
        "image",
        "modules",
        "os",
    ]


def test_quiet_guest(node: Node) -> None:
    guest = node.instance("quiet.example.com")
    node.install(guest, OSP_QUIET="yes")
    node.start(guest)
    wait_until(lambda: "shell on the serial console" in node.console(guest), "the shell is there")
    node.shutdown(guest)
    assert node.lines(guest) == []


# Blocking peers


def test_qmp_peer_that_is_silent_talks_nonsense_or_leaves(tmp_path: Path) -> None:
    path = str(tmp_path / "qmp")

    def serve(answers: list[bytes]) -> threading.Thread:
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(path)
        listener.listen()

        def run() -> None:
            with listener, listener.accept()[0] as peer:
                for answer in answers:
                    peer.sendall(answer)
                    peer.recv(4096)
            os.unlink(path)

        thread = threading.Thread(target=run)
        thread.start()
        return thread

    hello, ready = b'{"QMP": {"version": {}}}\r\n', b'{"return": {}}\r\n'
    for answers, words in (
        ([b"hello\r\n"], "which is not JSON"),
        ([b'{"event": "X"}\r\n'], "greets with"),
        ([b"[]\r\n"], "expected an object"),
        ([hello], "closed its control socket during qmp_capabilities|closed its control"),
        ([hello, ready, b'{"error": {"class": "X", "desc": "no"}}\r\n'], "refuses stop: no"),
        ([hello, ready, b'{"event": "STOP"}\r\n{"x": 1}\r\n'], "answers stop with"),
    ):
        thread = serve(answers)
        with (
            pytest.raises(errors.HypervisorError, match=words),
            Qmp(path, NAME, timeout_s=PATIENCE_S) as control,
        ):
            control.execute("stop")
        thread.join()
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(path)
    listener.listen()
    with listener, pytest.raises(errors.HypervisorError, match="does not answer .* within 0.2 s"):
        Qmp(path, NAME, timeout_s=0.2)
    with pytest.raises(errors.HypervisorError, match="cannot reach QEMU"):
        Qmp(path, NAME)


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
