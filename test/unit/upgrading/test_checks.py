"""What must hold before an upgrade begins, and the work on nodes."""

from __future__ import annotations

import os
import tarfile
from pathlib import Path

import pytest

from ganeti import FULL_VERSION, errors
from ganeti.cli.remote import RemoteNode
from ganeti.platform import paths
from ganeti.platform.versions import Version
from ganeti.upgrading import checks, work
from ganeti.upgrading.checks import Member
from ganeti.upgrading.record import Record
from ganeti.utils import process

KNOWN = {
    "0.9": Version("0.9", "0.9.0", "/usr/lib/ganeti/0.9"),
    "0.10": Version("0.10", "0.10.2", "/usr/lib/ganeti/0.10"),
}


def test_target() -> None:
    assert checks.find_target("0.10", KNOWN).release == "0.10.2"
    assert checks.find_target("0.10.2", KNOWN).series == "0.10"
    for text, message in (
        ("x", "not a version"), ("1", "not a version"), ("1.2.3.4", "not a version"),
        ("0.11", "installed: 0.9, 0.10"), ("0.10.1", "but release 0.10.2 of version 0.10"),
    ):  # fmt: skip
        with pytest.raises(errors.OpPrereqError, match=message):
            checks.find_target(text, KNOWN)


@pytest.mark.parametrize(
    ("origin", "target", "message"),
    [
        ("0.9", "0.10", ""), ("0.9", "0.12", ""), ("0.9", "1.0", ""), ("0.10", "0.9", ""),
        ("0.9", "0.9", ""), ("0.10", "0.8", "go back to version 0.9 and no further"),
        ("1.0", "0.9", "no way back"), ("2.3", "1.2", "go back to version 2.2 and no further"),
    ],
)  # fmt: skip
def test_neighbours(origin: str, target: str, message: str) -> None:
    if not message:
        checks.require_neighbour(origin, target)
        return
    with pytest.raises(errors.OpPrereqError, match=message):
        checks.require_neighbour(origin, target)


def test_offline_nodes() -> None:
    members = [Member("a", "1", True, False), Member("b", "2", False, True)]
    with pytest.raises(errors.OpPrereqError, match="offline: b. With '--leave-out=NODE'"):
        checks.chosen(members, [])
    assert checks.chosen(members, ["b"]) == members[:1]
    with pytest.raises(errors.OpPrereqError, match="node a is online"):
        checks.chosen(members, ["a", "b"])
    with pytest.raises(errors.OpPrereqError, match="no node 'c'"):
        checks.chosen(members, ["b", "c"])


def test_state_of_the_cluster() -> None:
    checks.require_daemon_version({"vcs_version": f"(ganeti) version {FULL_VERSION}"})
    with pytest.raises(errors.OpPrereqError, match="another release"):
        checks.require_daemon_version({"vcs_version": "(ganeti) version 3.1.0"})
    checks.require_no_watchdog({"node_watchdog": None})
    with pytest.raises(errors.OpPrereqError, match="--node-watchdog=no"):
        checks.require_no_watchdog({"node_watchdog": 15})


class FakeNode(RemoteNode):
    """A node which answers ``daemon-util``, and records the commands."""

    def __init__(self, name: str, answer: str | None) -> None:
        super().__init__(name, "192.0.2.1")
        self.answer = answer
        self.commands: list[str] = []

    @property
    def here(self) -> bool:
        return False

    def path(self, path: str) -> str:
        return path

    def run(self, command: str) -> process.Completed:
        self.commands.append(command)
        if self.answer is None:
            return process.Completed((command,), 127, "", "sh: not found\n", None)
        return process.Completed((command,), 0, self.answer, "", None)


class Fixed(work.Programs):
    def __init__(self) -> None:
        super().__init__({})

    def path(self, series: str, name: str) -> str:
        return f"/lib/{series}/{name}"


def cluster(**answers: str | None) -> tuple[work.ClusterWork, dict[str, FakeNode]]:
    nodes = {name: FakeNode(name, answer) for name, answer in answers.items()}
    made = work.ClusterWork(dict(nodes), Fixed(), connect=lambda: None)  # type: ignore[arg-type]
    return made, nodes


