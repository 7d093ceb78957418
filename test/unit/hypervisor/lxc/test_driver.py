"""The driver with an LXC which only pretends: each step may fail, and nothing is left behind."""

from __future__ import annotations

import itertools
import os
import stat
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from fakes.config import cluster_of, disk_of, instance_of
from fakes.lxc_node import Lxc
from ganeti import errors
from ganeti.hypervisor import rootfs
from ganeti.hypervisor.base import RUNNING, SHUTDOWN, AttachedDisk, InstanceInfo
from ganeti.hypervisor.lxc import cgroups, driver, guests, parameters
from ganeti.hypervisor.lxc import disks as data_disks
from ganeti.hypervisor.lxc.driver import LxcHypervisor
from ganeti.hypervisor.net import interfaces, veth
from ganeti.objects import fill, hvparams
from ganeti.objects.instance import FilledInstance, FilledNic
from ganeti.platform import paths
from ganeti.utils import process
from ganeti.wire import json

DATA = Path(__file__).parents[3] / "data/lxc"
GROUP = "/lxc.payload.web"


@pytest.fixture
def lxc(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Lxc:
    monkeypatch.setenv("GANETI_ROOTDIR", str(tmp_path / "node"))
    made = Lxc(tmp_path)
    monkeypatch.setattr(cgroups, "_MOUNTS", str(made.mounts))
    monkeypatch.setattr(cgroups, "_write", made.kill)
    monkeypatch.setattr(process, "run", made.run)
    monkeypatch.setattr(parameters, "problem", lambda: None)
    monkeypatch.setattr(guests, "monitored", lambda: sorted(made.monitored))
    monkeypatch.setattr(driver.parse, "parse_own_cgroups", lambda _text: {"": GROUP})
    monkeypatch.setattr(driver, "_own_cgroups", _own_cgroups)
    monkeypatch.setattr(rootfs, "is_in_use", lambda _path: False)
    return made


def _own_cgroups(here: driver.Layout) -> dict[str, str]:
    guests.init_pid(here)
    return {"": GROUP}


@pytest.fixture
def web(tmp_path: Path) -> tuple[FilledInstance, list[AttachedDisk]]:
    disk = disk_of("web")
    cluster = cluster_of(1, (instance_of("web", disks=(disk.uuid,)),), (disk,))
    filled = fill.filled_instance(cluster, next(iter(cluster.instances.values())))
    image = tmp_path / "disk.raw"
    image.write_bytes(bytes(512))
    instance = replace(
        filled,
        name="web",
        hypervisor="lxc",
        hvparams=hvparams.defaults("lxc"),
        beparams={**filled.beparams, "maxmem": 128, "vcpus": 2},
        nics=(),
    )
    return instance, [AttachedDisk(disk, str(image))]


def left(lxc: Lxc) -> list[str]:
    """What a container has left: its files and itself."""
    root = Path(paths.current().lxc_root)
    files = [path.name for path in root.iterdir() if path.name != ".lock"] if root.exists() else []
    mounts = Path(paths.current().lxc_mount_root)
    files += [str(path) for path in mounts.iterdir()] if mounts.exists() else []
    return files + sorted(lxc.monitored)


def test_life(lxc: Lxc, web: Any) -> None:
    instance, disks = web
    guest = LxcHypervisor()
    assert guest.list_instances() == []
    guest.start(instance, disks)
    assert guest.list_instances() == ["web"] and guest.is_running("web")
    assert guest.instance_info("web") == InstanceInfo("web", 4711, 128, 2, RUNNING, 0.0)
    with pytest.raises(errors.HypervisorError, match="is running already"):
        guest.start(instance, disks)
    assert guest.complete_start(instance)
    guest.balloon_memory(instance, 64)
    assert (guest.all_info()[0].memory_mib, guest.usage()["web"].vcpus) == (64, 2)
    guest.reboot(instance, disks, timeout_s=1)
    assert guest.is_running("web")
    guest.stop("web", instance.hvparams)
    assert not guest.is_running("web")
    guest.cleanup("web")
    assert left(lxc) == []
    guest.stop("web", {}, force=True)


def test_a_failure_at_every_step_leaves_nothing(lxc: Lxc, web: Any) -> None:
    instance, disks = web
    guest = LxcHypervisor()
    guest.start(instance, disks)
    steps = len(lxc.programs)
    assert steps >= 3
    guest.stop("web", {}, force=True)
    for number in range(1, steps + 1):
        lxc.programs.clear()
        lxc.fails = number
        with pytest.raises(errors.HypervisorError):
            guest.start(instance, disks)
        assert left(lxc) == [], lxc.programs
        assert not guest.is_running("web")
    lxc.fails = None
    guest.start(instance, disks)
    assert guest.is_running("web")


@pytest.mark.parametrize("left_over", ["no record", "a record without its groups", "all"])
def test_an_interrupted_start(lxc: Lxc, web: Any, left_over: str) -> None:
    """The process of the call died after LXC had started the container."""
    instance, disks = web
    guest = LxcHypervisor()
    guest.start(instance, disks)
    record = Path(paths.current().lxc_root) / "web/ganeti.json"
    recorded = left_over == "all"
    if left_over == "no record":
        record.unlink()
    elif not recorded:
        # That is how the record is before the container runs.
        record.write_text(json.dumps({**json.loads(record.read_text()), "groups": {}}))
    assert guest.complete_start(instance) == recorded
    assert guest.is_running("web") == recorded
    if not recorded:
        assert left(lxc) == []


def test_without_its_monitor_it_is_found_and_ended(lxc: Lxc, web: Any) -> None:
    instance, disks = web
    guest = LxcHypervisor()
    guest.start(instance, disks)
    lxc.lose_monitor()
    assert guest.list_instances() == ["web"]
    with pytest.raises(errors.HypervisorError, match="is running already"):
        guest.start(instance, disks)
    guest.cleanup("web")
    assert guest.is_running("web")
    guest.stop("web", {}, force=True)
    assert left(lxc) == [] and guest.list_instances() == []


def test_one_which_ignores_the_signal_is_ended(lxc: Lxc, web: Any) -> None:
    instance, disks = web
    guest = LxcHypervisor()
    guest.start(instance, disks)
    lxc.ignores_halt = True
    guest.stop("web", instance.hvparams)
    assert guest.is_running("web")
    guest.reboot(instance, disks, timeout_s=0)
    assert guest.is_running("web")


def test_a_frozen_container_is_halted_and_goes_on_when_asked(lxc: Lxc, web: Any) -> None:
    instance, disks = web
    guest = LxcHypervisor()
    guest.start(instance, disks)
    (lxc.group / "cgroup.freeze").write_text("1\n")
    (info,) = guest.all_info()
    assert info.state == RUNNING and info.halt is not None
    assert (info.halt.state, info.halt.kind) == ("frozen", "paused")
    guest.resume("web")
    assert lxc.programs[-1] == "lxc-unfreeze"
    (lxc.group / "cgroup.freeze").write_text("0\n")
    (info,) = guest.all_info()
    assert info.halt is None
    asked = len(lxc.programs)
    guest.resume("web")
    assert "lxc-unfreeze" not in lxc.programs[asked:]
    guest.stop("web", {}, force=True)
    with pytest.raises(errors.HypervisorError, match="is not running"):
        guest.resume("web")


def test_a_user_who_shuts_it_down(lxc: Lxc, web: Any) -> None:
    instance, disks = web
    guest = LxcHypervisor()
    guest.start(instance, disks)
    lxc.end()
    assert guest.instance_info("web") is None  # no end in the log: a crash
    lxc.log("ended-poweroff.log")
    assert guest.all_info() == [InstanceInfo("web", 0, 0, 0, SHUTDOWN, 0.0)]
    guest.cleanup("web")
    assert guest.instance_info("web") is None and left(lxc) == []


def test_a_disk_which_the_kernel_does_not_release(
    lxc: Lxc, web: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The caller must not take a disk away which is still mounted."""
    instance, disks = web
    guest = LxcHypervisor()
    guest.start(instance, disks)
    monkeypatch.setattr(rootfs, "is_in_use", lambda _path: True)
    monkeypatch.setattr(driver, "_RELEASE_TIMEOUT_S", 0.0)
    with pytest.raises(errors.HypervisorError, match="is still in use"):
        guest.stop("web", {}, force=True)
    monkeypatch.setattr(rootfs, "is_in_use", lambda _path: False)
    guest.cleanup("web")
    assert left(lxc) == []


def test_what_is_refused(lxc: Lxc, web: Any) -> None:
    instance, disks = web
    guest = LxcHypervisor()
    with pytest.raises(errors.HypervisorError, match="cannot be started paused"):
        guest.start(instance, disks, paused=True)
    with pytest.raises(errors.HypervisorError, match="has no disk"):
        guest.start(instance, [])
    with pytest.raises(errors.HypervisorError, match="access to kernelspace"):
        guest.start(instance, [AttachedDisk(disks[0].disk, "", "rbd:rbd/x")])
    with pytest.raises(errors.HypervisorError, match="is not running"):
        guest.reboot(instance, disks, timeout_s=0)
    with pytest.raises(errors.HypervisorError, match="is not running"):
        guest.balloon_memory(instance, 64)
    with pytest.raises(errors.HypervisorError, match="cannot migrate"):
        guest.migration.check(instance)
    for name in ("../web", "a/b", ""):
        with pytest.raises(errors.HypervisorError, match="is not an instance name"):
            guest.stop(name, {}, force=True)
    assert lxc.programs == []


def test_a_damaged_record(lxc: Lxc, web: Any) -> None:
    instance, disks = web
    guest = LxcHypervisor()
    guest.start(instance, disks)
    path = Path(paths.current().lxc_root) / "web/ganeti.json"
    path.write_text('{"groups": []}')
    assert guest.all_info() == [InstanceInfo("web", 0, 0, 0, RUNNING, 0.0)]
    with pytest.raises(errors.HypervisorError, match="Stop it and start it again"):
        guest.reboot(instance, disks, timeout_s=0)
    guest.stop("web", {}, force=True)
    assert left(lxc) == []


def nic(number: int) -> FilledNic:
    return FilledNic(
        mac=f"aa:00:00:00:00:0{number}",
        ip=None,
        nicparams={"mode": "bridged", "link": "br0", "vlan": ""},
        uuid=f"nic{number}",
    )


@pytest.fixture
def ends(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The interfaces which were given to the container; no real one is made."""
    given: list[str] = []
    numbers = itertools.count()
    monkeypatch.setattr(interfaces, "check", lambda *_: None)
    monkeypatch.setattr(interfaces.connections, "connect", lambda *_, **__: None)
    monkeypatch.setattr(interfaces.connections, "disconnect", lambda *_: None)
    monkeypatch.setattr(interfaces.tap, "delete", lambda name: None)
    monkeypatch.setattr(veth.VethPair, "make", lambda *_: f"gnt.tap{next(numbers)}")
    monkeypatch.setattr(veth, "give", lambda host, pid: given.append(f"{host} {pid}"))
    return given


def nics_of(here: Path) -> list[tuple[str, str]]:
    """The NICs in the record, with their interfaces."""
    known = [entry["uuid"] for entry in json.loads((here / "ganeti.json").read_text())["nics"]]
    return [(uuid, (here / f"nic/{index}").read_text()) for index, uuid in enumerate(known)]


def test_nics_come_and_go(lxc: Lxc, web: Any, ends: list[str]) -> None:
    instance, disks = web
    guest = LxcHypervisor()
    with pytest.raises(errors.HotplugError, match="is not running"):
        guest.devices.check(instance)
    guest.start(replace(instance, nics=(nic(1),)), disks)
    here = Path(paths.current().lxc_root) / "web"
    assert not (here / "changed").exists()
    guest.devices.check(instance)
    guest.devices.add_nic(instance, nic(2), 0)
    assert nics_of(here) == [("nic2", "gnt.tap1"), ("nic1", "gnt.tap0")]
    assert ends == ["gnt.tap1 4711"] and (here / "changed").exists()
    guest.devices.add_nic(instance, nic(2), 0)  # it has it already
    guest.devices.modify_nic(instance, nic(1))
    assert nics_of(here) == [("nic2", "gnt.tap1"), ("nic1", "gnt.tap2")]
    guest.devices.remove_nic(instance, nic(2))
    guest.devices.remove_nic(instance, nic(2))
    assert nics_of(here) == [("nic1", "gnt.tap2")]
    with pytest.raises(errors.HotplugError, match="has no NIC aa:00:00:00:00:02"):
        guest.devices.modify_nic(instance, nic(2))
    # Disks cannot be changed; one which the container never got can be forgotten.
    with pytest.raises(errors.HotplugError, match="disks of a container cannot be changed"):
        guest.devices.add_disk(instance, AttachedDisk(disks[0].disk, "/dev/x"), 1)
    with pytest.raises(errors.HotplugError, match="disks of a container cannot be changed"):
        guest.devices.remove_disk(instance, disks[0].disk)
    guest.devices.remove_disk(instance, disk_of("other"))
    guest.reboot(instance, disks, timeout_s=0)
    assert nics_of(here) == [("nic1", "gnt.tap3")] and not (here / "changed").exists()
    guest.stop("web", {}, force=True)
    assert left(lxc) == []


def test_a_nic_which_the_container_does_not_get(
    lxc: Lxc, web: Any, ends: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    instance, disks = web
    guest = LxcHypervisor()
    guest.start(replace(instance, nics=(nic(1),)), disks)
    here = Path(paths.current().lxc_root) / "web"

    def refuse(host: str, pid: int) -> None:
        raise errors.CommandError(["ip"], 2, "no such process")

    monkeypatch.setattr(veth, "give", refuse)
    with pytest.raises(errors.HotplugError, match="NIC nic2 was not plugged in"):
        guest.devices.add_nic(instance, nic(2), 0)
    assert nics_of(here) == [("nic1", "gnt.tap0")] and not (here / "nic/1").exists()
    with pytest.raises(errors.HotplugError, match="is left without NIC nic1"):
        guest.devices.modify_nic(instance, nic(1))
    assert nics_of(here) == []


def test_a_nic_whose_change_fails_stays(
    lxc: Lxc, web: Any, ends: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    instance, disks = web
    guest = LxcHypervisor()
    guest.start(replace(instance, nics=(nic(1),)), disks)
    here = Path(paths.current().lxc_root) / "web"
    before, give, calls = nics_of(here), veth.give, list[str]()

    def refuse_once(host: str, pid: int) -> None:
        calls.append(host)
        if len(calls) == 1:
            raise errors.CommandError(["ip"], 2, "no such process")
        give(host, pid)

    monkeypatch.setattr(veth, "give", refuse_once)
    with pytest.raises(errors.HotplugError, match="no such process$"):
        guest.devices.modify_nic(instance, replace(nic(1), mac="aa:00:00:00:00:99"))
    assert [name for name, _ in nics_of(here)] == [name for name, _ in before]
    assert len(calls) == 2


def test_processors_change_while_it_runs(lxc: Lxc, web: Any) -> None:
    instance, disks = web
    guest = LxcHypervisor()
    assert not guest.limit_processors(instance)
    guest.start(instance, disks)
    wanted = replace(
        instance,
        beparams={**instance.beparams, "vcpus": 3},
        hvparams={**instance.hvparams, "cpu_mask": "0"},
    )
    assert guest.limit_processors(wanted)
    assert (lxc.group / "cpu.max").read_text() == "300000 100000"
    assert (lxc.group / "cpuset.cpus").read_text() == "0\n"
    info = guest.instance_info("web")
    assert info is not None and info.vcpus == 3
    assert guest.limit_processors(instance)
    assert (lxc.group / "cpuset.cpus").read_text() == "\n"
    with pytest.raises(errors.HypervisorError, match="processor 4000 is not one of"):
        guest.limit_processors(
            replace(instance, hvparams={**instance.hvparams, "cpu_mask": "4000"})
        )


def test_more_disks(lxc: Lxc, web: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each is mounted, awaited at the end, and kept at a reboot."""
    instance, (root,) = web
    images = [tmp_path / "1.raw", tmp_path / "2.raw"]
    for image in images:
        image.write_bytes(bytes(512))
    disks = [root, *(AttachedDisk(disk_of(f"d{i}"), str(p)) for i, p in enumerate(images))]
    guest = LxcHypervisor()
    guest.start(instance, disks)
    text = (Path(paths.current().lxc_root) / "web/config").read_text()
    for index, image in enumerate(images, 1):
        assert f"{image} {paths.current().lxc_mount_root}/web/disk{index}\n" in text
        assert f"web/disk{index} mnt/disk{index} none bind,create=dir 0 0\n" in text
    with pytest.raises(errors.HypervisorError, match="which it does not have"):
        guest.reboot(instance, disks[:2], timeout_s=0)
    assert guest.is_running("web")
    guest.reboot(instance, disks, timeout_s=0)
    awaited: list[str] = []
    monkeypatch.setattr(rootfs, "await_release", lambda path, _: awaited.append(path))
    guest.stop("web", {}, force=True)
    assert awaited == [disk.path for disk in disks] and left(lxc) == []


def test_a_disk_without_a_file_system(
    lxc: Lxc, web: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "blank"
    path.write_bytes(bytes(512))

    def blank(_path: str, _target: str) -> list[str]:
        raise rootfs.NoFileSystem("none")

    monkeypatch.setattr(rootfs, "mount_argv", blank)
    with pytest.raises(errors.HypervisorError, match="disk 1 is the file .* no file system"):
        data_disks.data_disk(str(path), "/run/lxc/web", 1)
    device = SimpleNamespace(st_mode=stat.S_IFBLK | 0o600, st_rdev=os.makedev(147, 3))
    names = {name: getattr(os, name) for name in ("path", "major", "minor")}
    monkeypatch.setattr(data_disks, "os", SimpleNamespace(stat=lambda _path: device, **names))
    found = data_disks.data_disk(str(path), "/run/lxc/web", 1)
    assert found.device == "b 147:3 rwm" and not found.mount_argv
    assert found.entry == f"{path} dev/disk1 none bind,create=file 0 0"


# -- the process of a call dies ----------------------------------------------------------------


def dies(lxc: Lxc, number: int, work: Callable[[], object]) -> bool:
    """Do something in a process which dies with its n-th program; return whether it died."""
    child = os.fork()
    if child == 0:
        lxc.dies = number
        lxc.programs.clear()
        try:
            work()
        finally:
            os._exit(1)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


@pytest.mark.parametrize("what", ["start", "stop", "end", "reboot", "add", "remove"])
def test_an_operation_which_dies_is_completed_by_the_next_one(
    lxc: Lxc, web: Any, ends: list[str], what: str
) -> None:
    """Wherever the process of the node call ends, the same operation sets it right."""
    instance, disks = web
    instance = replace(instance, nics=(nic(1),))
    guest = LxcHypervisor()
    here = Path(paths.current().lxc_root) / "web"

    def start() -> None:
        if not (guest.is_running("web") and guest.complete_start(instance)):
            guest.start(instance, disks)

    def add() -> None:
        guest.devices.add_nic(instance, nic(2), 1)

    work: dict[str, Callable[[], object]] = {
        "start": start,
        "stop": lambda: guest.stop("web", instance.hvparams),
        "end": lambda: guest.stop("web", {}, force=True),
        "reboot": lambda: guest.reboot(instance, disks, timeout_s=1),
        "add": add,
        "remove": lambda: guest.devices.remove_nic(instance, nic(1)),
    }
    for number in itertools.count(1):
        if what != "start":
            start()
        died = dies(lxc, number, work[what])
        if what == "reboot":
            start()
        else:
            work[what]()
        if what in ("stop", "end"):
            assert not guest.is_running("web")
        else:
            assert guest.is_running("web")
            wanted = {"add": ["nic1", "nic2"], "remove": []}.get(what, ["nic1"])
            assert [uuid for uuid, _ in nics_of(here)] == wanted
        guest.stop("web", {}, force=True)
        guest.cleanup("web")
        assert left(lxc) == []
        if not died:
            break
    assert number > 1 or what in ("end", "remove")


# -- the table of parameters ---------------------------------------------------------------------

#: Each published parameter: a value which is not its default, and what a container then has.
EFFECTS = {
    "cpu_mask": ("0", "lxc.cgroup2.cpuset.cpus = 0\n"),
    "devices": ("b 8:1 r", "lxc.cgroup2.devices.allow = b 8:1 r\n"),
    "drop_capabilities": ("net_raw", "lxc.cap.drop = net_raw\n"),
    "extra_config": ("lxc.environment=A=b", "lxc.environment = A=b\n"),
    "num_ttys": (2, "lxc.tty.max = 2\n"),
}


@pytest.mark.parametrize("name", sorted(EFFECTS))
def test_a_parameter_reaches_the_configuration(lxc: Lxc, web: Any, name: str) -> None:
    instance, disks = web
    value, line = EFFECTS[name]
    config_file = Path(paths.current().lxc_root) / "web/config"
    LxcHypervisor().start(instance, disks)
    assert line not in config_file.read_text()
    LxcHypervisor().stop("web", {}, force=True)
    LxcHypervisor().start(replace(instance, hvparams={**instance.hvparams, name: value}), disks)
    assert line in config_file.read_text()


def test_the_other_parameters(lxc: Lxc, web: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The table is complete: what is not a line of the configuration has its effect elsewhere."""
    assert sorted(hvparams.defaults("lxc")) == sorted(
        [*EFFECTS, "extra_cgroups", "startup_timeout"]
    )
    instance, disks = web
    lacking = replace(instance, hvparams={**instance.hvparams, "extra_cgroups": "io,pids"})
    with pytest.raises(errors.HypervisorError, match="no control group controller pids"):
        LxcHypervisor().start(lacking, disks)
    assert left(lxc) == []
    limits: list[object] = []

    def run(argv: Sequence[str], *, timeout_s: float, **words: Any) -> process.Completed:
        limits.extend([timeout_s] if argv[0] == "lxc-start" and "--daemon" in argv else [])
        return lxc.run(argv, **words)

    monkeypatch.setattr(process, "run", run)
    for seconds, limit in ((7, 7), (0, 3600.0)):
        quick = {**instance.hvparams, "startup_timeout": seconds}
        LxcHypervisor().start(replace(instance, hvparams=quick), disks)
        LxcHypervisor().stop("web", {}, force=True)
        assert limits.pop() == limit
