"""What the chaos run loses in a power cut: what was not flushed, and nothing else."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from devel.chaos import defects, faults, power, schedule, settle, shim
from devel.chaos.lab import TOP, Finished, Lab
from ganeti.utils import fs

pytestmark = pytest.mark.programs


class Node:
    """A directory like that of a node, and a program which runs there with the shim."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.root = directory / "vc/node1.example.com"
        self.data = self.root / "var/lib/ganeti"
        self.flushed = directory / "flushed.node1.example.com"
        self.data.mkdir(parents=True)
        (self.data / "old").write_text("old")
        (self.data / "queue").mkdir()
        shim_file = directory / "sitecustomize.py"
        shim_file.write_text((TOP / "devel/chaos/shim.py").read_text())
        power.begin(self.data, self.flushed)

    def run(self, program: str) -> str:
        """Run a program with ``data`` as the data directory; returns what it prints."""
        head = f"import os, time\nfrom ganeti.utils import fs\ndata = {str(self.data)!r}\n"
        done = subprocess.run(
            [sys.executable, "-c", head + program],
            env={
                **os.environ,
                "PYTHONPATH": f"{self.directory}:{TOP / 'lib'}",
                "CHAOS_DIRECTORY": str(self.directory),
                "GANETI_HOSTNAME": "node1.example.com",
                "GANETI_ROOTDIR": str(self.root),
            },
            capture_output=True,
            text=True,
            check=False,
        )
        return done.stdout + done.stderr

    def cut(self) -> dict[str, str]:
        """Cut the power; returns the files with their content."""
        power.cut(self.data, self.flushed)
        return {
            str(path.relative_to(self.data)): path.read_text()
            for path in sorted(self.data.rglob("*"))
            if path.is_file()
        }


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path)


def test_a_power_cut_gives_a_node_another_boot_id(tmp_path: Path) -> None:
    """The watcher knows by it that a machine has started again."""
    node = Node(tmp_path)
    lab = Lab(tmp_path, 1)
    program = "from ganeti.backend.node import info\nprint(info.boot_id())"
    before = node.run(program)
    assert before.strip() == fs.read_file(shim.BOOT_ID).strip()
    lab.power_off(lab.nodes)
    first = node.run(program)
    lab.plug_in(lab.nodes[0])
    lab.power_off(lab.nodes)
    assert len({before, first, node.run(program)}) == 3


def test_what_was_flushed_is_there(node: Node) -> None:
    assert node.run('fs.write_file(f"{data}/new", "new", mode=0o640)') == ""
    assert node.cut() == {"new": "new", "old": "old"}
    assert (node.data / "new").stat().st_mode & 0o777 == 0o640


def test_what_was_not_flushed_is_lost(node: Node) -> None:
    assert node.run('fs.write_file(f"{data}/new", "new", sync=False)') == ""
    assert (node.data / "new").exists()
    assert node.cut() == {"old": "old"}


def test_a_name_without_its_content(node: Node) -> None:
    """The directory was flushed, and the file was not."""
    assert node.run('fs.write_file(f"{data}/new", "new", sync=False); fs.flush_dir(data)') == ""
    assert node.cut() == {"new": "", "old": "old"}


def test_a_replaced_file_without_a_flush_of_its_directory(node: Node) -> None:
    program = """
fd = os.open(f"{data}/.n", os.O_WRONLY | os.O_CREAT)
os.write(fd, b"new")
os.fsync(fd)
os.rename(f"{data}/.n", f"{data}/old")
"""
    assert node.run(program) == ""
    assert node.cut() == {"old": "old"}
    assert node.run(program + "fs.flush_dir(data)") == ""
    assert node.cut() == {"old": "new"}


