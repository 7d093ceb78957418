"""Short names of published disk images, such as ``debian-12``: where each is, and what proves it.

The names which this module knows are those of :data:`USUAL`. The file ``images.conf`` in the
configuration directory has the same form; an administrator adds names there, or replaces some, for
example by the addresses of a mirror. A section has the name of an image, its options are::

    source         path or address of the image
    checksum       its checksum, as the option --checksum
    checksum-file  path or address of a file of checksums, such as SHA512SUMS
    signature      path or address of the signature of that file, else of the image
    keyring        path of the keyring with the keys which may sign
    description    what the image is, for the list

``{arch}`` and ``{machine}`` stand for the architecture of this machine as Debian names it
(``amd64``) and as the kernel names it (``x86_64``). An empty ``source`` takes a name away.

Source: the pages of the distributions about their cloud images.
"""

from __future__ import annotations

import configparser
import os
import platform
from typing import NamedTuple

from ganeti import errors
from ganeti.foreign import catalogue
from ganeti.foreign.fetching import Proof
from ganeti.platform import paths
from ganeti.utils import suggest

FILE = "images.conf"
_OPTIONS = frozenset(("source", "checksum", "checksum-file", "signature", "keyring", "description"))
_DEBIAN_NAMES = {"x86_64": "amd64", "aarch64": "arm64"}

USUAL = """\
[debian-12]
description = Debian 12 (bookworm)
source = https://cloud.debian.org/images/cloud/bookworm/latest/debian-12-generic-{arch}.qcow2
checksum-file = https://cloud.debian.org/images/cloud/bookworm/latest/SHA512SUMS

[debian-13]
description = Debian 13 (trixie)
source = https://cloud.debian.org/images/cloud/trixie/latest/debian-13-generic-{arch}.qcow2
checksum-file = https://cloud.debian.org/images/cloud/trixie/latest/SHA512SUMS

[ubuntu-22.04]
description = Ubuntu 22.04 LTS (jammy)
source = https://cloud-images.ubuntu.com/jammy/current/jammy-server-cloudimg-{arch}.img
checksum-file = https://cloud-images.ubuntu.com/jammy/current/SHA256SUMS
signature = https://cloud-images.ubuntu.com/jammy/current/SHA256SUMS.gpg
keyring = /usr/share/keyrings/ubuntu-cloudimage-keyring.gpg

[ubuntu-24.04]
description = Ubuntu 24.04 LTS (noble)
source = https://cloud-images.ubuntu.com/noble/current/noble-server-cloudimg-{arch}.img
checksum-file = https://cloud-images.ubuntu.com/noble/current/SHA256SUMS
signature = https://cloud-images.ubuntu.com/noble/current/SHA256SUMS.gpg
keyring = /usr/share/keyrings/ubuntu-cloudimage-keyring.gpg

[rocky-9]
description = Rocky Linux 9
source = https://dl.rockylinux.org/pub/rocky/9/images/{machine}/Rocky-9-GenericCloud-Base.latest.{machine}.qcow2
checksum-file = https://dl.rockylinux.org/pub/rocky/9/images/{machine}/CHECKSUM

[almalinux-9]
description = AlmaLinux 9
source = https://repo.almalinux.org/almalinux/9/cloud/{machine}/images/AlmaLinux-9-GenericCloud-latest.{machine}.qcow2
checksum-file = https://repo.almalinux.org/almalinux/9/cloud/{machine}/images/CHECKSUM
"""


class Published(NamedTuple):
    """A published image.

    :ivar source: path or address, as :func:`ganeti.foreign.fetching.require_source` takes it.
    :ivar proof: what must be true of it.
    :ivar missing_keyring: the keyring of its signature, where this machine does not have it. Then
        ``proof`` is without the signature, because a checksum from an https address remains.
    """

    name: str
    description: str
    source: str
    proof: Proof
    missing_keyring: str = ""


def file_path() -> str:
    """Return the path of the administrator's file on this node."""
    return f"{paths.current().conf_dir}/{FILE}"


def read() -> dict[str, Published]:
    """Read all short names: those which are known here, and those of the administrator's file.

    :raises OpPrereqError: the file cannot be used; the message names the place.
    """
    found = _sections(USUAL, "the list of this release")
    path = file_path()
    try:
        with open(path, encoding="utf-8-sig") as stream:
            text = stream.read()
    except FileNotFoundError:
        text = ""
    except (OSError, UnicodeDecodeError) as err:
        raise errors.OpPrereqError(f"cannot read {path}: {err}", errors.ECODE_ENVIRON) from err
    found |= _sections(text, path)
    return {
        name: _published(name, options)
        for name, options in sorted(found.items())
        if options["source"]
    }


def require(name: str) -> Published:
    """Return the published image of a short name.

    :raises OpPrereqError: there is no such name, or the administrator's file cannot be used.
    """
    found = read()
    if name in found:
        return found[name]
    raise errors.OpPrereqError(
        f"'{name}' is no short name of an image.{suggest.did_you_mean(name, found)} 'gnt-os images"
        f" known' lists all, {file_path()} adds some. For another image, write 'gnt-os images fetch"
        " NAME SOURCE'.",
        errors.ECODE_NOENT,
    )


def hint(name: str) -> str:
    """Return a sentence with the command which fetches this image; empty for no short name."""
    try:
        known = name in read()
    except errors.OpPrereqError:
        return ""
    return f" Fetch it first: gnt-os images fetch {name}." if known else ""


def _sections(text: str, where: str) -> dict[str, dict[str, str]]:
    parser = configparser.ConfigParser(
        interpolation=None, default_section="\0", comment_prefixes=("#", ";")
    )
    try:
        parser.read_string(text, where)
    except configparser.Error as err:
        raise _wrong(str(err).replace("\n", " ")) from err
    found = {}
    for name in parser.sections():
        options = dict(parser[name])
        if not catalogue.NAME.fullmatch(name):
            raise _wrong(f"{where}: '{name}' cannot be the name of an image")
        unknown = sorted(options.keys() - _OPTIONS)
        if unknown:
            raise _wrong(
                f"{where}, [{name}]: there is no option '{unknown[0]}'. Known are:"
                f" {', '.join(sorted(_OPTIONS))}."
            )
        if "source" not in options:
            raise _wrong(f"{where}, [{name}]: the option source is missing")
        found[name] = options
    return found


def _wrong(text: str) -> errors.OpPrereqError:
    return errors.OpPrereqError(text, errors.ECODE_INVAL)


def _published(name: str, options: dict[str, str]) -> Published:
    machine = platform.machine()
    filled = {
        key: value.replace("{arch}", _DEBIAN_NAMES.get(machine, machine)).replace(
            "{machine}", machine
        )
        for key, value in options.items()
    }
    get = filled.get
    proof = Proof(
        get("checksum", ""), get("checksum-file", ""), get("signature", ""), get("keyring", "")
    )
    missing = ""
    if proof.keyring and proof.checksum_file and not os.path.isfile(proof.keyring):
        missing = proof.keyring
        proof = proof._replace(signature="", keyring="")
    return Published(name, get("description", ""), filled["source"], proof, missing)
