"""Measures node calls with the key of the node pinned, and without, in turns.

Part of ``make bench`` (:mod:`devel.bench`). Three kinds of calls: on a kept connection, with a new
connection whose TLS session is resumed, and with a full handshake.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, NamedTuple

from ganeti import errors, vcluster
from ganeti.config.members import read_members
from ganeti.platform import paths
from ganeti.rpc import AddressRunner, open_client
from ganeti.rpc.results import Result
from ganeti.wire.calls import NODE_WORK, VERSION

KINDS = ("kept", "resumed", "full")


class Times(NamedTuple):
    """Milliseconds of each call."""

    plain_ms: list[float]
    pinned_ms: list[float]


def measure(cluster: vcluster.VirtualCluster, rounds: int) -> dict[str, Times]:
    """Call the second node, alternately without and with its pin.

    :returns: one of :data:`KINDS` -> times of the calls.
    :raises errors.RpcError: a call failed.
    """
    here = cluster.paths(cluster.nodes[0])
    with paths.override(here):
        node = read_members(here.cluster_conf_file).nodes[cluster.nodes[1].name]
        found = {kind: Times([], []) for kind in KINDS}
        runners = [_runner(here), _runner(here, {node.primary_ip: node.key_pins})]
        target = {node.name: node.primary_ip}
        for number in range(rounds + 1):
            for place in (0, 1) if number % 2 else (1, 0):
                runner = runners[place]
                for kind, ask in _asks(runner, target).items():
                    if kind == "full":
                        runner.trust_changed()
                    elapsed_ms = _timed(ask, node.name)
                    if number:
                        found[kind][place].append(elapsed_ms)
                # The sessions and connections of the next round.
                for ask in _asks(runner, target).values():
                    _timed(ask, node.name)
    return found


def _runner(here: paths.Paths, pins: Any = None) -> AddressRunner:
    runner = AddressRunner(open_client(here))
    runner.expect_keys(pins or {})
    return runner


def _asks(
    runner: AddressRunner, target: dict[str, str]
) -> dict[str, Callable[[], dict[str, Result]]]:
    return {
        "kept": lambda: runner.call_addresses(NODE_WORK, target, revoke=[]),
        "resumed": lambda: runner.call_addresses(VERSION, target),
        "full": lambda: runner.call_addresses(VERSION, target),
    }


def _timed(ask: Callable[[], dict[str, Result]], name: str) -> float:
    started = time.perf_counter()
    failure = ask()[name].failure
    elapsed_ms = (time.perf_counter() - started) * 1000
    if isinstance(failure, errors.RpcError):
        raise failure
    return elapsed_ms
