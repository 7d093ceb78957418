"""Handlers of the life cycle of instances: start, stop, reboot, migrate, and lists of guests.

The master assembles the disks with calls of their own; the handlers here make the links of the
disks and pass them to the hypervisor. The process that serves a call waits until a guest has shut
down, so that a lost connection does not interrupt the shutdown.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Mapping
from typing import Any

from ganeti import errors, hypervisor, storage
from ganeti.backend import reasons
from ganeti.backend.instance import helper_disk, metadata
from ganeti.backend.registry import attempt, serves
from ganeti.backend.storage import blockdev
from ganeti.constants import instance as instance_constants
from ganeti.hypervisor.base import AttachedDisk, Place
from ganeti.objects import disk_templates
from ganeti.objects.instance import FilledInstance
from ganeti.objects.transfer import MigrationStatus
from ganeti.platform import watchdog_files
from ganeti.storage import busy
from ganeti.wire import calls
from ganeti.wire.calls import Guests

# A booting guest ignores the request to shut down, so it is repeated. The pauses between requests
# grow from the first to the second number of seconds.
_ASK_AGAIN_START_S = 1.0
_ASK_AGAIN_S = 5.0

# The parent of the daemon imports this module; a call runs in a child, where it is imported.
for _name in hypervisor.known():
    hypervisor.of(_name)


# Disks


def attach_disks(instance: FilledInstance) -> list[AttachedDisk]:
    """Link all disks of an instance, which must be assembled.

    :raises BlockDeviceError: a disk does not exist, and the new links are removed again; or a
        program works on a disk, or a guest could read data of others on it.
    """
    for index, disk in enumerate(instance.disks_info):
        busy.require_idle(disk)
        if disk.unwiped_from is not None and disk.dev_type in disk_templates.WIPED:
            raise errors.BlockDeviceError(
                f"disk {index} of instance {instance.name}: a growth was not completed, so that"
                f" all after its first {disk.unwiped_from} MiB may be data of others. Activate the"
                f" disks with 'gnt-instance activate-disks {instance.name}', which overwrites that."
            )
    attached = []
    try:
        for index, disk in enumerate(instance.disks_info):
            device = storage.device(disk)
            uri = device.uri(instance.hypervisor)
            if uri is not None:
                # The hypervisor opens the disk itself, without a device of this node.
                attached.append(AttachedDisk(disk, "", uri))
                continue
            if not device.exists():
                raise errors.BlockDeviceError(
                    f"disk {index} of instance {instance.name}: "
                    f"device {device.unique_id} does not exist"
                )
            link = blockdev.make_link(instance.name, index, device.path)
            attached.append(AttachedDisk(disk, link))
    except errors.GenericError:
        blockdev.remove_links(instance.name)
        raise
    return attached


# Start and stop


@serves(calls.INSTANCE_START)
def start(instance: FilledInstance, startup_paused: bool, reason: list[list[Any]]) -> None:
    """Start a guest; a running guest is not changed, and an interrupted start is completed."""
    driver = hypervisor.of(instance.hypervisor)
    if helper_disk.exists(instance.name):
        logging.warning(
            "instance %s: ending the helper guest which an interrupted job has left", instance.name
        )
        shutdown(instance, 0, reason)
    if driver.is_running(instance.name) and driver.complete_start(instance, paused=startup_paused):
        logging.info("instance %s runs already and was not started", instance.name)
        return
    watchdog_files.require_armed()
    disks = attach_disks(instance)
    try:
        driver.start(instance, disks, paused=startup_paused)
    except errors.GenericError:
        # When two calls start the guest at once, the failing one must not remove the links.
        if not driver.is_running(instance.name):
            blockdev.remove_links(instance.name)
        raise
    metadata.tell(instance)
    reasons.store(instance.name, reason, "instance_start")


@serves(calls.INSTANCE_CONTINUE)
def go_on(instance: FilledInstance, reason: list[list[Any]]) -> dict[str, Any]:
    """Let a halted guest run on; return its facts afterwards, as it may have halted again.

    :raises HypervisorError: it does not run here, or can never run on.
    """
    driver = hypervisor.of(instance.hypervisor)
    watchdog_files.require_armed()
    driver.resume(instance.name)
    reasons.store(instance.name, reason, "instance_start")
    info = driver.instance_info(instance.name)
    return info.to_wire() if info else {}


@serves(calls.INSTANCE_SHUTDOWN)
def shutdown(instance: FilledInstance, timeout_s: int, reason: list[list[Any]]) -> None:
    """Shut a guest down; when it does not end in time, stop it hard.

    The files of a guest which ended by itself are removed as well.
    """
    driver = hypervisor.of(instance.hypervisor)
    if helper_disk.exists(instance.name):
        # A helper guest is stopped without waiting.
        timeout_s = 0
    if driver.is_running(instance.name):
        if not shut_down_softly(driver, instance.name, instance.hvparams, timeout_s):
            logging.warning(
                "instance %s did not shut down within %s seconds and is stopped hard",
                instance.name,
                timeout_s,
            )
            driver.stop(instance.name, instance.hvparams, force=True)
            if driver.is_running(instance.name):
                raise errors.HypervisorError(
                    f"instance {instance.name} still runs after it was stopped hard"
                )
        reasons.store(instance.name, reason, "instance_shutdown")
    driver.cleanup(instance.name)
    blockdev.remove_links(instance.name)
    _forget_metadata(instance)


def _forget_metadata(instance: FilledInstance) -> None:
    """Stop a guest hard, or the helper guest which replaces it."""
    helped = helper_disk.exists(instance.name)
    if helped:
        helper_disk.remove(instance.name)
    if helped or metadata.communication_nic(instance) is not None:
        metadata.forget(instance.name)


def shut_down_softly(
    driver: hypervisor.base.Hypervisor,
    instance_name: str,
    hvparams: Mapping[str, Any],
    timeout_s: float,
) -> bool:
    """Ask a guest to shut down, and wait; return whether it has ended.

    :param timeout_s: seconds to wait; 0 means not to ask.
    """
    if timeout_s <= 0:
        return False
    deadline = time.monotonic() + timeout_s
    ask_again_s = _ASK_AGAIN_START_S
    while driver.is_running(instance_name):
        left_s = deadline - time.monotonic()
        if left_s <= 0:
            return False
        try:
            driver.stop(instance_name, hvparams)
        except errors.HypervisorError as err:
            # The next request may succeed; otherwise the guest is stopped hard in the end.
            logging.warning("cannot ask instance %s to shut down: %s", instance_name, err)
        driver.wait_end(instance_name, min(ask_again_s, _ASK_AGAIN_S, left_s))
        ask_again_s *= 1.5
    return True


@serves(calls.INSTANCE_REBOOT)
def reboot(
    instance: FilledInstance, reboot_type: str, shutdown_timeout_s: int, reason: list[list[Any]]
) -> None:
    """Restart a running guest: a soft reboot keeps its parameters, a hard one takes new ones.

    A full reboot also assembles the disks anew, which only the master can do. A guest which could
    not be started again, because a file that its parameters name is missing, is not stopped.
    """
    driver = hypervisor.of(instance.hypervisor)
    if not driver.is_running(instance.name):
        raise errors.HypervisorError(f"instance {instance.name} is not running, cannot reboot it")
    if reboot_type == instance_constants.REBOOT_SOFT:
        driver.reboot(instance, attach_disks(instance), timeout_s=shutdown_timeout_s)
        reasons.store(instance.name, reason, "instance_reboot")
    elif reboot_type == instance_constants.REBOOT_HARD:
        driver.require_files(instance.hvparams)
        shutdown(instance, shutdown_timeout_s, reason)
        start(instance, False, reason)
        reasons.store(instance.name, reason, "instance_reboot")
    else:
        raise errors.HypervisorError(
            f"instance {instance.name}: reboot type '{reboot_type}' cannot be carried out by the"
            " node alone"
        )


@serves(calls.INSTANCE_BALLOON_MEMORY)
def balloon_memory(instance: FilledInstance, memory_mib: int) -> None:
    """Change the memory of a running guest, in MiB."""
    hypervisor.of(instance.hypervisor).balloon_memory(instance, memory_mib)


@serves(calls.INSTANCE_LIMIT_PROCESSORS)
def limit_processors(instance: FilledInstance) -> bool:
    """Limit a running guest to the processors of its present parameters."""
    return hypervisor.of(instance.hypervisor).limit_processors(instance)


# Lists of guests


@serves(calls.INSTANCE_LIST)
def list_instances(hypervisors: list[str], hvparams: dict[str, dict[str, Any]]) -> list[str]:
    """Return the names of the guests which run on this node."""
    names: list[str] = []
    for name in hypervisors:
        names += hypervisor.of(name).list_instances()
    return names


@serves(calls.INSTANCE_INFO)
def instance_info(
    instance_name: str,
    hypervisor: str,  # the call's name for the argument
    hvparams: dict[str, Any],
) -> dict[str, Any]:
    """Return the facts of one guest; empty when it does not run on this node."""
    info = _driver(hypervisor).instance_info(instance_name)
    return info.to_wire() if info else {}


@serves(calls.ALL_INSTANCES_INFO)
def all_instances_info(
    hypervisors: list[str], hvparams: dict[str, dict[str, Any]], apart: bool = False
) -> Guests:
    """Return the facts of all guests which run on this node.

    One which runs under two hypervisors is an error of this guest only: the log names it, and the
    larger memory counts.

    :param apart: a hypervisor which fails is one of the problems, and does not hide the guests of
        the others.
    :raises HypervisorError: a hypervisor fails, and this was not asked for.
    """
    result = Guests()
    for name in hypervisors:
        found = attempt(hypervisor.of(name).all_info)
        if isinstance(found, Exception):
            if not apart:
                raise found
            result.problems[name] = str(found)
            continue
        for info in found:
            facts = info.to_wire()
            known = result.get(info.name)
            if known and any(known[key] != facts[key] for key in ("memory", "vcpus")):
                logging.error("instance %s runs twice, with different parameters", info.name)
                if known["memory"] > facts["memory"]:
                    continue
            result[info.name] = facts
    return result


@serves(calls.HYPERVISOR_VALIDATE_PARAMS)
def validate_params(hypervisor: str, hvparams: dict[str, Any]) -> None:
    """Check that this node can use filled hypervisor parameters."""
    _driver(hypervisor).validate_parameters(hvparams)


def _driver(name: str) -> hypervisor.base.Hypervisor:
    """Return the hypervisor of a name, for handlers with an argument named like the module."""
    return hypervisor.of(name)


# Migration


@serves(calls.INSTANCE_MIGRATABLE)
def migratable(instance: FilledInstance) -> None:
    """On the source: check that the guest runs and that the links of its disks exist."""
    driver = hypervisor.of(instance.hypervisor)
    driver.migration.check(instance)
    for index in range(len(instance.disks_info)):
        link = blockdev.link_path(instance.name, index)
        if not os.path.islink(link):
            logging.warning(
                "instance %s: link %s for disk %d is missing."
                " A restart of the instance creates it.",
                instance.name,
                link,
                index,
            )


@serves(calls.MIGRATION_INFO)
def migration_info(instance: FilledInstance) -> Any:
    """On the source: return the facts which the target needs."""
    return hypervisor.of(instance.hypervisor).migration.info(instance)


@serves(calls.ACCEPT_INSTANCE)
def accept_instance(
    instance: FilledInstance, info: Any, target: str, any_port: bool = False
) -> int | None:
    """On the target: prepare the incoming migration of a guest.

    :param any_port: whether the source can connect to any port.
    :returns: the port, then.
    """
    driver = hypervisor.of(instance.hypervisor)
    watchdog_files.require_armed()
    disks = attach_disks(instance)
    place = Place(target, _migration_port(instance), any_port)
    try:
        port = driver.migration.accept(instance, info, place, disks)
    except errors.GenericError:
        if not driver.is_running(instance.name):
            blockdev.remove_links(instance.name)
        raise
    return port if any_port else None


@serves(calls.INSTANCE_MIGRATE)
def migrate(
    cluster_name: str,
    instance: FilledInstance,
    target: str,
    live: bool,
    port: int | None = None,
) -> None:
    """On the source: start the transfer of a guest."""
    place = Place(target, port or _migration_port(instance))
    hypervisor.of(instance.hypervisor).migration.send(cluster_name, instance, place, live=live)


def _migration_port(instance: FilledInstance) -> int:
    """Return the port of migrations; 0 for a hypervisor which uses none."""
    return int(instance.hvparams.get("migration_port") or 0)


@serves(calls.INSTANCE_GET_MIGRATION_STATUS)
def migration_status(instance: FilledInstance) -> MigrationStatus:
    """On the source: return the progress of the transfer."""
    return hypervisor.of(instance.hypervisor).migration.status(instance)


@serves(calls.INSTANCE_FINALIZE_MIGRATION_SRC)
def finalize_migration_src(instance: FilledInstance, success: bool, live: bool) -> None:
    """On the source: remove the guest after success; otherwise let it continue."""
    hypervisor.of(instance.hypervisor).migration.finalize_source(
        instance, success=success, live=live
    )
    if success:
        blockdev.remove_links(instance.name)
        _forget_metadata(instance)
        reasons.forget(instance.name)


@serves(calls.INSTANCE_FINALIZE_MIGRATION_DST)
def finalize_migration_dst(instance: FilledInstance, info: Any, success: bool) -> None:
    """On the target: let the guest continue after success; otherwise remove what was prepared."""
    hypervisor.of(instance.hypervisor).migration.finalize_target(instance, info, success=success)
    if success:
        metadata.tell(instance)
    else:
        blockdev.remove_links(instance.name)
