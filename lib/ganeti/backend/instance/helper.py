"""Helper guests: virtual machines which carry out a task on the disks of a stopped instance.

The helper guest replaces the instance meanwhile: it has its name, memory and interfaces, an image
of the administrator as first disk, and the disks of the instance after it. It reads its task from
the metadata daemon, over the communication interface, reports the result there, and switches itself
off. It cannot change the node, therefore the scripts of an untrusted OS definition run only in it.

A helper guest leaves on the disks of the node only the copy of its image, its output (a log file)
and the files which the hypervisor keeps of every guest. OS parameters are in the memory of two
daemons only.
"""

from __future__ import annotations

import dataclasses
import logging
import os
import string
import time
from typing import Any

from ganeti import errors, hypervisor
from ganeti.backend.instance import helper_disk, metadata
from ganeti.backend.instance import lifecycle as instances
from ganeti.backend.instance import os as os_scripts
from ganeti.backend.registry import serves
from ganeti.backend.storage import blockdev
from ganeti.constants import metad as const
from ganeti.hypervisor.base import AttachedDisk, Hypervisor
from ganeti.metad import client
from ganeti.objects.instance import FilledInstance
from ganeti.platform import paths
from ganeti.utils import fs
from ganeti.wire import calls

_LOG_LINES = 20

#: The image boots by itself, independent of the boot parameters of the instance; a restart of the
#: guest, for example after a panic of its kernel, ends it.
_HVPARAMS = {
    "kernel_path": "",
    "initrd_path": "",
    "root_path": "",
    "kernel_args": "",
    "boot_order": "disk",
    "cdrom_image_path": "",
    "cdrom2_image_path": "",
    "floppy_image_path": "",
    "firmware": "bios",
    "tpm_version": "",
    "reboot_behavior": "exit",
}
#: The names of disks inside a guest, by the beginning of the disk type.
_PARAVIRTUAL = "paravirtual"


def guest_environment(env: dict[str, str], disk_type: str, count: int) -> dict[str, str]:
    """Make the variables of an OS script for the helper guest, in which disks have other names.

    :param count: number of disks of the instance; the disk of the helper guest is before them.
    """
    prefix = "vd" if disk_type == _PARAVIRTUAL else "sd"
    result = {
        key: value
        for key, value in env.items()
        if not (key.startswith("DISK_") and key.endswith("_URI"))
    }
    for index in range(count):
        result[f"DISK_{index}_PATH"] = f"/dev/{prefix}{string.ascii_lowercase[index + 1]}"
    return result


def helper_instance(instance: FilledInstance, made: helper_disk.HelperDisk) -> FilledInstance:
    """Return the instance with other boot parameters and one more disk."""
    wanted = {key: value for key, value in _HVPARAMS.items() if key in instance.hvparams}
    unknown = sorted(set(made.hvparams) - set(instance.hvparams))
    if unknown:
        raise errors.OpExecError(
            f"hypervisor {instance.hypervisor} has no parameters {', '.join(unknown)}, which the"
            " file beside the image of the helper guest names"
        )
    return dataclasses.replace(
        instance,
        hvparams={**instance.hvparams, **wanted, **made.hvparams},
        disks_info=(made.disk, *instance.disks_info),
    )


@serves(calls.HELPER_START)
def start(
    instance: FilledInstance,
    task: str,
    image: str,
    own_nic: bool,
    parameters: dict[str, list[str]],
    reinstall: bool,
    debug_level: int,
) -> None:
    """Start a helper guest.

    :param image: absolute path on this node, or an address.
    :param own_nic: the last interface belongs to the helper guest only.
    :param parameters: OS parameter -> [value, visibility].
    :raises OpExecError: the image or the OS does not exist, or the OS is trusted.
    :raises HypervisorError: the instance runs, or the guest does not start; nothing remains.
    """
    driver = hypervisor.of(instance.hypervisor)
    if helper_disk.exists(instance.name):
        logging.warning(
            "instance %s: ending the helper guest which an interrupted job has left", instance.name
        )
        _end(driver, instance)
    if driver.is_running(instance.name):
        raise errors.HypervisorError(
            f"instance {instance.name} runs, so no helper guest can take its place"
        )
    with_metadata = task == const.TASK_INSTALL or metadata.communication_nic(instance) is not None
    description = metadata.describe(instance, parameters)
    description["helper"] = {
        "task": task,
        "environment": _environment(
            dataclasses.replace(instance, nics=instance.nics[:-1]) if own_nic else instance,
            task,
            reinstall,
            debug_level,
        ),
    }
    try:
        made = helper_disk.make(instance.name, image)
        guest = helper_instance(instance, made)
        if with_metadata:
            metadata.update(description)
        disks = [AttachedDisk(made.disk, made.path), *instances.attach_disks(instance)]
        driver.start(guest, disks)
    except BaseException:
        _end(driver, instance)
        raise


