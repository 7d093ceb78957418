"""The ssconf files of this node: facts about the cluster which every node needs.

The master sends the texts. They are written under a lock of their own, so that a reader which takes
the lock (shared) sees files of one moment. Only files which differ are written: most changes of the
configuration change one file or none.
"""

from __future__ import annotations

import re

from ganeti import errors
from ganeti.backend import caller, reasons
from ganeti.backend.registry import serves
from ganeti.constants import ssconf
from ganeti.platform import master_epoch, paths
from ganeti.utils import filelock, fs
from ganeti.wire import calls

_KEY = re.compile(r"[a-z][a-z0-9_-]{0,63}")
_LOCK_TIMEOUT_S = 10.0


def read(key: str) -> str:
    """Return the text of one file, without the last newline.

    :raises ConfigurationError: this node has no such file.
    """
    path = paths.current().ssconf_file(key)
    try:
        return fs.read_file(path).rstrip("\n")
    except OSError as err:
        raise errors.ConfigurationError(f"cannot read {path}: {err.strerror}") from err


@serves(calls.WRITE_SSCONF_FILES)
def write(values: dict[str, str]) -> None:
    """Write several files; all of them are checked before the first one is changed.

    :raises ConfigurationError: a name or a text is not allowed.
    :raises LockError: another process holds the lock.
    """
    if ssconf.MASTER_EPOCH in values:
        raise errors.ConfigurationError(
            "ssconf_master_epoch cannot be written like other ssconf files; only a new master"
            " changes it"
        )
    for key, text in values.items():
        if not _KEY.fullmatch(key):
            raise errors.ConfigurationError(f"not a name of an ssconf file: {key!r:.80}")
        if len(text.encode("utf-8", "surrogateescape")) > ssconf.MAX_SIZE_BYTES:
            raise errors.ConfigurationError(
                f"text for ssconf file {key} is longer than {ssconf.MAX_SIZE_BYTES} bytes"
            )
    here = paths.current()
    with caller.writing(master_epoch.OTHER), filelock.FileLock(here.ssconf_lock_file) as lock:
        lock.acquire(timeout_s=_LOCK_TIMEOUT_S)
        for key, text in values.items():
            path = here.ssconf_file(key)
            content = text if not text or text.endswith("\n") else text + "\n"
            if not _has(path, content):
                # The list of instances is long and changes often, and nothing depends on it
                # after a loss of power: the master of that time sends it again.
                fs.write_file(
                    path, content, mode=ssconf.FILE_MODE, sync=key != ssconf.INSTANCE_LIST
                )
                if key == ssconf.INSTANCE_LIST:
                    reasons.keep_only(set(text.split()))


def _has(path: str, content: str) -> bool:
    try:
        return fs.read_file(path) == content
    except FileNotFoundError:
        return False


@serves(calls.MASTER_NODE_NAME)
def master_node_name() -> str:
    """Return the name of the master, as far as this node knows it."""
    return read(ssconf.MASTER_NODE)
