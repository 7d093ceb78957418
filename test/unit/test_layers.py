"""Imports point one way, and one module imports each third-party package.

Every import statement below ``lib/ganeti`` is read with :mod:`ast`, also those inside functions,
and compared with the order of the packages in ``doc/architecture.rst``.
"""

from __future__ import annotations

import ast
import functools
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

TOP = Path(__file__).resolve().parents[2]
LIB = TOP / "lib" / "ganeti"

SHARED = (
    "constants", "errors", "utils", "platform", "ht", "objects", "opcodes", "wire", "luxi",
    "jobstore", "configfile", "http", "htools", "query", "confd", "metad", "mond", "foreign",
)  # fmt: skip
NODE_SIDE = ("storage", "hypervisor", "backend")
MASTER_SIDE = ("locking", "config", "rpc", "allocator", "cmdlib", "jqueue", "jobexec", "master")
PROGRAMS = (
    "bootstrap", "rapi", "cli", "upgrading", "client", "tools", "watcher", "failoverd", "watchdogd",
    "burnin", "takeover", "merge", "helpers", "vcluster", "server",
)  # fmt: skip
# Bottom-up: a package imports from itself and from the packages before it.
ORDER = (*SHARED, *NODE_SIDE, *MASTER_SIDE, *PROGRAMS)

#: The order inside packages, bottom-up. Parts in one tuple do not import each other; a part which
#: is not named is above all of them.
INSIDE: dict[str, tuple[tuple[str, ...], ...]] = {
    "backend": (
        ("registry", "caller", "reasons"),
        ("storage",),
        ("cluster", "instance"),
        ("node", "backup"),
        ("dispatch",),
    ),
    "cli": (("command", "table", "terminal", "failures"),),
    "client": (
        ("htools",),
        (
            "gnt_backup", "gnt_cluster", "gnt_debug", "gnt_filter", "gnt_group", "gnt_instance",
            "gnt_job", "gnt_network", "gnt_node", "gnt_os", "gnt_storage",
        ),
    ),
    "cmdlib": (
        ("undo",),
        ("base",),
        ("hooks", "locks"),
        ("prereq",),
        ("ops",),
        (
            "backup", "cluster", "group", "instance", "network", "node", "os", "query", "tags",
            "test",
        ),
        ("dry_run",),
        ("processor",),
    ),
    "hypervisor": (("base", "console_log"), ("net",), ("fake", "kvm")),
    "jqueue": (
        ("job", "dependencies", "filters", "worker", "rate_meter", "catch_up"),
        ("commit", "subscriptions", "explain", "table"),
        ("replication",),
        ("publisher",),
        ("callbacks",),
        ("execution",),
        ("scheduler",),
        ("recovery", "operations"),
        ("queue",),
        ("facts",),
    ),
    "master": (
        ("fence", "queries", "luxi_server"),
        ("history", "events", "documents", "metrics"),
        ("luxi_service",),
    ),
    "jobexec": (
        ("messages", "leftovers"),
        ("livelock", "changes"),
        ("link",),
        ("remote", "node_calls"),
        ("process",),
        ("fork_server",),
        ("waiting",),
        ("forker", "requests"),
        ("place",),
        ("executor",),
    ),
    "platform": (
        ("paths", "hosts"),
        ("base",),
        ("real", "virtual"),
        ("machine",),
        ("users",),
        ("ssh_keys", "ssh_keygen", "master_epoch"),
    ),
    "storage": (
        ("busy",), ("base", "content", "copy", "image_format"), ("lvm",),
        ("blockdev", "drbd", "ext", "file", "rbd"), ("gluster",), ("units",),
    ),
}  # fmt: skip

#: The only modules which import a third-party package.
IMPORTERS = {
    "pycurl": {"http/client.py", "http/document.py", "rapi/client/transport.py"},
    "OpenSSL": {"utils/x509.py"},
    "cryptography": {"utils/x509.py"},
    "simplejson": {"wire/json.py"},
    "pyinotify": {"utils/inotify.py"},
    "numpy": {"htools/arrays.py"},
    "opentelemetry": {"utils/otlp.py"},
    "pyparsing": {"query/filter.py", "storage/drbd/parse.py"},
    # What people read on a terminal, and what they ask for over HTTP; neither package sees the
    # other.
    "yaml": {"cli/output.py", "rapi/represent.py"},
}


