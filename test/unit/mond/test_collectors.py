"""The collectors, against the output of the original's collectors for the same input."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ganeti.mond import report
from ganeti.mond.collectors import cpu_load, diskstats, drbd, logical_volumes
from ganeti.mond.report import CollectorError
from ganeti.tools import mon_collector

DATA = Path(__file__).resolve().parents[2] / "data/mond"
DRBD = sorted(path.stem for path in DATA.glob("proc_drbd*.json"))


def recorded(name: str) -> dict[str, Any]:
    """What the original's program printed for an input."""
    found: dict[str, Any] = json.loads((DATA / f"{name}.json").read_text(encoding="utf-8"))
    return found


def printed(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, Any]:
    assert mon_collector.main(words) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def same(ours: dict[str, Any], theirs: dict[str, Any]) -> None:
    assert ours.pop("timestamp") > theirs.pop("timestamp")
    assert ours == theirs
    # Programs may depend on the order of keys.
    assert json.dumps(ours) == json.dumps(theirs)


@pytest.mark.parametrize("name", DRBD)
def test_drbd(capsys: pytest.CaptureFixture[str], name: str) -> None:
    pairing = str(DATA / "instance-minor-pairing.txt")
    words = ("drbd", "-s", str(DATA / f"{name}.txt"), "-p", pairing)
    same(printed(capsys, *words), recorded(name))


def test_logical_volumes(capsys: pytest.CaptureFixture[str]) -> None:
    words = ("lv", "-f", str(DATA / "lvs_lv.txt"), "-i", str(DATA / "instance-disks.txt"))
    same(printed(capsys, *words), recorded("lvs_lv"))


def test_volumes_have_the_instance_of_their_tag() -> None:
    text = (DATA / "lvs_lv.txt").read_text(encoding="utf-8")
    assert {one["instance"] for one in logical_volumes.parse(text, {})} == {"instance1.example.com"}
    untagged = text.replace("originstname+", "other+")
    assert {one["instance"] for one in logical_volumes.parse(untagged, {})} == {None}


def test_disks(capsys: pytest.CaptureFixture[str]) -> None:
    words = ("diskstats", "-f", str(DATA / "proc_diskstats.txt"))
    same(printed(capsys, *words), recorded("proc_diskstats"))


def test_kernels_with_more_counters() -> None:
    """The original fails for every kernel since 4.18."""
    (disk,) = diskstats.parse("   8 0 sda 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17\n")
    assert (disk["name"], disk["readsNum"], disk["wIOmillis"]) == ("sda", 1, 11)


@pytest.mark.parametrize(
    "state, code, message",
    [
        ("StandAlone", report.BAD, "No network config available"),
        ("TearDown", report.BAD, "The peer is closing the connection"),
        ("Unconnected", report.TEMPORARY, "Trying to establish a network connection"),
        ("WFReportParams", report.TEMPORARY, "Trying to establish a network connection"),
        ("Timeout", report.TEMPORARY, "Communication problems between the peers"),
        ("BrokenPipe", report.TEMPORARY, "Communication problems between the peers"),
        ("NetworkFailure", report.TEMPORARY, "Communication problems between the peers"),
        ("ProtocolError", report.TEMPORARY, "Communication problems between the peers"),
    ],
)
def test_states_of_a_connection(state: str, code: int, message: str) -> None:
    """As the original's program was seen to judge each state."""
    text = f"version: 8.4.2 (api:1/proto:86-101)\n 7: cs:{state} ro:Primary/Unknown ds:UpToDate/"
    found = drbd.parse(f"{text}DUnknown C r-----\n    ns:0 oos:4\n", {})
    assert found["status"] == {"code": code, "message": f"\n7: {message}"}


@pytest.mark.parametrize("state", ["Connected", "StartingSyncS", "WFBitMapT", "PausedSyncS"])
def test_states_which_need_nobody(state: str) -> None:
    found = drbd.parse(f"version: 9.1 (api:1/proto:86)\n 0: cs:{state}\n", {})
    assert found["status"] == {"code": report.OK, "message": ""}


