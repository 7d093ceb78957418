"""One file, one opcode: where the logical units and their shared parts live."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

CMDLIB = Path(__file__).resolve().parents[3] / "lib" / "ganeti" / "cmdlib"
SUBJECTS = (
    "backup",
    "cluster",
    "group",
    "instance",
    "network",
    "node",
    "os",
    "query",
    "tags",
    "test",
)
#: Opcodes whose names are words which Python keeps for itself.
RENAMED = {"del": "delete"}
FRAMEWORK = {
    "__init__", "base", "processor", "hooks", "dry_run", "locks", "node_checks", "prereq",
}  # fmt: skip


def units_in(tree: ast.Module) -> list[str]:
    """Names of the classes which are decorated with ``@executes``."""
    return [
        node.name
        for node in tree.body
        if isinstance(node, ast.ClassDef)
        for decorator in node.decorator_list
        if ast.unparse(decorator).startswith("executes(")
    ]


def file_name(subject: str, unit: str) -> str:
    """The name of the file of a unit: the name of its opcode without that of the subject."""
    words = re.findall("[A-Z][a-z]+", unit.removeprefix("LU"))
    if len(words) > 1 and words[0].lower() == subject:
        words = words[1:]
    name = "_".join(words).lower()
    return RENAMED.get(name, name)


def unit_files() -> list[str]:
    return sorted(
        str(path.relative_to(CMDLIB))
        for subject in SUBJECTS
        for path in (CMDLIB / subject).rglob("*.py")
        if path.name != "__init__.py"
    )


@pytest.mark.parametrize("file", unit_files())
def test_a_unit_file_holds_exactly_the_unit_it_is_named_after(file: str) -> None:
    path = CMDLIB / file
    units = units_in(ast.parse(path.read_text(encoding="utf-8")))
    assert len(units) == 1, f"{file} executes {len(units)} opcodes: {units}"
    assert file_name(path.parent.name, units[0]) == path.stem


@pytest.mark.parametrize(
    "file", sorted(str(path.relative_to(CMDLIB)) for path in (CMDLIB / "ops").rglob("*.py"))
)
def test_shared_parts_import_no_unit(file: str) -> None:
    tree = ast.parse((CMDLIB / file).read_text(encoding="utf-8"))
    assert not units_in(tree)
    units = tuple(f"ganeti.cmdlib.{subject}" for subject in SUBJECTS)
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            assert not f"{node.module}.".startswith(tuple(f"{one}." for one in units)), node.module
            if node.module == "ganeti.cmdlib":
                assert not {alias.name for alias in node.names} & set(SUBJECTS)


def test_units_import_no_unit() -> None:
    wrong = []
    for file in unit_files():
        for node in ast.walk(ast.parse((CMDLIB / file).read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom):
                subject = (node.module or "").removeprefix("ganeti.cmdlib.").split(".")[0]
                if subject in SUBJECTS and (node.module or "").startswith("ganeti.cmdlib."):
                    wrong.append(f"{file}:{node.lineno}: {node.module}")
    assert not wrong, "\n".join(wrong)


def test_nothing_else_stands_at_the_top() -> None:
    assert {path.stem for path in CMDLIB.glob("*.py")} == FRAMEWORK
    folders = {path.name for path in CMDLIB.iterdir() if path.is_dir()} - {"__pycache__"}
    assert folders == {*SUBJECTS, "ops"}


def test_the_folders_of_these_tests_are_those_of_the_package() -> None:
    here = Path(__file__).parent
    folders = {str(path.parent.relative_to(here)) for path in here.rglob("test_*.py")}
    theirs = {str(path.parent.relative_to(CMDLIB)) for path in CMDLIB.rglob("*.py")}
    assert folders - theirs == {"interruptions", "safety"}
