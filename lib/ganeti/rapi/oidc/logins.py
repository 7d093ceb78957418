"""The logins at the provider which the settings name at present.

The file is read again when it has changed. Each address may finish some logins at once, and then
one every few seconds, because each makes this server ask the provider.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from typing import Final

from ganeti import errors
from ganeti.http import peers
from ganeti.http.messages import Refused
from ganeti.rapi.oidc import flow
from ganeti.rapi.oidc.flow import Begun
from ganeti.rapi.oidc.person import Person
from ganeti.rapi.oidc.provider import Provider
from ganeti.rapi.oidc.settings import Settings, parse_settings
from ganeti.rapi.pace import Pace, TooMany
from ganeti.rapi.users import ChangingFile, Users

_log = logging.getLogger(__name__)

#: Logins of an address which are finished at once, and seconds for each one after them.
BURST: Final = 20
INTERVAL_S: Final = 3.0


class OidcLogins:
    """Logs people in at another server.

    :param path: the file with the settings; without it there are no such logins.
    :param users: the users of this server, whose names nobody else gets.
    :param clock: seconds of a clock which never jumps.
    """

    def __init__(
        self,
        path: str,
        users: Users,
        *,
        clock: Callable[[], float] = time.monotonic,
        make: Callable[[Settings], Provider] = Provider,
    ) -> None:
        self._file = ChangingFile(path, "settings for logins at another server")
        self._users = users
        self._make = make
        self._pace: Pace[str] = Pace("logins from this address", BURST, INTERVAL_S, clock)
        self._provider: Provider | None = None
        self._problem = ""

    def _present(self) -> Provider:
        """Return the provider of the present settings.

        :raises Refused: 404 without settings, 503 if they have a mistake.
        """
        text = self._file.changed_text()
        if text is not None:
            self._provider, self._problem = None, ""
            try:
                if text:
                    settings = parse_settings(text, lambda words: self._users.rights(words)[1])
                    self._provider = self._make(settings)
            except errors.ParseError as err:
                self._problem = str(err)
                _log.error("%s: %s", self._file.path, err)
        if self._problem:
            raise Refused(
                503,
                "the settings for logins at another server have a mistake; 'rapi-passwd check' on"
                " the master names it",
            )
        if self._provider is None:
            raise Refused(404, "logins at another server (OpenID Connect) are not set up here")
        return self._provider

    async def begin(self, cookies: str) -> Begun:
        """Begin a login, as :func:`ganeti.rapi.oidc.flow.begin`."""
        return await flow.begin(self._present(), cookies)

    async def finish(self, cookies: str, query: Mapping[str, str], address: str) -> Person:
        """Finish a login, as :func:`ganeti.rapi.oidc.flow.finish`.

        :param address: of the client.
        :raises Refused: also 429 after too many logins, and 403 for the name of a user who has a
            password here.
        """
        provider = self._present()
        try:
            self._pace.take(peers.client_network(address))
        except TooMany as err:
            raise Refused(429, f"too many {err.of}", headers=[err.retry_after]) from err
        found = await flow.finish(provider, cookies, query)
        if self._users.account(found.name) is not None:
            raise Refused(
                403,
                f"there is a user '{found.name}' with a password on this server, so nobody else"
                " gets this name; the setting name_prefix keeps such names apart",
            )
        _log.info("user %r has logged in at the provider; groups %s", found.name, found.groups)
        return found

    def after(self) -> str:
        """Return the path to which a browser goes after a login."""
        return self._present().settings.after

    async def logout(self) -> str:
        """Return the address at which the provider ends its session."""
        return await flow.logout(self._present())
