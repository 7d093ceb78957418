"""Nobody but ``configfile`` opens the file of the configuration: others would miss its journal.

A reader which misses the journal takes an older state for the newest. So each place of the program
which names the file must be known here, and must not hand the name to a function which opens,
replaces or removes files.
"""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

LIB = Path(__file__).resolve().parents[2] / "lib" / "ganeti"

#: The places which name the file, and what they do with the name.
KNOWN = {
    "backend/cluster/config_file.py": "reads and changes it with configfile",
    "backend/cluster/credentials.py": "lists it and its journal for removal",
    "backend/cluster/master_vote.py": "reads and removes it with configfile",
    "backend/node/files.py": "replaces it with configfile",
    "backend/node/verify.py": "reads its digest with configfile",
    "bootstrap/failover.py": "asks for its size; reads it with config.members",
    "bootstrap/init.py": "writes it with configfile",
    "bootstrap/node_state.py": "asks whether it exists; removes it and its journal",
    "bootstrap/newer_copies.py": "replaces it with configfile",
    "bootstrap/renumber.py": "reads and writes it with config.api",
    "cli/failures.py": "asks whether it exists",
    "client/gnt_cluster/upgrade.py": "reads it with configfile; names it to upgrading.simulation",
    "client/gnt_node/program.py": "reads it with config.members",
    "cmdlib/ops/verify/files.py": "asks nodes for its digest",
    "confd/source.py": "asks whether it or its journal has changed; reads it with config.api",
    "master/commit_probe.py": "asks for its size",
    "master_failover/child.py": "reads it with config.api",
    "merge/other_cluster.py": "reads the one of another cluster with configfile",
    "merge/steps.py": "reads and writes it with tools.config_files",
    "platform/paths.py": "names it",
    "rpc/failover_status.py": "reads it with config.members",
    "rpc/distribute.py": "names it to other nodes",
    "server/mastering.py": "reads it with config.api and config.members",
    "takeover/command.py": "reads it with tools.config_files",
    "takeover/facts.py": "archives it while no daemon of ours has run",
    "takeover/node_steps.py": "reads it with configfile",
    "tools/cfgshell.py": "reads and writes it with tools.config_files",
    "tools/cfgupgrade.py": "reads and writes it with tools.config_files",
    "tools/config_journal.py": "reads and writes it with configfile; asks whether it exists",
    "tools/config_files.py": "reads and writes it with configfile",
    "tools/daemon_util.py": "folds its journal in with configfile",
    "tools/ensure_dirs.py": "sets mode and owner of it and its journal",
    "tools/sanitize_config.py": "reads it with tools.config_files",
    "upgrading/simulation.py": "reads a copy and writes it with configfile",
    "vcluster/like.py": "reads and writes it with configfile",
}

#: Functions which open, replace or remove a file; ``replace`` and ``remove`` of ``os``, too.
_OPENING = {
    "open", "os.open", "os.rename", "os.replace", "os.remove", "os.unlink", "os.truncate",
    "fs.read_bytes", "fs.read_file", "fs.write_file", "fs.rewrite_file", "fs.remove_file",
    "shutil.copy", "shutil.copyfile", "shutil.move",
}  # fmt: skip


_NAME = "config.data"


def _names_the_file(tree: ast.AST) -> bool:
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and node.attr == "cluster_conf_file":
            return True
        if (
            isinstance(node, ast.Constant)
            and isinstance(node.value, str)
            and node.value.endswith(_NAME)
            and " " not in node.value
        ):
            return True
    return False


def _opened(tree: ast.AST) -> list[str]:
    """The calls which open the file, also under the name of a variable which has its path."""
    found = []
    for scope in ast.walk(tree):
        if not isinstance(scope, ast.FunctionDef):
            continue
        variables = {
            target.id
            for node in ast.walk(scope)
            if isinstance(node, ast.Assign) and _names_the_file(node.value)
            for target in node.targets
            if isinstance(target, ast.Name)
        }
        for node in ast.walk(scope):
            if isinstance(node, ast.Call) and node.args and ast.unparse(node.func) in _OPENING:
                first = node.args[0]
                if _names_the_file(first) or (
                    isinstance(first, ast.Name) and first.id in variables
                ):
                    found.append(f"line {node.lineno}: {ast.unparse(node)[:80]}")
    return found


def _files() -> list[str]:
    return sorted(
        name
        for path in LIB.rglob("*.py")
        if not (name := str(path.relative_to(LIB))).startswith("configfile/")
        and ("cluster_conf_file" in (text := path.read_text(encoding="utf-8")) or _NAME in text)
        and _names_the_file(ast.parse(text))
    )


def test_every_place_is_known() -> None:
    assert set(_files()) == set(KNOWN)


@pytest.mark.parametrize("file", sorted(KNOWN))
def test_no_place_opens_the_file_itself(file: str) -> None:
    assert not _opened(ast.parse((LIB / file).read_text(encoding="utf-8")))


@pytest.mark.parametrize(
    "code",
    [
        "def f():\n    fs.read_bytes(here.cluster_conf_file)",
        "def f():\n    path = paths.current().cluster_conf_file\n    with open(path) as s: pass",
        "def f():\n    fs.write_file(f'{root}/config.data', '')",
    ],
)
def test_the_check_finds(code: str) -> None:
    assert _opened(ast.parse(code))
