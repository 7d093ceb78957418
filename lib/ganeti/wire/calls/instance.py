"""Node calls about instances: guests, migration, OS definitions, hotplug, helper guests."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType, NoneType
from typing import Any

from ganeti import ht
from ganeti.constants import metad as const
from ganeti.constants.net import (
    HOTPLUG_ACTION_ADD,
    HOTPLUG_ACTION_MODIFY,
    HOTPLUG_ACTION_REMOVE,
    HOTPLUG_TARGET_DISK,
    HOTPLUG_TARGET_NIC,
)
from ganeti.objects.transfer import MigrationStatus
from ganeti.wire.calls.base import (
    ALL_HVPARAMS,
    DEVICE,
    FACTS,
    HVPARAMS,
    INSTANCE,
    PLAIN,
    Arg,
    Call,
    ObjectResult,
    ResultCodec,
)


def _has_numbers(facts: dict[str, Any]) -> bool:
    """Tell whether memory, number of processors and time are numbers, where they are known."""
    return all(
        isinstance(facts.get(name, 0), (int, float, NoneType))
        for name in ("memory", "vcpus", "time")
    )


def _is_log_part(facts: dict[str, Any]) -> bool:
    """Tell whether this is a part of a log, or nothing."""
    return not facts or (
        isinstance(facts.get("text"), str)
        and isinstance(facts.get("position"), str)
        and isinstance(facts.get("lost"), bool)
    )


def _is_usage(facts: dict[str, Any]) -> bool:
    """Tell whether there are a time, and for each guest numbers where they are known."""
    guests = facts.get("guests")
    return (
        isinstance(facts.get("clock"), (int, float))
        and isinstance(guests, dict)
        and all(
            isinstance(name, str)
            and isinstance(usage, dict)
            and all(isinstance(usage.get(key), (int, float, NoneType)) for key in USAGE)
            for name, usage in guests.items()
        )
    )


#: What GUESTS_USAGE reports of each guest.
USAGE = ("cpu_s", "memory", "vcpus", "disk_read", "disk_written", "net_in", "net_out")
#: State of a guest as the hypervisor reports it; empty when there is no such guest.
_GUEST = ht.And("the state of a guest", FACTS, ht.Type("numbers", _has_numbers))
_INFO = ResultCodec(_GUEST)
_DETAILS = ht.Maybe(ht.Or(ht.Int, ht.Float))
_ADDRESSES = ht.ListOf(ht.Tuple(ht.NonEmptyString, ht.Str))
#: Reason trail: list of [source, text, nanoseconds since 1970].
_REASON = Arg("reason", PLAIN, ht.ListOf(ht.ListOf(ht.Any)))
_TASK = Arg("task", PLAIN, ht.OneOf("task", (const.TASK_INSTALL, const.TASK_ZERO)))

# No name of an instance has a space.
_FAILED = "hypervisor "


def _is_details(value: Any) -> bool:
    return _DETAILS(value.get("started")) and _ADDRESSES(value.get("addresses"))


class Guests(dict[str, dict[str, Any]]):
    """The guests of a node: name -> facts.

    A guest which is absent does not run, except when its hypervisor is among the problems.

    :ivar problems: name of each hypervisor which did not tell its guests -> why.
    """

    def __init__(
        self,
        guests: Mapping[str, dict[str, Any]] = MappingProxyType({}),
        problems: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        super().__init__(guests)
        self.problems = dict(problems)


class _GuestsResult(ResultCodec):
    """A hypervisor which failed stands among the guests, under a name which no guest has."""

    def encode(self, value: Any) -> Any:
        problems = value.problems if isinstance(value, Guests) else {}
        failed = {f"{_FAILED}{name}": {"problem": why} for name, why in problems.items()}
        return super().encode({**value, **failed})

    def decode(self, wire: Any) -> Guests:
        found = super().decode(wire)
        return Guests(
            {name: facts for name, facts in found.items() if not name.startswith(_FAILED)},
            {
                name.removeprefix(_FAILED): str(facts.get("problem"))
                for name, facts in found.items()
                if name.startswith(_FAILED)
            },
        )


# -- guests and migration --------------------------------------------------------------------------
#: Ask which guests run. -> list of instance names; a name occurs twice when two hypervisors run it
INSTANCE_LIST = Call(
    "instance_list",
    (
        Arg("hypervisors", PLAIN, ht.ListOf(ht.NonEmptyString)),
        Arg("hvparams", ALL_HVPARAMS, ht.DictOf(ht.NonEmptyString, ht.DictOf(ht.Str, ht.Any))),
    ),
    ResultCodec(ht.ListOf(ht.NonEmptyString)),
    timeout_s=60,
    many=True,
)
#: Ask for the state of a guest.
#: -> {} or {"memory": MiB, "state": 0 running / 1 shutdown, "time": s, "vcpus": n}, and what
#: objects.halt adds when it lives, but does not run
INSTANCE_INFO = Call(
    "instance_info",
    (
        Arg("instance_name", PLAIN, ht.NonEmptyString),
        Arg("hypervisor", PLAIN, ht.NonEmptyString),
        Arg("hvparams", HVPARAMS, ht.DictOf(ht.Str, ht.Any)),
    ),
    _INFO,
    timeout_s=60,
    keep=True,
)
#: Ask for the state of all guests. ``apart``: a hypervisor which fails does not hide the guests of
#: the others. -> dict of instance name -> result as of INSTANCE_INFO, see :class:`Guests`
ALL_INSTANCES_INFO = Call(
    "all_instances_info",
    (
        Arg("hypervisors", PLAIN, ht.ListOf(ht.NonEmptyString)),
        Arg("hvparams", ALL_HVPARAMS, ht.DictOf(ht.NonEmptyString, ht.DictOf(ht.Str, ht.Any))),
        Arg("apart", PLAIN, ht.Bool, default=False),
    ),
    _GuestsResult(ht.DictOf(ht.NonEmptyString, _GUEST)),
    timeout_s=60,
    many=True,
    keep=True,
)
#: Ask what a node sees of its guests. ``guests``: name -> hypervisor, MAC addresses of its NICs.
#: -> dict of name -> {"started": seconds since 1970, null when it is not known; "addresses": list
#: of [address, who knows it]}, without the guests which do not run
GUEST_DETAILS = Call(
    "guest_details",
    (
        Arg(
            "guests",
            PLAIN,
            ht.DictOf(ht.NonEmptyString, ht.Tuple(ht.NonEmptyString, ht.ListOf(ht.NonEmptyString))),
        ),
    ),
    ResultCodec(
        ht.DictOf(
            ht.NonEmptyString,
            ht.And("what a node sees of a guest", ht.Dict, ht.Type("details", _is_details)),
        )
    ),
    timeout_s=15,
    many=True,
)
#: Ask for a part of the log of a guest's console: its last lines, or what follows a position.
#: -> {} when the node has none, or {"text", "position", "lost"}; see hypervisor.console_log.read
CONSOLE_LOG_READ = Call(
    "console_log_read",
    (
        Arg("instance_uuid", PLAIN, ht.NonEmptyString),
        Arg("lines", PLAIN, ht.NonNegInt),
        Arg("position", PLAIN, ht.Str),
    ),
    ResultCodec(ht.And("a part of a console log", ht.Dict, ht.Type("part", _is_log_part))),
    timeout_s=60,
    keep=True,
)
#: Remove the log of the console of an instance, which is removed itself.
CONSOLE_LOG_REMOVE = Call(
    "console_log_remove",
    (
        Arg("instance_name", PLAIN, ht.NonEmptyString),
        Arg("instance_uuid", PLAIN, ht.NonEmptyString),
    ),
    timeout_s=60,
    many=True,
    keep=True,
)
#: Measure what all guests use. -> {"clock": s of an own clock of the node, "guests": dict of
#: instance name -> {"cpu_s", "memory": MiB, "vcpus", "disk_read", "disk_written",
#: "net_in", "net_out": bytes since the start of the guest; None where the node cannot tell}}
GUESTS_USAGE = Call(
    "guests_usage",
    (Arg("hypervisors", PLAIN, ht.ListOf(ht.NonEmptyString)),),
    ResultCodec(ht.And("the usage of guests", ht.Dict, ht.Type("usage", _is_usage))),
    timeout_s=20,
    many=True,
    keep=True,
)
#: Check whether a guest can be migrated. Fails with the reason when it cannot.
INSTANCE_MIGRATABLE = Call(
    "instance_migratable", (Arg("instance", INSTANCE),), timeout_s=900, keep=True
)
#: Start an instance. ``instance`` may be (instance, hvparams, beparams): overrides for this start.
INSTANCE_START = Call(
    "instance_start",
    (
        Arg("instance", INSTANCE),
        Arg("startup_paused", PLAIN, ht.Bool),
        _REASON,
    ),
    timeout_s=900,
    keep=True,
    work="start of the instance",
)
#: Let a halted guest run on. -> its facts afterwards, as of INSTANCE_INFO; it may have halted again
INSTANCE_CONTINUE = Call(
    "instance_continue",
    (Arg("instance", INSTANCE), _REASON),
    _INFO,
    timeout_s=120,
    keep=True,
    work="continuation of the instance",
)
#: Stop an instance. ``timeout_s``: how long the guest may take to power itself off.
INSTANCE_SHUTDOWN = Call(
    "instance_shutdown",
    (
        Arg("instance", INSTANCE),
        Arg("timeout_s", PLAIN, ht.NonNegInt),
        _REASON,
    ),
    timeout_s=lambda args: 900.0 + args["timeout_s"],
    keep=True,
    work="shutdown of the instance",
)
#: Reboot a guest. ``reboot_type``: soft or hard (for a full one, the master stops and starts it).
INSTANCE_REBOOT = Call(
    "instance_reboot",
    (
        Arg("instance", INSTANCE),
        Arg("reboot_type", PLAIN, ht.OneOf("reboot type", ("soft", "hard", "full"))),
        Arg("shutdown_timeout_s", PLAIN, ht.NonNegInt),
        _REASON,
    ),
    timeout_s=lambda args: 900.0 + args["shutdown_timeout_s"],
    work="reboot of the instance",
)
#: Change the memory of a running guest.
INSTANCE_BALLOON_MEMORY = Call(
    "instance_balloon_memory",
    (
        Arg("instance", INSTANCE),
        Arg("memory_mib", PLAIN, ht.NonNegInt),
    ),
    timeout_s=900,
    work="change of the memory of the guest",
)
#: Limit a running guest to the processors of its present parameters. -> whether it runs
INSTANCE_LIMIT_PROCESSORS = Call(
    "instance_limit_processors",
    (Arg("instance", INSTANCE),),
    ResultCodec(ht.Bool),
    timeout_s=120,
    work="change of the processors of the guest",
)
#: Ask the source for the data which the target needs to accept the instance.
#: -> data in a form of the hypervisor
MIGRATION_INFO = Call(
    "migration_info", (Arg("instance", INSTANCE),), ResultCodec(ht.Any), timeout_s=900, keep=True
)
#: Prepare the target for an incoming migration. ``info``: result of MIGRATION_INFO; ``target``: the
#: address to listen on; ``any_port``: whether the source can be given the port.
#: -> the port, with ``any_port``; None for a hypervisor which uses none
ACCEPT_INSTANCE = Call(
    "accept_instance",
    (
        Arg("instance", INSTANCE),
        Arg("info"),
        Arg("target", PLAIN, ht.NonEmptyString),
        Arg("any_port", PLAIN, ht.Bool, default=False),
    ),
    ResultCodec(ht.Maybe(ht.PositiveInt)),
    timeout_s=900,
    keep=True,
    work="preparation of an incoming migration",
)
#: Let the source send the guest to the address ``target``. No effect while it is sent already.
#: ``port``: result of ACCEPT_INSTANCE; None for the hypervisor parameter ``migration_port``.
INSTANCE_MIGRATE = Call(
    "instance_migrate",
    (
        Arg("cluster_name", PLAIN, ht.NonEmptyString),
        Arg("instance", INSTANCE),
        Arg("target", PLAIN, ht.NonEmptyString),
        Arg("live", PLAIN, ht.Bool),
        Arg("port", PLAIN, ht.Maybe(ht.PositiveInt), default=None),
    ),
    timeout_s=3600,
    keep=True,
    work="beginning of a migration",
)
#: Ask the source how far the migration is. -> MigrationStatus
INSTANCE_GET_MIGRATION_STATUS = Call(
    "instance_get_migration_status",
    (Arg("instance", INSTANCE),),
    ObjectResult(MigrationStatus),
    timeout_s=3600,
    keep=True,
)
#: End a migration on the source: remove the guest, or resume it after a failure.
INSTANCE_FINALIZE_MIGRATION_SRC = Call(
    "instance_finalize_migration_src",
    (
        Arg("instance", INSTANCE),
        Arg("success", PLAIN, ht.Bool),
        Arg("live", PLAIN, ht.Bool),
    ),
    timeout_s=3600,
    keep=True,
    work="end of a migration on its source",
)
#: End a migration on the target: keep the guest, or remove it after a failure. ``info``: result of
#: MIGRATION_INFO.
INSTANCE_FINALIZE_MIGRATION_DST = Call(
    "instance_finalize_migration_dst",
    (
        Arg("instance", INSTANCE),
        Arg("info"),
        Arg("success", PLAIN, ht.Bool),
    ),
    timeout_s=900,
    keep=True,
    work="end of a migration on its target",
)
#: Check hypervisor parameters, filled. Fails with the reason when this node cannot use them.
HYPERVISOR_VALIDATE_PARAMS = Call(
    "hypervisor_validate_params",
    (
        Arg("hypervisor", PLAIN, ht.NonEmptyString),
        Arg("hvparams", HVPARAMS, ht.DictOf(ht.Str, ht.Any)),
    ),
    timeout_s=900,
    many=True,
    keep=True,
)

_TEXTS = ht.Maybe(ht.ListOf(ht.Str))
_PAIRS = ht.Maybe(ht.ListOf(ht.Tuple(ht.Str, ht.Str)))
_OS = (
    *(ht.Str, ht.Str, ht.Bool, ht.Str, _TEXTS, _PAIRS),
    *(ht.Maybe(ht.ListOf(ht.Int)), ht.Bool),
)
#: An OS definition of a node. Version of the OS and its hypervisors are additions of ours.
OS_ROWS = ht.Or(ht.Tuple(*_OS), ht.Tuple(*_OS, ht.Str, ht.ListOf(ht.Str)))

# -- OS definitions --------------------------------------------------------------------------------
#: Ask which OS definitions the node has.
#: -> list of [name, path, valid, diagnose text, variants, parameters [[name, doc]], api versions,
#: trusted]
OS_DIAGNOSE = Call("os_diagnose", (), ResultCodec(ht.ListOf(OS_ROWS)), timeout_s=300, many=True)
#: Check OS parameters with the verify script of the OS. ``checks``: what the script checks
#: ("parameters"). Fails with the output of the script.
#: -> False only when the OS is missing and not ``required``
OS_VALIDATE = Call(
    "os_validate",
    (
        Arg("required", PLAIN, ht.Bool),
        Arg("name", PLAIN, ht.NonEmptyString),
        Arg("checks", PLAIN, ht.ListOf(ht.NonEmptyString)),
        Arg("params", PLAIN, ht.DictOf(ht.NonEmptyString, ht.Any)),
        Arg("force_variant", PLAIN, ht.Bool),
    ),
    ResultCodec(ht.Bool),
    timeout_s=300,
    many=True,
    keep=True,
)
#: Run the create script of the OS. ``instance`` may be (instance, None, None, osparams).
INSTANCE_OS_ADD = Call(
    "instance_os_add",
    (
        Arg("instance", INSTANCE),
        Arg("reinstall", PLAIN, ht.Bool),
        Arg("debug_level", PLAIN, ht.NonNegInt),
    ),
    timeout_s=86400,
    work="script 'create' of the OS",
)
#: Run the rename script of the OS for an instance which has its new name already.
INSTANCE_RUN_RENAME = Call(
    "instance_run_rename",
    (
        Arg("instance", INSTANCE),
        Arg("old_name", PLAIN, ht.NonEmptyString),
        Arg("debug_level", PLAIN, ht.NonNegInt),
    ),
    timeout_s=3600,
    work="script 'rename' of the OS",
)

# -- devices of a running guest --------------------------------------------------------------------
#: Check for hotplug. Fails with the reason when devices of the running guest cannot be changed.
HOTPLUG_SUPPORTED = Call("hotplug_supported", (Arg("instance", INSTANCE),), timeout_s=900)
#: Add, remove or change a device of a running guest. ``extra``: for a disk [link, uri or None],
#: else None; ``seq``: index of the device among those of its kind.
#: -> None, or what the hypervisor stores about the device
HOTPLUG_DEVICE = Call(
    "hotplug_device",
    (
        Arg("instance", INSTANCE),
        Arg(
            "action",
            PLAIN,
            ht.OneOf(
                "hotplug action", (HOTPLUG_ACTION_ADD, HOTPLUG_ACTION_MODIFY, HOTPLUG_ACTION_REMOVE)
            ),
        ),
        Arg("dev_type", PLAIN, ht.OneOf("device type", (HOTPLUG_TARGET_DISK, HOTPLUG_TARGET_NIC))),
        Arg("device", DEVICE),
        Arg("extra", PLAIN, ht.Maybe(ht.ListOf(ht.Any))),
        Arg("seq", PLAIN, ht.NonNegInt),
    ),
    ResultCodec(ht.Any),
    timeout_s=900,
    work="change of a device of the running guest",
)

# -- helper guests ---------------------------------------------------------------------------------
#: Start a helper guest in the place of a stopped instance. Its first disk is the image, then come
#: the disks of the instance. Does not wait for the guest. ``own_nic``: the last NIC belongs to the
#: helper guest, not to the instance; ``parameters``: OS parameter -> [value, visibility].
HELPER_START = Call(
    "helper_start",
    (
        Arg("instance", INSTANCE),
        _TASK,
        Arg("image", PLAIN, ht.NonEmptyString),
        Arg("own_nic", PLAIN, ht.Bool),
        Arg("parameters", PLAIN, ht.DictOf(ht.NonEmptyString, ht.ListOf(ht.Str))),
        Arg("reinstall", PLAIN, ht.Bool),
        Arg("debug_level", PLAIN, ht.NonNegInt),
    ),
    timeout_s=3600,
    work="start of a helper guest",
)
#: Ask for the state of a helper guest.
#: -> {"running": bool, "known": bool, "contact": bool, "started": bool, "exit_code": int or None};
#: ``known``: whether the metadata daemon still knows the guest.
HELPER_STATUS = Call(
    "helper_status",
    (Arg("instance", INSTANCE),),
    ResultCodec(ht.DictOf(ht.NonEmptyString, ht.Any)),
    timeout_s=60,
    keep=True,
)
#: Stop a helper guest, if there is one, and remove its files.
#: -> {"lines": the last lines of its log, "log_file": path of the whole log, or ""}
HELPER_STOP = Call(
    "helper_stop",
    (Arg("instance", INSTANCE), _TASK),
    ResultCodec(ht.DictOf(ht.NonEmptyString, ht.Any)),
    timeout_s=900,
    work="end of a helper guest",
)

# -- metadata --------------------------------------------------------------------------------------
#: Send the data of a guest to the metadata daemon; see :func:`ganeti.metad.guests.parse`.
INSTANCE_METADATA_MODIFY = Call(
    "instance_metadata_modify",
    (Arg("instance", PLAIN, ht.DictOf(ht.NonEmptyString, ht.Any)),),
    timeout_s=60,
)
