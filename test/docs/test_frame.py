"""README, Makefile and documentation name only what exists."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest
from docutils.core import publish_doctree

TOP = Path(__file__).resolve().parents[2]
MAKEFILE = (TOP / "Makefile").read_text(encoding="utf-8")
TARGETS = set(re.findall(r"^([a-z][a-z-]*):", MAKEFILE, re.MULTILINE))


def test_help_names_every_target() -> None:
    helped = set(re.findall(r'^\t@echo "  make ([a-z-]+) ', MAKEFILE, re.MULTILINE))
    assert helped == TARGETS - {"help"}


def test_targets_are_phony() -> None:
    phony = re.search(r"^\.PHONY: ((?:.*\\\n)*.*)$", MAKEFILE, re.MULTILINE)
    assert phony is not None
    assert set(phony[1].replace("\\\n", " ").split()) == TARGETS


@pytest.mark.parametrize(
    "name",
    ["README.md", *sorted(str(path.relative_to(TOP)) for path in (TOP / "doc").rglob("*.rst"))],
)
def test_make_targets_in_texts_exist(name: str) -> None:
    text = (TOP / name).read_text(encoding="utf-8")
    named = set(re.findall(r"(?:^|`|\s{4})make ([a-z][a-z-]+)(?=`|\s{2}|$)", text, re.MULTILINE))
    assert named <= TARGETS, named - TARGETS


def test_paths_in_the_readme_exist() -> None:
    text = (TOP / "README.md").read_text(encoding="utf-8")
    named = set(re.findall(r"(?<![\w/.])((?:doc|lib|test|tools)/[\w./-]*\w)", text))
    assert named
    assert not [path for path in named if not (TOP / path).exists()]


@pytest.mark.parametrize("path", sorted((TOP / "doc").rglob("*.rst")), ids=lambda path: path.name)
def test_documents_can_be_rendered(path: Path) -> None:
    publish_doctree(
        path.read_text(encoding="utf-8"),
        source_path=str(path),
        settings_overrides={"halt_level": 2, "report_level": 2},
    )


def test_layers_of_the_architecture_page_are_those_of_the_test() -> None:
    tree = ast.parse((TOP / "test/unit/test_layers.py").read_text(encoding="utf-8"))
    tested: set[str] = set()
    for node in tree.body:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            if node.targets[0].id in ("SHARED", "NODE_SIDE", "MASTER_SIDE", "PROGRAMS"):
                tested |= set(ast.literal_eval(node.value))
    text = (TOP / "doc/architecture.rst").read_text(encoding="utf-8")
    table = text[text.index("The packages\n") : text.index("Master side and node side use")]
    named = {
        name.strip()
        for row in re.findall(r"^((?:``[a-z_, ]+``)(?:, ``[a-z_]+``)*)", table, re.MULTILINE)
        for name in re.findall(r"[a-z_]+", row)
    }
    # Packages of later work are in the order already.
    assert named <= tested
    existing = {path.stem for path in (TOP / "lib/ganeti").iterdir() if path.stem in tested}
    assert existing <= named, existing - named


def test_installed_packages_are_imported() -> None:
    """setup.py names what the packages may import, and nothing else."""
    setup = (TOP / "setup.py").read_text(encoding="utf-8")
    runtime = re.search(r"RUNTIME = \[(.*?)\]", setup, re.DOTALL)
    assert runtime is not None
    modules = {"pyOpenSSL": "OpenSSL", "PyYAML": "yaml"}
    named = {modules.get(name, name) for name in re.findall(r'"(\w+)"', runtime[1])}
    imported: set[str] = set()
    for path in (TOP / "lib/ganeti").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                imported |= {alias.name.split(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and not node.level:
                imported.add((node.module or "").split(".")[0])
    assert named <= imported
