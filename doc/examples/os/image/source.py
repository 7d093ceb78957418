"""Fetch and check the image, and write it to the disk."""

import fcntl
import hashlib
import json
import os
import subprocess
import urllib.error
import urllib.request
from pathlib import Path

from settings import ScriptError, Settings

_CHUNK = 1 << 20
_NO_DATA_S = 60
_PROGRAM_S = 24 * 3600
_QCOW2_MAGIC = b"QFI\xfb"


def fetch(wanted: Settings) -> Path:
    """Return the checked image as a file of this node; a fetched image is kept for the next time.

    :raises ScriptError: the image does not exist, cannot be fetched, or has another checksum.
    """
    if wanted.in_catalogue:
        return _of_catalogue(wanted)
    if not wanted.remote:
        path = Path(wanted.image)
        if not path.exists():
            raise ScriptError(f"there is no image {path} on this node")
        _check(path, wanted.checksum)
        return path
    cache = Path(wanted.cache_dir)
    cache.mkdir(mode=0o755, parents=True, exist_ok=True)
    # Without a checksum the image at the same address may have changed, so it is fetched again.
    name = hashlib.sha256((wanted.checksum or wanted.image).encode()).hexdigest()
    path = cache / name
    # Many instances at once need one download only.
    with open(cache / f".{name}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if wanted.checksum and path.exists():
            try:
                _check(path, wanted.checksum)
            except ScriptError as err:
                print(f"fetching again: {err}")
            else:
                print(f"{wanted.image} is in the cache")
                return path
        part = cache / f".{name}.part"
        try:
            _download(wanted.image, part)
            _check(part, wanted.checksum)
            os.replace(part, path)
        finally:
            part.unlink(missing_ok=True)
    return path


def _of_catalogue(wanted: Settings) -> Path:
    """Return an image of the catalogue on this node, which was sent by the master.

    :raises ScriptError: this node does not have it, or has another content.
    """
    name, top = wanted.image, Path(wanted.images_dir)
    repair = f"on the master, run: gnt-os images share {name}"
    try:
        entry = json.loads((top / f"{name}.json").read_text())
        checksum, kind = str(entry["sha256"]), str(entry["format"])
    except FileNotFoundError as err:
        raise ScriptError(f"this node does not have the image {name}; {repair}") from err
    except (OSError, ValueError, KeyError, TypeError) as err:
        raise ScriptError(f"the entry of image {name} on this node is damaged; {repair}") from err
    path = top / f"{checksum}.{kind}"
    if kind not in ("raw", "qcow2") or path.parent != top:
        raise ScriptError(f"the entry of image {name} on this node is damaged; {repair}")
    if not path.exists():
        raise ScriptError(f"this node does not have the image {name}; {repair}")
    try:
        _check(path, f"sha256:{checksum}")
    except ScriptError as err:
        raise ScriptError(f"image {name} is damaged on this node: {err}; {repair}") from err
    _check(path, wanted.checksum)
    return path


def _download(address: str, target: Path) -> None:
    try:
        with (
            urllib.request.urlopen(address, timeout=_NO_DATA_S) as answer,
            open(target, "wb") as out,
        ):
            announced = answer.headers.get("Content-Length")
            done = 0
            while data := answer.read(_CHUNK):
                out.write(data)
                done += len(data)
            out.flush()
            os.fsync(out.fileno())
    except (urllib.error.URLError, OSError, ValueError) as err:
        raise ScriptError(f"cannot fetch {address}: {getattr(err, 'reason', err)}") from err
    if announced and announced.isdigit() and int(announced) != done:
        raise ScriptError(f"cannot fetch {address}: it ended after {done} of {announced} bytes")
    print(f"fetched {done >> 20} MiB from {address}")


def _check(path: Path, checksum: str) -> None:
    if not checksum:
        return
    kind, _, wanted = checksum.partition(":")
    digest = hashlib.new(kind)
    with open(path, "rb") as source:
        while data := source.read(_CHUNK):
            digest.update(data)
    if digest.hexdigest() != wanted:
        raise ScriptError(f"{path} has the {kind} {digest.hexdigest()}, wanted {wanted}")


def format_of(path: Path, wanted: Settings) -> str:
    """Return the format of an image, ``raw`` or ``qcow2``."""
    if wanted.format:
        return wanted.format
    if wanted.in_catalogue:
        return path.suffix[1:]
    with open(path, "rb") as source:
        return "qcow2" if source.read(4) == _QCOW2_MAGIC else "raw"


def write(path: Path, kind: str, disk: str, disk_size: int) -> None:
    """Write an image to a disk.

    :param disk_size: size of the disk in bytes.
    :raises ScriptError: the image does not fit, or refers to other files.
    """
    # The image is untrusted. "qemu-img info" reads only its size and its references.
    info = json.loads(_run("qemu-img", "info", "-f", kind, "--output=json", str(path)))
    if "backing-filename" in info or "data-file" in json.dumps(info.get("format-specific", {})):
        raise ScriptError(f"{path} refers to another file, which could be any file of the node")
    if info["virtual-size"] > disk_size:
        raise ScriptError(
            f"the image needs {-(-info['virtual-size'] // (1 << 20))} MiB, the disk "
            f"has {disk_size >> 20}"
        )
    # -n: the disk exists already. An image's holes must become zeros on a used disk.
    _run("qemu-img", "convert", "-n", "-f", kind, "-O", "raw", "-S", "0", str(path), disk)
    print(f"wrote {path} ({kind}) to {disk}")


def _run(*argv: str) -> str:
    try:
        done = subprocess.run(
            argv,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_PROGRAM_S,
            check=False,
        )
    except FileNotFoundError as err:
        raise ScriptError(
            f"{argv[0]} is missing. As root, run: apt-get install qemu-utils"
        ) from err
    if done.returncode != 0:
        raise ScriptError(f"{' '.join(argv[:2])} failed: {(done.stderr or done.stdout).strip()}")
    return done.stdout
