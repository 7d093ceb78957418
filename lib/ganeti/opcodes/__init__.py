"""Declarations of all opcodes, the operations which the master carries out.

There is a module for each subject. A caller which knows its opcode imports that module (``from
ganeti.opcodes.instance import OpInstanceCreate``). A caller which has only a name or a dictionary,
like the LUXI server, uses :func:`lookup` and :func:`from_dict`, which import only the module they
need.
"""

from __future__ import annotations

from importlib import import_module

from ganeti import TYPE_CHECKING, errors

if TYPE_CHECKING:
    from typing import Any

    from ganeti.opcodes.base import OpCode

# Module -> OP_IDs without "OP_". The tests compare it with what the modules declare.
_SUBJECTS = {
    "backup": ("BACKUP_EXPORT", "BACKUP_PREPARE", "BACKUP_REMOVE"),
    "cluster": (
        "CLUSTER_ACTIVATE_MASTER_IP",
        "CLUSTER_CONFIG_QUERY",
        "CLUSTER_DEACTIVATE_MASTER_IP",
        "CLUSTER_DESTROY",
        "CLUSTER_POST_INIT",
        "CLUSTER_QUERY",
        "CLUSTER_REDIST_CONF",
        "CLUSTER_RENAME",
        "CLUSTER_RENEW_CRYPTO",
        "CLUSTER_REPAIR_DISK_SIZES",
        "CLUSTER_SET_PARAMS",
        "CLUSTER_VERIFY",
        "CLUSTER_VERIFY_CONFIG",
        "CLUSTER_VERIFY_DISKS",
        "CLUSTER_VERIFY_GROUP",
    ),
    "group": (
        "GROUP_ADD",
        "GROUP_ASSIGN_NODES",
        "GROUP_EVACUATE",
        "GROUP_REMOVE",
        "GROUP_RENAME",
        "GROUP_SET_PARAMS",
        "GROUP_VERIFY_DISKS",
    ),
    "instance": (
        "INSTANCE_ACTIVATE_DISKS",
        "INSTANCE_CHANGE_GROUP",
        "INSTANCE_CONSOLE",
        "INSTANCE_COPY",
        "INSTANCE_CREATE",
        "INSTANCE_DEACTIVATE_DISKS",
        "INSTANCE_FAILOVER",
        "INSTANCE_GROW_DISK",
        "INSTANCE_MIGRATE",
        "INSTANCE_MOVE",
        "INSTANCE_MULTI_ALLOC",
        "INSTANCE_QUERY_DATA",
        "INSTANCE_REBOOT",
        "INSTANCE_RECREATE_DISKS",
        "INSTANCE_REINSTALL",
        "INSTANCE_REMOVE",
        "INSTANCE_RENAME",
        "INSTANCE_REPLACE_DISKS",
        "INSTANCE_SET_PARAMS",
        "INSTANCE_SHUTDOWN",
        "INSTANCE_SNAPSHOT",
        "INSTANCE_SNAPSHOT_LIST",
        "INSTANCE_SNAPSHOT_REMOVE",
        "INSTANCE_SNAPSHOT_RESTORE",
        "INSTANCE_STARTUP",
    ),
    "misc": ("OOB_COMMAND", "RESTRICTED_COMMAND"),
    "network": (
        "NETWORK_ADD",
        "NETWORK_CONNECT",
        "NETWORK_DISCONNECT",
        "NETWORK_REMOVE",
        "NETWORK_RENAME",
        "NETWORK_SET_PARAMS",
    ),
    "node": (
        "NODE_ADD",
        "NODE_AUTO_FAILOVER",
        "NODE_EVACUATE",
        "NODE_MAINTENANCE_CHECK",
        "NODE_MAINTENANCE_END",
        "NODE_MAINTENANCE_START",
        "NODE_MIGRATE",
        "NODE_MODIFY_STORAGE",
        "NODE_POWERCYCLE",
        "NODE_QUERYVOLS",
        "NODE_QUERY_STORAGE",
        "NODE_REMOVE",
        "NODE_SET_PARAMS",
        "REPAIR_NODE_STORAGE",
    ),
    "os": ("EXT_STORAGE_DIAGNOSE", "OS_DIAGNOSE"),
    "query": ("QUERY", "QUERY_FIELDS"),
    "tags": ("TAGS_DEL", "TAGS_GET", "TAGS_SEARCH", "TAGS_SET"),
    "test": ("TEST_ALLOCATOR", "TEST_DELAY", "TEST_DUMMY", "TEST_JQUEUE", "TEST_OS_PARAMS"),
}
_MODULE_OF = {"OP_" + op: module for module, ops in _SUBJECTS.items() for op in ops}


def op_ids() -> tuple[str, ...]:
    """Return every OP_ID, sorted."""
    return tuple(sorted(_MODULE_OF))


def lookup(op_id: str) -> type[OpCode]:
    """Return the class of an opcode.

    :raises errors.OpCodeUnknown: no opcode has this OP_ID.
    """
    module = _MODULE_OF.get(op_id) if isinstance(op_id, str) else None
    if module is None:
        raise errors.OpCodeUnknown(f"there is no opcode {op_id!r}")
    class_name = "".join(word.capitalize() for word in op_id.split("_"))
    cls: type[OpCode] = getattr(import_module(f"ganeti.opcodes.{module}"), class_name)
    return cls


def from_dict(values: Any) -> OpCode:
    """Build an opcode from its serialised form. Only :meth:`OpCode.validate` checks the types.

    :raises errors.OpPrereqError: it is not a dictionary, has no OP_ID, or has an unknown key.
    :raises errors.OpCodeUnknown: no opcode has this OP_ID.
    """
    if not isinstance(values, dict):
        raise errors.OpPrereqError("an opcode must be a dictionary", errors.ECODE_INVAL)
    if "OP_ID" not in values:
        raise errors.OpPrereqError("an opcode must have a key OP_ID", errors.ECODE_INVAL)
    parameters = dict(values)
    return lookup(parameters.pop("OP_ID"))(**parameters)
