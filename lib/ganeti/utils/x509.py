"""Keys and certificates; the only module which imports pyOpenSSL and cryptography.

A cluster has one self-signed *server certificate* (``server.pem``), the same on every node. It is
the authority that signs the certificate of each node (``client.pem``, the *client certificate*),
which the node shows when it calls and when it is called. A PEM of this module is one text with the
private key, followed by the certificate; its file gets mode 0400 or 0440.

Other nodes know a certificate by its digest: SHA1 over its binary form, in upper case, in pairs
with colons (``CB:83:...``), as in ``ssconf_master_candidates_certs``. The master knows the key of
each node by its *pin*: SHA256 over the public key in its binary form, in base64 (RFC 7469).

The functions which need the two libraries import them themselves: the node daemon forks for every
call, and a parent without them is smaller and forks faster. Contexts and digests need only the
standard library.
"""

from __future__ import annotations

import base64
import datetime
import hashlib
import logging
import os
import re
import socket
import ssl
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from ganeti import errors

if TYPE_CHECKING:
    from cryptography import x509 as cx509
    from OpenSSL import crypto

#: Common name of the server certificate; clients check the signature, not the name.
DEFAULT_COMMON_NAME = "ganeti.example.com"
#: The validity of new certificates: five years.
DEFAULT_VALIDITY_DAYS = 1825
#: Days before the end of a certificate at which ``gnt-cluster verify`` reports a warning or
#: an error.
EXPIRATION_WARN_DAYS = 30
EXPIRATION_ERROR_DAYS = 7

#: The ciphers for TLS 1.2; TLS 1.3 has a list of its own. Only those which authenticate what they
#: encrypt (AEAD), with keys that are not kept and a certificate of the server.
CIPHERS = "ECDHE+AESGCM:ECDHE+CHACHA20:ECDHE+AESCCM:!aNULL:!PSK:!SRP:!kRSA"

SEVERITY_WARNING = "WARNING"
SEVERITY_ERROR = "ERROR"

# X509_V_FLAG_NO_CHECK_TIME of OpenSSL, for which the standard library has no name.
_NO_CHECK_TIME = 0x200000
# Programs of older versions look at the dates; there, a node whose clock is late by a time zone
# must accept a new certificate.
_BACKDATE = datetime.timedelta(days=1)
_DER_SEQUENCE = 0x30
_DER_UTC_TIME = 0x17
# The explicit tag of the optional field ``version``.
_DER_VERSION = 0xA0
_CERTIFICATE = re.compile(r"-----BEGIN CERTIFICATE-----[A-Za-z0-9+/=\s]+-----END CERTIFICATE-----")


class CertificateInfo(NamedTuple):
    """Facts about a certificate; times are in seconds since 1970."""

    subject: str
    issuer: str
    serial_no: int
    not_before: float
    not_after: float
    digest: str


def create_self_signed(
    common_name: str = DEFAULT_COMMON_NAME,
    *,
    validity_days: int = DEFAULT_VALIDITY_DAYS,
    serial_no: int = 1,
    host_names: Sequence[str] = (),
) -> str:
    """Make a key with a self-signed certificate, which can sign other certificates.

    :param common_name: name in the certificate.
    :param host_names: names of machines for which it holds (subjectAltName); none for any machine.
    :returns: PEM with key and certificate.
    """
    key = _new_key()
    name = _name(common_name)
    builder = _builder(name, name, key.public_key(), serial_no, validity_days)
    if host_names:
        builder = builder.add_extension(_alternatives(host_names), critical=False)
    return _to_pem(key, _sign(_extend(builder, key, key, authority=True), key))


