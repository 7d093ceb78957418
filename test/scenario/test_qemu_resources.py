"""Memory, processors and versions of QEMU under real guests."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from kvm_node import NAME, PATIENCE_S, Node, find_qemu, move, wait_until
from test_hotplug import ADD, disks_seen, more_disks, plug

from ganeti import errors
from ganeti.backend.instance import lifecycle
from ganeti.hypervisor.kvm.qmp import Qmp
from ganeti.objects.instance import FilledInstance
from ganeti.platform import paths


def memory_kib(node: Node, guest: FilledInstance) -> int:
    """What the guest itself believes to have."""
    found = re.search(r"MemTotal:\s+(\d+) kB", node.ask(guest, "grep MemTotal /proc/meminfo"))
    assert found
    return int(found[1])


def resident_kib(pid: int) -> int:
    """What a process takes of the node's memory."""
    found = re.search(r"VmRSS:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    assert found
    return int(found[1])


def test_memory_balloon(node: Node, guest: FilledInstance) -> None:
    """The guest has less, the node has more, and back; the node says the same."""
    node.start(guest)
    node.wait_booted(guest)
    # What the guest has used once, QEMU has.
    node.ask(guest, "dd if=/dev/zero of=/tmp/x bs=1M count=24; rm /tmp/x")
    inside, outside = memory_kib(node, guest), resident_kib(node.pid(guest))

    def balloon(memory_mib: int) -> None:
        with paths.override(node.paths):
            lifecycle.balloon_memory(guest, memory_mib)
        # The guest loads its balloon driver in its own time.
        wait_until(lambda: node.info(guest)["memory"] == memory_mib, "the balloon is so large")

    balloon(72)
    assert memory_kib(node, guest) == inside - (24 << 10)
    # Not all of it had been used.
    assert resident_kib(node.pid(guest)) < outside - (4 << 10)
    balloon(96)
    assert memory_kib(node, guest) == inside
    node.shutdown(guest)


@pytest.fixture
def huge_pages(tmp_path: Path) -> Iterator[Path]:
    """A mounted hugetlbfs with room for a guest of 96 MiB."""
    if os.geteuid() != 0:
        pytest.skip("huge pages need root")
    count = Path("/proc/sys/vm/nr_hugepages")
    if not count.exists():
        pytest.skip("this kernel has no huge pages")
    before = count.read_text()
    try:
        try:
            count.write_text(str(int(before) + 56))
        except OSError as err:
            pytest.skip(f"huge pages cannot be reserved: {err.strerror}")
        if int(count.read_text()) < int(before) + 56:
            pytest.skip("not enough memory in one piece for huge pages")
        done = subprocess.run(
            ["mount", "-t", "hugetlbfs", "none", tmp_path],
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode != 0:
            pytest.skip(f"hugetlbfs cannot be mounted: {done.stderr.strip()}")
        try:
            yield tmp_path
        finally:
            subprocess.run(["umount", tmp_path], check=True)
    finally:
        count.write_text(before)


def free_huge_pages() -> int:
    found = re.search(r"HugePages_Free:\s+(\d+)", Path("/proc/meminfo").read_text())
    assert found
    return int(found[1])


def test_huge_pages(node: Node, huge_pages: Path) -> None:
    """The guest's memory is taken from them, and comes back."""
    before = free_huge_pages()
    guest = node.instance(NAME, disks=0, mem_path=str(huge_pages))
    node.start(guest, paused=True)
    assert free_huge_pages() == before - 48  # of 2 MiB
    node.shutdown(guest, 0)
    wait_until(lambda: free_huge_pages() == before, "they are back")
    too_large = node.instance(NAME, disks=0, mem_path=str(huge_pages), memory_mib=4096)
    with pytest.raises(errors.HypervisorError, match="Cannot allocate memory|memory"):
        node.start(too_large)
    assert node.leftovers() == []


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="pinning needs two processors")
def test_pinned_processors(node: Node) -> None:
    """One mask for everything, one for each virtual processor, or none."""
    allowed = sorted(os.sched_getaffinity(0))
    one, other = allowed[:2]
    both = set(allowed)
    for mask, wanted in (
        ("all", [both, both]),
        (str(one), [{one}, {one}]),
        (f"{one}:{other}", [{one}, {other}]),
        (f"{other}:all", [{other}, both]),
        (f"{one},{other}", [{one, other}] * 2),
    ):
        guest = node.instance(NAME, disks=0, cpu_mask=mask)
        guest = replace(guest, beparams={**guest.beparams, "vcpus": 2})
        node.start(guest, paused=True)
        with Qmp(node.socket(guest, "qmp"), NAME) as control:
            threads = [cpu["thread-id"] for cpu in control.execute("query-cpus-fast")]
        assert [os.sched_getaffinity(thread) for thread in threads] == wanted, mask
        # QEMU's own threads follow a mask for everything only.
        assert os.sched_getaffinity(node.pid(guest)) == (both if ":" in mask else wanted[0])
        node.shutdown(guest, 0)
    for mask, words in (
        ("0:0:0", "3 masks for 1 virtual processors"),
        ("9999", "cpu_mask: processor 9999 .* this node"),
    ):
        with pytest.raises(errors.HypervisorError, match=words):
            node.start(node.instance(NAME, disks=0, cpu_mask=mask))
    assert node.leftovers() == []


def other_qemu(directory: Path) -> str:
    """A newer QEMU than the installed one: ``GANETI_TEST_QEMU_NEXT``, or one that says it were."""
    given = os.environ.get("GANETI_TEST_QEMU_NEXT")
    if given:
        return given
    pretender = directory / "pretender"
    pretender.write_text(
        '#!/bin/sh\nif [ "$1" = --help ]; then\n'
        f'  {find_qemu()} --help | sed "1s/version [0-9.]*/version 11.0.0/; /^-no-acpi/d"\n'
        f'else exec {find_qemu()} "$@"; fi\n'
    )
    pretender.chmod(0o755)
    return str(pretender)


@pytest.mark.long
def test_qemu_is_upgraded_under_a_guest(
    nodes: tuple[Node, Node], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It can be changed and moved on, and stays the machine it is; a reboot takes the new QEMU."""
    monkeypatch.setattr("ganeti.hypervisor.kvm.facts.probe", lambda *args, **kwargs: False)
    first, second = nodes
    program = tmp_path / "kvm"
    program.symlink_to(find_qemu())
    guest = first.instance(NAME, kvm_path=str(program))
    first.install(guest)
    first.start(guest)
    boot, _ = first.wait_booted(guest)

    def machine(node: Node) -> str:
        words = Path(f"/proc/{node.pid(guest)}/cmdline").read_text().split("\0")
        return words[words.index("-machine") + 1].split(",")[0]

    before = machine(first)
    program.unlink()
    program.symlink_to(other_qemu(tmp_path))
    extra = more_disks(guest)
    plug(first, guest, ADD, extra, 1)
    wait_until(lambda: len(disks_seen(first, guest)) == 2, "the guest sees the disk")
    guest = replace(guest, disks=(*guest.disks, extra.uuid), disks_info=(*guest.disks_info, extra))
    assert move(first, second, guest) == "completed"
    assert machine(second) == before
    assert boot in second.ask(guest, "cat /run/boot-id")
    with paths.override(second.paths):
        lifecycle.reboot(guest, "soft", int(PATIENCE_S), [])
    assert machine(second) == before
    second.wait_booted(guest)
    assert second.lines(guest)[-1][0].startswith("2-")
    second.shutdown(guest, 0)
    assert first.leftovers() == second.leftovers() == []
