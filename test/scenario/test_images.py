"""Images for instances: fetched, interrupted, shared, damaged, repaired, installed."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import http.server
import os
import shutil
import signal
import ssl
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from harness import Cluster, wait_until

NAME = "web1.example.com"
pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(
        any(
            shutil.which(program) is None
            for program in ("qemu-img", "mkfs.ext4", "sfdisk", "mtype")
        ),
        reason="qemu-utils, e2fsprogs, fdisk or mtools is not installed",
    ),
]


class Handler(http.server.SimpleHTTPRequestHandler):
    """Serves a directory; ``/endless`` stops in the middle until the test ends."""

    go_on = threading.Event()

    def do_GET(self) -> None:
        if self.path != "/endless":
            super().do_GET()
            return
        self.send_response(200)
        self.send_header("Content-Length", str(64 << 20))
        self.end_headers()
        self.wfile.write(b"x" * (4 << 20))
        self.wfile.flush()
        self.go_on.wait()

    def log_message(self, *args: Any) -> None:
        pass


@pytest.fixture(scope="module")
def web(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, str, Path]]:
    """A directory, its HTTPS address, and the certificate of the server."""
    place = tmp_path_factory.mktemp("web")
    key, certificate = place / "key.pem", place / "cert.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=localhost",
         "-addext", "subjectAltName=DNS:localhost", "-keyout", key, "-out", certificate],
        check=True, capture_output=True,
    )  # fmt: skip
    served = place / "served"
    served.mkdir()
    server = http.server.ThreadingHTTPServer(
        ("127.0.0.1", 0), functools.partial(Handler, directory=str(served))
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield served, f"https://localhost:{server.server_address[1]}", certificate
    Handler.go_on.set()
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture(scope="module")
def debian(web: tuple[Path, str, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A qcow2 image as distributions have it: a GUID table, and ext4 in the last partition."""
    place = tmp_path_factory.mktemp("image")
    raw, inside, found = place / "raw", place / "fs", web[0] / "debian-12.qcow2"
    (place / "tree/etc").mkdir(parents=True)
    (place / "tree/etc/os-release").write_text("ID=debian\n")
    for path, mib in ((raw, 16), (inside, 12)):
        with open(path, "wb") as stream:
            stream.truncate(mib << 20)
    subprocess.run(
        ["mkfs.ext4", "-q", "-b", "1024", "-d", place / "tree", inside],
        check=True,
        capture_output=True,
    )
    subprocess.run(
        ["sfdisk", "-q", raw], text=True, check=True,
        input=f"label: gpt\nstart=2048, size=2048, type=uefi\nstart=4096, size={12 << 11}\n",
    )  # fmt: skip
    with open(raw, "r+b") as stream:
        stream.seek(2 << 20)
        stream.write(inside.read_bytes())
    subprocess.run(["qemu-img", "convert", "-O", "qcow2", raw, found], check=True)
    return found


@pytest.fixture(scope="module")
def nodes(cluster: Cluster) -> Cluster:
    """A virtual cluster as it is made: its nodes have the OS definition for images."""
    return cluster


