"""A real guest that writes all the time is migrated under attack: no confirmed write is lost.

Somebody in the network holds silent connections to the ports of migrations all the time.

Where the guest is emulated it stands still while its memory is sent, see the driver's ``migrate``.
"""

from __future__ import annotations

import contextlib
import re
import shutil
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import serial_line
from harness import Cluster, wait_until

pytestmark = pytest.mark.skipif(
    shutil.which("qemu-system-x86_64") is None, reason="QEMU (qemu-system-x86) is not installed"
)

NAME = "writer.example.com"
BLOCKS = 4096
# Writes a number into one block after the other, flushes it, and only then says so.
WRITER = (
    "n=0; while :; do n=$((n+1)); printf '%-511s\\n' $n | dd of=/dev/vdb bs=512 "
    f'seek=$((n%{BLOCKS})) conv=notrunc,fsync 2>/dev/null && echo "wrote $n $n."; done'
)


@contextlib.contextmanager
def silent_peers(address: str) -> Iterator[list[socket.socket]]:
    """Connect to the first ports of migrations again and again, and say nothing.

    :returns: the connections so far.
    """
    held: list[socket.socket] = []
    over = threading.Event()

    def attack() -> None:
        while not over.wait(0.002):
            for port in range(8102, 8105):
                with contextlib.suppress(OSError):
                    held.append(socket.create_connection((address, port), timeout=1))

    attacker = threading.Thread(target=attack)
    attacker.start()
    try:
        yield held
    finally:
        over.set()
        attacker.join()
        for one in held:
            one.close()


@pytest.fixture(scope="module")
def cluster(cluster_directory: Path) -> Iterator[Cluster]:
    made = Cluster(cluster_directory, 2, "--hypervisor", "kvm")
    made.create.ok()
    try:
        yield made
    finally:
        made.destroy()


def confirmed(cluster: Cluster) -> list[int]:
    """Numbers that the guest has said are on its disk, over both nodes.

    A migration cuts a line in two, whose halves may meet others; each line says its number twice.
    """
    said = []
    for node in cluster.node_names:
        log = cluster.path(node, f"var/log/ganeti/kvm/{NAME}.console.log")
        if log.exists():
            said += [
                int(number)
                for number in re.findall(
                    r"^wrote (\d+) \1\.\r*$", log.read_text(errors="replace"), re.MULTILINE
                )
            ]
    return sorted(said)


@pytest.mark.long
def test_no_confirmed_write_is_lost(cluster: Cluster) -> None:
    first, second = cluster.node_names
    cluster.run(
        "gnt-instance",
        "add",
        "-t",
        "sharedfile",
        "--disk",
        "0:size=16M",
        "--disk",
        "1:size=4M",
        "-o",
        "tiny",
        "-O",
        "quiet=yes",
        "-n",
        first,
        NAME,
    ).ok()
    console = str(cluster.path(first, f"var/run/ganeti/kvm-hypervisor/ctrl/{NAME}.serial"))

    def begins() -> bool:
        # While the guest's shell asks the terminal for its size, it takes no notice of a line.
        with serial_line.connected(console, 10) as serial:
            serial.sendall(b"\n" + WRITER.encode() + b"\n")
            try:
                wait_until(lambda: len(confirmed(cluster)) > 5, "it writes", patience_s=5)
            except AssertionError:
                return False
        return True

    wait_until(begins, "the guest writes")
    for target in (second, first, second):
        before = len(confirmed(cluster))
        (address,) = cluster.rows("gnt-node", "list", "-o", "sip", target)[0]
        with silent_peers(address) as held:
            done = cluster.run("gnt-instance", "migrate", "-f", "-n", target, NAME).ok()
        assert len(held) >= 5, "there was no attack"
        assert re.search(r"was paused for \d+ ms", done.text), done.text
        wait_until(lambda count=before: len(confirmed(cluster)) > count + 5, "it goes on writing")
    # The end comes without a warning.
    cluster.run("gnt-instance", "shutdown", "--timeout=0", NAME).ok()
    written = confirmed(cluster)
    (disk,) = [path for path in (cluster.directory / "shared").rglob("*disk1*") if path.is_file()]
    content = disk.read_bytes()
    for number in written[-BLOCKS:]:
        at = number % BLOCKS * 512
        found = content[at : at + 512].strip().decode()
        # The block may have been written again, but not lost.
        assert found.isdigit() and int(found) >= number and int(found) % BLOCKS == number % BLOCKS
    assert written == sorted(set(written)), "one number was confirmed twice"
    cluster.run("gnt-instance", "remove", "--force", NAME).ok()