def _environment(
    instance: FilledInstance, task: str, reinstall: bool, debug_level: int
) -> dict[str, str]:
    count, disk_type = len(instance.disks_info), str(instance.hvparams.get("disk_type") or "")
    if task != const.TASK_INSTALL:
        env = {
            "INSTANCE_NAME": instance.name,
            "DISK_COUNT": str(count),
            **{f"DISK_{index}_UUID": disk.uuid for index, disk in enumerate(instance.disks_info)},
        }
        return guest_environment(env, disk_type, count)
    definition = os_scripts.require(instance.os)
    if definition.create_script_untrusted is None:
        raise errors.OpExecError(
            f"OS {definition.name} is trusted: it has no script '{os_scripts.CREATE_UNTRUSTED}'"
        )
    os_scripts.require_hypervisor(definition, instance.hypervisor)
    env = os_scripts.instance_env(definition, instance, debug_level)
    if reinstall:
        env["INSTANCE_REINSTALL"] = "1"
    return guest_environment(env, disk_type, count)


@serves(calls.HELPER_STATUS)
def status(instance: FilledInstance) -> dict[str, Any]:
    """Return the state of a helper guest."""
    # In this order, so that a report of the guest is read before its end is seen.
    running = helper_disk.exists(instance.name) and hypervisor.of(instance.hypervisor).is_running(
        instance.name
    )
    report = _report(instance.name)
    known = report is not None
    report = report or {}
    return {
        "running": running,
        "known": known,
        "contact": report.get("contact") is not None,
        "started": bool(report.get("started")),
        "exit_code": report.get("exit_code"),
    }


def _report(instance_name: str) -> dict[str, Any] | None:
    """Return the report of a guest; None when the daemon does not know it or does not run."""
    try:
        return client.report(instance_name)
    except errors.GenericError as err:
        logging.warning(
            "instance %s: the metadata daemon has no report of its helper guest: %s",
            instance_name,
            err,
        )
        return None


@serves(calls.HELPER_STOP)
def stop(instance: FilledInstance, task: str) -> dict[str, Any]:
    """End a helper guest, keep its output in a log file, and remove its files.

    :raises HypervisorError: the guest does not end.
    """
    if not helper_disk.exists(instance.name):
        return {"lines": [], "log_file": ""}
    report = _report(instance.name) or {}
    lines = _printable(str(report.get("log") or ""))
    log_file = ""
    if lines:
        log_file = _keep_log(instance, task, lines)
    else:
        # The guest reported nothing; its console may say why.
        lines = _console(instance)
    _end(hypervisor.of(instance.hypervisor), instance)
    return {"lines": lines[-_LOG_LINES:], "log_file": log_file}


def _printable(text: str) -> list[str]:
    """Replace the control characters in lines which a guest wrote."""
    return (
        [
            "".join(char if char.isprintable() or char == "\t" else "?" for char in line)
            for line in text.replace("\r\n", "\n").rstrip().split("\n")
        ]
        if text.strip()
        else []
    )


def _keep_log(instance: FilledInstance, task: str, lines: list[str]) -> str:
    directory = paths.current().log_os_dir
    kind = "add" if task == const.TASK_INSTALL else task
    name = os_scripts.log_name(kind, instance.os or "none", instance.name, time.localtime())
    path = f"{directory}/{name}"
    try:
        fs.make_dirs(directory, 0o750)
        fs.write_file(path, "\n".join(lines) + "\n", mode=0o640, sync=False)
    except OSError as err:
        logging.error("cannot keep the output of the helper guest of %s: %s", instance.name, err)
        return ""
    return path


def _console(instance: FilledInstance) -> list[str]:
    """Return the last console output of the guest, where it is kept."""
    path = f"{paths.current().log_kvm_dir}/{os.path.basename(instance.name)}.console.log"
    try:
        with open(path, "rb") as stream:
            stream.seek(0, os.SEEK_END)
            stream.seek(max(0, stream.tell() - 4096))
            return _printable(stream.read().decode("utf-8", "replace"))
    except OSError:
        return []


def _end(driver: Hypervisor, instance: FilledInstance) -> None:
    """End the guest; then remove its files."""
    if driver.is_running(instance.name):
        driver.stop(instance.name, instance.hvparams, force=True)
    driver.cleanup(instance.name)
    blockdev.remove_links(instance.name)
    helper_disk.remove(instance.name)
    metadata.forget(instance.name)
