"""Under which master epoch this process serves its request; set once, by the dispatcher."""

from __future__ import annotations

from contextlib import AbstractContextManager

from ganeti.utils import master_state

_epoch = master_state.NONE


def act_for(epoch: master_state.Epoch) -> None:
    """This process serves a request of the master of that epoch."""
    global _epoch
    _epoch = epoch


def epoch() -> master_state.Epoch:
    """The epoch of that master."""
    return _epoch


def writing(kind: str) -> AbstractContextManager[None]:
    """The block writes what that master wants to have here, see :mod:`ganeti.utils.master_state`.

    :raises StaleEpochError: it is master no more, also when that became known meanwhile.
    """
    return master_state.writing(kind, _epoch)
