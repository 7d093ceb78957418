"""Convert objects to dictionaries and back, as their declarations define.

For each class, a decoder and an encoder are generated once, as Python text made from the
annotations of the class, so that 20,000 instances are loaded within a second and one object within
microseconds. A dictionary from outside (a file, another node) is checked while it is read: an
unknown key, a missing one or a value of the wrong type is an :class:`errors.ConfigurationError`
which has the path to it, such as ``instances/<uuid>/nics/0/mac``.

What another release has written or sent is read within :func:`tolerating`: unknown keys are left
out.
"""

from __future__ import annotations

import contextlib
import dataclasses
import types
import typing
from collections.abc import Callable, Iterator, Mapping
from contextvars import ContextVar
from typing import Any, NoReturn, TypeVar

from ganeti import errors, ht

T = TypeVar("T")
Decoder = Callable[[Any, str], Any]
Encoder = Callable[[Any], dict[str, Any]]

_decoders: dict[type, Decoder] = {}
_encoders: dict[type, Encoder] = {}

_KINDS = {
    str: "text",
    int: "an integer",
    float: "a number",
    bool: "true or false",
    dict: "a dictionary",
    list: "a list",
}
_ACCEPTED: dict[type, tuple[type, ...]] = {float: (float, int), list: (list, tuple)}

# The paths of unknown keys which have been left out; None where they are an error.
_left_out: ContextVar[list[str] | None] = ContextVar("left_out", default=None)


@contextlib.contextmanager
def tolerating() -> Iterator[list[str]]:
    """Leave out unknown keys in this block, because another release may know them.

    :returns: a list which gets the paths of those which had a value, that is, anything but None,
        false, zero, an empty text or an empty container.
    """
    left_out: list[str] = []
    token = _left_out.set(left_out)
    try:
        yield left_out
    finally:
        _left_out.reset(token)


def from_any_release(cls: type[T], value: Any, path: str = "") -> T:
    """Build an object from a dictionary which another release may have written.

    Unknown keys are left out.

    :raises errors.ConfigurationError: a value is wrong, or a key is missing.
    """
    with tolerating():
        return from_dict(cls, value, path)


def from_dict(cls: type[T], value: Any, path: str = "") -> T:
    """Build an object from its dictionary.

    :param path: path of the dictionary in a larger one, for messages.
    :raises errors.ConfigurationError: a key or value is wrong; the message has the path to it.
    """
    return decoder(cls)(value, path)  # type: ignore[no-any-return]


def to_dict(obj: Any) -> dict[str, Any]:
    """Return the dictionary of an object; both share the dictionaries of parameters."""
    return encoder(type(obj))(obj)


def decoder(cls: type) -> Decoder:
    """Return the function which decodes one class: ``(dictionary, path) -> object``."""
    found = _decoders.get(cls)
    if found is None:
        found = _decoders[cls] = _make_decoder(cls)
    return found


def encoder(cls: type) -> Encoder:
    """Return the function which encodes one class."""
    found = _encoders.get(cls)
    if found is None:
        found = _encoders[cls] = _make_encoder(cls)
    return found


def _wrong(path: str, key: str, kind: type, value: Any) -> NoReturn:
    place = _join(path, key)
    raise errors.ConfigurationError(
        f"{place}: must be {_KINDS[kind]}, not {_shorten(repr(value))}", place
    )


def _bad_keys(
    path: str, value: Any, known: frozenset[str], required: frozenset[str]
) -> dict[str, Any]:
    """Return a dictionary without its unknown keys.

    :raises errors.ConfigurationError: it is not a dictionary, a key is missing, or there are
        unknown ones outside of :func:`tolerating`.
    """
    if not isinstance(value, dict):
        _wrong(path, "", dict, value)
    left_out = _left_out.get()
    for key in value:
        if key not in known:
            place = _join(path, str(key))
            if left_out is None:
                raise errors.ConfigurationError(f"{place}: unknown key", place)
            if value[key]:
                left_out.append(place)
    missing = sorted(required.difference(value))
    if missing:
        place = _join(path, missing[0])
        raise errors.ConfigurationError(f"{place}: is missing", place)
    return {key: member for key, member in value.items() if key in known}


def _join(path: str, key: str) -> str:
    return "/".join(part for part in (path, key) if part) or "(top)"


def _shorten(text: str) -> str:
    return text if len(text) <= 80 else text[:80] + "..."