#: The client for programs by others, who copy it: its modules import each other by relative names,
#: and nothing else of ours.
COPIED = "rapi/client/"


class Import(NamedTuple):
    """One imported module, where and by whom."""

    file: str
    line: int
    module: str
    #: Below ``if TYPE_CHECKING:``, for annotations only.
    typing_only: bool = False


def statements_below(node: ast.AST) -> Iterator[ast.AST]:
    """All statements below a node in their order; every import is one."""
    for field in ("body", "orelse", "finalbody", "handlers", "cases"):
        for inner in getattr(node, field, ()):
            yield inner
            yield from statements_below(inner)


def imports_of(tree: ast.AST, file: str) -> Iterator[Import]:
    """All imports in a parsed file; relative ones are reported as module ``.``."""
    statements = list(statements_below(tree))
    typing_only = {
        inner
        for node in statements
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
        for inner in statements_below(node)
    }
    for node in statements:
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.level:
            names = ["."]
        elif isinstance(node, ast.ImportFrom):
            # "from ganeti.utils import process" names a module by its last word.
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        else:
            continue
        for name in names:
            yield Import(file, node.lineno, name, node in typing_only)


@functools.cache
def imports_in(file: str) -> tuple[Import, ...]:
    """All imports in a file below ``lib/ganeti``."""
    return tuple(imports_of(ast.parse((LIB / file).read_text(encoding="utf-8")), file))


def package_of(file: str) -> str:
    """The package of a file below ``lib/ganeti``; empty for the package's own ``__init__``."""
    first = file.split("/")[0].removesuffix(".py")
    return "" if first == "__init__" else first


def violations(found: Import) -> Iterator[str]:
    """What is wrong with one import."""
    where = f"{found.file}:{found.line}"
    top = found.module.split(".")[0]
    package = package_of(found.file)
    if found.module == ".":
        if not found.file.startswith(COPIED):
            yield f"{where}: relative import; name the package"
    elif found.file.startswith(COPIED) and top == "ganeti":
        yield f"{where}: this package is copied by others, and imports nothing else of ours"
    elif top != "ganeti":
        known = top in sys.stdlib_module_names or top in IMPORTERS
        if not known:
            yield f"{where}: {top} is neither in the standard library nor in IMPORTERS"
        elif top in IMPORTERS and found.file not in IMPORTERS[top]:
            yield f"{where}: {top} is used only in {', '.join(sorted(IMPORTERS[top]))}"
        elif top == "subprocess" and package in MASTER_SIDE:
            yield f"{where}: masterd never runs a program; a node does"
    else:
        parts = found.module.split(".")
        target = parts[1] if len(parts) > 1 else ""
        if target in ("", "__version__", "VERSION", "RELEASE", "FULL_VERSION"):
            return
        if target not in ORDER:
            yield f"{where}: ganeti.{target} is not a package"
            return
        if package == "":
            yield f"{where}: the package itself imports nothing"
            return
        if ORDER.index(target) > ORDER.index(package):
            yield f"{where}: {package} is below {target} and must not import it"
        if package in MASTER_SIDE and target in NODE_SIDE:
            yield f"{where}: the master side reaches a node through rpc"
        if target == package and not found.typing_only:
            yield from _inside(found, package, parts[2:])
        if package in MASTER_SIDE and f"{found.module}.".startswith("ganeti.utils.process."):
            yield f"{where}: masterd never runs a program; a node does"


def _inside(found: Import, package: str, target: list[str]) -> Iterator[str]:
    """What is wrong with an import from the same package."""
    order = [part for tier in INSIDE.get(package, ()) for part in tier]
    own = found.file.split("/")[1].removesuffix(".py")
    if not target or target[0] == own or target[0] not in order:
        return
    tiers = {part: number for number, tier in enumerate(INSIDE[package]) for part in tier}
    if own != "__init__" and tiers.get(own, len(tiers)) <= tiers[target[0]]:
        yield (
            f"{found.file}:{found.line}: inside {package}, {own} is not above {target[0]}"
            " and must not import it"
        )


def _files() -> list[str]:
    return _files_below("")


def _files_below(package: str) -> list[str]:
    return sorted(str(path.relative_to(LIB)) for path in (LIB / package).rglob("*.py"))


def test_there_is_something_to_check() -> None:
    assert len(_files()) > 20


def test_every_file_is_in_a_package() -> None:
    unknown = {package_of(file) for file in _files()} - {*ORDER, ""}
    assert not unknown