def create_signed(
    common_name: str, ca_pem: str, *, validity_days: int = DEFAULT_VALIDITY_DAYS, serial_no: int = 1
) -> str:
    """Make a key with a certificate which another key has signed.

    :param common_name: name in the certificate.
    :param ca_pem: PEM with key and certificate of the signer.
    :returns: PEM with key and certificate.
    :raises X509CertError: the signer's PEM cannot be read.
    """
    ca_key = _load_key(ca_pem)
    ca_cert = _load(ca_pem, "(signer)")
    key = _new_key()
    builder = _builder(
        _name(common_name), ca_cert.subject, key.public_key(), serial_no, validity_days
    )
    return _to_pem(key, _sign(_extend(builder, key, ca_key, authority=False), ca_key))


def sign_again(pem: str, ca_pem: str, *, serial_no: int) -> str:
    """Make another certificate for a key, which the present signer has signed.

    :param pem: PEM with the key, and a certificate for it.
    :param ca_pem: PEM with key and certificate of the signer.
    :returns: PEM with the same key and the new certificate.
    :raises X509CertError: a PEM cannot be read.
    """
    key, ca_key = _load_key(pem, "(key)"), _load_key(ca_pem)
    subject, issuer = _load(pem, "(key)").subject, _load(ca_pem, "(signer)").subject
    builder = _builder(subject, issuer, key.public_key(), serial_no, DEFAULT_VALIDITY_DAYS)
    return _to_pem(key, _sign(_extend(builder, key, ca_key, authority=False), ca_key))


def certificate_part(pem: str, filename: str = "(text)") -> str:
    """Return the first certificate of a PEM, without the key.

    :param filename: name of the PEM in error messages.
    :raises X509CertError: the PEM has no certificate.
    """
    match = _CERTIFICATE.search(pem)
    if match is None:
        raise errors.X509CertError(filename, "holds no certificate")
    return match.group(0) + "\n"


def certificates(pem: str, filename: str = "(text)") -> list[str]:
    """Return all certificates of a PEM, without keys.

    :raises X509CertError: the PEM has no certificate.
    """
    found = [match.group(0) + "\n" for match in _CERTIFICATE.finditer(pem)]
    if not found:
        raise errors.X509CertError(filename, "holds no certificate")
    return found


def require_pair(pem: str, filename: str = "(text)") -> None:
    """Check that a PEM has a private key, and a certificate for this key.

    :raises X509CertError: a part is missing or cannot be read, or the two do not belong together.
    """
    if _public_der(_load_key(pem, filename)) != _public_der(_load(pem, filename)):
        raise errors.X509CertError(filename, "the key is not the one of the certificate")


def digest(pem: str, filename: str = "(text)") -> str:
    """Return the digest of the first certificate in a PEM, as ``AA:BB:...``.

    :raises X509CertError: the PEM has no certificate.
    """
    try:
        return digest_der(ssl.PEM_cert_to_DER_cert(certificate_part(pem, filename)))
    except ValueError as err:
        raise errors.X509CertError(filename, f"cannot read the certificate: {err}") from err


def digest_der(der: bytes) -> str:
    """Return the digest of a certificate in its binary form."""
    digits = hashlib.sha1(der, usedforsecurity=False).hexdigest().upper()
    return ":".join(digits[start : start + 2] for start in range(0, len(digits), 2))


def is_digest(text: str) -> bool:
    """Return True if a text has the form of :func:`digest`."""
    return re.fullmatch(r"[0-9A-F]{2}(:[0-9A-F]{2}){19}", text) is not None


def fingerprint_der(der: bytes) -> bytes:
    """Return the SHA256 sum of a certificate in its binary form, as a join token has it."""
    return hashlib.sha256(der).digest()


def fingerprint(pem: str, filename: str = "(text)") -> bytes:
    """Return the SHA256 sum of the first certificate in a PEM.

    :raises X509CertError: the PEM has no certificate.
    """
    try:
        return fingerprint_der(ssl.PEM_cert_to_DER_cert(certificate_part(pem, filename)))
    except ValueError as err:
        raise errors.X509CertError(filename, f"cannot read the certificate: {err}") from err


