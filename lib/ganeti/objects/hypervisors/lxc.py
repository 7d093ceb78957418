"""The hypervisor ``lxc``: an instance is a container of the node's kernel."""

from __future__ import annotations

from ganeti.constants import hv
from ganeti.objects.hypervisors.cpu_masks import cpu_mask
from ganeti.objects.hypervisors.descriptor import HypervisorDescriptor, by_name
from ganeti.objects.hypervisors.parameter import INT, STRING, HvParam, non_negative

LXC = HypervisorDescriptor(
    name=hv.LXC,
    parameters=by_name(
        HvParam("cpu_mask", STRING, "", check=cpu_mask),
        HvParam(
            "devices",
            STRING,
            "c 1:3 rw,c 1:5 rw,c 1:7 rw,c 1:8 rw,c 1:9 rw,c 1:10 rw,"
            "c 5:0 rw,c 5:1 rw,c 5:2 rw,c 136:* rw",
        ),
        HvParam("drop_capabilities", STRING, "mac_override,sys_boot,sys_module,sys_time,sys_admin"),
        HvParam("extra_cgroups", STRING, ""),
        HvParam("extra_config", STRING, ""),
        HvParam("num_ttys", INT, 6, check=non_negative, required=True),
        HvParam("startup_timeout", INT, 30, check=non_negative),
    ),
)
