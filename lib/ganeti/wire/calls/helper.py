"""Calls about what a node tells its guests, and about helper guests."""

from __future__ import annotations

from ganeti import ht
from ganeti.constants import metad as const
from ganeti.wire.calls.base import INSTANCE, PLAIN, Arg, Call, ResultCodec

#: Tells the metadata daemon of the node about a guest; see :func:`ganeti.metad.guests.parse`.
INSTANCE_METADATA_MODIFY = Call(
    "instance_metadata_modify",
    (Arg("instance", PLAIN, ht.DictOf(ht.NonEmptyString, ht.Any)),),
    timeout_s=60,
)
_TASK = Arg("task", PLAIN, ht.OneOf("task", (const.TASK_INSTALL, const.TASK_ZERO)))
#: Starts a helper guest in the place of a stopped instance: an image, then the instance's disks.
#: ``own_nic``: the last interface is the helper's and not the instance's. ``parameters``: OS
#: parameter -> [value, visibility]. Does not wait for the guest.
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
)
#: -> {"running": bool, "known": bool, "contact": bool, "started": bool, "exit_code": int or None};
#: ``known``: whether the metadata daemon still knows the guest.
HELPER_STATUS = Call(
    "helper_status",
    (Arg("instance", INSTANCE),),
    ResultCodec(ht.DictOf(ht.NonEmptyString, ht.Any)),
    timeout_s=60,
    keep=True,
)
#: Ends a helper guest and removes what was made for it; none is no error.
#: -> {"lines": the last it wrote, "log_file": where all of it is, or ""}
HELPER_STOP = Call(
    "helper_stop",
    (Arg("instance", INSTANCE), _TASK),
    ResultCodec(ht.DictOf(ht.NonEmptyString, ht.Any)),
    timeout_s=900,
)
