"""The signed messages which two clusters exchange to move an instance.

Both clusters know the cluster domain secret, with which the messages are signed. A third party,
such as ``move-instance``, carries the messages and can neither forge nor change them (Ganeti design
2.2, *Inter-cluster instance moves*). The shapes are published, because programs of other projects
carry them, too.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ganeti import errors
from ganeti.cmdlib.ops.transfer import signed
from ganeti.platform import paths
from ganeti.utils import clock, fs, text, x509

VERSION = 0
GREETING = "Hi, I'm Ganeti"
#: What is signed: found by comparing a greeting of the original, version 3.0.2, with its secret.
_SIGNED_GREETING = f"{VERSION}:{GREETING}"
#: Validity of the keys for a move.
CERT_VALIDITY_S = 86400


def domain_secret() -> str:
    """Read the cluster domain secret, which clusters share that trust each other.

    :raises errors.OpPrereqError: the file cannot be read.
    """
    try:
        return fs.read_file(paths.current().cluster_domain_secret).strip()
    except OSError as err:
        raise errors.OpPrereqError(
            f"cannot read the cluster domain secret: {err.strerror}", errors.ECODE_ENVIRON
        ) from err


def greeting(secret: str) -> list[int | str]:
    """Make the first message of the source cluster: ``[version, signature, salt]``."""
    salt = signed.new_salt()
    return [VERSION, signed.sign(secret, _SIGNED_GREETING, salt), salt]


def check_greeting(secret: str, given: Any) -> None:
    """Check the greeting of another cluster.

    :raises errors.OpPrereqError: the form, the version or the signature is wrong.
    """
    version, digest, salt = _fields(given, 3, "handshake")
    if not isinstance(digest, str) or not isinstance(salt, str):
        raise errors.OpPrereqError("the handshake has a wrong form", errors.ECODE_INVAL)
    if version != VERSION:
        raise errors.OpPrereqError(
            f"the other cluster uses version {version!r} of the protocol for moves, this cluster"
            f" version {VERSION}",
            errors.ECODE_INVAL,
        )
    if not signed.is_signed(secret, _SIGNED_GREETING, digest, salt):
        raise errors.OpPrereqError(
            "the handshake is not signed with this cluster's domain secret. Give both clusters the"
            " same one with 'gnt-cluster renew-crypto --cluster-domain-secret'.",
            errors.ECODE_INVAL,
        )


def signed_key(secret: str, name: str) -> list[str]:
    """Sign the name of a key on a node: ``[name, signature, salt]``."""
    salt = signed.new_salt()
    return [name, signed.sign(secret, name, salt), salt]


def check_key(secret: str, given: Any) -> str:
    """Check the signed name of a key.

    :param given: the list which :func:`signed_key` made.
    :returns: the name.
    :raises errors.OpPrereqError: this cluster did not sign it.
    """
    name, digest, salt = _texts(given, 3, "name of the key")
    if not signed.is_signed(secret, name, digest, salt):
        raise errors.OpPrereqError(
            "the name of the key is not signed with this cluster's domain secret",
            errors.ECODE_INVAL,
        )
    return name


def _disk_text(index: int, host: str, port: int, magic: str) -> str:
    return f"{index}:{host}:{port}:{magic}"


def signed_disk(secret: str, index: int, host: str, port: int, magic: str) -> list[str | int]:
    """Sign the address at which the import of a disk listens.

    :returns: ``[host, port, magic, signature, salt]``.
    """
    salt = signed.new_salt()
    return [
        host,
        port,
        magic,
        signed.sign(secret, _disk_text(index, host, port, magic), salt),
        salt,
    ]


def check_disk(secret: str, index: int, given: Any) -> tuple[str, int, str]:
    """Check the signed address of the import of a disk.

    :param given: the list which :func:`signed_disk` made.
    :returns: host, port and magic.
    :raises errors.OpPrereqError: it is not signed with the shared secret, or for another disk.
    """
    host, port, magic, digest, salt = _fields(given, 5, f"target of disk {index}")
    if not (
        all(isinstance(value, str) for value in (host, magic, digest, salt))
        and isinstance(port, int)
        and 0 < port < 65536
        and text.is_transfer_magic(magic)
    ):
        raise errors.OpPrereqError(
            f"the target of disk {index} has a wrong form", errors.ECODE_INVAL
        )
    if not signed.is_signed(secret, _disk_text(index, host, port, magic), digest, salt):
        raise errors.OpPrereqError(
            f"the target of disk {index} is not signed with this cluster's domain secret",
            errors.ECODE_INVAL,
        )
    return host, port, magic


def check_certificate(secret: str, given: Any, what: str) -> str:
    """Check the signed certificate of another cluster.

    :param what: name of the certificate for messages.
    :returns: the certificate as PEM.
    :raises errors.OpPrereqError: it is not signed with the shared secret, or not valid now.
    """
    if not isinstance(given, str) or not given:
        raise errors.OpPrereqError(f"{what} is missing", errors.ECODE_INVAL)
    try:
        pem = signed.load_certificate(secret, given)
        severity, problem = x509.check_expiry(pem, clock.now(), what, warn_days=0, error_days=-1)
    except (errors.SignatureError, errors.X509CertError) as err:
        raise errors.OpPrereqError(f"{what}: {err}", errors.ECODE_INVAL) from err
    if severity == x509.SEVERITY_ERROR:
        raise errors.OpPrereqError(problem, errors.ECODE_INVAL)
    return pem


def _fields(given: Any, count: int, what: str) -> Sequence[Any]:
    if not isinstance(given, list | tuple) or len(given) != count:
        raise errors.OpPrereqError(f"the {what} has a wrong form", errors.ECODE_INVAL)
    return given


def _texts(given: Any, count: int, what: str) -> Sequence[str]:
    found = _fields(given, count, what)
    if not all(isinstance(value, str) for value in found):
        raise errors.OpPrereqError(f"the {what} has a wrong form", errors.ECODE_INVAL)
    return found