def key_pin(pem: str, filename: str = "(text)") -> str:
    """Return the pin of the key of the first certificate in a PEM: SHA256 of the public key, in
    base64.

    Source: RFC 7469, section 2.4; the same text is in ``PINNEDPUBLICKEY`` of libcurl.

    :raises X509CertError: the certificate cannot be read.
    """
    try:
        der = _public_part(ssl.PEM_cert_to_DER_cert(certificate_part(pem, filename)))
    except (ValueError, IndexError) as err:
        raise errors.X509CertError(filename, f"cannot read the certificate: {err}") from err
    return base64.b64encode(hashlib.sha256(der).digest()).decode("ascii")


def validity(pem: str, filename: str = "(text)") -> tuple[float, float]:
    """Return the dates between which the first certificate in a PEM is valid.

    :returns: seconds since 1970.
    :raises X509CertError: the certificate cannot be read.
    """
    try:
        der = ssl.PEM_cert_to_DER_cert(certificate_part(pem, filename))
        place, end = _der_content(der, _field(der, 3))
        dates = []
        while place < end:
            tag, (start, following) = der[place], _der_content(der, place)
            dates.append(_time(tag, der[start:following].decode("ascii")))
            place = following
        not_before, not_after = dates
    except (ValueError, IndexError) as err:
        raise errors.X509CertError(filename, f"cannot read the certificate: {err}") from err
    return not_before, not_after


def _time(tag: int, text: str) -> float:
    """Convert a time of a certificate. Source: RFC 5280, section 4.1.2.5."""
    if tag == _DER_UTC_TIME:
        # Two digits of the year: 1950 to 2049.
        text = f"{'19' if text[:2] >= '50' else '20'}{text}"
    return datetime.datetime.strptime(f"{text}+0000", "%Y%m%d%H%M%SZ%z").timestamp()


def _public_part(der: bytes) -> bytes:
    """Return the field ``subjectPublicKeyInfo`` of a certificate in its binary form.

    :raises ValueError: it is not a certificate (:class:`IndexError`: it is too short).
    """
    place = _field(der, 5)
    if der[place] != _DER_SEQUENCE:
        raise ValueError("it has no public key")
    return der[place : _der_content(der, place)[1]]


def _field(der: bytes, number: int) -> int:
    """Return where a field of a certificate in its binary form begins.

    Without the library, which takes a tenth of a second to import in each program that calls nodes.
    Source: RFC 5280, section 4.1, and the lengths of DER in X.690.

    :param number: 0 serialNumber, 1 signature, 2 issuer, 3 validity, 4 subject, 5 the public key.
    """
    start, _ = _der_content(der, 0)  # Certificate
    place, _ = _der_content(der, start)  # TBSCertificate
    if der[place] == _DER_VERSION:
        place = _der_content(der, place)[1]
    for _ in range(number):
        place = _der_content(der, place)[1]
    return place


def _der_content(der: bytes, place: int) -> tuple[int, int]:
    """Return where the content of the element at a place begins and ends."""
    length, begin = der[place + 1], place + 2
    if length & 0x80:
        count = length & 0x7F
        length, begin = int.from_bytes(der[begin : begin + count], "big"), begin + count
    if begin + length > len(der):
        raise ValueError("it is damaged")
    return begin, begin + length


def is_pin(text: str) -> bool:
    """Return True if a text has the form of :func:`key_pin`."""
    return re.fullmatch(r"[A-Za-z0-9+/]{43}=", text) is not None


def digest_file(path: str) -> str:
    """Return the digest of the first certificate in a file, as ``AA:BB:...``.

    :raises X509CertError: the file cannot be read or has no certificate.
    """
    return digest(read_pem(path), path)


def read_pem(path: str) -> str:
    """Return the text of a PEM file.

    :raises X509CertError: the file cannot be read.
    """
    try:
        with open(path, encoding="ascii") as stream:
            return stream.read()
    except (OSError, UnicodeDecodeError) as err:
        reason = err.strerror if isinstance(err, OSError) else "is not a PEM text"
        raise errors.X509CertError(path, f"{reason}") from err


