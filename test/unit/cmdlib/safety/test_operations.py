"""Which opcodes destroy or promote a replica is found in the code, and compared with a list.

A logical unit destroys or promotes when it can reach one of the node calls in :data:`DANGEROUS`:
its class, and all that it names, are followed through :mod:`ganeti.cmdlib`. What is only named
counts as used, so nothing is missed that is not hidden in a string. A new unit or a new node call
makes a test here fail, which names it: then it belongs into one of the lists, and the operation
into :mod:`fakes.replica_operations`.
"""

from __future__ import annotations

import ast
import functools
import importlib
import pkgutil
from pathlib import Path
from typing import NamedTuple

import ganeti.wire.calls
from fakes.replica_operations import OPERATIONS
from ganeti import cmdlib
from ganeti.wire.calls.base import Call

LIB = Path(cmdlib.__file__).resolve().parents[2]

#: Node calls which make a replica writable, write to it, or give it up.
DANGEROUS = {
    "ACCEPT_INSTANCE",
    "BLOCKDEV_ADDCHILDREN",
    "BLOCKDEV_ASSEMBLE",
    "BLOCKDEV_ASSEMBLE_MULTI",
    "BLOCKDEV_CONVERT",
    "BLOCKDEV_CREATE",
    "BLOCKDEV_CREATE_MULTI",
    "BLOCKDEV_GROW",
    "BLOCKDEV_IMAGE",
    "BLOCKDEV_OPEN",
    "BLOCKDEV_REMOVE",
    "BLOCKDEV_REMOVE_MULTI",
    "BLOCKDEV_REMOVECHILDREN",
    "BLOCKDEV_RENAME",
    "BLOCKDEV_SNAPSHOT",
    "BLOCKDEV_SNAPSHOT_KEEP",
    "BLOCKDEV_SNAPSHOT_RESTORE",
    "BLOCKDEV_WIPE",
    "DRBD_ATTACH_NET",
    "FILE_STORAGE_DIR_REMOVE",
    "FILE_STORAGE_DIR_RENAME",
    "HELPER_START",
    "HOTPLUG_DEVICE",
    "IMPORT_START",
    "INSTANCE_CONTINUE",
    "INSTANCE_FINALIZE_MIGRATION_DST",
    "INSTANCE_MIGRATE",
    "INSTANCE_OS_ADD",
    "INSTANCE_REBOOT",
    "INSTANCE_RUN_RENAME",
    "INSTANCE_START",
    "STORAGE_EXECUTE",
}

#: The others, which do not change what a replica has, and let nobody write to it; besides all of
#: :mod:`ganeti.wire.calls.cluster`, which is about the master, certificates and jobs.
HARMLESS = {
    # They ask.
    "ALL_INSTANCES_INFO",
    "BDEV_SIZES",
    "BLOCKDEV_FIND",
    "BLOCKDEV_FIND_MULTI",
    "BLOCKDEV_GETDIMENSIONS",
    "BLOCKDEV_GETMIRRORSTATUS",
    "CONSOLE_LOG_READ",
    "GUEST_DETAILS",
    "GUESTS_USAGE",
    "BLOCKDEV_GETMIRRORSTATUS_MULTI",
    "BLOCKDEV_REACHABLE_MULTI",
    "BLOCKDEV_SNAPSHOT_LIST",
    "BRIDGES_EXIST",
    "DIRECTORY_MARK",
    "DIRECTORY_SPACE",
    "DIRECTORY_SEEN",
    "DIRECTORY_UNMARK",
    "DRBD_HELPER",
    "DRBD_NEEDS_ACTIVATION",
    "DRBD_WAITING",
    "DRBD_WAIT_SYNC",
    "EXPORT_FIND",
    "EXPORT_INFO",
    "EXPORT_DETAILS",
    "EXPORT_LIST",
    "EXPORT_SIZES",
    "EXTSTORAGE_DIAGNOSE",
    "GET_WATCHER_PAUSE",
    "HELPER_STATUS",
    "HOOKS_PRESENT",
    "HOTPLUG_SUPPORTED",
    "HYPERVISOR_VALIDATE_PARAMS",
    "IMPEXP_STATUS",
    "INSTANCE_GET_MIGRATION_STATUS",
    "INSTANCE_INFO",
    "INSTANCE_LIST",
    "INSTANCE_MIGRATABLE",
    "LV_LIST",
    "MIGRATION_INFO",
    "NODE_HAS_IP_ADDRESS",
    "NODE_INFO",
    "NODE_VERIFY",
    "NODE_VERIFY_LIGHT",
    "NODE_VOLUMES",
    "NODE_WORK",
    "OS_DIAGNOSE",
    "OS_VALIDATE",
    "STORAGE_LIST",
    "VERSION",
    "VG_LIST",
    # They end the use of a disk, or stop a guest.
    "BLOCKDEV_CLOSE",
    "BLOCKDEV_SHUTDOWN",
    "BLOCKDEV_SHUTDOWN_MULTI",
    "DRBD_DISCONNECT_NET",
    "HELPER_STOP",
    "INSTANCE_FINALIZE_MIGRATION_SRC",
    "INSTANCE_SHUTDOWN",
    # They read a disk, or are about copies which exports are.
    "EXPORT_REMOVE",
    "EXPORT_START",
    "FINALIZE_EXPORT",
    "IMPEXP_ABORT",
    "IMPEXP_CLEANUP",
    # They choose when writes are confirmed; the master records before which replica misses them.
    "DRBD_RESUME_IO",
    "DRBD_WAIT_FOR_PEER",
    "DRBD_WRITE_ALONE",
    # They have to do with disks or guests, but not with their content.
    "BLOCKDEV_PAUSE_RESUME_SYNC",
    "BLOCKDEV_SETINFO",
    "BLOCKDEV_SETINFO_MULTI",
    "FILE_STORAGE_DIR_CREATE",
    "INSTANCE_BALLOON_MEMORY",
    "INSTANCE_LIMIT_PROCESSORS",
    "INSTANCE_METADATA_MODIFY",
    "STORAGE_MODIFY",
    # They have nothing to do with disks.
    "HOOKS_RUNNER",
    "MASTER_STATUS",
    "NODE_CHANGE_MASTER_NETMASK",
    "NODE_CONFIGURE_OVS",
    "NODE_POWERCYCLE",
    "RESTRICTED_COMMAND",
    "RUN_OOB",
    "SET_WATCHER_PAUSE",
    "TEST_DELAY",
    "WATCHDOG_RELEASE",
    "WATCHDOG_STATUS",
    "WITNESS_READ",
    "UPLOAD_FILE",
    "UPLOAD_FILE_SINGLE",
    "X509_CERT_CREATE",
    "X509_CERT_REMOVE",
    # It removes a log.
    "CONSOLE_LOG_REMOVE",
}

