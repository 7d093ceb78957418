"""Helpers that take a logical unit, or its whole context, and need only what a ``Context`` has.

Such a helper gets the configuration, the node calls or the log, or a ``Context`` of them. A helper
needs more when it uses anything else of the unit, such as its opcode, its locks or its job, or
passes it on to a function which does. Methods are left out, because the others of their kind may
need more; a constructor counts, with what its class does with the unit which it keeps.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from devel.shape.functions import Function, Place
from devel.shape.source import Source

#: What the class ``Context`` of ``cmdlib/base.py`` has.
PARTS = frozenset({"config", "rpc", "log", "refused"})
#: The annotation of a parameter which is the whole context of a unit.
WHOLE = "LuContext"
PART = "Context"


@dataclass
class Helper:
    """A function with a parameter which is a unit or a context.

    :ivar kind: name of the class in the annotation of that parameter.
    :ivar more: it uses more than a ``Context`` has, or something else does to which it passes it.
    :ivar passes_to: full names of the functions to which it passes it.
    """

    place: Place
    parameter: str
    position: int
    kind: str
    more: bool = False
    passes_to: set[str] = field(default_factory=set)


@dataclass
class _Module:
    source: Source

    @property
    def name(self) -> str:
        """Full name of the module."""
        path = self.source.name.removesuffix(".py").removesuffix("/__init__")
        return f"ganeti.{path.replace('/', '.')}"

    @cached_property
    def meanings(self) -> dict[str, str]:
        """Full names of the functions and classes, by the names which they have here."""
        found = {
            one.asname or one.name: f"{node.module}.{one.name}"
            for node in self.source.nodes
            if isinstance(node, ast.ImportFrom)
            for one in node.names
        }
        for statement in self.source.tree.body:
            if isinstance(statement, Function | ast.ClassDef):
                found[statement.name] = f"{self.name}.{statement.name}"
        return found

    @cached_property
    def parents(self) -> dict[ast.AST, ast.AST]:
        """The node around each node."""
        return {child: node for node in self.source.nodes for child in ast.iter_child_nodes(node)}

    def full_name(self, node: ast.AST) -> str:
        """Return the full name of a function or class; empty for anything else."""
        if isinstance(node, ast.Name):
            return self.meanings.get(node.id, "")
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            module = self.meanings.get(node.value.id)
            return f"{module}.{node.attr}" if module else ""
        return ""


def needless(sources: Iterable[Source]) -> list[Place]:
    """Return the helpers below ``cmdlib/ops`` for which a ``Context`` would be enough."""
    helpers: dict[str, Helper] = {}
    bodies: list[tuple[Helper, _Module, Function, ast.ClassDef | None]] = []
    for module in (_Module(source) for source in sources if source.name.startswith("cmdlib/")):
        for function, owner in _functions(module.source.tree):
            helper = _helper(module, function, owner)
            if helper is not None:
                helpers[f"{module.name}.{owner.name if owner else function.name}"] = helper
                bodies.append((helper, module, function, owner))
    for helper, module, function, owner in bodies:
        for node in _mentions(function, owner, helper.parameter):
            _note(helper, node, module, helpers)
    while changed := [
        one
        for one in helpers.values()
        if not one.more and any(helpers[name].more for name in one.passes_to)
    ]:
        for one in changed:
            one.more = True
    return sorted(
        one.place
        for one in helpers.values()
        if one.kind != PART and not one.more and one.place.file.startswith("cmdlib/ops/")
    )


def _functions(tree: ast.Module) -> Iterator[tuple[Function, ast.ClassDef | None]]:
    """Yield the functions of a module, and the constructors of its classes with their class."""
    for statement in tree.body:
        if isinstance(statement, Function):
            yield statement, None
        elif isinstance(statement, ast.ClassDef):
            for inner in statement.body:
                if isinstance(inner, Function) and inner.name == "__init__":
                    yield inner, statement


def _helper(module: _Module, function: Function, owner: ast.ClassDef | None) -> Helper | None:
    name = owner.name if owner else function.name
    for position, (parameter, kind) in enumerate(_parameters(function, owner)):
        if kind in (WHOLE, PART) or kind.endswith("Unit"):
            place = Place(module.source.name, function.lineno, name, 1)
            return Helper(place, parameter, position, kind)
    return None


def _parameters(function: Function, owner: ast.ClassDef | None) -> Sequence[tuple[str, str]]:
    """Return name and annotation of each parameter without ``self``; ``Unit[X]`` is ``Unit``."""
    arguments = function.args
    found = []
    for one in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs):
        kind = one.annotation.value if isinstance(one.annotation, ast.Subscript) else one.annotation
        found.append((one.arg, kind.id if isinstance(kind, ast.Name) else ""))
    return found[1:] if owner else found


def _mentions(function: Function, owner: ast.ClassDef | None, parameter: str) -> Iterator[ast.AST]:
    """Yield where a function uses its parameter, and where its class uses what it keeps of it."""
    kept = {
        node.targets[0].attr: node.value
        for node in ast.walk(function)
        if owner is not None
        and isinstance(node, ast.Assign)
        and isinstance(node.targets[0], ast.Attribute)
        and isinstance(node.value, ast.Name)
        and node.value.id == parameter
    }
    for node in ast.walk(function):
        if isinstance(node, ast.Name) and node.id == parameter and node not in kept.values():
            yield node
    for node in ast.walk(owner) if owner else ():
        if isinstance(node, ast.Attribute) and node.attr in kept:
            if isinstance(node.ctx, ast.Load):
                yield node


def _note(helper: Helper, node: ast.AST, module: _Module, helpers: dict[str, Helper]) -> None:
    """Note one use of the unit or context: a part of it, passed on, or something else."""
    parent = module.parents[node]
    if isinstance(parent, ast.Attribute) and parent.attr == "ctx" and helper.kind != WHOLE:
        node, parent = parent, module.parents[parent]
    if isinstance(parent, ast.Attribute) and parent.attr in PARTS:
        return
    if isinstance(parent, ast.keyword):
        node, parent = parent, module.parents[parent]
    target = _passed_to(parent, node, module, helpers) if isinstance(parent, ast.Call) else ""
    if target:
        helper.passes_to.add(target)
    else:
        helper.more = True


def _passed_to(
    call: ast.Call, argument: ast.AST, module: _Module, helpers: dict[str, Helper]
) -> str:
    """Return the full name of the helper which gets an argument as its unit or context.

    That is the function which is called, or one which is an argument itself and is called later
    with those behind it, as :meth:`UndoStack.add` does.
    """
    name = module.full_name(call.func)
    if isinstance(argument, ast.keyword):
        known = name in helpers and helpers[name].parameter == argument.arg
        return name if known else ""
    place = next(index for index, one in enumerate(call.args) if one is argument)
    for position, target in enumerate([call.func, *call.args[:place]]):
        name = module.full_name(target)
        if name in helpers and helpers[name].position == place - position:
            return name
    return ""
