"""What a simulated node answers: a function for each call, by its name in the table of calls.

The functions here are about the node itself and about guests; :mod:`.disks` has those about disks,
:mod:`.copies` those about what the master writes. Each gets the node and the decoded arguments of
the call.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from devel.simnodes import state
from devel.simnodes.state import Guest, Replica, SimNode
from ganeti import FULL_VERSION, errors
from ganeti.constants import disk as disk_const
from ganeti.constants import node_verify as nv
from ganeti.constants import rpc
from ganeti.objects import FilledInstance, FilledNic
from ganeti.objects.transfer import MigrationStatus
from ganeti.utils import clock, text
from ganeti.wire import calls
from ganeti.wire.calls.base import Call

Answer = Callable[..., Any]
_Function = TypeVar("_Function", bound=Answer)

#: Name of the call -> function.
ANSWERS: dict[str, Answer] = {}

_VG = "xenvg"


def answers(*served: Call) -> Callable[[_Function], _Function]:
    """Return a decorator which registers the answer to calls."""

    def register(function: _Function) -> _Function:
        ANSWERS.update((call.name, function) for call in served)
        return function

    return register


@answers(
    calls.BRIDGES_EXIST,
    calls.CONSOLE_LOG_REMOVE,
    calls.HOTPLUG_SUPPORTED,
    calls.HYPERVISOR_VALIDATE_PARAMS,
    calls.INSTANCE_METADATA_MODIFY,
    calls.INSTANCE_OS_ADD,
    calls.INSTANCE_RUN_RENAME,
    calls.ETC_HOSTS_MODIFY,
    calls.NODE_ENSURE_DAEMON,
    calls.NODE_CHANGE_MASTER_NETMASK,
    calls.TEST_DELAY,
)
def nothing(_node: SimNode, **_args: Any) -> None:
    """Answer that it is done; a simulated node keeps nothing of it."""


# -- the node --------------------------------------------------------------------------------------


@answers(calls.VERSION)
def version(_node: SimNode) -> int:
    """Return the version of the protocol."""
    return rpc.PROTOCOL_VERSION


def hypervisor_facts(node: SimNode) -> dict[str, Any]:
    """Return memory and processors."""
    free = node.free_memory_mib()
    return {
        "memory_total": state.MEMORY_MIB,
        "memory_free": 10 * state.MEMORY_MIB if node.lies else free,
        "memory_dom0": state.NODE_MEMORY_MIB,
        "cpu_total": state.CPUS,
        "cpu_nodes": 2,
        "cpu_sockets": 2,
        "cpu_dom0": 1,
    }


@answers(calls.NODE_INFO)
def node_info(
    node: SimNode, storage_units: list[list[Any]], hv_specs: list[list[Any]]
) -> list[Any]:
    """Return facts about storage and hypervisors."""
    units = []
    for kind, key, *_arguments in storage_units:
        known = kind in (disk_const.ST_LVM_VG, disk_const.ST_FILE)
        units.append(
            {
                "type": kind,
                "name": key,
                "storage_free": node.free_disk_mib() if known else None,
                "storage_size": state.DISK_MIB if known else None,
            }
        )
    return [node.boot_id, units, [hypervisor_facts(node) for _spec in hv_specs]]


@answers(calls.GET_WATCHER_PAUSE)
def watcher_pause(node: SimNode) -> float | None:
    """Return the end of the pause of the watcher."""
    return node.watcher_pause


@answers(calls.SET_WATCHER_PAUSE)
def set_watcher_pause(node: SimNode, until: float | None) -> None:
    """Set the end of the pause of the watcher."""
    node.watcher_pause = until


@answers(calls.NODE_HAS_IP_ADDRESS)
def has_ip_address(node: SimNode, address: str) -> bool:
    """Tell whether the node has an address."""
    return address == node.address


@answers(calls.NODE_WORK)
def node_work(_node: SimNode, revoke: list[str]) -> list[Any]:
    """Return no work: a call is over when it is answered."""
    return []


@answers(calls.HOOKS_PRESENT)
def hooks_present(_node: SimNode, wanted: list[list[str]]) -> list[bool]:
    """Answer that there are no hooks."""
    return [False] * len(wanted)


@answers(calls.HOOKS_RUNNER)
def run_hooks(_node: SimNode, hpath: str, phase: str, env: dict[str, str]) -> list[Any]:
    """Run no hook: the node has none."""
    return []


@answers(calls.NODE_POWERCYCLE)
def powercycle(node: SimNode, hypervisor: str, hvparams: dict[str, Any]) -> str:
    """Restart the machine; its guests end."""
    node.lose_power()
    return "the machine restarts"


@answers(calls.OS_DIAGNOSE)
def os_diagnose(_node: SimNode) -> list[list[Any]]:
    """Return one operating system."""
    return [["debian", "/srv/ganeti/os/debian", True, "", ["default"], [], [20], False]]


@answers(calls.OS_VALIDATE)
def os_validate(_node: SimNode, required: bool, name: str, **_args: Any) -> bool:
    """Accept every parameter of the operating system ``debian``.

    :raises OpPrereqError: it is another system.
    """
    if name.partition("+")[0] == "debian":
        return True
    if required:
        raise errors.OpPrereqError(f"the operating system '{name}' is not on this node")
    return False


@answers(calls.NODE_VERIFY, calls.NODE_VERIFY_LIGHT)
def node_verify(node: SimNode, checks: dict[str, Any], **_args: Any) -> dict[str, Any]:
    """Carry out the checks of ``gnt-cluster verify`` on the state of the node."""
    return {name: _verify(node, name, argument) for name, argument in checks.items()}


def _verify(node: SimNode, name: str, argument: Any) -> Any:
    if name in (nv.OOB_PATHS,):
        return [None] * len(argument)
    if name in _FACTS:
        return _FACTS[name](node, argument)
    # Checks which look for problems: an empty answer means that there are none.
    return None if name in _TEXTS else {} if name in _TABLES else []


def _checksums(node: SimNode, wanted: list[str]) -> dict[str, str]:
    found = {path: node.fleet.checksum(node, path) for path in wanted}
    return {path: digest for path, digest in found.items() if digest is not None}


def _volumes(node: SimNode, _argument: Any) -> dict[str, list[Any]]:
    used = {uuid for uuid, replica in node.replicas.items() if replica.has_disk}
    return {
        name: [f"{size:.2f}", False, bool(used)]
        for name, size in node.volumes.items()
        if not name.startswith("loop/")
    }


def _connections(node: SimNode, _argument: Any) -> list[dict[str, Any]]:
    return [_connection(node, replica) for _uuid, replica in sorted(node.replicas.items())]


def _connection(node: SimNode, replica: Replica) -> dict[str, Any]:
    one, other, port, _minor_a, _minor_b, secret = replica.disk.logical_id
    peer = node.fleet.nodes.get(other if one == node.uuid else one)
    connected = node.connected(replica.disk.uuid)
    theirs = peer.replicas.get(replica.disk.uuid) if peer is not None else None
    return {
        "minor": replica.minor,
        "connection": "Connected" if connected else "WFConnection",
        "role": "Primary" if replica.primary else "Secondary",
        "peer_role": "Primary" if theirs is not None and theirs.primary else "Secondary",
        "disk": "UpToDate" if replica.has_disk else "Diskless",
        "peer_disk": "UpToDate" if connected else "DUnknown",
        "storage": f"/dev/{state.volume_name(replica.disk.children[0])}",
        "local": [node.address, port],
        "remote": None if peer is None else [peer.address, port],
        "secret": text.secret_digest(secret),
        "dual_primary": False,
    }


_TEXTS = frozenset(
    (nv.FILE_STORAGE_PATH, nv.SHARED_FILE_STORAGE_PATH, nv.GLUSTER_STORAGE_PATH, nv.OPENVSWITCH)
) | {nv.NONVMNODES}
_TABLES = frozenset((nv.DEVICES, nv.NODENETTEST))
_FACTS: dict[str, Callable[[SimNode, Any], Any]] = {
    nv.CONFIG_JOURNAL: lambda _node, _: ["", []],
    nv.CLIENT_CERT: lambda node, _: [None, node.fleet.client_digest],
    nv.DAEMON_USER: lambda node, _: node.fleet.uid,
    nv.DRBDCONNECTIONS: _connections,
    nv.DRBDHELPER: lambda _node, _: [True, "/bin/true"],
    nv.DRBDLIST: lambda node, _: sorted(one.minor for one in node.replicas.values()),
    nv.DRBDMINORS: lambda _node, _: None,
    nv.DRBDVERSION: lambda _node, _: [8, 4, 11],
    nv.FILELIST: _checksums,
    nv.HVINFO: lambda node, _: hypervisor_facts(node),
    nv.HYPERVISOR: lambda _node, names: dict.fromkeys(names),
    nv.INSTANCELIST: lambda node, _: list(node.guests),
    nv.LVLIST: _volumes,
    nv.MASTERIP: lambda _node, _: True,
    nv.OSLIST: lambda node, _: os_diagnose(node),
    nv.TIME: lambda _node, _: list(clock.split(clock.now())),
    nv.VERSION: lambda _node, _: [rpc.PROTOCOL_VERSION, FULL_VERSION],
    nv.VGDUPLICATES: lambda _node, _: [],
    nv.VGLIST: lambda _node, _: {_VG: float(state.DISK_MIB)},
    nv.WATCHER: lambda _node, _: [[], None],
}


# -- guests ----------------------------------------------------------------------------------------


@answers(calls.INSTANCE_LIST)
def instance_list(node: SimNode, hypervisors: list[str], hvparams: dict[str, Any]) -> list[str]:
    """Return the names of the guests."""
    return [] if node.lies else [n for n, g in node.guests.items() if g.hypervisor in hypervisors]


@answers(calls.INSTANCE_INFO)
def instance_info(
    node: SimNode, instance_name: str, hypervisor: str, hvparams: dict[str, Any]
) -> dict[str, Any]:
    """Return the state of a guest; empty when it is not here."""
    guest = node.guests.get(instance_name)
    return {} if guest is None or node.lies else state.guest_info(guest, node.fleet.clock())


@answers(calls.ALL_INSTANCES_INFO)
def all_instances_info(
    node: SimNode, hypervisors: list[str], hvparams: dict[str, Any], apart: bool = False
) -> dict[str, dict[str, Any]]:
    """Return the states of all guests."""
    if node.lies:
        return {}
    now = node.fleet.clock()
    return {
        name: state.guest_info(guest, now)
        for name, guest in node.guests.items()
        if guest.hypervisor in hypervisors
    }


@answers(calls.GUESTS_USAGE)
def guests_usage(node: SimNode, hypervisors: list[str]) -> dict[str, Any]:
    """Return what the guests use: each a tenth of a processor."""
    now = node.fleet.clock()
    return {
        "clock": now,
        "guests": {
            name: {
                "cpu_s": (now - guest.since) / 10,
                "memory": guest.memory_mib,
                "vcpus": guest.vcpus,
                **dict.fromkeys(("disk_read", "disk_written", "net_in", "net_out")),
            }
            for name, guest in node.guests.items()
        },
    }


def _require(node: SimNode, name: str) -> Guest:
    guest = node.guests.get(name)
    if guest is None:
        raise errors.HypervisorError(f"instance {name} is not running")
    return guest


@answers(calls.INSTANCE_START)
def start(node: SimNode, instance: FilledInstance, startup_paused: bool, reason: Any) -> None:
    """Start a guest; one which runs is not changed.

    :raises HypervisorError: a disk is not active, or the memory does not suffice.
    """
    if instance.name in node.guests:
        return
    for disk in instance.disks_info:
        replica = node.replicas.get(disk.uuid)
        if disk.dev_type == disk_const.DRBD8 and (replica is None or not replica.primary):
            raise errors.HypervisorError(
                f"instance {instance.name}: {disk.iv_name} is not active on {node.name}"
            )
    memory = int(instance.beparams["maxmem"])
    if memory > node.free_memory_mib():
        raise errors.HypervisorError(f"node {node.name} has no {memory} MiB of memory")
    node.guests[instance.name] = Guest(
        instance.hypervisor, memory, int(instance.beparams["vcpus"]), since=node.fleet.clock()
    )


@answers(calls.INSTANCE_SHUTDOWN)
def shutdown(node: SimNode, instance: FilledInstance, timeout_s: int, reason: Any) -> None:
    """Stop a guest."""
    node.guests.pop(instance.name, None)


@answers(calls.INSTANCE_REBOOT)
def reboot(node: SimNode, instance: FilledInstance, **_args: Any) -> None:
    """Restart a guest.

    :raises HypervisorError: it does not run.
    """
    _require(node, instance.name).since = node.fleet.clock()


@answers(calls.INSTANCE_BALLOON_MEMORY)
def balloon(node: SimNode, instance: FilledInstance, memory_mib: int) -> None:
    """Change the memory of a guest.

    :raises HypervisorError: it does not run.
    """
    _require(node, instance.name).memory_mib = memory_mib


@answers(calls.INSTANCE_LIMIT_PROCESSORS)
def limit_processors(node: SimNode, instance: FilledInstance) -> bool:
    """Tell whether the guest runs."""
    return instance.name in node.guests


@answers(calls.INSTANCE_MIGRATABLE)
def migratable(node: SimNode, instance: FilledInstance) -> None:
    """Check that a guest runs.

    :raises HypervisorError: it does not.
    """
    if _require(node, instance.name).state != state.RUNS:
        raise errors.HypervisorError(f"instance {instance.name} was sent to another node")


@answers(calls.MIGRATION_INFO)
def migration_info(node: SimNode, instance: FilledInstance) -> dict[str, int]:
    """Return memory and processors of a guest.

    :raises HypervisorError: it does not run.
    """
    guest = _require(node, instance.name)
    return {"memory": guest.memory_mib, "vcpus": guest.vcpus}


@answers(calls.ACCEPT_INSTANCE)
def accept(node: SimNode, instance: FilledInstance, info: Any, **_args: Any) -> None:
    """Wait for a guest.

    :raises HypervisorError: it is here already.
    """
    if instance.name in node.guests:
        raise errors.HypervisorError(f"instance {instance.name} is running already")
    node.guests[instance.name] = Guest(
        instance.hypervisor, info["memory"], info["vcpus"], state.WAITS, node.fleet.clock()
    )


@answers(calls.INSTANCE_MIGRATE)
def migrate(node: SimNode, instance: FilledInstance, **_args: Any) -> None:
    """Send a guest.

    :raises HypervisorError: it does not run.
    """
    _require(node, instance.name).state = state.SENT


@answers(calls.INSTANCE_GET_MIGRATION_STATUS)
def migration_status(node: SimNode, instance: FilledInstance) -> MigrationStatus:
    """Return that a migration is complete, or that there is none.

    :raises HypervisorError: the guest does not run.
    """
    guest = _require(node, instance.name)
    if guest.state != state.SENT:
        return MigrationStatus(status="none")
    size = guest.memory_mib << 20
    return MigrationStatus(status="completed", transferred_ram=size, total_ram=size)


@answers(calls.INSTANCE_FINALIZE_MIGRATION_SRC)
def end_at_source(node: SimNode, instance: FilledInstance, success: bool, live: bool) -> None:
    """Remove the guest which has left.

    :raises HypervisorError: it was sent, and the migration counts as failed.
    """
    if success:
        node.guests.pop(instance.name, None)
    elif _require(node, instance.name).state == state.SENT:
        raise errors.HypervisorError(f"instance {instance.name} was sent to another node")


@answers(calls.INSTANCE_FINALIZE_MIGRATION_DST)
def end_at_target(node: SimNode, instance: FilledInstance, info: Any, success: bool) -> None:
    """Let the guest which has arrived run, or forget the one which waits.

    :raises HypervisorError: it runs, and the migration counts as failed.
    """
    guest = node.guests.get(instance.name)
    if success:
        _require(node, instance.name).state = state.RUNS
    elif guest is not None and guest.state == state.RUNS:
        raise errors.HypervisorError(f"instance {instance.name} runs, and was not ended")
    else:
        node.guests.pop(instance.name, None)


@answers(calls.HOTPLUG_DEVICE)
def hotplug(_node: SimNode, device: FilledNic | Any, **_args: Any) -> None:
    """Accept every device."""
