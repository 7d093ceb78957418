"""Base of opcodes: declarations of the operations which the master carries out.

An opcode is declared once, as a class with annotated parameters. The check of requests, the help of
commands, the bodies of REST requests and the documentation are made from that declaration::

    @opcode(summary="instance_name")
    class OpInstanceStartup(OpCode):
        \"\"\"Start a stopped instance. Result: None.\"\"\"
        instance_name: str = param(ht.Str, "Instance to start")
        RESULT = ht.NoneType

Opcodes have only data; the logical units in :mod:`ganeti.cmdlib` execute them. Objects are built
with keyword arguments and serialised with every published parameter (:meth:`OpCode.to_dict`),
because other programs read them from job files. Defaults of parameters are filled in when the
object is built; :meth:`OpCode.validate` then checks the whole opcode.

Commands import this module, so it does not import dataclasses or typing at run time.
"""

from __future__ import annotations

from ganeti import TYPE_CHECKING, errors, ht

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, ClassVar, Self, TypeVar

    OpClass = TypeVar("OpClass", bound="type[OpCode]")

# Kinds of opcodes: those of kind "query" change nothing, those of kind "test" are for developers.
CHANGE = "change"
QUERY = "query"
TEST = "test"

PRIORITY_DEFAULT = 0
PRIORITY_SUBMIT_VALID = (-10, 0, 10)
JOB_STATUS_FINALIZED = ("canceled", "error", "success")


_MISSING: Any = type("Missing", (), {"__repr__": lambda self: "<missing>", "__slots__": ()})()


class Param:
    """A parameter of an opcode. A required parameter has no default.

    :ivar added: Ganeti does not have it. Its default is None, and it is serialised only with
        another value, so that other programs can read the opcode (:meth:`OpCode.to_dict`).
    """

    __slots__ = ("added", "default", "doc", "name", "required", "type")

    def __init__(
        self, type_: ht.Type, doc: str, default: Any = _MISSING, *, added: bool = False
    ) -> None:
        self.name = ""
        self.type = type_
        self.doc = doc
        self.required = default is _MISSING
        self.default = None if self.required else default
        self.added = added

    def named(self, name: str) -> Param:
        """Return a copy with this name: several opcodes share a declaration."""
        default = _MISSING if self.required else self.default
        copy = Param(self.type, self.doc, default, added=self.added)
        copy.name = name
        return copy

    def fresh_default(self) -> Any:
        """Return the default as a copy which the caller may change."""
        default = self.default
        return default.copy() if default.__class__ in (list, dict) else default

    def __repr__(self) -> str:
        return f"<Param {self.name}: {self.type}>"


def param(type_: ht.Type, doc: str, default: Any = _MISSING, *, added: bool = False) -> Any:
    """Declare a parameter in the body of an opcode class. Without a default, it is required.

    :param added: Ganeti does not have this parameter.
    """
    return Param(type_, doc, default, added=added)


_Dependency = ht.Tuple(
    ht.Or(ht.JobId, ht.NegativeInt),
    ht.ListOf(ht.OneOf("job-final-status", JOB_STATUS_FINALIZED)),
)


def op_id_of(class_name: str) -> str:
    """Return ``OP_INSTANCE_STARTUP`` for the class name ``OpInstanceStartup``."""
    return "".join(
        "_" + char if char.isupper() and place else char for place, char in enumerate(class_name)
    ).upper()


