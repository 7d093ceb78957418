"""The hypervisor ``lxc``: an instance is a container of the node's kernel."""

from __future__ import annotations

import re
from collections.abc import Callable

from ganeti.constants import hv
from ganeti.objects.hypervisors.cpu_masks import cpu_mask
from ganeti.objects.hypervisors.descriptor import ConsoleRequest, HypervisorDescriptor, by_name
from ganeti.objects.hypervisors.parameter import (
    DEVICE,
    GUEST,
    INT,
    OPTION,
    PRIVILEGE,
    STRING,
    Check,
    HvParam,
    between,
    non_negative,
)
from ganeti.objects.transfer import InstanceConsole
from ganeti.platform import machine

# What LXC can make at most is a limit of the kernel; a container needs a few.
_MAX_TTYS = 1024

_DEVICE = re.compile(r"a|[abc] (\d{1,7}|\*):(\d{1,7}|\*) [rwm]{1,3}", re.ASCII)
_CAPABILITY = re.compile(r"[a-z0-9_]{1,40}", re.ASCII)
_CONTROLLER = re.compile(r"[a-z0-9_]{1,40}", re.ASCII)
_EXTRA = re.compile(r"(lxc(?:\.[A-Za-z0-9_-]{1,64}){1,8}) {0,8}= {0,8}([ -~]{0,1000})", re.ASCII)
# What the driver itself writes, or what would change how it finds the container again.
_OWN_KEYS = (
    "lxc.cgroup.dir",
    "lxc.cgroup.relative",
    "lxc.console.logfile",
    "lxc.ephemeral",
    "lxc.hook.version",
    "lxc.include",
    "lxc.log",
    "lxc.net",
    "lxc.rootfs",
    "lxc.tty.max",
    "lxc.uts.name",
)


def split_list(value: str) -> list[str]:
    """Return the elements of a list with commas; ``\\,`` is a comma in an element."""
    return [
        part.replace("\\,", ",").strip() for part in re.split(r"(?<!\\),", value) if part.strip()
    ]


def _list_of(pattern: re.Pattern[str], what: str) -> Check:
    """Return a check of a list with commas, each element of which has a form."""

    def check(value: str) -> str:
        if not value.isprintable():
            return "must be one line of printable characters"
        for part in split_list(value):
            if not pattern.fullmatch(part):
                return f"'{part:.60}' is not {what}"
        return ""

    return check


def _extra_config(value: str) -> str:
    wrong = _list_of(_EXTRA, "a line 'lxc.KEY = VALUE'")(value)
    if wrong:
        return wrong
    for key, _ in parse_extra_config(value):
        if any(key == own or key.startswith(f"{own}.") for own in _OWN_KEYS):
            return f"must not set {key}, which is set by the node"
    return ""


def parse_extra_config(value: str) -> list[tuple[str, str]]:
    """Return the keys and values of the parameter ``extra_config``.

    Elements of other forms are left out.

    Source: lxc.container.conf(5).
    """
    found = (_EXTRA.fullmatch(part) for part in split_list(value))
    return [(match[1], match[2].strip()) for match in found if match is not None]


def _console(request: ConsoleRequest) -> InstanceConsole:
    name = request.instance.name
    if not request.hvparams.get("num_ttys"):
        return request.message(
            f"instance {name} has no terminals. Set the hypervisor parameter num_ttys and restart"
            " the instance."
        )
    return request.by_ssh(
        "lxc-console",
        f"--lxcpath={machine.current().paths_of_node(request.node_name).lxc_root}",
        f"--name={name}",
    )


_devices: Callable[[str], str] = _list_of(_DEVICE, "a device such as 'c 1:3 rw'")

LXC = HypervisorDescriptor(
    name=hv.LXC,
    parameters=by_name(
        HvParam("cpu_mask", STRING, "", DEVICE, check=cpu_mask),
        HvParam(
            "devices",
            STRING,
            "c 1:3 rw,c 1:5 rw,c 1:7 rw,c 1:8 rw,c 1:9 rw,c 1:10 rw,"
            "c 5:0 rw,c 5:1 rw,c 5:2 rw,c 136:* rw",
            DEVICE,
            check=_devices,
        ),
        HvParam(
            "drop_capabilities",
            STRING,
            "mac_override,sys_boot,sys_module,sys_time,sys_admin",
            PRIVILEGE,
            check=_list_of(_CAPABILITY, "a capability such as sys_time"),
        ),
        HvParam(
            "extra_cgroups",
            STRING,
            "",
            OPTION,
            check=_list_of(_CONTROLLER, "a controller of cgroups such as pids"),
        ),
        HvParam("extra_config", STRING, "", OPTION, check=_extra_config),
        HvParam("num_ttys", INT, 6, GUEST, check=between(0, _MAX_TTYS), required=True),
        HvParam("startup_timeout", INT, 30, GUEST, check=non_negative),
    ),
    can_hotplug=True,
    can_limit_processors=True,
    has_own_kernel=False,
    keeps_console_log=True,
    console=_console,
    guest_titles=("[lxc monitor] ",),
)
