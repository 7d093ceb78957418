"""The copy of the configuration on a master candidate.

The first time, and after every failure, the master uploads the whole file. From then on it sends
the differences between the new file and the last one: in a large cluster these are a thousandth of
the bytes, and the kernel copies the unchanged parts.

The end of the file holds its serial number and time, so length and end identify one state. When
they do not match, the node refuses the change, and the master sends the whole file.

The changes of a large file are kept in a journal (:mod:`ganeti.configfile`). The node daemon folds
it into the file when no more changes arrive, and when the daemon starts or ends. It does so on the
master, too, for the journal which the master daemon writes there.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable
from typing import Any

from ganeti import errors
from ganeti.backend import caller
from ganeti.backend.cluster import ssconf as ssconf_files
from ganeti.backend.registry import serves
from ganeti.configfile import files, history_files
from ganeti.configfile.content import Change
from ganeti.configfile.journal import serial_of_end
from ganeti.platform import master_epoch, paths, users
from ganeti.utils import fs
from ganeti.wire import calls, json
from ganeti.wire.calls.cluster import OTHER_HISTORY

_log = logging.getLogger(__name__)

_TAIL_BYTES = 4096

#: Seconds between two checks whether the journal is to be folded in.
FOLD_EVERY_S = 1.0
# The journal is folded in when these seconds have passed since the last change, or since the first
# one, or above this size.
_REST_S = 2.0
_LONGEST_S = 30.0
_MOST_BYTES = 1 << 20
# After an attempt which changed nothing, for example on a full disk.
_PAUSE_S = 30.0


class _OtherBaseError(Exception):
    """The present file is not the one to which the differences apply."""


def serial_of_file(path: str) -> int:
    """Return the serial number of a configuration, with its journal; 0 when there is none.

    :raises ConfigurationError: the content is not a configuration.
    """
    try:
        with files.opened(path) as found:
            return serial_of_snapshot(found)
    except FileNotFoundError:
        return 0
    except OSError as err:
        raise cannot_read(path, err) from err


def highest_serial(path: str) -> int:
    """Return :func:`serial_of_file`, also if a journal does not belong to its file.

    Nobody can tell what the state is then; the higher number of both counts.

    :raises ConfigurationError: the content is not a configuration.
    """
    try:
        return serial_of_file(path)
    except errors.ConfigurationError as err:
        if isinstance(err.__cause__, files.OtherBaseError):
            return err.__cause__.highest
        raise


def serial_of_snapshot(found: files.Snapshot) -> int:
    """Return the serial number of a configuration.

    :raises ConfigurationError: the content is not a configuration.
    """
    # Reading the end is sufficient, unless somebody has written the file by hand.
    last = serial_of_end(found.end(_TAIL_BYTES))
    return last if last is not None else serial_of(found.read(), found.path)


def cannot_read(path: str, err: OSError) -> errors.ConfigurationError:
    """Return the error which says that a configuration or its journal cannot be read."""
    return errors.ConfigurationError(f"cannot read {err.filename or path}: {err.strerror}")


def serial_of(content: bytes, name: str = "the uploaded text") -> int:
    """Return the serial number in the text of a configuration.

    :raises ConfigurationError: the content is not a configuration.
    """
    last = serial_of_end(content[-_TAIL_BYTES:])
    if last is not None:
        return last
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
        return files.read(path).decode("utf-8")
    except FileNotFoundError as err:
        raise errors.ConfigurationError(f"this node has no configuration ({path})") from err
    except OSError as err:
        raise cannot_read(path, err) from err
    except UnicodeDecodeError as err:
        raise errors.ConfigurationError(f"cannot read {path}: {err}") from err


@serves(calls.CONFIG_REWRITE)
def rewrite(
    base_bytes: int,
    base_end: str,
    parts: list[str | list[int]],
    new_bytes: int,
    ssconf: dict[str, str] | None = None,
    history: list[Any] | None = None,
) -> bool | str:
    """Make the new file from the present one; see :data:`ganeti.wire.calls.CONFIG_REWRITE`.

    :returns: False when the present file has another length or end than the master expects; it was
        not changed. ``OTHER_HISTORY`` when it was, but the history here was not.
    :raises ConfigurationError: the parts do not add up to the length of the new file, or a value is
        not allowed; the file was not changed.
    :raises StaleEpochError: the caller is no longer master; nothing was changed.
    """
    if ssconf:
        ssconf_files.write(ssconf)
    return _rewrite(base_bytes, base_end, parts, new_bytes, history)


def _rewrite(
    base_bytes: int,
    base_end: str,
    parts: list[str | list[int]],
    new_bytes: int,
    history: list[Any] | None,
) -> bool | str:
    made: list[tuple[int, int] | bytes] = []
    for part in parts:
        if isinstance(part, str):
            made.append(part.encode("utf-8"))
        elif len(part) == 2:
            made.append((part[0], part[1]))
        else:
            raise errors.ConfigurationError("a part of a file must be an offset and a length")
    path = paths.current().cluster_conf_file
    wanted = Change(base_bytes, base_end.encode("utf-8"), made, new_bytes)
    try:
        with caller.writing(master_epoch.CONFIG):
            # This happens inside the lock; after an exception, no write is noted.
            if not files.change(path, wanted):
                raise _OtherBaseError
            added = history is None or _add_history(history)
    except _OtherBaseError:
        return False
    except ValueError as err:
        raise errors.ConfigurationError(str(err)) from err
    return True if added else OTHER_HISTORY


def _add_history(history: list[Any]) -> bool:
    """Add the records of a change; a failure does not undo the change."""
    here = paths.current()
    oldest, name, offset, was, text = history
    addition = history_files.Addition(oldest, name, offset, (was[0], was[1]), text)
    try:
        owner = users.owner_inside(here.data_dir)
        return history_files.add(here.cluster_conf_history_dir, addition, owner)
    except OSError as err:
        _log.warning("this change is missing in the history of the configuration here: %s", err)
        return False


@serves(calls.CONFIG_HISTORY_DIGESTS)
def history_digests() -> dict[str, tuple[int, str]]:
    """Return the size and the checksum of each file of the history.

    :raises OSError: a file cannot be read.
    """
    return history_files.digests(paths.current().cluster_conf_history_dir)


@serves(calls.CONFIG_HISTORY_READ)
def read_history(name: str) -> str:
    """Return the text of a file of the history.

    :raises ConfigurationError: it cannot be read.
    """
    path = f"{paths.current().cluster_conf_history_dir}/{name}"
    try:
        return fs.read_bytes(path).decode("utf-8")
    except OSError as err:
        raise cannot_read(path, err) from err
    except UnicodeDecodeError as err:
        raise errors.ConfigurationError(f"cannot read {path}: {err}") from err


@serves(calls.CONFIG_HISTORY_WRITE)
def write_history(name: str, offset: int, content: str, remove: list[str]) -> None:
    """Replace a file of the history from an offset on, and remove others.

    :raises ConfigurationError: this node has no configuration, or its file is shorter.
    :raises OSError: the file cannot be written.
    :raises StaleEpochError: the caller is no longer master; nothing was changed.
    """
    here = paths.current()
    directory = here.cluster_conf_history_dir
    with master_epoch.config_lock(), caller.writing(master_epoch.OTHER):
        # It contains secrets, which a node that was demoted meanwhile must not get.
        if not os.path.exists(here.cluster_conf_file):
            raise errors.ConfigurationError("this node has no configuration")
        owner = users.owner_inside(here.data_dir)
        if content:
            history_files.put(directory, name, offset, content.encode(), owner=owner)
        for other in remove:
            if other != name:
                fs.remove_file(f"{directory}/{other}")


# -- folding the journal in ------------------------------------------------------------------------


def fold() -> None:
    """Write the changes in the journal into the file; a failure is only logged.

    The changes are safe in the journal, and the next attempt follows.
    """
    path = paths.current().cluster_conf_file
    try:
        files.fold(path, master_epoch.config_lock)
    except (OSError, errors.LockError) as err:
        _log.warning(
            "the changes in %s cannot be written into the file yet: %s", files.journal_of(path), err
        )


class FoldingTimer:
    """Tells the node daemon when the journal is to be folded in: when changes have ended.

    :param monotonic: a clock in seconds which never jumps.
    """

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._seen: tuple[int, int] | None = None
        self._first = self._last = 0.0
        self._pause_until = 0.0

    def is_due(self) -> bool:
        """Tell whether the journal is to be folded in now."""
        try:
            found = os.stat(files.journal_of(paths.current().cluster_conf_file))
        except OSError:
            self._seen = None
            return False
        now, seen = self._monotonic(), (found.st_ino, found.st_size)
        if self._seen is None or self._seen[0] != seen[0]:
            self._first = self._pause_until = now
        if self._seen != seen:
            self._seen, self._last = seen, now
        if now < self._pause_until or (
            now - self._last < _REST_S
            and now - self._first < _LONGEST_S
            and found.st_size < _MOST_BYTES
        ):
            return False
        self._pause_until = now + _PAUSE_S
        return True