def files(cluster: Cluster, node: str) -> list[str]:
    """Names of the files of a node's catalogue."""
    with contextlib.suppress(FileNotFoundError):
        return sorted(
            name for name in os.listdir(cluster.path(node, "srv/ganeti/images")) if name != ".lock"
        )
    return []


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def test_image_from_the_first_fetch_to_the_guest(
    nodes: Cluster, web: tuple[Path, str, Path], debian: Path, tmp_path: Path
) -> None:
    cluster = nodes
    _, address, certificate = web
    master, *others = cluster.node_names
    url, digest = f"{address}/debian-12.qcow2", sha256(debian)
    trust = ("env", f"SSL_CERT_FILE={certificate}")
    fetch = ("gnt-os", "images", "fetch")

    # Everything that is not the wanted image is refused, and leaves nothing.
    cluster.run(*fetch, "debian-12", url).failed("cannot fetch", "certificate verify failed")
    cluster.run(*trust, *fetch, f"--checksum={'0' * 64}", "debian-12", url).failed(
        f"has the sha256 {digest}, wanted 0000"
    )
    cluster.run(*trust, *fetch, "debian-12", f"{address}/missing").failed("404")
    half = cluster.start(*trust, *fetch, "debian-12", f"{address}/endless")

    def arriving() -> bool:
        top = cluster.path(master, "srv/ganeti/images")
        parts = [path for path in top.glob(".new-*.part") if path.stat().st_size >= 1 << 20]
        return bool(parts)

    wait_until(arriving, "the image arrives")
    cluster.run(*trust, *fetch, "debian-12", url).failed("another 'gnt-os images'")
    os.killpg(half.pid, signal.SIGKILL)
    half.communicate()
    assert cluster.rows("gnt-os", "images") == []
    for node in others:
        assert files(cluster, node) == []

    cluster.run(*trust, *fetch, f"--checksum=sha256:{digest}", "debian-12", url).ok()
    wanted = sorted([f"{digest}.qcow2", "debian-12.json"])
    for node in cluster.node_names:
        assert files(cluster, node) == wanted
    (row,) = cluster.rows("gnt-os", "images")
    assert row[:2] == ["debian-12", "qcow2"] and row[4:] == ["checksum", url]

    # Nothing but the name is needed.
    key, data = tmp_path / "id.pub", tmp_path / "user-data"
    key.write_text("ssh-ed25519 AAAA me@desk\n")
    data.write_text("#cloud-config\npackages: [nginx]\n")
    # The first template of a virtual cluster is diskless, with which an image does not work.
    template = "file"
    cluster.run("gnt-instance", "add", "--image", "debain-12", NAME).failed(
        "Did you mean 'debian-12'?"
    )
    cluster.run("gnt-instance", "add", "--image", "debian-12", NAME).ok()
    (first,) = cluster.rows("gnt-instance", "list", "-o", "os,disk_template,disk.count,status")
    assert first == ["image", template, "2", "running"]
    cluster.run("gnt-instance", "remove", "--force", NAME).ok()

    # With data for cloud-init, on the node whose copy is damaged.
    broken = cluster.path(others[0], f"srv/ganeti/images/{digest}.qcow2")
    broken.write_bytes(b"damaged")
    cluster.run("gnt-os", "images", "check").failed(
        f"{master}: debian-12 ok", f"{others[0]}: debian-12 damaged", "gnt-os images share"
    )
    add = (
        "gnt-instance", "add", "--image", "debian-12", "-n", others[0], "-s", "64M",
        "-O", "grow=filesystem", "--metadata", f"ssh-key={key},user-data={data}", NAME,
    )  # fmt: skip
    cluster.run(*add).failed(
        "image debian-12 is damaged on this node", "gnt-os images share debian-12"
    )
    cluster.run("gnt-os", "images", "share", "debian-12").ok()
    cluster.run("gnt-os", "images", "check").ok()
    cluster.run(*add).ok()
    cluster.run("gnt-instance", "shutdown", NAME).ok()
    # The keys and the user data are kept for another installation.
    cluster.run("gnt-instance", "reinstall", "--force", NAME).ok()

    disk, seed = sorted(
        cluster.path(others[0], "srv/ganeti/file-storage").glob(f"{NAME}/*"),
        key=lambda path: -path.stat().st_size,
    )
    assert disk.stat().st_size == 64 << 20
    # The last partition and its file system have grown, and the content is that of the image.
    inside = f"{disk}?offset={2 << 20}"
    said = subprocess.run(["e2fsck", "-fn", inside], capture_output=True, text=True, check=True)
    blocks = int(said.stdout.split("/")[-1].split()[0])
    # resize2fs leaves a last group out that is too small for its own tables.
    assert 53 << 10 < blocks <= 61 << 10
    shown = subprocess.run(
        ["debugfs", "-R", "cat /etc/os-release", inside], capture_output=True, text=True, check=True
    )
    assert shown.stdout == "ID=debian\n"

    def seeded(name: str) -> str:
        return subprocess.run(
            ["mtype", "-i", seed, f"::{name}"], capture_output=True, text=True, check=True
        ).stdout

    assert "packages: [nginx]" in seeded("user-data")
    assert "ssh-ed25519 AAAA me@desk" in seeded("meta-data")
    assert NAME in seeded("meta-data")
    assert '"dhcp4": true' in seeded("network-config")
    cluster.run("gnt-instance", "remove", "--force", NAME).ok()


def test_raw_image_of_a_file_replaces_and_goes(nodes: Cluster, tmp_path: Path) -> None:
    cluster = nodes
    source = tmp_path / "small.raw"
    source.write_bytes(b"first".ljust(1 << 20, b"\0"))
    fetch = ("gnt-os", "images", "fetch", "small")
    assert "nothing proved" in cluster.run(*fetch, source.as_uri()).ok().text
    source.write_bytes(b"second".ljust(1 << 20, b"\0"))
    # A node which is away gets the new one later, and loses the old one.
    away = cluster.node_names[2]
    cluster.run("gnt-node", "modify", "-O", "yes", away).ok()
    before = files(cluster, away)
    assert f"skipping offline node(s): {away}" in cluster.run(*fetch, str(source)).ok().text
    assert files(cluster, away) == before
    cluster.run("gnt-node", "modify", "-O", "no", away).ok()
    cluster.run("gnt-os", "images", "check", "small").failed(f"{away}: small missing")
    cluster.run("gnt-os", "images", "share").ok()
    for node in cluster.node_names:
        assert f"{sha256(source)}.raw" in files(cluster, node)
    assert files(cluster, away) == files(cluster, cluster.master)
    cluster.run("gnt-os", "images", "remove", "small").ok()
    for node in cluster.node_names:
        assert not [name for name in files(cluster, node) if name.endswith(".raw")]