@pytest.mark.parametrize(
    "words, problem",
    [
        (("drbd", "-s", "/nonexistent"), "cannot read /nonexistent"),
        (("drbd", "-s", "/dev/null"), "expected the state of DRBD"),
        (("lv", "-f", str(DATA / "proc_drbd84.txt")), "expected 20 columns of lvs"),
        (("diskstats", "-f", str(DATA / "lvs_lv.txt")), "expected counters of a device"),
        (
            ("drbd", "-s", str(DATA / "proc_drbd84.txt"), "-p", str(DATA / "proc_drbd84.txt")),
            "",
        ),
        (("lv", "-f", str(DATA / "lvs_lv.txt"), "-i", str(DATA / "mond-data.txt")), "expected"),
    ],
)
def test_inputs_of_another_form(
    capsys: pytest.CaptureFixture[str], words: tuple[str, ...], problem: str
) -> None:
    assert mon_collector.main(words) == 1
    shown = capsys.readouterr()
    assert shown.err.startswith("mon-collector: ") and problem in shown.err and not shown.out


def test_a_number_of_lvs_which_is_none() -> None:
    text = (DATA / "lvs_lv.txt").read_text(encoding="utf-8")
    with pytest.raises(CollectorError, match="expected a number of lvs"):
        logical_volumes.parse(text.replace("1073741824B", "1g"), {})


class Processor:
    """A machine with two processors, whose clock a test moves."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.busy = [0, 0]

    def read(self) -> str:
        lines = [f"cpu{index} {busy} 0 0 500 9 0 0 0 0 0" for index, busy in enumerate(self.busy)]
        return "\n".join([f"cpu  {sum(self.busy)} 0 0 1000 18 0 0 0 0 0", *lines, "intr 1 2"])

    def load(self) -> cpu_load.LoadOverTime:
        return cpu_load.LoadOverTime(self.read, monotonic=lambda: self.now, ticks_per_s=100)


class Nobody:
    """No daemon answers a question."""

    def drbd_minors(self) -> dict[int, str]:
        return {}

    def instances(self) -> list[dict[str, Any]]:
        return []


def test_load_is_the_share_of_busy_time() -> None:
    machine = Processor()
    load = machine.load()
    load.take()
    machine.now, machine.busy = 1010.0, [1000, 250]
    load.take()
    assert load.collect(Nobody()) == {"cpu_number": 2, "cpus": [1.0, 0.25], "cpu_total": 1.25}


def test_only_the_window_counts() -> None:
    machine = Processor()
    load = machine.load()
    load.take()
    machine.busy = [90_000, 90_000]
    machine.now += cpu_load.WINDOW_S + 1
    load.take()
    machine.now += 10
    load.take()
    assert load.collect(Nobody())["cpu_total"] == 0.0


def test_a_processor_that_was_added() -> None:
    machine = Processor()
    load = machine.load()
    load.take()
    machine.now, machine.busy = 1010.0, [500, 500, 100]
    load.take()
    assert load.collect(Nobody())["cpu_number"] == 2


def test_the_first_question_has_no_answer_yet() -> None:
    machine = Processor()
    with pytest.raises(CollectorError, match="after the second reading"):
        machine.load().collect(Nobody())


def test_counters_that_are_none() -> None:
    with pytest.raises(CollectorError, match="expected counters of a processor"):
        cpu_load.parse("cpu  1 2 three 4\n")
    with pytest.raises(CollectorError, match="no line for all processors"):
        cpu_load.parse("intr 1 2 3\n")


def test_this_machine() -> None:
    text = Path(cpu_load.PATH).read_text(encoding="utf-8")
    found = cpu_load.parse(text)
    assert found["cpu"] > 0 and "cpu0" in found
    assert isinstance(diskstats.collect(Nobody()), list)
