"""Moving the address of the master: down in the old way, a change, up in the new way."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from ganeti import errors
from ganeti.cmdlib.base import AnyUnit, why
from ganeti.cmdlib.undo import Undo
from ganeti.rpc import master_ip

if TYPE_CHECKING:
    pass

_HINT = "Use 'gnt-cluster activate-master-ip'."


def move_address(
    unit: AnyUnit,
    commit: Callable[[], object],
    put_back: Callable[[], object],
    *,
    force: bool = False,
) -> None:
    """Take the address down, commit, and bring the new one up; or leave everything as it was.

    :param commit: changes the configuration.
    :param put_back: takes that back.
    :param force: an address which does not go down or come up is a warning.
    :raises errors.OpExecError: it did not work; says what is left when it was not all taken back.
    """

    def refused(text: str) -> None:
        if not force:
            raise errors.OpExecError(f"{text}. Everything is as it was.")
        unit.warn(text, hint=_HINT)

    failure = master_ip.deactivate_master_ip(unit.rpc, unit.config.snapshot())
    if failure is not None:
        refused(f"the address of the master cannot be taken down: {why(failure)}")
    with Undo(unit.warn, hint=_HINT) as undo:
        undo.add("the address of the master, which is down", _bring_up, unit)
        commit()
        undo.add("the new parameters", put_back)
        failure = master_ip.activate_master_ip(unit.rpc, unit.config.snapshot())
        if failure is not None:
            refused(f"the address of the master cannot be brought up: {why(failure)}")
        undo.commit()


def _bring_up(unit: AnyUnit) -> None:
    failure = master_ip.activate_master_ip(unit.rpc, unit.config.snapshot())
    if failure is not None:
        raise failure
