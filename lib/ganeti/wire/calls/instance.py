"""Calls about instances and their hypervisors."""

from __future__ import annotations

from ganeti import ht
from ganeti.objects.transfer import MigrationStatus
from ganeti.wire.calls.base import INSTANCE, PLAIN, Arg, Call, ObjectResult, ResultCodec

#: Instance as the hypervisor sees it; empty when it does not know it.
_INFO = ResultCodec(ht.DictOf(ht.NonEmptyString, ht.Any))
#: list of [source, text, nanoseconds]
_REASON = Arg("reason", PLAIN, ht.ListOf(ht.ListOf(ht.Any)))

#: -> list of instance names; a name twice when two hypervisors run it.
INSTANCE_LIST = Call(
    "instance_list",
    (
        Arg("hypervisors", PLAIN, ht.ListOf(ht.NonEmptyString)),
        Arg("hvparams", PLAIN, ht.DictOf(ht.NonEmptyString, ht.DictOf(ht.Str, ht.Any))),
    ),
    ResultCodec(ht.ListOf(ht.NonEmptyString)),
    timeout_s=60,
    many=True,
)
#: -> {} or {"memory": MiB, "state": 0 running / 1 shutdown, "time": s, "vcpus": n}
INSTANCE_INFO = Call(
    "instance_info",
    (
        Arg("instance_name", PLAIN, ht.NonEmptyString),
        Arg("hypervisor", PLAIN, ht.NonEmptyString),
        Arg("hvparams", PLAIN, ht.DictOf(ht.Str, ht.Any)),
    ),
    _INFO,
    timeout_s=60,
    keep=True,
)
#: -> dict of instance name -> as INSTANCE_INFO
ALL_INSTANCES_INFO = Call(
    "all_instances_info",
    (
        Arg("hypervisors", PLAIN, ht.ListOf(ht.NonEmptyString)),
        Arg("hvparams", PLAIN, ht.DictOf(ht.NonEmptyString, ht.DictOf(ht.Str, ht.Any))),
    ),
    ResultCodec(ht.DictOf(ht.NonEmptyString, ht.DictOf(ht.NonEmptyString, ht.Any))),
    timeout_s=60,
    many=True,
    keep=True,
)
#: Fails with the reason when the instance cannot be migrated.
INSTANCE_MIGRATABLE = Call(
    "instance_migratable", (Arg("instance", INSTANCE),), timeout_s=900, keep=True
)
#: ``instance`` may be (instance, hvparams, beparams): overrides for this start.
INSTANCE_START = Call(
    "instance_start",
    (
        Arg("instance", INSTANCE),
        Arg("startup_paused", PLAIN, ht.Bool),
        _REASON,
    ),
    timeout_s=900,
    keep=True,
)
#: ``timeout_s``: how long the guest may take to power itself down.
INSTANCE_SHUTDOWN = Call(
    "instance_shutdown",
    (
        Arg("instance", INSTANCE),
        Arg("timeout_s", PLAIN, ht.NonNegInt),
        _REASON,
    ),
    timeout_s=lambda args: 900.0 + args["timeout_s"],
    keep=True,
)
#: ``reboot_type``: soft or hard (a full one is made of shutdown and start by the master).
INSTANCE_REBOOT = Call(
    "instance_reboot",
    (
        Arg("instance", INSTANCE),
        Arg("reboot_type", PLAIN, ht.OneOf("reboot type", ("soft", "hard", "full"))),
        Arg("shutdown_timeout_s", PLAIN, ht.NonNegInt),
        _REASON,
    ),
    timeout_s=lambda args: 900.0 + args["shutdown_timeout_s"],
)
INSTANCE_BALLOON_MEMORY = Call(
    "instance_balloon_memory",
    (
        Arg("instance", INSTANCE),
        Arg("memory_mib", PLAIN, ht.NonNegInt),
    ),
    timeout_s=900,
)
#: On the source: -> what the target needs to accept the instance (hypervisor's own form).
MIGRATION_INFO = Call(
    "migration_info", (Arg("instance", INSTANCE),), ResultCodec(ht.Any), timeout_s=900, keep=True
)
#: On the target; ``info`` from MIGRATION_INFO, ``target`` the address to listen on.
ACCEPT_INSTANCE = Call(
    "accept_instance",
    (
        Arg("instance", INSTANCE),
        Arg("info"),
        Arg("target", PLAIN, ht.NonEmptyString),
    ),
    timeout_s=900,
    keep=True,
)
#: On the source: start sending the instance to the address ``target``; nothing when that goes on.
INSTANCE_MIGRATE = Call(
    "instance_migrate",
    (
        Arg("cluster_name", PLAIN, ht.NonEmptyString),
        Arg("instance", INSTANCE),
        Arg("target", PLAIN, ht.NonEmptyString),
        Arg("live", PLAIN, ht.Bool),
    ),
    timeout_s=3600,
    keep=True,
)
INSTANCE_GET_MIGRATION_STATUS = Call(
    "instance_get_migration_status",
    (Arg("instance", INSTANCE),),
    ObjectResult(MigrationStatus),
    timeout_s=3600,
    keep=True,
)
INSTANCE_FINALIZE_MIGRATION_SRC = Call(
    "instance_finalize_migration_src",
    (
        Arg("instance", INSTANCE),
        Arg("success", PLAIN, ht.Bool),
        Arg("live", PLAIN, ht.Bool),
    ),
    timeout_s=3600,
    keep=True,
)
INSTANCE_FINALIZE_MIGRATION_DST = Call(
    "instance_finalize_migration_dst",
    (
        Arg("instance", INSTANCE),
        Arg("info"),
        Arg("success", PLAIN, ht.Bool),
    ),
    timeout_s=900,
    keep=True,
)
#: ``hvparams`` filled; fails with the reason when this node cannot use them.
HYPERVISOR_VALIDATE_PARAMS = Call(
    "hypervisor_validate_params",
    (
        Arg("hypervisor", PLAIN, ht.NonEmptyString),
        Arg("hvparams", PLAIN, ht.DictOf(ht.Str, ht.Any)),
    ),
    timeout_s=900,
    many=True,
    keep=True,
)
