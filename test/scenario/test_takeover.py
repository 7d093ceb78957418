"""A cluster of the original Ganeti is taken over and given back, with the original's daemons.

The tests of a module follow each other, on one cluster for each version of the original.
"""

from __future__ import annotations

import importlib.machinery
import json
import os
import subprocess
import types
from collections.abc import Callable, Iterator
from pathlib import Path

import original_lab
import pytest
from harness import IN_PROCESSES, wait_until
from original_lab import Lab, Machine

from ganeti.takeover import steps
from ganeti.takeover.state import BACK, RUN

TOP = Path(__file__).resolve().parents[2]
REASON = original_lab.reason_to_skip()
PACKAGE = "/root/ganeti-py.deb"
PROGRAM = "/root/ganeti-py/usr/sbin/ganeti-takeover"
STARTER = "/var/lib/ganeti-takeover/ganeti-takeover"
RUNNING = {f"web{number}.example.com": "running" for number in (1, 2, 3)}
FOR_PROGRAMS = "--no-headers --separator='|'"

pytestmark = [pytest.mark.long, pytest.mark.skipif(REASON is not None, reason=REASON or "")]


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The package, built in a clone of the last commit."""
    return original_lab.build_package(tmp_path_factory.mktemp("package"))


def make_lab(
    suite: str,
    count: int,
    package: Path,
    *cluster: str,
    prepare: Callable[[Lab], None] = lambda _lab: None,
) -> Iterator[Lab]:
    """Machines with a cluster of the original, a guest on each, and our package unpacked.

    :param cluster: hypervisor and its parameters, as for :meth:`Lab.make_cluster`.
    :param prepare: called before the cluster is made.
    """
    place = original_lab.PLACE / f"run-{os.getpid()}-{suite}{'-'.join(('', *cluster[:1]))}"
    lab = Lab(place, suite, count)
    try:
        prepare(lab)
        lab.make_cluster(*cluster)
        for machine in lab.machines:
            lab.add_instance(f"web{machine.number}.example.com", machine)
        lab.master.put(package, PACKAGE)
        lab.master.run(f"dpkg-deb -x {PACKAGE} /root/ganeti-py")
        yield lab
    finally:
        lab.close()
        subprocess.run(["rm", "-rf", "--one-file-system", str(place)], check=True)


@pytest.fixture(scope="module")
def three(package: Path) -> Iterator[Lab]:
    """Three machines with Debian 12 and the original in version 3.0."""
    yield from make_lab("bookworm", 3, package)


@pytest.fixture(scope="module")
def newer(package: Path) -> Iterator[Lab]:
    """Three machines with Debian 13 and the original in version 3.1."""
    yield from make_lab("trixie", 3, package)


def listing(machine: Machine, command: str) -> list[str]:
    return machine.run(f"{command} {FOR_PROGRAMS}").stdout.splitlines()


def guests(lab: Lab) -> dict[str, str]:
    lines = listing(lab.master, "gnt-instance list -o name,status")
    return dict(line.split("|") for line in lines)


def version(machine: Machine) -> str:
    return machine.run("gnt-cluster --version").stdout


def secrets(machine: Machine) -> str:
    """Digests of what no takeover changes."""
    return machine.run(
        "cd / && sha256sum var/lib/ganeti/*.pem var/lib/ganeti/hmac.key"
        " var/lib/ganeti/cluster-domain-secret etc/ganeti/hooks/*/* etc/ganeti/file-storage-paths"
        " srv/ganeti/os/noop/* root/.ssh/id_rsa run/ganeti/fake-hypervisor/*"
    ).stdout


def killed_at_each_step(lab: Lab, argv: list[str], direction: str) -> str:
    """Run the program, killed once at the beginning of each step; return its last output."""
    seen: set[str] = set()

    def first_time(line: str) -> bool:
        label = line.partition(" ")[0]
        if not label.startswith("[") or label in seen:
            return False
        seen.add(label)
        return True

    while True:
        code, text = lab.master.run_until(argv, first_time)
        if code != -9:
            assert code == 0, text
            assert len(seen) == len(steps.PLANS[direction]), text
            return text


# -- version 3.0, three machines -------------------------------------------------------------------


def test_the_check_changes_nothing(three: Lab) -> None:
    look = "find /var/lib/ganeti /etc /usr/lib/ganeti -type f -newer /tmp/before"
    for machine in three.machines:
        machine.run("touch /tmp/before")
    done = three.master.run(f"{PROGRAM} --package={PACKAGE} --output=json check")
    report = json.loads(done.stdout)
    assert report["possible"], done.stdout
    assert {one["code"] for one in report["findings"]} <= {"features", "new-packages"}
    plan = three.master.run(f"{PROGRAM} --package={PACKAGE} --dry-run run").stdout
    assert "Dry run: nothing was changed." in plan
    for machine in three.machines:
        assert machine.run(look, check=False).stdout == ""
        assert machine.run("ls /var/lib/ganeti-takeover", check=False).returncode != 0


def test_the_check_names_what_would_not_work(three: Lab) -> None:
    node2 = three.machines[1]
    node2.run(
        "cp /srv/archive/Packages /srv/archive/gone && : > /srv/archive/Packages && apt-get update"
    )
    node2.run("""echo 'LUXID_ARGS="-d"' >> /etc/default/ganeti""")
    done = three.master.run(f"{PROGRAM} --package={PACKAGE} --output=json check", check=False)
    assert done.returncode == 1
    found = {
        (one["severity"], one["code"], one["node"]) for one in json.loads(done.stdout)["findings"]
    }
    assert ("refusal", "dependency", node2.name) in found
    assert ("no way back", "original-gone", node2.name) in found
    assert ("warning", "daemon-options", node2.name) in found
    refused = three.master.run(f"{PROGRAM} --package={PACKAGE} -f run", check=False)
    assert refused.returncode == 1 and "cannot be taken over" in refused.stdout
    assert three.master.run("ls /var/lib/ganeti-takeover", check=False).returncode != 0
    node2.run("mv /srv/archive/gone /srv/archive/Packages && apt-get update")
    node2.run("sed -i '/LUXID_ARGS=\"-d\"/d' /etc/default/ganeti")


def test_a_takeover_which_is_killed_at_each_step(three: Lab) -> None:
    master = three.master
    master.run("echo 'jack secret write' > /var/lib/ganeti/rapi/users")
    assert "-b 127.0.0.1 --require-auth" in master.run("cat /etc/default/ganeti").stdout
    before = [secrets(machine) for machine in three.machines]
    jobs = listing(master, "gnt-job list -o id,status")
    text = killed_at_each_step(three, [PROGRAM, f"--package={PACKAGE}", "-f", "run"], RUN)
    assert "The cluster was taken over." in text
    assert [secrets(machine) for machine in three.machines] == before
    assert guests(three) == RUNNING
    assert "of Ganeti in Python" in version(master)
    now = listing(master, "gnt-job list -o id,status")
    assert now[: len(jobs)] == jobs
    assert "RAPI_ARGS=\"--user=gnt-rapi --group=gnt-rapi -b 127.0.0.1 --require-auth" in (
        master.run("cat /etc/default/ganeti").stdout
    )  # fmt: skip
    for machine in three.machines:
        assert machine.run("test -e /usr/sbin/policy-rc.d", check=False).returncode != 0
        assert machine.run("test -e /var/lib/ganeti/watcher.pause", check=False).returncode != 0
    status = json.loads(master.run("ganeti-takeover --output=json status").stdout)
    assert status["direction"] == RUN and status["done"]


def test_the_cluster_works_with_our_daemons(three: Lab) -> None:
    if IN_PROCESSES:
        three.master.run("gnt-cluster modify --job-execution=processes")
    three.master.run("gnt-instance stop web3 && gnt-instance start web3")
    three.add_instance("new1.example.com", three.machines[1])
    three.master.run("gnt-node list && gnt-cluster command true")


def test_the_way_back_is_refused_while_a_feature_of_ours_is_in_use(three: Lab) -> None:
    master = three.master
    master.run(
        "gnt-cluster modify --auto-balance=yes && gnt-node maintenance start -f --stop node3"
        " && gnt-instance snapshot --shutdown --snapshot-name=before web1"
    )
    found = json.loads(master.run("ganeti-takeover --output=json check").stdout)["findings"]
    in_use = [one["text"] for one in found if one["code"] == "in-use"]
    assert f"instance web1.example.com: snapshot before, on {master.name}" in in_use
    refused = master.run("ganeti-takeover -f back", check=False)
    assert refused.returncode == 1 and "Nothing was changed" in refused.stderr
    assert "gnt-cluster modify --auto-balance=no" in refused.stdout
    assert "gnt-node maintenance end node3.example.com" in refused.stdout
    assert "gnt-instance remove-snapshot web1.example.com before" in refused.stdout
    # The remedies are sufficient.
    for line in refused.stdout.splitlines():
        if line.startswith("    "):
            master.run(line.strip())
    assert "Dry run" in master.run("ganeti-takeover --dry-run back").stdout
    assert "of Ganeti in Python" in version(master)


def test_a_way_back_which_is_killed_at_each_step(three: Lab) -> None:
    master = three.master
    before = [secrets(machine) for machine in three.machines]
    running = guests(three)
    jobs = listing(master, "gnt-job list -o id,status")
    text = killed_at_each_step(three, [STARTER, "-f", "back"], BACK)
    assert "The cluster belongs to the original again." in text
    assert [secrets(machine) for machine in three.machines] == before
    assert guests(three) == running and running["new1.example.com"] == "running"
    assert "ganeti 3.0" in version(master)
    assert listing(master, "gnt-job list -o id,status")[: len(jobs)] == jobs


def test_the_original_works_again(three: Lab) -> None:
    # A purge of our package leaves the files of the original's guests.
    three.machines[1].run("dpkg --purge ganeti-py")
    three.master.run("gnt-instance stop web1.example.com && gnt-instance start web1.example.com")
    three.add_instance("new2.example.com", three.machines[2])
    assert guests(three)["new2.example.com"] == "running"
    again = three.master.run(f"{PROGRAM} --package={PACKAGE} --output=json check")
    assert json.loads(again.stdout)["possible"]


# -- guests of KVM ---------------------------------------------------------------------------------


def image_which_writes(image: Path) -> bytes:
    """An initrd whose guest writes numbered blocks with its uptime to its disk, without an end."""
    loader = importlib.machinery.SourceFileLoader("tiny_image", str(TOP / "devel/tiny-image"))
    module = types.ModuleType(loader.name)
    loader.exec_module(module)
    writer = """( number=0
while :; do
  number=$((number + 1))
  read -r uptime rest < /proc/uptime
  printf '%-511s\\n' "block $number uptime $uptime" |
    dd of=/dev/vda bs=512 seek=$number count=1 conv=fsync,notrunc 2>/dev/null
  usleep 50000
done ) &
exec /sbin/init
"""
    archive = module.Archive()
    archive.file("init", module.INIT.replace("exec /sbin/init\n", writer).encode())
    # The kernel unpacks archives one after the other; a later file replaces an earlier one.
    return (image / "initrd").read_bytes() + archive.packed()


def blocks(machine: Machine, name: str) -> list[float]:
    """The uptimes in the blocks which a guest has written, in order, without a gap."""
    file = machine.run(f"ls /srv/ganeti/file-storage/{name}/*").stdout.strip()
    found: list[float] = []
    with open(f"/proc/{machine.pid}/root{file}", "rb") as disk:
        while True:
            disk.seek((len(found) + 1) * 512)
            words = disk.read(512).split()
            if len(words) != 4 or words[0] != b"block":
                return found
            assert int(words[1]) == len(found) + 1
            found.append(float(words[3]))


@pytest.fixture(scope="module")
def kvm(package: Path, image: Path) -> Iterator[Lab]:
    """Two machines with the original in version 3.0, and a guest of KVM on each, which writes."""

    def prepare(lab: Lab) -> None:
        initrd = lab.place / "initrd"
        initrd.write_bytes(image_which_writes(image))
        for machine in lab.machines:
            machine.put(image / "vmlinux", "/srv/vmlinux")
            machine.put(initrd, "/srv/initrd")

    yield from make_lab(
        "bookworm",
        2,
        package,
        "kvm",
        "kvm_path=/usr/bin/qemu-system-x86_64,kernel_path=/srv/vmlinux,"
        "initrd_path=/srv/initrd,root_path=/dev/vda,vnc_bind_address=",
        prepare=prepare,
    )


def grows(machine: Machine, name: str) -> None:
    """Wait until a guest has written more blocks."""
    before = len(blocks(machine, name))
    wait_until(lambda: len(blocks(machine, name)) >= before + 10, f"{name} writes")


def test_a_guest_of_kvm_writes_all_the_time(kvm: Lab) -> None:
    """There and back; the other guest is started by our daemons, and found by the original."""
    first, second = kvm.machines
    grows(first, "web1.example.com")
    pid = first.run("cat /run/ganeti/kvm-hypervisor/pid/web1.example.com").stdout
    text = kvm.master.run(f"{PROGRAM} --package={PACKAGE} -f run").stdout
    assert f"{first.name}: " in text and "guests of KVM in the same processes: 1" in text
    grows(first, "web1.example.com")
    if IN_PROCESSES:
        kvm.master.run("gnt-cluster modify --job-execution=processes")
    kvm.master.run("gnt-instance reboot --type=hard web2.example.com")
    kvm.master.run("gnt-instance modify --hotplug --net add:link=xen-br0 web1.example.com")
    other = second.run("cat /run/ganeti/kvm-hypervisor/pid/web2.example.com").stdout
    assert guests(kvm) == {"web1.example.com": "running", "web2.example.com": "running"}
    if IN_PROCESSES:
        # The original does not have them.
        kvm.master.run("gnt-cluster modify --job-execution=threads")
    kvm.master.run("ganeti-takeover -f back")
    assert guests(kvm) == {"web1.example.com": "running", "web2.example.com": "running"}
    kvm.master.run("gnt-instance modify --hotplug --net remove web1.example.com")
    grows(first, "web1.example.com")
    assert first.run("cat /run/ganeti/kvm-hypervisor/pid/web1.example.com").stdout == pid
    assert second.run("cat /run/ganeti/kvm-hypervisor/pid/web2.example.com").stdout == other
    uptimes = blocks(first, "web1.example.com")
    # The guest would have booted again with a smaller uptime.
    assert uptimes == sorted(uptimes)
    kvm.master.run("gnt-instance shutdown --timeout=1 web2.example.com")
    assert guests(kvm)["web2.example.com"] == "ADMIN_down"


# -- version 3.1, three machines -------------------------------------------------------------------


def test_a_takeover_which_is_not_complete_is_taken_back(newer: Lab) -> None:
    """The program dies while packages are replaced, and the administrator wants the original."""
    argv = [PROGRAM, f"--package={PACKAGE}", "-f", "run"]
    code, _text = newer.master.run_until(argv, lambda line: "Carrying over" in line)
    assert code == -9
    text = newer.master.run(f"{PROGRAM} -f back").stdout
    assert "The cluster belongs to the original again." in text
    assert "ganeti 3.1" in version(newer.master)
    assert guests(newer) == RUNNING


def test_a_node_which_was_offline_comes_later(newer: Lab) -> None:
    master, node2, _node3 = newer.machines
    master.run(f"gnt-node modify -C no -O yes {node2.name}")
    master.run(f"{PROGRAM} --package={PACKAGE} -f run")
    assert "ganeti 3.1.0~rc" in version(node2) and "in Python" in version(master)
    master.run(f"ganeti-takeover -f --include={node2.name} run")
    assert "in Python" in version(node2)
    master.run(f"gnt-node modify --offline=no {node2.name}")
    assert guests(newer) == RUNNING
    master.run("ganeti-takeover -f back")
    assert "ganeti 3.1.0~rc" in version(node2)
    assert guests(newer) == RUNNING
