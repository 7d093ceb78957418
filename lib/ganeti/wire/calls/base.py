"""What a node call is: name, arguments, encodings, result, time limit.

Both ends of the node RPC read the same :class:`Call` objects. The master's runner asks
:meth:`Call.encode_args` for the JSON list that goes into the request body; the node daemon asks
:meth:`Call.decode_args` for the keyword arguments of the handler. The codec of the result
(:class:`ResultCodec`) encodes what the handler returns and decodes it on the master. No other code
packs or unpacks tuples.

The body of a request is the JSON list of arguments in the order of the table; the body of an answer
is ``[ok, payload]``. An :class:`Encoding` decides the form of each argument. To encode an instance
or a disk, it needs defaults of the cluster and parameters of the node group, which only the master
has: the master passes a :class:`Filler`, so that this package reads no configuration. To decode, a
node needs nothing else, because the master sends filled parameters.

Every value is checked when it is decoded, on both sides; :class:`ganeti.errors.ParseError` names
the call, the argument and the shape that was expected. What the sender has another release for is
in :mod:`ganeti.wire.neighbour`.
"""

from __future__ import annotations

import base64
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from ganeti import errors, ht
from ganeti.objects import codec
from ganeti.objects.codec import decoder, encoder, from_dict, to_dict
from ganeti.objects.disk import Disk
from ganeti.objects.instance import FilledInstance, FilledNic, Instance
from ganeti.objects.transfer import BlockDevStatus
from ganeti.wire import errors as wire_errors
from ganeti.wire import neighbour

#: Texts of this many bytes and more are compressed on the wire.
COMPRESS_MIN_BYTES = 512
#: The same when one message has many texts: to start a compression costs 15 us.
COMPRESS_MANY_MIN_BYTES = 16 * 1024
#: No call transports a larger text. A small compressed text cannot fill the memory either.
TEXT_MAX_BYTES = 64 * 1024 * 1024

_RAW = 0
_ZLIB_BASE64 = 1
_ZLIB_LEVEL = 3


class Filler(Protocol):
    """Fills in parameters from the configuration; implemented by :mod:`ganeti.rpc.filler`."""

    def filled_instance(self, instance: Instance, **overrides: Any) -> FilledInstance:
        """Return the instance with all parameters filled in and its disks attached.

        :param overrides: ``hvparams``, ``beparams`` or ``osparams`` which override its own.
        """

    def annotated_disk(self, disk: Disk, instance: Instance | FilledInstance) -> Disk:
        """Return the disk with the parameters of the instance's node group filled in."""


class Encoding:
    """Form of one argument on the wire; this base class leaves the value unchanged."""

    def __init__(self, name: str) -> None:
        self.name = name

    def encode(self, value: Any, filler: Filler) -> Any:
        """Turn the value which the caller passes into a JSON value."""
        return value

    def decode(self, wire: Any) -> Any:
        """Turn the JSON value into the value which the handler gets.

        :raises ParseError: the value has another shape.
        """
        return wire

    def adapt(self, value: Any, place: str, others: Mapping[str, Any], peer: neighbour.Peer) -> Any:
        """Turn a decoded value of another release into one of this release.

        :param place: name of the argument.
        :param others: the arguments before this one.
        """
        return value

    def __repr__(self) -> str:
        return self.name


class _InstanceEncoding(Encoding):
    """An instance with all parameters filled in.

    Callers pass an ``Instance``, a tuple ``(instance, hvparams, beparams[, osparams])`` whose
    members (dict or None) override the filled values, or a ``FilledInstance`` made elsewhere.
    Handlers get a ``FilledInstance``.
    """

    def encode(self, value: Any, filler: Filler) -> Any:
        if isinstance(value, tuple):
            instance, hvparams, beparams, *more = value
            osparams = more[0] if more else None
            value = filler.filled_instance(
                instance, hvparams=hvparams, beparams=beparams, osparams=osparams
            )
        elif not isinstance(value, FilledInstance):
            value = filler.filled_instance(value)
        return to_dict(value)

    def decode(self, wire: Any) -> FilledInstance:
        return from_dict(FilledInstance, _expect_dict(wire, "an instance"))

    def adapt(self, value: Any, place: str, others: Mapping[str, Any], peer: neighbour.Peer) -> Any:
        return neighbour.filled_instance(value, peer, place)


