"""Control groups of both versions, in directories of files."""

from __future__ import annotations

from pathlib import Path

import pytest

from ganeti import errors
from ganeti.hypervisor.lxc import cgroups
from ganeti.hypervisor.lxc.cgroups import Cgroups

GROUP = "/lxc.payload.web"
BOTH = {"": GROUP, "cpu": GROUP, "cpuset": GROUP}


def put(top: Path, **files: str) -> None:
    top.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (top / name.replace("__", ".")).write_text(text)


@pytest.fixture
def unified(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    put(tmp_path, cgroup__controllers="cpuset cpu io memory pids\n")
    put(
        tmp_path / "lxc.payload.web",
        memory__max="67108864\n",
        memory__current="1048576\n",
        memory__high="max\n",
        cpu__stat="usage_usec 1500000\n",
        cgroup__events="populated 1\nfrozen 0\n",
        cgroup__procs="12\n10\n",
        cgroup__freeze="1\n",
        io__stat="8:0 rbytes=5 wbytes=6\n",
    )
    mounts = tmp_path / "mounts"
    mounts.write_text(f"cgroup2 {tmp_path} cgroup2 rw 0 0\n")
    monkeypatch.setattr(cgroups, "_MOUNTS", str(mounts))
    return tmp_path / "lxc.payload.web"


@pytest.fixture
def hybrid(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    lines = [f"cgroup2 {tmp_path}/unified cgroup2 rw 0 0\n"]
    for name in ("memory", "cpu", "cpuset", "devices", "freezer"):
        put(tmp_path / name / "lxc.payload.web")
        lines.append(f"cgroup {tmp_path}/{name} cgroup rw,{name} 0 0\n")
    put(tmp_path / "unified", cgroup__controllers="\n")
    put(tmp_path / "memory", memory__memsw__limit_in_bytes="9223372036854771712\n")
    put(
        tmp_path / "memory/lxc.payload.web",
        memory__limit_in_bytes="67108864\n",
        memory__memsw__limit_in_bytes="67108864\n",
        memory__usage_in_bytes="2097152\n",
    )
    put(tmp_path / "freezer/lxc.payload.web", freezer__state="THAWED\n")
    mounts = tmp_path / "mounts"
    mounts.write_text("".join(lines))
    monkeypatch.setattr(cgroups, "_MOUNTS", str(mounts))
    return tmp_path


def test_version_2(unified: Path) -> None:
    here, groups = Cgroups(), {"": GROUP}
    assert here.problem() is None
    assert here.devices_prefix() == "lxc.cgroup2.devices"
    limits = dict(here.limits(64, 2, "0-1"))
    assert limits["lxc.cgroup2.memory.max"] == str(64 << 20)
    assert limits["lxc.cgroup2.cpu.max"] == "200000 100000"
    assert limits["lxc.cgroup2.cpuset.cpus"] == "0-1"
    assert here.memory_limit_mib(groups) == 64 and here.memory_used_mib(groups) == 1
    assert here.cpu_time_s(groups) == 1.5
    assert here.is_populated(groups) and here.is_frozen(groups)
    assert here.processes(groups) == [12, 10]
    assert here.transferred_bytes(groups) == (5, 6)


def test_memory_of_version_2(unified: Path) -> None:
    here, groups = Cgroups(), {"": GROUP}
    here.set_memory(groups, 128)
    assert (unified / "memory.max").read_text() == str(128 << 20)
    (unified / "memory.current").write_text(str(100 << 20))
    with pytest.raises(errors.HypervisorError, match="it uses 100 MiB"):
        here.set_memory(groups, 64)
    assert (unified / "memory.max").read_text() == str(128 << 20)
    assert (unified / "memory.high").read_text() == "max"
    (unified / "memory.current").write_text(str(10 << 20))
    here.set_memory(groups, 64)
    assert (unified / "memory.max").read_text() == str(64 << 20)
    assert (unified / "memory.high").read_text() == "max"


def test_a_group_which_has_gone(unified: Path) -> None:
    here, gone = Cgroups(), {"": "/gone"}
    assert here.memory_limit_mib(gone) is None and not here.is_populated(gone)
    assert here.cpu_time_s(gone) == 0.0 and here.processes(gone) == []
    here.kill(gone)


@pytest.mark.parametrize("groups", [{}, {"": "/", "memory": "/"}])
def test_the_group_of_the_machine_is_never_touched(
    unified: Path, groups: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A record without a group, or with the top, must not end all processes of the node."""
    monkeypatch.setattr(cgroups, "_write", lambda *_: pytest.fail("written"))
    here = Cgroups()
    here.kill(groups)
    assert here.processes(groups) == []
    with pytest.raises(errors.HypervisorError, match="no control group for memory"):
        here.set_memory(groups, 64)


def test_mixed_versions(hybrid: Path) -> None:
    here, groups = Cgroups(), {"": GROUP, "memory": GROUP, "freezer": GROUP}
    assert here.problem() is None
    assert here.devices_prefix() == "lxc.cgroup.devices"
    limits = dict(here.limits(64, 1, ""))
    assert limits["lxc.cgroup.memory.limit_in_bytes"] == str(64 << 20)
    assert limits["lxc.cgroup.memory.memsw.limit_in_bytes"] == str(64 << 20)
    assert limits["lxc.cgroup.cpu.cfs_quota_us"] == "100000"
    assert "lxc.cgroup.cpuset.cpus" not in limits
    assert here.memory_limit_mib(groups) == 64 and here.memory_used_mib(groups) == 2
    assert not here.is_frozen(groups)
    assert here.transferred_bytes(groups) == (None, None)
    here.set_memory(groups, 32)
    own = hybrid / "memory/lxc.payload.web"
    assert (own / "memory.limit_in_bytes").read_text() == str(32 << 20)
    assert (own / "memory.memsw.limit_in_bytes").read_text() == str(32 << 20)


def test_what_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mounts = tmp_path / "mounts"
    mounts.write_text("proc /proc proc rw 0 0\n")
    monkeypatch.setattr(cgroups, "_MOUNTS", str(mounts))
    assert "version 2 are not mounted" in (Cgroups().problem() or "")
    mounts.write_text(f"cgroup2 {tmp_path} cgroup2 rw 0 0\n")
    put(tmp_path, cgroup__controllers="cpu memory\n")
    assert Cgroups().problem() == "the kernel offers no control group controllers cpuset"


def test_processors_of_both_versions(unified: Path) -> None:
    Cgroups().set_processors({"": GROUP}, 2, "0-1")
    assert (unified / "cpu.max").read_text() == "200000 100000"
    assert (unified / "cpuset.cpus").read_text() == "0-1\n"
    # Not an empty list, which the kernel refuses for a group with processes.
    (unified.parent / "cpuset.cpus.effective").write_text("0-3\n")
    Cgroups().set_processors({"": GROUP}, 2, "")
    assert (unified / "cpuset.cpus").read_text() == "0-3\n"
    with pytest.raises(errors.HypervisorError, match="no control groups for processors"):
        Cgroups().set_processors({}, 2, "")


def test_a_group_above_without_the_controller(unified: Path) -> None:
    """The processors are those of the first group above which has the controller."""
    (unified.parent / "cpuset.cpus.effective").write_text("0-7\n")
    put(unified / "inner/own")
    Cgroups().set_processors({"": f"{GROUP}/inner/own"}, 1, "")
    assert (unified / "inner/own/cpuset.cpus").read_text() == "0-7\n"


def test_processors_of_version_1(hybrid: Path) -> None:
    """An empty list is refused there, so the container gets what the group above has."""
    put(hybrid / "cpuset", cpuset__cpus="0-3\n")
    Cgroups().set_processors(BOTH, 1, "")
    assert (hybrid / "cpu/lxc.payload.web/cpu.cfs_quota_us").read_text() == "100000"
    assert (hybrid / "cpuset/lxc.payload.web/cpuset.cpus").read_text() == "0-3\n"
    Cgroups().set_processors(BOTH, 1, "2")
    assert (hybrid / "cpuset/lxc.payload.web/cpuset.cpus").read_text() == "2\n"


def test_processors_which_the_kernel_refuses(
    unified: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: str, value: str) -> None:
        raise OSError(22, "Invalid argument")

    monkeypatch.setattr(cgroups, "_write", refuse)
    with pytest.raises(errors.HypervisorError, match="2 processors out of 9: Invalid argument"):
        Cgroups().set_processors({"": GROUP}, 2, "9")
