"""Start-up of the REST daemon: options, addresses, certificates."""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest

from ganeti import errors
from ganeti.platform import paths
from ganeti.server import daemon, rapi
from ganeti.utils import x509


def options(*words: str) -> argparse.Namespace:
    return rapi.DAEMON.parser().parse_args(words)


@pytest.fixture
def here(tmp_path: Path) -> paths.Paths:
    found = paths.Paths(str(tmp_path))
    Path(found.log_dir).mkdir(parents=True)
    Path(found.data_dir).mkdir(parents=True)
    Path(found.rapi_cert_file).write_text(x509.create_self_signed())
    return found


@pytest.mark.parametrize(
    ("words", "fragment"),
    [
        (["-i", "lo", "-b", "127.0.0.1"], "exclude each other"),
        (["--no-ssl", "--ssl-key", "x"], "exclude each other"),
        (["--ssl-key", "x"], "need each other"),
        (["-C", "x"], "need each other"),
    ],
)
def test_options_that_contradict(here: paths.Paths, words: list[str], fragment: str) -> None:
    with paths.override(here), pytest.raises(daemon.StartRefused, match=fragment):
        rapi.check(options(*words))


def test_a_machine_without_a_certificate(here: paths.Paths) -> None:
    Path(here.rapi_cert_file).unlink()
    with paths.override(here):
        with pytest.raises(daemon.StartRefused, match="rapi.pem is missing"):
            rapi.check(options())
        rapi.check(options("--no-ssl"))


@pytest.mark.parametrize("words", [["--max-clients", "0"], ["--max-clients", "x"], ["-p", "0"]])
def test_numbers(words: list[str]) -> None:
    with pytest.raises(SystemExit):
        options(*words)


def test_what_is_opened(here: paths.Paths) -> None:
    with paths.override(here):
        found = rapi.prepare(options("-i", "lo", "-p", str(_free_port())))
        assert found.sock.getsockname()[0] == "127.0.0.1" and found.tls is not None
        port = str(found.sock.getsockname()[1])
        with pytest.raises(errors.ConfigurationError, match=f"cannot serve 127.0.0.1 port {port}"):
            rapi.prepare(options("-b", "127.0.0.1", "-p", port))
        with pytest.raises(errors.ConfigurationError, match="interface nosuch0"):
            rapi.prepare(options("-i", "nosuch0"))
        Path(here.rapi_cert_file).write_text("nonsense")
        with pytest.raises(errors.X509CertError):
            rapi.prepare(options("-b", "127.0.0.1"))
    found.sock.close()
    found.access_log.close()
    if found.watch is not None:
        found.watch.close()


def test_a_certificate_of_ones_own(here: paths.Paths, tmp_path: Path) -> None:
    authority = x509.create_self_signed("authority.example.com")
    signed = x509.create_signed("rapi.example.com", authority)
    key, _, rest = signed.partition("-----BEGIN CERTIFICATE-----")
    (tmp_path / "key").write_text(key)
    (tmp_path / "cert").write_text("-----BEGIN CERTIFICATE-----" + rest)
    (tmp_path / "chain").write_text(x509.certificate_part(authority))
    context = x509.plain_server_context(
        str(tmp_path / "cert"), str(tmp_path / "key"), str(tmp_path / "chain")
    )
    assert context.get_ca_certs()


def _free_port() -> int:
    import socket

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
