"""The system of the machines: built once, kept until its recipe changes; and the project on it.

The cache is ``build/lab`` of the project unless ``LAB_CACHE`` names another directory. Two
runs at a time may want the image; the second one waits for the first.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

from ganeti import RELEASE

TOP = Path(__file__).resolve().parents[2]
RECIPE = Path(__file__).resolve().parent / "recipe"
#: What the recipe needs, as Debian packages.
PACKAGES = (
    "qemu-system-x86",
    "qemu-utils",
    "debootstrap",
    "cpio",
    "e2fsprogs",
    "iproute2",
    "openssh-client",
    "procps",
)
_PROJECT_MIB = 96
#: Flavours of the image.
PLAIN, XEN, LXC = "plain", "xen", "lxc"


class CannotBuild(Exception):
    """This machine cannot build or store the image; the message has the reason."""


def cache_dir() -> Path:
    """Return the directory of the images."""
    return Path(os.environ.get("LAB_CACHE") or TOP / "build" / "lab")


def recipe_hash() -> str:
    """Return a digest of all files of the recipe."""
    digest = hashlib.sha256()
    for path in sorted(RECIPE.iterdir()):
        digest.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()[:16]


def built(flavour: str = PLAIN) -> Path:
    """The directory with base.img, vmlinuz, initrd and id; builds them when they are not there.

    :param flavour: :data:`PLAIN`; :data:`XEN` for a system which runs under Xen, whose directory
        has the hypervisor in ``xen``, too; or :data:`LXC` for one with the programs of LXC.
    :raises CannotBuild: not root, a program is missing, or a step of the recipe failed.
    """
    cache = cache_dir()
    prefix = "image-" if flavour == PLAIN else f"image-{flavour}-"
    target = cache / f"{prefix}{recipe_hash()}"
    if (target / "complete").exists():
        return target
    _make_cache(cache)
    with open(cache / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if (target / "complete").exists():
            return target
        _check_tools()
        for old in cache.glob("image-*"):
            if not old.name.endswith(recipe_hash()):
                shutil.rmtree(old)
        shutil.rmtree(target, ignore_errors=True)
        print(f"building the image of the laboratory in {target}", file=sys.stderr, flush=True)
        try:
            done = subprocess.run([RECIPE / "build-image", target, flavour], stdout=sys.stderr)
        except BaseException:
            shutil.rmtree(target, ignore_errors=True)
            raise
        if done.returncode:
            raise CannotBuild(f"the recipe failed; its logs are in {target}")
        (target / "complete").touch()
        _give_away(cache)
    return target


def _make_cache(cache: Path) -> None:
    """Make a directory whose new parts have the owner of the directory that exists."""
    new = [path for path in (cache, *cache.parents) if not path.exists()]
    cache.mkdir(parents=True, exist_ok=True)
    for path in reversed(new):
        _give(path, path.parent)


def _give_away(cache: Path) -> None:
    """Let the owner of the cache use what root has built there, its key included."""
    for path in cache.rglob("*"):
        _give(path, cache)


def _give(path: Path, around: Path) -> None:
    owner = around.stat()
    if os.geteuid() == 0:
        os.chown(path, owner.st_uid, owner.st_gid)


def _check_tools() -> None:
    missing = [
        name
        for name in ("debootstrap", "cpio", "mkfs.ext4", "dpkg-deb", "apt-get")
        if shutil.which(name) is None
    ]
    if missing:
        raise CannotBuild(
            f"building the image needs {', '.join(missing)} (packages: {' '.join(PACKAGES)})"
        )
    if os.geteuid() != 0:
        raise CannotBuild(
            "building the image needs root, running does not; once: sudo devel/lab image"
        )


def install_project(image: Path) -> None:
    """Write a file system with the project, installed as on a real machine.

    :param image: the file to write.
    """
    tree = image.with_suffix(".tree")
    shutil.rmtree(tree, ignore_errors=True)
    done = subprocess.run(
        [
            TOP / "devel/install-ganeti",
            "--prefix",
            "/usr",
            "--destdir",
            tree,
            "--python",
            sys.executable,
        ],
        capture_output=True,
        text=True,
    )
    if done.returncode:
        raise RuntimeError(f"the project cannot be installed: {done.stdout}{done.stderr}")
    python = sys.executable
    # The programs of the version are there; usr/sbin and usr/lib/ganeti have links to them.
    version = f"usr/lib/ganeti/{RELEASE.rpartition('.')[0]}"
    for folder in ("usr/lib/ganeti", version, f"{version}/sbin", f"{version}/tools",
                   f"{version}/iallocators"):  # fmt: skip
        for path in (tree / folder).iterdir():
            if path.is_file() and not path.is_symlink():
                # The machines use the Python of Debian.
                path.write_text(path.read_text().replace(python, "/usr/bin/python3"))
    image.unlink(missing_ok=True)
    subprocess.run(
        ["mkfs.ext4", "-q", "-m", "0", "-O", "^has_journal", "-d", tree, image, f"{_PROJECT_MIB}M"],
        check=True,
    )
    shutil.rmtree(tree)


if __name__ == "__main__":
    try:
        print(built(*sys.argv[1:2]))
    except CannotBuild as err:
        sys.exit(f"no image for the laboratory: {err}")
