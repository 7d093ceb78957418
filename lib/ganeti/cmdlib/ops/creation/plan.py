"""Plan of a creation, and the checks from which it is made.

``LUInstanceCreate.check_prereq`` calls these functions in the order in which they stand here. They
change nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ganeti import errors
from ganeti.cmdlib import prereq
from ganeti.cmdlib.ops.disks import specs
from ganeti.cmdlib.ops.install import operating_system
from ganeti.cmdlib.ops.nics import communication
from ganeti.cmdlib.ops.nics import specs as nics
from ganeti.cmdlib.ops.params import instance as params
from ganeti.cmdlib.ops.params import os
from ganeti.cmdlib.ops.placement.new_instance import NewInstanceUnit
from ganeti.cmdlib.ops.policy import instance as policy
from ganeti.cmdlib.ops.policy import ratios
from ganeti.constants.disk import DRBD8
from ganeti.constants.instance import CREATE
from ganeti.objects import Node, fill, hypervisors
from ganeti.objects.disk_templates import FILE_BASED, INSTANCE_DEPENDENT_PATH


@dataclass(frozen=True, slots=True)
class NewInstanceParameters:
    """Checked parameters of the new instance.

    :ivar hvparams: its own hypervisor parameters; ``hvparams_filled`` with all defaults.
    :ivar beparams: its own backend parameters; ``beparams_filled`` with all defaults.
    :ivar osparams: OS parameters for the scripts of the OS definition, of all visibilities.
    :ivar os_parameters: all with their visibility: name -> [value, visibility].
    :ivar image: path or address of the image which is written instead of running the scripts;
        empty for none.
    """

    hvparams: dict[str, Any]
    hvparams_filled: dict[str, Any]
    beparams: dict[str, Any]
    beparams_filled: dict[str, Any]
    osparams: dict[str, Any]
    os_parameters: dict[str, list[str]]
    image: str


@dataclass(frozen=True, slots=True)
class CreatePlan:
    """The instance as it will be, with complete parameters for checks and hooks.

    :ivar disk_specs: the disks as dictionaries, checked and completed, sizes in MiB.
    :ivar disk_directory: directory of the disk files on the nodes; None for other disks.
    :ivar helper: how an untrusted OS will be installed; None for a trusted one.
    """

    node: Node
    secondary: Node | None
    hypervisor: str
    disk_template: str
    disk_specs: list[specs.DiskSpec]
    disk_directory: str | None
    nics: list[nics.PlannedNic]
    parameters: NewInstanceParameters
    helper: operating_system.HelperInstallation | None

    @property
    def nodes(self) -> list[Node]:
        """The nodes it will be on, the primary first."""
        return [self.node, *([self.secondary] if self.secondary else [])]

    @property
    def adopts(self) -> bool:
        """Whether existing disks are adopted; their content stays, so nothing is installed."""
        return any(spec.get("adopt") for spec in self.disk_specs)


def checked_parameters(unit: NewInstanceUnit[CreatePlan]) -> NewInstanceParameters:
    """Check backend, hypervisor and OS parameters as far as possible without a node.

    :raises errors.OpPrereqError: one is unknown, has a wrong type or value, or contradicts another.
    """
    op, cluster = unit.op, unit.config.cluster()
    beparams = params.checked_beparams(op.beparams)
    beparams_filled = fill.fill_be(cluster, beparams)
    params.require_sane_backend(beparams_filled)
    hvparams = params.checked_hvparams(unit.hypervisor, op.hvparams)
    hvparams_filled = fill.fill_hv(cluster, unit.hypervisor, op.os_type, hvparams)
    params.require_hv_syntax(unit.hypervisor, hvparams_filled)
    os_name = op.os_type or ""
    given = (op.osparams, op.osparams_private or {}, op.osparams_secret or {})
    osparams, image = os.for_installation(cluster, os_name, *given)
    return NewInstanceParameters(
        hvparams=hvparams,
        hvparams_filled=hvparams_filled,
        beparams=beparams,
        beparams_filled=beparams_filled,
        osparams=osparams,
        os_parameters=operating_system.visible_parameters(unit.config, os_name, *given),
        image=image,
    )


def require_ports(unit: NewInstanceUnit[CreatePlan], disk_count: int) -> None:
    """Check that ports are free for the console and the mirrored disks of the new instance.

    A reservation has its ports.

    :raises errors.OpPrereqError: they are not.
    """
    if unit.reserved is None:
        console = hypervisors.of(unit.hypervisor).needs_port
        unit.config.require_ports(int(console) + (disk_count if unit.template == DRBD8 else 0))


def disk_directory(unit: NewInstanceUnit[CreatePlan]) -> str | None:
    """Return the directory of the disk files of the new instance.

    The result is None for disks of other templates.

    A file driver is accepted for every template, because programs such as the burn-in tool of
    Ganeti always send one.

    :raises errors.OpPrereqError: the directory is not allowed, or a directory is given for disks
        which are not files.
    """
    op = unit.op
    if unit.template in INSTANCE_DEPENDENT_PATH:
        return specs.file_directory(unit.config, unit.template, op.file_storage_dir, unit.name)
    if op.file_storage_dir:
        raise errors.OpPrereqError(
            f"disk template {unit.template} does not use a file storage directory",
            errors.ECODE_INVAL,
        )
    if op.file_driver and unit.template not in FILE_BASED:
        unit.log.info(
            f"file driver {op.file_driver} has no effect on disk template {unit.template}"
        )
    return None


def planned_nics(unit: NewInstanceUnit[CreatePlan]) -> list[nics.PlannedNic]:
    """Return the NICs of the new instance: those of its reservation, else those given.

    One for communication with the node is added if it is wanted. Which addresses the NICs get is
    decided later, when the node is known (:func:`ganeti.cmdlib.ops.nics.specs.settle`).

    :raises errors.OpPrereqError: a parameter is wrong, or an address is in use.
    """
    op = unit.op
    wanted = list(op.nics)
    kept = nics.reserved_nics(unit.config, unit.reserved) if not wanted else []
    communicates = any(p.nic.name == communication.nic_name(unit.name) for p in kept)
    if op.instance_communication and not communicates:
        wanted.append(communication.nic_spec(unit.config, unit.name))
    return [*kept, *nics.plan_nics(unit.config, wanted, unit.ip, reserved=unit.reserved)]


def check_policy(
    unit: NewInstanceUnit[CreatePlan],
    nodes: Sequence[Node],
    parameters: NewInstanceParameters,
    disk_specs: list[specs.DiskSpec],
    nic_count: int,
) -> Mapping[str, Any]:
    """Compare the instance with the policy of its nodes' group, and with their ratios.

    :param nodes: its nodes, the primary node first.

    :returns: what the hypervisor of the primary node reports.
    :raises errors.OpPrereqError: it violates the policy, and the user does not ignore that.
    """
    found = policy.violations(
        unit.config,
        nodes[0],
        beparams=parameters.beparams_filled,
        disk_sizes_mib=policy.counted_sizes(
            unit.hypervisor,
            lambda: parameters.hvparams_filled,
            ((spec["name"], spec["size"]) for spec in disk_specs),
        ),
        nic_count=nic_count,
        disk_template=unit.template,
    )
    override = policy.Override(unit.op.ignore_ipolicy, unit.op.OP_ID)
    policy.refuse(unit.config, unit.log, unit.name, nodes[0], found, override)
    # The allocator has asked the nodes a moment ago, under the same locks.
    facts = unit.facts.get(nodes[0].uuid) or prereq.node_facts(
        unit.rpc, nodes[0].uuid, unit.hypervisor, parameters.hvparams_filled
    )
    for position, node in enumerate(nodes):
        own = ratios.use_of(parameters.beparams_filled, unit.template, primary=position == 0)
        reserved = None if unit.reserved is None else unit.reserved.uuid
        ratios.require(
            unit.config,
            unit.log,
            unit.name,
            node,
            own,
            override=override,
            facts=facts,
            without=reserved,
        )
    return facts


def checked_installation(
    unit: NewInstanceUnit[CreatePlan],
    node: Node,
    parameters: NewInstanceParameters,
    present_nics: list[nics.PlannedNic],
) -> operating_system.HelperInstallation | None:
    """Check that the node can install the OS, or run the scripts of an imported one.

    :returns: how an untrusted OS will be installed; None if no helper guest is needed.
    :raises errors.OpPrereqError: the OS cannot be used on the node.
    """
    op = unit.op
    if op.os_type is None or op.no_install:
        return None
    if unit.imported is not None and not unit.imported.runs_scripts:
        return None
    if op.mode == CREATE:
        prereq.require_allowed_os(unit.config, op.os_type)
    wanted = prereq.WantedOs(op.os_type, parameters.osparams, op.force_variant)
    if op.mode == CREATE and not op.forthcoming and not parameters.image:
        return operating_system.require(
            unit.config,
            unit.rpc,
            node,
            unit.name,
            wanted,
            hypervisor=unit.hypervisor,
            present=present_nics,
            startup_s=op.helper_startup_timeout,
            shutdown_s=op.helper_shutdown_timeout,
        )
    prereq.require_os(unit.config, unit.rpc, node.uuid, wanted, hypervisor=unit.hypervisor)
    return None