def describe(pem: str, filename: str = "(text)") -> CertificateInfo:
    """Return the facts about the first certificate of a PEM.

    :raises X509CertError: the certificate cannot be read.
    """
    cert = _load(pem, filename)
    return CertificateInfo(
        subject=_common_name(cert.subject),
        issuer=_common_name(cert.issuer),
        serial_no=cert.serial_number,
        not_before=_moment(cert, "not_valid_before"),
        not_after=_moment(cert, "not_valid_after"),
        digest=digest(pem, filename),
    )


def check_expiry(
    pem: str,
    now: float,
    filename: str = "(text)",
    *,
    warn_days: int = EXPIRATION_WARN_DAYS,
    error_days: int = EXPIRATION_ERROR_DAYS,
) -> tuple[str | None, str]:
    """Check whether a certificate is valid now and in the next days.

    :param now: seconds since 1970.
    :param warn_days: days before its end from which the result is a warning.
    :param error_days: days before its end from which the result is an error.
    :returns: ``(None, "")``, or the severity (WARNING, ERROR) and a message.
    :raises X509CertError: the certificate cannot be read.
    """
    not_before, not_after = validity(pem, filename)
    if now < not_before:
        return SEVERITY_ERROR, f"certificate {filename} is not valid before {_show(not_before)}"
    if now > not_after:
        return SEVERITY_ERROR, f"certificate {filename} expired on {_show(not_after)}"
    days_left = int((not_after - now) // 86400)
    text = f"certificate {filename} expires in {days_left} days"
    if days_left <= error_days:
        return SEVERITY_ERROR, text
    if days_left <= warn_days:
        return SEVERITY_WARNING, text
    return None, ""


def ignore_dates(context: ssl.SSLContext) -> None:
    """Let a TLS context accept certificates before and after their time.

    Inside a cluster the key of a peer is known, and decides. If the date decided, an expired
    certificate would end the cluster, and the renewal needs the cluster; and a node whose clock is
    wrong after a boot could not come back. Dates are reported (:func:`check_expiry`).
    """
    context.verify_flags |= _NO_CHECK_TIME


def shown_pin(
    address: str, port: int, cert_file: str, ca_file: str, timeout_s: float
) -> str | None:
    """Return the pin of the key that a server shows, if the cluster has signed its certificate.

    The dates of the certificate do not count.

    :param cert_file: the certificate that this node shows.
    :param ca_file: the server certificates to trust.
    :returns: None when the server cannot be reached, or is not one of the cluster.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.check_hostname = False
    ignore_dates(context)
    try:
        context.load_verify_locations(cafile=ca_file)
        context.load_cert_chain(cert_file)
        with (
            socket.create_connection((address, port), timeout=timeout_s) as raw,
            context.wrap_socket(raw) as connection,
        ):
            der = connection.getpeercert(binary_form=True)
    except (OSError, ValueError):
        return None
    return None if der is None else key_pin(ssl.DER_cert_to_PEM_cert(der))


def verify_signed(pem: str, ca_pem: str, filename: str = "(text)") -> None:
    """Check that one certificate was signed with another, and that its key belongs to it.

    Their dates do not count (:func:`ignore_dates`).

    :param pem: key and certificate to check.
    :param ca_pem: certificate of the signer.
    :raises X509CertError: the signature is another one, or the key belongs to another certificate.
    """
    from OpenSSL import crypto

    cert = _load_openssl(pem, filename)
    store = crypto.X509Store()
    store.set_flags(_NO_CHECK_TIME)
    store.add_cert(_load_openssl(ca_pem, "(signer)"))
    try:
        crypto.X509StoreContext(store, cert).verify_certificate()
    except crypto.X509StoreContextError as err:
        raise errors.X509CertError(filename, f"is not valid in this cluster: {err}") from err
    if _public_der(_load_key(pem, filename)) != _public_der(_load(pem, filename)):
        raise errors.X509CertError(filename, "private key does not fit the certificate")


def server_context(
    cert_file: str, ca_file: str | None = None, key_file: str | None = None
) -> ssl.SSLContext:
    """TLS settings of a server which demands certificates of its clients.

    Their dates do not count (:func:`ignore_dates`). It speaks TLS 1.2 or later. The keys for
    session tickets are made here, so that each child of a forking server can resume the sessions of
    the other children.

    :param cert_file: PEM with key and certificate of the server.
    :param ca_file: certificates of the authorities which sign clients; None for the certificate of
        the server.
    :param key_file: file with the key, when it is not in ``cert_file``.

    :raises X509CertError: a file cannot be read, or key and certificate do not fit.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.verify_mode = ssl.CERT_REQUIRED
    ignore_dates(context)
    try:
        context.set_ciphers(CIPHERS)
        context.load_cert_chain(cert_file, key_file)
        context.load_verify_locations(cafile=ca_file or cert_file)
    except (OSError, ValueError) as err:
        raise errors.X509CertError(cert_file, f"cannot be used: {err}") from err
    return context


class FreshContext:
    """The TLS settings of a daemon, made anew when its files change.

    While certificates are renewed, ``ca_file`` has the old and the new ones; at other times it is
    missing, and ``cert_file`` is the authority. When a file cannot be used, the settings stay as
    they are.

    The daemon shows the certificate in ``own_file``, whose key no other node has. It shows that in
    ``cert_file`` while the former is missing or cannot be used.
    """

    def __init__(
        self,
        cert_file: str,
        ca_file: str,
        own_file: str | None = None,
        served: tuple[str, str | None] | None = None,
    ) -> None:
        """Load the files.

        :param own_file: the certificate of this node with its key, signed by ``cert_file``.
        :param served: files with the certificate and the key which the daemon shows instead.
        :raises X509CertError: the files cannot be used.
        """
        self._cert_file = cert_file
        self._ca_file = ca_file
        self._own_file = own_file
        self._served = served
        self._stamp = self._look()
        self._context = self._make()

    def __call__(self) -> ssl.SSLContext:
        """Return the settings for the next connection."""
        stamp = self._look()
        if stamp != self._stamp:
            try:
                self._context = self._make()
                self._stamp = stamp
            except errors.X509CertError as err:
                logging.error("the old certificates stay in use: %s", err)
        return self._context

    def _make(self) -> ssl.SSLContext:
        authority = self._ca_file if os.path.exists(self._ca_file) else self._cert_file
        if self._served is not None:
            return server_context(self._served[0], authority, self._served[1])
        if self._own_file is not None and os.path.exists(self._own_file):
            try:
                context = server_context(self._own_file, authority)
                # Whether the other nodes accept it, too.
                warm_up(context, self._cert_file, authority)
            except errors.X509CertError as err:
                logging.error(
                    "this node shows the certificate of the cluster, which is the same on all"
                    " nodes, in place of its own: %s. 'gnt-cluster renew-crypto"
                    " --new-node-certificates' makes a new one.",
                    err,
                )
            else:
                return context
        return server_context(self._cert_file, authority)

    def _look(self) -> tuple[tuple[int, int] | None, ...]:
        stamps: list[tuple[int, int] | None] = []
        for path in (self._cert_file, self._ca_file, self._own_file, *(self._served or ())):
            if path is None:
                continue
            try:
                found = os.stat(path)
            except OSError:
                stamps.append(None)
            else:
                stamps.append((found.st_ino, found.st_mtime_ns))
        return tuple(stamps)


def one_peer_context(
    own_file: str, peer_file: str, *, server: bool, key_file: str | None = None
) -> ssl.SSLContext:
    """TLS settings of one end of a connection whose other end has one known certificate.

    The certificates are made for this connection: they name no host, and their dates do not count
    (:func:`ignore_dates`). A connection which breaks never looks like one which was ended properly.

    :param own_file: PEM with the certificate of this end, and its key.
    :param peer_file: PEM with the certificate of the other end, the only one which is accepted.
    :param server: whether this end accepts the connection.
    :param key_file: file with the key, when it is not in ``own_file``.
    :raises X509CertError: a file cannot be read, or key and certificate do not fit.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER if server else ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.check_hostname = False
    context.verify_mode = ssl.CERT_REQUIRED
    ignore_dates(context)
    context.options &= ~getattr(ssl, "OP_IGNORE_UNEXPECTED_EOF", 0)
    try:
        context.set_ciphers(CIPHERS)
        context.load_cert_chain(own_file, key_file)
        context.load_verify_locations(cafile=peer_file)
    except (OSError, ValueError) as err:
        raise errors.X509CertError(own_file, f"cannot be used: {err}") from err
    return context


def plain_server_context(
    cert_file: str, key_file: str | None = None, chain_file: str | None = None
) -> ssl.SSLContext:
    """TLS settings of a server which does not ask for certificates of its clients.

    The server authenticates its clients in another way.

    :param key_file: file with the key, when it is not in ``cert_file``.
    :param chain_file: certificates of authorities, which the server sends with its own.
    :raises X509CertError: a file cannot be read, or key and certificate do not fit.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        context.set_ciphers(CIPHERS)
        context.load_cert_chain(cert_file, key_file)
        if chain_file:
            # OpenSSL looks for the chain there when it sends our certificate.
            context.load_verify_locations(cafile=chain_file)
    except (OSError, ValueError) as err:
        raise errors.X509CertError(cert_file, f"cannot be used: {err}") from err
    return context


def ask_clients(context: ssl.SSLContext, *, ask: bool) -> None:
    """Ask the clients of a server for a certificate, which they need not have, or do not ask.

    This changes the handshakes which begin later. The dates of a certificate are left to the
    caller, who can say more than a handshake that fails.
    """
    context.verify_mode = ssl.CERT_OPTIONAL if ask else ssl.CERT_NONE


def trust_clients(context: ssl.SSLContext, ders: Sequence[bytes]) -> None:
    """Accept these certificates of clients, also if an authority has signed them that is unknown.

    :param ders: certificates in their binary form.
    :raises ssl.SSLError: one of them cannot be read.
    """
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    ignore_dates(context)
    for der in ders:
        context.load_verify_locations(cadata=der)


def pinning_client_context() -> ssl.SSLContext:
    """TLS settings of a client which knows the fingerprint of the server's certificate.

    The handshake accepts every certificate; the caller must compare its fingerprint before it sends
    data.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def warm_up(context: ssl.SSLContext, cert_file: str, ca_file: str | None = None) -> None:
    """Make OpenSSL load its algorithms, with a full and a resumed handshake in this process.

    OpenSSL loads an algorithm when it is first used, which takes longer than a handshake. When the
    parent of a forking server has done it, its children need not.

    :param context: the settings of the server.
    :param cert_file: the certificate which the client of the handshake shows.
    :param ca_file: the certificates which the client trusts; None for the one that it shows.
    :raises X509CertError: the certificate of the server cannot be used.
    """
    client_context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client_context.check_hostname = False
    ignore_dates(client_context)
    client_context.load_verify_locations(cafile=ca_file or cert_file)
    client_context.load_cert_chain(cert_file)
    session = None
    for _ in range(2):
        to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
        server = context.wrap_bio(to_server, to_client, server_side=True)
        client = client_context.wrap_bio(to_client, to_server, session=session)
        try:
            _shake_hands(client, server)
            client.write(b"?")
            server.read(1)
            server.getpeercert(binary_form=True)
            # With TLS 1.3 the session ticket comes with the first data.
            server.write(b"!")
            client.read(1)
        except ssl.SSLError as err:
            raise errors.X509CertError(cert_file, f"cannot be used: {err}") from err
        session = client.session


def _shake_hands(client: ssl.SSLObject, server: ssl.SSLObject) -> None:
    waiting = [client, server]
    while waiting:
        for side in list(waiting):
            try:
                side.do_handshake()
                waiting.remove(side)
            except ssl.SSLWantReadError:
                continue


def _new_key() -> Any:
    from cryptography.hazmat.primitives.asymmetric import ec

    # An RSA key of the same strength takes a hundred times longer at every full handshake, and
    # hundreds of milliseconds to make. Certificates of other programs may have RSA keys.
    return ec.generate_private_key(ec.SECP256R1())


def _name(common_name: str) -> cx509.Name:
    from cryptography import x509 as cx509
    from cryptography.x509.oid import NameOID

    return cx509.Name([cx509.NameAttribute(NameOID.COMMON_NAME, common_name[:64])])


def _alternatives(host_names: Sequence[str]) -> cx509.SubjectAlternativeName:
    from cryptography import x509 as cx509

    return cx509.SubjectAlternativeName([cx509.DNSName(name) for name in host_names])


def _now() -> datetime.datetime:
    return datetime.datetime.now(datetime.UTC).replace(tzinfo=None)


def _builder(
    subject: cx509.Name, issuer: cx509.Name, public_key: Any, serial_no: int, validity_days: int
) -> cx509.CertificateBuilder:
    from cryptography import x509 as cx509

    now = _now()
    return (
        cx509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(public_key)
        .serial_number(serial_no)
        .not_valid_before(now - _BACKDATE)
        .not_valid_after(now + datetime.timedelta(days=validity_days))
    )


def _extend(
    builder: cx509.CertificateBuilder, key: Any, ca_key: Any, *, authority: bool
) -> cx509.CertificateBuilder:
    from cryptography import x509 as cx509

    return (
        builder.add_extension(cx509.BasicConstraints(ca=authority, path_length=None), critical=True)
        .add_extension(cx509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(
            cx509.AuthorityKeyIdentifier.from_issuer_public_key(ca_key.public_key()), critical=False
        )
    )


def _sign(builder: cx509.CertificateBuilder, key: Any) -> cx509.Certificate:
    from cryptography.hazmat.primitives import hashes

    return builder.sign(key, hashes.SHA256())


def _to_pem(key: Any, cert: cx509.Certificate) -> str:
    from cryptography.hazmat.primitives import serialization

    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return str((private + cert.public_bytes(serialization.Encoding.PEM)).decode("ascii"))


def _load_key(pem: str, filename: str = "(signer)") -> Any:
    from cryptography.hazmat.primitives import serialization

    try:
        return serialization.load_pem_private_key(pem.encode(), password=None)
    except (ValueError, TypeError) as err:
        # The message of the library may contain the key, so it is not shown.
        raise errors.X509CertError(filename, "holds no usable private key") from err


def _load(pem: str, filename: str) -> cx509.Certificate:
    from cryptography import x509 as cx509

    try:
        return cx509.load_pem_x509_certificate(certificate_part(pem, filename).encode())
    except ValueError as err:
        raise errors.X509CertError(filename, f"cannot read the certificate: {err}") from err


def _public_der(owner: Any) -> bytes:
    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

    return bytes(owner.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo))


def _load_openssl(pem: str, filename: str) -> crypto.X509:
    from OpenSSL import crypto

    try:
        return crypto.load_certificate(
            crypto.FILETYPE_PEM, certificate_part(pem, filename).encode()
        )
    except crypto.Error as err:
        raise errors.X509CertError(filename, f"cannot read the certificate: {err}") from err


def _common_name(name: cx509.Name) -> str:
    from cryptography.x509.oid import NameOID

    found = name.get_attributes_for_oid(NameOID.COMMON_NAME)
    return str(found[0].value) if found else ""


def _moment(cert: cx509.Certificate, attribute: str) -> float:
    # Since version 42 the library has attributes with a time zone and warns about those without.
    moment = getattr(cert, f"{attribute}_utc", None) or getattr(cert, attribute)
    return float(moment.replace(tzinfo=datetime.UTC).timestamp())


def _show(timestamp: float) -> str:
    moment = datetime.datetime.fromtimestamp(timestamp, datetime.UTC)
    return moment.strftime("%Y-%m-%d %H:%M:%S UTC")
