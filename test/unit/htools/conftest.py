"""What the tests of the placement programs share."""

from __future__ import annotations

import contextlib
import importlib
import io
from collections.abc import Callable
from pathlib import Path

import pytest

from ganeti.client.htools import program
from ganeti.htools import cluster as model
from ganeti.htools.cluster import Cluster
from ganeti.htools.loading import text

DATA = Path(__file__).resolve().parents[2] / "data" / "htools"

Run = Callable[..., tuple[int, str, str]]


def run_program(name: str, *words: str) -> tuple[int, str, str]:
    """Run a program in this process.

    :returns: exit code, standard output, standard error.
    """
    module = importlib.import_module(f"ganeti.client.htools.{name}")
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = program.main(module.PROGRAM, list(words))
    return code, out.getvalue(), err.getvalue()


@pytest.fixture
def run() -> Run:
    return run_program


@pytest.fixture
def load() -> Callable[..., Cluster]:
    """Loads a captured cluster, or a text."""

    def do(source: str, **options: object) -> Cluster:
        if "|" not in source:
            source = (DATA / source).read_text(encoding="utf-8")
        cluster = text.parse(source)
        model.prepare(cluster, model.Options(**options))  # type: ignore[arg-type]
        return cluster

    return do
