"""Calls about backups, and about transfers of disks between nodes.

What a transfer reads or writes on a node is said by a pair: ``("raw", disk)``, ``("script", (disk,
index))`` (the scripts of the instance's OS definition) or ``("file", path)``; paths are virtual and
below the export directory. Callers pass disks as ``(disk, instance)``.
"""

from __future__ import annotations

from typing import Any

from ganeti import errors, ht
from ganeti.objects.disk import Disk
from ganeti.objects.transfer import ImportExportOptions, ImportExportStatus
from ganeti.wire.calls.base import (
    DISK,
    INSTANCE,
    MULTI_DISKS,
    PLAIN,
    Arg,
    Call,
    EachResult,
    Encoding,
    Filler,
    ObjectEncoding,
    ObjectResult,
    ResultCodec,
)

RAW, SCRIPT, FILE = "raw", "script", "file"
#: Added to the name of an export which is not complete. No name of an instance has such a
#: character, or the export of another instance could have that name.
UNFINISHED = "~new"


def unfinished(name: str, identity: str) -> str:
    """Return the name of the directory into which the data of an export arrive.

    :param identity: of the export; empty for one of the version before.
    """
    return f"{name}{UNFINISHED}.{identity}" if identity else f"{name}{UNFINISHED}"


class _IoEncoding(Encoding):
    """``[kind, [arguments]]``; see the module text."""

    def encode(self, value: Any, filler: Filler) -> Any:
        kind, what = value
        if kind == RAW:
            return [RAW, [DISK.encode(what, filler)]]
        if kind == SCRIPT:
            disk, instance, index = what
            return [SCRIPT, [DISK.encode((disk, instance), filler), index]]
        return [FILE, [what]]

    def decode(self, wire: Any) -> tuple[str, Any]:
        if not (isinstance(wire, list) and len(wire) == 2 and isinstance(wire[1], list)):
            raise errors.ParseError("expected a kind of source and its arguments")
        kind, args = wire
        if kind == RAW and len(args) == 1:
            return RAW, DISK.decode(args[0])
        if kind == SCRIPT and len(args) == 2 and ht.NonNegInt(args[1]):
            return SCRIPT, (DISK.decode(args[0]), args[1])
        if kind == FILE and len(args) == 1 and ht.NonEmptyString(args[0]):
            return FILE, args[0]
        raise errors.ParseError(f"expected a source or target of data, not {kind!r:.80}")


class _ExportedDisksEncoding(Encoding):
    """Per disk ``(disk, instance)``, or False for one which was not exported."""

    def encode(self, value: Any, filler: Filler) -> Any:
        return [DISK.encode(item, filler) if item else False for item in value]

    def decode(self, wire: Any) -> list[Disk | None]:
        if not isinstance(wire, list):
            raise errors.ParseError("expected a list of disks")
        return [DISK.decode(item) if item else None for item in wire]


class _StatusListResult(ResultCodec):
    """Per name a status, or None."""

    _ITEM = ObjectResult(ImportExportStatus, maybe=True)

    def encode(self, value: Any) -> Any:
        return [self._ITEM.encode(item) for item in value]

    def decode(self, wire: Any) -> Any:
        if not isinstance(wire, list):
            raise errors.ParseError("expected a list of states")
        return [self._ITEM.decode(item) for item in wire]


_NUMBER = ht.Maybe(ht.NonNegInt)
_NAME = ht.Maybe(ht.NonEmptyString)


def _is_export(facts: dict[str, Any]) -> bool:
    """Tell whether these are a time, a size, and the names of an instance and a node."""
    return all(_NUMBER(facts.get(name)) for name in ("ctime", "size")) and all(
        _NAME(facts.get(name)) for name in ("instance", "source")
    )


IO = _IoEncoding("source or target of data")
EXPORTED_DISKS = _ExportedDisksEncoding("exported disks")
OPTIONS = ObjectEncoding(ImportExportOptions)