class _Source:
    """Text of a function which is being generated, with the objects to which it refers."""

    def __init__(self) -> None:
        self.names: dict[str, Any] = {}
        self.lines: list[str] = []

    def ref(self, value: Any) -> str:
        name = f"_{len(self.names)}"
        self.names[name] = value
        return name

    def function(self, header: str) -> Any:
        text = "\n".join([header, *("    " + line for line in self.lines)])
        namespace = dict(self.names)
        exec(compile(text, f"<codec {header}>", "exec"), namespace)
        return namespace[header[4 : header.index("(")]]


def _parts(annotation: Any) -> tuple[Any, bool]:
    """Return (X, True) for ``X | None``, else (X, False)."""
    if typing.get_origin(annotation) in (types.UnionType, typing.Union):
        inner = [arg for arg in typing.get_args(annotation) if arg is not types.NoneType]
        return inner[0], True
    return annotation, False


def _inner(annotation: Any) -> tuple[type | None, Any]:
    """Return container and class of its members: (tuple, Nic), (dict, Node), (None, str)."""
    origin = typing.get_origin(annotation)
    if origin is tuple:
        return tuple, typing.get_args(annotation)[0]
    if origin is dict:
        return dict, typing.get_args(annotation)[1]
    return None, annotation


def _make_decoder(cls: type) -> Decoder:
    hints = typing.get_type_hints(cls)
    source = _Source()
    fields = dataclasses.fields(cls)
    known = frozenset(field.name for field in fields)
    required = frozenset(
        field.name
        for field in fields
        if field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
    )
    known_ref, required_ref = source.ref(known), source.ref(required)
    bad, wrong = source.ref(_bad_keys), source.ref(_wrong)
    add = source.lines.append
    if "forthcoming" in known:
        # A forthcoming object lacks values which are not decided yet.
        zero = {name: _zero(hints[name]) for name in required if name not in ("uuid", "name")}
        add("if isinstance(d, dict) and d.get('forthcoming'):")
        add(f"    d = {{**{source.ref(zero)}, **d}}")
    add(
        f"if not isinstance(d, dict) or not {known_ref}.issuperset(d) "
        f"or not {required_ref} <= d.keys():"
    )
    add(f"    d = {bad}(path, d, {known_ref}, {required_ref})")
    arguments = []
    for field in fields:
        key = field.name
        annotation, nullable = _parts(hints[key])
        variable = f"v_{key}"
        arguments.append(f"{key}={variable}")
        if key in required:
            add(f"{variable} = d[{key!r}]")
            indent = ""
        else:
            default = (
                field.default
                if field.default is not dataclasses.MISSING
                else source.ref(field.default_factory) + "()"
            )
            text = (
                default
                if isinstance(default, str) and default.startswith("_")
                else source.ref(default)
            )
            add(f"{variable} = d.get({key!r})")
            add(f"if {variable} is None:")
            add(f"    {variable} = {text}")
            add("else:")
            indent = "    "
        if nullable and key in required:
            add(f"if {variable} is not None:")
            indent = "    "
        before = len(source.lines)
        _Value(source, indent, variable, key, wrong).decode(annotation, field.metadata)
        if indent and len(source.lines) == before:
            add(f"{indent}pass")
    add(f"return {source.ref(cls)}({', '.join(arguments)})")
    return source.function("def decode(d, path):")  # type: ignore[no-any-return]


