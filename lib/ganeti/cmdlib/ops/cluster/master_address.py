"""Changing the master address: takes the old one down, changes the configuration, and brings the
new one up."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from ganeti import errors
from ganeti.cmdlib.base import Context, why
from ganeti.rpc import master_ip
from ganeti.utils.undo import UndoStack

if TYPE_CHECKING:
    from ganeti.config import Config
    from ganeti.rpc import RpcRunner

_HINT = "Bring it up with 'gnt-cluster activate-master-ip'."


def move_address(
    ctx: Context,
    commit: Callable[[], object],
    put_back: Callable[[], object],
    *,
    force: bool = False,
) -> None:
    """Take the master address down, change the configuration, and bring the new address up.

    When a step fails, the steps before it are undone.

    :param commit: changes the configuration.
    :param put_back: undoes this change.
    :param force: go on when the address cannot be taken down or brought up, with a warning.
    :raises errors.OpExecError: a step failed; says what could not be undone.
    """

    def refused(text: str) -> None:
        if not force:
            raise errors.OpExecError(f"{text}. Nothing was changed.")
        ctx.log.warn(text, hint=_HINT)

    failure = master_ip.deactivate_master_ip(ctx.rpc, ctx.config.snapshot())
    if failure is not None:
        refused(f"the master address cannot be taken down: {why(failure)}")
    with UndoStack(ctx.log.warn, hint=_HINT) as undo:
        undo.add("the master address, which is down", _bring_up, ctx.config, ctx.rpc)
        commit()
        undo.add("the new parameters", put_back)
        failure = master_ip.activate_master_ip(ctx.rpc, ctx.config.snapshot())
        if failure is not None:
            refused(f"the master address cannot be brought up: {why(failure)}")
        undo.commit()


def _bring_up(config: Config, rpc: RpcRunner) -> None:
    failure = master_ip.activate_master_ip(rpc, config.snapshot())
    if failure is not None:
        raise failure
