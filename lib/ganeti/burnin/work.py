"""The work of each step: which jobs it submits, and what it looks at besides their success.

Each function gets the :class:`Run`, and ends with all instances running again. The steps are in the
order in which a user thinks of an instance's life; :mod:`ganeti.burnin.steps` has their table.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from ganeti.burnin import cluster
from ganeti.burnin.cluster import CheckFailed, Instance, Node
from ganeti.burnin.jobs import Runner
from ganeti.burnin.options import Options
from ganeti.constants import disk, tags
from ganeti.constants import instance as const
from ganeti.constants import node as node_const
from ganeti.luxi import client as luxi
from ganeti.objects import disk_templates
from ganeti.opcodes import backup as op_backup
from ganeti.opcodes import instance as op
from ganeti.opcodes import node as op_node
from ganeti.opcodes import tags as op_tags
from ganeti.opcodes.base import OpCode

#: Tags which the instances get and lose.
_TAGS: Final = ("burnin:first", "burnin:second")
#: Size of the disk which is added and removed, in MiB.
_ADDED_DISK_MIB: Final = 128
#: The position behind the last device, and the last device.
_LAST: Final = -1


@dataclasses.dataclass(slots=True)
class Run:
    """What the steps work with.

    :ivar cluster: the answer of ``QueryClusterInfo``.
    :ivar nodes: the nodes to use, in their order.
    :ivar hypervisor: hypervisor of the instances.
    :ivar say: prints a line for the user.
    :ivar names: full names of the instances, once they exist.
    """

    options: Options
    client: luxi.Client
    runner: Runner
    cluster: Mapping[str, Any]
    nodes: list[Node]
    hypervisor: str
    say: Callable[[str], None]
    names: tuple[str, ...] = ()

    @property
    def has_allocator(self) -> bool:
        """True if an allocator can choose nodes."""
        return bool(self.options.iallocator or self.cluster.get("default_iallocator"))

    def instances(self) -> list[Instance]:
        """Ask where the instances are now."""
        return list(cluster.instances(self.client, self.names).values())

    def each(
        self, work: Callable[[Instance], Sequence[OpCode]], *, repeatable: bool = False
    ) -> dict[str, list[Any]]:
        """Run a job for each instance; see :meth:`ganeti.burnin.jobs.Runner.run`.

        :param repeatable: whether the opcodes may be submitted again after a failure. A job with
            one opcode always may: a failed operation has been undone.
        """
        prepared = {item.name: work(item) for item in self.instances()}
        alone = all(len(ops) == 1 for ops in prepared.values())
        return self.runner.run(prepared, repeatable=repeatable or alone)

    def all(self, opcode: type[OpCode], **params: Any) -> dict[str, list[Any]]:
        """Run a job with one opcode for each instance.

        :param params: parameters of the opcode besides the name of the instance.
        """
        return self.each(lambda item: [opcode(instance_name=item.name, **params)])

    def other_node(self, avoid: Sequence[str]) -> str:
        """Return the node after the first one to avoid which is none of them.

        :raises CheckFailed: there is no such node.
        """
        names = [node.name for node in self.nodes]
        start = names.index(avoid[0]) + 1 if avoid and avoid[0] in names else 0
        for name in (*names[start:], *names[:start]):
            if name not in avoid:
                return name
        raise CheckFailed(f"no node is left besides {', '.join(avoid)}")

    def target(self, item: Instance) -> dict[str, Any]:
        """Return the parameters which say where an instance goes; empty for its secondary node."""
        if self.options.template in disk_templates.INT_MIRRORED:
            return {}
        if self.options.iallocator:
            return {"iallocator": self.options.iallocator}
        return {"target_node": self.other_node([item.primary])}


def _stop(item: Instance) -> OpCode:
    return op.OpInstanceShutdown(instance_name=item.name)


def _start(item: Instance) -> OpCode:
    return op.OpInstanceStartup(instance_name=item.name)


def _change(item: Instance, **changes: Any) -> OpCode:
    return op.OpInstanceSetParams(instance_name=item.name, **changes)


def create(run: Run) -> None:
    """Create the instances; each gets the next nodes, or the allocator chooses them."""
    options = run.options
    work: dict[str, list[OpCode]] = {}
    names = [node.name for node in run.nodes]
    places = zip(itertools.cycle(names), itertools.cycle(names[1:] + names[:1]), strict=False)
    for name, (primary, secondary) in zip(options.instances, places, strict=False):
        where: dict[str, Any] = {"iallocator": options.iallocator}
        if options.iallocator is None:
            where = {"pnode": primary}
            if options.template in disk_templates.INT_MIRRORED:
                where["snode"] = secondary
        run.say(f"   {name} on {', '.join(str(value) for value in where.values())}")
        work[name] = [op.OpInstanceCreate(**_specification(run, name), **where)]
    run.runner.run(work)
    run.names = tuple(cluster.instances(run.client, options.instances))


def _specification(run: Run, name: str) -> dict[str, Any]:
    """Return what a creation and an import say about an instance."""
    options = run.options
    return {
        "instance_name": name,
        "mode": const.CREATE,
        "disk_template": options.template,
        "disks": [{"size": size} for size in options.disks_mib],
        "nics": [dict(nic) for nic in options.nics],
        "beparams": {
            "minmem": options.min_memory_mib,
            "maxmem": options.max_memory_mib,
            "vcpus": options.vcpus,
        },
        "os_type": options.os,
        "osparams": options.osparams,
        "hypervisor": options.hypervisor,
        "hvparams": options.hvparams,
        "name_check": options.name_check,
        "ip_check": options.ip_check,
        "wait_for_sync": True,
        "start": True,
        **(
            {"file_driver": disk.FILE_DRIVER_LOOP}
            if options.template in disk_templates.INSTANCE_DEPENDENT_PATH
            else {}
        ),
    }


def modify(run: Run) -> None:
    """Change the number of processors for the next start, and the memory of the running guest."""
    options = run.options
    more = options.vcpus + 1
    run.each(
        lambda item: [
            _change(item, beparams={"vcpus": more}),
            _change(item, beparams={"vcpus": options.vcpus}),
        ],
        repeatable=True,
    )
    if options.min_memory_mib < options.max_memory_mib:
        run.all(op.OpInstanceSetParams, runtime_mem=options.min_memory_mib)
        run.all(op.OpInstanceSetParams, runtime_mem=options.max_memory_mib)


def grow(run: Run) -> None:
    """Grow each disk; the size is absolute, so that a failed job may be submitted again."""
    options = run.options
    for number, (size, growth) in enumerate(
        zip(options.disks_mib, options.growth_mib, strict=True)
    ):
        if growth:
            run.all(op.OpInstanceGrowDisk, disk=number, amount=size + growth, absolute=True)


def replace_in_place(run: Run) -> None:
    """Replace the disks on the secondary node, then those on the primary node."""
    for mode in (disk.REPLACE_ON_SECONDARY, disk.REPLACE_ON_PRIMARY):
        run.all(op.OpInstanceReplaceDisks, mode=mode, early_release=run.options.early_release)


def replace_secondary(run: Run) -> None:
    """Give each instance a new secondary node."""

    def work(item: Instance) -> list[OpCode]:
        where = (
            {"iallocator": run.options.iallocator}
            if run.options.iallocator
            else {"remote_node": run.other_node([*item.secondaries, item.primary])}
        )
        return [
            op.OpInstanceReplaceDisks(
                instance_name=item.name,
                mode=disk.REPLACE_NEW_SECONDARY,
                early_release=run.options.early_release,
                **where,
            )
        ]

    before = {item.name: item.secondaries for item in run.instances()}
    run.each(work)
    for item in run.instances():
        if item.secondaries == before[item.name]:
            raise CheckFailed(f"{item.name} still has the secondary node {item.secondaries[0]}")


def change_group(run: Run) -> None:
    """Move each instance to another node group, and back."""
    group_of = {node.name: node.group for node in run.nodes}
    home = {item.name: group_of[item.primary] for item in run.instances()}

    def to(groups: Callable[[str], Sequence[str]]) -> None:
        run.each(
            lambda item: [
                op.OpInstanceChangeGroup(
                    instance_name=item.name,
                    iallocator=run.options.iallocator,
                    target_groups=list(groups(home[item.name])),
                )
            ]
        )

    to(lambda at_home: sorted(set(group_of.values()) - {at_home}))
    to(lambda at_home: [at_home])


def _must_have_moved(run: Run, before: Mapping[str, str]) -> None:
    """Check that each instance has another primary node than before."""
    for item in run.instances():
        if item.primary == before[item.name]:
            raise CheckFailed(f"{item.name} is still on {item.primary}")


def failover(run: Run) -> None:
    """Fail each instance over to another node."""
    before = {item.name: item.primary for item in run.instances()}
    run.each(lambda item: [op.OpInstanceFailover(instance_name=item.name, **run.target(item))])
    _must_have_moved(run, before)


def migrate(run: Run) -> None:
    """Migrate each instance while it runs, and clean up, which must find nothing to do."""
    before = {item.name: item.primary for item in run.instances()}
    run.each(lambda item: [op.OpInstanceMigrate(instance_name=item.name, **run.target(item))])
    _must_have_moved(run, before)
    run.all(op.OpInstanceMigrate, cleanup=True)


def move(run: Run) -> None:
    """Copy each instance to another node."""
    before = {item.name: item.primary for item in run.instances()}
    run.each(
        lambda item: [
            op.OpInstanceMove(instance_name=item.name, target_node=run.other_node([item.primary]))
        ]
    )
    _must_have_moved(run, before)


def export_and_import(run: Run) -> None:
    """Export each instance, remove it, create it from the export, and remove the export.

    The instance is removed only when all of its disks are in the export.
    """
    before = {item.name: item for item in run.instances()}
    export_node = {
        name: run.other_node([item.primary, *item.secondaries])
        if len(run.nodes) > 1 + len(item.secondaries)
        else item.primary
        for name, item in before.items()
    }
    results = run.each(
        lambda item: [
            op_backup.OpBackupExport(
                instance_name=item.name,
                target_node=export_node[item.name],
                # Without snapshots of the disks the instance stays stopped meanwhile.
                long_sleep=run.options.template not in disk_templates.SNAPSHOT_CAPABLE,
            )
        ]
    )
    for name, (result,) in results.items():
        if result != [True, [True] * len(run.options.disks_mib)]:
            raise CheckFailed(f"the export of {name} is not complete: {result}")

    def back(item: Instance) -> list[OpCode]:
        where = (
            {"iallocator": run.options.iallocator}
            if run.options.iallocator
            else {
                "pnode": item.primary,
                "snode": item.secondaries[0] if item.secondaries else None,
            }
        )
        return [
            op.OpInstanceRemove(instance_name=item.name),
            op.OpInstanceCreate(
                **{
                    **_specification(run, item.name),
                    "mode": const.IMPORT,
                    "disks": [{"size": size} for size in item.disks_mib],
                    # The address which a guest gets from DHCP depends on the hardware address.
                    "nics": [{"mac": mac} for mac in item.macs],
                },
                src_node=export_node[item.name],
                src_path=item.name,
                **where,
            ),
            op_backup.OpBackupRemove(instance_name=item.name),
        ]

    run.runner.run({name: back(item) for name, item in before.items()}, repeatable=False)


def reinstall(run: Run) -> None:
    """Install the operating system anew: the present one, and the one of the command line."""
    run.each(
        lambda item: [
            _stop(item),
            op.OpInstanceReinstall(instance_name=item.name),
            op.OpInstanceReinstall(instance_name=item.name, os_type=run.options.os),
            _start(item),
        ],
        repeatable=True,
    )


def reboot(run: Run) -> None:
    """Reboot each instance in all chosen ways."""
    for kind in run.options.reboot_types:
        run.say(f"   {kind} reboot")
        run.all(op.OpInstanceReboot, reboot_type=kind)
        check_running(run)


def rename_to_itself(run: Run) -> None:
    """Rename each instance to the name that it has."""
    run.each(
        lambda item: [
            _stop(item),
            op.OpInstanceRename(
                instance_name=item.name,
                new_name=item.name,
                name_check=run.options.name_check,
                ip_check=run.options.ip_check,
            ),
            _start(item),
        ],
        repeatable=True,
    )


def rename(run: Run) -> None:
    """Rename the instance to another name and back."""
    (name,) = run.names

    def to(new: str) -> None:
        run.all(op.OpInstanceShutdown)
        results = run.all(
            op.OpInstanceRename,
            new_name=new,
            name_check=run.options.name_check,
            ip_check=run.options.ip_check,
        )
        # The results have the complete names.
        run.names = tuple(result for (result,) in results.values())
        run.all(op.OpInstanceStartup)
        check_running(run)

    to(run.options.rename or name)
    to(name)


def change_tags(run: Run) -> None:
    """Add tags and remove them."""

    def to(opcode: type[OpCode], expected: set[str]) -> None:
        run.each(lambda item: [opcode(kind=tags.INSTANCE, name=item.name, tags=list(_TAGS))])
        for name in run.names:
            found = set(run.client.query_tags(tags.INSTANCE, name)) & set(_TAGS)
            if found != expected:
                raise CheckFailed(f"{name} has the tags {sorted(found)}, not {sorted(expected)}")

    to(op_tags.OpTagsSet, set(_TAGS))
    to(op_tags.OpTagsDel, set())


def _with_each_change(
    item: Instance, changes: Sequence[dict[str, Any]], *, stopped: bool
) -> list[OpCode]:
    """Return opcodes which carry out changes one after the other, with restarts between them."""
    work: list[OpCode] = []
    for change in changes:
        one = _change(item, **change)
        work += [_stop(item), one, _start(item)] if stopped else [one]
    return work


_DISK_CHANGES: Final[tuple[dict[str, Any], ...]] = (
    {"disks": [[disk.MOD_ADD, _LAST, {"size": _ADDED_DISK_MIB}]]},
    {"disks": [[disk.MOD_REMOVE, _LAST, {}]]},
)
_NIC_CHANGES: Final[tuple[dict[str, Any], ...]] = (
    {"nics": [[disk.MOD_ADD, _LAST, {}]]},
    {"nics": [[disk.MOD_REMOVE, _LAST, {}]]},
)


def add_disks(run: Run) -> None:
    """Add a disk to each instance and remove it, while the instance is stopped."""
    run.each(lambda item: _with_each_change(item, _DISK_CHANGES, stopped=True))


def add_nics(run: Run) -> None:
    """Add a network interface to each instance and remove it, while the instance is stopped."""
    run.each(lambda item: _with_each_change(item, _NIC_CHANGES, stopped=True))


def hotplug(run: Run) -> None:
    """Add and remove a disk and a network interface while the guest runs."""
    changes = [*(_DISK_CHANGES if run.options.disks_mib else ())]
    changes += _NIC_CHANGES if run.options.nics else ()
    run.each(
        lambda item: _with_each_change(
            item, [{**change, "hotplug": True} for change in changes], stopped=False
        )
    )


def activate_disks(run: Run) -> None:
    """Activate the disks of running and of stopped instances, and deactivate them."""
    run.each(
        lambda item: [
            op.OpInstanceActivateDisks(instance_name=item.name),
            _stop(item),
            op.OpInstanceActivateDisks(instance_name=item.name),
            op.OpInstanceDeactivateDisks(instance_name=item.name),
            _start(item),
        ],
        repeatable=True,
    )


def ask_confd(run: Run) -> None:
    """Compare what the configuration query daemons say with what the master says."""
    wrong = cluster.ask_confd(run.cluster, run.nodes)
    if wrong:
        raise CheckFailed("; ".join(wrong))


def stop_and_start(run: Run) -> None:
    """Stop each instance, and start it."""
    run.all(op.OpInstanceShutdown)
    check_running(run, running=False)
    run.all(op.OpInstanceStartup)


def nodes_to_evacuate(run: Run) -> list[str]:
    """Return the nodes which have only instances of this run, on the side that can be moved."""
    mirrored = run.options.template in disk_templates.INT_MIRRORED
    ours = set(run.names)
    sides = [
        side
        for item in run.instances()
        for side in (item.secondaries if mirrored else (item.primary,))
    ]
    known = {node.name: node for node in cluster.nodes(run.client, ())}
    return [
        name for name in dict.fromkeys(sides) if name in known and known[name].instances <= ours
    ]


def evacuate(run: Run) -> None:
    """Evacuate the nodes which have no instances of others, one after the other or together."""
    mirrored = run.options.template in disk_templates.INT_MIRRORED
    run.runner.run(
        {
            name: [
                op_node.OpNodeEvacuate(
                    node_name=name,
                    iallocator=run.options.iallocator,
                    mode=node_const.EVAC_SECONDARY if mirrored else node_const.EVAC_PRIMARY,
                    early_release=run.options.early_release,
                )
            ]
            for name in nodes_to_evacuate(run)
        }
    )


def check_running(run: Run, *, running: bool = True) -> None:
    """Check that each guest runs, or that none does; ask the guests where the user wants it.

    :raises CheckFailed: a guest is not in this state, or does not answer with its name.
    """
    wrong = [
        f"{item.name} {'does not run' if running else 'still runs'} on {item.primary}"
        for item in run.instances()
        if item.oper_state is not running
    ]
    if not wrong and running and run.options.http_check:
        for name in run.names:
            problem = cluster.guest_answer(
                name, cluster.guest_address(name), run.options.net_timeout_s
            )
            if problem:
                wrong.append(f"{name}: {problem}")
    if wrong:
        raise CheckFailed("; ".join(wrong))
