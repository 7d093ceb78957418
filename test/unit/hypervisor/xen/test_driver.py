"""Guests under Xen: start, stop, reboot, lists and states, with a fake ``xl``."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from fakes import xen_node
from fakes.xen_node import XenNode, driver, instance, nic
from ganeti import errors, hypervisor
from ganeti.bootstrap import detection
from ganeti.hypervisor import base
from ganeti.hypervisor.xen import disks, record, xl

pytestmark = pytest.mark.programs


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[XenNode]:
    xen_node.plain_disks(monkeypatch)
    found = XenNode(tmp_path)
    with found.here():
        yield found


def test_both_hypervisors_have_a_driver() -> None:
    assert {"xen-pvm", "xen-hvm"} < set(hypervisor.known())
    assert [hypervisor.of(name).name for name in ("xen-pvm", "xen-hvm")] == ["xen-pvm", "xen-hvm"]


def test_start_and_stop(node: XenNode) -> None:
    xen, guest = driver(), instance(nics=(nic(),))
    xen.start(guest, [node.disk()])
    assert node.domains()["web1"]["state"] == "-b----"
    assert node.files() == [
        "etc/xen/web1",
        "var/run/ganeti/xen-hypervisor/conf/web1.json",
    ]
    assert xen.list_instances() == ["web1"]
    info = xen.instance_info("web1")
    assert info == base.InstanceInfo("web1", 1, 128, 2, base.RUNNING, 1.5)
    assert xen.all_info() == [info]
    xen.stop("web1", guest.hvparams)
    # The domain stays, without running, until the driver is told to clean up.
    assert not xen.is_running("web1")
    xen.cleanup("web1")
    assert node.domains() == {}
    assert node.files() == []


def test_a_second_start_is_refused_and_changes_nothing(node: XenNode) -> None:
    driver().start(instance(), [])
    before = node.domains()
    with pytest.raises(errors.HypervisorError, match="web1 is running already"):
        driver().start(instance(), [])
    assert node.domains() == before


def test_a_stubborn_guest_is_ended_by_force(node: XenNode) -> None:
    xen, guest = driver(), instance()
    xen.start(guest, [])
    (node.directory / "stubborn").touch()
    xen.stop("web1", guest.hvparams)
    assert xen.is_running("web1")
    xen.stop("web1", guest.hvparams, force=True)
    assert node.domains() == {}
    assert node.files() == []


def test_stopping_what_does_not_run_is_no_error(node: XenNode) -> None:
    driver().stop("web1", instance().hvparams)
    driver().stop("web1", instance().hvparams, force=True)
    driver().cleanup("web1")


def test_cleanup_leaves_a_running_guest_alone(node: XenNode) -> None:
    driver().start(instance(), [])
    driver().cleanup("web1")
    assert driver().is_running("web1")
    assert "etc/xen/web1" in node.files()


@pytest.mark.parametrize("mode", ["exit", "late"])
def test_a_failed_start_leaves_nothing(node: XenNode, mode: str) -> None:
    node.misbehave("create", mode)
    with pytest.raises(errors.HypervisorError, match=r"'xl create' .* was told to fail"):
        driver().start(instance(), [node.disk()])
    assert node.domains() == {}
    assert node.files() == []


@pytest.mark.parametrize("hypervisor", ["xen-hvm", "xen-pvm"])
def test_what_the_emulation_said_of_a_failed_start_is_told(
    node: XenNode, monkeypatch: pytest.MonkeyPatch, hypervisor: str
) -> None:
    log = node.root / "var/log/xen/qemu-dm-web1.log"
    log.parent.mkdir(parents=True)
    log.write_text("said at an earlier start\n")
    said = ["no DES in this program\n"]

    def create(*words: str, **_options: object) -> str:
        if words[0] == "create":
            if said:
                log.write_text(said.pop())
            raise errors.HypervisorError("'xl create' failed")
        return ""

    monkeypatch.setattr(xl, "run", create)
    guest = instance(hypervisor=hypervisor, vnc_bind_address="")
    emulated = hypervisor == "xen-hvm"
    with pytest.raises(errors.HypervisorError) as raised:
        driver(hypervisor).start(guest, [])
    assert ("hardware said: no DES in this program" in str(raised.value)) is emulated
    # The next start fails before that program says anything.
    with pytest.raises(errors.HypervisorError) as raised:
        driver(hypervisor).start(guest, [])
    assert "said" not in str(raised.value)


def test_a_program_which_cannot_use_passwords_is_explained(
    node: XenNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = node.root / "var/log/xen/qemu-dm-web1.log"
    log.parent.mkdir(parents=True)

    def create(*words: str, **_options: object) -> str:
        if words[0] == "create":
            log.write_text("xen-qemu: Cipher backend does not support DES algorithm\n")
            raise errors.HypervisorError("'xl create' failed")
        return ""

    monkeypatch.setattr(xl, "run", create)
    with pytest.raises(errors.HypervisorError, match=r"DES algorithm\. .* vnc_bind_address to an"):
        driver("xen-hvm").start(instance(hypervisor="xen-hvm", vnc_bind_address=""), [])


@pytest.mark.parametrize(
    ("content", "line"),
    [
        ("s3cret\nno part of it\n", 'vncpasswd = "s3cret"'),
        ("", None),
        ("\ns3cret\n", errors.HypervisorError),
        (None, errors.HypervisorError),
    ],
)
def test_the_password_of_a_screen(
    node: XenNode, content: str | None, line: str | type[Exception] | None
) -> None:
    """It is the first line of its file; an empty file stands for none."""
    file = node.root / "password"
    if content is not None:
        file.write_text(content)
    guest = instance(
        hypervisor="xen-hvm", vnc_bind_address="127.0.0.1", vnc_password_file=str(file)
    )
    if isinstance(line, type):
        with pytest.raises(line, match=str(file)):
            driver("xen-hvm").start(guest, [])
        assert node.files() == []
        return
    driver("xen-hvm").start(guest, [])
    written = (node.root / "etc/xen/web1").read_text()
    assert "vnc = 1" in written
    assert [one for one in written.splitlines() if "vncpasswd" in one] == ([line] if line else [])


def test_a_guest_whose_password_cannot_be_read_is_not_stopped_for_a_reboot(node: XenNode) -> None:
    file = node.root / "password"
    file.write_text("s3cret\n")
    guest = instance(
        hypervisor="xen-hvm", vnc_bind_address="127.0.0.1", vnc_password_file=str(file)
    )
    xen = driver("xen-hvm")
    xen.start(guest, [])
    before = node.domains()
    file.unlink()
    with pytest.raises(errors.HypervisorError, match=f"{file} cannot be read"):
        xen.reboot(guest, [], timeout_s=5.0)
    assert node.domains() == before


def test_an_interrupted_start_is_removed(node: XenNode) -> None:
    xen, guest = driver(), instance()
    xen.start(guest, [])
    record.save(replace(record.load("web1"), state=record.STARTING))
    assert not xen.complete_start(guest)
    assert node.domains() == {}


def test_a_paused_guest_is_continued(node: XenNode) -> None:
    xen, guest = driver(), instance()
    xen.start(guest, [], paused=True)
    assert node.domains()["web1"]["state"] == "--p---"
    assert xen.is_running("web1")
    assert xen.complete_start(guest, paused=True)
    assert node.domains()["web1"]["state"] == "--p---"
    assert xen.complete_start(guest)
    assert node.domains()["web1"]["state"] == "-b----"


def test_a_domain_without_a_record_counts_for_both_drivers(node: XenNode) -> None:
    driver().start(instance(), [])
    record.remove("web1")
    assert driver().list_instances() == ["web1"]
    assert driver("xen-hvm").list_instances() == ["web1"]


def test_each_driver_lists_its_own_guests(node: XenNode) -> None:
    driver().start(instance("a"), [])
    driver("xen-hvm").start(
        replace(instance("b", "xen-hvm", vnc_bind_address=""), uuid="other"), []
    )
    assert driver().list_instances() == ["a"]
    assert driver("xen-hvm").list_instances() == ["b"]
    # Whether a guest runs does not depend on which driver is asked.
    assert driver().is_running("b")


@pytest.mark.parametrize(
    ("state", "runs", "shown"),
    [
        ("r-----", True, base.RUNNING),
        ("-b----", True, base.RUNNING),
        ("--p---", True, base.RUNNING),
        ("------", True, base.RUNNING),
        ("-----d", True, base.RUNNING),
        ("---s--", False, base.SHUTDOWN),
        ("----c-", False, base.SHUTDOWN),
        ("---sc-", False, base.SHUTDOWN),
    ],
)
def test_states(node: XenNode, state: str, runs: bool, shown: int) -> None:
    xen = driver()
    xen.start(instance(), [])
    node.change("web1", state=state)
    assert xen.is_running("web1") is runs
    assert xen.list_instances() == (["web1"] if runs else [])
    info = xen.instance_info("web1")
    assert info is not None and info.state == shown
    assert [one.state for one in xen.all_info()] == [shown]


@pytest.mark.parametrize(
    ("state", "halted"),
    [
        ("r-----", None),
        ("-b----", None),
        ("---s--", None),
        ("--p---", ("paused", "paused")),
        ("-----d", ("dying", "ended")),
        ("----c-", ("crashed", "ended")),
        ("---sc-", ("crashed", "ended")),
    ],
)
def test_a_domain_which_lives_does_not_prove_that_its_guest_runs(
    node: XenNode, state: str, halted: tuple[str, str] | None
) -> None:
    xen = driver()
    xen.start(instance(), [])
    node.change("web1", state=state)
    (info,) = xen.all_info()
    assert (info.halt and (info.halt.state, info.halt.kind)) == halted
    assert info.to_wire().get("halt_state") == (halted and halted[0])


def test_a_paused_domain_goes_on_when_that_is_asked_for(node: XenNode) -> None:
    xen = driver()
    xen.start(instance(), [], paused=True)
    xen.resume("web1")
    info = xen.instance_info("web1")
    assert info is not None and info.halt is None
    xen.resume("web1")  # it runs already
    node.change("web1", state="-----d")
    with pytest.raises(errors.HypervisorError, match="state dying .* and cannot run on"):
        xen.resume("web1")
    xen.stop("web1", {}, force=True)
    with pytest.raises(errors.HypervisorError, match="not running"):
        xen.resume("web1")


def test_a_domain_whose_start_was_interrupted_cannot_go_on(node: XenNode) -> None:
    xen = driver()
    xen.start(instance(), [], paused=True)
    record.save(replace(record.load("web1"), state=record.STARTING))
    info = xen.instance_info("web1")
    assert info is not None and info.halt is not None and info.halt.kind == "ended"
    record.save(replace(record.load("web1"), state=record.COMPLETE))
    info = xen.instance_info("web1")
    assert info is not None and info.halt is not None and info.halt.kind == "paused"


@pytest.mark.parametrize("state", ["---s--", "----c-"])
def test_what_a_guest_left_is_removed_by_its_next_start(node: XenNode, state: str) -> None:
    driver().start(instance(), [])
    node.change("web1", state=state)
    driver().start(instance(), [])
    assert node.domains()["web1"]["id"] == 2


@pytest.mark.parametrize("mode", ["exit", "garbage"])
def test_no_answer_is_never_taken_for_a_guest_which_does_not_run(node: XenNode, mode: str) -> None:
    xen, guest = driver(), instance()
    xen.start(guest, [])
    node.misbehave("list", mode)
    for ask in (
        lambda: xen.is_running("web1"),
        lambda: xen.instance_info("web1"),
        xen.list_instances,
        xen.all_info,
        lambda: xen.start(guest, []),
        lambda: xen.cleanup("web1"),
        lambda: xen.stop("web1", guest.hvparams, force=True),
    ):
        with pytest.raises(errors.HypervisorError):
            ask()
    node.behave()
    assert xen.is_running("web1")
    assert "etc/xen/web1" in node.files()


def test_a_question_is_repeated_once_after_a_crash_of_xl(node: XenNode) -> None:
    driver().start(instance(), [])
    node.misbehave("list", "signal")
    assert driver().list_instances() == ["web1"]


def test_a_domain_which_does_not_end_is_an_error(
    node: XenNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    from ganeti.hypervisor.xen import guests

    monkeypatch.setattr(guests, "_GONE_S", 0.0)
    driver().start(instance(), [])
    node.misbehave("destroy")
    with pytest.raises(errors.HypervisorError, match="web1 does not end"):
        driver().stop("web1", {}, force=True)
    assert "etc/xen/web1" in node.files()


def test_a_reboot_keeps_the_hardware(node: XenNode) -> None:
    xen, disk, kernel = driver(), node.disk(), node.kernel()
    xen.start(instance(vcpus=2, kernel_path=kernel), [disk])
    xen.reboot(instance(vcpus=4, kernel_path=kernel), [node.disk("d1"), disk], timeout_s=5)
    domain = node.domains()["web1"]
    assert (domain["id"], domain["vcpus"], len(domain["disks"])) == (2, 2, 1)


def test_a_reboot_of_a_stubborn_guest_ends_it(node: XenNode) -> None:
    xen, guest = driver(), instance(kernel_path=node.kernel())
    xen.start(guest, [])
    (node.directory / "stubborn").touch()
    xen.reboot(guest, [], timeout_s=0)
    assert node.domains()["web1"]["id"] == 2


def test_a_reboot_with_a_missing_disk_does_not_stop_the_guest(node: XenNode) -> None:
    xen = driver()
    xen.start(instance(), [node.disk()])
    with pytest.raises(errors.HypervisorError, match="runs with disk d0"):
        xen.reboot(instance(), [], timeout_s=5)
    assert node.domains()["web1"]["id"] == 1


def test_a_reboot_with_a_missing_file_does_not_stop_the_guest(node: XenNode) -> None:
    kernel = node.kernel()
    xen, guest = driver(), instance(kernel_path=kernel)
    xen.start(guest, [])
    Path(kernel).unlink()
    with pytest.raises(errors.HypervisorError, match="parameter kernel_path: .* is not a file"):
        xen.reboot(guest, [], timeout_s=5)
    assert node.domains()["web1"]["id"] == 1


def test_ballooning(node: XenNode) -> None:
    xen, guest = driver(), instance()
    xen.start(guest, [])
    xen.balloon_memory(guest, 96)
    assert xen.all_info()[0].memory_mib == 96
    xen.balloon_memory(guest, 512)
    assert node.domains()["web1"]["memory"] == 512
    node.misbehave("mem-set")
    with pytest.raises(errors.HypervisorError, match="mem-set"):
        xen.balloon_memory(guest, 64)


def test_the_capacity_of_the_node(node: XenNode) -> None:
    driver().start(instance(), [])
    assert driver().node_info() == {
        "memory_total": 4096,
        "memory_free": 4096 - 800 - 20 - 128,
        "memory_dom0": 800,
        "memory_hv": 20,
        "cpu_total": 4,
        "cpu_nodes": 1,
        "cpu_sockets": 2,
        "cpu_dom0": 1,
        "hv_version": [4, 17],
        "migration_any_port": True,
    }


def test_verify(node: XenNode, monkeypatch: pytest.MonkeyPatch) -> None:
    assert driver().verify({}) is None
    node.misbehave("info")
    assert "daemons of Xen" in (driver().verify({}) or "")
    (node.root / "proc/xen/capabilities").unlink()
    assert "does not run under Xen" in (driver().verify({}) or "")
    assert driver().missing_program({}) == xl.problem()
    monkeypatch.setenv("PATH", "/nonexistent")
    assert "xl is missing" in (driver().verify({}) or "")


def test_a_new_cluster_on_a_machine_under_xen_gets_xen(node: XenNode) -> None:
    assert detection._hypervisor({}) == "xen-pvm"


@pytest.mark.parametrize("name", ["../web", "a/b", ".x", "-x", ""])
def test_a_name_never_leaves_its_directory(node: XenNode, name: str) -> None:
    with pytest.raises(errors.HypervisorError, match="not an instance name"):
        driver().start(replace(instance(), name=name), [])


def test_what_a_guest_moves_to_and_from_its_disks(
    node: XenNode, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernel counts sectors, for each disk; a guest without such a disk has no number."""
    xen = driver()
    xen.start(instance(), [node.disk()])
    monkeypatch.setattr(disks, "_BACKENDS", str(tmp_path / "none"))
    assert xen.usage()["web1"].disk_read is None
    (domain,) = (one for one in xl.domains() if one.name == "web1")
    for disk, read, written in ((51712, "3\n", "4\n"), (51728, "5\n", "6\n"), (51744, "", "")):
        counters = tmp_path / "backends" / f"vbd-{domain.id}-{disk}" / "statistics"
        counters.mkdir(parents=True)
        (counters / "rd_sect").write_text(read)
        (counters / "wr_sect").write_text(written)
    (tmp_path / "backends" / f"vif-{domain.id}-0").mkdir()
    monkeypatch.setattr(disks, "_BACKENDS", str(tmp_path / "backends"))
    found = xen.usage()["web1"]
    assert (found.disk_read, found.disk_written) == (8 * 512, 10 * 512)