@pytest.mark.parametrize("file", _files())
def test_imports_point_one_way(file: str) -> None:
    wrong = [text for found in imports_in(file) for text in violations(found)]
    assert not wrong, "\n".join(wrong)


def _is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__")


@pytest.mark.parametrize("file", _files())
def test_private_names_stay_in_their_file(file: str) -> None:
    """``from x import _y``: a leading underscore means *this file*."""
    wrong = [
        f"{file}:{found.line}: {found.module}"
        for found in imports_in(file)
        if found.module.startswith("ganeti.") and _is_private(found.module.rsplit(".", 1)[1])
    ]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize(
    ("file", "code", "fragment"),
    [
        ("utils/net.py", "from ganeti.luxi.client import Client", "utils is below luxi"),
        ("cmdlib/x.py", "from ganeti.backend import node", "reaches a node through rpc"),
        ("rapi/client/x.py", "from ganeti import errors", "imports nothing else of ours"),
        ("cmdlib/x.py", "def f():\n    import ganeti.storage.file", "reaches a node through rpc"),
        ("cmdlib/x.py", "from ganeti.utils.process import run", "never runs a program"),
        ("jqueue/x.py", "import subprocess", "never runs a program"),
        ("rpc/x.py", "import pycurl", "only in http/client.py"),
        ("utils/x.py", "import requests", "neither"),
        ("cli/x.py", "from . import y", "relative"),
        ("__init__.py", "from ganeti import errors", "imports nothing"),
        ("utils/x.py", "from ganeti import nowhere", "not a package"),
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
        ("rapi/client/x.py", "from .transport import Transport"),
    ],
)
def test_the_check_allows(file: str, code: str) -> None:
    assert not [text for one in imports_of(ast.parse(code), file) for text in violations(one)]


# -- what a daemon can reach at all --------------------------------------------------------------


def module_file(module: str) -> str | None:
    """The file of a module of ours, relative to ``lib/ganeti``; None when it is none."""
    parts = module.split(".")[1:]
    for candidate in ("/".join([*parts, "__init__"]) + ".py", "/".join(parts) + ".py"):
        if parts and (LIB / candidate).is_file():
            return candidate
    return None


@functools.cache
def reached_from(file: str) -> frozenset[str]:
    """The files of ours which the import statements of a file name, packages above them, too."""
    found: set[str] = set()
    if file == "cmdlib/__init__.py":
        # Its load() imports all units by their names.
        found.update(_files_below("cmdlib"))
    for one in imports_in(file):
        parts = one.module.split(".")
        if parts[0] != "ganeti" or one.typing_only:
            continue
        for end in range(2, len(parts) + 1):
            target = module_file(".".join(parts[:end]))
            if target is not None:
                found.add(target)
    return frozenset(found - {file})


def chain_to(start: str, wanted: str, *, except_for: frozenset[str] = frozenset()) -> list[str]:
    """A shortest chain of imports from a file to another; empty when there is none.

    :param except_for: files whose own import of the wanted one does not count.
    """
    chains = {start: [start]}
    waiting = [start]
    while waiting:
        file = waiting.pop(0)
        for target in sorted(reached_from(file)):
            if target == wanted and file in except_for:
                continue
            if target not in chains:
                chains[target] = [*chains[file], target]
                waiting.append(target)
    return chains.get(wanted, [])


MASTERD = "server/masterd.py"
# What it loads only on the master.
MASTERING = "server/mastering.py"


def test_the_master_daemon_cannot_reach_the_module_that_runs_programs() -> None:
    """It imports :mod:`ganeti.utils.process` itself, only to forbid its use."""
    chain = chain_to(MASTERD, "utils/process.py", except_for=frozenset({MASTERING}))
    assert not chain, " -> ".join(chain)


def test_the_master_daemon_forbids_programs() -> None:
    assert "process.forbid(" in (LIB / MASTERING).read_text(encoding="utf-8")


def test_the_graph_finds_what_is_there() -> None:
    assert chain_to("server/noded.py", "utils/process.py")
    assert chain_to(MASTERD, "cmdlib/processor.py")
    assert not chain_to("constants/job.py", "errors.py")


def test_nothing_in_devel_hides_a_module_of_python() -> None:
    """A program which is started by its path finds what is beside it before all other modules."""
    names = {path.name.removesuffix(".py") for path in (TOP / "devel").iterdir()}
    assert names & set(sys.stdlib_module_names) == set()
