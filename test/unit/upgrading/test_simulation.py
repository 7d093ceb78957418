"""Where the simulation runs on a real machine: in a network of its own, or not at all."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ganeti import errors
from ganeti.platform import versions
from ganeti.upgrading import simulation
from ganeti.utils import process

KNOWN = {name: versions.Version(name, f"{name}.0", f"/lib/{name}") for name in ("0.9", "0.10")}


class Programs:
    """Takes the place of ``process.run``, and of what replaces the process."""

    def __init__(self) -> None:
        self.ran: list[tuple[str, ...]] = []
        self.code, self.output = 0, ""

    def run(self, argv: Sequence[str], **_settings: Any) -> process.Completed:
        self.ran.append(tuple(argv))
        return process.Completed(tuple(argv), self.code, "", self.output, None)

    def replace(self, name: str, argv: Sequence[str], environment: Mapping[str, str]) -> None:
        assert argv[0] == name
        assert (Path(environment["PYTHONPATH"]) / "ganeti/upgrading/simulation.py").exists()
        self.ran.append(tuple(argv))
        raise SystemExit(0)


@pytest.fixture
def programs(monkeypatch: pytest.MonkeyPatch) -> Programs:
    found = Programs()
    monkeypatch.setattr(process, "run", found.run)
    monkeypatch.setattr(os, "execvpe", found.replace)
    real = SimpleNamespace(has_own_system=True)
    monkeypatch.setattr(simulation.machine, "current", lambda: real)
    monkeypatch.setattr(versions, "installed", lambda: KNOWN)
    return found


@pytest.fixture
def config(tmp_path: Path) -> str:
    (tmp_path / "config.data").write_text("{}")
    return str(tmp_path / "config.data")


@pytest.mark.parametrize(
    ("uid", "namespace"),
    [
        (0, ("unshare", "--net")),
        (1000, ("unshare", "--user", "--map-current-user", "--keep-caps", "--net")),
    ],
)
def test_it_has_a_network_of_its_own(
    programs: Programs,
    config: str,
    monkeypatch: pytest.MonkeyPatch,
    uid: int,
    namespace: tuple[str, ...],
) -> None:
    """Whether this user gets one is tried first."""
    monkeypatch.setattr(os, "geteuid", lambda: uid)
    with pytest.raises(SystemExit):
        simulation.simulate(config, "0.9", "0.10")
    first, second = programs.ran
    assert first == (*namespace, "ip", "link", "set", "dev", "lo", "up")
    assert second == (
        *namespace, sys.executable, "-m", "ganeti.upgrading.simulation", config,
        "/lib/0.9", "/lib/0.10",
    )  # fmt: skip


def test_without_a_network_of_its_own_it_is_refused(programs: Programs, config: str) -> None:
    programs.code, programs.output = 1, "unshare: Operation not permitted\n"
    with pytest.raises(errors.OpPrereqError, match="Operation not permitted. The simulation needs"):
        simulation.simulate(config, "0.9", "0.10")
    assert len(programs.ran) == 1


def test_a_user_who_may_not_read_the_configuration(programs: Programs, tmp_path: Path) -> None:
    missing = str(tmp_path / "missing")
    with pytest.raises(errors.OpPrereqError, match="cannot be read; .* the rights of root"):
        simulation.simulate(missing, "0.9", "0.10")
    assert programs.ran == []
