"""Content of block devices: commands that wipe it, or write an image.

Pure functions; sizes in MiB.
"""

from __future__ import annotations

_BLOCK = "1048576"


def wipe_argv(path: str, offset_mib: int, size_mib: int, *, is_block: bool) -> list[str]:
    """Overwrite a part of a device with zeros."""
    return [
        "dd",
        "if=/dev/zero",
        f"seek={offset_mib}",
        f"bs={_BLOCK}",
        *_how(is_block),
        f"of={path}",
        f"count={size_mib}",
    ]


def image_argv(image: str, path: str, size_mib: int, *, is_block: bool) -> list[str]:
    """Write an image to a device, at most so much of it."""
    return [
        "dd",
        f"if={image}",
        "seek=0",
        f"bs={_BLOCK}",
        *_how(is_block),
        f"of={path}",
        f"count={size_mib}",
    ]


def _how(is_block: bool) -> list[str]:
    # A file would be cut off behind what is written, and not all file systems know direct access.
    return ["oflag=direct"] if is_block else ["conv=notrunc,fsync"]


def fetch_argv(address: str, target: str) -> list[str]:
    """Load an image from the network into a file."""
    return [
        "curl",
        "--fail",
        "--silent",
        "--show-error",
        "--location",
        "--proto",
        "=http,https,ftp",
        "--output",
        target,
        address,
    ]
