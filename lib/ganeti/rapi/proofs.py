"""The parts of the daemon that know what proves an identity."""

from __future__ import annotations

import dataclasses

from ganeti.rapi.kept_records import KeptRecords
from ganeti.rapi.users import Users


@dataclasses.dataclass(slots=True)
class Proofs:
    """What operations about identities need.

    :ivar users: None for a server without a users file.
    """

    records: KeptRecords
    users: Users | None = None