class _DiskEncoding(Encoding):
    """A disk, parameters filled in: callers pass ``(disk, instance)``, handlers get ``Disk``."""

    def encode(self, value: Any, filler: Filler) -> Any:
        disk, instance = value
        return to_dict(filler.annotated_disk(disk, instance))

    def decode(self, wire: Any) -> Disk:
        return from_dict(Disk, _expect_dict(wire, "a disk"))


class _DeviceEncoding(Encoding):
    """A disk or a network interface: callers pass ``(disk, instance)`` or a ``FilledNic``.

    Handlers get a ``Disk`` or a ``FilledNic``.
    """

    def encode(self, value: Any, filler: Filler) -> Any:
        return to_dict(value) if isinstance(value, FilledNic) else DISK.encode(value, filler)

    def decode(self, wire: Any) -> Disk | FilledNic:
        found = _expect_dict(wire, "a device")
        return DISK.decode(found) if "dev_type" in found else from_dict(FilledNic, found)

    def adapt(self, value: Any, place: str, others: Mapping[str, Any], peer: neighbour.Peer) -> Any:
        return neighbour.filled_nic(value) if isinstance(value, FilledNic) else value


class _DisksEncoding(Encoding):
    """Disks of one instance: callers pass ``(disks, instance)``, handlers get a tuple of them."""

    def encode(self, value: Any, filler: Filler) -> Any:
        disks, instance = value
        return [DISK.encode((disk, instance), filler) for disk in disks]

    def decode(self, wire: Any) -> tuple[Disk, ...]:
        return tuple(DISK.decode(item) for item in _expect_list(wire, "a list of disks"))


class _MultiDisksEncoding(_DisksEncoding):
    """Disks of several instances: callers pass a list of ``(disk, instance)``."""

    def encode(self, value: Any, filler: Filler) -> Any:
        return [DISK.encode(pair, filler) for pair in value]


class _RenameEncoding(Encoding):
    """Renames: callers pass a list of ``(disk, instance, new_logical_id)``.

    Handlers get a list of ``(Disk, new_logical_id tuple)``.
    """

    def encode(self, value: Any, filler: Filler) -> Any:
        return [
            [DISK.encode((disk, instance), filler), list(new_id)]
            for disk, instance, new_id in value
        ]

    def decode(self, wire: Any) -> list[tuple[Disk, tuple[Any, ...]]]:
        pairs = []
        for item in _expect_list(wire, "a list of disks and new ids"):
            disk, new_id = _expect_list(item, "a disk and a new id", length=2)
            pairs.append((DISK.decode(disk), tuple(_expect_list(new_id, "a new id"))))
        return pairs


class ObjectEncoding(Encoding):
    """The dict form of a data class."""

    def __init__(self, cls: type[Any]) -> None:
        super().__init__(f"object {cls.__name__}")
        self._cls = cls

    def encode(self, value: Any, filler: Filler) -> Any:
        return to_dict(value)

    def decode(self, wire: Any) -> Any:
        return from_dict(self._cls, _expect_dict(wire, self.name))


class _HvparamsEncoding(Encoding):
    """Filled parameters of the hypervisor which the argument ``hypervisor`` names."""

    def adapt(self, value: Any, place: str, others: Mapping[str, Any], peer: neighbour.Peer) -> Any:
        return neighbour.filled_hvparams(others["hypervisor"], value, peer, place)


class _AllHvparamsEncoding(Encoding):
    """Filled parameters of hypervisors: a dictionary with the name of each."""

    def adapt(self, value: Any, place: str, others: Mapping[str, Any], peer: neighbour.Peer) -> Any:
        return {
            name: neighbour.filled_hvparams(name, params, peer, f"{place}/{name}")
            for name, params in value.items()
        }


