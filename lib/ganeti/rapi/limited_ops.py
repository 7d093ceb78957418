"""Which opcodes a limited user may submit: on his instances, and without a way out of his limits.

:func:`check` finds the instances of each opcode, asks the limits, and puts full names and UUIDs
into it. What remains may name things of the cluster or of a node, which no right for some instances
covers: another instance's volume that is adopted, a file of the node that becomes a CD, options of
the program that runs the guest. So each opcode has a table of parameters which a limited user may
set; a new one is refused until somebody has thought about it.

An instance cannot leave the area of the right: after a change of its name or of its tags, the same
right must still cover it. A tag that gives rights to somebody, or counts for a quota, is added or
removed only by a user whose own right for this operation names that tag.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

from ganeti import opcodes
from ganeti.constants import disk as disk_const
from ganeti.constants import instance as instance_const
from ganeti.constants import tags as tags_const
from ganeti.http.messages import Refused
from ganeti.objects import hypervisors
from ganeti.opcodes.base import COMMON_PARAMS, OpCode
from ganeti.rapi import selectors
from ganeti.rapi.scope import NOT_COVERED, Limits
from ganeti.rapi.selectors import Facts


class _Rule(NamedTuple):
    """What a limited user may set in an opcode.

    :ivar params: besides those which all opcodes have, and the instance.
    :ivar nodes: parameters that name nodes, which need a right for the node group.
    """

    params: frozenset[str] = frozenset()
    nodes: tuple[str, ...] = ()


def _rule(params: str = "", nodes: str = "") -> _Rule:
    return _Rule(frozenset(params.split()), tuple(nodes.split()))


_MADE: Final = (
    "beparams compress conflicts_check disk_template disks exact_name"
    " explain force_variant group_name helper_shutdown_timeout helper_startup_timeout hvparams"
    " hypervisor iallocator instance_name ip_check mode name_check nics no_install os_type osparams"
    " osparams_private osparams_secret opportunistic_locking start tags wait_for_sync"
)
_RULES: Final[Mapping[str, _Rule]] = {
    "OP_INSTANCE_ACTIVATE_DISKS": _rule("wait_for_sync"),
    "OP_INSTANCE_COPY": _rule(
        "new_name snapshot_name disk_template disks nics iallocator group_name wait_for_sync"
        " name_check exact_name ip_check conflicts_check compress start explain",
        "pnode snode",
    ),
    "OP_INSTANCE_CREATE": _rule(_MADE, "pnode snode"),
    "OP_INSTANCE_DEACTIVATE_DISKS": _rule("force"),
    "OP_INSTANCE_FAILOVER": _rule(
        "shutdown_timeout cleanup iallocator wait_for_sync", "target_node new_secondary"
    ),
    "OP_INSTANCE_GROW_DISK": _rule("disk amount absolute wait_for_sync"),
    "OP_INSTANCE_MIGRATE": _rule(
        "mode live allow_runtime_changes cleanup iallocator allow_failover", "target_node"
    ),
    "OP_INSTANCE_MULTI_ALLOC": _rule("instances iallocator opportunistic_locking"),
    "OP_INSTANCE_QUERY_DATA": _rule("instances static with_guest use_locking"),
    "OP_INSTANCE_REBOOT": _rule("shutdown_timeout ignore_secondaries reboot_type"),
    "OP_INSTANCE_RECREATE_DISKS": _rule("disks iallocator", "nodes"),
    "OP_INSTANCE_REINSTALL": _rule(
        "force_variant os_type osparams osparams_private osparams_secret"
    ),
    "OP_INSTANCE_REMOVE": _rule("shutdown_timeout"),
    "OP_INSTANCE_RENAME": _rule("new_name name_check exact_name ip_check"),
    "OP_INSTANCE_REPLACE_DISKS": _rule("early_release mode disks iallocator", "remote_node"),
    "OP_INSTANCE_SET_PARAMS": _rule(
        "force force_variant nics disks beparams runtime_mem hvparams hypervisor disk_template"
        " iallocator os_name osparams osparams_private wait_for_sync offline conflicts_check"
        " hotplug",
        "remote_node",
    ),
    "OP_INSTANCE_SHUTDOWN": _rule("force timeout no_remember admin_state_source"),
    "OP_INSTANCE_SNAPSHOT": _rule("snapshot_name disks shutdown shutdown_timeout"),
    "OP_INSTANCE_SNAPSHOT_LIST": _rule("instances"),
    "OP_INSTANCE_SNAPSHOT_REMOVE": _rule("snapshot_name"),
    "OP_INSTANCE_SNAPSHOT_RESTORE": _rule("snapshot_name"),
    "OP_INSTANCE_STARTUP": _rule(
        "force no_remember startup_paused shutdown_timeout wanted_only continue_paused"
    ),
    "OP_TAGS_DEL": _rule("kind name tags"),
    "OP_TAGS_SET": _rule("kind name tags"),
}
_OF_INSTANCE: Final = frozenset({"instance_name", "instance_uuid"})
_NIC_KEYS: Final = frozenset({"ip", "ip6", "mac", "name", "network"})
_DISK_KEYS: Final = frozenset({"mode", "name", "size", "spindles"})
_MAIN_ACTIONS: Final = (disk_const.MOD_ATTACH, disk_const.MOD_DETACH)
# The parameter of an OS definition that names a file of the node, or an address.
_IMAGE: Final = "os-image"
#: Beginnings of tags which programs of the cluster obey, or which say whose an instance is.
_KEPT_TAGS: Final = (selectors.OWNER_TAG, "ganeti:", "htools:")


async def check(limits: Limits, ops: Iterable[OpCode]) -> None:
    """Check the opcodes of one job, and put full names and UUIDs of instances into them.

    :raises Refused: 404 for an instance or a job which the user does not see, 403 for what he may
        not do.
    """
    for op in ops:
        rule = _RULES.get(op.OP_ID)
        if rule is None:
            raise Refused(403, NOT_COVERED)
        _check_params(op, rule)
        await _check_depends(limits, op)
        nodes = await _check_nodes(limits, op, rule)
        if op.OP_ID == "OP_INSTANCE_MULTI_ALLOC":
            await _check_several(limits, op)
        elif op.OP_ID == "OP_INSTANCE_CREATE":
            _check_new(limits, op, nodes)
        elif op.OP_ID in ("OP_TAGS_SET", "OP_TAGS_DEL"):
            await _check_tags(limits, op)
        elif "instances" in op.PARAMS:
            await _check_named(limits, op)
        else:
            await _check_existing(limits, op, nodes)


def _params(op: OpCode) -> dict[str, Any]:
    """Return the parameters that differ from their defaults."""
    found = {name: getattr(op, name) for name in op.PARAMS}
    return {name: value for name, value in found.items() if value != op.PARAMS[name].default}


def _check_params(op: OpCode, rule: _Rule) -> None:
    for name, value in _params(op).items():
        if name not in rule.params and name not in rule.nodes and name not in _OF_INSTANCE:
            if name not in COMMON_PARAMS:
                raise _needs_more(f"parameter '{name}'")
        elif name == "hvparams":
            _check_hvparams(value)
        elif name == "hypervisor":
            _check_hypervisor(value)
        elif name.startswith("osparams") and (value or {}).get(_IMAGE):
            raise _needs_more(f"OS parameter '{_IMAGE}'")
        elif name == "nics":
            _check_parts(value, "nic", _NIC_KEYS)
        elif name == "disks" and op.OP_ID != "OP_INSTANCE_REPLACE_DISKS":
            _check_parts(value, "disk", _DISK_KEYS)
    if getattr(op, "mode", None) not in (None, instance_const.CREATE) and (
        op.OP_ID == "OP_INSTANCE_CREATE"
    ):
        raise _needs_more("an import")


def _needs_more(what: str) -> Refused:
    return Refused(403, f"{what} needs a right for the whole cluster")


def _check_hvparams(given: Mapping[str, Any]) -> None:
    """Refuse parameters that name something of a node, for any hypervisor."""
    for name, value in given.items():
        for descriptor in hypervisors.ALL.values():
            parameter = descriptor.parameters.get(name)
            if parameter is not None and parameter.names_of_node(value):
                raise _needs_more(f"hypervisor parameter '{name}'")


def _check_hypervisor(name: str) -> None:
    """Refuse a hypervisor whose guests share the kernel of the node."""
    descriptor = hypervisors.ALL.get(name)
    if descriptor is not None and not descriptor.has_own_kernel:
        raise _needs_more(f"hypervisor '{name}'")


def _check_parts(parts: Any, what: str, allowed: frozenset[str]) -> None:
    """Check the parameters of disks or NICs, also of changes of them."""
    if isinstance(parts, str):
        return
    for part in parts:
        values = part
        if isinstance(part, (list, tuple)):
            if part and part[0] in _MAIN_ACTIONS:
                raise _needs_more(f"{part[0]} of a {what}")
            values = part[-1] if part else {}
        if not isinstance(values, Mapping):
            continue
        for name, value in values.items():
            if name not in allowed and value is not None:
                raise _needs_more(f"{what} parameter '{name}'")


async def _check_depends(limits: Limits, op: OpCode) -> None:
    """Check the jobs on which a job depends: its end would tell how they ended."""
    wanted = {one[0] for one in op.depends or () if isinstance(one[0], int) and one[0] > 0}
    seen = await limits.visible_jobs(sorted(wanted)) if wanted else []
    for number in sorted(wanted.difference(seen)):
        raise Refused(404, f"job {number} does not exist")


async def _check_nodes(limits: Limits, op: OpCode, rule: _Rule) -> frozenset[str] | None:
    """Return names of the group of the nodes which an opcode chooses; None if it chooses none."""
    groups: list[frozenset[str]] = []
    for name in rule.nodes:
        value = getattr(op, name)
        for node in [value] if isinstance(value, str) else value or ():
            groups.append(await limits.groups_of_node(node))
    return frozenset.intersection(*groups) if groups else None


def _check_new(
    limits: Limits,
    op: Any,
    nodes: frozenset[str] | None,
    base: Facts | None = None,
) -> None:
    """Check an instance which does not exist yet.

    :param base: the instance of which it will be a copy.
    """
    name = op.instance_name if base is None else op.new_name
    tags = set(op.tags) if base is None else set(base.tags)
    if base is None:
        own = selectors.owner_tag(limits.user.name)
        for tag in sorted(tags - {own}):
            _check_tag(limits, tag)
        op.tags = sorted({*tags, own})
        tags.add(own)
    groups = nodes if nodes is not None else frozenset(filter(None, [op.group_name]))
    facts = Facts(name, "", frozenset(tags), groups)
    if not limits.has(facts):
        raise Refused(
            403,
            f"user {limits.user.name} would have no right for instance {name}. Give the tag, the"
            f" node group or the name for which he has rights: {limits.area}.",
        )


async def _check_several(limits: Limits, op: Any) -> None:
    made = []
    for given in op.instances:
        one = opcodes.from_dict(dict(given)).validate()
        if one.OP_ID != "OP_INSTANCE_CREATE":
            raise Refused(403, NOT_COVERED)
        await check(limits, [one])
        made.append(one.to_dict())
    op.instances = made


async def _check_named(limits: Limits, op: Any) -> None:
    if not op.instances:
        # Without names, the opcode means all instances.
        raise Refused(403, NOT_COVERED)
    op.instances = [(await limits.require(name)).name for name in op.instances]


async def _check_existing(limits: Limits, op: Any, nodes: frozenset[str] | None) -> None:
    facts = await limits.require(op.instance_uuid or op.instance_name)
    op.instance_name, op.instance_uuid = facts.name, facts.uuid
    if op.OP_ID == "OP_INSTANCE_COPY":
        _check_new(limits, op, nodes, facts)
    if op.OP_ID == "OP_INSTANCE_RENAME":
        _require_stay(limits, facts, facts.changed(name=op.new_name))


async def _check_tags(limits: Limits, op: Any) -> None:
    if op.kind != tags_const.INSTANCE or not op.name:
        raise Refused(403, NOT_COVERED)
    facts = await limits.require(op.name)
    op.name = facts.name
    for tag in op.tags:
        _check_tag(limits, tag)
    if op.OP_ID == "OP_TAGS_DEL":
        _require_stay(limits, facts, facts.changed(less=op.tags))


def _check_tag(limits: Limits, tag: str) -> None:
    """Refuse a tag that decides over rights of others, or that programs of the cluster obey."""
    if tag.startswith(_KEPT_TAGS):
        raise _needs_more(f"tag '{tag}'")
    if tag in limits.special and not limits.own_tag(tag):
        raise Refused(
            403, f"tag '{tag}' gives rights to others, so you need a right for the tag itself"
        )


def _require_stay(limits: Limits, before: Facts, after: Facts) -> None:
    if not limits.has(after):
        raise Refused(
            403,
            f"instance {before.name} would no longer be among those for which you have this right",
        )