#: Opcodes which reach a dangerous call, but are not tried in every state, and why.
NOT_TRIED = {
    "OP_INSTANCE_COPY": "the disks of the copy are new, and the source is only read",
    "OP_INSTANCE_CREATE": "its disks are new, and have names which no volume had before",
    "OP_INSTANCE_MOVE": "its disks have one replica only, see test_one_replica.py",
}

#: Opcodes which submit jobs that destroy or promote; the opcodes in these jobs are tried.
SUBMIT = {
    "OP_GROUP_EVACUATE",
    "OP_INSTANCE_CHANGE_GROUP",
    "OP_INSTANCE_MULTI_ALLOC",
    "OP_NODE_AUTO_FAILOVER",
    "OP_NODE_EVACUATE",
    "OP_NODE_MAINTENANCE_END",
    "OP_NODE_MAINTENANCE_START",
    "OP_NODE_MIGRATE",
}

Place = tuple[str, str]  # module, name in it

#: It submits a job without the result of an opcode.
SELF_REPAIR = ("ganeti.cmdlib.ops.verify.self_repair", "_submit")


@functools.cache
def wire_calls() -> frozenset[str]:
    names = set()
    for info in pkgutil.iter_modules(ganeti.wire.calls.__path__, "ganeti.wire.calls."):
        names |= calls_in(info.name)
    return frozenset(names)


def calls_in(module_name: str) -> set[str]:
    found = vars(importlib.import_module(module_name))
    return {name for name, value in found.items() if isinstance(value, Call)}


class Module:
    """What the names in a module stand for, and what is defined there."""

    def __init__(self, name: str) -> None:
        path = LIB / name.replace(".", "/")
        file = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
        self.name = name
        self.tree = ast.parse(file.read_text(encoding="utf-8"))
        self.defined: dict[str, ast.AST] = {}
        for node in self.tree.body:
            if isinstance(node, ast.FunctionDef | ast.ClassDef):
                self.defined[node.name] = node
            elif isinstance(node, ast.Assign | ast.AnnAssign):
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                for target in targets:
                    if isinstance(target, ast.Name):
                        self.defined[target.id] = node
        self.imported: dict[str, Place] = {}
        for node in ast.walk(self.tree):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("ganeti"):
                for alias in node.names:
                    self.imported[alias.asname or alias.name] = (node.module or "", alias.name)


@functools.cache
def module(name: str) -> Module:
    return Module(name)


def is_module(name: str) -> bool:
    path = LIB / name.replace(".", "/")
    return path.is_dir() or path.with_suffix(".py").exists()


def followed(name: str) -> bool:
    """Whether calls may be hidden there: everything which makes node calls for logical units."""
    return name.startswith(("ganeti.cmdlib", "ganeti.allocator"))