class _HvSpecsEncoding(Encoding):
    """A list of ``[hypervisor, filled parameters]``."""

    def adapt(self, value: Any, place: str, others: Mapping[str, Any], peer: neighbour.Peer) -> Any:
        return [
            [spec[0], neighbour.filled_hvparams(spec[0], spec[1], peer, f"{place}/{spec[0]}")]
            for spec in value
        ]


class NamesEncoding(Encoding):
    """A dictionary of which a receiver of another release ignores the names it does not know."""

    def __init__(self, name: str, known: frozenset[str]) -> None:
        super().__init__(name)
        self._known = known

    def adapt(self, value: Any, place: str, others: Mapping[str, Any], peer: neighbour.Peer) -> Any:
        return neighbour.only(self._known, value, peer, place)


class _CompressedEncoding(Encoding):
    """A text (or bytes in UTF-8): ``[0, text]`` when short, else ``[1, base64 of zlib]``."""

    def encode(self, value: Any, filler: Filler) -> Any:
        return compress(value)

    def decode(self, wire: Any) -> str:
        return decompress(wire)


class _TextsEncoding(Encoding):
    """Several texts with their file names: a list of ``(file name, text)`` on both ends."""

    def encode(self, value: Any, filler: Filler) -> Any:
        return [[name, compress(text, COMPRESS_MANY_MIN_BYTES)] for name, text in value]

    def decode(self, wire: Any) -> list[tuple[str, str]]:
        texts = []
        left = TEXT_MAX_BYTES
        for item in _expect_list(wire, "a list of named texts"):
            name, text = _expect_list(item, "a file name and a text", length=2)
            if not isinstance(name, str):
                raise errors.ParseError("expected a file name and a text")
            texts.append((name, decompress(text, left)))
            left -= len(texts[-1][1])
        return texts


class _FileEncoding(Encoding):
    """A file with its ownership: callers pass :class:`FileDetails`, handlers get it back."""

    def encode(self, value: Any, filler: Filler) -> Any:
        return [
            value.path,
            compress(value.content),
            value.mode,
            value.owner,
            value.group,
            value.atime,
            value.mtime,
        ]

    def decode(self, wire: Any) -> FileDetails:
        path, content, mode, owner, group, atime, mtime = _expect_list(wire, "a file", length=7)
        if not (
            isinstance(path, str)
            and isinstance(mode, int)
            and isinstance(owner, str)
            and isinstance(group, str)
            and isinstance(atime, int | float)
            and isinstance(mtime, int | float)
        ):
            raise errors.ParseError("expected path, content, mode, owner, group, times of a file")
        return FileDetails(path, decompress(content), mode, owner, group, atime, mtime)


@dataclass(frozen=True, slots=True)
class FileDetails:
    """A file on its way to a node; ``path`` is virtual (without the node's root)."""

    path: str
    content: str
    mode: int
    owner: str
    group: str
    atime: float
    mtime: float


def compress(text: str | bytes, min_bytes: int = COMPRESS_MIN_BYTES) -> list[Any]:
    """Return ``[encoding number, text]``, compressed if the text has ``min_bytes`` or more."""
    data = text.encode("utf-8") if isinstance(text, str) else text
    if len(data) < min_bytes:
        return [_RAW, data.decode("utf-8")]
    return [_ZLIB_BASE64, base64.b64encode(zlib.compress(data, _ZLIB_LEVEL)).decode("ascii")]


def decompress(wire: Any, most_bytes: int | None = None) -> str:
    """Decode what :func:`compress` returned.

    :param most_bytes: the longest text which is accepted; None for :data:`TEXT_MAX_BYTES`, which
        all texts of one argument have together.
    :raises ParseError: the value is not such a pair, or the text is damaged or too long.
    """
    encoding, text = _expect_list(wire, "an encoded text", length=2)
    if not isinstance(text, str):
        raise errors.ParseError("expected an encoded text")
    if most_bytes is None:
        most_bytes = TEXT_MAX_BYTES
    if encoding == _RAW:
        if len(text) > most_bytes:
            raise errors.ParseError(f"texts are longer than {TEXT_MAX_BYTES} bytes")
        return text
    if encoding != _ZLIB_BASE64:
        raise errors.ParseError(f"unknown text encoding {encoding!r}")
    try:
        unpacker = zlib.decompressobj()
        # A limit of 0 would mean none.
        data = unpacker.decompress(base64.b64decode(text, validate=True), max(1, most_bytes))
        if unpacker.unconsumed_tail or len(data) > most_bytes:
            raise errors.ParseError(f"texts are longer than {TEXT_MAX_BYTES} bytes")
        if not unpacker.eof:
            raise errors.ParseError("compressed text is cut short")
        return data.decode("utf-8")
    except (ValueError, zlib.error) as err:
        # Of base64, because of characters which are not ASCII, or of UTF-8.
        raise errors.ParseError(f"damaged compressed text: {err}") from err


