"""What the master reports, as HTTP says it.

=========================================== ======
no master daemon here, or it went away      502
it did not answer in time                   504
the queue is full or drained                503
we may not talk to it                       500
there is no such object or job              404
the request cannot be done as it is         400
it contradicts the present state            409
anything else                               500
=========================================== ======
"""

from __future__ import annotations

from typing import Final

from ganeti import errors
from ganeti.http.messages import Refused

_AGAIN: Final = (("Retry-After", "5"),)
_ECODES: Final = {
    errors.ECODE_NOENT: 404,
    errors.ECODE_INVAL: 400,
    errors.ECODE_STATE: 409,
    errors.ECODE_EXISTS: 409,
    errors.ECODE_NOTUNIQUE: 409,
    errors.ECODE_NORES: 409,
    errors.ECODE_TEMP_NORES: 503,
}


def refusal(err: errors.GenericError) -> Refused:
    """The answer to a request that failed at the master."""
    if isinstance(err, Refused):
        return err
    if isinstance(err, errors.OpPrereqError):
        return Refused(_ECODES.get(err.ecode, 500), str(err))
    if isinstance(err, errors.JobLost):
        return Refused(404, str(err))
    if isinstance(err, errors.JobQueueFull | errors.JobQueueDrainError):
        return Refused(503, str(err) or "the job queue is full", headers=_AGAIN)
    if isinstance(err, errors.ParseError | errors.ParameterError | errors.OpCodeUnknown):
        return Refused(400, str(err))
    if isinstance(err, errors.LuxiPermissionError):
        return Refused(500, str(err))
    if isinstance(err, errors.LuxiTimeout):
        return Refused(504, str(err), headers=_AGAIN)
    if isinstance(err, errors.RequestError):
        # The master did not like our words; what the client said was in them.
        return Refused(502, str(err))
    if isinstance(err, errors.LuxiError):
        return Refused(502, str(err), headers=_AGAIN)
    return Refused(500, str(err))
