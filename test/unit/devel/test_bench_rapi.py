"""The client which measures the REST daemon."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from devel.bench import rapi as bench_rapi
from fakes.http_lab import HttpLab
from fakes.rest_master import busy_master
from ganeti import errors
from ganeti.rapi.application import RestApplication
from ganeti.rapi.identify import Identities
from ganeti.rapi.users import Users
from ganeti.utils import x509


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[HttpLab]:
    pem = tmp_path / "rapi.pem"
    pem.write_text(x509.create_self_signed())
    found = HttpLab(
        lambda: RestApplication(busy_master(), Identities([Users(str(tmp_path / "users"))])),
        tls=x509.plain_server_context(str(pem)),
    )
    monkeypatch.setattr(bench_rapi.Connection.__init__, "__defaults__", (found.port,))
    yield found
    found.close()


def test_requests_are_counted(lab: HttpLab) -> None:
    rates = bench_rapi.per_second("127.0.0.1", bench_rapi.INFO, 3, 0.05, 2)
    assert len(rates) == 2 and min(rates) > 0
    assert {one.status for one in lab.exchanges} == {200}
    assert len(bench_rapi.list_ms("127.0.0.1", bench_rapi.BULK, 2)) == 2


def test_an_error_is_no_figure(lab: HttpLab) -> None:
    connection = bench_rapi.Connection("127.0.0.1")
    connection.send("/nosuch")
    with pytest.raises(errors.OpExecError, match="404"):
        connection.receive()
    connection.close()