PLAIN = Encoding("plain")
HVPARAMS = _HvparamsEncoding("hypervisor parameters")
HV_SPECS = _HvSpecsEncoding("specifications of hypervisors")
ALL_HVPARAMS = _AllHvparamsEncoding("parameters of hypervisors")
INSTANCE = _InstanceEncoding("instance")
DISK = _DiskEncoding("disk")
DEVICE = _DeviceEncoding("disk or network interface")
DISKS = _DisksEncoding("disks")
MULTI_DISKS = _MultiDisksEncoding("disks of several instances")
DISK_RENAMES = _RenameEncoding("disk renames")
COMPRESSED = _CompressedEncoding("compressed text")
FILE = _FileEncoding("file")
TEXTS = _TextsEncoding("named texts")


def prepare() -> None:
    """Build the codecs of instances and disks before processes fork; it takes 2 ms."""
    for cls in (FilledInstance, FilledNic, Disk, BlockDevStatus):
        decoder(cls)
        encoder(cls)


class ResultCodec:
    """Form of an answer: plain JSON of a given shape."""

    def __init__(self, shape: Any = ht.Any) -> None:
        self.shape = shape

    def encode(self, value: Any) -> Any:
        """Turn the value which the handler returned into a JSON value.

        :raises ResultValidationError: the value does not have the declared shape.
        """
        if not self.shape(value):
            raise errors.ResultValidationError(f"handler returned {value!r:.200}, not {self.shape}")
        return value

    def decode(self, wire: Any) -> Any:
        """Turn the JSON value into the value which the caller gets.

        :raises ParseError: the value does not have the declared shape.
        """
        if not self.shape(wire):
            raise errors.ParseError(f"expected {self.shape}, not {wire!r:.200}")
        return wire


#: A value of the facts which a node reports. Values of other types would end what uses them.
FACT = ht.Maybe(ht.Or(ht.Str, ht.Bool, ht.Int, ht.Float))
#: Facts by name.
FACTS = ht.DictOf(ht.Str, FACT)


class CompressedResult(ResultCodec):
    """A text, compressed on the wire when it is long."""

    def encode(self, value: Any) -> Any:
        if not isinstance(value, str):
            raise errors.ResultValidationError(f"handler returned {value!r:.200}, not a text")
        return compress(value)

    def decode(self, wire: Any) -> Any:
        return decompress(wire)


class ObjectResult(ResultCodec):
    """A data class (or None when ``maybe``)."""

    def __init__(self, cls: type[Any], *, maybe: bool = False) -> None:
        super().__init__()
        self._cls = cls
        self._maybe = maybe

    def encode(self, value: Any) -> Any:
        if value is None and self._maybe:
            return None
        if not isinstance(value, self._cls):
            raise errors.ResultValidationError(
                f"handler returned {value!r:.200}, not {self._cls.__name__}"
            )
        return to_dict(value)

    def decode(self, wire: Any) -> Any:
        if wire is None and self._maybe:
            return None
        return from_dict(self._cls, _expect_dict(wire, self._cls.__name__))


class ObjectListResult(ResultCodec):
    """A list of data classes."""

    def __init__(self, cls: type[Any]) -> None:
        super().__init__()
        self._item = ObjectResult(cls)

    def encode(self, value: Any) -> Any:
        return [self._item.encode(item) for item in value]

    def decode(self, wire: Any) -> Any:
        return [self._item.decode(item) for item in _expect_list(wire, "a list")]