def named_in(place: Place) -> set[Place]:
    """What a function or class names: places, node calls as ``("call", name)``, and opcodes as
    ``("opcode", id)``."""
    where = module(place[0])
    found: set[Place] = set()
    if place[1] not in where.defined:
        if place[1] in where.imported:  # passed on by a package
            found |= resolved(*where.imported[place[1]])
        return found
    for node in ast.walk(where.defined[place[1]]):
        if isinstance(node, ast.Name):
            if node.id in where.defined:
                found.add((where.name, node.id))
            elif node.id in where.imported:
                found |= resolved(*where.imported[node.id])
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            origin = where.imported.get(node.value.id)
            if origin is not None and is_module(".".join(origin)):
                found |= resolved(".".join(origin), node.attr)
    return found


def resolved(where: str, name: str) -> set[Place]:
    if where.startswith("ganeti.wire.calls"):
        return {("call", name)} if name in wire_calls() else set()
    if where.startswith("ganeti.opcodes."):
        opcode = getattr(getattr(importlib.import_module(where), name, None), "OP_ID", None)
        return {("opcode", opcode)} if opcode else set()
    return {(where, name)} if followed(where) and not is_module(f"{where}.{name}") else set()


class Reached(NamedTuple):
    """What a logical unit can reach.

    :ivar submits: it can submit jobs.
    """

    calls: frozenset[str]
    opcodes: frozenset[str]
    submits: bool


def followed_from(start: Place) -> Reached:
    seen, left = {start}, [start]
    while left:
        place = left.pop()
        if place[0] not in ("call", "opcode"):
            new = named_in(place) - seen
            seen |= new
            left += new
    return Reached(
        frozenset(name for kind, name in seen if kind == "call"),
        frozenset(name for kind, name in seen if kind == "opcode"),
        bool(seen & {("ganeti.cmdlib.base", "ResultWithJobs"), SELF_REPAIR}),
    )


@functools.cache
def reached() -> dict[str, Reached]:
    """What the logical unit of each opcode can reach."""
    found = {}
    for path in sorted((LIB / "ganeti/cmdlib").rglob("*.py")):
        name = ".".join(path.relative_to(LIB).with_suffix("").parts).removesuffix(".__init__")
        for node in module(name).tree.body:
            if not isinstance(node, ast.ClassDef):
                continue
            for decorator in node.decorator_list:
                if isinstance(decorator, ast.Call) and ast.unparse(decorator.func) == "executes":
                    ((_kind, opcode),) = resolved(
                        *module(name).imported[ast.unparse(decorator.args[0])]
                    )
                    found[opcode] = followed_from((name, node.name))
    return found


def dangerous() -> dict[str, list[str]]:
    """Opcode to the dangerous node calls which its unit can reach."""
    found = {opcode: sorted(one.calls & DANGEROUS) for opcode, one in reached().items()}
    return {opcode: calls for opcode, calls in found.items() if calls}


def tried() -> set[str]:
    """The opcodes of all operations."""
    return {op.OP_ID for operation in OPERATIONS.values() for op in operation.make()}


def test_each_node_call_is_known_to_be_dangerous_or_harmless() -> None:
    assert not DANGEROUS & HARMLESS
    new = wire_calls() - DANGEROUS - HARMLESS - calls_in("ganeti.wire.calls.cluster")
    assert not new, f"do these destroy or promote a replica? {sorted(new)}"
    assert DANGEROUS | HARMLESS <= wire_calls(), "these calls do not exist any more"


def test_each_opcode_which_destroys_or_promotes_is_tried() -> None:
    new = {
        opcode: calls
        for opcode, calls in dangerous().items()
        if opcode not in tried() and opcode not in NOT_TRIED
    }
    assert not new, f"these opcodes destroy or promote, but are not tried in every state: {new}"
    needless = {opcode for opcode in NOT_TRIED if opcode not in dangerous() or opcode in tried()}
    assert not needless, f"no reason is needed for {needless}"


def test_the_calls_are_found_through_the_code() -> None:
    """The way is long: from the unit through the failover to the start of a guest."""
    found = dangerous()
    assert {"BLOCKDEV_ASSEMBLE_MULTI", "INSTANCE_START"} <= set(found["OP_INSTANCE_FAILOVER"])
    assert "BLOCKDEV_REMOVE_MULTI" in found["OP_INSTANCE_REPLACE_DISKS"]
    assert "BLOCKDEV_REMOVE" in found["OP_BACKUP_EXPORT"]
    assert "OP_CLUSTER_CONFIG_QUERY" not in found


def test_jobs_which_destroy_or_promote_have_opcodes_which_are_tried() -> None:
    """Those which an allocator wants are the same: migrations, failovers, replacements."""
    submitting = {
        opcode: (one.opcodes - {opcode}) & dangerous().keys()
        for opcode, one in reached().items()
        if one.submits and ("IALLOCATOR_RUNNER" in one.calls or one.opcodes & dangerous().keys())
    }
    assert submitting.keys() == SUBMIT
    for opcode, submitted in submitting.items():
        assert submitted <= tried() | NOT_TRIED.keys(), opcode