def test_only_the_flushed_part_of_a_journal_is_there(node: Node) -> None:
    program = """
fd = os.open(f"{data}/queue/journal-1", os.O_RDWR | os.O_CREAT | os.O_EXCL)
fs.flush_dir(f"{data}/queue")
for number in range(3):
    os.write(fd, f"record {number}\\n".encode())
    os.fdatasync(fd)
os.write(fd, b"not flushed")
"""
    assert node.run(program) == ""
    assert node.cut()["queue/journal-1"] == "record 0\nrecord 1\nrecord 2\n"


def test_a_removed_file_comes_back_when_the_removal_was_not_flushed(node: Node) -> None:
    assert node.run('os.unlink(f"{data}/old")') == ""
    assert node.cut() == {"old": "old"}
    assert node.run('os.unlink(f"{data}/old"); fs.flush_dir(data)') == ""
    assert node.cut() == {}


def test_a_new_directory(node: Node) -> None:
    program = 'fs.make_dirs(f"{data}/below"); fs.write_file(f"{data}/below/file", "x")'
    assert node.run(program) == ""
    assert node.cut()["below/file"] == "x"
    assert node.run('os.mkdir(f"{data}/other"); open(f"{data}/other/f", "w").close()') == ""
    node.cut()
    assert not (node.data / "other").exists()


def test_two_cuts_lose_no_more_than_one(node: Node) -> None:
    node.run('fs.write_file(f"{data}/new", "new")')
    assert node.cut() == node.cut() == {"new": "new", "old": "old"}


@pytest.mark.parametrize(
    ("disk", "error"), [("full", "No space left on device"), ("fails", "Input/output error")]
)
def test_a_broken_disk_changes_nothing(node: Node, disk: str, error: str) -> None:
    (node.directory / "disk.node1.example.com").write_text(disk)
    assert error in node.run('fs.write_file(f"{data}/old", "new")')
    (node.directory / "disk.node1.example.com").write_text("ok")
    assert node.cut() == {"old": "old"}
    assert node.run('fs.write_file(f"{data}/old", "new")') == ""
    assert node.cut() == {"old": "new"}


def test_other_files_are_not_concerned(node: Node, tmp_path: Path) -> None:
    (node.directory / "disk.node1.example.com").write_text("fails")
    assert node.run(f'fs.write_file("{tmp_path}/elsewhere", "x")') == ""


def test_a_clock_that_is_wrong(node: Node) -> None:
    program = "begin = time.monotonic(); print(time.time() - time.time_ns() / 1e9 < 5, time.time())"
    right = float(node.run(program).split()[1])
    (node.directory / "clock.node1.example.com").write_text("-7200")
    same, wrong = node.run(program).split()
    assert same == "True"
    assert -7300 < float(wrong) - right < -6000


def test_guests_leave_their_lines(node: Node) -> None:
    program = """
place = f"{data}/../../run/fake-hypervisor"
os.makedirs(place)
for number in (2, 1, 1, 3):
    fs.write_file(f"{place}/web", f"{number}\\n128\\n1\\n", sync=False)
fs.write_file(f"{place}/web", "1\\n128\\n1\\n", sync=False)
os.unlink(f"{place}/web")
"""
    assert node.run(program) == ""
    lines = (node.directory / "guests.log").read_text().splitlines()
    assert [line.split()[1:] for line in lines] == [
        ["node1.example.com", "web", what] for what in ("begun", "ended", "begun", "ended")
    ]


def test_promises_leave_their_lines(node: Node) -> None:
    program = 'fs.write_file(f"{data}/master_state", "epoch 2 a\\nconfig 1 b\\nqueue 1 b\\n")'
    assert node.run(program) == ""
    assert (node.directory / "promises.log").read_text() == ("node1.example.com 2 a | 1 b | 1 b\n")
    assert shim.promise_line("") == "0 | 0 | 0"


