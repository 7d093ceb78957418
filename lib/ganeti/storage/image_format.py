"""Recognise disk images which are not raw.

Disks of guests are raw: their content is what the guest wrote, and every command line of QEMU says
so. If QEMU had to find out the format, a guest could write the header of another format, which
names any file of the node as its backing file. For the same reason no file is converted here
because it looks like another format. A file which a user gives as a raw image, and which is none,
is refused.

Source: the descriptions of the formats in QEMU (``docs/interop``) and of their authors.
"""

from __future__ import annotations

#: Name of a format, as qemu-img(1) has it; offset and bytes by which it begins.
_MARKS = (
    ("qcow", 0, b"QFI\xfb\0\0\0\1"),
    ("qcow2", 0, b"QFI\xfb"),
    ("qed", 0, b"QED\0"),
    ("vmdk", 0, b"KDMV"),
    ("vmdk", 0, b"COWD"),
    ("vmdk", 0, b"# Disk DescriptorFile"),
    ("vhdx", 0, b"vhdxfile"),
    ("vpc", 0, b"conectix"),
    ("parallels", 0, b"WithoutFreeSpace"),
    ("parallels", 0, b"WithouFreSpacExt"),
    ("vdi", 64, b"\x7f\x10\xda\xbe"),
)
_HEAD_BYTES = max(offset + len(mark) for _name, offset, mark in _MARKS)


def recognised(head: bytes) -> str | None:
    """Return the format of an image; None for a raw image.

    :param head: the first bytes of the image.
    """
    for name, offset, mark in _MARKS:
        if head[offset : offset + len(mark)] == mark:
            return name
    return None


def not_raw(path: str, shown: str = "") -> str | None:
    """Return what is wrong with a file which should be a raw image; None when it is one.

    :param shown: how to call it, instead of the path.
    :raises OSError: the file cannot be read.
    """
    with open(path, "rb") as stream:
        found = recognised(stream.read(_HEAD_BYTES))
    if found is None:
        return None
    return (
        f"{shown or path} is an image of format {found}, but must be raw. Convert it with 'qemu-img"
        f" convert -f {found} -O raw IMAGE NEW_IMAGE'."
    )
