"""Making new keys and certificates, which the master daemon then distributes to all nodes.

New files are put into the directory ``renewal`` of the master. The operation which distributes them
reads them there, and removes each file which all nodes have. See
``cmdlib/cluster/renew_crypto.py`` for its steps, and for the state after an interruption.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterable, Mapping

from ganeti import errors
from ganeti.platform import paths
from ganeti.utils import fs, x509

SERVER = "noded_cert_file"
RAPI = "rapi_cert_file"
CONFD_KEY = "hmac_key"
DOMAIN_SECRET = "cluster_domain_secret"
SPICE = "spice_cert_file"
SPICE_CA = "spice_cacert_file"
_NAMES = (SERVER, RAPI, CONFD_KEY, DOMAIN_SECRET, SPICE, SPICE_CA)


def new_secret() -> str:
    """Return a new random secret, as the content of its file."""
    return secrets.token_hex(32) + "\n"


def new_spice() -> dict[str, str]:
    """Return a new certificate for SPICE, and the certificate of its authority.

    :returns: attribute of Paths -> content of the file.
    """
    authority = x509.create_self_signed()
    return {
        SPICE: x509.create_signed(x509.DEFAULT_COMMON_NAME, authority, serial_no=2),
        SPICE_CA: x509.certificate_part(authority),
    }


def certificate_file(path: str) -> str:
    """Read and check a PEM file with key and certificate, which a user names.

    :raises OpPrereqError: the file cannot be read, or key and certificate do not fit.
    """
    try:
        # Its signature is not checked: any authority may have signed it.
        x509.plain_server_context(path)
        return x509.read_pem(path)
    except errors.X509CertError as err:
        raise errors.OpPrereqError(str(err), errors.ECODE_INVAL) from err


def authority_file(path: str) -> str:
    """Read the certificates of authorities from a PEM file which a user names, without keys.

    :raises OpPrereqError: the file cannot be read or has no certificate.
    """
    try:
        return "".join(x509.certificates(x509.read_pem(path), path))
    except errors.X509CertError as err:
        raise errors.OpPrereqError(str(err), errors.ECODE_INVAL) from err


def secret_file(path: str) -> str:
    """Read a secret from a file which a user names.

    :raises OpPrereqError: the file cannot be read, or is empty.
    """
    try:
        text = fs.read_file(path)
    except (OSError, UnicodeDecodeError) as err:
        raise errors.OpPrereqError(
            f"cannot read {path}: {getattr(err, 'strerror', None) or 'it is not a text'}",
            errors.ECODE_INVAL,
        ) from err
    if not text.strip():
        raise errors.OpPrereqError(f"file {path} is empty", errors.ECODE_INVAL)
    return text


def _path(name: str, here: paths.Paths) -> str:
    return f"{here.renewal_dir}/{os.path.basename(str(getattr(here, name)))}"


def describe(names: Iterable[str]) -> str:
    """Return the base names of files, for messages.

    :param names: attributes of Paths.
    """
    return ", ".join(os.path.basename(_path(name, paths.current())) for name in names)


def pending(here: paths.Paths) -> list[str]:
    """Return the base names of the files of a renewal which is not complete."""
    return [
        os.path.basename(_path(name, here)) for name in _NAMES if os.path.exists(_path(name, here))
    ]


def prepare(new: Mapping[str, str], here: paths.Paths) -> None:
    """Put new files into the directory from which the master daemon distributes them.

    A server certificate which is there already is kept, because some nodes may have it.

    :param new: attribute of Paths -> content of the file.
    :raises OSError: a file cannot be written.
    """
    if not new:
        return
    owner = os.stat(here.data_dir)
    uid, gid = (owner.st_uid, owner.st_gid) if os.geteuid() == 0 else (-1, -1)
    fs.make_dirs(here.renewal_dir, 0o700, uid=uid, gid=gid)
    for name, content in new.items():
        path = _path(name, here)
        if name != SERVER or not os.path.exists(path):
            fs.write_file(path, content, mode=0o400, uid=uid, gid=gid)


def require_none_pending(here: paths.Paths) -> None:
    """Refuse an operation while keys and certificates are being renewed.

    :raises OpPrereqError: a renewal is running, or was interrupted.
    """
    if pending(here) or os.path.exists(here.server_ca_file):
        raise errors.OpPrereqError(
            "the cluster's keys and certificates are being renewed, or a renewal was interrupted."
            " 'gnt-cluster renew-crypto' completes it.",
            errors.ECODE_STATE,
        )
