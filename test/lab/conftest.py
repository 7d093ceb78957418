"""One laboratory and one cluster for all tests; the logs are kept, and the machines are shut down.

Where the laboratory cannot run (a program is missing, the image cannot be built), the tests are
skipped with the reason. Tests which would begin late in the time box of the run are skipped, too;
so a slow machine runs fewer tests, and no test fails because of the time.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator

import pytest

from lab import drbd, image, machines
from lab.booted import booted
from lab.cluster import Cluster

_BEGIN = time.monotonic()
#: Share of the time box in which tests begin; the rest is for the last of them.
_BEGIN_WITHIN = 0.7


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup() -> None:
    """Skip a test which the end of the time box could interrupt."""
    box_s = float(os.environ.get("LAB_TIME_BOX", "inf"))
    if time.monotonic() - _BEGIN > box_s * _BEGIN_WITHIN:
        pytest.skip(f"{_BEGIN_WITHIN:.0%} of the time box of {box_s:.0f} s have passed")


@pytest.fixture(scope="session")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[machines.Lab]:
    """Three machines, running."""
    count = int(os.environ.get("LAB_MACHINES", "3"))
    yield from booted(tmp_path_factory.mktemp("lab"), count, "logs")


@pytest.fixture(scope="session")
def cluster(lab: machines.Lab) -> Cluster:
    """A cluster of all machines, with the writer of blocks on each."""
    found = Cluster(lab)
    found.make()
    drbd.install_writer(lab)
    return found


@pytest.fixture(scope="session")
def kvm(cluster: Cluster) -> None:
    """Enable guests under QEMU on the cluster, with ``-H kvm``."""
    cluster.enable_kvm()


@pytest.fixture(scope="module", autouse=True)
def _own_blocks(request: pytest.FixtureRequest) -> None:
    """Give the blocks of each module a mark of their own."""
    drbd.new_mark(request.module.__name__.rpartition(".")[2])


@pytest.fixture(autouse=True)
def _logs_of_failures(request: pytest.FixtureRequest) -> Iterator[None]:
    """Collect the logs of the machines right after a test failed."""
    failed_before = request.session.testsfailed
    yield
    if request.session.testsfailed > failed_before and "lab" in request.fixturenames:
        found: machines.Lab = request.getfixturevalue("lab")
        found.collect_logs(image.cache_dir() / "logs" / request.node.name)
