"""The parts of the daemon that know what proves an identity."""

from __future__ import annotations

import dataclasses

from ganeti.rapi.kept_records import KeptRecords
from ganeti.rapi.login import SecondFactor
from ganeti.rapi.oidc.logins import OidcLogins
from ganeti.rapi.passkeys import Passkeys
from ganeti.rapi.sessions import Sessions
from ganeti.rapi.totp_factor import TotpFactor
from ganeti.rapi.users import Users


@dataclasses.dataclass(slots=True)
class Proofs:
    """What operations about identities need.

    :ivar users: None for a server without a users file.
    :ivar sessions: None for a server without sessions.
    :ivar factors: the second factors which users may have.
    :ivar oidc: logins at another server; None for a server without a users file.
    :ivar totp: the one-time codes of users; None for a server without them.
    :ivar passkeys: None for a server without them.
    """

    records: KeptRecords
    users: Users | None = None
    sessions: Sessions | None = None
    factors: list[SecondFactor] = dataclasses.field(default_factory=list)
    oidc: OidcLogins | None = None
    totp: TotpFactor | None = None
    passkeys: Passkeys | None = None
