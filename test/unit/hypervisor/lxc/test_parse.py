"""What LXC and the kernel say, as recorded from LXC 5.0.2 and Linux 6.18."""

from __future__ import annotations

from pathlib import Path

import pytest

from ganeti import errors
from ganeti.hypervisor import rootfs
from ganeti.hypervisor.lxc import parse

DATA = Path(__file__).parents[3] / "data/lxc"


def recorded(name: str) -> str:
    return (DATA / name).read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("log", "by_itself"),
    [
        ("ended-PWR.log", True),  # exit code 0
        ("ended-poweroff.log", True),  # reboot(2)
        ("ended-USR1.log", False),  # exit code 3
        ("ended-KILL.log", False),
        ("rebooted.log", False),  # and runs again
        ("noinit.log", False),
    ],
)
def test_who_ended_a_container(log: str, by_itself: bool) -> None:
    assert parse.parse_ended_by_itself(recorded(log)) == by_itself


def test_the_last_end_counts() -> None:
    again = recorded("rebooted.log") + recorded("ended-poweroff.log").split("\n", 1)[1]
    assert parse.parse_ended_by_itself(again)
    assert not parse.parse_ended_by_itself("")


def test_errors_name_the_cause_first() -> None:
    assert parse.parse_errors(recorded("noinit.log"))[0] == (
        'No such file or directory - Failed to exec "/sbin/init"'
    )
    assert parse.parse_errors(recorded("nomount.log"))[0].startswith("mount: ")
    assert parse.parse_errors(recorded("ended-PWR.log")) == []


def test_sockets() -> None:
    line = "00000000: 00000002 00000000 00010000 0001 01 4711 "
    text = "".join(
        f"{line}{path}\n"
        for path in (
            "@/run/ganeti/lxc/web2/command",
            "@/run/ganeti/lxc/web1/command",
            "@/run/ganeti/lxc/web1/command",
            "@/run/ganeti/lxc/../etc/command",
            "@/var/lib/lxc/other/command",
            "/run/systemd/notify",
        )
    )
    assert parse.parse_unix_sockets(f"Num RefCount\n{text}", "/run/ganeti/lxc") == ["web1", "web2"]


def test_mounts_of_both_versions() -> None:
    hybrid = parse.parse_cgroup_mounts(recorded("mounts-hybrid"))
    assert hybrid.unified == "/sys/fs/cgroup/unified"
    assert hybrid.legacy["memory"] == "/sys/fs/cgroup/memory"
    unified = parse.parse_cgroup_mounts("cgroup2 /sys/fs/cgroup cgroup2 rw,nosuid 0 0\n")
    assert unified == ("/sys/fs/cgroup", {})


def test_groups_of_a_process() -> None:
    text = "4:memory:/a\n1:cpu,cpuacct:/b\n1:name=systemd:/c\n0::/lxc.payload.web\nnonsense\n"
    assert parse.parse_own_cgroups(text) == {
        "memory": "/a",
        "cpu": "/b",
        "cpuacct": "/b",
        "name=systemd": "/c",
        "": "/lxc.payload.web",
    }


def test_bytes_of_both_versions() -> None:
    assert parse.parse_io_stat("8:0 rbytes=10 wbytes=20 rios=1\n8:16 rbytes=1\n") == (11, 20)
    assert parse.parse_io_stat("8:0 Read 10\n8:0 Write 20\n8:0 Total 30\nTotal 30\n") == (10, 20)


def test_version() -> None:
    assert parse.parse_version("5.0.2\n") == (5, 0, 2)
    assert parse.parse_version("6.0") == (6, 0, 0)
    with pytest.raises(errors.ParseError):
        parse.parse_version("lxc")


def test_partitions() -> None:
    assert rootfs.parse_partx("2048 10\n4096 20\n")[0] == (1 << 20, 5120)
    with pytest.raises(errors.ParseError, match="no partition in 'x'"):
        rootfs.parse_partx("x")


@pytest.mark.parametrize(
    ("path", "group"),
    [
        ("/lxc.payload.web", "/lxc.payload.web"),
        # systemd as the first process goes on to a group below.
        ("/scope/lxc.payload.web-1/init.scope", "/scope/lxc.payload.web-1"),
        ("/user.slice", "/user.slice"),
    ],
)
def test_the_group_of_a_whole_container(path: str, group: str) -> None:
    assert parse.payload_group(path) == group
