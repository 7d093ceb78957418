"""Parameters which opcodes of several subjects have, each with its text and its default."""

from __future__ import annotations

from ganeti import TYPE_CHECKING, ht
from ganeti.constants.instance import SHUTDOWN_TIMEOUT_S
from ganeti.opcodes import types
from ganeti.opcodes.base import param

if TYPE_CHECKING:
    from typing import Any

INSTANCE_NAME: Any = param(ht.Str, "Name of the instance")
INSTANCE_UUID: Any = param(
    types.MaybeString,
    "UUID of the instance; if given, the instance of this name must have it",
    default=None,
)
COMPRESS: Any = param(
    ht.Str, "Program which compresses the disk data during the transfer", default="none"
)
SHUTDOWN_TIMEOUT: Any = param(
    ht.NonNegInt,
    "Seconds which the guest has to shut down before it is stopped",
    default=SHUTDOWN_TIMEOUT_S,
)
IGNORE_REMOVE_FAILURES: Any = param(
    ht.Bool, "Go on if a part of the instance cannot be removed", default=False
)
FORCE: Any = param(ht.Bool, "Carry out the change although a check failed", default=False)
HV_STATE: Any = param(
    types.MaybeObject,
    "Resources of nodes, in place of those which the hypervisor reports",
    default=None,
)
DISK_STATE: Any = param(
    types.MaybeObject,
    "Resources of storage, in place of those which nodes report",
    default=None,
)
DISKPARAMS: Any = param(types.DiskParams, "Parameters per disk template", default=None)
NDPARAMS: Any = param(types.MaybeObject, "Node parameters", default=None)
IPOLICY: Any = param(types.MaybeObject, "Instance policy", default=None)
IS_STRICT: Any = param(
    ht.Bool,
    "Report an error for a node which does not answer, not only a warning",
    default=True,
)
GROUP_NAME: Any = param(ht.NonEmptyString, "Node group")
EARLY_RELEASE: Any = param(
    ht.Bool, "Release locks as soon as the new disks are in sync", default=False
)
ALLOCATOR: Any = param(types.MaybeString, "Allocator which chooses the nodes", default=None)
TARGET_GROUPS: Any = param(
    types.MaybeStrings, "Node groups to move to; any if not given", default=None
)
NEW_NAME: Any = param(ht.NonEmptyString, "New name")
IGNORE_IPOLICY: Any = param(
    ht.Bool, "Accept an instance which violates the instance policy of its group", default=False
)
DISK_TEMPLATE: Any = param(ht.Maybe(types.DiskTemplate), "Disk template", default=None)
GROUP_OF_INSTANCE: Any = param(
    types.MaybeString, "Node group to place the instance in", default=None
)
HYPERVISOR: Any = param(
    ht.Maybe(types.Hypervisor),
    "Hypervisor; the default of the cluster if not given",
    default=None,
)
OSPARAMS_SECRET: Any = param(
    types.SecretParams,
    "OS parameters which are not written to logs and never stored",
    default=None,
)
OS: Any = param(types.MaybeString, "Operating system", default=None)
TAGS: Any = param(types.Strings, "Tags", default=[])
TARGET_NODE: Any = param(
    types.MaybeString,
    "Target node, if several nodes have access to the disks",
    default=None,
)
TARGET_NODE_UUID: Any = param(
    types.MaybeString,
    "UUID of the target node, instead of its name or in addition to it",
    default=None,
)
MIGRATION_MODE: Any = param(
    ht.Maybe(types.MigrationMode),
    "live or non-live; the default of the hypervisor if not given",
    default=None,
)
LIVE: Any = param(
    ht.Maybe(ht.Bool),
    "True for mode live, False for non-live (older form of mode)",
    default=None,
)
ALLOW_RUNTIME_CHANGES: Any = param(
    ht.Bool, "Reduce the memory of the guest if the target node has too little", default=True
)
USE_LOCKING: Any = param(ht.Bool, "Wait for the locks of the objects first", default=False)
OUTPUT_FIELDS: Any = param(ht.FieldNames, "Names of the fields")
