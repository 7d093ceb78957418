"""Signing texts with the cluster domain secret, which several clusters share.

Two clusters which move an instance exchange keys and addresses through a third party that does not
know the secret: it can carry them, but not change them (Ganeti design 2.2, *Inter-cluster instance
moves*). A signature is a salt and the HMAC (SHA1) of the salted text.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from typing import Final

from ganeti import errors
from ganeti.utils import x509

SIGNATURE_HEADER: Final = "X-Ganeti-Signature"
_SALT_BYTES: Final = 8
_HEADER = re.compile(
    rf"^{SIGNATURE_HEADER}:\s*(?P<salt>[a-zA-Z0-9]+)/(?P<digest>[0-9a-fA-F]+)\s*$", re.MULTILINE
)


def new_salt() -> str:
    """Make a random salt for one signature."""
    return secrets.token_hex(_SALT_BYTES)


def sign(secret: str, text: str, salt: str) -> str:
    """Compute the signature of a text, in hexadecimal digits."""
    return hmac.new(secret.encode(), (salt + text).encode(), hashlib.sha1).hexdigest()


def is_signed(secret: str, text: str, digest: str, salt: str) -> bool:
    """Tell whether a signature is right, in a time which does not depend on the difference."""
    return hmac.compare_digest(sign(secret, text, salt).lower(), digest.lower())


def sign_certificate(secret: str, pem: str, salt: str) -> str:
    """Return a certificate (PEM) with its signature in a header before it."""
    part = x509.certificate_part(pem)
    return f"{SIGNATURE_HEADER}: {salt}/{sign(secret, part, salt)}\n\n{part}"


def load_certificate(secret: str, text: str) -> str:
    """Check a certificate signed by :func:`sign_certificate`.

    :returns: PEM without the header.
    :raises SignatureError: the certificate is not signed, or not with this secret.
    :raises X509CertError: the text holds no certificate.
    """
    match = _HEADER.search(text.split("-----BEGIN", 1)[0])
    if match is None:
        raise errors.SignatureError("the certificate is not signed")
    part = x509.certificate_part(text)
    if not is_signed(secret, part, match["digest"], match["salt"]):
        raise errors.SignatureError(
            "the certificate is not signed with this cluster's domain secret. Give both clusters"
            " the same one with 'gnt-cluster renew-crypto --cluster-domain-secret'."
        )
    return part
