"""The opposite of a change of an instance and its disks: see :func:`opposite`."""

from __future__ import annotations

from ganeti import TYPE_CHECKING
from ganeti.cli.undo_steps import Opposite, back, describe, tags_back
from ganeti.constants.disk import MOD_ADD, MOD_ATTACH, MOD_DETACH, MOD_MODIFY, MOD_REMOVE
from ganeti.constants.net import VALUE_NONE

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    from ganeti.cli.undo_steps import Change, Known

_TABLES = ("beparams", "hvparams", "osparams")
_NIC_VALUES = ("mac", "ip", "ip6", "name")
_DISK_VALUES = ("mode", "name")
# How the plan names the parameters of an instance: as the results of jobs do.
_SHORT = {"beparams": "be", "hvparams": "hv", "osparams": "os", "os_name": "os"}
_HINTS = {
    "osparams_private": "its private OS parameters were changed; set them with 'gnt-instance modify"
    " --os-parameters-private'",
}


class InstanceChange:
    """What is known about the change of an instance.

    :ivar one: its opposite.
    :ivar disks: the changes of its disks, by UUID.
    :ivar converted: former template and nodes of disks which were converted; None if none was.
    :ivar later: which attributes of its disks were changed again since, by UUID.
    """

    def __init__(
        self,
        one: Opposite,
        known: Known,
        disks: Mapping[str, Change],
        later: Mapping[str, set[str]],
    ) -> None:
        self.one = one
        self.known = known
        self.disks = disks
        self.later = later
        self.target = {"instance_name": one.name}
        self.template, self.state, self._present = known.instance(one.name)
        self.converted = self._former_storage()

    def number(self, uuid: str) -> str:
        """Return the number which a disk has now; its UUID if the instance has lost it."""
        return str(self._present.index(uuid)) if uuid in self._present else uuid

    def of_disk(self, uuid: str, attribute: str) -> tuple[Any, Any] | None:
        """Return the old and the new value of an attribute of a disk; None if it is to stay."""
        change = self.disks.get(uuid)
        if change is None or change["what"] != "changed":
            return None
        if attribute not in {*change["old"], *change["new"]}:
            return None
        if attribute in self.later.get(uuid, ()):
            text = f"{attribute} of disk {self.number(uuid)} was changed again since"
            if text not in self.one.left:
                self.one.left.append(text)
            return None
        return change["old"].get(attribute), change["new"].get(attribute)

    def replaced(self) -> dict[str, str]:
        """Return the disks whose places others took, as a conversion does it: old and new UUID."""
        lists = [self.one.old.get("disks") or (), self.one.new.get("disks") or ()]
        return {
            old: new
            for old, new in zip(*lists, strict=False)
            if self._what(old) == "removed" and self._what(new) == "added"
        }

    def _what(self, uuid: str) -> str:
        return str(self.disks[uuid]["what"]) if uuid in self.disks else ""

    def _former_storage(self) -> tuple[str, list[str]] | None:
        """Return former template and nodes of disks which were converted; None if none was."""
        templates, nodes = self.first("dev_type"), self.first("nodes")
        if templates is not None:
            return templates[0], list((nodes or ((), ()))[0] or ())
        replaced = self.replaced() if "disks" in self.one.wanted else {}
        for old, new in replaced.items():
            before, after = self.disks[old]["old"], self.disks[new]["new"]
            if before["dev_type"] != after["dev_type"]:
                return before["dev_type"], list(before.get("nodes") or ())
        return None

    def first(self, attribute: str) -> tuple[Any, Any] | None:
        """Return the old and new value of an attribute which all disks share."""
        for uuid in self.disks:
            found = self.of_disk(uuid, attribute)
            if found is not None:
                return found
        return None


def opposite(change: InstanceChange) -> None:
    """Plan the opposite of a changed instance: what it was, where, and its name."""
    from ganeti.opcodes import instance as ops

    one = change.one
    tags_back(one)
    old_state, new_state = one.old.get("admin_state"), one.new.get("admin_state")
    to_state = old_state if one.take("admin_state") else None
    if to_state is not None and new_state == "up":
        one.add("stop it", ops.OpInstanceShutdown(**change.target, **one.common))
        change.state = "down"
    _parameters(change, to_state, new_state)
    _template(change)
    _place(change)
    if one.take("name"):
        former = one.old["name"]
        one.add(
            f"rename it to {former}",
            ops.OpInstanceRename(**change.target, new_name=former, name_check=False, **one.common),
        )
        change.target = {"instance_name": former}
    if to_state == "up":
        one.add("start it", ops.OpInstanceStartup(**change.target, **one.common))
    one.leave_the_rest(_HINTS)


