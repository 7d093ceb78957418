"""Small secrets in the configuration, encrypted with a key that is in another file.

A server which checks one-time codes needs the secret of the user itself: a hash is not enough. The
record with it is in the configuration, of which there are many copies (backups, the history). The
key comes from the confd key (``hmac.key``), which all nodes of a cluster have, no other cluster
has, and which is not in the configuration. So a copy of the configuration alone is useless, and a
failover needs no further file. Who can read both files as root can read the secrets.

Source: RFC 5116 (AEAD_AES_256_GCM), RFC 5869 (HKDF).
"""

from __future__ import annotations

import base64
import binascii
import os

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from ganeti import errors
from ganeti.platform import paths
from ganeti.utils import fs

_INFO = b"ganeti: sealed access records"
_NONCE_BYTES = 12


class Seal:
    """Encrypts and decrypts with a key which is made from the confd key."""

    def __init__(self, confd_key: bytes) -> None:
        key = HKDF(hashes.SHA256(), 32, salt=None, info=_INFO).derive(confd_key)
        self._cipher = AESGCM(key)

    def close(self, plain: bytes, purpose: str) -> str:
        """Encrypt a secret.

        :param purpose: what it is for and whose it is; the same is needed to decrypt it.
        """
        nonce = os.urandom(_NONCE_BYTES)
        sealed = nonce + self._cipher.encrypt(nonce, plain, purpose.encode())
        return base64.urlsafe_b64encode(sealed).decode("ascii")

    def open(self, text: str, purpose: str) -> bytes:
        """Decrypt a secret.

        :raises ParseError: it was encrypted with another key or for another purpose, or changed.
        """
        try:
            sealed = base64.urlsafe_b64decode(text.encode("ascii"))
            return self._cipher.decrypt(
                sealed[:_NONCE_BYTES], sealed[_NONCE_BYTES:], purpose.encode()
            )
        except (ValueError, binascii.Error, InvalidTag) as err:
            raise errors.ParseError(
                "the secret cannot be decrypted: it was made with another confd key"
            ) from err


def of_cluster() -> Seal:
    """Return the seal of this cluster.

    :raises ConfigurationError: the confd key cannot be read.
    """
    path = paths.current().hmac_key
    try:
        return Seal(fs.read_bytes(path).strip())
    except OSError as err:
        raise errors.ConfigurationError(
            f"cannot read the confd key {path}, which encrypts the secrets of one-time codes:"
            f" {err.strerror}"
        ) from err
