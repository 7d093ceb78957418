"""Webhooks: events which the cluster sends to servers."""

# ruff: noqa: N802 - named like the published methods

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .transport import Transport


class Webhooks(Transport):
    """Rules by which events are sent."""

    def GetWebhooks(self) -> list[dict[str, Any]]:
        """Return the webhooks, and how their deliveries are."""
        return list(self._get(self._path("webhooks")))

    def AddWebhook(
        self,
        name: str,
        url: str,
        *,
        kind: Sequence[str] = (),
        match: Sequence[str] = (),
        tag: Sequence[str] = (),
        severity: str | None = None,
        secret: str | None = None,
    ) -> dict[str, Any]:
        """Add a webhook.

        :param kind: kinds of events, or ``*`` for all.
        :param match: names of objects, or patterns.
        :param tag: tags of which an object has one.
        :param severity: the least severe events: ``info``, ``warning`` or ``error``.
        :returns: ``name``, and the ``secret`` for the signatures.
        """
        body: dict[str, Any] = {"name": name, "url": url}
        for member, words in (("kind", kind), ("match", match), ("tag", tag)):
            if words:
                body[member] = list(words)
        if severity is not None:
            body["severity"] = severity
        if secret is not None:
            body["secret"] = secret
        return dict(self._post(self._path("webhooks"), None, body))

    def RemoveWebhook(self, name: str) -> None:
        """Remove a webhook."""
        self._delete(self._path("webhooks", name))

    def TestWebhook(self, name: str) -> dict[str, Any]:
        """Send a test message; return whether it was ``accepted``, and the ``problem``."""
        return dict(self._post(self._path("webhooks", name, "test")))
