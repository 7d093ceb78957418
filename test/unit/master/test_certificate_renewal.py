"""Certificates that expire soon: the master renews them, where it may."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from fakes.config import FakeConfig, cluster_of, commit
from fakes.rpc import FakeRpc
from fakes.tls_lab import clock_of_maker
from ganeti import errors
from ganeti.master.certificate_renewal import CertificateRenewal
from ganeti.objects import updated
from ganeti.opcodes.base import OpCode
from ganeti.platform import paths
from ganeti.utils import x509

NODES = tuple(f"node{number}.example.com" for number in (1, 2, 3))
#: Ages in days at which a certificate of five years ends in so many days.
LEFT_29, LEFT_31, EXPIRED = 1825 - 29, 1825 - 31, 1825 + 400


class Queue:
    """Keeps the jobs."""

    def __init__(self) -> None:
        self.jobs: list[list[OpCode]] = []
        self.unfinished: set[int] = set()

    def submit(self, ops: Sequence[OpCode], *, drained_ok: bool = False) -> int:
        for op in ops:
            op.validate()
        self.jobs.append(list(ops))
        return len(self.jobs)

    def is_unfinished(self, job_id: int) -> bool:
        return job_id in self.unfinished


class Lab:
    """A master with three nodes."""

    def __init__(self, here: paths.Paths) -> None:
        self.here = here
        Path(here.data_dir).mkdir(parents=True)
        self.config = FakeConfig(cluster_of(3))
        self.rpc = FakeRpc(self.config)
        self.queue = Queue()
        self.renewal = CertificateRenewal(self.config, self.rpc, self.queue)  # type: ignore[arg-type]

    def made(self, cluster_days: int, *node_days: int, name: str = "") -> None:
        """Make the certificates, so many days ago."""
        with clock_of_maker(-cluster_days):
            authority = x509.create_self_signed(name or x509.DEFAULT_COMMON_NAME)
        Path(self.here.noded_cert_file).write_text(authority)
        for node, days in zip(NODES, node_days, strict=True):
            with clock_of_maker(-days):
                self.rpc.shown[node] = x509.create_signed(node, authority)

    @property
    def prepared(self) -> str:
        return f"{self.here.renewal_dir}/server.pem"


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Lab]:
    monkeypatch.setenv(paths.ENV_HOSTNAME, NODES[0])
    here = paths.Paths(str(tmp_path))
    with paths.override(here):
        yield Lab(here)


def test_nothing_is_renewed_too_early(lab: Lab) -> None:
    lab.made(LEFT_31, LEFT_31, 0, 7)
    assert lab.renewal.poll() is None
    assert lab.queue.jobs == [] and not os.path.exists(lab.here.renewal_dir)


@pytest.mark.parametrize("age", [LEFT_29, EXPIRED])
def test_the_certificate_of_the_cluster(lab: Lab, age: int) -> None:
    lab.made(age, 0, 0, 0)
    assert lab.renewal.poll() == 1
    ((op,),) = lab.queue.jobs
    assert op.OP_ID == "OP_CLUSTER_RENEW_CRYPTO"
    assert "server.pem expire" in op.reason[0][1]
    new = x509.read_pem(lab.prepared)
    assert x509.check_expiry(new, x509.validity(new)[1] - 86400 * 1800)[0] is None
    assert os.stat(lab.prepared).st_mode & 0o777 == 0o400
    # While the job runs there is no other one; an interrupted renewal keeps its certificate.
    lab.queue.unfinished = {1}
    assert lab.renewal.poll() is None
    lab.queue.unfinished = set()
    assert lab.renewal.poll() == 2 and x509.read_pem(lab.prepared) == new


def test_the_certificate_of_one_node(lab: Lab) -> None:
    lab.made(0, 0, 0, LEFT_29)
    assert lab.renewal.poll() == 1
    ((op,),) = lab.queue.jobs
    assert op.node_certificates is True and "of node node3" in op.reason[0][1]  # type: ignore[attr-defined]
    assert not os.path.exists(lab.prepared)


def test_a_node_that_does_not_answer(lab: Lab, caplog: pytest.LogCaptureFixture) -> None:
    lab.made(LEFT_29, 0, 0, 0)
    lab.rpc.errors["version", NODES[1]] = errors.NodeUnreachable(NODES[1], "version", "no route")
    assert lab.renewal.poll() is None
    assert lab.queue.jobs == [] and not os.path.exists(lab.prepared)
    assert "these do not: node2.example.com" in caplog.text
    # Nobody waits for one which is marked offline.
    commit(lab.config).nodes.update(updated(lab.config.node_by_name(NODES[1]), offline=True))
    assert lab.renewal.poll() == 1


def test_the_certificate_of_an_administrator_stays(
    lab: Lab, caplog: pytest.LogCaptureFixture
) -> None:
    lab.made(LEFT_29, 0, 0, 0, name="ours.example.org")
    with caplog.at_level(logging.WARNING):
        assert lab.renewal.poll() is None
    assert "was not made by this program" in caplog.text
