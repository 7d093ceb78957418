"""Calls for the administration of machines: power, prepared commands, storage units, volumes."""

from __future__ import annotations

from ganeti import ht
from ganeti.wire.calls.base import PLAIN, Arg, Call, ResultCodec

_ROWS = ResultCodec(ht.ListOf(ht.List))

#: Run the out-of-band helper for another node, here. ``timeout_s``: what the program may take.
#: -> what it printed
RUN_OOB = Call(
    "run_oob",
    (
        Arg("oob_program", PLAIN, ht.NonEmptyString),
        Arg("command", PLAIN, ht.NonEmptyString),
        Arg("remote_node", PLAIN, ht.NonEmptyString),
        Arg("timeout_s", PLAIN, ht.PositiveInt),
    ),
    ResultCodec(ht.Str),
    timeout_s=lambda args: max(900.0, args["timeout_s"] + 60.0),
)
#: Run one of the commands which the administrator prepared. -> what it printed
RESTRICTED_COMMAND = Call(
    "restricted_command",
    (Arg("cmd", PLAIN, ht.Str),),
    ResultCodec(ht.Str),
    timeout_s=3600,
    many=True,
)
#: Reset the machine a few seconds after the answer. -> a text for the user
NODE_POWERCYCLE = Call(
    "node_powercycle",
    (
        Arg("hypervisor", PLAIN, ht.NonEmptyString),
        Arg("hvparams", PLAIN, ht.DictOf(ht.Str, ht.Any)),
    ),
    ResultCodec(ht.Str),
    timeout_s=900,
    offline_ok=True,
)
#: ``su_name``: kind of storage; ``su_args``: for files ``[[directory, ...]]``; ``name``: only this
#: unit, None for all; ``fields``: of name, size, used, free (MiB), allocatable. -> rows
STORAGE_LIST = Call(
    "storage_list",
    (
        Arg("su_name", PLAIN, ht.NonEmptyString),
        Arg("su_args", PLAIN, ht.List),
        Arg("name", PLAIN, ht.Maybe(ht.NonEmptyString)),
        Arg("fields", PLAIN, ht.ListOf(ht.NonEmptyString)),
    ),
    _ROWS,
    timeout_s=900,
    many=True,
)
#: ``changes``: dict of field -> new value.
STORAGE_MODIFY = Call(
    "storage_modify",
    (
        Arg("su_name", PLAIN, ht.NonEmptyString),
        Arg("su_args", PLAIN, ht.List),
        Arg("name", PLAIN, ht.NonEmptyString),
        Arg("changes", PLAIN, ht.DictOf(ht.Str, ht.Any)),
    ),
    timeout_s=900,
)
#: ``op``: fix-consistency.
STORAGE_EXECUTE = Call(
    "storage_execute",
    (
        Arg("su_name", PLAIN, ht.NonEmptyString),
        Arg("su_args", PLAIN, ht.List),
        Arg("name", PLAIN, ht.NonEmptyString),
        Arg("op", PLAIN, ht.NonEmptyString),
    ),
    timeout_s=900,
)
#: -> list of {name, size (MiB), dev, vg}: a row for each physical device of each logical volume
NODE_VOLUMES = Call(
    "node_volumes", (), ResultCodec(ht.ListOf(ht.DictOf(ht.Str, ht.Any))), timeout_s=300, many=True
)
#: Change the netmask of the master address, where it is up.
NODE_CHANGE_MASTER_NETMASK = Call(
    "node_change_master_netmask",
    (
        Arg("old_netmask", PLAIN, ht.NonNegInt),
        Arg("netmask", PLAIN, ht.NonNegInt),
        Arg("master_ip", PLAIN, ht.NonEmptyString),
        Arg("master_netdev", PLAIN, ht.NonEmptyString),
    ),
    timeout_s=300,
)
