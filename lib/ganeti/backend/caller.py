"""The epoch of the master whose request this process serves; the dispatcher sets it once."""

from __future__ import annotations

from contextlib import AbstractContextManager

from ganeti.platform import master_epoch

_epoch = master_epoch.NONE


def act_for(epoch: master_epoch.Epoch) -> None:
    """Note the epoch of the master whose request this process serves."""
    global _epoch
    _epoch = epoch


def epoch() -> master_epoch.Epoch:
    """Return the epoch of the master whose request this process serves."""
    return _epoch


def writing(kind: str) -> AbstractContextManager[None]:
    """Run a block which writes files for the calling master (:mod:`ganeti.platform.master_epoch`).

    :raises StaleEpochError: the caller is no longer master; also when another request showed it
        meanwhile.
    """
    return master_epoch.writing(kind, _epoch)
