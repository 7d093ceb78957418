"""A second version of the project: a copy of its programs with another number and a new setting."""

from __future__ import annotations

import shutil
from pathlib import Path

from harness import ROOT

from ganeti.platform import versions

_MAJOR, _MINOR = versions.number_of(versions.OWN)
#: The version of this checkout, and the next one.
OWN = versions.OWN
NEXT = f"{_MAJOR}.{_MINOR + 1}"
#: Fields of the cluster which only the next version has: a setting, and what it writes for itself.
SETTING = "of_the_next_version"
#: A delay of so many seconds needs an argument which only the next version has.
PAINTED_S = 0.5


def _replace(path: Path, before: str, after: str) -> None:
    text = path.read_text()
    assert text.count(before) == 1, f"{path} has not once {before!r}"
    path.write_text(text.replace(before, after))


def make_next(directory: Path) -> Path:
    """Copy the programs into a new checkout, which is the next version."""
    directory.mkdir(parents=True)
    for name in ("lib", "scripts", "daemons", "tools"):
        shutil.copytree(
            ROOT / name,
            directory / name,
            ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"),
        )
    (directory / ".venv").symlink_to(ROOT / ".venv")
    package = directory / "lib/ganeti"
    text = (package / "__init__.py").read_text()
    release = next(line for line in text.splitlines() if line.startswith("RELEASE = "))
    _replace(package / "__init__.py", release, f'RELEASE = "{NEXT}.0"')
    # A setting of the cluster which the version before does not have.
    _replace(
        package / "objects/cluster.py",
        "    auto_failover: int | None = None\n",
        f"    auto_failover: int | None = None\n    {SETTING}: str | None = None\n",
    )
    _replace(
        package / "config/upgrade.py",
        '        "auto_balance",\n',
        f'        "auto_balance",\n        "{SETTING}",\n',
    )
    _change_node_calls(package)
    return directory


def _change_node_calls(package: Path) -> None:
    """Give instances and an answer a field which is always sent, and a call another argument."""
    _replace(
        package / "objects/instance.py",
        "    secondary_nodes: tuple[str, ...] = ()\n",
        '    secondary_nodes: tuple[str, ...] = ()\n    paint: str = "red"\n',
    )
    _replace(
        package / "objects/transfer.py",
        "    postcopy_status: str | None = None\n",
        '    postcopy_status: str | None = None\n    paint: str = "red"\n',
    )
    _replace(
        package / "wire/calls/node.py",
        '    (Arg("duration_s", PLAIN, _NUMBER),),\n',
        '    (Arg("duration_s", PLAIN, _NUMBER), Arg("paint", PLAIN, ht.Any, None)),\n',
    )
    _replace(
        package / "backend/node/test.py",
        "def delay(duration_s: float) -> None:\n",
        "def delay(duration_s: float, paint: str | None) -> None:\n",
    )
    _replace(
        package / "cmdlib/test/delay.py",
        "duration_s=plan.duration_s)",
        f"duration_s=plan.duration_s, paint='red' if plan.duration_s == {PAINTED_S} else None)",
    )
