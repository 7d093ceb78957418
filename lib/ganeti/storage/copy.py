"""Commands which wipe a block device, write an image to it, or fetch an image.

Pure functions; sizes in MiB. Source: dd(1), curl(1), prlimit(1).
"""

from __future__ import annotations

import re
from typing import Final

_BLOCK = "1048576"


def wipe_argv(path: str, offset_mib: int, size_bytes: int, *, is_block: bool) -> list[str]:
    """Overwrite a part of a device with zeros.

    :param size_bytes: how much; with direct access a multiple of 512.
    :param is_block: the device is a block device, and not a file.
    """
    return [
        "dd",
        "if=/dev/zero",
        f"seek={offset_mib}",
        f"bs={_BLOCK}",
        *_flags(is_block),
        f"of={path}",
        "iflag=count_bytes",
        f"count={size_bytes}",
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


# The protocols which the address of an image may begin with, and those to which it may lead then:
# none that protects the transfer less.
_REDIRECTIONS: Final = {"https": "https", "http": "http,https", "ftp": "ftp"}


def fetch_argv(address: str, target: str, max_bytes: int) -> list[str]:
    """Fetch an image into a file; its URL is read from standard input (:func:`fetch_input`).

    :param address: the URL, whose protocol decides which redirections are followed; it is not
        part of the command line.
    :param max_bytes: a larger file is an error. Some versions of curl look only at the size which
        the server announces, so the kernel holds the limit, too.
    """
    allowed = f"={_REDIRECTIONS[address.partition('://')[0].lower()]}"
    fetch = [
        "curl",
        "--fail",
        "--silent",  # glossary: allow
        "--show-error",
        # Brackets and braces in a URL do not form a pattern for many URLs.
        "--globoff",
        "--max-filesize",
        str(max_bytes),
        "--location",
        "--proto",
        allowed,
        "--proto-redir",
        allowed,
        "--output",
        target,
        "--config",
        "-",
    ]
    return ["prlimit", f"--fsize={max_bytes}", *fetch]


def fetch_input(address: str) -> str:
    """Return the standard input for :func:`fetch_argv`.

    A URL may contain a password, and other users can see command lines.
    """
    quoted = address.replace("\\", r"\\").replace('"', r"\"")
    return f'url = "{quoted}"\n'


def shown_address(address: str) -> str:
    """Return a URL for messages: without user, password and query, which may be secret."""
    return re.sub(r"(?<=://)[^/?#]*@|[?#].*", "", address)
