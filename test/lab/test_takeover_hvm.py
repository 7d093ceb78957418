"""A guest of ``xen-hvm`` writes all the time while its cluster is taken over and given back.

It has a boot sector alone and no system: the firmware of Xen starts it, and it writes a higher
number to its disk at each tick of the clock. So its domain and the program which emulates its
hardware must stay the same. Only with ``LAB_GUEST=1``, and with the packages of the original, which
``GANETI_ORIGINAL_DIR`` names.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from lab import machines, original
from lab.cluster import GROUP, prepare_xen
from lab.original import OriginalCluster
from lab.waiting import wait_until

NAME = "full"
_PATIENCE_S = 600.0
_HYPERVISOR = "xen-hvm"
_PARAMETERS = (
    "kernel_path=/usr/lib/xen-4.17/boot/hvmloader,device_model=/usr/libexec/xen-qemu-system-i386,"
    "vnc_bind_address=127.0.0.1,xen_cmd=xl"
)
# Reads the second sector of its disk, adds one to the number at its beginning and writes it back
# after each interrupt of the timer, with the functions 2 and 3 of the interrupt 0x13 of the BIOS.
_BOOT_SECTOR = (
    bytes.fromhex(
        "31c08ed88ec08ed0bc007c"  # all segments at 0, the stack below 0x7c00
        "b80102e80f00"  # read one sector
        "66ff06007e"  # add one to the number at 0x7e00
        "b80103e80400"  # write one sector
        "fbf4ebf1"  # wait for an interrupt, and again
        "b90200b600bb007e52cd135ac3"  # the second sector, to or from 0x7e00
    ).ljust(510, b"\0")
    + b"\x55\xaa"
)
_REASON = original.reason_to_skip()

pytestmark = pytest.mark.skipif(_REASON is not None, reason=_REASON or "")


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[machines.Lab]:
    """A machine under Xen, with the packages of the original instead of the project."""
    yield from original.machines(
        tmp_path_factory.mktemp("original"), 1, "logs-takeover-hvm", under_xen=True
    )


@pytest.fixture(scope="module")
def cluster(lab: machines.Lab) -> OriginalCluster:
    """A cluster of the original with an instance which is not started yet."""
    prepare_xen(lab, "xen-br0")
    found = OriginalCluster(lab)
    found.make_original(_HYPERVISOR, _PARAMETERS)
    # An empty file is not a password: Debian 12's QEMU for Xen has not what a password needs (DES).
    found.master.write("/etc/ganeti/vnc-cluster-password", "", 0o600)
    found.gnt(
        "instance", "add", "-t", "plain", "--disk", "0:size=16M", "-n", "node1",
        "-B", "minmem=64,maxmem=64", "--net", "0:link=labbr", "--no-install", "-o", "blocks",
        "--no-start", "--no-name-check", "--no-ip-check", NAME,
    )  # fmt: skip
    return found


def disk(cluster: OriginalCluster) -> str:
    """The volume of the only disk of the instance."""
    name = cluster.master.run(f"lvs --noheadings -o lv_name {GROUP}").strip()
    return f"/dev/{GROUP}/{name}"


def number(cluster: OriginalCluster) -> int:
    """The number which the guest has written last."""
    read = f"dd if={disk(cluster)} bs=512 skip=1 count=1 iflag=direct status=none"
    return int(cluster.master.run(f"{read} | od -A n -t u4 -N 4"))


def goes_on(cluster: OriginalCluster, since: int) -> int:
    """Wait until the guest has written a higher number; returns it."""
    wait_until(lambda: number(cluster) > since, f"a number above {since}", _PATIENCE_S)
    return number(cluster)


def same(cluster: OriginalCluster) -> list[str]:
    """What no takeover changes: number and UUID of the domain, and its emulator since its start."""
    (found,) = json.loads(cluster.master.run(f"xl list --long {NAME}"))
    assert found["config"]["c_info"]["type"] == "hvm"
    # The brackets keep the pattern from the command line of its own shell.
    pid = cluster.master.run(f"pgrep -f '[x]en-qemu-system-i386.* -name {NAME}'").strip()
    started = cluster.master.run(f"cut -d' ' -f22 /proc/{pid}/stat").strip()
    return [str(found["domid"]), found["config"]["c_info"]["uuid"], pid, started]


def screen(cluster: OriginalCluster) -> bool:
    """Whether the screen of the guest can be reached at the port of its instance."""
    (instance,) = cluster.config()["instances"].values()
    greeting = f"head -c 3 </dev/tcp/127.0.0.1/{instance['network_port']}"
    return cluster.master.call(f"timeout 60 bash -c '{greeting}'").stdout == "RFB"


def test_the_original_starts_it(cluster: OriginalCluster) -> None:
    target = f"dd of={disk(cluster)} conv=fsync status=none"
    octets = "".join(f"\\{one:03o}" for one in _BOOT_SECTOR)
    cluster.master.run(f"printf '{octets}' | {target}")
    cluster.gnt("instance", "startup", NAME)
    goes_on(cluster, 10)
    assert screen(cluster)


def test_it_is_taken_over(cluster: OriginalCluster) -> None:
    before, last = same(cluster), number(cluster)
    said = cluster.master.run(f"{cluster.unpack_ours()} -f run", timeout_s=3600.0)
    print(said)
    assert "guests of Xen in the same domains: 1" in said
    assert "of Ganeti in Python" in cluster.version()
    assert same(cluster) == before
    goes_on(cluster, last)
    assert cluster.fields("instance", NAME, "status", "oper_ram", "oper_vcpus") == [
        "running", "64", "1",
    ]  # fmt: skip
    assert screen(cluster)
    cluster.gnt("cluster", "verify")


def test_our_daemons_manage_it(cluster: OriginalCluster) -> None:
    """It is told from others and reset, it starts again as a domain of ours, and goes on."""
    before = same(cluster)
    # Started already.
    cluster.gnt("instance", "startup", NAME)
    assert "actual state is up" in cluster.gnt("instance", "info", NAME)
    assert same(cluster) == before
    last = number(cluster)
    cluster.gnt("instance", "reboot", "--type=hard", "--shutdown-timeout=0", NAME)
    goes_on(cluster, last)
    (instance,) = cluster.config()["instances"].values()
    after = same(cluster)
    assert after[1] == instance["uuid"] and after[0] != before[0]
    assert screen(cluster)
    cluster.gnt("cluster", "verify")


def test_it_is_given_back(cluster: OriginalCluster) -> None:
    before, last = same(cluster), number(cluster)
    said = cluster.master.run("ganeti-takeover -f back", timeout_s=3600.0)
    print(said)
    assert "guests of Xen in the same domains: 1" in said
    assert "ganeti 3.0" in cluster.version()
    assert same(cluster) == before
    goes_on(cluster, last)
    assert cluster.fields("instance", NAME, "status") == ["running"]
    cluster.gnt("cluster", "verify")


def test_the_original_reboots_it(cluster: OriginalCluster) -> None:
    last = number(cluster)
    cluster.gnt("instance", "reboot", "--type=hard", "--shutdown-timeout=0", NAME)
    goes_on(cluster, last)
    assert screen(cluster)
    cluster.remove(NAME)
    assert cluster.master.call(f"xl domid {NAME}").returncode != 0
