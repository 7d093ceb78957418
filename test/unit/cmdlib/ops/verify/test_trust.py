"""What verification says of certificates that end soon, and of a renewal that stands still."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path

import pytest

from fakes.config import cluster_of, uuid_of
from fakes.master import Master
from ganeti.bootstrap import node_state
from ganeti.config import verify
from ganeti.objects import updated
from ganeti.opcodes.cluster import OpClusterVerifyConfig
from ganeti.platform import paths
from ganeti.utils import clock, x509

DAY_S = 86400.0


@pytest.fixture
def here(tmp_path: Path):
    found = paths.Paths(str(tmp_path))
    node_state.write_credentials(found, node_state.new_credentials(), "node1.example.com")
    with paths.override(found):
        yield found


def findings(master: Master) -> tuple[bool, list[str]]:
    # The fake's UUIDs are none; that is not what this is about.
    master.config.verify = list  # type: ignore[method-assign,assignment]
    good = master.run(OpClusterVerifyConfig(error_codes=True))
    return good, [line for line in master.job.log if "ECLUSTERCERT" in line]


@pytest.mark.parametrize(
    ("days_left", "severity"),
    [(40, ""), (29, "WARNING"), (8, "WARNING"), (6, "ERROR"), (-1, "ERROR")],
)
def test_thresholds(
    here: paths.Paths, monkeypatch: pytest.MonkeyPatch, days_left: int, severity: str
) -> None:
    end = x509.describe(x509.read_pem(here.noded_cert_file)).not_after
    monkeypatch.setattr(clock, "now", lambda: end - days_left * DAY_S - 1)
    good, lines = findings(Master(cluster_of(1)))
    assert good is (severity != "ERROR")
    # The server's, the client's and the REST daemon's were made in the same moment.
    assert len(lines) == (3 if severity else 0)
    assert all(f"{severity}:ECLUSTERCERT" in line for line in lines)


def test_spice_certificates_are_looked_at_when_they_are_there(here: paths.Paths) -> None:
    assert findings(Master(cluster_of(1))) == (True, [])
    Path(here.spice_cert_file).write_text(x509.create_self_signed(validity_days=3))
    good, (line,) = findings(Master(cluster_of(1)))
    assert not good and "spice.pem expires in 2 days" in line


@pytest.mark.parametrize("trace", ["directory", "trust", "list"])
def test_a_renewal_that_stands_still(here: paths.Paths, trace: str) -> None:
    data = cluster_of(1)
    if trace == "directory":
        os.mkdir(here.renewal_dir)
    elif trace == "trust":
        Path(here.server_ca_file).write_text(x509.read_pem(here.noded_cert_file))
    master = Master(data)
    if trace == "list":
        cluster = master.config.cluster()
        uuid = uuid_of("node1")
        with master.config.transaction() as change:
            change.cluster.update(
                updated(cluster, candidate_certs={uuid: "AA:BB", f"{uuid}-renewal": "CC:DD"})
            )
    good, (line,) = findings(master)
    assert good and "WARNING:ECLUSTERCERT" in line and "was interrupted" in line


def test_the_second_digest_of_a_candidate_is_in_order() -> None:
    data = cluster_of(2)
    good = {uuid_of("node1"): "AA:BB", f"{uuid_of('node1')}-renewal": "CC:DD"}
    stray = {"nobody-renewal": "EE:FF"}

    def complaints(certs: dict[str, str]) -> list[str]:
        cluster = updated(data.cluster, candidate_certs=certs)
        return [
            line
            for line in verify.check(dataclasses.replace(data, cluster=cluster))
            if "candidate certificate" in line
        ]

    assert complaints(good) == []
    assert len(complaints({**good, **stray})) == 1
