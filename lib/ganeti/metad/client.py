"""Talking to the metadata daemon of this node, over its control socket."""

from __future__ import annotations

from ganeti import errors
from ganeti.luxi import client as luxi
from ganeti.platform import paths

TYPE_CHECKING = False  # the name type checkers look for; importing typing costs milliseconds
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

# It answers from memory: who takes longer is not there.
_CONNECT_S = 1.0
_ANSWER_S = 30.0


class NotRunning(errors.GenericError):
    """Nobody listens on the socket."""


def call(method: str, *args: Any) -> Any:
    """One request.

    :raises NotRunning: the daemon does not run here, or not yet.
    :raises errors.GenericError: it says what is wrong.
    """
    client = luxi.Client(
        paths.current().metad_socket, connect_timeout_s=_CONNECT_S, timeout_s=_ANSWER_S
    )
    with client:
        try:
            return client.call(method, *args)
        except errors.NoMasterError:
            raise NotRunning("ganeti-metad does not run on this node") from None
        except errors.LuxiPermissionError:
            raise errors.GenericError(
                f"only root may talk to ganeti-metad ({paths.current().metad_socket})"
            ) from None


def echo(text: str) -> str:
    """What the daemon makes of a text: the same."""
    return str(call("Echo", text))


def update(description: Mapping[str, Any]) -> None:
    """Describe a guest."""
    call("UpdateConfig", dict(description))


def remove(name: str) -> bool:
    """Forget a guest; whether it was known."""
    return bool(call("RemoveInstance", name))


def instances() -> list[list[Any]]:
    """``[name, address, OS, task or None, seconds of first contact or None]`` of each guest."""
    return list(call("ListInstances"))


def report(name: str) -> dict[str, Any] | None:
    """What a guest has told, as :meth:`ganeti.metad.guests.Report.to_wire`; None if unknown."""
    found = call("ReadReport", name)
    return dict(found) if found is not None else None
