"""Making new keys and certificates, for the master daemon to bring to all nodes.

What is new is put into the directory ``renewal`` of the master; the operation that brings it to the
nodes takes it from there and removes what all nodes have. See
``cmdlib/cluster/renew_crypto.py`` for the steps and what an interruption leaves.
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
    """Content of a key file."""
    return secrets.token_hex(32) + "\n"


def new_spice() -> dict[str, str]:
    """A certificate for SPICE and the authority that signed it."""
    authority = x509.create_self_signed()
    return {
        SPICE: x509.create_signed(x509.DEFAULT_COMMON_NAME, authority, serial_no=2),
        SPICE_CA: x509.certificate_part(authority),
    }


def certificate_file(path: str) -> str:
    """A PEM of the administrator, with key and certificate.

    :raises OpPrereqError: it cannot be read, or key and certificate do not fit.
    """
    try:
        # Loading it is the test; others may have signed it.
        x509.plain_server_context(path)
        return x509.read_pem(path)
    except errors.X509CertError as err:
        raise errors.OpPrereqError(str(err), errors.ECODE_INVAL) from err


def authority_file(path: str) -> str:
    """A PEM of the administrator with the certificate of an authority; a key is left out.

    :raises OpPrereqError: it cannot be read.
    """
    try:
        return "".join(x509.certificates(x509.read_pem(path), path))
    except errors.X509CertError as err:
        raise errors.OpPrereqError(str(err), errors.ECODE_INVAL) from err


def secret_file(path: str) -> str:
    """A secret of the administrator.

    :raises OpPrereqError: it cannot be read, or there is nothing in it.
    """
    try:
        text = fs.read_file(path)
    except (OSError, UnicodeDecodeError) as err:
        raise errors.OpPrereqError(
            f"cannot read {path}: {getattr(err, 'strerror', None) or 'it is no text'}",
            errors.ECODE_INVAL,
        ) from err
    if not text.strip():
        raise errors.OpPrereqError(f"file {path} is empty", errors.ECODE_INVAL)
    return text


def _path(name: str, here: paths.Paths) -> str:
    return f"{here.renewal_dir}/{os.path.basename(str(getattr(here, name)))}"


def describe(names: Iterable[str]) -> str:
    """The base names of files, for people; `names` are attributes of Paths."""
    return ", ".join(os.path.basename(_path(name, paths.current())) for name in names)


def pending(here: paths.Paths) -> list[str]:
    """Base names of the files of a renewal that has not come to its end."""
    return [
        os.path.basename(_path(name, here)) for name in _NAMES if os.path.exists(_path(name, here))
    ]


def prepare(new: Mapping[str, str], here: paths.Paths) -> None:
    """Put new content where the master daemon finds it.

    A server certificate that waits already is kept: some nodes may know it.

    :param new: attribute of Paths -> content.
    :raises OSError: it cannot be written.
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
    """Refuse while certificates are between old and new.

    :raises OpPrereqError: a renewal was interrupted, or is going on.
    """
    if pending(here) or os.path.exists(here.server_ca_file):
        raise errors.OpPrereqError(
            "the cluster's keys and certificates are being renewed, or that was interrupted."
            " 'gnt-cluster renew-crypto' brings it to its end.",
            errors.ECODE_STATE,
        )
