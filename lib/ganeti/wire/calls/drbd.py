"""Calls about mirrored disks and about LVM."""

from __future__ import annotations

from ganeti import ht
from ganeti.constants.rpc import TIMEOUT_NORMAL_S, TIMEOUT_SLOW_S, TIMEOUT_URGENT_S
from ganeti.wire.calls.base import DISKS, MULTI_DISKS, PLAIN, Arg, Call, ResultCodec

#: Let both halves look for each other; `multimaster` allows both to be writable.
DRBD_ATTACH_NET = Call(
    "drbd_attach_net",
    (Arg("disks", DISKS), Arg("multimaster", PLAIN, ht.Bool)),
    timeout_s=TIMEOUT_NORMAL_S,
    many=True,
)
DRBD_DISCONNECT_NET = Call(
    "drbd_disconnect_net", (Arg("disks", DISKS),), timeout_s=TIMEOUT_NORMAL_S, many=True
)
#: -> [all connected and in step, percent of the one that is furthest behind]
DRBD_WAIT_SYNC = Call(
    "drbd_wait_sync",
    (Arg("disks", DISKS),),
    ResultCodec(ht.ListOf(ht.Any)),
    timeout_s=TIMEOUT_SLOW_S,
    many=True,
)
#: -> UUIDs of the disks which should be assembled again
DRBD_NEEDS_ACTIVATION = Call(
    "drbd_needs_activation",
    (Arg("disks", MULTI_DISKS),),
    ResultCodec(ht.ListOf(ht.Str)),
    timeout_s=TIMEOUT_NORMAL_S,
)
#: -> path of the program which the kernel module calls
DRBD_HELPER = Call("drbd_helper", (), ResultCodec(ht.Str), timeout_s=TIMEOUT_URGENT_S, many=True)

#: -> volume group -> size in MiB
VG_LIST = Call(
    "vg_list",
    (),
    ResultCodec(ht.DictOf(ht.Str, ht.NonNegInt)),
    timeout_s=TIMEOUT_URGENT_S,
    many=True,
)
#: `groups` is a list of names; empty for all. -> "vg/lv" -> [size in MiB as text, inactive, online]
LV_LIST = Call(
    "lv_list",
    (Arg("groups", PLAIN, ht.ListOf(ht.NonEmptyString)),),
    ResultCodec(ht.DictOf(ht.Str, ht.ListOf(ht.Any))),
    timeout_s=TIMEOUT_URGENT_S,
    many=True,
)
#: -> device -> size in MiB, of those that are block devices
BDEV_SIZES = Call(
    "bdev_sizes",
    (Arg("devices", PLAIN, ht.ListOf(ht.NonEmptyString)),),
    ResultCodec(ht.DictOf(ht.Str, ht.NonNegInt)),
    timeout_s=TIMEOUT_URGENT_S,
    many=True,
)
