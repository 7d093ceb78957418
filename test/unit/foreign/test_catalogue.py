"""The catalogue of disk images, and how an image gets into it."""

from __future__ import annotations

import functools
import hashlib
import http.server
import os
import shutil
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fakes.redirecting_server import RedirectingServer, redirecting_server
from ganeti import errors
from ganeti.foreign import catalogue, fetching, images
from ganeti.utils import process
from ganeti.wire import json

CONTENT = b"what is on the disk" * 4000
SHA256 = hashlib.sha256(CONTENT).hexdigest()
NO_PROOF = fetching.Proof()


def qemu_img(argv: list[str], **options: Any) -> process.Completed:
    """Stands for ``qemu-img info`` of a raw image; other programs fail."""
    assert ["qemu-img", "info"] == argv[argv.index("--") + 1 :][:2]
    size = os.path.getsize(argv[-1])
    text = json.dumps({"format": "raw", "virtual-size": size, "filename": argv[-1]})
    return process.Completed(tuple(argv), 0, text, "", None)


@pytest.fixture
def top(tmp_path: Path) -> Path:
    found = tmp_path / "images"
    found.mkdir()
    return found


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "debian.raw"
    path.write_bytes(CONTENT)
    return path


def fetch(
    top: Path,
    source: str,
    proof: fetching.Proof = NO_PROOF,
    name: str = "debian-12",
    run: images.Runner = qemu_img,
) -> catalogue.Image:
    image, part = fetching.fetch(name, source, proof, str(top), now=lambda: 17.5, run=run)
    catalogue.add(str(top), image, part)
    return image


def files(top: Path) -> list[str]:
    return sorted(name for name in os.listdir(top) if name != ".lock")


def test_fetched_image_is_in_the_catalogue(top: Path, source: Path) -> None:
    image = fetch(top, str(source))
    size = len(CONTENT)
    assert image == ("debian-12", "raw", size, size, SHA256, str(source), "", 17)
    assert catalogue.read(str(top)) == ({"debian-12": image}, [])
    assert files(top) == sorted([f"{SHA256}.raw", "debian-12.json"])
    assert (top / f"{SHA256}.raw").read_bytes() == CONTENT
    assert (top / f"{SHA256}.raw").stat().st_mode & 0o777 == 0o644
    assert (top / "debian-12.json").stat().st_mode & 0o777 == 0o644


def test_replaced_and_removed_images_leave_no_file(top: Path, source: Path) -> None:
    fetch(top, str(source))
    fetch(top, str(source), name="copy")
    source.write_bytes(b"newer")
    newer = fetch(top, str(source))
    # The other name still has the older content.
    assert files(top) == sorted([f"{SHA256}.raw", newer.data_file, "copy.json", "debian-12.json"])
    catalogue.remove(str(top), catalogue.read(str(top))[0]["copy"])
    assert files(top) == sorted([newer.data_file, "debian-12.json"])