#: -> the text of ``config.ini`` of an export; an export with a missing or short file is an error
EXPORT_INFO = Call(
    "export_info", (Arg("path", PLAIN, ht.NonEmptyString),), ResultCodec(ht.Str), timeout_s=300
)
#: -> names of the exports on a node
EXPORT_LIST = Call("export_list", (), ResultCodec(ht.ListOf(ht.Str)), timeout_s=300, many=True)
#: What the descriptions of all exports of a node say (of this project). -> dict of name ->
#: {"ctime": seconds since 1970, "size": bytes of all files, "instance": its name, "source": UUID of
#: the node from which it came}; null for what is not known
EXPORT_DETAILS = Call(
    "export_details",
    (),
    ResultCodec(
        ht.DictOf(
            ht.NonEmptyString,
            ht.And("facts of an export", ht.Dict, ht.Type("details", _is_export)),
        )
    ),
    timeout_s=300,
    many=True,
)
#: What a node has of the export of a name (of this project).
#: -> [identity of the complete one or None, names of what interrupted exports have left]
EXPORT_FIND = Call(
    "export_find",
    (Arg("export", PLAIN, ht.NonEmptyString),),
    ResultCodec(ht.Tuple(ht.Maybe(ht.NonEmptyString), ht.ListOf(ht.NonEmptyString))),
    timeout_s=300,
    many=True,
)
#: Remove an export, or what an interrupted one has left. ``identity``: of the export to remove, so
#: that no other one is removed, as by a call which is carried out late; empty for any.
#: -> whether there was one with this identity; None from the version before
EXPORT_REMOVE = Call(
    "export_remove",
    (
        Arg("export", PLAIN, ht.NonEmptyString),
        Arg("identity", PLAIN, ht.Str, default=""),
    ),
    ResultCodec(ht.Maybe(ht.Bool)),
    timeout_s=300,
)
#: Checks that all data are complete, writes ``config.ini``, and replaces an older export.
#: ``identity``: random, of this export; it is in the name of the directory while data arrive.
FINALIZE_EXPORT = Call(
    "finalize_export",
    (
        Arg("instance", INSTANCE),
        Arg("disks", EXPORTED_DISKS),
        Arg("identity", PLAIN, ht.Str, default=""),
    ),
    timeout_s=900,
    work="completion of an export",
)
#: How much the exports of disks will have (of this project).
#: -> per disk bytes; None when a script of the operating system makes its data
EXPORT_SIZES = Call(
    "export_sizes",
    (Arg("instance", INSTANCE), Arg("disks", MULTI_DISKS)),
    EachResult(ResultCodec(ht.Maybe(ht.NonNegInt))),
    timeout_s=300,
)
#: -> name of the transfer
EXPORT_START = Call(
    "export_start",
    (
        Arg("options", OPTIONS),
        Arg("host", PLAIN, ht.NonEmptyString),
        Arg("port", PLAIN, ht.PositiveInt),
        Arg("instance", INSTANCE),
        Arg("component", PLAIN, ht.NonEmptyString),
        Arg("source", IO),
    ),
    ResultCodec(ht.NonEmptyString),
    timeout_s=900,
    work="sending of a disk",
    lasting=True,
)
#: -> name of the transfer
IMPORT_START = Call(
    "import_start",
    (
        Arg("options", OPTIONS),
        Arg("instance", INSTANCE),
        Arg("component", PLAIN, ht.NonEmptyString),
        Arg("target", IO),
    ),
    ResultCodec(ht.NonEmptyString),
    timeout_s=900,
    work="reception of a disk",
    lasting=True,
)
#: -> per name its state, or None when there is no such transfer (yet)
IMPEXP_STATUS = Call(
    "impexp_status",
    (Arg("names", PLAIN, ht.ListOf(ht.NonEmptyString)),),
    _StatusListResult(),
    timeout_s=300,
)
IMPEXP_ABORT = Call("impexp_abort", (Arg("name", PLAIN, ht.NonEmptyString),), timeout_s=900)
IMPEXP_CLEANUP = Call("impexp_cleanup", (Arg("name", PLAIN, ht.NonEmptyString),), timeout_s=900)
#: -> [name, certificate as PEM]; the key stays on the node
X509_CERT_CREATE = Call(
    "x509_cert_create",
    (Arg("validity_s", PLAIN, ht.PositiveInt),),
    ResultCodec(ht.Tuple(ht.NonEmptyString, ht.NonEmptyString)),
    timeout_s=900,
)
X509_CERT_REMOVE = Call("x509_cert_remove", (Arg("name", PLAIN, ht.NonEmptyString),), timeout_s=900)
