"""Who sends the requests, and sessions of browsers."""

# ruff: noqa: N802 - the names of methods follow those which are published

from __future__ import annotations

from typing import Any

from .transport import Transport


class Identities(Transport):
    """Who sends the requests, and sessions of browsers."""

    def GetSession(self) -> dict[str, Any]:
        """Return ``user``, ``rights``, and ``by``: how this client is identified."""
        return dict(self._get(self._path("session")))

    def GetSessions(self) -> list[dict[str, Any]]:
        """Return the sessions of browsers of this user; with the right write, those of all."""
        return list(self._get(self._path("sessions")))

    def EndSession(self, session: str) -> None:
        """End a session, by its ``id``."""
        self._delete(self._path("sessions", session))
