"""The copy of the configuration on a master candidate.

The first time, and after every failure, the master uploads the whole file. From then on it sends
the differences between the new file and the last one: in a large cluster these are a thousandth of
the bytes, and the kernel copies the unchanged parts.

The end of the file holds its serial number and time, so length and end identify one state. When
they do not match, the node refuses the change, and the master sends the whole file.
"""

from __future__ import annotations

import os
import re

from ganeti import errors
from ganeti.backend import caller
from ganeti.backend.cluster import ssconf as ssconf_files
from ganeti.backend.registry import serves
from ganeti.platform import master_epoch, paths
from ganeti.utils import fs
from ganeti.wire import calls, json

# The configuration store writes the serial number last, so reading the end is sufficient.
_LAST_SERIAL = re.compile(rb'[,{]\s*"serial_no":\s*([0-9]{1,15})\s*\}\s*\Z')
_TAIL_BYTES = 4096


class _OtherBaseError(Exception):
    """The present file is not the one to which the differences apply."""


def serial_of_file(path: str) -> int:
    """Return the serial number of a configuration file; 0 when there is no file.

    :raises ConfigurationError: the content is not a configuration.
    """
    try:
        with open(path, "rb") as stream:
            stream.seek(0, os.SEEK_END)
            stream.seek(max(0, stream.tell() - _TAIL_BYTES))
            found = _LAST_SERIAL.search(stream.read())
            if found is not None:
                return int(found[1])
            stream.seek(0)
            content = stream.read()
    except FileNotFoundError:
        return 0
    except OSError as err:
        raise errors.ConfigurationError(f"cannot read {path}: {err.strerror}") from err
    return serial_of(content, path)


def serial_of(content: bytes, name: str = "the uploaded text") -> int:
    """Return the serial number in the text of a configuration.

    :raises ConfigurationError: the content is not a configuration.
    """
    found = _LAST_SERIAL.search(content[-_TAIL_BYTES:])
    if found is not None:
        return int(found[1])
    try:
        value = json.loads(content.decode("utf-8"))["serial_no"]
    except (errors.ParseError, UnicodeDecodeError, KeyError, TypeError) as err:
        raise errors.ConfigurationError(f"{name} is not a configuration: {err!r:.200}") from err
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise errors.ConfigurationError(f"{name} has {value!r:.80} in place of a serial number")
    return value


@serves(calls.CONFIG_READ)
def read() -> str:
    """Return the text of this node's copy.

    :raises ConfigurationError: there is none, or it cannot be read.
    """
    path = paths.current().cluster_conf_file
    try:
        return fs.read_bytes(path).decode("utf-8")
    except FileNotFoundError as err:
        raise errors.ConfigurationError(f"this node has no configuration ({path})") from err
    except (OSError, UnicodeDecodeError) as err:
        raise errors.ConfigurationError(f"cannot read {path}: {err}") from err


@serves(calls.CONFIG_REWRITE)
def rewrite(
    base_bytes: int,
    base_end: str,
    parts: list[str | list[int]],
    new_bytes: int,
    ssconf: dict[str, str] | None = None,
) -> bool:
    """Make the new file from the present one; see :data:`ganeti.wire.calls.CONFIG_REWRITE`.

    :returns: False when the present file has another length or end than the master expects; it was
        not changed.
    :raises ConfigurationError: the parts do not add up to the length of the new file, or a value is
        not allowed; the file was not changed.
    :raises StaleEpochError: the caller is no longer master; nothing was changed.
    """
    if ssconf:
        ssconf_files.write(ssconf)
    return _rewrite(base_bytes, base_end, parts, new_bytes)


def _rewrite(base_bytes: int, base_end: str, parts: list[str | list[int]], new_bytes: int) -> bool:
    made: list[tuple[int, int] | bytes] = []
    for part in parts:
        if isinstance(part, str):
            made.append(part.encode("utf-8"))
        elif len(part) == 2:
            made.append((part[0], part[1]))
        else:
            raise errors.ConfigurationError("a part of a file must be an offset and a length")
    total = sum(part[1] if isinstance(part, tuple) else len(part) for part in made)
    if total != new_bytes:
        raise errors.ConfigurationError(
            f"the parts of the configuration are {total} bytes, not {new_bytes}"
        )
    path = paths.current().cluster_conf_file
    try:
        with caller.writing(master_epoch.CONFIG):
            # This happens inside the lock; after an exception, no write is noted.
            if not _is_base(path, base_bytes, base_end.encode("utf-8")):
                raise _OtherBaseError
            fs.rewrite_file(path, made)
    except _OtherBaseError:
        return False
    except ValueError as err:
        raise errors.ConfigurationError(str(err)) from err
    return True


def _is_base(path: str, size: int, end: bytes) -> bool:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except FileNotFoundError:
        return False
    try:
        return (
            os.fstat(fd).st_size == size and os.pread(fd, len(end), max(0, size - len(end))) == end
        )
    finally:
        os.close(fd)
