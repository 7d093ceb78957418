"""The states in which the replicas of a mirrored disk may be when an operation begins.

Each function brings a :class:`fakes.confirmed.Lab` into a state, with the instance running or
stopped. Where a node has lost its power, the guest died with it, though it is marked to run.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from fakes.confirmed import PRIMARY, SECONDARY, Lab
from ganeti.opcodes import instance as ops

State = Callable[[Lab, bool], None]

STATES: dict[str, State] = {}
#: States which only a stopped instance can be in.
STOPPED_ONLY: set[str] = set()


def _state(function: State) -> State:
    STATES[function.__name__] = function
    return function


def _stopped_only(function: State) -> State:
    STOPPED_ONLY.add(function.__name__)
    return _state(function)


def _begin(lab: Lab) -> None:
    lab.start()
    lab.write()


def _end(lab: Lab, running: bool) -> None:
    if not running:
        lab.stop()


@_state
def good(lab: Lab, running: bool) -> None:
    """Both replicas are connected and in sync."""
    _begin(lab)
    _end(lab, running)


@_stopped_only
def no_record(lab: Lab, running: bool) -> None:
    """Both are good and can be compared, but the configuration says nothing about them."""
    good(lab, running)
    lab.forget_records()


@_state
def remote_stale(lab: Lab, running: bool) -> None:
    """The secondary node missed writes; a stopped instance's replicas would connect again."""
    _begin(lab)
    lab.cut()
    lab.write()
    _end(lab, running)
    if not running:
        lab.kernel.heal()


@_stopped_only
def remote_stale_cut(lab: Lab, running: bool) -> None:
    """The same, and the replicas cannot connect."""
    remote_stale(lab, running)
    lab.cut()


@_stopped_only
def local_stale(lab: Lab, running: bool) -> None:
    """The primary node lost its storage while the guest wrote; it has it again, without these
    writes."""
    detached_local(lab, True)
    lab.stop()


@_stopped_only
def local_stale_cut(lab: Lab, running: bool) -> None:
    """The same, and the replicas cannot connect."""
    local_stale(lab, running)
    lab.cut()


@_state
def unknown_remote(lab: Lab, running: bool) -> None:
    """Nobody can compare and there is no record; the primary node has all data."""
    remote_stale(lab, running)
    lab.forget_records()
    lab.cut()


@_stopped_only
def unknown_local(lab: Lab, running: bool) -> None:
    """Nobody can compare and there is no record; only the secondary node has all data."""
    local_stale_cut(lab, running)
    lab.forget_records()


@_state
def detached_local(lab: Lab, running: bool) -> None:
    """The primary node lost its storage; the guest works with that of the secondary node."""
    _begin(lab)
    if not running:
        lab.stop()
        lab.activate()
    lab.kernel.detach(lab.key(PRIMARY))
    if running:
        lab.write()


@_state
def detached_remote(lab: Lab, running: bool) -> None:
    """The secondary node lost its storage."""
    _begin(lab)
    if not running:
        lab.stop()
        lab.activate()
    lab.kernel.detach(lab.key(SECONDARY))
    if running:
        lab.write()


@_state
def syncing_remote(lab: Lab, running: bool) -> None:
    """Data are copied to the secondary node."""
    remote_stale(lab, running)
    lab.kernel.sync_s = math.inf
    if running:
        lab.kernel.heal()
    else:
        lab.activate()
    lab.kernel.settle()
    lab.kernel.sync_s = 20.0


@_state
def syncing_local(lab: Lab, running: bool) -> None:
    """Data are copied to the primary node."""
    if running:
        _begin(lab)
        minor = lab.kernel.minors[lab.key(PRIMARY)]
        assert minor.data is not None and minor.meta is not None
        storage = (minor.data, minor.meta)
        lab.kernel.detach(lab.key(PRIMARY))
        lab.write()
        lab.kernel.sync_s = math.inf
        lab.kernel.attach(lab.key(PRIMARY), *storage)
    else:
        local_stale(lab, running)
        lab.kernel.sync_s = math.inf
        lab.activate()
    lab.kernel.settle()
    lab.kernel.sync_s = 20.0


@_stopped_only
def half_local(lab: Lab, running: bool) -> None:
    """Copying to the primary node was broken off, and the replicas cannot connect."""
    syncing_local(lab, running)
    lab.run(ops.OpInstanceDeactivateDisks(instance_name=lab.name))
    lab.cut()


@_state
def split(lab: Lab, running: bool) -> None:
    """The secondary node was promoted while it was alone, so none is newer than the other."""
    _begin(lab)
    lab.cut()
    lab.write()
    key = lab.key(SECONDARY)
    lab.kernel.open(key, force=False)
    lab.kernel.close(key)
    _end(lab, running)
    lab.kernel.heal()
    lab.kernel.settle()


@_state
def secondary_offline(lab: Lab, running: bool) -> None:
    """The secondary node is dead and marked offline."""
    _begin(lab)
    lab.power_off(SECONDARY)
    lab.mark_offline(SECONDARY)
    lab.write()
    _end(lab, running)


@_state
def secondary_dead(lab: Lab, running: bool) -> None:
    """The secondary node is dead, which nobody has recorded."""
    good(lab, running)
    lab.power_off(SECONDARY)
    if running:
        lab.write()


@_state
def secondary_silent(lab: Lab, running: bool) -> None:
    """The node daemon of the secondary node does not answer; the node works."""
    good(lab, running)
    lab.nodes.silent.add(SECONDARY)
    if running:
        lab.write()


@_state
def primary_offline(lab: Lab, running: bool) -> None:
    """The primary node is dead and marked offline."""
    primary_dead(lab, running)
    lab.mark_offline(PRIMARY)


@_state
def primary_offline_alive(lab: Lab, running: bool) -> None:
    """The primary node is marked offline, but works, and so does a guest there."""
    good(lab, running)
    lab.mark_offline(PRIMARY)
    if running:
        lab.write()


@_state
def primary_dead(lab: Lab, running: bool) -> None:
    """The primary node is dead, which nobody has recorded."""
    good(lab, running)
    lab.power_off(PRIMARY)


@_state
def primary_silent(lab: Lab, running: bool) -> None:
    """The node daemon of the primary node does not answer; the guest there goes on."""
    good(lab, running)
    lab.nodes.silent.add(PRIMARY)
    if running:
        lab.write()


@_state
def secondary_old(lab: Lab, running: bool) -> None:
    """The secondary node came back with old data, such as a disk which had been replaced."""
    _begin(lab)
    lab.mark_data(SECONDARY)
    _lose_contact_for_a_moment(lab)
    lab.write()
    _end(lab, running)
    lab.old_data(SECONDARY)
    if running:
        lab.write()


@_state
def primary_old(lab: Lab, running: bool) -> None:
    """The primary node came back with old data; a guest which ran there died."""
    _begin(lab)
    lab.mark_data(PRIMARY)
    _lose_contact_for_a_moment(lab)
    lab.write()
    _end(lab, running)
    lab.old_data(PRIMARY)


def _lose_contact_for_a_moment(lab: Lab) -> None:
    """DRBD tells data from before from those after by that."""
    lab.cut()
    lab.kernel.heal()
    lab.kernel.settle()
