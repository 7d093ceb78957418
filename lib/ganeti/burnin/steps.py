"""The table of steps, and what decides whether a step can be carried out here."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Final

from ganeti.burnin import work
from ganeti.burnin.work import Run
from ganeti.objects import disk_templates, hypervisors


@dataclasses.dataclass(frozen=True, slots=True)
class Step:
    """One step.

    :ivar name: for the options and the report.
    :ivar title: what the user reads while it is carried out.
    :ivar do: carries it out.
    :ivar obstacle: says why it cannot be carried out here; empty when it can.
    """

    name: str
    title: str
    do: Callable[[Run], None]
    obstacle: Callable[[Run], str] = lambda _run: ""


def _mirrored(run: Run) -> str:
    if run.options.template in disk_templates.INT_MIRRORED:
        return ""
    return f"disks of template {run.options.template} have no secondary node"


def _more_nodes(run: Run, least: int) -> str:
    if run.options.iallocator or len(run.nodes) >= least:
        return ""
    return f"it needs {least} nodes, and there is {len(run.nodes)}"


def _new_secondary(run: Run) -> str:
    return _mirrored(run) or _more_nodes(run, 3)


def _elsewhere(run: Run) -> str:
    if run.options.template in disk_templates.MIRRORED:
        return _more_nodes(run, 2)
    return f"disks of template {run.options.template} are on one node only"


def _migration(run: Run) -> str:
    if not hypervisors.ALL[run.hypervisor].can_migrate:
        return f"hypervisor {run.hypervisor} cannot migrate guests"
    return _elsewhere(run)


def _copy(run: Run) -> str:
    if run.options.template not in disk_templates.COPYABLE:
        return f"disks of template {run.options.template} cannot be moved by copying"
    return _more_nodes(run, 2)


def _has_disks(run: Run) -> str:
    return "" if run.options.disks_mib else "the instances have no disks"


def _has_nics(run: Run) -> str:
    return "" if run.options.nics else "the instances have no network interfaces (--no-nics)"


def _growth(run: Run) -> str:
    if _has_disks(run):
        return _has_disks(run)
    if run.options.template not in disk_templates.GROWABLE:
        return f"disks of template {run.options.template} cannot grow"
    return "" if any(run.options.growth_mib) else "--disk-growth is 0"


def _hotplug(run: Run) -> str:
    if not hypervisors.ALL[run.hypervisor].can_hotplug:
        return f"hypervisor {run.hypervisor} cannot change the devices of a running guest"
    return (_has_disks(run) and _has_nics(run)) and "the instances have neither disks nor NICs"


def _allocator(run: Run) -> str:
    if run.has_allocator:
        return ""
    return "neither the cluster nor the option --iallocator names an allocator"


def _groups(run: Run) -> str:
    if len({node.group for node in run.nodes}) < 2:
        return "the nodes are in one node group"
    if run.options.template not in disk_templates.MIRRORED:
        return f"disks of template {run.options.template} are on one node only"
    return _allocator(run)


def _evacuation(run: Run) -> str:
    problem = _elsewhere(run) or _allocator(run)
    if not problem and not work.nodes_to_evacuate(run):
        problem = "each node has instances of others, which an evacuation would move"
    return problem


def _other_name(run: Run) -> str:
    return "" if run.options.rename else "it needs the option --rename"


CREATE: Final = Step("create", "Creating the instances", work.create)

#: The steps after the creation, in the order in which they are carried out.
STEPS: Final = (
    Step("modify", "Changing processors and memory", work.modify),
    Step("grow", "Growing the disks", work.grow, _growth),
    Step("replace1", "Replacing the disks on both nodes", work.replace_in_place, _mirrored),
    Step("replace2", "Changing the secondary node", work.replace_secondary, _new_secondary),
    Step("change-group", "Changing the node group, and back", work.change_group, _groups),
    Step("failover", "Failing over", work.failover, _elsewhere),
    Step("migrate", "Migrating", work.migrate, _migration),
    Step("move", "Moving to another node", work.move, _copy),
    Step("importexport", "Exporting and importing", work.export_and_import, _has_disks),
    Step("reinstall", "Installing the operating system again", work.reinstall, _has_disks),
    Step("reboot", "Rebooting", work.reboot),
    Step("renamesame", "Renaming to the same name", work.rename_to_itself),
    Step("tags", "Adding and removing tags", work.change_tags),
    Step("add-disks", "Adding and removing a disk", work.add_disks, _has_disks),
    Step("add-nics", "Adding and removing a network interface", work.add_nics, _has_nics),
    Step("hotplug", "Changing devices of the running guests", work.hotplug, _hotplug),
    Step("activate-disks", "Activating the disks", work.activate_disks, _has_disks),
    Step("rename", "Renaming to another name, and back", work.rename, _other_name),
    Step("confd", "Asking the configuration query daemons", work.ask_confd),
    Step("startstop", "Stopping and starting", work.stop_and_start),
    Step("evacuate", "Evacuating nodes", work.evacuate, _evacuation),
)

NAMES: Final = tuple(step.name for step in STEPS)
