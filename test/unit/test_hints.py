"""A message names only commands which exist, and only options which the command has.

The texts of the program are read from its sources. A text which names a command, such as
``gnt-node add --readd``, is compared with the table of that command. A text with an option alone,
such as ``Use --force``, speaks to its reader: in a function of a command every command which
reaches the function needs the option; in a logical unit, every command which submits its opcode;
in a module which units share, at least one of the commands which submit one of their opcodes.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import re
from collections import defaultdict
from collections.abc import Iterator
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import pytest

from ganeti import client
from ganeti.cli import options as opt

LIB = Path(__file__).parents[2] / "lib/ganeti"
OPTION = re.compile(r"(?<![\w-])--[a-z][a-z-]*[a-z](?![\w-])")
CALL_WITH_OPTIONS = re.compile(r"\b(gnt-[a-z]+) ([a-z][a-z-]*)((?:\s(?!gnt-)[^'\s;,]+)*)")
#: Texts about the options of other programs, or with an option of a command named elsewhere.
OTHER_PROGRAMS = re.compile(
    r"\b(vgreduce|xl list|qemu-img|sha256sum|ganeti-takeover|node-cleanup|rapi-passwd|burnin"
    r"|ganeti-cleaner|ganeti-watcher|cfgupgrade|vcluster)\b"
)

#: Texts which a command or unit never shows in the case of these commands, and why.
UNREACHED = {
    ("cli/instance_creation.py", "--commit"): "only gnt-instance add commits a reservation",
    ("cli/instance_options.py", "--disk"): "an import takes its disks from the description",
    ("cmdlib/node/oob_command.py", "--ignore-status"): "about power-off; epo ignores the status",
    ("cmdlib/node/set_params.py", "--auto-promote"): "epo sets the flag by force, which warns",
}
#: They submit opcodes of other commands, and say so after an error which names an option
#: (client/test_undo.py).
UNDO = {("gnt-cluster", "undo"), ("gnt-instance", "undo")}


@cache
def tables() -> dict[tuple[str, str], frozenset[str]]:
    """Return the long and short option names of each command of each program."""
    common = {name for option in opt.COMMON for name in option.names}
    found = {}
    for program, module in client.PROGRAMS.items():
        table = importlib.import_module(module).PROGRAM
        for word in [*table.commands, *table.aliases]:
            command = table.commands[table.aliases.get(word, word)]
            names = {name for option in command.options for name in option.names}
            found[program, word] = frozenset(names | common)
    return found


class Module:
    """The functions, imports and texts of a source file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        parts = path.relative_to(LIB.parent).with_suffix("").parts
        self.name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        tree = ast.parse(path.read_text(encoding="utf-8"))
        self.owners: dict[str, ast.AST] = {}
        for node in tree.body:
            if isinstance(node, ast.FunctionDef | ast.ClassDef):
                self.owners[node.name] = node
        self.units = {
            argument.attr if isinstance(argument, ast.Attribute) else getattr(argument, "id", "")
            for node in tree.body
            if isinstance(node, ast.ClassDef)
            for decorator in node.decorator_list
            if isinstance(decorator, ast.Call) and getattr(decorator.func, "id", "") == "executes"
            for argument in decorator.args
        }
        self.tree = tree

    @cached_property
    def imports(self) -> dict[str, str]:
        """The full name of each imported name."""
        found = {}
        for node in ast.walk(self.tree):
            if isinstance(node, ast.ImportFrom) and node.module:
                for alias in node.names:
                    found[alias.asname or alias.name] = f"{node.module}.{alias.name}"
            elif isinstance(node, ast.Import):
                for alias in node.names:
                    found[alias.asname or alias.name] = alias.name
        return found

    def uses(self, owner: str) -> set[str]:
        """Return the full names to which a function or class of the module refers."""
        found = set()
        for node in ast.walk(self.owners[owner]):
            if isinstance(node, ast.Name):
                if node.id in self.owners:
                    found.add(f"{self.name}.{node.id}")
                elif node.id in self.imports:
                    found.add(self.imports[node.id])
            elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
                if node.value.id in self.imports:
                    found.add(f"{self.imports[node.value.id]}.{node.attr}")
        return found

    def texts(self) -> Iterator[tuple[str, str]]:
        """Yield the function or class, and the text, of each string which names an option."""
        for node in self.tree.body:
            owner = node.name if isinstance(node, ast.FunctionDef | ast.ClassDef) else ""
            for text in _texts(node):
                if "--" in text:
                    yield owner, text


def _texts(top: ast.AST) -> Iterator[str]:
    if isinstance(top, ast.JoinedStr):
        yield "".join(
            str(part.value) if isinstance(part, ast.Constant) else "X" for part in top.values
        )
    elif isinstance(top, ast.Constant):
        if isinstance(top.value, str):
            yield top.value
    elif isinstance(top, ast.Expr) and isinstance(top.value, ast.Constant):
        return  # a docstring
    else:
        for child in ast.iter_child_nodes(top):
            yield from _texts(child)


@cache
def modules() -> dict[str, Module]:
    """Return the modules of commands and units, and all others which name options."""
    found = {}
    for path in sorted(LIB.rglob("*.py")):
        if path.relative_to(LIB).parts[0] in ("client", "cli", "cmdlib") or (
            re.search(r"[\"' ]--[a-z]", path.read_text(encoding="utf-8"))
        ):
            module = Module(path)
            found[module.name] = module
    return found


