"""Our client, and random requests, against the daemon in front of a master that is made up."""

from __future__ import annotations

import base64
import importlib
import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from schemathesis import GenerationMode

from fakes.described import Description, can_be_made
from fakes.http_lab import WAIT_S, HttpLab
from fakes.rest_master import busy_master
from ganeti.rapi import client, openapi
from ganeti.rapi.application import RestApplication
from ganeti.rapi.identify import Identities
from ganeti.rapi.kept_records import KeptRecords
from ganeti.rapi.proofs import Proofs
from ganeti.rapi.users import Users
from ganeti.utils import x509

TOP = Path(__file__).resolve().parents[3]
PACKAGE = Path(client.__file__).parent
DRIVE = TOP / "test" / "scenario" / "rapi_client_drive.py"
_AUTHORIZATION = "Basic " + base64.b64encode(b"root:secret").decode()


def _lab(directory: Path, *, secure: bool) -> HttpLab:
    users, pem = directory / "users", directory / "rapi.pem"
    users.write_text("root secret write\n")
    pem.write_text(x509.create_self_signed("127.0.0.1"))

    def application() -> RestApplication:
        master, known = busy_master(), Users(str(users))
        return RestApplication(master, Identities([known], Proofs(KeptRecords(master), known)))

    return HttpLab(
        application,
        tls=x509.plain_server_context(str(pem)) if secure else None,
    )


@pytest.fixture
def secure(tmp_path: Path) -> Iterator[HttpLab]:
    lab = _lab(tmp_path, secure=True)
    yield lab
    lab.close()


def connection(lab: HttpLab, password: str = "secret", **options: Any) -> client.GanetiRapiClient:
    return client.GanetiRapiClient(
        "127.0.0.1", lab.port, "root", password, curl_config_fn=client.GenericCurlConfig(**options)
    )


def test_every_method(secure: HttpLab, tmp_path: Path) -> None:
    """In a process which has this package and nothing else of ours."""
    package = tmp_path / "ganeti" / "rapi" / "client"
    shutil.copytree(PACKAGE, package)
    for directory in (package.parent, package.parent.parent):
        (directory / "__init__.py").touch()
    # The drive knows no port.
    constants = package / "constants.py"
    constants.write_text(constants.read_text().replace("= 5080", f"= {secure.port}"))
    done = subprocess.run(
        [sys.executable, "-I", str(DRIVE), str(tmp_path), "127.0.0.1", "root", "secret"],
        capture_output=True,
        text=True,
        timeout=WAIT_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    calls = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(calls) > 90
    refused = {call[0]: call[2] for call in calls if call[1] == "refused"}
    # These are computed by a process of their own, from the socket of a real master.
    for name in ("GetCapacity", "GetBalance", "WhatIf", "ExplainPlacement"):
        assert "not part of a cluster" in refused.pop(name)
    assert refused == {}


def test_the_package_can_be_copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copytree(PACKAGE, tmp_path / "anything")
    monkeypatch.syspath_prepend(str(tmp_path))
    module = importlib.import_module("anything")
    assert module.GanetiRapiClient("h").USER_AGENT
    ours = {name for name in sys.modules if name.split(".")[0] == "anything"}
    for name in ours:
        monkeypatch.delitem(sys.modules, name)
    assert len(ours) == len(list(PACKAGE.glob("*.py")))


def test_errors(secure: HttpLab) -> None:
    with pytest.raises(client.GanetiApiError, match="Unauthorized") as caught:
        connection(secure, "wrong").GetInfo()
    assert caught.value.code == 401
    with pytest.raises(client.GanetiApiError, match="404") as caught:
        connection(secure).GetInstance("a b")
    assert "404 Not Found: Nothing matches the given URI (there is no" in str(caught.value)
    with pytest.raises(client.GanetiApiError, match="unknown parameter '") as caught:
        connection(secure).ModifyCluster(nosuch=1)
    assert caught.value.code == 400
    with pytest.raises(client.GanetiApiError, match="cannot talk") as caught:
        client.GanetiRapiClient("127.0.0.1", 1).GetVersion()
    assert caught.value.code is None
    with pytest.raises(client.GanetiApiError, match="either"):
        connection(secure).EvacuateNode("n", iallocator="a", remote_node="b")
    with pytest.raises(client.Error):
        client.GanetiRapiClient("127.0.0.1", password="x")


def test_certificates(secure: HttpLab, tmp_path: Path) -> None:
    pem = tmp_path / "rapi.pem"
    assert connection(secure, cafile=str(pem)).GetVersion() == 2
    other = tmp_path / "other.pem"
    other.write_text(x509.create_self_signed())
    with pytest.raises(client.CertificateError):
        connection(secure, cafile=str(other)).GetVersion()
    with pytest.raises(client.CertificateError):
        connection(secure, use_curl_cabundle=True).GetVersion()
    with pytest.raises(client.PinnedKeyError, match="pinned") as caught:
        connection(
            secure, pinned_key=f"sha256//{base64.b64encode(bytes(32)).decode()}"
        ).GetVersion()
    assert caught.value.request == "GET /version"
    with pytest.raises(client.Error, match="both"):
        client.GenericCurlConfig(use_curl_cabundle=True, cafile="x")


def test_setting_up_libcurl() -> None:
    @client.UsesRapiClient
    def twice(number: int) -> int:
        """Documented."""
        return 2 * number

    assert twice(4) == 8 and twice.__doc__ == "Documented."


def test_waiting_for_a_job(monkeypatch: pytest.MonkeyPatch) -> None:
    statuses = iter(["running", "error", "queued", "queued", "success"])
    one = client.GanetiRapiClient("h")
    monkeypatch.setattr(one, "GetJobStatus", lambda job: {"status": next(statuses)})
    assert one.WaitForJobCompletion(1, period=0) is False
    assert one.WaitForJobCompletion(1, period=0, retries=2) is False
    assert one.WaitForJobCompletion(1, period=0) is True


# One has no end, one waits, one has a body with GET, which the tool does not send.
_UNTRIED = ("/2/events", "/2/events/log", "/2/jobs/{job_id}/wait")


@pytest.mark.parametrize("mode", [GenerationMode.POSITIVE, GenerationMode.NEGATIVE])
def test_random_requests_get_described_answers(tmp_path: Path, mode: GenerationMode) -> None:
    """Requests which fit the description, and others: no internal error, no hang, and no answer
    which the description does not have. The scenario tests do more of it, with a real cluster.
    """
    lab = _lab(tmp_path, secure=False)
    description = Description(openapi.description())
    seen = set()
    for result in schemathesis.openapi.from_dict(description.document).get_all_operations():
        operation = result.ok()
        if operation.path in _UNTRIED or not can_be_made(operation, mode):
            continue

        @settings(
            max_examples=2,
            deadline=None,
            database=None,
            derandomize=True,
            suppress_health_check=list(HealthCheck),
        )
        @given(case=operation.as_strategy(generation_mode=mode))
        def check(case: Any) -> None:
            case.headers = {**(case.headers or {}), "Authorization": _AUTHORIZATION}
            response = case.call(base_url=f"http://127.0.0.1:{lab.port}", timeout=WAIT_S)
            seen.add(response.status_code)
            assert response.status_code < 500, (case.as_curl_command(), response.text)
            description.check_response(case, response)

        check()
    lab.close()
    assert {200, 400} <= seen
