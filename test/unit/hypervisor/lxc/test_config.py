"""The configuration of a container: every parameter reaches it, no value becomes another key."""

from __future__ import annotations

from typing import Any

import pytest

from ganeti import errors
from ganeti.hypervisor.lxc import config
from ganeti.hypervisor.lxc.cgroups import Limit
from ganeti.hypervisor.lxc.layout import Layout
from ganeti.objects import hvparams
from ganeti.objects.hypervisors import lxc

HERE = Layout("/run/ganeti/lxc", "/var/log/ganeti/lxc", "web1.example.com", "/var/lib/lxc/g")


def lines(interfaces: tuple[str | None, ...] = (), **params: Any) -> list[str]:
    side = config.HostSide(
        mount_argv=["/bin/mount", "--", "/dev/with space", HERE.rootfs],
        limits=[Limit("lxc.cgroup2.memory.max", "1048576")],
        devices_prefix="lxc.cgroup2.devices",
        interfaces=interfaces,
        console_log="/var/log/ganeti/kvm/console/u.log",
        seccomp_profile="/usr/share/lxc/config/common.seccomp",
    )
    return config.text_of(HERE, hvparams.defaults("lxc") | params, side).splitlines()


def test_defaults() -> None:
    found = lines()
    assert "lxc.uts.name = web1.example.com" in found
    assert "lxc.rootfs.path = dir:/var/lib/lxc/g/web1.example.com/rootfs" in found
    # LXC gives the command to a shell.
    assert (
        "lxc.hook.pre-mount = /bin/mount -- '/dev/with space'"
        " /var/lib/lxc/g/web1.example.com/rootfs" in found
    )
    assert "lxc.tty.max = 6" in found
    assert "lxc.console.logfile = /var/log/ganeti/kvm/console/u.log" in found
    assert found.index("lxc.cgroup2.devices.deny = a") < found.index(
        "lxc.cgroup2.devices.allow = c 1:3 rw"
    )
    assert sum(line.startswith("lxc.cgroup2.devices.allow") for line in found) == 10
    assert [line for line in found if "cap.drop" in line] == [
        f"lxc.cap.drop = {name}"
        for name in ("mac_override", "sys_boot", "sys_module", "sys_time", "sys_admin")
    ]
    assert "lxc.cgroup2.memory.max = 1048576" in found
    assert "lxc.net.0.type = empty" in found  # not the network of the node


def test_parameters() -> None:
    found = lines(
        ("gnt.veth0p", None, "gnt.veth7p"),
        devices="b 8:* rwm",
        drop_capabilities="",
        num_ttys=0,
        extra_config=r"lxc.environment = A=b\,c,lxc.signal.halt=SIGUSR1",
    )
    assert "lxc.cgroup2.devices.allow = b 8:* rwm" in found
    assert not any("cap.drop" in line for line in found)
    assert "lxc.tty.max = 0" in found
    assert found[-2:] == ["lxc.environment = A=b,c", "lxc.signal.halt = SIGUSR1"]
    assert "lxc.net.2.link = gnt.veth7p" in found and "lxc.net.2.name = eth2" in found
    assert not any("net.1" in line or "empty" in line for line in found)


def test_a_line_break_is_refused_wherever_it_comes_from() -> None:
    with pytest.raises(errors.HypervisorError, match="the value of lxc.cap.drop has a line break"):
        lines(drop_capabilities="kill\nlxc.hook.stop = evil")


@pytest.mark.parametrize(
    ("name", "value", "problem"),
    [
        ("devices", "c 1:3", "is not a device"),
        ("devices", "c 1:3 rw\nlxc.x = 1", "must be one line"),
        ("devices", "x 1:3 rw", "is not a device"),
        ("drop_capabilities", "SYS_ADMIN", "is not a capability"),
        ("drop_capabilities", "kill = 1", "is not a capability"),
        ("extra_cgroups", "a/b", "is not a controller"),
        ("extra_config", "lxc.net.0.type=none", "must not set lxc.net.0.type"),
        ("extra_config", "lxc.rootfs.path = /", "must not set lxc.rootfs.path"),
        ("extra_config", "lxc.include = /x", "must not set lxc.include"),
        ("extra_config", "lxc.console.logfile = /x", "must not set lxc.console.logfile"),
        ("extra_config", "lxc.a = 1\nlxc.b = 2", "must be one line"),
        ("extra_config", "security.x=1", "is not a line"),
        ("num_ttys", -1, "must be from 0"),
        ("cpu_mask", "1-", "neither a number nor a range"),
        ("startup_timeout", -1, "must not be negative"),
    ],
)
def test_values_which_are_refused(name: str, value: Any, problem: str) -> None:
    assert problem in lxc.LXC.parameters[name].problem(value)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("devices", "a,c *:* rwm"),
        ("drop_capabilities", "none"),
        ("extra_cgroups", "pids,hugetlb"),
        ("extra_config", r"lxc.mount.entry = tmpfs tmp tmpfs size=1m\,mode=1777 0 0"),
        ("cpu_mask", "0-1,3"),
    ],
)
def test_values_which_are_accepted(name: str, value: Any) -> None:
    assert lxc.LXC.parameters[name].problem(value) == ""


def test_all_processors() -> None:
    assert config.cpus_of({"cpu_mask": "all"}) == config.cpus_of({"cpu_mask": ""}) == ""
    assert config.cpus_of({"cpu_mask": "0-1, 3"}) == "0-1,3"
