"""The client of the metadata daemon's control socket on this node."""

from __future__ import annotations

from ganeti import TYPE_CHECKING, errors
from ganeti.luxi import client as luxi
from ganeti.platform import paths

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

# The daemon answers from memory, so a short time is enough.
_CONNECT_S = 1.0
_ANSWER_S = 30.0


class NotRunning(errors.GenericError):
    """No metadata daemon listens on the socket."""


def call(method: str, *args: Any) -> Any:
    """Send one request and return its result.

    :raises NotRunning: the daemon does not run here, or not yet.
    :raises errors.GenericError: the error which the daemon reported.
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
    """Send a text and return the daemon's answer, which is the same text."""
    return str(call("Echo", text))


def update(description: Mapping[str, Any]) -> None:
    """Send the description of a guest (:func:`ganeti.metad.guests.parse`)."""
    call("UpdateConfig", dict(description))


def remove(name: str) -> bool:
    """Remove a guest; False when it was not known."""
    return bool(call("RemoveInstance", name))


def instances() -> list[list[Any]]:
    """Return ``[name, address, OS, task or None, time of first contact or None]`` of each guest."""
    return list(call("ListInstances"))


def report(name: str) -> dict[str, Any] | None:
    """Return the report of a guest; None for an unknown guest.

    Its form is that of :meth:`ganeti.metad.guests.GuestReport.to_wire`.
    """
    found = call("ReadReport", name)
    return dict(found) if found is not None else None
