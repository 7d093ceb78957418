"""The HTTP status for each kind of error of the master.

=========================================== ======
no master daemon here, or it has ended      502
no answer in time                           504
the queue is full or drained                503
no permission to connect to it              500
the object or job does not exist            404
the request is wrong                        400
the request contradicts the present state   409
anything else                               500
=========================================== ======

The header ``X-Ganeti-Error`` names the class of the error and its code, so that a program gets the
same error from the REST interface as from the socket of the master.
"""

from __future__ import annotations

from typing import Final

from ganeti import errors
from ganeti.http.messages import Refused
from ganeti.wire import errors as wire_errors

#: The header with class and code of an error.
KIND_HEADER: Final = "X-Ganeti-Error"
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
    """Make the answer for a request which the master refused."""
    if isinstance(err, Refused):
        return err
    found = _refusal(err)
    kind = wire_errors.encode(err)[0]
    if isinstance(err, errors.OpPrereqError) and err.ecode in errors.ECODE_ALL:
        kind += f" {err.ecode}"
    found.headers += ((KIND_HEADER, kind),)
    return found


def _refusal(err: errors.GenericError) -> Refused:
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
        # The master refused a request of this daemon, which holds the arguments of the client.
        return Refused(502, str(err))
    if isinstance(err, errors.LuxiError):
        return Refused(502, str(err), headers=_AGAIN)
    return Refused(500, str(err))