class StatusListResult(ResultCodec):
    """A list of ``[True, BlockDevStatus]`` or ``[False, text]``; the caller gets tuples."""

    def encode(self, value: Any) -> Any:
        return [[ok, to_dict(what) if ok else what] for ok, what in value]

    def decode(self, wire: Any) -> Any:
        found = []
        for item in _expect_list(wire, "a list of states"):
            ok, what = _expect_list(item, "a pair", length=2)
            found.append(
                (
                    bool(ok),
                    from_dict(BlockDevStatus, _expect_dict(what, "a state")) if ok else str(what),
                )
            )
        return found


class Failed(NamedTuple):
    """The failure of one of several things, as the caller gets it.

    :ivar text: what went wrong, for people.
    :ivar cause: the error of the node; None when its class is not known here.
    """

    text: str
    cause: Exception | None


class EachResult(ResultCodec):
    """An answer for each of several things: one which fails does not hide the others.

    A handler returns a list of values and exceptions, and the caller gets a list of values and
    :class:`Failed`. On the wire these are ``[True, value]`` and ``[False, text, error]``, with the
    error in the form of :mod:`ganeti.wire.errors`.

    :param item: form of a value.
    """

    def __init__(self, item: ResultCodec) -> None:
        super().__init__()
        self._item = item

    def encode(self, value: Any) -> Any:
        return [
            [False, str(one) or type(one).__name__, wire_errors.encode(one)]
            if isinstance(one, Exception)
            else [True, self._item.encode(one)]
            for one in value
        ]

    def decode(self, wire: Any) -> Any:
        return [self._decoded(one) for one in _expect_list(wire, "a list of answers")]

    def _decoded(self, wire: Any) -> Any:
        match wire:
            case [True, value]:
                return self._item.decode(value)
            case [False, str(text), error]:
                return Failed(text, wire_errors.decode(error))
        raise errors.ParseError("expected [true, value] or [false, text, error]")


class PartlyResult(ResultCodec):
    """A list of values in their published form, some of which may have failed.

    A handler returns a list of values and exceptions, and the caller gets a list of values and
    :class:`Failed`. Only a failure differs from the published form: ``{"failed": text, "error":
    error}``, with the error in the form of :mod:`ganeti.wire.errors`.

    :param item: form of a value, which is no dictionary.
    """

    def __init__(self, item: ResultCodec) -> None:
        super().__init__()
        self._item = item

    def encode(self, value: Any) -> Any:
        return [
            {"failed": str(one) or type(one).__name__, "error": wire_errors.encode(one)}
            if isinstance(one, Exception)
            else self._item.encode(one)
            for one in value
        ]

    def decode(self, wire: Any) -> Any:
        return [self._decoded(one) for one in _expect_list(wire, "a list of answers")]

    def _decoded(self, wire: Any) -> Any:
        match wire:
            case {"failed": str(text), "error": error}:
                return Failed(text, wire_errors.decode(error))
        return self._item.decode(wire)


#: The answer of a call that returns nothing.
NOTHING = ResultCodec(ht.NoneType)


_REQUIRED = object()


@dataclass(frozen=True, slots=True)
class Arg:
    """One argument. ``shape`` is checked on the node, on the wire form of plain arguments.

    ``default`` is for an argument which the release before does not send: what a handler gets when
    a master of that release calls.
    """

    name: str
    encoding: Encoding = PLAIN
    shape: Any = ht.Any
    default: Any = _REQUIRED

    @property
    def has_default(self) -> bool:
        """Whether it was added to a call, so that the release before does not know it."""
        return self.default is not _REQUIRED