@cache
def uses(module: str, owner: str) -> frozenset[str]:
    return frozenset(modules()[module].uses(owner))


def _functions(function: Any) -> Iterator[Any]:
    """Yield a function, and the functions which it has in its closure."""
    yield function
    for cell in function.__closure__ or ():
        if inspect.isfunction(cell.cell_contents):
            yield from _functions(cell.cell_contents)


@cache
def reached_by() -> dict[str, frozenset[tuple[str, str]]]:
    """Return, for each function of the commands and each opcode, the commands which use it."""
    found: dict[str, set[tuple[str, str]]] = defaultdict(set)
    for program, place in client.PROGRAMS.items():
        for word, command in importlib.import_module(place).PROGRAM.commands.items():
            todo = [
                f"{function.__module__}.{function.__qualname__.partition('.')[0]}"
                for function in _functions(command.run)
            ]
            while todo:
                name = todo.pop()
                if (program, word) in found[name]:
                    continue
                found[name].add((program, word))
                module, _, owner = name.rpartition(".")
                if module in modules() and owner in modules()[module].owners:
                    if module.startswith(("ganeti.client.", "ganeti.cli.")):
                        todo += uses(module, owner)
    return {name: frozenset(commands) for name, commands in found.items()}


@cache
def opcode_commands(opcode: str) -> frozenset[tuple[str, str]]:
    return (
        frozenset()
        .union(
            *(
                commands
                for name, commands in reached_by().items()
                if name.startswith("ganeti.opcodes.") and name.rpartition(".")[2] == opcode
            )
        )
        .difference(UNDO)
    )


@cache
def units_of(module: str) -> frozenset[str]:
    """Return the opcodes of the units which import a module, directly or through others."""
    users: dict[str, set[str]] = defaultdict(set)
    for each in modules().values():
        if each.name.startswith("ganeti.cmdlib"):
            for target in each.imports.values():
                for name in (target, target.rpartition(".")[0]):
                    if name in modules():
                        users[name].add(each.name)
    seen, todo = set(), [module]
    while todo:
        name = todo.pop()
        if name not in seen:
            seen.add(name)
            todo += users[name]
    return frozenset().union(*(modules()[name].units for name in seen))


def explicit_faults(text: str) -> Iterator[str]:
    """Yield what is wrong with the commands which a text names together with options."""
    for program, word, rest in CALL_WITH_OPTIONS.findall(text):
        if program not in client.PROGRAMS:
            continue
        names = OPTION.findall(rest)
        if not names:
            continue
        if (program, word) not in tables():
            yield f"there is no command '{program} {word}'"
            continue
        for name in names:
            if name not in tables()[program, word]:
                yield f"'{program} {word}' has no option {name}"


def bare_options(text: str) -> set[str]:
    """Return the options which a text names without a command."""
    if OTHER_PROGRAMS.search(text) or not re.search(r"\s", text.strip()):
        return set()
    return set(OPTION.findall(CALL_WITH_OPTIONS.sub("", text)))


def test_the_tables_are_read() -> None:
    assert "--ignore-ipolicy" in tables()["gnt-instance", "migrate"]
    assert opcode_commands("OpNodeEvacuate") == {("gnt-node", "evacuate")}
    assert "OpInstanceMigrate" in units_of("ganeti.cmdlib.ops.migration.plan")


@pytest.mark.parametrize(
    ("text", "faults"),
    [
        ("run 'gnt-node add --readd X'", 0),
        ("run 'gnt-node evacuate --ignore-ipolicy X'", 1),
        ("run 'gnt-node eat --all'", 1),
        ("run 'gnt-node evacuate X', with --ignore-ipolicy", 0),
    ],
)
def test_faults_are_found(text: str, faults: int) -> None:
    assert len(list(explicit_faults(text))) == faults


def test_named_commands() -> None:
    wrong = {
        f"{module.path.relative_to(LIB)}: {fault}"
        for module in modules().values()
        for _, text in module.texts()
        for fault in explicit_faults(text)
    }
    assert wrong == set()


def test_options_in_commands() -> None:
    wrong = {
        f"{module.path.relative_to(LIB)}: {program} {word} has no {name}: {text}"
        for module in modules().values()
        if module.name.startswith(("ganeti.client.gnt_", "ganeti.cli."))
        for owner, text in module.texts()
        for name in bare_options(text)
        if (str(module.path.relative_to(LIB)), name) not in UNREACHED
        for program, word in reached_by().get(f"{module.name}.{owner}", ())
        if name not in tables()[program, word]
    }
    assert wrong == set()


def test_options_in_units() -> None:
    wrong = {
        f"{module.path.relative_to(LIB)}: {program} {word} has no {name}: {text}"
        for module in modules().values()
        if module.units
        for _, text in module.texts()
        for name in bare_options(text)
        if (str(module.path.relative_to(LIB)), name) not in UNREACHED
        for opcode in module.units
        for program, word in opcode_commands(opcode)
        if name not in tables()[program, word]
    }
    assert wrong == set()


def test_options_in_shared_modules() -> None:
    wrong = set()
    for module in modules().values():
        if not module.name.startswith("ganeti.cmdlib.") or module.units:
            continue
        known = {
            name
            for opcode in units_of(module.name)
            for command in opcode_commands(opcode)
            for name in tables()[command]
        }
        for _, text in module.texts():
            wrong |= {f"{module.name}: {name}: {text}" for name in bare_options(text) - known}
    assert wrong == set()
