"""Commands which wipe a block device, write an image to it, or fetch an image.

Pure functions; sizes in MiB. Source: dd(1), curl(1).
"""

from __future__ import annotations

_BLOCK = "1048576"


def wipe_argv(path: str, offset_mib: int, size_mib: int, *, is_block: bool) -> list[str]:
    """Overwrite a part of a device with zeros.

    :param is_block: the device is a block device, and not a file.
    """
    return [
        "dd",
        "if=/dev/zero",
        f"seek={offset_mib}",
        f"bs={_BLOCK}",
        *_flags(is_block),
        f"of={path}",
        f"count={size_mib}",
    ]


def image_argv(image: str, path: str, size_mib: int, *, is_block: bool) -> list[str]:
    """Write an image to a device, at most ``size_mib`` of it.

    :param is_block: the device is a block device, and not a file.
    """
    return [
        "dd",
        f"if={image}",
        "seek=0",
        f"bs={_BLOCK}",
        *_flags(is_block),
        f"of={path}",
        f"count={size_mib}",
    ]


def _flags(is_block: bool) -> list[str]:
    # dd would cut a file off after the last block, and not all file systems have direct access.
    return ["oflag=direct"] if is_block else ["conv=notrunc,fsync"]


def fetch_argv(address: str, target: str) -> list[str]:
    """Fetch an image from a URL into a file."""
    return [
        "curl",
        "--fail",
        "--silent",  # glossary: allow
        "--show-error",
        "--location",
        "--proto",
        "=http,https,ftp",
        "--output",
        target,
        address,
    ]