def test_torn_files(tmp_path: Path) -> None:
    fs.make_dirs(f"{tmp_path}/queue")
    for name in ("config.data", "ssconf_a", "ssconf_b", "queue/serial", "queue/job-2"):
        (tmp_path / name).write_text("x")
    for number in (9, 10, 11, 12):
        (tmp_path / f"queue/job-{number}").write_text("x")
    (tmp_path / "queue/journal-3").write_text("x")
    torn = {
        what: [path.name for path in faults.torn_paths(tmp_path, what)]
        for what in ("config.data", "queue", "ssconf", "serial", "master_state")
    }
    assert torn == {
        "config.data": ["config.data"],
        "queue": ["job-10", "job-11", "job-12", "journal-3"],
        "ssconf": ["ssconf_a", "ssconf_b"],
        "serial": ["serial"],
        "master_state": [],
    }


def test_findings_of_a_verification() -> None:
    text = (
        "Wed Nov 25 21:35:45 2026   - ERROR: cluster: file /x is old. Write it again with"
        " 'gnt-cluster redist-conf'.\n"
        "Wed Nov 25 21:35:45 2026   - WARNING: cluster: guests of hypervisor kvm run as root on x\n"
        "Wed Nov 25 21:35:45 2026   - NOTICE: something\n"
    )
    assert settle.parse_findings(text) == [
        ("ERROR", "cluster: file /x is old. Write it again with 'gnt-cluster redist-conf'.")
    ]


def test_findings_of_verify_stand_at_the_begin_of_a_line_with_their_codes() -> None:
    text = (
        "ERROR: node n1: does not answer [ENODERPC]\n"
        "WARNING: cluster: [1, 2] is odd [ECLUSTERCFG]\n"
        "NOTICE: ERROR is a word\n"
        "2 nodes, 11 instances: 1 error, 2 warnings\n"
    )
    assert settle.parse_findings(text) == [
        ("ERROR", "node n1: does not answer"),
        ("WARNING", "cluster: [1, 2] is odd"),
    ]


def test_a_guest_of_a_removed_instance_is_ended_on_its_node(tmp_path: Path) -> None:
    """The one which the finding names, and no other."""
    lab = Lab(tmp_path, 2)
    guests = lab.run_dir("node2.example.com") / "fake-hypervisor"
    guests.mkdir(parents=True)
    for name in ("web", "other"):
        (guests / name).write_text("1\n128\n1\n")
    settled = settle.Settled(lab, lambda text: None)
    settled._remedy(
        "node1.example.com",
        [("ERROR", "node node2.example.com: runs instance web, which is not in the configuration")],
    )
    assert [path.name for path in guests.iterdir()] == ["other"]
    assert (tmp_path / "guests.log").read_text().endswith(" node2.example.com web ended\n")
    assert list(settled.remedies) == ["end the guest of a removed instance on its node"]


def test_an_instance_whose_removal_broke_off_is_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only one of burnin, which has removed its disks."""
    ran: list[tuple[str, ...]] = []

    def run(_lab: Lab, _node: str, *argv: str, **_options: object) -> Finished:
        ran.append(argv)
        return Finished(0, "", "")

    monkeypatch.setattr(Lab, "run", run)
    settled = settle.Settled(Lab(tmp_path, 2), lambda text: None)
    text = "disk/0 could not be examined on node n1: x: it is not known whether it exists: no y"
    settled._remedy(
        "n1",
        [
            ("ERROR", f"instance burn-burnin1-3.example.com: {text}"),
            ("ERROR", f"instance web.example.com: {text}"),
        ],
    )
    assert ran == [("gnt-instance", "remove", "-f", "burn-burnin1-3.example.com")]


def test_the_known_defects_fit_the_program(tmp_path: Path) -> None:
    found = defects.read()
    begins = [fault.what.partition(":")[0] for fault in found]
    assert begins == [*defects.SEEDS, *defects.PLANNED]
    for file, *_options in defects.PLANNED.values():
        assert schedule.parse_schedule((defects.KNOWN / file).read_text())[1]
    project = defects.copy_with(found[0], tmp_path)
    changed = (project / "lib/ganeti" / found[0].file).read_text()
    compile(changed, "module", "exec")
    assert changed != (TOP / "lib/ganeti" / found[0].file).read_text()
