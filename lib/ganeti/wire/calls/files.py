"""Calls that put the cluster's files on a node: uploads, ssconf, the job queue."""

from __future__ import annotations

from ganeti import ht
from ganeti.wire.calls.base import COMPRESSED, FILE, PLAIN, TEXTS, Arg, Call, ResultCodec

#: The process which writes the copy of the queue holds it for a while, and must do nothing else.
QUEUE_LANE = "queue"

_NUMBER = ht.Or(ht.Int, ht.Float)

#: ``file``: a FileDetails.
UPLOAD_FILE = Call("upload_file", (Arg("file", FILE),), timeout_s=900, many=True)
#: ``path`` virtual; ``owner`` and ``group`` are names.
UPLOAD_FILE_SINGLE = Call(
    "upload_file_single",
    (
        Arg("path", PLAIN, ht.NonEmptyString),
        Arg("content", COMPRESSED),
        Arg("mode", PLAIN, ht.NonNegInt),
        Arg("owner", PLAIN, ht.NonEmptyString),
        Arg("group", PLAIN, ht.NonEmptyString),
        Arg("atime", PLAIN, _NUMBER),
        Arg("mtime", PLAIN, _NUMBER),
    ),
    timeout_s=900,
    many=True,
)
#: ``values``: ssconf key -> text of the file.
WRITE_SSCONF_FILES = Call(
    "write_ssconf_files",
    (Arg("values", PLAIN, ht.DictOf(ht.NonEmptyString, ht.Str)),),
    timeout_s=900,
    many=True,
    keep=True,
)
#: Make the configuration file of the one that is there: it must have ``base_bytes`` and end with
#: ``base_end``. ``parts``, in order, are an offset and a length of it, or text; ``new_bytes`` is
#: what comes out. ``ssconf``: values for WRITE_SSCONF_FILES, when there are such, which are written
#: even when it was the wrong one. -> whether it was the right one. Ours alone; it is not among the
#: published calls.
CONFIG_REWRITE = Call(
    "config_rewrite",
    (
        Arg("base_bytes", PLAIN, ht.PositiveInt),
        Arg("base_end", PLAIN, ht.NonEmptyString),
        Arg("parts", PLAIN, ht.ListOf(ht.Or(ht.Str, ht.ListOf(ht.NonNegInt)))),
        Arg("new_bytes", PLAIN, ht.PositiveInt),
        Arg("ssconf", PLAIN, ht.Maybe(ht.DictOf(ht.NonEmptyString, ht.Str))),
    ),
    ResultCodec(ht.Bool),
    timeout_s=60,
    many=True,
    keep=True,
)
#: ``file_name``: virtual path of a file in the queue directory, or its name there.
JOBQUEUE_UPDATE = Call(
    "jobqueue_update",
    (
        Arg("file_name", PLAIN, ht.NonEmptyString),
        Arg("content", COMPRESSED),
    ),
    timeout_s=60,
    many=True,
)
#: All files of one commit in one message: ``files`` is a list of (file name as above, text). Ours
#: alone; it is not among the published calls.
JOBQUEUE_UPDATE_MANY = Call(
    "jobqueue_update_many",
    (Arg("files", TEXTS),),
    timeout_s=60,
    many=True,
    keep=True,
    lane=QUEUE_LANE,
)
#: ``rename``: list of [old file name, new file name], as above. -> list of None
JOBQUEUE_RENAME = Call(
    "jobqueue_rename",
    (Arg("rename", PLAIN, ht.ListOf(ht.ListOf(ht.NonEmptyString))),),
    ResultCodec(ht.ListOf(ht.NoneType)),
    timeout_s=60,
    many=True,
    keep=True,
    lane=QUEUE_LANE,
)
#: What the node's copy of the queue holds, for comparison with the master's; see
#: ``jobstore/inventory.py``. ``parts``: numbers of those parts of the archive whose jobs shall be
#: named. Ours alone; it is not among the published calls.
JOBQUEUE_INVENTORY = Call(
    "jobqueue_inventory",
    (Arg("parts", PLAIN, ht.ListOf(ht.NonNegInt)),),
    ResultCodec(ht.DictOf(ht.NonEmptyString, ht.Any)),
    timeout_s=60,
    many=True,
)
#: Removes every job file of the node's queue.
JOBQUEUE_PURGE = Call("jobqueue_purge", (), timeout_s=900, keep=True, lane=QUEUE_LANE)
JOBQUEUE_SET_DRAIN_FLAG = Call(
    "jobqueue_set_drain_flag", (Arg("flag", PLAIN, ht.Bool),), timeout_s=60, many=True
)
