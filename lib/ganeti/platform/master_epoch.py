"""The highest epoch of a master that this node has seen, and the epochs of the copies it holds.

A node which takes the master's role takes an *epoch*: a number higher than any which a node of the
cluster has seen, and its own UUID, so that no two masters ever have the same epoch. A node obeys
the highest epoch that it has seen and refuses lower ones. So a master that was cut off, paused or
copied can change nothing any more, however late its messages arrive.

For the configuration and for the job queue the node also keeps the epoch under which its present
copy was written, because serial numbers are compared within one epoch only: an old master which the
nodes no longer obey may still raise the serial numbers in its own files, and these files are older
than those of its successor.

A node to which the role was moved keeps the epoch which it won there, until its master daemon has
taken one of its own: the daemon may then rely on the voters of the failover
(:func:`record_failover`).

``DATA_DIR/master_state`` holds these epochs, one on each line; ``ssconf_master_epoch`` has the
number of the highest one, for administrators and programs. A ``flock`` orders all accesses: a
process which writes a copy holds it shared, from the check of the epoch to the end of the writing;
a process which takes a new epoch holds it exclusively. So once a node has promised to obey a new
epoch, no write of an older master is under way there. Copies of the configuration have a second
``flock``, which is taken first: one process writes them at a time, and no other write waits for it.

The node daemon uses this module, and the master daemon for the files of its own node.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Final, NamedTuple

from ganeti import errors
from ganeti.platform import paths, users
from ganeti.utils import filelock, fs

CONFIG: Final = "config"
QUEUE: Final = "queue"
#: A file of the master which has no epoch of its own.
OTHER: Final = "other"
_EPOCH: Final = "epoch"
_DEMOTED: Final = "demoted"
# The word says whether nodes marked as offline counted.
_FAILOVER: Final = {False: "failover", True: "failover_online"}

_STATE_MODE = 0o640
_SSCONF_MODE = 0o444
_SSCONF_KEY = "master_epoch"
# A process holds the lock during one write to a disk, which may be slow.
_LOCK_TIMEOUT_S = 30.0
_MAX_NUMBER = 1 << 62


class Epoch(NamedTuple):
    """An epoch of a master: its number and the UUID of its node, compared in this order."""

    number: int
    owner: str

    def __str__(self) -> str:
        return f"{self.number} {self.owner}".rstrip()


#: The epoch of a node which has seen no master yet.
NONE: Final = Epoch(0, "")


def parse(text: str) -> Epoch:
    """Read an epoch from its text, the result of ``str(epoch)``.

    :raises ParseError: the text is not an epoch.
    """
    number, _, owner = text.strip().partition(" ")
    if (
        not (number.isascii() and number.isdigit() and int(number[:20]) < _MAX_NUMBER)
        or " " in owner
        or len(owner) > 64
    ):
        raise errors.ParseError(f"not a master epoch: {text!r:.100}")
    return Epoch(int(number), owner)


class StaleEpochError(errors.GenericError):
    """A process acts for a master whose epoch is over.

    :ivar given: the epoch of that master.
    :ivar known: the epoch which this node obeys.
    """

    def __init__(self, given: Epoch, known: Epoch) -> None:
        super().__init__(str(given), str(known))
        self.given = given
        self.known = known

    def __str__(self) -> str:
        return (
            f"master epoch {self.given.number} is over, this node obeys epoch "
            f"{self.known.number}" + (f" of node {self.known.owner}" if self.known.owner else "")
        )


class MasterState(NamedTuple):
    """The content of the file ``master_state``.

    :ivar epoch: the highest epoch that this node has seen.
    :ivar config: the epoch under which its copy of the configuration was written.
    :ivar queue: the epoch under which its copy of the job queue was written.
    :ivar demoted: epoch and serial number of the newest configuration which this node has removed,
        because it is no longer a master candidate.
    :ivar failover: the epoch which this node won in its last failover.
    :ivar ignored_offline: nodes marked as offline did not count there.
    """

    epoch: Epoch = NONE
    config: Epoch = NONE
    queue: Epoch = NONE
    demoted: tuple[Epoch, int] = (NONE, 0)
    failover: Epoch = NONE
    ignored_offline: bool = False

    def moved_to(self, owner: str) -> bool:
        """Tell whether the last master of which this node knows is a failover to the owner.

        :param owner: UUID of a node.
        """
        return self.epoch.owner == owner and self.epoch == self.failover != NONE


def read(here: paths.Paths | None = None) -> MasterState:
    """Read the state of this node; the default values on a node which has never seen a master.

    :raises ConfigurationError: a file is damaged.
    """
    here = here or paths.current()
    found: dict[str, Epoch] = {}
    demoted = (NONE, 0)
    try:
        for line in _whole_lines(fs.read_file(here.master_state_file)):
            word, _, value = line.partition(" ")
            if word == _DEMOTED:
                serial, _, value = value.partition(" ")
                demoted = (parse(value), int(serial))
            else:
                found[word] = parse(value)
    except FileNotFoundError:
        pass
    except OSError as err:
        # The file may be whole.
        raise errors.ConfigurationError(
            f"cannot read {here.master_state_file}: {err.strerror or err}. This node obeys no"
            " master until the file can be read"
        ) from err
    except (ValueError, errors.ParseError) as err:
        raise errors.ConfigurationError(
            f"cannot read {here.master_state_file}: {err}. This node obeys no master, because it"
            " does not know which one it has promised to obey. When one master daemon runs, and"
            " 'gnt-cluster verify' there names no other node with this error, remove the file"
            f" {here.master_state_file} on this node; the next calls of the master write it again."
        ) from err
    try:
        published = _read_ssconf(here)
    except errors.ConfigurationError:
        # It is written after the other file, and has nothing which is not there.
        if _EPOCH not in found:
            raise
        published = NONE
    failover, ignored_offline = max(
        (found.get(word, NONE), ignored) for ignored, word in _FAILOVER.items()
    )
    return MasterState(
        max(found.get(_EPOCH, NONE), published),
        found.get(CONFIG, NONE),
        found.get(QUEUE, NONE),
        demoted,
        failover,
        ignored_offline and failover != NONE,
    )


def _whole_lines(text: str) -> list[str]:
    """Return the lines of ``master_state``.

    A shorter owner or number would be another, lower epoch, so a file which was torn must not be
    read as a whole one.

    :raises ParseError: the last line has no end, or an epoch is missing.
    """
    lines = text.splitlines()
    missing = {_EPOCH, CONFIG, QUEUE} - {line.partition(" ")[0] for line in lines}
    if missing or not text.endswith("\n"):
        raise errors.ParseError("the file is not complete")
    return lines


def _read_ssconf(here: paths.Paths) -> Epoch:
    path = here.ssconf_file(_SSCONF_KEY)
    try:
        return parse(fs.read_file(path))
    except FileNotFoundError:
        return NONE
    except (OSError, ValueError, errors.ParseError) as err:
        raise errors.ConfigurationError(f"cannot read {path}: {err}") from err


def _write(here: paths.Paths, old: MasterState, new: MasterState) -> None:
    if new == old:
        return
    serial = new.demoted[1]
    lines = [
        f"{_EPOCH} {new.epoch}",
        f"{CONFIG} {new.config}",
        f"{QUEUE} {new.queue}",
        f"{_DEMOTED} {serial} {new.demoted[0]}",
    ]
    if new.failover != NONE:
        lines.append(f"{_FAILOVER[new.ignored_offline]} {new.failover}")
    # The master daemon may have a user of its own, and reads what the node daemon writes.
    uid, gid = users.same_owner(here.data_dir)
    fs.write_file(
        here.master_state_file, "\n".join(lines) + "\n", mode=_STATE_MODE, uid=uid, gid=gid
    )
    if new.epoch != old.epoch:
        fs.write_file(here.ssconf_file(_SSCONF_KEY), f"{new.epoch.number}\n", mode=_SSCONF_MODE)


def _locked(here: paths.Paths, *, shared: bool = False) -> contextlib.AbstractContextManager[None]:
    return _taken(here.master_epoch_lock_file, shared=shared)


@contextlib.contextmanager
def _taken(path: str, *, shared: bool) -> Iterator[None]:
    with filelock.FileLock(path) as lock:
        lock.acquire(shared=shared, timeout_s=_LOCK_TIMEOUT_S)
        yield


def config_lock(here: paths.Paths | None = None) -> contextlib.AbstractContextManager[None]:
    """Take the lock of those who write this node's configuration; :func:`writing` takes it itself.

    :raises LockError: the lock was not free within 30 seconds.
    """
    return _taken((here or paths.current()).config_copy_lock_file, shared=False)


def require(epoch: Epoch, here: paths.Paths | None = None) -> Epoch:
    """Check that this node does not obey a higher epoch; return the one which it obeys.

    :raises StaleEpochError: it does.
    """
    known = read(here).epoch
    if epoch < known:
        raise StaleEpochError(epoch, known)
    return known


def admit(epoch: Epoch, here: paths.Paths | None = None) -> None:
    """Check that this node obeys an epoch, and remember it if it is higher than all before.

    :raises StaleEpochError: this node has seen a higher epoch.
    :raises LockError: the lock was not free within 30 seconds.
    """
    if epoch > require(epoch, here):
        claim(epoch, here)


def claim(epoch: Epoch, here: paths.Paths | None = None) -> None:
    """Promise to obey this epoch and no lower one. The present epoch may be claimed again.

    :raises StaleEpochError: this node has promised to obey a higher epoch.
    :raises LockError: writes of an older master did not end within 30 seconds.
    """
    here = here or paths.current()
    with _locked(here):
        old = read(here)
        if epoch < old.epoch:
            raise StaleEpochError(epoch, old.epoch)
        _write(here, old, old._replace(epoch=epoch))


def record_failover(
    epoch: Epoch, *, ignored_offline: bool, here: paths.Paths | None = None
) -> None:
    """Remember the epoch which this node won in a failover, for the master daemon started next.

    :param ignored_offline: nodes marked as offline did not count.
    :raises StaleEpochError: this node has promised to obey a higher epoch.
    :raises LockError: the lock was not free within 30 seconds.
    """
    here = here or paths.current()
    with _locked(here):
        old = read(here)
        if epoch < old.epoch:
            raise StaleEpochError(epoch, old.epoch)
        _write(
            here,
            old,
            old._replace(epoch=epoch, failover=epoch, ignored_offline=ignored_offline),
        )


def adopt_queue(epoch: Epoch, copied: Epoch, here: paths.Paths | None = None) -> None:
    """Remember that the job queue of this node is a whole copy of that of another node.

    :param epoch: of the node which makes the copy.
    :param copied: the epoch of the queue which was copied.
    :raises StaleEpochError: this node obeys a higher epoch.
    :raises LockError: the lock was not free within 30 seconds.
    """
    here = here or paths.current()
    with _locked(here):
        old = read(here)
        if epoch < old.epoch:
            raise StaleEpochError(epoch, old.epoch)
        _write(here, old, old._replace(queue=max(copied, old.queue)))


@contextlib.contextmanager
def writing(kind: str, epoch: Epoch, here: paths.Paths | None = None) -> Iterator[None]:
    """Protect a block which writes a file of the master on this node.

    One process at a time writes the configuration; other files may be written side by side.

    :param kind: :data:`CONFIG`, :data:`QUEUE` or :data:`OTHER`.
    :param epoch: of the master for which the block writes.
    :raises StaleEpochError: this node obeys a higher epoch. The block did not run, except for the
        queue, whose epoch may be found to be over after the block.
    :raises LockError: the lock was not free within 30 seconds.
    """
    here = here or paths.current()
    if kind == CONFIG:
        with config_lock(here):
            yield from _writing_config(epoch, here)
        return
    with _locked(here, shared=True):
        memory = read(here)
        if epoch < memory.epoch:
            raise StaleEpochError(epoch, memory.epoch)
        yield
    if kind == QUEUE and memory.queue < epoch:
        with _locked(here):
            old = read(here)
            if epoch < old.epoch:
                # A vote meanwhile reported this copy under its older epoch.
                raise StaleEpochError(epoch, old.epoch)
            _write(here, old, old._replace(queue=max(epoch, old.queue)))


def _writing_config(epoch: Epoch, here: paths.Paths) -> Iterator[None]:
    """Protect a block which writes the configuration; the caller holds the configuration's lock.

    No other process changes the epoch of the configuration meanwhile.
    """

    def labelled(memory: MasterState) -> MasterState:
        return memory._replace(config=max(epoch, memory.config), demoted=(NONE, 0))

    memory = read(here)
    with _locked(here, shared=labelled(memory) == memory):
        memory = read(here)
        if epoch < memory.epoch:
            raise StaleEpochError(epoch, memory.epoch)
        yield
        # The epoch is written after the content. If we end between the two, the copy counts as an
        # older one, which is safe: no process has acknowledged it.
        _write(here, memory, labelled(memory))


def give_up_config(serial_no: int, here: paths.Paths | None = None) -> None:
    """Remember the newest configuration of this node, before its copy is removed.

    :param serial_no: serial number of the copy.
    :raises LockError: a lock was not free within 30 seconds.
    """
    here = here or paths.current()
    with config_lock(here), _locked(here):
        old = read(here)
        had = max(old.demoted, (old.config, serial_no))
        _write(here, old, old._replace(demoted=had))
