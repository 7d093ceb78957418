"""Imports point one way, and each third-party package has one doorway.

Every import statement under ``lib/ganeti`` is read with :mod:`ast`, also those inside functions,
and compared with the order of the rooms in ``doc/architecture.rst``.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

TOP = Path(__file__).resolve().parents[2]
LIB = TOP / "lib" / "ganeti"

GROUND = (
    "constants", "errors", "utils", "ht", "objects", "opcodes", "wire", "luxi", "jobstore", "http",
    "query", "confd", "metad",
)  # fmt: skip
NODE_WING = ("storage", "hypervisor", "backend")
MASTER_WING = ("locking", "config", "rpc", "allocator", "cmdlib", "jqueue", "master")
FRONT_DOORS = ("bootstrap", "rapi", "cli", "client", "watcher", "tools", "server")
# Bottom-up: a room imports from itself and from what stands before it.
ORDER = (*GROUND, *NODE_WING, *MASTER_WING, *FRONT_DOORS)

DOORWAYS = {
    # rapi/client.py is for programs by others, who copy it: it imports nothing of ours.
    "pycurl": {"http/client.py", "rapi/client.py"},
    "OpenSSL": {"utils/x509.py"},
    "cryptography": {"utils/x509.py"},
    "simplejson": {"wire/json.py"},
    "pyinotify": {"utils/inotify.py"},
    "pyparsing": {"query/filter.py", "storage/drbd/parse.py"},
    # What people read on a terminal, and what they ask for over HTTP; neither room sees the other.
    "yaml": {"cli/output.py", "rapi/represent.py"},
}

# What the order alone does not say: code that runs in masterd never runs a program.
NO_PROGRAMS = ("locking", "config", "rpc", "allocator", "cmdlib", "jqueue", "master")


class Import(NamedTuple):
    """One imported module, where and by whom."""

    file: str
    line: int
    module: str


def imports_of(tree: ast.AST, file: str) -> Iterator[Import]:
    """All imports in a parsed file; relative ones are reported as module ``.``."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield Import(file, node.lineno, alias.name)
        elif isinstance(node, ast.ImportFrom):
            if node.level:
                yield Import(file, node.lineno, ".")
            else:
                # "from ganeti.utils import process" names a module by its last word.
                for alias in node.names:
                    yield Import(file, node.lineno, f"{node.module}.{alias.name}")


def room_of_file(file: str) -> str:
    """The room of a file below ``lib/ganeti``; empty for the package's own ``__init__``."""
    first = file.split("/")[0].removesuffix(".py")
    return "" if first == "__init__" else first


def violations(found: Import) -> Iterator[str]:
    """What is wrong with one import."""
    where = f"{found.file}:{found.line}"
    package = found.module.split(".")[0]
    room = room_of_file(found.file)
    if found.module == ".":
        yield f"{where}: relative import; name the room"
    elif package != "ganeti":
        known = package in sys.stdlib_module_names or package in DOORWAYS
        if not known:
            yield f"{where}: {package} is neither in the standard library nor has a doorway"
        elif package in DOORWAYS and found.file not in DOORWAYS[package]:
            yield f"{where}: {package} is used only in {', '.join(sorted(DOORWAYS[package]))}"
        elif package == "subprocess" and room in NO_PROGRAMS:
            yield f"{where}: masterd never runs a program; a node does"
    else:
        parts = found.module.split(".")
        target = parts[1] if len(parts) > 1 else ""
        if target in ("", "__version__", "VERSION"):
            return
        if target not in ORDER:
            yield f"{where}: ganeti.{target} is not a room"
            return
        if room == "":
            yield f"{where}: the package itself imports nothing"
            return
        if ORDER.index(target) > ORDER.index(room):
            yield f"{where}: {room} stands below {target} and must not import it"
        if room in MASTER_WING and target in NODE_WING:
            yield f"{where}: the wings meet only on the ground floor; reach a node through rpc"
        if room in NO_PROGRAMS and f"{found.module}.".startswith("ganeti.utils.process."):
            yield f"{where}: masterd never runs a program; a node does"


def _files() -> list[str]:
    return sorted(str(path.relative_to(LIB)) for path in LIB.rglob("*.py"))


def test_there_is_something_to_check() -> None:
    assert len(_files()) > 20


def test_every_file_is_in_a_room() -> None:
    strangers = {room_of_file(file) for file in _files()} - {*ORDER, ""}
    assert not strangers


@pytest.mark.parametrize("file", _files())
def test_imports_point_one_way(file: str) -> None:
    tree = ast.parse((LIB / file).read_text(encoding="utf-8"))
    wrong = [text for found in imports_of(tree, file) for text in violations(found)]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("file", _files())
def test_private_names_stay_in_their_file(file: str) -> None:
    """``from x import _y``: a leading underscore means *this file*."""
    tree = ast.parse((LIB / file).read_text(encoding="utf-8"))
    wrong = [
        f"{file}:{node.lineno}: {alias.name}"
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("ganeti")
        for alias in node.names
        if alias.name.startswith("_") and not alias.name.startswith("__")
    ]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize(
    ("file", "code", "fragment"),
    [
        ("utils/net.py", "from ganeti.luxi.client import Client", "utils stands below luxi"),
        ("cmdlib/x.py", "from ganeti.backend import node", "wings meet"),
        ("cmdlib/x.py", "def f():\n    import ganeti.storage.file", "wings meet"),
        ("cmdlib/x.py", "from ganeti.utils.process import run", "never runs a program"),
        ("jqueue/x.py", "import subprocess", "never runs a program"),
        ("rpc/x.py", "import pycurl", "only in http/client.py"),
        ("utils/x.py", "import requests", "neither"),
        ("cli/x.py", "from . import y", "relative"),
        ("__init__.py", "from ganeti import errors", "imports nothing"),
        ("utils/x.py", "from ganeti import nowhere", "not a room"),
    ],
)
def test_the_check_finds(file: str, code: str, fragment: str) -> None:
    found = [text for one in imports_of(ast.parse(code), file) for text in violations(one)]
    assert any(fragment in text for text in found), found


@pytest.mark.parametrize(
    ("file", "code"),
    [
        ("cmdlib/x.py", "from ganeti import errors, rpc\nimport ganeti.opcodes.node"),
        ("http/client.py", "import pycurl\nimport threading"),
        ("server/noded.py", "from ganeti.backend import node\nfrom ganeti import __version__"),
    ],
)
def test_the_check_allows(file: str, code: str) -> None:
    assert not [text for one in imports_of(ast.parse(code), file) for text in violations(one)]
