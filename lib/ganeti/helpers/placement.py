"""Answer one question about placement, in a process which can be ended at any time.

The REST daemon starts it: a search may take many seconds of processor time, which its loop does not
have. The question is a JSON object on standard input: ``question``, ``options`` and ``body`` as of
:func:`ganeti.client.htools.questions.answer`. The answer is a JSON object on standard output:
``answer``, or ``error`` with the reason, and ``conflict``: true if the question is right and the
cluster has no answer to it. The cluster is read from the master daemon of this machine.

``python -m ganeti.helpers.placement SECONDS BYTES``: processor time and memory which it may take.
"""

from __future__ import annotations

import os
import resource
import signal
import sys

from ganeti import errors
from ganeti.wire import json


def main() -> int:
    """Answer the question; returns the exit code."""
    os.nice(5)
    seconds, most_bytes = (int(word) for word in sys.argv[1:3])
    for what, most in (
        (resource.RLIMIT_CPU, seconds),
        (resource.RLIMIT_AS, most_bytes),
        (resource.RLIMIT_CORE, 0),
    ):
        hard = resource.getrlimit(what)[1]
        wanted = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.setrlimit(what, (wanted, wanted))
    from ganeti.client.htools import questions  # after the limits are set

    found: dict[str, object]
    try:
        asked = json.loads(sys.stdin.read())
        found = {"answer": questions.answer(asked["question"], asked["options"], asked["body"])}
    except errors.GenericError as err:
        found = {"error": str(err), "conflict": isinstance(err, questions.NoCapacityError)}
    except MemoryError:
        # As when the processor time is not enough.
        signal.raise_signal(signal.SIGKILL)
        return 1
    sys.stdout.write(json.dumps(found))
    sys.stdout.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main())
