"""Certificates that are replaced under a running server and a client that calls it."""

from __future__ import annotations

import os

import pytest

from fakes.tls_lab import ADDRESS, Lab
from ganeti import errors
from ganeti.http import client
from ganeti.utils import x509


@pytest.fixture
def lab(tmp_path):
    lab = Lab(str(tmp_path))
    yield lab
    lab.close()


def replace(path, text):
    with open(f"{path}.new", "w") as stream:
        stream.write(text)
    os.rename(f"{path}.new", path)


def outcomes(lab, asker):
    """One call alone, one over a connection that is kept, and a fan-out."""
    request = client.OutgoingRequest(ADDRESS, lab.port, "echo", b"hi", 30.0)
    kept = client.OutgoingRequest(ADDRESS, lab.port, "kept", b"hi", 30.0, keep=True)
    return [*asker.perform([request]), *asker.perform([kept]), *asker.perform([request] * 3)]


def all_answered(lab, asker):
    return all(isinstance(one, client.Reply) and one.status == 200 for one in outcomes(lab, asker))


def test_step_by_step_no_call_fails(lab):
    asker = client.Client(lab.server_pem, lab.client_pem)
    assert all_answered(lab, asker)
    old, new = x509.read_pem(lab.server_pem), x509.create_self_signed()
    both = x509.certificate_part(old) + x509.certificate_part(new)
    replace(lab.ca_file, both)
    assert all_answered(lab, asker)
    asker.reset(lab.ca_file)
    assert all_answered(lab, asker)
    replace(lab.server_pem, new)
    assert all_answered(lab, asker)
    foreign = client.Client(lab.foreign_pem, lab.client_pem)
    assert all(one.kind == client.REFUSED for one in outcomes(lab, foreign))
    lab.allow(lab.client_pem, lab.other_pem)
    replace(lab.other_pem, x509.create_signed("master", new))
    lab.allow(lab.client_pem, lab.other_pem)
    assert all_answered(lab, asker)
    replace(lab.client_pem, x509.read_pem(lab.other_pem))
    asker.reset()
    lab.allow(lab.other_pem)
    assert all_answered(lab, asker), "without reset, sessions of the old certificate would be used"
    os.unlink(lab.ca_file)
    asker.reset(lab.server_pem)
    assert all_answered(lab, asker)


def test_what_is_not_trusted_any_more_is_refused(lab):
    asker = client.Client(lab.server_pem, lab.client_pem)
    assert all_answered(lab, asker)
    copy = lab._pem("old-client.pem", x509.read_pem(lab.client_pem))
    new = x509.create_self_signed()
    replace(lab.client_pem, x509.create_signed("master", new))
    replace(lab.server_pem, new)
    lab.allow(lab.client_pem, copy)
    old = client.Client(lab.server_pem, copy)
    assert all(isinstance(one, client.Failure) for one in outcomes(lab, old))
    asker.reset()
    assert all_answered(lab, asker)


def test_damaged_files_leave_things_as_they_are(lab):
    asker = client.Client(lab.server_pem, lab.client_pem)
    # It must have begun with good ones.
    assert all_answered(lab, asker)
    replace(lab.ca_file, "garbage")
    assert all_answered(lab, asker)
    lab.wait_for_log("the old certificates stay in use")


def test_a_context_is_made_anew_only_when_files_change(tmp_path):
    cert, authority = str(tmp_path / "server.pem"), str(tmp_path / "server-ca.pem")
    with pytest.raises(errors.X509CertError):
        x509.FreshContext(cert, authority)
    replace(cert, x509.create_self_signed())
    fresh = x509.FreshContext(cert, authority)
    first = fresh()
    assert fresh() is first
    replace(authority, x509.certificate_part(x509.create_self_signed()))
    second = fresh()
    assert second is not first and fresh() is second
    os.unlink(authority)
    assert fresh() is not second


def test_several_certificates(tmp_path):
    one, two = x509.create_self_signed("a"), x509.create_self_signed("b")
    assert x509.certificates(one + two) == [x509.certificate_part(one), x509.certificate_part(two)]
    with pytest.raises(errors.X509CertError, match="holds no certificate"):
        x509.certificates("")
    assert len(x509.fingerprint(one)) == 32 and x509.fingerprint(one) != x509.fingerprint(two)
    with pytest.raises(errors.X509CertError):
        x509.fingerprint("")
