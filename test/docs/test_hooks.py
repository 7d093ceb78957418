"""``man/ganeti-hooks.rst`` has each operation with hooks, its opcode and its variables."""

from __future__ import annotations

import ast
import inspect
import re
import textwrap
from pathlib import Path

import pytest

from ganeti import cmdlib
from ganeti.cmdlib import hooks
from ganeti.cmdlib.base import UNITS

PAGE = (Path(__file__).resolve().parents[2] / "man" / "ganeti-hooks.rst").read_text("utf-8")
ENTRIES = {
    match[1]: (match[2], match[3])
    for match in re.finditer(r"(?m)^``([a-z-]+)`` \((OP_[A-Z_]+)\)\n((?:    .*\n)+)", PAGE)
}
cmdlib.load()
WITH_HOOKS = {
    unit.HOOKS.directory: (op_id, unit) for op_id, unit in UNITS.items() if unit.HOOKS is not None
}


def test_every_operation_with_hooks_is_on_the_page() -> None:
    assert {name: op_id for name, (op_id, _text) in ENTRIES.items()} == {
        name: op_id for name, (op_id, _unit) in WITH_HOOKS.items()
    }


def keys(function: object) -> set[str]:
    """The constant keys of the dictionaries which a function makes."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(function)))  # type: ignore[arg-type]
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Dict):
            found |= {key.value for key in node.keys if isinstance(key, ast.Constant)}
        elif isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant):
            if isinstance(node.ctx, ast.Store):
                found.add(node.slice.value)
    return {key for key in found if isinstance(key, str) and key.isupper()}


@pytest.mark.parametrize("name", sorted(WITH_HOOKS))
def test_every_variable_of_an_operation_is_named(name: str) -> None:
    wanted = keys(WITH_HOOKS[name][1].hook_env)
    named = set(re.findall(r"``([A-Z_0-9]+)``", ENTRIES[name][1]))
    # Those of the instance are explained once, for all operations.
    missing = {key for key in wanted - named if f"``{key}``" not in PAGE.partition("OPERATIONS")[0]}
    assert not missing


def test_every_variable_of_an_instance_is_named() -> None:
    named = set(re.findall(r"``([A-Z_0-9]+)``", PAGE.partition("\nOPERATIONS\n")[0]))
    assert keys(hooks.instance_env) <= named
