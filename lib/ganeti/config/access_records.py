"""The access records of a cluster: what they may contain, how many there may be, when they end.

An access record is what the cluster keeps about a session, a token or another proof of the identity
of a user of the REST interface. It is in the configuration, because it must be on the candidates
when the role of the master moves.

Source: ``doc/design-rest-identities.rst``, *Access records*.
"""

from __future__ import annotations

import re
import uuid
from typing import Final

from ganeti import errors
from ganeti.objects import AccessRecord
from ganeti.wire import json

#: Every record is a part of the configuration, which the candidates have in memory and on disk.
MAX_RECORDS: Final = 5_000
#: Largest number of records of one kind and owner.
MAX_OF_OWNER: Final = 200
MAX_DATA_BYTES: Final = 4096
#: Seconds for which a record is kept after its end: while the clock of the master is wrong, records
#: seem to be at their end, and are valid again when the clock is right.
KEPT_S: Final = 86_400.0
#: A time which is this many seconds in the future was written while a clock was wrong.
SKEW_S: Final = 600.0

_NAMESPACE: Final = uuid.UUID("0f5a3c9e-6f0b-4c39-9d0a-1c7a2f6b8e51")
_KIND: Final = re.compile(r"[a-z][a-z-]{0,31}")
_KEY: Final = re.compile(r"[A-Za-z0-9_-]{1,128}")
_OWNER_LENGTH: Final = 256


def uuid_of(kind: str, key: str) -> str:
    """Return the UUID of the record with this kind and key."""
    # A client may send characters which no record can have; then there is no such record.
    text = f"{kind}/{key}".encode("utf-8", "backslashreplace").decode("utf-8")
    return str(uuid.uuid5(_NAMESPACE, text))


def check(record: AccessRecord) -> None:
    """Check the content of a record. No message contains the key or the data.

    :raises ParameterError: a part of it is not allowed.
    """
    if not _KIND.fullmatch(record.kind):
        raise errors.ParameterError(
            f"{record.kind!r:.40} cannot be the kind of an access record: at most 32 lower-case"
            " letters and '-', a letter first"
        )
    if not _KEY.fullmatch(record.key):
        raise errors.ParameterError(
            "the key of an access record has at most 128 letters, digits, '-' and '_'"
        )
    if not record.owner or len(record.owner) > _OWNER_LENGTH:
        raise errors.ParameterError(
            f"the owner of an access record is a name of at most {_OWNER_LENGTH} characters"
        )
    size = len(json.dumps(record.data))
    if size > MAX_DATA_BYTES:
        raise errors.ParameterError(
            f"the data of an access record have {size} bytes; at most {MAX_DATA_BYTES} are allowed"
        )


def ended(record: AccessRecord, now: float) -> bool:
    """Return whether a record ended so long ago that it can be removed."""
    return record.expires is not None and record.expires + KEPT_S < now
