"""What the watcher does with each instance of a node group: pure functions of what it has observed.

The functions send no requests and read no clock, so that each case can be tried with plain values.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from ganeti.constants import instance as instance_c
from ganeti.objects.start_order import start_order
from ganeti.watcher.memory import Memory

#: Seconds after which an import from another cluster that has not ended is given up.
IMPORT_S = 24 * 3600
#: Maximum number of restarts of one instance; then an administrator has to act.
MAX_RESTARTS = 5
#: Seconds after the last restart of an instance when its restarts are forgotten.
FORGET_S = 8 * 3600


class ObservedNode(NamedTuple):
    """A node, as the master and the node itself describe it.

    :ivar boot_id: changes with each start of the machine; None when the node did not answer.
    :ivar maintenance: it is in maintenance, and left alone.
    """

    name: str
    offline: bool
    boot_id: str | None
    maintenance: bool = False


class ObservedInstance(NamedTuple):
    """An instance with its present state.

    :ivar status: one of ``constants.instance.STATUS_*``.
    :ivar nodes: names of its nodes, the primary node first.
    :ivar disks_active: whether it has disks which should be active.
    :ivar maintenance: names of those of its nodes which are in maintenance, and left alone.
    :ivar importing_since: when its import or its copy began, in seconds since 1970; None
        when it has ended, or there was none.
    :ivar uuid: empty when it is not known.
    :ivar guest_state: why its guest lives and does not run, as its hypervisor says it; empty when
        it runs, or has none.
    """

    name: str
    status: str
    nodes: tuple[str, ...]
    disks_active: bool
    tags: tuple[str, ...] = ()
    maintenance: tuple[str, ...] = ()
    importing_since: float | None = None
    uuid: str = ""
    guest_state: str = ""


class Decision(NamedTuple):
    """What the watcher does with an instance, and why.

    :ivar act: False when it does nothing.
    """

    instance: str
    act: bool
    why: str


def restarts(
    instances: Iterable[ObservedInstance],
    memory: Memory,
    busy: Mapping[str, int],
    now: float,
) -> list[Decision]:
    """Decide for each instance that is not as it should be whether it is started.

    Each of the first :data:`MAX_RESTARTS` runs starts it: the time between two runs is the delay.

    :param busy: name of an instance -> an unfinished job which names it.
    :param now: seconds since 1970.
    :returns: in the order in which the instances start.
    """
    return [
        Decision(one.name, *_restart(one, memory, busy.get(one.name), now))
        for one in sorted(instances, key=lambda one: (start_order(one.tags), one.name))
        if one.status in _COMPLAINTS
        or one.status == instance_c.STATUS_ERRORDOWN
        or (one.status == instance_c.STATUS_RUNNING and one.guest_state)
    ]


# What an instance in each of these states needs from somebody else.
_COMPLAINTS = {
    instance_c.STATUS_ERRORUP: "it runs, but should be stopped. Stop it with 'gnt-instance"
    " shutdown', or start it with 'gnt-instance startup' if it should run",
    instance_c.STATUS_WRONGNODE: "it runs on another node than its primary node; see 'gnt-instance"
    " info', and use 'gnt-instance migrate --cleanup' after a broken migration",
    instance_c.STATUS_NODEDOWN: "its primary node does not answer",
}


def _restart(
    one: ObservedInstance,
    memory: Memory,
    job_id: int | None,
    now: float,
) -> tuple[bool, str]:
    if one.nodes and one.nodes[0] in one.maintenance:
        return False, f"its primary node {one.nodes[0]} is in maintenance"
    if one.status in _COMPLAINTS:
        return False, _COMPLAINTS[one.status]
    down = f"halted ({one.guest_state})" if one.guest_state else "down"
    if job_id is not None:
        return False, f"it is {down}, but job {job_id} is running on it"
    if one.status == instance_c.STATUS_RUNNING:
        # Somebody wanted it, or a migration was interrupted.
        return False, f"it should run, but is {down}; see 'gnt-instance info {one.name}'"
    count, _last = memory.restarts_of(one.name, now)
    if count >= MAX_RESTARTS:
        return False, (
            f"it is {down}, and {count} restarts in the last {FORGET_S // 3600} hours did not keep"
            " it running. Look for the reason, and start it with 'gnt-instance startup'"
        )
    return True, f"it should run, but is {down} (restart {count + 1} of at most {MAX_RESTARTS})"


def unfinished_imports(
    instances: Iterable[ObservedInstance], busy: Mapping[str, int], now: float
) -> list[Decision]:
    """Decide which instances are removed because their import, or their copy, never ended.

    :param busy: as for :func:`restarts`.
    :param now: seconds since 1970.

    Source: Ganeti design 2.2, instance moves between clusters.
    """
    found = []
    for one in instances:
        if one.importing_since is None:
            continue
        left_s = one.importing_since + IMPORT_S - now
        if one.name in busy:
            found.append(Decision(one.name, False, f"job {busy[one.name]} imports or copies it"))
        elif one.status != instance_c.STATUS_ADMINDOWN:
            found.append(
                Decision(one.name, False, f"its import or copy has not ended ({one.status})")
            )
        elif left_s > 0:
            found.append(
                Decision(
                    one.name,
                    False,
                    "its import or copy has not ended, and no job works on it; it is removed in"
                    f" {left_s:.0f} seconds, unless it is started before",
                )
            )
        else:
            found.append(
                Decision(
                    one.name, True, f"its import or copy has not ended in {IMPORT_S // 3600} hours"
                )
            )
    return found


def rebooted(nodes: Iterable[ObservedNode], memory: Memory) -> dict[str, str]:
    """Return the nodes whose machine has started again since the last run: name -> boot ID.

    A node which was never seen counts, too: nothing is known about the disks on it.
    """
    return {
        node.name: node.boot_id
        for node in nodes
        if node.boot_id is not None
        and not node.offline
        and not node.maintenance
        and memory.boot_ids.get(node.name) != node.boot_id
    }


def activations(
    instances: Sequence[ObservedInstance],
    nodes: Iterable[str],
    busy: Mapping[str, int],
    started: Iterable[str],
) -> list[Decision]:
    """Decide whose disks are activated, after machines have started again.

    :param nodes: names of these machines.
    :param busy: as for :func:`restarts`.
    :param started: instances which were just started, which has activated their disks.
    """
    back, done = set(nodes), set(started)
    found = []
    for one in instances:
        affected = sorted(back.intersection(one.nodes))
        if not one.disks_active or not affected or one.name in done:
            continue
        if one.status == instance_c.STATUS_ERRORDOWN:
            continue  # a start activates the disks, and whether it is started is decided above
        if one.name in busy:
            found.append(Decision(one.name, False, f"job {busy[one.name]} is running on it"))
        elif one.maintenance:
            found.append(Decision(one.name, False, _in_maintenance(one)))
        else:
            found.append(Decision(one.name, True, f"node {', '.join(affected)} has started again"))
    return found


def inactive(
    names: Iterable[str],
    instances: Sequence[ObservedInstance],
    busy: Mapping[str, int],
    handled: Iterable[str],
) -> list[Decision]:
    """Decide whose disks are activated, after the verification has found inactive ones.

    :param names: instances with inactive disks.
    :param busy: as for :func:`restarts`.
    :param handled: instances which this run has started, or whose disks it has activated.
    """
    by_name = {one.name: one for one in instances}
    done = set(handled)
    found = []
    for name in sorted(set(names) - done):
        one = by_name.get(name)
        if one is None or one.status == instance_c.STATUS_ERRORDOWN:
            continue  # removed meanwhile, or left for the restarts
        if name in busy:
            found.append(Decision(name, False, f"job {busy[name]} is running on it"))
        elif one.maintenance:
            found.append(Decision(name, False, _in_maintenance(one)))
        elif one.status in (instance_c.STATUS_NODEDOWN, instance_c.STATUS_NODEOFFLINE):
            found.append(Decision(name, False, "its primary node does not answer or is offline"))
        else:
            found.append(Decision(name, True, "some of its disks are not active"))
    return found


def _in_maintenance(one: ObservedInstance) -> str:
    return f"its disks wait for node {', '.join(one.maintenance)}, which is in maintenance"
