"""Keys and certificates."""

import base64
import hashlib
import ssl
import subprocess
import time

import pytest

from fakes.tls_lab import clock_of_maker
from ganeti import errors
from ganeti.utils import x509


@pytest.fixture(scope="module")
def authority():
    return x509.create_self_signed()


@pytest.fixture(scope="module")
def client(authority):
    return x509.create_signed("node1.example.com", authority, serial_no=7)


def test_tls_1_2_has_only_ciphers_with_forward_secrecy_and_authentication() -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.set_ciphers(x509.CIPHERS)
    names = [one["name"] for one in context.get_ciphers() if one["protocol"] == "TLSv1.2"]
    assert "ECDHE-RSA-AES256-GCM-SHA384" in names
    for one in context.get_ciphers():
        if one["protocol"] == "TLSv1.2":
            assert one["aead"] and "ECDHE" in one["name"], one["name"]


def test_self_signed_is_its_own_authority(authority):
    x509.verify_signed(authority, authority)
    info = x509.describe(authority)
    assert info.subject == info.issuer == "ganeti.example.com"


def test_signed_names_subject_and_issuer(authority, client):
    x509.verify_signed(client, authority)
    info = x509.describe(client)
    assert (info.subject, info.issuer, info.serial_no) == (
        "node1.example.com",
        "ganeti.example.com",
        7,
    )


@pytest.mark.parametrize("days", [-3000, 3000])
def test_the_dates_of_certificates_do_not_count(tmp_path, days):
    """An expired certificate, and one which is not valid yet for a node whose clock is wrong."""
    with clock_of_maker(days):
        authority = x509.create_self_signed()
        client = x509.create_signed("node1.example.com", authority)
    x509.verify_signed(client, authority)
    assert x509.check_expiry(client, time.time())[0] == "ERROR"
    own, ca = tmp_path / "client.pem", tmp_path / "server.pem"
    own.write_text(client)
    ca.write_text(authority)
    x509.warm_up(x509.server_context(str(own), str(ca)), str(ca))
    foreign = tmp_path / "foreign.pem"
    foreign.write_text(x509.create_self_signed())
    with pytest.raises(errors.X509CertError, match="cannot be used"):
        x509.warm_up(x509.server_context(str(own), str(foreign)), str(ca))


def test_a_key_is_signed_again_by_another_authority(client):
    other = x509.create_self_signed()
    again = x509.sign_again(client, other, serial_no=9)
    x509.verify_signed(again, other)
    assert x509.key_pin(again) == x509.key_pin(client)
    assert x509.digest(again) != x509.digest(client)
    assert x509.describe(again).subject == "node1.example.com"


def test_foreign_certificate_is_refused(client):
    with pytest.raises(errors.X509CertError, match="client.pem.*not valid in this cluster"):
        x509.verify_signed(client, x509.create_self_signed(), "client.pem")


def test_key_of_another_certificate_is_refused(authority, client):
    mixed = client[: client.index("-----BEGIN CERT")] + x509.certificate_part(authority)
    with pytest.raises(errors.X509CertError, match="key does not fit"):
        x509.verify_signed(mixed, authority)