def _parameters(change: InstanceChange, to_state: str | None, from_state: str | None) -> None:
    """Plan the change of parameters and devices, which one opcode makes."""
    from ganeti.opcodes.instance import OpInstanceSetParams

    one = change.one
    found: dict[str, Any] = {}
    if to_state == "offline" or (to_state is not None and from_state == "offline"):
        found["offline"] = to_state == "offline"
    if one.take("os"):
        found["os_name"] = one.old.get("os")
    other_hypervisor = one.take("hypervisor")
    if other_hypervisor:
        found["hypervisor"] = one.old["hypervisor"]
    for table in _TABLES:
        if one.take(table):
            old = one.old.get(table) or {}
            # Another hypervisor begins without parameters.
            fresh = other_hypervisor and table == "hvparams"
            found[table] = dict(old) if fresh else back(old, one.new.get(table))
    texts = [describe({_SHORT.get(key, key): value for key, value in found.items()})]
    texts = texts if found else []
    nics = _nics(change) if one.take("nics") else []
    disks = _disks(change)
    if not (found or nics or disks):
        return
    texts += [text for text, _ in (*nics, *disks)]
    one.add(
        "; ".join(texts),
        OpInstanceSetParams(
            **change.target,
            **found,
            nics=[row for _, row in nics],
            disks=[row for _, row in disks],
            **one.common,
        ),
    )


def _nics(change: InstanceChange) -> list[tuple[str, list[Any]]]:
    """Return the changes of NICs: a text for users, and what the opcode has."""
    old: Sequence[Mapping[str, Any]] = change.one.old.get("nics") or ()
    new: Sequence[Mapping[str, Any]] = change.one.new.get("nics") or ()
    before = {nic["uuid"]: nic for nic in old}
    after = {nic["uuid"]: (number, nic) for number, nic in enumerate(new)}
    rows: list[tuple[str, list[Any]]] = []
    for uuid, (number, nic) in after.items():
        if uuid not in before:
            text = f"remove network interface {number} ({nic['mac']})"
            rows.append((text, [MOD_REMOVE, uuid, {}]))
            continue
        params = _nic_params(change, before[uuid], nic)
        if params:
            text = f"{describe(params)} of network interface {number}"
            rows.append((text, [MOD_MODIFY, uuid, params]))
    for number, nic in enumerate(old):
        if nic["uuid"] not in after:
            text = f"add network interface {number} ({nic['mac']}) again"
            rows.append((text, [MOD_ADD, number, _nic_params(change, nic, {})]))
    return rows


def _nic_params(
    change: InstanceChange, old: Mapping[str, Any], new: Mapping[str, Any]
) -> dict[str, str]:
    """Return the parameters which make a NIC the old one.

    :param new: empty for a NIC which is to be added.
    """
    found: dict[str, str] = {}
    for key in _NIC_VALUES:
        if old.get(key) != new.get(key):
            found[key] = old.get(key) or VALUE_NONE
    if old.get("network") != new.get("network"):
        name = VALUE_NONE
        if old.get("network"):
            found_name = change.known.name("networks", old["network"])
            if found_name is None:
                change.one.left.append("a network of its network interfaces is gone")
            name = found_name or VALUE_NONE
        found["network"] = name
    if not old.get("network"):
        # The network determines the others.
        params = back(old.get("nicparams"), new.get("nicparams"))
        found.update({key: str(value) for key, value in params.items()})
    return found


def _disks(change: InstanceChange) -> list[tuple[str, list[Any]]]:
    """Return the changes of disks: a text for users, and what the opcode has."""
    one = change.one
    rows: list[tuple[str, list[Any]]] = []
    if one.take("disks"):
        rows += _other_disks(change, one.old.get("disks") or (), one.new.get("disks") or ())
    for uuid in change.disks:
        shown = change.number(uuid)
        params = {}
        for key in _DISK_VALUES:
            values = change.of_disk(uuid, key)
            if values is not None:
                params[key] = values[0] or VALUE_NONE
        if params:
            rows.append((f"{describe(params)} of disk {shown}", [MOD_MODIFY, uuid, params]))
        sizes = change.of_disk(uuid, "size")
        if sizes is not None:
            one.left.append(
                f"disk {shown} grew from {sizes[0]} to {sizes[1]} MiB, and does not become smaller"
            )
        if change.of_disk(uuid, "params") is not None:
            one.left.append(f"no job brings the former parameters of disk {shown} back")
    return rows


