"""Virtual clusters for the scenario tests."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from harness import Cluster, made
from kvm_node import NAME, TOP, Node, find_qemu

from ganeti.objects.instance import FilledInstance
from ganeti.platform import paths


@pytest.fixture(scope="module")
def cluster_directory() -> Iterator[Path]:
    """A short path: the names of unix sockets are limited."""
    path = Path(tempfile.mkdtemp(prefix="gnt-"))
    yield path / "vc"
    shutil.rmtree(path, ignore_errors=True)


@pytest.fixture(scope="module")
def cluster(cluster_directory: Path) -> Iterator[Cluster]:
    """Three nodes with the fake hypervisor as default, shared by the tests of one module."""
    with made(Cluster(cluster_directory, 3, "--hypervisor", "fake")) as one:
        yield one


# Guests without daemons around


@pytest.fixture(scope="session")
def image() -> Path:
    """The boot image of tiny, built once for the checkout."""
    if not os.access(find_qemu(), os.X_OK):
        pytest.skip("QEMU (qemu-system-x86) is not installed")
    output = TOP / "build/tiny"
    done = subprocess.run(
        [TOP / "devel/tiny-image", "-o", output],
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    if done.returncode != 0 and "As root, run:" in done.stderr:
        pytest.skip(done.stderr.strip())
    assert done.returncode == 0, done.stderr
    return output


@pytest.fixture
def nodes(image: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Node, Node]]:
    """Two nodes with shared storage; no guest survives the test."""
    directory = Path(tempfile.mkdtemp(prefix="gnt-kvm-"))
    (directory / "shared").mkdir()
    # What QEMU can do is found out once for all nodes of a virtual cluster.
    monkeypatch.setenv(paths.ENV_VCLUSTER, str(TOP / "build"))
    both = (
        Node(directory / "a", image, directory / "shared"),
        Node(directory / "b", image, directory / "shared"),
    )
    try:
        yield both
    finally:
        for node in both:
            node.end_all()
        shutil.rmtree(directory)


@pytest.fixture
def node(nodes: tuple[Node, Node]) -> Node:
    return nodes[0]


@pytest.fixture
def guest(node: Node) -> FilledInstance:
    """An installed guest."""
    made = node.instance(NAME)
    node.install(made)
    return made
