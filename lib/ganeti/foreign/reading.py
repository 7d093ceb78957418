"""Reads a description of any of the kinds which this package knows."""

from __future__ import annotations

import contextlib
import os
import urllib.parse
from collections.abc import Callable

from ganeti import errors
from ganeti.foreign import images, libvirt, ova, ovf, proxmox
from ganeti.foreign.machine import Machine

LIBVIRT, PROXMOX, OVF = "libvirt", "proxmox", "ovf"
KINDS = (LIBVIRT, OVF, PROXMOX)
#: A description has some kilobytes; more is another file by mistake.
_MOST_BYTES = 4 << 20
_PARSERS: dict[str, Callable[[str], Machine]] = {
    LIBVIRT: libvirt.parse_libvirt,
    PROXMOX: proxmox.parse_proxmox,
    OVF: ovf.parse_ovf,
}


def read(kind: str, path: str, directory: str) -> tuple[Machine, str]:
    """Read the description in a file.

    :param directory: where an OVA archive is unpacked.
    :returns: the machine, and the path of its description, beside which the images are.
    :raises OpPrereqError: the file cannot be read, or is not such a description.
    """
    try:
        if kind == OVF:
            if not ova.is_description(path):
                path = ova.extract(path, directory, _largest_files)
        if os.path.getsize(path) > _MOST_BYTES:
            raise errors.OpPrereqError(
                f"{path} is too large for a description of kind {kind}", errors.ECODE_INVAL
            )
        with open(path, encoding="utf-8") as stream:
            text = stream.read()
        found = _PARSERS[kind](text)
        if kind == OVF:
            # To read a sparse file for its checksum may take hours.
            _require_sizes(found, path)
            ova.verify(path)
        return found, path
    except OSError as err:
        raise errors.OpPrereqError(
            f"cannot read {path}: {err.strerror}", errors.ECODE_ENVIRON
        ) from err
    except (errors.ParseError, UnicodeDecodeError) as err:
        raise errors.OpPrereqError(
            f"{path} is not a description of kind {kind}: {err}", errors.ECODE_INVAL
        ) from err


def _largest_files(text: str) -> dict[str, int]:
    """Return how large the images of an appliance may be, by their names.

    :param text: its description; when that is wrong, it is reported later.
    """
    try:
        disks = ovf.parse_ovf(text).disks
    except errors.GenericError:
        return {}
    return {
        os.path.basename(name): images.most_bytes(disk.size_mib)
        for disk in disks
        if disk.size_mib
        for name in (disk.path, urllib.parse.unquote(disk.path))
    }


def _require_sizes(found: Machine, description: str) -> None:
    """Refuse an appliance with an image that is larger than its disk, of which little is written.

    :raises OpPrereqError: there is one.
    """
    for disk in found.disks:
        with contextlib.suppress(errors.OpPrereqError):
            # A missing image is reported later, and may be in another directory.
            path = images.locate(disk.path, description)
            size = os.path.getsize(path)
            if disk.size_mib and size > images.most_bytes(disk.size_mib):
                break
    else:
        return
    raise errors.OpPrereqError(
        f"image {path} has {size >> 20} MiB, but {description} says that its disk has"
        f" {disk.size_mib} MiB",
        errors.ECODE_INVAL,
    )
