"""Reads a description of any of the kinds which this package knows."""

from __future__ import annotations

import os
from collections.abc import Callable

from ganeti import errors
from ganeti.foreign import libvirt, ova, ovf, proxmox
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
                path = ova.extract(path, directory)
            ova.verify(path)
        if os.path.getsize(path) > _MOST_BYTES:
            raise errors.OpPrereqError(
                f"{path} is too large for a description of kind {kind}", errors.ECODE_INVAL
            )
        with open(path, encoding="utf-8") as stream:
            text = stream.read()
        return _PARSERS[kind](text), path
    except OSError as err:
        raise errors.OpPrereqError(
            f"cannot read {path}: {err.strerror}", errors.ECODE_ENVIRON
        ) from err
    except (errors.ParseError, UnicodeDecodeError) as err:
        raise errors.OpPrereqError(
            f"{path} is not a description of kind {kind}: {err}", errors.ECODE_INVAL
        ) from err