class _Value:
    """Adds the lines which check and decode one value of a dictionary.

    :param variable: has the value before these lines and the decoded one after them.
    :param key: of the value in the dictionary.
    :param wrong: the name of :func:`_wrong` in the source.
    """

    def __init__(self, source: _Source, indent: str, variable: str, key: str, wrong: str) -> None:
        self._source = source
        self._indent = indent
        self._variable = variable
        self._key = key
        self._wrong = wrong

    def _add(self, *lines: str) -> None:
        self._source.lines.extend(self._indent + line for line in lines)

    def _path(self, ending: str = "") -> str:
        """Return an expression: the path of the value, for messages."""
        key = self._key + ending
        return f"path + '/{key}' if path else '{key}'"

    def decode(self, annotation: Any, metadata: Mapping[str, Any]) -> None:
        """Add the lines for a value of this type."""
        container, member = _inner(annotation)
        if annotation is Any:
            return
        if container is None and dataclasses.is_dataclass(member):
            decode = self._source.ref(decoder(typing.cast(type, member)))
            self._add(f"{self._variable} = {decode}({self._variable}, {self._path()})")
        elif container is None:
            self._scalar(member)
        else:
            self._check(dict if container is dict else list)
            if dataclasses.is_dataclass(member):
                self._objects(container, member)
            elif container is tuple:
                self._items(member)
            elif metadata.get("known") is not None:
                self._require_known(metadata)

    def _check(self, plain: type) -> None:
        accepted = self._source.ref(_ACCEPTED.get(plain, (plain,)))
        number = f" and {self._variable}.__class__ is not bool" if plain in (int, float) else ""
        self._add(
            f"if not (isinstance({self._variable}, {accepted}){number}):",
            f"    {self._wrong}(path, {self._key!r}, {self._source.ref(plain)}, {self._variable})",
        )

    def _scalar(self, member: Any) -> None:
        self._check(dict if member is ht.PrivateDict else member)
        if member is ht.PrivateDict:
            self._add(f"{self._variable} = {self._source.ref(ht.hide)}({self._variable})")

    def _objects(self, container: type, member: Any) -> None:
        variable = self._variable
        # A class may contain itself (a disk has disks), so its decoder is looked up at each use.
        find = f"m = {self._source.ref(decoder)}({self._source.ref(member)})"
        path = f"p = {self._path('/')}"
        if container is dict:
            self._add(find, path, f"{variable} = {{k: m(v, p + k) for k, v in {variable}.items()}}")
        else:
            self._add(
                f"if {variable}:",
                f"    {find}",
                f"    {path}",
                f"    {variable} = tuple([m(v, p + str(i)) for i, v in enumerate({variable})])",
                "else:",
                f"    {variable} = ()",
            )

    def _items(self, member: Any) -> None:
        if member in (str, int):
            kind = self._source.ref(member)
            self._add(
                f"for v in {self._variable}:",
                f"    if v.__class__ is not {kind}:",
                f"        {self._wrong}(path, {self._key!r}, {kind}, v)",
            )
        self._add(f"{self._variable} = tuple({self._variable})")

    def _require_known(self, metadata: Mapping[str, Any]) -> None:
        variable, known = self._variable, metadata["known"]
        ref = self._source.ref(known)
        need = self._source.ref(known if metadata.get("filled") else frozenset())
        self._add(
            f"if not {ref}.issuperset({variable}) or not {need} <= {variable}.keys():",
            f"    {variable} = {self._source.ref(_bad_keys)}({self._path()}, {variable}, {ref},"
            f" {need})",
        )


def _zero(annotation: Any) -> Any:
    annotation, _ = _parts(annotation)
    container, member = _inner(annotation)
    if container is not None:
        return [] if container is tuple else {}
    return member() if member in (str, int, float, bool, dict) else None


def _make_encoder(cls: type) -> Encoder:
    hints = typing.get_type_hints(cls)
    source = _Source()
    always: list[str] = []
    sometimes: list[str] = []
    for field in dataclasses.fields(cls):
        key = field.name
        annotation, nullable = _parts(hints[key])
        nullable = nullable or field.default is None
        container, member = _inner(annotation)
        value = f"o.{key}"
        if dataclasses.is_dataclass(member):
            # The encoder is looked up at each use, because a class may contain itself.
            encode = f"{source.ref(encoder)}({source.ref(member)})"
            if container is None:
                value = f"{encode}(o.{key})"
            elif container is dict:
                value = f"(lambda e: {{k: e(v) for k, v in o.{key}.items()}})({encode})"
            else:
                value = f"[{encode}(v) for v in o.{key}] if o.{key} else []"
        elif container is tuple:
            value = f"list(o.{key})"
        if field.metadata.get("unstored"):
            test = f"o.{key}"
            if field.default is not dataclasses.MISSING:
                test += f" != {source.ref(field.default)}"
            sometimes += [f"if {test}:", f"    r[{key!r}] = {value}"]
        elif nullable:
            sometimes += [f"if o.{key} is not None:", f"    r[{key!r}] = {value}"]
        else:
            always.append(f"{key!r}: {value}")
    source.lines = [f"r = {{{', '.join(always)}}}", *sometimes, "return r"]
    return source.function("def encode(o):")  # type: ignore[no-any-return]
