"""The variables of the environment which say where the REST interface is, and who asks."""

from __future__ import annotations

import os

from ganeti import TYPE_CHECKING, errors
from ganeti.cli import terminal

if TYPE_CHECKING:
    from collections.abc import Mapping

#: The address: ``https://HOST``, ``https://HOST:PORT``, or with ``USER:PASSWORD@`` before the host.
VARIABLE = "GANETI_RAPI"
#: The access token, or the file which has it in its first line.
TOKEN_VARIABLE = "GANETI_RAPI_TOKEN"
TOKEN_FILE_VARIABLE = "GANETI_RAPI_TOKEN_FILE"
#: File with the certificates of trusted authorities, instead of those of the system.
AUTHORITY_VARIABLE = "GANETI_RAPI_CA"
#: Hash of the public key of the server, ``sha256//BASE64``, instead of an authority.
PIN_VARIABLE = "GANETI_RAPI_PIN"

_PIN_START = "sha256//"


class Address:
    """Where the REST interface is, and who asks.

    :ivar token: access token; empty for user and password.
    :ivar authority: file with trusted certificates; empty for those of the system.
    :ivar pin: hash of the public key of the server; empty to check its certificate.
    """

    __slots__ = ("authority", "host", "password", "pin", "port", "token", "user")

    def __init__(
        self,
        host: str,
        port: int | None,
        *,
        user: str = "",
        password: str = "",
        token: str = "",
        authority: str = "",
        pin: str = "",
    ) -> None:
        self.host = host
        self.port = port
        self.user = user
        self.password = password
        self.token = token
        self.authority = authority
        self.pin = pin


def is_given(environ: Mapping[str, str] = os.environ) -> bool:
    """Tell whether the commands work over the REST interface."""
    return bool(environ.get(VARIABLE))


def read(environ: Mapping[str, str] = os.environ) -> Address:
    """Return the address in the environment.

    :raises ParameterError: a variable is wrong, or a file cannot be read; the message has neither
        password nor token.
    """
    from urllib.parse import unquote

    from ganeti.cli import rest_address

    try:
        where = rest_address.split(environ[VARIABLE])
    except errors.ParseError as err:
        raise errors.ParameterError(f"the variable {VARIABLE} is wrong: {err}") from err
    user, password = unquote(where.username or ""), unquote(where.password or "")
    token = _token(environ)
    if user and token:
        raise errors.ParameterError(
            f"{VARIABLE} has a user name, and {TOKEN_VARIABLE} a token; give only one of them"
        )
    if user and not password:
        raise errors.ParameterError(
            f"{VARIABLE} has a user name without a password; give https://USER:PASSWORD@HOST, or"
            f" a token in {TOKEN_VARIABLE} or {TOKEN_FILE_VARIABLE}"
        )
    pin = environ.get(PIN_VARIABLE, "")
    if pin and not pin.startswith(_PIN_START):
        raise errors.ParameterError(
            f"the variable {PIN_VARIABLE} begins with '{_PIN_START}'; 'rapi-passwd --pin' on the"
            " master prints it"
        )
    authority = environ.get(AUTHORITY_VARIABLE, "")
    if authority and not os.access(authority, os.R_OK):
        raise errors.ParameterError(
            f"the file {authority} in the variable {AUTHORITY_VARIABLE} cannot be read"
        )
    return Address(
        str(where.hostname),
        where.port,
        user=user,
        password=password,
        token=token,
        authority=authority,
        pin=pin,
    )


def _token(environ: Mapping[str, str]) -> str:
    path = environ.get(TOKEN_FILE_VARIABLE, "")
    token = environ.get(TOKEN_VARIABLE, "")
    if path and not token:
        try:
            with open(path, encoding="utf-8") as file:
                if os.fstat(file.fileno()).st_mode & 0o077:
                    terminal.err(
                        f"Warning: other users can read the token in {path}."
                        f" Use 'chmod 600 {path}'."
                    )
                token = file.readline(4096)
        except (OSError, UnicodeDecodeError) as err:
            reason = err.strerror if isinstance(err, OSError) else "it is not a text"
            raise errors.ParameterError(
                f"the file {path} in the variable {TOKEN_FILE_VARIABLE} cannot be read: {reason}"
            ) from err
        if not token.strip():
            raise errors.ParameterError(
                f"the file {path} in the variable {TOKEN_FILE_VARIABLE} has no token in its first"
                " line"
            )
    token = token.strip()
    if any(not "!" <= sign <= "~" for sign in token):
        raise errors.ParameterError(
            f"the token has a character which no token has; check {TOKEN_VARIABLE} and"
            f" {TOKEN_FILE_VARIABLE}"
        )
    return token