def test_problems_of_nodes() -> None:
    good = '{"active":"0.9","installed":{"0.9":"0.9.0","0.10":"0.10.2"}}'
    made, nodes = cluster(
        a=good,
        b=good.replace('"active":"0.9"', '"active":"0.10"'),
        c=good.replace("0.10.2", "0.10.1"),
        d='{"active":"0.9","installed":{"0.9":"0.9.0"}}',
        e=None,
        f="motd",
        g=good.replace('"active":"0.9"', '"active":"0.8"'),
    )
    found = checks.problems_of_nodes(made, list(nodes), "0.9", KNOWN["0.10"])
    assert found == [
        "c: version 0.10 is release 0.10.1, but 0.10.2 on the master",
        "d: version 0.10 is not installed",
        "e: sh: not found",
        "f: daemon-util said: motd",
        "g: uses version 0.8, the master 0.9",
    ]
    assert nodes["a"].commands == ["/lib/0.9/daemon-util versions"]
    # Nodes which follow a master that has the version already.
    assert checks.problems_of_nodes(made, ["a", "b", "g"], "0.9", KNOWN["0.9"]) == []


def test_the_work_on_nodes() -> None:
    made, nodes = cluster(master="", other="")
    record = Record(1, "0.9", "0.10", "master", {"master": "1", "other": "2"})
    made.stop(record)
    made.switch(record)
    made.start(record)
    old, new = "/lib/0.9/daemon-util", "/lib/0.10/daemon-util"
    common = [f"{new} use-version 0.10", f"{new} stop-all", f"{new} start-all"]
    assert nodes["other"].commands == [f"{old} stop ganeti-failoverd", f"{old} stop-all", *common]
    assert nodes["master"].commands == [
        f"{old} stop ganeti-failoverd", f"{old} stop-master", f"{old} stop-all", *common,
    ]  # fmt: skip
    # The daemons which machines have started since then may be of either version.
    record.step = "switch"
    made.stop(record)
    assert nodes["master"].commands[-6:] == [
        f"{program} {words}"
        for program in (old, new)
        for words in ("stop ganeti-failoverd", "stop-master", "stop-all")
    ]
    made.start(record)
    nodes["other"].answer = None
    with pytest.raises(errors.OpExecError, match="other: sh: not found"):
        made.switch(record)
    assert nodes["master"].commands[-1] == common[-1], "the master is switched last"


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (
            '["ganeti-confd","ganeti-rapi"]',
            "before the node was switched: ganeti-confd ganeti-rapi",
        ),
        (None, "other: sh: not found"),
    ],
)
def test_verification_asks_each_node_for_older_daemons(answer: str | None, said: str) -> None:
    """Success must not be said of a cluster whose daemons have another version."""
    text = '{"active":"0.10","installed":{},"older_daemons":%s}'
    made, nodes = cluster(master=text % "[]", other=None if answer is None else text % answer)
    record = Record(1, "0.9", "0.10", "master", {"master": "1", "other": "2"})
    with pytest.raises(errors.OpExecError, match=said) as caught:
        made.verify(record)
    assert "master:" not in str(caught.value)
    assert nodes["other"].commands == ["/lib/0.10/daemon-util versions"]


def test_the_archive(tmp_path: Path) -> None:
    data = tmp_path / "ganeti"
    (data / "export").mkdir(parents=True)
    (data / "config.data").write_text("x")
    (data / "export/large").write_text("y")
    path = tmp_path / "a.tar.gz"
    work.write_archive(str(path), str(data), leave_out=(str(data / "export"),))
    assert path.stat().st_mode & 0o777 == 0o600
    with tarfile.open(path) as archive:
        assert sorted(archive.getnames()) == ["ganeti", "ganeti/config.data", "ganeti/export"]
    assert not Path(f"{path}.new").exists()


def test_a_part_of_an_archive_is_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The disk may be full, and the rest would be full, too."""
    (tmp_path / "ganeti").mkdir()
    path = tmp_path / "a.tar.gz"

    def full(_fd: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        work.write_archive(str(path), str(tmp_path / "ganeti"))
    assert sorted(tmp_path.iterdir()) == [tmp_path / "ganeti"]


def test_space_for_the_archive(tmp_path: Path) -> None:
    """It is counted before the daemons are stopped; exports are not archived."""
    with paths.override(paths.Paths(str(tmp_path))) as here:
        data, export = Path(here.data_dir), Path(here.export_dir)
        sizes = {data / "config.data": 1000, data / "queue/job-1": 500, export / "disk0": 9000}
        for file, size in sizes.items():
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(b"x" * size)
        assert work.archived_bytes() == 1500
        checks.require_space(work.archive_dir(), work.archived_bytes())
        with pytest.raises(errors.OpPrereqError, match="MiB of free space; .* need 9536"):
            checks.require_space(work.archive_dir(), 10**19)
