"""The steps of a renewal of certificates which a node carries out.

While certificates change, ``server-ca.pem`` holds those that are trusted, old and new; without it a
node trusts its own server certificate only. A step is refused when the node would have a
certificate that no other node trusts, or would trust no certificate. The daemon notices changed
files at the next connection (:class:`ganeti.utils.x509.FreshContext`).
"""

from __future__ import annotations

import os
from typing import Any

from ganeti import errors
from ganeti.backend.registry import serves
from ganeti.platform import paths, users
from ganeti.utils import fs, x509
from ganeti.wire import calls

_TRUST_MODE = 0o444
_KEY_MODE = 0o440


def _next_file() -> str:
    return f"{paths.current().noded_client_cert_file}.tmp"


def _trusted() -> list[str]:
    """Return the certificates which this node trusts."""
    here = paths.current()
    path = here.trust_file()
    return x509.certificates(x509.read_pem(path), path)


@serves(calls.NODE_CRYPTO_STATE)
def crypto_state() -> dict[str, Any]:
    """Return the digests of the certificates which this node has and trusts.

    :returns: ``next_pin`` is the key of the certificate which this node shows after
        ``node_crypto_activate``.
    :raises X509CertError: a file is damaged.
    """
    here = paths.current()
    client, following = here.noded_client_cert_file, _next_file()
    return {
        "server": x509.digest_file(here.noded_cert_file),
        "trust": [x509.digest(pem) for pem in _trusted()],
        "client": x509.digest_file(client) if os.path.exists(client) else None,
        "next": x509.digest_file(following) if os.path.isfile(following) else None,
        "next_pin": (
            x509.key_pin(x509.read_pem(following), following) if os.path.isfile(following) else None
        ),
    }


@serves(calls.NODE_CRYPTO_TRUST)
def crypto_trust(certificates: list[str]) -> None:
    """Set the server certificates which this node trusts.

    :raises X509CertError: this node's own server or client certificate would not be trusted any
        more; nothing was changed.
    """
    here = paths.current()
    own = x509.read_pem(here.noded_cert_file)
    if certificates:
        parts = [x509.certificate_part(pem) for pem in certificates]
        if x509.digest(own) not in [x509.digest(pem) for pem in parts]:
            raise errors.X509CertError(here.noded_cert_file, "is not among those to be trusted")
        fs.write_file(here.server_ca_file, "".join(parts), mode=_TRUST_MODE)
        return
    client = here.noded_client_cert_file
    if os.path.exists(client):
        x509.verify_signed(x509.read_pem(client), own, client)
    fs.remove_file(here.server_ca_file)
    fs.flush_dir(here.data_dir)


@serves(calls.NODE_CRYPTO_IDENTITY)
def crypto_identity(pem: str) -> None:
    """Install another server certificate, which new connections use.

    :raises X509CertError: it is damaged, or not one of the trusted ones; nothing was changed.
    """
    here = paths.current()
    x509.verify_signed(pem, pem, "the new server certificate")
    if x509.digest(pem) not in [x509.digest(one) for one in _trusted()]:
        raise errors.X509CertError("the new server certificate", "is not among those to be trusted")
    uid, gid = users.same_owner(here.noded_cert_file)
    fs.write_file(here.noded_cert_file, pem, mode=_KEY_MODE, uid=uid, gid=gid)


@serves(calls.NODE_CRYPTO_ACTIVATE)
def crypto_activate() -> str:
    """Install the new client certificate; without one, the present certificate stays.

    :raises X509CertError: it is not signed by this node's server certificate; nothing was changed.
    """
    here = paths.current()
    path, following = here.noded_client_cert_file, _next_file()
    if os.path.exists(following):
        x509.verify_signed(x509.read_pem(following), x509.read_pem(here.noded_cert_file), following)
        os.rename(following, path)
        fs.flush_dir(here.data_dir)
    return x509.digest_file(path)