class OpCode:
    """Base class of all opcodes, with the parameters which every opcode has.

    :raises errors.OpPrereqError: the constructor gets a parameter which is not declared, or an old
        flag (``OLD_FLAGS``) that is neither true nor false.
    """

    OP_ID: ClassVar[str] = ""
    KIND: ClassVar[str] = CHANGE
    PARAMS: ClassVar[dict[str, Param]] = {}
    RESULT: ClassVar[ht.Type] = ht.Any
    SUMMARY_FIELD: ClassVar[str] = ""
    #: Flags of Ganeti 3.0 which 3.1 has no more -> the flag of today that a true one sets. A false
    #: one says nothing. Clients of 3.0 and job files send them; no opcode keeps them.
    OLD_FLAGS: ClassVar[dict[str, str]] = {}

    dry_run: bool | None = param(
        ht.Maybe(ht.Bool), "Only check the prerequisites; change nothing", default=None
    )
    debug_level: int | None = param(
        ht.Maybe(ht.NonNegInt),
        "Debug level, from 0; scripts of OS definitions get it",
        default=None,
    )
    priority: int = param(
        ht.OneOf("one-of(op_prio_submit_valid)", PRIORITY_SUBMIT_VALID),
        "Priority; a job with a lower number runs earlier",
        default=PRIORITY_DEFAULT,
    )
    depends: list[Any] | None = param(
        ht.Maybe(ht.ListOf(_Dependency)),
        "Jobs to wait for: [job ID, accepted final states]; a negative ID counts back within the "
        "submitted jobs, an empty list of states means success",
        default=None,
    )
    comment: str | None = param(ht.Maybe(ht.Remark), "Comment of the submitter", default=None)
    reason: list[Any] = param(
        ht.Maybe(ht.ListOf(ht.Any)),
        "Reason trail: list of [source, reason, nanoseconds since 1970]",
        default=[],
    )
    plan: bool | None = param(
        ht.Maybe(ht.Bool),
        "Only check the prerequisites, as a dry run does; the result is the plan",
        default=None,
        added=True,
    )

    def __init__(self, **values: Any) -> None:
        mine = self.__dict__
        declared = self.PARAMS
        for old in values.keys() & self.OLD_FLAGS.keys() if self.OLD_FLAGS else ():
            self._take_old_flag(old, values)
        for name, declaration in declared.items():
            if name in values:
                value = values.pop(name)
                mine[name] = ht.hide(value) if declaration.type.hidden else value
            elif not declaration.required:
                mine[name] = declaration.fresh_default()
        if values:
            from ganeti.utils import suggest  # needed after a mistake only

            unknown = sorted(map(str, values))
            similar = suggest.did_you_mean(unknown[0], declared)
            raise errors.OpPrereqError(
                f"{self.OP_ID}: unknown parameter: {', '.join(unknown)}"
                f"{'.' if similar else ''}{similar}",
                errors.ECODE_INVAL,
            )

    def _take_old_flag(self, old: str, values: dict[str, Any]) -> None:
        value = values.pop(old)
        if not ht.Bool(value):
            raise errors.OpPrereqError(
                f"{self.OP_ID}: parameter {old!r} must be {ht.describe(ht.Bool)}, not"
                f" {_shorten(repr(value))}",
                errors.ECODE_INVAL,
            )
        if value:
            values[self.OLD_FLAGS[old]] = True

    def __setattr__(self, name: str, value: Any) -> None:
        if name not in self.PARAMS:
            raise AttributeError(f"{self.OP_ID} has no parameter {name!r}")
        self.__dict__[name] = value

    def __repr__(self) -> str:
        shown = ", ".join(
            f"{key}={value!r}" for key, value in self.to_dict(redact=True).items() if key != "OP_ID"
        )
        return f"{type(self).__name__}({shown})"

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and other.__dict__ == self.__dict__

    __hash__ = None  # type: ignore[assignment]  # parameters may change

    def validate(self) -> Self:
        """Check every parameter and return the opcode itself.

        An integer is converted where the type is a floating-point number. An opcode of which the
        plan is wanted becomes a dry run.

        :raises errors.OpPrereqError: wrong_input: a parameter is missing or has the wrong type. The
            message names the opcode, the parameter and the type.
        """
        mine = self.__dict__
        for name, declaration in self.PARAMS.items():
            if name not in mine:
                raise errors.OpPrereqError(
                    f"{self.OP_ID}: required parameter {name!r} is missing", errors.ECODE_INVAL
                )
            value = mine[name]
            wanted = declaration.type
            if wanted.check(value):
                continue
            if isinstance(value, int) and not isinstance(value, bool):
                try:
                    as_float = float(value)
                except OverflowError:
                    as_float = None
                if as_float is not None and wanted.check(as_float):
                    mine[name] = as_float
                    continue
            shown = ht.REDACTED if wanted.hidden else _shorten(repr(value)) + ht.limit_of(value)
            raise errors.OpPrereqError(
                f"{self.OP_ID}: parameter {name!r} must be {ht.describe(wanted)}, not {shown}",
                errors.ECODE_INVAL,
            )
        if mine.get("plan"):
            mine["dry_run"] = True
        return self

    def replace(self, **changes: Any) -> Self:
        """Return a copy with other values of some parameters."""
        made = object.__new__(type(self))
        made.__dict__.update(self.__dict__)
        for name, value in changes.items():
            setattr(made, name, value)
        return made

    def to_dict(self, redact: bool | str = False) -> dict[str, Any]:
        """Return all parameters and ``OP_ID``.

        A parameter that Ganeti does not have is left out while it has its default: its programs
        refuse a job file with an unknown parameter.

        :param redact: False returns all values (for LUXI), ``"secret"`` hides the values which must
            not be written to the job queue, True hides the private ones, too.
        """
        mine = self.__dict__
        state: dict[str, Any] = {"OP_ID": self.OP_ID}
        for name, declaration in self.PARAMS.items():
            if name in mine:
                hidden = declaration.type.hidden
                value = mine[name]
                if value is None and declaration.added:
                    continue
                if hidden and redact and (redact is True or hidden == redact):
                    value = ht.redact(value)
                state[name] = value
        return state

    def summary(self) -> str:
        """Return one line for job lists: ``INSTANCE_STARTUP(web1)``."""
        text = self.OP_ID[3:]
        if self.SUMMARY_FIELD:
            text += f"({self.summary_value()})"
        return text

    def summary_value(self) -> str:
        """Return the text in the brackets of a summary."""
        value = self.__dict__.get(self.SUMMARY_FIELD)
        if isinstance(value, (list, tuple)):
            return ",".join(map(str, value))
        return str(value)

    def reason_source(self) -> str:
        """Return the source which stands for this opcode in a reason trail."""
        return f"gnt:opcode:{self.OP_ID[3:].lower()}"

    def add_reason(self, source: str, text: str, time_ns: int) -> None:
        """Append an entry to the reason trail; ``time_ns`` is in nanoseconds since 1970."""
        self.reason = [*(self.reason or ()), [source, text, time_ns]]


def _shorten(text: str, limit: int = 200) -> str:
    return text if len(text) <= limit else text[:limit] + "..."


def _collect(cls: type[OpCode]) -> dict[str, Param]:
    """Remove the declarations from a class body; return them in order."""
    found = {}
    for name, value in list(cls.__dict__.items()):
        if value.__class__ is Param:
            found[name] = value.named(name)
            delattr(cls, name)
    return found


COMMON_PARAMS = _collect(OpCode)
OpCode.PARAMS = COMMON_PARAMS


def opcode(summary: str = "", kind: str = CHANGE) -> Callable[[OpClass], OpClass]:
    """Class decorator which makes a declared class an opcode.

    :param summary: parameter which the job list shows in brackets.
    """

    def declare(cls: OpClass) -> OpClass:
        own = _collect(cls)
        cls.OP_ID = op_id_of(cls.__name__)
        cls.KIND = kind
        cls.PARAMS = {**own, **COMMON_PARAMS}
        cls.SUMMARY_FIELD = summary
        if summary and summary not in own:
            raise errors.ProgrammerError(f"{cls.OP_ID}: no parameter {summary!r} to show")
        return cls

    return declare
