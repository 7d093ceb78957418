"""Under which master epoch this process serves its request; set once, by the dispatcher."""

from __future__ import annotations

from contextlib import AbstractContextManager

from ganeti.platform import master_epoch

_epoch = master_epoch.NONE


def act_for(epoch: master_epoch.Epoch) -> None:
    """This process serves a request of the master of that epoch."""
    global _epoch
    _epoch = epoch


def epoch() -> master_epoch.Epoch:
    """The epoch of that master."""
    return _epoch


def writing(kind: str) -> AbstractContextManager[None]:
    """Run a block which writes files for the calling master (:mod:`ganeti.platform.master_epoch`).

    :raises StaleEpochError: it is master no more, also when that became known meanwhile.
    """
    return master_epoch.writing(kind, _epoch)