def _other_disks(
    change: InstanceChange, old: Sequence[str], new: Sequence[str]
) -> list[tuple[str, list[Any]]]:
    rows: list[tuple[str, list[Any]]] = []
    replaced = change.replaced()
    if replaced and change.converted is None:
        change.one.left.append("its disks were made anew; their former data is gone")
    for number, uuid in enumerate(new):
        if uuid in old or uuid in replaced.values():
            continue
        if uuid in change.disks and change.disks[uuid]["what"] == "added":
            rows.append((f"remove disk {number} and destroy its data", [MOD_REMOVE, uuid, {}]))
        else:
            rows.append((f"detach disk {number}, which is kept", [MOD_DETACH, uuid, {}]))
    for number, uuid in enumerate(old):
        if uuid in new or uuid in replaced:
            continue
        if uuid in change.disks and change.disks[uuid]["what"] == "removed":
            size = (change.disks[uuid]["old"] or {}).get("size")
            change.one.left.append(
                f"disk {number} ({size} MiB) was removed, and its data with it. A new, empty disk:"
                f" gnt-instance modify --disk {number}:add:size={size}M {change.one.name}"
            )
        else:
            rows.append((f"attach disk {number} again", [MOD_ATTACH, number, {"uuid": uuid}]))
    return rows


def _template(change: InstanceChange) -> None:
    """Plan the conversion of the disks to their former template."""
    from ganeti.opcodes.instance import OpInstanceSetParams

    if change.converted is None:
        return
    template, nodes = change.converted
    params = {"disk_template": template}
    if len(nodes) == 2:
        name = change.known.name("nodes", nodes[1])
        if name is None:
            change.one.left.append("its former secondary node is not in the cluster any more")
            return
        params["remote_node"] = name
    change.one.add(
        f"convert its disks to {template} again (it has to be stopped)",
        OpInstanceSetParams(**change.target, **params, **change.one.common),
    )
    change.template = template


def _place(change: InstanceChange) -> None:
    """Plan the moves which bring the instance and its replicas back to their nodes."""
    from ganeti.objects.disk_templates import INT_MIRRORED

    one = change.one
    moved = one.take("primary_node")
    old_primary, primary = one.old.get("primary_node"), one.new.get("primary_node")
    nodes = change.first("nodes")
    if nodes is None or change.converted is not None or change.template not in INT_MIRRORED:
        if moved:
            _to_node(change, old_primary)
        return
    old, new = list(nodes[0] or ()), list(nodes[1] or ())
    gone = [uuid for uuid in old if uuid not in new]
    if len(gone) > 1:
        one.left.append("both of its nodes were changed; use 'gnt-instance replace-disks'")
        return
    if gone and moved and primary not in old:
        _to_node(change, next(uuid for uuid in old if uuid in new))
        primary = next(uuid for uuid in old if uuid in new)
    if gone:
        _new_secondary(change, gone[0])
    if moved and primary != old_primary:
        _to_node(change, old_primary)


def _new_secondary(change: InstanceChange, uuid: str) -> None:
    from ganeti.constants.disk import REPLACE_NEW_SECONDARY
    from ganeti.opcodes.instance import OpInstanceReplaceDisks

    name = change.known.name("nodes", uuid)
    if name is None:
        change.one.left.append("its former secondary node is not in the cluster any more")
        return
    change.one.add(
        f"mirror its disks to {name} again",
        OpInstanceReplaceDisks(
            **change.target, mode=REPLACE_NEW_SECONDARY, remote_node=name, **change.one.common
        ),
    )


def _to_node(change: InstanceChange, uuid: str | None) -> None:
    """Plan to move the instance to a node, as its disks allow it."""
    from ganeti.objects.disk_templates import COPYABLE, EXT_MIRRORED
    from ganeti.opcodes import instance as ops

    one = change.one
    node = change.known.name("nodes", uuid or "")
    if node is None:
        one.left.append("its former primary node is not in the cluster any more")
        return
    # A mirrored instance has only one other node.
    where = {"target_node": node} if change.template in EXT_MIRRORED else {}
    if change.template in COPYABLE:
        one.add(
            f"move it back to {node}, with its disks (it is stopped meanwhile)",
            ops.OpInstanceMove(**change.target, target_node=node, **one.common),
        )
    elif change.state == "up":
        one.add(
            f"migrate it back to {node}",
            ops.OpInstanceMigrate(**change.target, **where, allow_failover=True, **one.common),
        )
    else:
        one.add(
            f"fail it over to {node}",
            ops.OpInstanceFailover(**change.target, **where, **one.common),
        )