def test_digest_agrees_with_openssl(client, tmp_path):
    path = tmp_path / "client.pem"
    path.write_text(client)
    printed = subprocess.run(
        ["openssl", "x509", "-in", path, "-noout", "-fingerprint", "-sha1"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert printed.strip().partition("=")[2] == x509.digest_file(str(path))


@pytest.mark.parametrize(
    ("days_left", "severity"),
    [
        (1825, None),
        (31, None),
        (29, "WARNING"),
        (8, "WARNING"),
        (6, "ERROR"),
        (-1, "ERROR"),
    ],
)
def test_expiry(client, days_left, severity):
    end = x509.describe(client).not_after
    found, text = x509.check_expiry(client, end - days_left * 86400, "client.pem")
    assert found == severity
    assert ("client.pem" in text) == (severity is not None)


def test_a_clock_may_be_behind_a_new_certificate_by_a_time_zone(client):
    assert x509.check_expiry(client, time.time() - 14 * 3600)[0] is None


@pytest.mark.parametrize("days", [-20000, 0, 12000])
def test_the_dates_agree_with_those_of_the_library(days):
    """1950 to 2049 are written with two digits of the year."""
    with clock_of_maker(days):
        pem = x509.create_self_signed()
    info = x509.describe(pem)
    assert x509.validity(pem) == (info.not_before, info.not_after)


def test_not_valid_yet(client):
    start = x509.describe(client).not_before
    severity, text = x509.check_expiry(client, start - 10)
    assert severity == "ERROR"
    assert "not valid before" in text


@pytest.mark.parametrize(
    "text", ["", "nonsense", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"]
)
def test_damaged_text(text):
    with pytest.raises(errors.X509CertError):
        x509.describe(text, "x.pem")
    with pytest.raises(errors.X509CertError):
        x509.create_signed("a", text)


def test_missing_file(tmp_path):
    with pytest.raises(errors.X509CertError, match="No such file"):
        x509.digest_file(str(tmp_path / "none.pem"))
    with pytest.raises(errors.X509CertError, match="cannot be used"):
        x509.server_context(str(tmp_path / "none.pem"))


def test_server_context_demands_certificates(authority, tmp_path):
    path = tmp_path / "server.pem"
    path.write_text(authority)
    context = x509.server_context(str(path))
    assert context.verify_mode is ssl.CERT_REQUIRED
    assert context.minimum_version is ssl.TLSVersion.TLSv1_2


def test_rehearsal_resumes(authority, tmp_path):
    path = tmp_path / "server.pem"
    path.write_text(authority)
    context = x509.server_context(str(path))
    x509.warm_up(context, str(path))
    assert context.session_stats()["accept_good"] == 2
    assert context.session_stats()["hits"] == 1


def test_rehearsal_finds_unusable_certificate(authority, tmp_path):
    path, other = tmp_path / "server.pem", tmp_path / "other.pem"
    path.write_text(authority)
    other.write_text(x509.create_self_signed())
    with pytest.raises(errors.X509CertError, match="cannot be used"):
        x509.warm_up(x509.server_context(str(path)), str(other))


def openssl_pin(pem):
    """What OpenSSL says, by other code."""
    from cryptography import x509 as cx509
    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

    key = cx509.load_pem_x509_certificate(x509.certificate_part(pem).encode()).public_key()
    der = key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    return base64.b64encode(hashlib.sha256(der).digest()).decode()


def test_the_pin_of_a_key(authority, client):
    for pem in (authority, client):
        assert x509.key_pin(pem) == openssl_pin(pem)
        assert x509.is_pin(x509.key_pin(pem))
    assert x509.key_pin(authority) != x509.key_pin(client)
    assert not x509.is_pin("") and not x509.is_pin(x509.key_pin(client) + "\n")


@pytest.mark.programs
@pytest.mark.parametrize("kind", ["rsa:2048", "ed25519"])
@pytest.mark.parametrize("version", [1, 3])
def test_the_pin_of_certificates_of_other_programs(tmp_path, kind, version):
    """RSA keys have long lengths; version 1 has no field for the version."""
    key, cert, request = (str(tmp_path / name) for name in ("key", "cert", "request"))
    common = ["-newkey", kind, "-nodes", "-subj", "/CN=x", "-keyout", key]
    steps = [["openssl", "req", "-x509", *common, "-out", cert]]
    if version == 1:
        steps = [
            ["openssl", "req", "-new", *common, "-out", request],
            ["openssl", "x509", "-req", "-in", request, "-signkey", key, "-out", cert],
        ]
    for argv in steps:
        subprocess.run(argv, check=True, capture_output=True)
    pem = x509.read_pem(cert)
    assert x509.key_pin(pem) == openssl_pin(pem)


def test_damaged_certificates_have_no_pin(client):
    der = bytearray(ssl.PEM_cert_to_DER_cert(x509.certificate_part(client)))
    for place in range(len(der)):
        for value in (0x00, 0x7F, 0x84, 0xFF):
            damaged = bytes(der[:place]) + bytes([value]) + bytes(der[place + 1 :])
            for text in (damaged, damaged[:place]):
                try:
                    pin = x509.key_pin(ssl.DER_cert_to_PEM_cert(text))
                except errors.X509CertError as err:
                    assert "cannot read the certificate" in str(err) or "no certificate" in str(err)
                else:
                    assert x509.is_pin(pin)
