"""Changes of an instance which its running guest gets only at its next start.

The configuration records for each such setting the value with which the guest runs (``hv/acpi``,
``be/maxmem``), or what was done to a device (``nic/0``). A change back to that value is no change
any more, and a start by the cluster forgets all of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ganeti.constants.instance import ADMIN_UP
from ganeti.objects import fill, hypervisors

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ganeti.objects import Cluster, Instance

# Backend parameters which a start gives to the guest; the others are for the cluster.
_BACKEND = ("maxmem", "minmem", "vcpus")
# The processors, which some hypervisors limit while the guest runs.
_PROCESSORS = frozenset({"be/vcpus", "hv/cpu_mask"})
# Parameters which count when the guest is moved, with this word at the beginning.
_OF_MIGRATION = "hv/migration_"


def changed(
    cluster: Cluster, before: Instance, after: Instance, devices: Iterable[tuple[str, str]]
) -> dict[str, Any] | None:
    """Return what waits for the next start after a change of an instance; None for nothing.

    :param devices: name and action of each change of a device which the guest did not get.
    """
    if before.admin_state != ADMIN_UP or after.admin_state != ADMIN_UP:
        return None
    old, new = _settings(cluster, before), _settings(cluster, after)
    waiting = dict(before.pending_changes or {})
    for name, value in old.items():
        if new.get(name) != value:
            waiting.setdefault(name, value)
    for name in [name for name in waiting if name in new and new[name] == waiting[name]]:
        del waiting[name]
    waiting.update(devices)
    return waiting or None


def _settings(cluster: Cluster, instance: Instance) -> dict[str, Any]:
    """Return the settings which a guest gets at its start, by the name which fields have."""
    backend = fill.fill_be(cluster, instance.beparams)
    settings = {f"be/{name}": backend.get(name) for name in _BACKEND}
    for name, value in fill.instance_hv(cluster, instance, skip_globals=True).items():
        if not f"hv/{name}".startswith(_OF_MIGRATION):
            settings[f"hv/{name}"] = value
    if hypervisors.of(instance.hypervisor).can_limit_processors:
        settings = {name: value for name, value in settings.items() if name not in _PROCESSORS}
    return settings