def test_interrupted_programs_leave_nothing_half_done(
    top: Path, source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = fetch(top, str(source))

    class Killed(BaseException):
        pass

    def die(*args: Any, **options: Any) -> Any:
        raise Killed

    source.write_bytes(b"newer")
    # While qemu-img looks at the image, and between the image and its entry.
    with pytest.raises(Killed):
        fetch(top, str(source), run=die)
    assert files(top) == sorted([kept.data_file, "debian-12.json"])
    with monkeypatch.context() as patch, pytest.raises(Killed):
        patch.setattr(catalogue.fs, "write_file", die)
        fetch(top, str(source))
    assert catalogue.read(str(top)) == ({"debian-12": kept}, [])
    # What a killed program cannot remove, the next one removes.
    (top / ".new-abc.part").write_bytes(b"half")
    gone = catalogue.sweep(str(top))
    assert ".new-abc.part" in gone and len(gone) == 2
    assert files(top) == sorted([kept.data_file, "debian-12.json"])


def test_entries_that_cannot_be_used_are_named_and_protect_images(top: Path, source: Path) -> None:
    image = fetch(top, str(source))
    (top / "other.json").write_text(json.dumps(image._asdict()))
    (top / "bad.json").write_text("{")
    found, problems = catalogue.read(str(top))
    assert list(found) == ["debian-12"]
    assert "bad.json cannot be used: invalid JSON" in problems[0]
    assert "other.json cannot be used: it is the entry of image debian-12" in problems[1]
    unknown = top / ("0" * 64 + ".qcow2")
    unknown.write_bytes(b"")
    assert catalogue.sweep(str(top)) == []
    (top / "bad.json").unlink()
    (top / "other.json").unlink()
    assert catalogue.sweep(str(top)) == [unknown.name]


@pytest.mark.parametrize(
    "change",
    [
        {"size": -1}, {"size": "1"}, {"size": True}, {"sha256": "0"}, {"format": "vmdk"},
        {"name": "../x"}, {"source": None}, {"fetched": 1.5},
    ],
)  # fmt: skip
def test_wrong_entries(change: dict[str, Any]) -> None:
    good = catalogue.Image("a", "raw", 1, 1, SHA256, "/x", "", 1)
    assert catalogue.parse_entry(json.dumps(good._asdict())) == good
    with pytest.raises(errors.ParseError):
        catalogue.parse_entry(json.dumps(good._asdict() | change))


def test_names(top: Path, source: Path) -> None:
    fetch(top, str(source))
    for wrong in ("", ".x", "a/b", "a b", "http://x", "a" * 101, "ä"):
        with pytest.raises(errors.OpPrereqError, match="cannot be the name"):
            catalogue.require_name(wrong)
    with pytest.raises(errors.OpPrereqError, match="Did you mean 'debian-12'"):
        catalogue.require(catalogue.read(str(top))[0], "debain-12")
    assert catalogue.read(str(top / "missing")) == ({}, [])


def test_one_program_at_a_time(top: Path) -> None:
    with catalogue.lock(str(top)), pytest.raises(errors.LockError):
        catalogue.lock(str(top))


def test_surplus_files_of_a_node(top: Path, source: Path) -> None:
    image = fetch(top, str(source))
    old = ["0" * 64 + ".raw", ".new-share-x.part", "old.json"]
    names = [image.data_file, image.entry_file, "README", ".lock", "lost+found", *old]
    assert catalogue.surplus(names, {"debian-12": image}) == old


# Proofs


def test_checksums(top: Path, source: Path) -> None:
    sha512 = hashlib.sha512(CONTENT).hexdigest()
    for good in (SHA256, f"sha256:{SHA256.upper()}", sha512, f"sha512:{sha512}"):
        assert fetch(top, str(source), fetching.Proof(good)).verified == "checksum"
    before = files(top)
    with pytest.raises(errors.OpPrereqError, match=f"has the sha256 {SHA256}, wanted 0000"):
        fetch(top, str(source), fetching.Proof("0" * 64), name="other")
    for wrong in ("md5:" + "0" * 32, "sha512:" + "0" * 64, "sha256:" + "g" * 64, "x"):
        with pytest.raises(errors.OpPrereqError, match="is not a checksum"):
            fetch(top, str(source), fetching.Proof(wrong), name="other")
    assert files(top) == before


def test_file_of_checksums(top: Path, source: Path, tmp_path: Path) -> None:
    listed = tmp_path / "SHA256SUMS"
    listed.write_text(f"# images\n{'0' * 64}  other.raw\n{SHA256} *debian.raw\n")
    proof = fetching.Proof(checksum_file=str(listed))
    assert fetch(top, str(source), proof).verified == "checksum"
    listed.write_text(f"SHA256 (./debian.raw) = {SHA256}\n")
    fetch(top, str(source), proof)
    listed.write_text(f"{SHA256}  other.raw\n")
    with pytest.raises(errors.OpPrereqError, match=r"has no SHA-256 or SHA-512 of debian\.raw"):
        fetch(top, str(source), proof)
    listed.write_text(f"{'0' * 64}  debian.raw\n")
    with pytest.raises(errors.OpPrereqError, match="wanted 0000"):
        fetch(top, str(source), proof)


def test_proofs_that_make_no_sense(top: Path, source: Path) -> None:
    for proof, problem in (
        (fetching.Proof(checksum=SHA256, checksum_file="x"), "either --checksum or"),
        (fetching.Proof(signature="x"), "belong together"),
        (fetching.Proof(keyring="x"), "belong together"),
        (fetching.Proof(signature="x", keyring="/nowhere"), "there is no keyring"),
    ):
        with pytest.raises(errors.OpPrereqError, match=problem):
            fetch(top, str(source), proof)
    with pytest.raises(errors.OpPrereqError, match="http address needs --checksum"):
        fetch(top, "http://127.0.0.1:1/x")
    with pytest.raises(errors.OpPrereqError, match="cannot be fetched"):
        fetching.require_source("ftp://host/x")
    assert files(top) == []


def test_gpgv_is_missing(top: Path, source: Path, tmp_path: Path) -> None:
    def run(argv: list[str], **options: Any) -> process.Completed:
        raise errors.CommandError(argv, None, "no such program")

    key = tmp_path / "key.gpg"
    key.write_bytes(b"")
    with pytest.raises(errors.OpPrereqError, match="Install the package 'gpgv'"):
        fetch(top, str(source), fetching.Proof(signature=str(key), keyring=str(key)), run=run)
    assert files(top) == []


@pytest.mark.programs
def test_signatures(top: Path, source: Path, tmp_path: Path) -> None:
    for program in ("gpg", "gpgv", "qemu-img"):
        if shutil.which(program) is None:
            pytest.skip(f"{program} is not installed")
    listed = tmp_path / "SHA256SUMS"
    listed.write_text(f"{SHA256}  debian.raw\n")

    def gpg(*argv: str) -> None:
        done = subprocess.run(
            ["gpg", "--homedir", str(home), "--batch", "--yes", "--quiet", *argv],
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr

    home = tmp_path / "gnupg"
    home.mkdir(mode=0o700)
    try:
        gpg("--pinentry-mode", "loopback", "--passphrase", "", "--quick-gen-key", "us@x", "ed25519")
        gpg("--export", "--output", str(tmp_path / "keys.gpg"))
        gpg("--output", str(tmp_path / "list.sig"), "--detach-sign", str(listed))
        gpg("--armor", "--output", str(tmp_path / "image.asc"), "--detach-sign", str(source))
    finally:
        subprocess.run(["gpgconf", "--homedir", str(home), "--kill", "all"], check=False)
    keyring = str(tmp_path / "keys.gpg")
    image = fetching.Proof(signature=str(tmp_path / "image.asc"), keyring=keyring)
    whole = fetching.Proof(
        checksum_file=str(listed), signature=str(tmp_path / "list.sig"), keyring=keyring
    )
    for proof in (image, whole):
        assert fetch(top, str(source), proof, run=process.run).verified == "signature"
    source.write_bytes(CONTENT + b"changed")
    with pytest.raises(errors.OpPrereqError, match="has no valid signature by a key of"):
        fetch(top, str(source), image, run=process.run)
    with pytest.raises(errors.OpPrereqError, match="wanted"):
        fetch(top, str(source), whole, run=process.run)
    listed.write_text(f"{hashlib.sha256(source.read_bytes()).hexdigest()}  debian.raw\n")
    with pytest.raises(errors.OpPrereqError, match="SHA256SUMS has no valid signature"):
        fetch(top, str(source), whole, run=process.run)
    assert files(top) == sorted([f"{SHA256}.raw", "debian-12.json"])


# Addresses


class Handler(http.server.SimpleHTTPRequestHandler):
    """Serves a directory; a request for ``/short`` ends too early."""

    def do_GET(self) -> None:
        if self.path != "/short":
            super().do_GET()
            return
        self.send_response(200)
        self.send_header("Content-Length", "1000")
        self.end_headers()
        self.wfile.write(b"not so much")

    def log_message(self, *args: Any) -> None:
        pass


@pytest.fixture
def address(tmp_path: Path) -> Iterator[str]:
    server = http.server.ThreadingHTTPServer(
        ("127.0.0.1", 0), functools.partial(Handler, directory=str(tmp_path))
    )
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    thread.join()
    server.server_close()


def test_addresses(top: Path, source: Path, address: str) -> None:
    image = fetch(top, f"{address}/debian.raw", fetching.Proof(SHA256))
    assert (image.sha256, image.source) == (SHA256, f"{address}/debian.raw")
    assert fetch(top, source.as_uri()).sha256 == SHA256
    for path, problem in (("missing", "404|not found"), ("short", "after 11 of 1000 bytes|Incomp")):
        with pytest.raises(errors.OpPrereqError, match=rf"cannot fetch .*({problem})"):
            fetch(top, f"{address}/{path}", fetching.Proof(SHA256))
    with pytest.raises(errors.OpPrereqError, match="cannot fetch /nowhere: No such file or [^.]*$"):
        fetch(top, "/nowhere")
    # Without a network, the way out is a file; an answer of the server says more itself.
    closed = "https://127.0.0.1:1/debian.raw"
    with pytest.raises(errors.OpPrereqError, match="refused. If this .* images fetch NAME FILE$"):
        fetch(top, closed)
    assert files(top) == sorted([f"{SHA256}.raw", "debian-12.json"])


@pytest.fixture
def web(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[RedirectingServer]:
    """Servers which redirect; their certificate is trusted."""
    directory = tmp_path / "web"
    directory.mkdir()
    with redirecting_server(directory) as server:
        monkeypatch.setenv("SSL_CERT_FILE", server.ca_file)
        server.documents["/debian.raw"] = CONTENT
        yield server


@pytest.mark.parametrize("hops", ["{http}/to/{https}", "{https}/to/{http}/to/{https}", "{http}"])
def test_an_address_that_leads_over_http_is_not_protected(
    top: Path, web: RedirectingServer, hops: str
) -> None:
    """Whoever changes the answer over HTTP decides where the last address is."""
    path = hops.format(http=web.http, https=web.https)
    source = f"{web.https}/to/{path}/debian.raw"
    with pytest.raises(errors.OpPrereqError, match="it leads to http://.*nothing protects"):
        fetch(top, source)
    # What is not protected was not even asked for.
    assert {scheme for scheme, _path in web.requests} == {"https"}
    assert files(top) == []
    # A checksum or a signature proves the content, however it came.
    assert fetch(top, source, fetching.Proof(SHA256)).verified == "checksum"


def test_an_address_that_leads_over_https_only_is_protected(
    top: Path, web: RedirectingServer
) -> None:
    image = fetch(top, f"{web.https}/to/{web.https}/to/{web.https}/debian.raw")
    assert (image.sha256, image.verified) == (SHA256, "")
    # A path is relative to the address that redirects.
    assert fetch(top, f"{web.https}/to//debian.raw", name="other").sha256 == SHA256


@pytest.mark.parametrize(
    "target", ["ftp://127.0.0.1/x", "gopher://127.0.0.1/x", "file:///etc/passwd"]
)
@pytest.mark.parametrize("scheme", ["http", "https"])
def test_other_kinds_of_addresses_are_not_followed(
    top: Path, web: RedirectingServer, scheme: str, target: str
) -> None:
    source = f"{getattr(web, scheme)}/to/{target}"
    with pytest.raises(errors.OpPrereqError, match="Only http and https|is not allowed"):
        fetch(top, source, fetching.Proof(SHA256))
    assert files(top) == []


def test_a_file_of_checksums_that_is_not_protected_proves_nothing(
    top: Path, web: RedirectingServer
) -> None:
    web.documents["/SHA256SUMS"] = f"{SHA256}  debian.raw\n".encode()
    image = f"{web.https}/debian.raw"
    listed = f"{web.https}/to/{web.http}/SHA256SUMS"
    with pytest.raises(errors.OpPrereqError, match="SHA256SUMS: it leads to http://|leads to http"):
        fetch(top, image, fetching.Proof(checksum_file=listed))
    with pytest.raises(errors.OpPrereqError, match="at an http address needs --signature"):
        fetch(top, image, fetching.Proof(checksum_file=f"{web.http}/SHA256SUMS"))
    assert files(top) == []
    proof = fetching.Proof(checksum_file=f"{web.https}/SHA256SUMS")
    assert fetch(top, image, proof).verified == "checksum"


def test_capital_letters_protect_no_address(top: Path, web: RedirectingServer) -> None:
    with pytest.raises(errors.OpPrereqError, match="needs --checksum or --signature"):
        fetch(top, f"HTTP{web.http.removeprefix('http')}/debian.raw")


def test_passwords_of_addresses_are_not_kept(top: Path, source: Path) -> None:
    with pytest.raises(errors.OpPrereqError) as caught:
        fetch(top, "https://me:secret@127.0.0.1:1/x")
    assert "secret" not in str(caught.value) and "https://127.0.0.1:1/x" in str(caught.value)


def test_other_formats_are_refused(top: Path, source: Path) -> None:
    def info(kind: str, size: int, **more: str) -> images.Runner:
        text = json.dumps({"format": kind, "virtual-size": size, **more})
        return lambda argv, **options: process.Completed(tuple(argv), 0, text, "", None)

    for run, problem in (
        (info("vmdk", 1), "qemu-img convert -f vmdk"),
        (info("qcow2", 1, **{"backing-filename": "/etc/shadow"}), "is based on another file"),
        (info("raw", 0), "is empty"),
    ):
        with pytest.raises(errors.OpPrereqError, match=problem):
            fetch(top, str(source), run=run)
    assert files(top) == []


def test_a_node_without_qemu_img(top: Path, source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def cannot(argv: Any, **_: Any) -> process.Completed:
        raise errors.CommandError(argv, None, reason="cannot be started: No such file or directory")

    monkeypatch.setenv("PATH", str(top))
    with pytest.raises(errors.OpPrereqError, match=f"{source} .*in the package qemu-utils$"):
        fetch(top, str(source), run=cannot)
    assert files(top) == []


def test_no_password_is_shown(top: Path) -> None:
    with pytest.raises(errors.OpPrereqError, match="http address needs --checksum") as caught:
        fetch(top, "http://me:secret@192.0.2.1/debian.raw")
    assert "secret" not in str(caught.value)
