"""The main function of ``ganeti-watchdogd``: loop and signals. The work is in its own package.

The daemon runs on every node of a cluster with the parameter ``node_watchdog``. It ends when the
master has released the node from its promise; if it is killed, the machine restarts.

Source: ``doc/design-instance-failover.rst``, *A machine which restarts itself*.
"""

from __future__ import annotations

import argparse
import logging
import time
from functools import partial
from typing import Final

from ganeti import errors
from ganeti.confd.client import default_port
from ganeti.config.ssconf import SimpleStore
from ganeti.constants import ssconf as ssconf_c
from ganeti.platform import machine, paths, watchdog_files
from ganeti.server import daemon
from ganeti.utils import fs, urgent
from ganeti.utils.net import wait_readable
from ganeti.watchdogd import feeder
from ganeti.watchdogd.candidate_poll import CandidatePoll
from ganeti.watchdogd.device import Device

NAME = watchdog_files.DAEMON

_log = logging.getLogger(__name__)


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of this daemon."""
    parser.add_argument(
        "--device",
        metavar="FILE",
        default=paths.current().watchdog_device,
        help="the hardware watchdog of this machine (default: %(default)s)",
    )


def check(options: argparse.Namespace) -> None:
    """Refuse to start on a machine that is not a node.

    :raises StartRefused: this machine is not a node.
    """
    daemon.require_member(paths.current().hmac_key)


def read_facts() -> feeder.Facts:
    """Read the files of this node.

    :raises ConfigurationError: a file is missing, or cannot be read.
    """
    store = SimpleStore()
    try:
        timeout_s = int(store.get(ssconf_c.NODE_WATCHDOG) or "0")
        key = fs.read_bytes(paths.current().hmac_key)
    except ValueError as err:
        raise errors.ConfigurationError(f"ssconf value {ssconf_c.NODE_WATCHDOG}: {err}") from err
    except OSError as err:
        raise errors.ConfigurationError(f"cannot read {err.filename}: {err.strerror}") from err
    candidates = tuple(store.get(ssconf_c.MASTER_CANDIDATES_IPS).split())
    return feeder.Facts(timeout_s, candidates, key)


def _now() -> float:
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def _be_urgent() -> None:
    """Feed the device in time also on a busy machine: else a healthy one would restart."""
    for problem, what in (
        (urgent.lock_memory_with_limit(), "lock all memory"),
        (urgent.use_real_time(), "get real-time priority"),
    ):
        if problem:
            _log.warning(
                "cannot %s: %s. The machine may restart when it is very busy.", what, problem
            )


def prepare(options: argparse.Namespace) -> tuple[feeder.Feeder, CandidatePoll]:
    """Read the promise which is kept.

    :raises ConfigurationError: it is damaged.
    """
    _be_urgent()
    poll = CandidatePoll(machine.current().hostname(), default_port())
    return feeder.Feeder(poll, partial(Device.open, options.device), read_facts, _now), poll


def run(
    options: argparse.Namespace,
    prepared: tuple[feeder.Feeder, CandidatePoll],
    signals: daemon.Signals,
) -> int | None:
    """Keep the promise until a signal says to stop, and the master has released this node."""
    guard, poll = prepared
    while True:
        guard.poll()
        if guard.is_done():
            return None
        readable = wait_readable([signals, *poll.descriptors()], feeder.POLL_S)
        if signals.fileno() in readable and signals.take_stop():
            guard.stop()


DAEMON: Final = daemon.Daemon(NAME, check, prepare, run, add_options=add_options)
main = DAEMON.main
