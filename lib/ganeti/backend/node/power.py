"""Power cycle of this machine.

The answer must reach the master before the machine is reset, so a separate process waits a few
seconds and then asks the kernel. No data is flushed and no guest is stopped: the call is for
machines which do not react otherwise.
"""

from __future__ import annotations

import logging
import os
import time

from ganeti import errors
from ganeti.backend.registry import serves
from ganeti.objects import hypervisors
from ganeti.platform import machine
from ganeti.utils import process
from ganeti.wire import calls

_DELAY_S = 5.0
_SYSRQ_ENABLE = "/proc/sys/kernel/sysrq"
_SYSRQ_TRIGGER = "/proc/sysrq-trigger"
_COMMAND_TIMEOUT_S = 60.0


@serves(calls.NODE_POWERCYCLE)
def powercycle(hypervisor: str, hvparams: dict[str, object]) -> str:
    """Reset this machine after a few seconds.

    :raises ConfigurationError: this node belongs to a virtual cluster, so the machine is not reset.
    """
    if hypervisor not in hypervisors.ALL:
        raise errors.ConfigurationError(f"there is no hypervisor {hypervisor!r:.80}")
    here = machine.current()
    if not here.may_be_reset:
        raise errors.ConfigurationError(
            f"node {here.hostname()} is part of a virtual cluster, its machine is not reset"
        )
    pid = os.fork()
    if pid == 0:
        _reset(hypervisor)
    return f"reboot scheduled in {_DELAY_S:g} seconds"


def _reset(hypervisor: str) -> None:
    """Leave the session of the caller, wait, and reset the machine; runs in a child process."""
    try:
        os.setsid()
        time.sleep(_DELAY_S)
        try:
            for path, text in ((_SYSRQ_ENABLE, "1\n"), (_SYSRQ_TRIGGER, "b\n")):
                with open(path, "w", encoding="ascii") as stream:
                    stream.write(text)
        except OSError as err:
            logging.error("cannot reset this machine by %s: %s", _SYSRQ_TRIGGER, err)
            argv = hypervisors.of(hypervisor).reset_argv
            process.run(argv, timeout_s=_COMMAND_TIMEOUT_S)
    except errors.CommandError as err:
        logging.error("cannot reset this machine: %s", err)
    finally:
        os._exit(0)
