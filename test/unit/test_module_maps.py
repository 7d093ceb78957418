"""A package with many modules says in its docstring what each of them is for, in one line."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

LIB = Path(__file__).resolve().parents[2] / "lib" / "ganeti"
_LINE = re.compile(r"^(?:- )?(?::mod:`\.|``)([a-z]\w*)`", re.MULTILINE)
_MANY_PARTS = 5

#: Packages whose modules are all of one kind, each named by what it declares: a logical unit by its
#: opcode, a command by its name, a resource or a set of constants by its subject.
OF_ONE_KIND = frozenset(
    {
        "client", "client/gnt_cluster", "client/gnt_debug", "client/gnt_instance",
        "client/gnt_node", "cmdlib/cluster", "cmdlib/group", "cmdlib/instance", "cmdlib/network",
        "cmdlib/node", "constants", "objects/disk_templates", "opcodes", "query/resources",
        "rapi/client", "rapi/resources", "wire/calls",
    }
)  # fmt: skip

#: Packages which are about to change; the list only becomes shorter.
NO_MAP_YET = frozenset({"config"})


def named(docstring: str) -> list[str]:
    """The modules of a map: the names with which lines of a table or of a list begin."""
    return _LINE.findall(docstring)


def parts(package: str) -> list[str]:
    """The modules and packages in a package."""
    found = (LIB / package).iterdir()
    return sorted(
        path.stem
        for path in found
        if (path.suffix == ".py" or (path / "__init__.py").is_file()) and path.stem[:2] != "__"
    )


def _docstring(package: str) -> str:
    text = (LIB / package / "__init__.py").read_text(encoding="utf-8")
    return ast.get_docstring(ast.parse(text)) or ""


PACKAGES = sorted(str(path.parent.relative_to(LIB)) for path in LIB.rglob("*/__init__.py"))


@pytest.mark.parametrize(
    "package",
    [
        one
        for one in PACKAGES
        if one not in OF_ONE_KIND | NO_MAP_YET
        and (named(_docstring(one)) or len(parts(one)) > _MANY_PARTS)
    ],
)
def test_the_map_has_each_module_once(package: str) -> None:
    assert sorted(named(_docstring(package))) == parts(package)


def test_an_exception_is_needed() -> None:
    needed = {
        one for one in PACKAGES if len(parts(one)) > _MANY_PARTS and not named(_docstring(one))
    }
    assert needed == OF_ONE_KIND


def test_the_lines_of_a_map_are_found() -> None:
    table = "==== ==\n:mod:`.one` a\n``two``  ``six``\n==== =="
    text = f"Text.\n\n{table}\n\n- ``three``: b\n``GIVEN`` is no module, nor is\n:mod:`four`"
    assert named(text) == ["one", "two", "three"]
