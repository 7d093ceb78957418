"""Client certificates: programs which identify themselves when they open a connection.

A certificate is a credential (:mod:`ganeti.rapi.credentials`) whose key is its fingerprint, the
SHA-256 of its binary form, and which has the certificate itself in its data. No authority is
needed, and none is asked: a certificate counts because somebody has added it, and it may be signed
by itself.

OpenSSL accepts the certificate of a client only if it trusts it, so :class:`Asking` gives the
certificates which were added to the TLS settings of the daemon. Clients are asked for a certificate
only while there are some: a browser whose user has certificates for other servers shows a window
when it is asked. The handshake proves that the client has the key; who the client is, and whether
the certificate is still valid, is decided for each request by the records.

Source: RFC 8446, section 4.3.2 *Certificate Request*; X509_VERIFY_PARAM_set_flags(3ssl).
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import logging
import ssl
from typing import Final

from ganeti import errors
from ganeti.http.event_server import Incoming
from ganeti.http.messages import Refused
from ganeti.objects import AccessRecord
from ganeti.rapi import challenge, credentials
from ganeti.rapi.credentials import Wanted
from ganeti.rapi.kept_records import KeptRecords
from ganeti.rapi.users import User, Users
from ganeti.utils import x509

_log = logging.getLogger(__name__)

#: The kind of the access records, and how a user with a certificate was identified.
KIND: Final = "certificate"
#: Seconds after which a new certificate is known to the daemon.
INTERVAL_S: Final = 5.0
#: Largest certificate in bytes: the record has a limit.
MOST_BYTES: Final = 2700

_DER: Final = "certificate"
_UNKNOWN: Final = (
    "the certificate of this connection is not valid: it has ended, or it was removed;"
    " 'rapi-passwd certificate list' on the master shows all certificates"
)


def make(wanted: Wanted, pem: str, path: str) -> AccessRecord:
    """Make the record of a certificate.

    :param wanted: with its end, if that is before the end in the certificate.
    :param pem: text with the certificate; the first one counts.
    :param path: where it comes from, for messages.
    :raises X509CertError: the certificate cannot be read.
    :raises ParameterError: it cannot be used.
    """
    try:
        der = ssl.PEM_cert_to_DER_cert(x509.certificate_part(pem, path))
        # What OpenSSL cannot read would make it refuse all others, too.
        x509.trust_clients(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), [der])
    except (ValueError, ssl.SSLError) as err:
        raise errors.X509CertError(path, f"cannot read the certificate: {err}") from err
    if len(der) > MOST_BYTES:
        raise errors.ParameterError(
            f"the certificate in {path} has {len(der)} bytes; at most {MOST_BYTES} are allowed."
            " Use a certificate with fewer names or a smaller key."
        )
    begin, end = x509.validity(pem, path)
    if begin > wanted.now:
        raise errors.ParameterError(f"the certificate in {path} is not valid yet")
    if end <= wanted.now:
        raise errors.ParameterError(f"the certificate in {path} has expired")
    if wanted.expires is not None:
        end = min(end, wanted.expires)
    data = {_DER: base64.b64encode(der).decode("ascii")}
    key = x509.fingerprint_der(der).hex()
    return credentials.make(KIND, key, wanted._replace(expires=end), data)


class Certificates:
    """The way in for client certificates.

    :param users: knows the rights of the owners.
    """

    def __init__(self, kept: KeptRecords, users: Users) -> None:
        self._kept = kept
        self._owners = credentials.Owners(users)

    async def identify(self, incoming: Incoming) -> User | None:
        """Return the user of a request on a connection with a certificate; None without one.

        :raises Refused: 401 for a certificate which is not valid, 503 if it cannot be checked.
        """
        if not incoming.certificate:
            return None
        record = await self._kept.get(KIND, incoming.certificate)
        if record is None:
            raise challenge.unauthorized(incoming.head, _UNKNOWN)
        user = self._owners.user_of(record)
        if user is None:
            raise challenge.unauthorized(
                incoming.head, credentials.without_owner("certificate", record)
            )
        self._kept.used(KIND, record.key)
        return user


class Asking:
    """Keeps the TLS settings of the daemon in agreement with the certificates.

    A certificate which is removed stays in the settings until the daemon ends, which does no harm:
    it opens a connection, and no request on that connection has a user.

    :param context: None for a daemon without TLS, which has nothing to do here.
    """

    def __init__(self, kept: KeptRecords, context: ssl.SSLContext | None) -> None:
        self._kept = kept
        self._context = context
        self._trusted: set[str] = set()

    async def run(self) -> None:
        """Look for changes from time to time, until the task is canceled."""
        while self._context is not None:
            try:
                self.update(await self._kept.every(KIND))
            except (Refused, errors.GenericError) as err:
                _log.debug("the client certificates are not known: %s", err)
            await asyncio.sleep(INTERVAL_S)

    def update(self, records: list[AccessRecord]) -> None:
        """Trust the certificates of these records, and ask for some if there are any."""
        assert self._context is not None
        for record in records:
            if record.key in self._trusted:
                continue
            self._trusted.add(record.key)
            try:
                der = base64.b64decode(str(record.data.get(_DER, "")), validate=True)
                x509.trust_clients(self._context, [der])
            except (ValueError, binascii.Error, ssl.SSLError) as err:
                _log.error(
                    "certificate %s of user %s cannot be used: %s",
                    credentials.public_id(record.key),
                    record.owner,
                    err,
                )
        x509.ask_clients(self._context, ask=bool(records))
