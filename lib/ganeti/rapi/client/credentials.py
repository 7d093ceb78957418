"""Functions of the client for access tokens and client certificates."""

# ruff: noqa: N802 - the names of methods follow those which are published

from __future__ import annotations

from typing import Any

from .transport import Transport


class Credentials(Transport):
    """Access tokens and client certificates of the user; those of all users for an admin."""

    def GetTokens(self) -> list[dict[str, Any]]:
        """Return the tokens, without their secrets."""
        return list(self._get(self._path("tokens")))

    def CreateToken(
        self, label: str | None = None, rights: str | None = None, expires: float | None = None
    ) -> dict[str, Any]:
        """Make a token for the user; its secret, in the member ``token``, is shown only now.

        :param rights: words for rights, separated by commas; None for all rights of the user.
        :param expires: end in seconds since 1970; None for 90 days from now.
        """
        given = {"label": label, "rights": rights, "expires": expires}
        body = {name: value for name, value in given.items() if value is not None}
        return dict(self._post(self._path("tokens"), None, body))

    def RemoveToken(self, token_id: str) -> None:
        """Remove a token, which is refused from now on."""
        self._delete(self._path("tokens", token_id))

    def GetCertificates(self) -> list[dict[str, Any]]:
        """Return the client certificates."""
        return list(self._get(self._path("certificates")))

    def RemoveCertificate(self, certificate_id: str) -> None:
        """Remove a client certificate, which is refused from now on."""
        self._delete(self._path("certificates", certificate_id))
