"""Upgrades, maintenances and joining nodes in a chaos run: their order, and what is broken."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from devel.chaos import versions
from devel.chaos.faults import JOINS, UPGRADES, Faults
from devel.chaos.lab import Finished, Lab

NODE = "node1.example.com"


class FakeLab(Lab):
    """Answers commands at once, or when the test lets it."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory, 2)
        self.series, self.next_series = "1.0", "1.1"
        self.code = 0
        self.wrong: list[str] = []
        self.commands: list[tuple[str, ...]] = []
        self.gate = threading.Semaphore(10)

    def run(self, node: str, *argv: str, timeout_s: float = 0.0) -> Finished:
        self.gate.acquire()
        self.commands.append(argv)
        return Finished(self.code, "", "the step failed")

    def other_versions(self, series: str) -> list[str]:
        return self.wrong

    def add_node(self) -> tuple[str, Finished]:
        return "" if self.code else "node3.example.com", Finished(self.code, "", "")

    def masters(self) -> list[str]:
        return [NODE]


@pytest.fixture
def lab(tmp_path: Path) -> FakeLab:
    return FakeLab(tmp_path)


def made(lab: Lab) -> Faults:
    return Faults(lab, lambda _text: None, lambda _tag: None)


def test_an_upgrade_which_ends_breaks_nothing(lab: FakeLab) -> None:
    faults = made(lab)
    faults._upgrade(NODE, "1.1", "--resume")
    assert lab.commands == [("gnt-cluster", "upgrade", "--resume")]
    assert faults.take_broken() == []


def test_an_upgrade_which_is_stuck_is_found(lab: FakeLab) -> None:
    lab.code = 1
    faults = made(lab)
    faults._upgrade(NODE, "1.1", "--resume")
    (found,) = faults.take_broken()
    assert found.promise == UPGRADES and "--resume: exit 1: the step failed" in found.text
    assert faults.take_broken() == []


def test_a_success_with_daemons_of_the_other_version_is_found(lab: FakeLab) -> None:
    lab.wrong = [f"{NODE}: ganeti-noded"]
    faults = made(lab)
    faults._upgrade(NODE, "1.1", "--resume")
    (found,) = faults.take_broken()
    assert found.text == f"not of version 1.1 after a success: {NODE}: ganeti-noded"


def test_a_maintenance_ends_after_it_has_begun(lab: FakeLab) -> None:
    lab.gate = threading.Semaphore(0)
    faults = made(lab)
    end = faults.maintenance("node2.example.com", "")
    ending = threading.Thread(target=end)
    ending.start()
    assert lab.commands == []
    lab.gate.release()
    ending.join(60)
    lab.gate.release()
    faults._end_commands()
    assert [argv[-2] for argv in lab.commands] == ["start", "end"]


def test_a_node_which_has_joined_leaves(lab: FakeLab) -> None:
    faults = made(lab)
    end = faults.join_node(NODE, "")
    assert end is not None
    end()
    assert [argv[:2] for argv in lab.commands] == [
        ("gnt-node", "maintenance"),
        ("gnt-node", "remove"),
    ]
    assert faults.take_broken() == []


def test_a_node_which_cannot_join_or_leave_is_found(lab: FakeLab) -> None:
    faults = made(lab)
    end = faults.join_node(NODE, "")
    lab.code = 1
    lab.gate = threading.Semaphore(100)
    assert end is not None and faults.join_node(NODE, "") is None
    end()
    assert [one.promise for one in faults.take_broken()] == [JOINS, JOINS]


def test_the_next_version_is_a_copy_with_another_number(tmp_path: Path) -> None:
    project = tmp_path / "project"
    (project / "lib/ganeti").mkdir(parents=True)
    (project / "lib/ganeti/__init__.py").write_text('RELEASE = "2.9.4"\n')
    (project / "daemons").mkdir()
    (project / "daemons/ganeti-noded").touch()
    (project / "test").mkdir()
    assert versions.make_next(project, tmp_path / "next") == ("2.9", "2.10")
    assert (tmp_path / "next/lib/ganeti/__init__.py").read_text() == 'RELEASE = "2.10.0"\n'
    assert (tmp_path / "next/daemons/ganeti-noded").exists()
    assert not (tmp_path / "next/test").exists()
    assert (project / "lib/ganeti/__init__.py").read_text() == 'RELEASE = "2.9.4"\n'


def test_which_version_a_daemon_is_of(tmp_path: Path) -> None:
    place = tmp_path / "2.9"
    (tmp_path / "checkout/daemons").mkdir(parents=True)
    place.symlink_to(tmp_path / "checkout")
    words = ["python3", str(tmp_path / "checkout/daemons/ganeti-noded"), ""]
    assert versions.is_of(words, "ganeti-noded", place)
    assert not versions.is_of(words, "ganeti-confd", place)
    assert not versions.is_of(words, "ganeti-noded", tmp_path / "2.10")
