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
_DIGEST_LENGTHS = {"sha256": 64, "sha512": 128}


class ScriptError(Exception):
    """Ends the script; the text is for the user."""


class Settings(NamedTuple):
    """Values of the OS parameters."""

    image: str
    checksum: str  # "<kind>:<digits>", or empty
    format: str  # raw, qcow2 or empty
    grow: bool
    user_data: str
    ssh_key: str
    cache_dir: str

    @property
    def remote(self) -> bool:
        """Whether the image is fetched."""
        return "://" in self.image


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
        raise ScriptError("parameter image is not set. Give a path on the node, or an address.")
    scheme = urllib.parse.urlsplit(image).scheme if "://" in image else ""
    if scheme not in ("", "http", "https"):
        raise ScriptError(
            f"parameter image: {scheme} addresses cannot be fetched, only http and https"
        )
    if not scheme and not image.startswith("/"):
        raise ScriptError(f"parameter image: '{image}' is neither an absolute path nor an address")
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
    if grow not in ("yes", "no"):
        raise ScriptError(f"parameter grow: '{grow}' is neither yes nor no")
    user_data, ssh_key = get("USER_DATA"), get("SSH_KEY")
    if user_data and ssh_key:
        raise ScriptError(
            "parameters user_data and ssh_key: give only one of them, user data can contain keys"
        )
    if user_data and not user_data.startswith("/"):
        raise ScriptError(f"parameter user_data: '{user_data}' is not an absolute path")
    if "\n" in ssh_key:
        raise ScriptError("parameter ssh_key: has more than one line")
    cache_dir = get("CACHE_DIR", CACHE_DIR)
    if not cache_dir.startswith("/"):
        raise ScriptError(f"parameter cache_dir: '{cache_dir}' is not an absolute path")
    return Settings(image, checksum, kind, grow == "yes", user_data, ssh_key, cache_dir)
