"""The hypervisor ``fake``: a file stands for each guest. It serves tests and virtual clusters."""

from __future__ import annotations

from ganeti.constants import hv
from ganeti.objects.hypervisors.descriptor import (
    ConsoleRequest,
    HypervisorDescriptor,
    by_name,
)
from ganeti.objects.hypervisors.parameter import GUEST, STRING, HvParam
from ganeti.objects.transfer import InstanceConsole


def _console(request: ConsoleRequest) -> InstanceConsole:
    name = request.instance.name
    return request.message(f"instance {name} runs under the fake hypervisor, which has no console")


FAKE = HypervisorDescriptor(
    name=hv.FAKE,
    parameters=by_name(
        HvParam("migration_mode", STRING, "live", GUEST, one_of=hv.MIGRATION_MODES, required=True)
    ),
    can_migrate=True,
    can_hotplug=True,
    runs_guests=False,
    console=_console,
)
