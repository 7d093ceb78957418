"""Classes with declared fields, like data classes, for programs whose start counts.

The module ``dataclasses`` loads ``inspect``, and compiles each method of each class. Loaded by
**gnt-instance**, whose start takes 58 ms of processor time, it adds 18 ms, and ``typing`` adds 8 ms
(the least of 25 starts, Python 3.11); a start may cost 3 ms more, so this module stays. An
allocator may be started for every instance. Type checkers
see the functions of ``dataclasses``; this module has the part of them which is used. Likewise
:class:`NamedTuple` declares a named tuple of ``collections`` as ``typing`` does, without loading
``typing``.
"""

from __future__ import annotations

from ganeti import TYPE_CHECKING

if TYPE_CHECKING:
    from dataclasses import dataclass as record
    from dataclasses import field, replace
    from typing import NamedTuple
else:
    from collections import namedtuple

    class _NamedTupleType(type):
        """The type of the classes which are derived from :class:`NamedTuple`."""

        def __new__(cls, name, bases, content):
            if not bases:
                return type.__new__(cls, name, bases, content)
            names = tuple(content.get("__annotations__", ()))
            defaults = [content.pop(key) for key in names if key in content]
            made = namedtuple(name, names, defaults=defaults, module=content["__module__"])
            return type(name, (made,), {**content, "__slots__": ()})

    class NamedTuple(metaclass=_NamedTupleType):
        """A tuple whose items have names, from the annotations of a class."""

    class FrozenFieldError(AttributeError):
        """A field of a frozen record cannot be changed."""

    class _Factory:
        __slots__ = ("make",)

        def __init__(self, make):
            self.make = make

    def field(*, default_factory):
        """Declare a field whose default is made anew for each object."""
        return _Factory(default_factory)

    def record(*, frozen=False, slots=True):
        """Make a class from the annotations of another one.

        The class gets slots, an initialiser, equality, a representation and, when it is frozen, a
        hash.

        :param frozen: fields cannot be changed.
        :param slots: always true; for type checkers.
        """

        def make(cls):
            names = tuple(cls.__annotations__)
            content = {
                key: value
                for key, value in cls.__dict__.items()
                if key not in names and key not in ("__dict__", "__weakref__")
            }
            content["__slots__"] = names
            content["__init__"] = _initialiser(cls, names, frozen)
            content["__eq__"] = _equal
            content["__repr__"] = _represent
            content["__hash__"] = _hash if frozen else None
            if frozen:
                content["__setattr__"] = content["__delattr__"] = _refuse
            return type(cls)(cls.__name__, cls.__bases__, content)

        return make

    def replace(one, **changes):
        """Copy a record with other values of some fields."""
        return type(one)(**{**{name: getattr(one, name) for name in one.__slots__}, **changes})

    def _initialiser(cls, names, frozen):
        known = {"_set": object.__setattr__, "_missing": _Factory}
        parameters, lines = ["self"], []
        for name in names:
            value = name
            if name in cls.__dict__:
                known[f"_of_{name}"] = default = cls.__dict__[name]
                if isinstance(default, _Factory):
                    parameters.append(f"{name}=_missing")
                    value = f"_of_{name}.make() if {name} is _missing else {name}"
                else:
                    parameters.append(f"{name}=_of_{name}")
            else:
                parameters.append(name)
            lines.append(f" _set(self, {name!r}, {value})" if frozen else f" self.{name} = {value}")
        exec(f"def __init__({', '.join(parameters)}):\n" + "\n".join(lines), known)
        return known["__init__"]

    def _values(one):
        return tuple([getattr(one, name) for name in one.__slots__])

    def _equal(one, other):
        if one.__class__ is not other.__class__:
            return NotImplemented
        return _values(one) == _values(other)

    def _hash(one):
        return hash(_values(one))

    def _represent(one):
        fields = ", ".join(f"{name}={getattr(one, name)!r}" for name in one.__slots__)
        return f"{one.__class__.__qualname__}({fields})"

    def _refuse(_one, name, *_value):
        raise FrozenFieldError(f"cannot change field {name!r}")


__all__ = ["NamedTuple", "field", "record", "replace"]
