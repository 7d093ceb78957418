"""Calls about OS definitions and providers of external storage."""

from __future__ import annotations

from ganeti import ht
from ganeti.wire.calls.base import INSTANCE, PLAIN, Arg, Call, ResultCodec

#: -> list of [name, path, valid, diagnose text, variants, parameters [[name, doc]], api versions,
#: trusted]
OS_DIAGNOSE = Call(
    "os_diagnose", (), ResultCodec(ht.ListOf(ht.ListOf(ht.Any))), timeout_s=300, many=True
)
#: ``checks``: list of what the verify script checks ("parameters"); ``params``: OS parameters.
#: -> False only when the OS is missing and not ``required``; fails with the script's output
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
#: Runs the OS's create script. ``instance`` may be (instance, None, None, osparams).
INSTANCE_OS_ADD = Call(
    "instance_os_add",
    (
        Arg("instance", INSTANCE),
        Arg("reinstall", PLAIN, ht.Bool),
        Arg("debug_level", PLAIN, ht.NonNegInt),
    ),
    timeout_s=86400,
)
#: Runs the OS's rename script for an instance which has its new name already.
INSTANCE_RUN_RENAME = Call(
    "instance_run_rename",
    (
        Arg("instance", INSTANCE),
        Arg("old_name", PLAIN, ht.NonEmptyString),
        Arg("debug_level", PLAIN, ht.NonNegInt),
    ),
    timeout_s=3600,
)
#: -> list of [name, path, valid, diagnose text, parameters [[name, doc]]]
EXTSTORAGE_DIAGNOSE = Call(
    "extstorage_diagnose", (), ResultCodec(ht.ListOf(ht.ListOf(ht.Any))), timeout_s=300, many=True
)