@dataclass(frozen=True, slots=True)
class Call:
    """One procedure of the node daemon.

    :param timeout_s: time limit in seconds, or a function of the (unencoded) arguments.
    :param many: the call is made on sets of nodes.
    :param offline_ok: the call is made on offline nodes, too.
    :param any_epoch: a node answers every authenticated caller, also one which is not the master
        (any more).
    :param keep: the call is frequent, takes less time than a fork, and may be made twice without
        harm; its connections are used again.
    :param connection_class: calls of different classes never share a connection, and therefore no
        process of the node daemon.
    :param work: what the call does to an instance or its disks, as a noun for messages; empty for a
        call which changes neither. A node keeps a record of such work
        (:mod:`ganeti.storage.node_work`).
    :param lasting: the work goes on after the answer.
    :param probe: the call finds out whether a node answers, so that a failure is not a warning.
    """

    name: str
    args: tuple[Arg, ...] = ()
    result: ResultCodec = NOTHING
    timeout_s: float | Callable[[Mapping[str, Any]], float] = 900.0
    many: bool = False
    offline_ok: bool = False
    any_epoch: bool = False
    keep: bool = False
    connection_class: str = ""
    work: str = ""
    lasting: bool = False
    probe: bool = False

    def time_limit_s(self, args: Mapping[str, Any]) -> float:
        """Seconds an answer may take with these arguments."""
        if callable(self.timeout_s):
            return self.timeout_s(args)
        return self.timeout_s

    def encode_args(self, args: Mapping[str, Any], filler: Filler) -> list[Any]:
        """Turn keyword arguments into the list for the request body.

        :raises ProgrammerError: an argument is missing or unknown.
        """
        expected = {arg.name for arg in self.args}
        if args.keys() != expected:
            raise errors.ProgrammerError(
                f"node call {self.name} takes arguments {sorted(expected)}, got {sorted(args)}"
            )
        return [arg.encoding.encode(args[arg.name], filler) for arg in self.args]

    def decode_args(self, body: Any, peer: neighbour.Peer | None = None) -> dict[str, Any]:
        """Turn the list from the request body into keyword arguments of the handler.

        :param peer: the caller, if it has another release.
        :raises ParseError: wrong number of arguments or a wrong shape; names call and argument.
        """
        body = self._counted(body, peer)
        decoded: dict[str, Any] = {}
        for arg, wire in zip(self.args, body, strict=False):
            if not arg.shape(wire):
                raise errors.ParseError(
                    f"node call {self.name}: argument {arg.name} is not {arg.shape}"
                )
            try:
                if peer is None:
                    decoded[arg.name] = arg.encoding.decode(wire)
                else:
                    decoded[arg.name] = _decode_foreign(arg, wire, decoded, peer)
            except (
                errors.ParseError,
                errors.ConfigurationError,
                errors.TypeEnforcementError,
            ) as err:
                raise errors.ParseError(
                    f"node call {self.name}: argument {arg.name}: {err}"
                ) from err
        for arg in self.args[len(body) :]:
            decoded[arg.name] = arg.default
        return decoded

    def _counted(self, body: Any, peer: neighbour.Peer | None) -> list[Any]:
        """Return the arguments which this release has; those at the end may be missing.

        :raises ParseError: there are too few or too many.
        """
        if isinstance(body, list):
            if len(body) == len(self.args):
                return body
            if peer is not None and not any(body[len(self.args) :]):
                if all(arg.has_default for arg in self.args[len(body) :]):
                    return body[: len(self.args)]
        found = f"{len(body)}" if isinstance(body, list) else "no list"
        raise errors.ParseError(
            f"node call {self.name} takes {len(self.args)} arguments, got {found}"
        )


def _decode_foreign(arg: Arg, wire: Any, others: Mapping[str, Any], peer: neighbour.Peer) -> Any:
    with codec.tolerating() as left_out:
        value = arg.encoding.decode(wire)
    peer.ignored += [f"{arg.name}/{place}" for place in left_out]
    return arg.encoding.adapt(value, arg.name, others, peer)


def _expect_dict(wire: Any, what: str) -> dict[str, Any]:
    if not isinstance(wire, dict):
        raise errors.ParseError(f"expected {what}")
    return wire


def _expect_list(wire: Any, what: str, length: int | None = None) -> Sequence[Any]:
    if not isinstance(wire, list) or (length is not None and len(wire) != length):
        raise errors.ParseError(f"expected {what}")
    return wire
