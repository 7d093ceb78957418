"""Client certificates: handshakes with a real server, and who a request is."""

from __future__ import annotations

import asyncio
import dataclasses
import socket
import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from fakes.http_lab import HttpLab, receive_answer
from ganeti import errors
from ganeti.http import messages
from ganeti.http.event_server import Accepted, Incoming, Response
from ganeti.http.messages import Refused
from ganeti.objects import AccessRecord
from ganeti.rapi import certificates, credentials
from ganeti.rapi.kept_records import KeptRecords
from ganeti.rapi.users import User, Users
from ganeti.utils import clock, x509

VERSIONS = [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3]


class Mirror:
    """Answers with the fingerprint of the certificate which the client has shown."""

    async def begin(self, incoming: Incoming) -> Accepted | Response:
        return Response(200, incoming.certificate.encode() or b"none")

    def refusal(self, refused: Refused) -> Response:
        return Response(refused.status, str(refused).encode(), list(refused.headers))


class Lab:
    """A server with TLS, and files for its clients."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        server = self.file("server", x509.create_self_signed())
        self.context = x509.plain_server_context(str(server))
        self.http = HttpLab(Mirror, tls=self.context)  # type: ignore[arg-type]
        self.asking = certificates.Asking(cast(KeptRecords, None), self.context)

    def file(self, name: str, pem: str) -> Path:
        path = self.directory / f"{name}.pem"
        path.write_text(pem, encoding="ascii")
        return path

    def record(self, path: Path, owner: str = "jack", **more: Any) -> AccessRecord:
        wanted = credentials.Wanted(owner, **{"now": clock.now(), **more})
        return certificates.make(wanted, path.read_text(), str(path))

    def ask(self, version: ssl.TLSVersion, path: Path | None = None) -> str:
        """Send a request; raises what the client sees of a handshake that fails."""
        context = x509.pinning_client_context()
        context.maximum_version = version
        if path is not None:
            context.load_cert_chain(str(path))
        with context.wrap_socket(self.http.connect()) as sock:
            sock.sendall(b"GET / HTTP/1.1\r\nHost: h\r\n\r\n")
            return receive_answer(sock)[2].decode()


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    made = Lab(tmp_path)
    yield made
    made.http.close()


@pytest.mark.parametrize("version", VERSIONS, ids=["1.2", "1.3"])
def test_a_certificate_from_its_adding_to_its_removal(lab: Lab, version: ssl.TLSVersion) -> None:
    own = lab.file("own", x509.create_self_signed("ci"))
    record = lab.record(own)
    # Nobody is asked while there are no certificates; the client does not send its own then.
    lab.asking.update([])
    assert lab.ask(version) == lab.ask(version, own) == "none"
    lab.asking.update([record])
    assert lab.ask(version, own) == record.key
    assert lab.ask(version) == "none"
    # Removed: the connection is made, and the request has no user (see below).
    other = lab.record(lab.file("other", x509.create_self_signed("other")))
    lab.asking.update([other])
    assert lab.ask(version, own) == record.key
    lab.asking.update([])
    assert lab.ask(version, own) == "none"


@pytest.mark.parametrize("version", VERSIONS, ids=["1.2", "1.3"])
def test_certificates_of_others_are_refused(lab: Lab, version: ssl.TLSVersion) -> None:
    lab.asking.update([lab.record(lab.file("own", x509.create_self_signed("ci")))])
    with pytest.raises((ssl.SSLError, ConnectionError, EOFError, AssertionError)):
        lab.ask(version, lab.file("strange", x509.create_self_signed("ci")))


def test_a_certificate_that_an_authority_has_signed(lab: Lab) -> None:
    authority = x509.create_self_signed("authority")
    own = lab.file("own", x509.create_signed("ci", authority))
    record = lab.record(own)
    lab.asking.update([record])
    assert lab.ask(VERSIONS[1], own) == record.key
    # Its brothers are not those that were added.
    with pytest.raises((ssl.SSLError, ConnectionError, EOFError, AssertionError)):
        lab.ask(VERSIONS[1], lab.file("brother", x509.create_signed("ci", authority)))


def test_what_an_added_certificate_signs_is_not_an_identity(lab: Lab) -> None:
    """Programs make certificates for themselves which could sign others."""
    own = x509.create_self_signed("ci")
    record = lab.record(lab.file("own", own))
    lab.asking.update([record])
    signed = x509.create_signed("child", own)
    chain = lab.file("child", signed + x509.certificate_part(own))
    assert lab.ask(VERSIONS[1], chain) not in (record.key, "none")


def test_a_resumed_session_has_the_certificate(lab: Lab) -> None:
    own = lab.file("own", x509.create_self_signed("ci"))
    record = lab.record(own)
    lab.asking.update([record])
    context = x509.pinning_client_context()
    context.load_cert_chain(str(own))
    session = None
    for resumed in (False, True):
        with context.wrap_socket(lab.http.connect(), session=session) as sock:
            sock.sendall(b"GET / HTTP/1.1\r\nHost: h\r\n\r\n")
            assert receive_answer(sock)[2].decode() == record.key
            assert sock.session_reused is resumed
            session = sock.session


def test_many_certificates(lab: Lab) -> None:
    """One that cannot be read is reported, and the others count."""
    pem = x509.create_self_signed("ci")
    record = lab.record(lab.file("own", pem))
    broken = [
        dataclasses.replace(record, key="a" * 64, data={"certificate": text})
        for text in ("", "!", "QUJD")
    ]
    broken = [dataclasses.replace(one, key=f"{number:064}") for number, one in enumerate(broken)]
    lab.asking.update([*broken, record])
    assert lab.ask(VERSIONS[1], lab.directory / "own.pem") == record.key


# -- adding ----------------------------------------------------------------------------------------


def test_the_end_is_that_of_the_certificate(lab: Lab) -> None:
    own = lab.file("own", x509.create_self_signed("ci", validity_days=10))
    end = x509.validity(own.read_text())[1]
    now = clock.now()
    assert lab.record(own).expires == end
    assert lab.record(own, expires=now + 5).expires == now + 5
    assert lab.record(own, expires=now + 1e9).expires == end
    record = lab.record(own, rights="read", label="x")
    assert record.data["rights"] == "read" and "PRIVATE" not in repr(record)
    assert record.key == x509.fingerprint(own.read_text()).hex()


def test_certificates_that_cannot_be_added(lab: Lab) -> None:
    own = lab.file("own", x509.create_self_signed("ci", validity_days=10))
    for wrong, now, expected in (
        ("nothing", 0.0, "certificate"),
        ("-----BEGIN CERTIFICATE-----\nQUJD\n-----END CERTIFICATE-----\n", 0.0, "cannot read"),
        (own.read_text(), clock.now() + 11 * 86400, "has expired"),
        (own.read_text(), 1.0, "not valid yet"),
    ):
        with pytest.raises(errors.GenericError, match=expected):
            lab.record(lab.file("wrong", wrong), now=now)
    large = x509.create_self_signed("ci", host_names=[f"host{n:0200}" for n in range(20)])
    with pytest.raises(errors.ParameterError, match="at most 2700"):
        lab.record(lab.file("large", large))


# -- who it is -------------------------------------------------------------------------------------


class Kept:
    def __init__(self, *records: AccessRecord) -> None:
        self.records = {(one.kind, one.key): one for one in records}
        self.noted: list[str] = []
        self.fails = 0

    async def get(self, kind: str, key: str) -> AccessRecord | None:
        return self.records.get((kind, key))

    async def every(self, kind: str) -> list[AccessRecord]:
        if self.fails:
            self.fails -= 1
            raise Refused(503)
        return list(self.records.values())

    def used(self, kind: str, key: str) -> None:
        self.noted.append(key)


def identify(kept: Kept, users: Users, certificate: str) -> User | None:
    head = messages.parse_head(b"GET /2/info HTTP/1.1\r\nHost: h")
    way = certificates.Certificates(cast(KeptRecords, kept), users)
    return asyncio.run(way.identify(Incoming(head, "192.0.2.1", certificate)))


def test_who_it_is(lab: Lab, tmp_path: Path) -> None:
    own = lab.file("own", x509.create_self_signed("ci"))
    record = lab.record(own, rights="read")
    (tmp_path / "users").write_text("jack x write\n", encoding="utf-8")
    users = Users(str(tmp_path / "users"))
    kept = Kept(record)
    user = identify(kept, users, record.key)
    assert user is not None and (user.name, user.by) == ("jack", "certificate")
    assert user.may({"read"}, "nodes", "GET") and not user.may({"write"}, "nodes", "PUT")
    assert kept.noted == [record.key]
    assert identify(kept, users, "") is None
    with pytest.raises(Refused, match="it has ended, or it was removed") as caught:
        identify(kept, users, "a" * 64)
    assert caught.value.status == 401
    gone = Kept(dataclasses.replace(record, owner="jill"))
    with pytest.raises(Refused, match="belongs to user jill, who does not exist"):
        identify(gone, users, record.key)


def test_the_daemon_looks_for_changes(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(certificates, "INTERVAL_S", 0.001)
    kept = Kept(lab.record(lab.file("own", x509.create_self_signed("ci"))))
    kept.fails = 2
    asking = certificates.Asking(cast(KeptRecords, kept), lab.context)

    async def until_asked() -> None:
        task = asyncio.create_task(asking.run())
        async with asyncio.timeout(60):
            while lab.context.verify_mode == ssl.CERT_NONE:
                await asyncio.sleep(0.001)
        task.cancel()

    asyncio.run(until_asked())
    assert kept.fails == 0


def test_plain_http_has_no_certificates() -> None:
    plain = HttpLab(Mirror)  # type: ignore[arg-type]
    try:
        with plain.connect() as sock:
            assert isinstance(sock, socket.socket)
            sock.sendall(b"GET / HTTP/1.1\r\nHost: h\r\n\r\n")
            assert receive_answer(sock)[2] == b"none"
    finally:
        plain.close()
