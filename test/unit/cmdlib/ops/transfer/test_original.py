"""What a cluster of the original, version 3.0.2, has signed for a move is believed here."""

from __future__ import annotations

import pytest

from ganeti import errors
from ganeti.cmdlib.ops.transfer import handshake, signed

# Recorded from OP_BACKUP_PREPARE of the original, with the secret of that cluster.
SECRET = "a0a4f3f3e9fd4af360acfb32e1396cd4445938f2"
GREETING = [0, "85f562859d44accac04debf7e035e30c5dd1df83", "c7e988528f2cc89b"]
KEY = [
    "x509-2026-11-26_06_08_46-htj69l9n",
    "03783031f7e952683ea179774580bd18247df9f0",
    "f440b3acff090b50",
]
HEADER = "X-Ganeti-Signature: f440b3acff090b50/5b9a85e50aef858a2275488b96cc97b47e3c1707"
PEM = """-----BEGIN CERTIFICATE-----
MIICrzCCAZcCBGsHzO4wDQYJKoZIhvcNAQELBQAwHDEaMBgGA1UEAwwRbm9kZTEu
ZXhhbXBsZS5jb20wHhcNMjYxMTI2MDYwODQ2WhcNMjYxMTI3MDYwODQ2WjAcMRow
GAYDVQQDDBFub2RlMS5leGFtcGxlLmNvbTCCASIwDQYJKoZIhvcNAQEBBQADggEP
ADCCAQoCggEBAMbCIxUpPpQETqszO2oXa4+YerInE6/flkKC11Ke6pi5I0TD7tlB
8qMD7Z6aFzLg72O9IKqc1huGIT/9RQP/waYd5bL7xxEzjiynaUQNCsenOVnTHsI5
aCGr/qZcn1Ni2kmWqUmE5tqxi+s0qbkjPMHO73TBigxUv4PC6o+z1FDP46NyFBVQ
2Xh505jYrwwYoPW/hgVDsAzz8LmiiUAOSzMdhbDh4/xJhfzkq7NDRItJdFvt11PU
PSGv/YuM4K1B4hhA/WRxVfUiLugGJuetMSs87U2gPpv00ZeLgkkQ5xFLtBlj74RZ
w+32QqOpKzaeTUaVOQEnbk4GQiaiDPb4z6sCAwEAATANBgkqhkiG9w0BAQsFAAOC
AQEAI1AuiZu7n8EgnktIcsp9QSlw2cRLejJlW7Q3k8bvtZ5R3aPMJiYNkJ4G3Je4
f2nWE4bXz0QDe33yybHM1UG7BUYH3cWqQpB99P5Do8lS0AXJqZzwTGX8xjoMjh/J
7Ibd0XEWU6s02st7UTIkpH6ZhHQ8gHdGxSrl+40aYWjEaspqh/AbDYgl3+7pkMBU
gvsu3LtXGSjGPHzSIeBGJLHiiK1ZMDa1vnDnMgy15zAX+Y5JD1WftiVHwujNDw9L
dZaagtOy/edp1zlinRWQrQV0m9i9egvmnkTR3PXMZ8+RjnhQo4HE5f+8IvQ+UMrB
Sai1NlkaWA4h3iqEHwxPRixfHA==
-----END CERTIFICATE-----
"""


def test_its_greeting_is_believed() -> None:
    handshake.check_greeting(SECRET, GREETING)
    with pytest.raises(errors.OpPrereqError, match="domain secret"):
        handshake.check_greeting(SECRET[::-1], GREETING)
    with pytest.raises(errors.OpPrereqError, match="uses version 1 of the protocol"):
        handshake.check_greeting(SECRET, [1, *GREETING[1:]])


def test_our_greeting_has_the_same_form() -> None:
    version, digest, salt = handshake.greeting(SECRET)
    assert (version, len(str(digest)), len(str(salt))) == (0, 40, 16)
    handshake.check_greeting(SECRET, [version, digest, salt])


def test_the_name_of_its_key_is_believed() -> None:
    assert handshake.check_key(SECRET, KEY) == KEY[0]


def test_its_certificate_is_believed() -> None:
    text = f"{HEADER}\n\n{PEM}"
    assert signed.load_certificate(SECRET, text).strip() == PEM.strip()
    assert signed.sign_certificate(SECRET, PEM, "f440b3acff090b50").startswith(HEADER)
    with pytest.raises(errors.SignatureError):
        signed.load_certificate(SECRET, text.replace("MIIC", "MIID", 1))
