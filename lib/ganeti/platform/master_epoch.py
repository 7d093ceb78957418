"""What this node remembers of the cluster's masters: the highest epoch, and whose copies it has.

Each time a node takes the master's role it takes an *epoch*: a number higher than any it heard of,
with its own UUID, so that no two masters ever have the same one. A node obeys the highest epoch it
has seen and refuses a lower one; so a master that was cut off, paused or copied can do nothing any
more, however late its messages arrive.

Beside the epoch stands, for the configuration and for the job queue, under which epoch the present
copy was written: serial numbers are compared within one epoch only. A master that nobody listens to
any more may count on in its own files; they are still older than those of its successor.

``DATA_DIR/master_state`` holds all of that, a line each; ``ssconf_master_epoch`` has the number
alone, for people and programs. A flock orders everything: whoever writes a copy holds it (shared)
from the check of the epoch to the end of the writing, whoever takes a new epoch holds it alone. So,
once a node has promised itself to a new epoch, no older master's write is still under way there.
Copies of the configuration have a flock of their own besides, taken first, which lets one process
write them at a time and keeps nobody else waiting.

Used by the node daemon, and by the master for its own files.
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
#: What a master writes that nobody compares.
OTHER: Final = "other"
_EPOCH: Final = "epoch"
_DEMOTED: Final = "demoted"

_STATE_MODE = 0o640
_SSCONF_MODE = 0o444
_SSCONF_KEY = "master_epoch"
# A write under the lock takes as long as the disk needs.
_LOCK_TIMEOUT_S = 30.0
_MAX_NUMBER = 1 << 62


class Epoch(NamedTuple):
    """Which mastership something belongs to. Higher numbers win, then the owner's UUID."""

    number: int
    owner: str

    def __str__(self) -> str:
        return f"{self.number} {self.owner}".rstrip()


#: Before there was any master.
NONE: Final = Epoch(0, "")


def parse(text: str) -> Epoch:
    """The reverse of ``str(epoch)``.

    :raises ParseError: something else.
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
    """Somebody acts as master who is none any more; `known` is the epoch this node obeys."""

    def __init__(self, given: Epoch, known: Epoch) -> None:
        super().__init__(str(given), str(known))
        self.given = given
        self.known = known

    def __str__(self) -> str:
        return (
            f"master epoch {self.given.number} is over, this node obeys epoch "
            f"{self.known.number}" + (f" of node {self.known.owner}" if self.known.owner else "")
        )


class Memory(NamedTuple):
    """The lines of the file. ``demoted``: newest configuration this node gave up, with serial."""

    epoch: Epoch = NONE
    config: Epoch = NONE
    queue: Epoch = NONE
    demoted: tuple[Epoch, int] = (NONE, 0)


def read(here: paths.Paths | None = None) -> Memory:
    """What is remembered; nothing at all on a node that never heard of a master.

    :raises ConfigurationError: a file is damaged.
    """
    here = here or paths.current()
    found: dict[str, Epoch] = {}
    demoted = (NONE, 0)
    try:
        for line in fs.read_file(here.master_state_file).splitlines():
            word, _, value = line.partition(" ")
            if word == _DEMOTED:
                serial, _, value = value.partition(" ")
                demoted = (parse(value), int(serial))
            else:
                found[word] = parse(value)
    except FileNotFoundError:
        pass
    except (OSError, ValueError, errors.ParseError) as err:
        raise errors.ConfigurationError(f"cannot read {here.master_state_file}: {err}") from err
    epoch = max(found.get(_EPOCH, NONE), _read_ssconf(here))
    return Memory(epoch, found.get(CONFIG, NONE), found.get(QUEUE, NONE), demoted)


def _read_ssconf(here: paths.Paths) -> Epoch:
    path = here.ssconf_file(_SSCONF_KEY)
    try:
        return parse(fs.read_file(path))
    except FileNotFoundError:
        return NONE
    except (OSError, ValueError, errors.ParseError) as err:
        raise errors.ConfigurationError(f"cannot read {path}: {err}") from err


def _write(here: paths.Paths, old: Memory, new: Memory) -> None:
    if new == old:
        return
    serial = new.demoted[1]
    lines = [
        f"{_EPOCH} {new.epoch}",
        f"{CONFIG} {new.config}",
        f"{QUEUE} {new.queue}",
        f"{_DEMOTED} {serial} {new.demoted[0]}",
    ]
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


def _config_locked(here: paths.Paths) -> contextlib.AbstractContextManager[None]:
    return _taken(here.config_copy_lock_file, shared=False)


def admit(epoch: Epoch, here: paths.Paths | None = None) -> None:
    """Check that whoever acts under this epoch is obeyed; remember an epoch higher than all.

    :raises StaleEpochError: a higher one was seen.
    :raises LockError: the lock was not free in time.
    """
    here = here or paths.current()
    known = read(here).epoch
    if epoch < known:
        raise StaleEpochError(epoch, known)
    if epoch > known:
        claim(epoch, here)


def claim(epoch: Epoch, here: paths.Paths | None = None) -> None:
    """Promise to obey nobody below this epoch. Its own epoch may be claimed again.

    :raises StaleEpochError: a higher one was promised.
    :raises LockError: writes of an older master did not end in time.
    """
    here = here or paths.current()
    with _locked(here):
        old = read(here)
        if epoch < old.epoch:
            raise StaleEpochError(epoch, old.epoch)
        _write(here, old, old._replace(epoch=epoch))


@contextlib.contextmanager
def writing(kind: str, epoch: Epoch, here: paths.Paths | None = None) -> Iterator[None]:
    """The block writes what a master writes here: :data:`CONFIG`, :data:`QUEUE`, :data:`OTHER`.

    The configuration is written by one process at a time, the others by many.

    :raises StaleEpochError: a higher one was promised; the block did not run.
    :raises LockError: the lock was not free in time.
    """
    here = here or paths.current()
    if kind == CONFIG:
        with _config_locked(here):
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
                # Votes were told meanwhile that this copy is an older one.
                raise StaleEpochError(epoch, old.epoch)
            _write(here, old, old._replace(queue=max(epoch, old.queue)))


def _writing_config(epoch: Epoch, here: paths.Paths) -> Iterator[None]:
    """As :func:`writing`, with the lock of the configuration held, so its label stays as it is."""

    def labelled(memory: Memory) -> Memory:
        return memory._replace(config=max(epoch, memory.config), demoted=(NONE, 0))

    memory = read(here)
    with _locked(here, shared=labelled(memory) == memory):
        memory = read(here)
        if epoch < memory.epoch:
            raise StaleEpochError(epoch, memory.epoch)
        yield
        # After the content: with a label too low a copy counts for less than it is, which is safe
        # as long as nobody was told that it is there.
        _write(here, memory, labelled(memory))


def give_up_config(serial_no: int, here: paths.Paths | None = None) -> None:
    """Remember what this node had, before its copy of the configuration goes."""
    here = here or paths.current()
    with _config_locked(here), _locked(here):
        old = read(here)
        had = max(old.demoted, (old.config, serial_no))
        _write(here, old, old._replace(demoted=had))
