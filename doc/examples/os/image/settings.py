"""Read and check the OS parameters, and end the scripts of this definition with one line.

All scripts of the definition use this module.
"""

import os
import re
import subprocess
import sys
import urllib.parse
from collections.abc import Callable, Mapping
from typing import NamedTuple

CACHE_DIR = "/var/cache/ganeti-image"
SEED_DISK = "cidata"
# Where the node daemon says nothing, as that of Ganeti.
IMAGES_DIR = "/srv/ganeti/images"
GROW = ("yes", "no", "filesystem")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,99}", re.ASCII)
_DIGEST_LENGTHS = {"sha256": 64, "sha512": 128}


class ScriptError(Exception):
    """Ends the script; the text is for the user."""


class Settings(NamedTuple):
    """Values of the OS parameters."""

    image: str
    checksum: str  # "<kind>:<digits>", or empty
    format: str  # raw, qcow2 or empty
    grow: str  # one of GROW
    user_data: str  # a path or the text
    ssh_keys: tuple[str, ...]
    cache_dir: str
    images_dir: str

    @property
    def remote(self) -> bool:
        """Whether the image is fetched."""
        return "://" in self.image

    @property
    def in_catalogue(self) -> bool:
        """Whether the image is one of the catalogue (``gnt-os images``)."""
        return not self.remote and not self.image.startswith("/")


def guard(main: Callable[[], None]) -> None:
    """Run a script; an error becomes one line and exit code 1."""
    try:
        main()
    except (ScriptError, OSError, subprocess.SubprocessError) as err:
        print(f"image: error: {err}", file=sys.stderr)
        sys.exit(1)


def required(name: str) -> str:
    """Return a variable of the environment.

    :raises ScriptError: the variable is not set or empty.
    """
    value = os.environ.get(name, "")
    if not value:
        raise ScriptError(f"{name} is not set; is this run by the node daemon?")
    return value


def read(env: Mapping[str, str] | None = None) -> Settings:
    """Read the parameters from the environment.

    :raises ScriptError: a parameter is wrong; the text names it.
    """

    def get(name: str, default: str = "") -> str:
        return (os.environ if env is None else env).get(f"OSP_{name}", default).strip()

    image = get("IMAGE")
    if not image:
        raise ScriptError(
            "parameter image is not set. Give a name of 'gnt-os images', a path on the node, or "
            "an address."
        )
    scheme = urllib.parse.urlsplit(image).scheme if "://" in image else ""
    if scheme not in ("", "http", "https"):
        raise ScriptError(
            f"parameter image: {scheme} addresses cannot be fetched, only http and https"
        )
    if not scheme and not image.startswith("/") and not _NAME.fullmatch(image):
        raise ScriptError(
            f"parameter image: '{image}' is neither the name of an image nor an absolute path nor "
            "an address"
        )
    checksum = get("CHECKSUM").lower()
    if checksum:
        kind, _, digits = checksum.partition(":")
        if kind not in _DIGEST_LENGTHS or not re.fullmatch(
            rf"[0-9a-f]{{{_DIGEST_LENGTHS[kind]}}}", digits
        ):
            raise ScriptError(
                f"parameter checksum: '{checksum}' is neither sha256:... nor sha512:..."
            )
    elif scheme == "http":
        raise ScriptError(
            "parameter checksum: needed for an http address, because the transfer of the image "
            "is not protected"
        )
    kind = get("FORMAT")
    if kind not in ("", "raw", "qcow2"):
        raise ScriptError(f"parameter format: '{kind}' is neither raw nor qcow2")
    grow = get("GROW", "yes")
    if grow not in GROW:
        raise ScriptError(f"parameter grow: '{grow}' is neither {' nor '.join(GROW)}")
    user_data = get("USER_DATA")
    if user_data and not user_data.startswith(("/", "#", "Content-Type:", "MIME-Version:")):
        raise ScriptError(
            f"parameter user_data: '{user_data[:60]}' is neither an absolute path nor user data, "
            "which begin with a line such as #cloud-config"
        )
    lines = [line.strip() for line in get("SSH_KEY").splitlines()]
    keys = tuple(line for line in lines if line)
    if "PRIVATE KEY" in get("SSH_KEY"):
        raise ScriptError("parameter ssh_key: has a private key; give the public one")
    cache_dir = get("CACHE_DIR", CACHE_DIR)
    if not cache_dir.startswith("/"):
        raise ScriptError(f"parameter cache_dir: '{cache_dir}' is not an absolute path")
    images_dir = (os.environ if env is None else env).get("IMAGES_DIR") or IMAGES_DIR
    return Settings(image, checksum, kind, grow, user_data, keys, cache_dir, images_dir)
