"""Migration of a guest under Xen.

A program on each node (:mod:`ganeti.helpers.xen_transfer`) moves the memory over a connection with
TLS. The source makes the keys of both ends for each migration, and sends those of the target
through the master, whose connections to both nodes are authenticated. On the source the program
runs ``xl migrate`` for a live migration, and ``xl save`` otherwise; on the target it runs ``xl
restore``.

The target decides what it runs: it makes the configuration of the guest from its own parameters,
and from the source takes only which disk and NIC of the guest has which name in it, memory and
processors. So a source cannot make the target run a program, or open a device.

A guest never runs on both nodes, also when the master asks for it:

- The domain on the target is paused when it has arrived. Only
  :meth:`XenMigration.finalize_target` continues it.
- The source says that the guest belongs to the target after it has written that down. From then on
  it never continues the guest.
- The target does not destroy a guest which is its own, because it cannot run on anywhere else.

Source: xl(1), *migrate*, *save*, *restore*; Xen, ``docs/specs/libxl-migration-stream.pandoc``.
"""

from __future__ import annotations

import logging
import os
import re
import socket
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from ganeti import errors
from ganeti.hypervisor import base, guest_errors
from ganeti.hypervisor.base import AttachedDisk, Place
from ganeti.hypervisor.net import interfaces
from ganeti.hypervisor.xen import adoption, guests, nics, record, start, transfer, xl
from ganeti.hypervisor.xen.record import COMPLETE, INCOMING, Record
from ganeti.hypervisor.xen.transfer import ARRIVED, IN, OUT, OWNED, Transfer
from ganeti.objects.instance import FilledInstance
from ganeti.objects.transfer import MigrationStatus
from ganeti.platform import paths, systemd
from ganeti.utils import fs, process, retry, x509

_HELPER = "ganeti.helpers.xen_transfer"
_LISTEN_S = 60.0
#: Between the last byte which the source sends and the domain which is complete on the target.
_ARRIVE_S = 300.0
_PAUSES = (0.02, 1.5, 0.5)
# The keys of the migration data.
_RECORD, _OWN, _PEER = "record", "certificate", "peer"
_VDEV = re.compile(r"[a-z]{1,4}[a-p]", re.ASCII)
_MAX_DEVID = 255


class XenMigration(base.Migration):
    """The operations of the source and of the target of a migration."""

    def check(self, instance: FilledInstance) -> None:
        """Check that the guest runs here and has a record.

        :raises HypervisorError: it cannot be migrated.
        """
        with guests.locked(instance.name):
            known = adoption.record_of(instance, guests.require_running(instance.name))
        if known.hvparams.get("pci_pass"):
            raise errors.HypervisorError(
                f"instance {instance.name} uses a device of this node (pci_pass), and cannot be"
                " migrated"
            )

    def info(self, instance: FilledInstance) -> dict[str, str]:
        """Return the record of the guest, and the keys of the target's end of the connection.

        :raises HypervisorError: the guest does not run, or is being sent.
        """
        name = instance.name
        with guests.locked(name):
            known = adoption.record_of(instance, guests.require_running(name))
            if transfer.is_sending(name):
                raise errors.HypervisorError(
                    f"instance {name} is being sent to another node, or was. Run 'gnt-instance"
                    f" migrate --cleanup {name}'."
                )
            transfer.end_program(name)
            transfer.forget(name)
            own, peer = x509.create_self_signed(name), x509.create_self_signed(name)
            transfer.write(name, Transfer(direction=OUT, status=transfer.PREPARED), sync=False)
            _write_keys(name, own, x509.certificate_part(peer))
        return {_RECORD: known.dumps(), _OWN: peer, _PEER: x509.certificate_part(own)}

    def accept(
        self, instance: FilledInstance, info: Any, place: Place, disks: Sequence[AttachedDisk]
    ) -> int:
        """Listen for the guest.

        :param info: :meth:`info` of the source.
        :raises HypervisorError: nothing is left behind.
        """
        name = instance.name
        text, own, peer = _read_info(info, name)
        incoming = adopt(record.loads(text, name), instance, disks)
        with guests.locked(name):
            guests.refuse_running(name)
            guests.end(name)
            try:
                path = start.prepare(incoming)
                transfer.write(name, Transfer(direction=IN, status=transfer.WAITING), sync=False)
                _write_keys(name, own, peer)
                with _listen(name, place) as listener:
                    words = ("receive", name, path, "--listener", str(listener.fileno()))
                    _start_helper(name, words, (listener.fileno(),))
                    return int(listener.getsockname()[1])
            except BaseException:
                guests.end(name)
                raise

    def send(
        self, cluster_name: str, instance: FilledInstance, place: Place, *, live: bool
    ) -> None:
        """Begin to send the guest.

        :param live: the guest runs while its memory is copied.
        :raises HypervisorError: it was sent before, or cannot be sent.
        """
        name = instance.name
        with guests.locked(name):
            domain = guests.require_running(name)
            state = transfer.find(name)
            if state is None or state.direction != OUT:
                raise errors.HypervisorError(f"the migration of instance {name} was not prepared")
            if state.sent:
                raise guest_errors.was_sent(name)
            if state.status == transfer.ACTIVE:
                # An earlier call began it, and its process died before it could answer.
                logging.info("instance %s is being sent already", name)
                return
            words = ["send", name, record.config_file(name)]
            words += ["--address", place.address, "--port", str(place.port)]
            words += ["--domain", str(domain.id), "--memory", str(domain.memory_mib)]
            _start_helper(name, [*words, *(["--live"] if live else [])])

    def status(self, instance: FilledInstance) -> MigrationStatus:
        """Return how far the program has come.

        :raises HypervisorError: that is not known.
        """
        state = transfer.find(instance.name)
        if state is None or state.status == transfer.PREPARED:
            return MigrationStatus(status="none")
        if state.direction == IN:
            if state.status in (ARRIVED, OWNED):
                return MigrationStatus(status="completed")
            failed = state.status == transfer.FAILED
            return MigrationStatus(
                status="failed" if failed else "active", error=state.error or None
            )
        if state.status == transfer.FAILED:
            logging.error("migration of instance %s failed: %s", instance.name, state.error)
        return MigrationStatus(
            status=state.status,
            transferred_ram=state.moved,
            total_ram=state.total,
            total_time=state.took_ms,
            downtime=state.paused_ms,
            error=state.error or None,
        )

    def finalize_source(self, instance: FilledInstance, *, success: bool, live: bool) -> None:
        """End the domain of the guest which was sent; after a failure, let it run on here.

        :raises HypervisorError: after a failure: the guest was, or may have been, sent as a whole;
            it stays paused. Or Xen does not answer.
        """
        name = instance.name
        with guests.locked(name):
            if success:
                guests.end(name)
                return
            transfer.end_program(name)
            if transfer.was_sent(name):
                raise guest_errors.was_sent(name)
            domain = guests.require_running(name)
            if domain.is_paused:
                xl.run("unpause", str(domain.id))
            transfer.forget(name)

    def finalize_target(self, instance: FilledInstance, info: Any, *, success: bool) -> None:
        """Let the guest run here; after a failure, end what waits for it.

        :raises HypervisorError: after a failure: the guest has arrived, or does not end. After a
            success: the guest does not arrive, or was sent to another node since.
        """
        name = instance.name
        with guests.locked(name):
            if not success:
                transfer.end_program(name)
                if transfer.has_arrived(name):
                    raise guest_errors.has_arrived(name)
                known = record.find(name)
                if known is None or known.state == INCOMING:
                    guests.end(name)
                return
            if transfer.was_sent(name):
                raise guest_errors.was_sent(name)
            known = record.load(name)
            if known.state == INCOMING:
                _wait_arrived(name)
            domain = guests.require_running(name)
            if domain.is_paused:
                # At once: a network which cannot be set up must not keep the guest from running.
                xl.run("unpause", str(domain.id))
            if known.state == INCOMING:
                record.save(replace(known, state=COMPLETE))
                transfer.end_program(name)
                transfer.forget(name)
                interfaces.finish_incoming(
                    known.plain_nics(), nics.guest_network(name, instance.tags)
                )


def adopt(source: Record, instance: FilledInstance, disks: Sequence[AttachedDisk]) -> Record:
    """Return the record of a guest of another node on this one.

    All is from the configuration of the cluster, as the master has sent it. From the source are the
    names of disks and NICs in the guest, memory and processors, which the guest cannot change.

    :raises HypervisorError: the guest has a device which the instance has not, or another type.
    """
    own = record.of_instance(instance, disks, state=INCOMING)
    if source.uuid != own.uuid or source.hypervisor != own.hypervisor:
        raise errors.HypervisorError(
            f"the migration data of instance {own.name} are those of another instance"
        )
    if source.hvparams.get("type") != own.hvparams.get("type"):
        raise errors.HypervisorError(
            f"instance {own.name} runs as type {source.hvparams.get('type')}, and its parameter"
            f" type is {own.hvparams.get('type')} now. Restart it before it is migrated."
        )
    if not 0 < source.memory_mib < 1 << 24 or not 0 < source.vcpus < 1 << 12:
        raise errors.HypervisorError(f"the migration data of instance {own.name} are damaged")
    by_disk = {str(one.disk.get("uuid")): one for one in own.disks}
    by_nic = {str(one.nic.get("uuid")): one for one in own.nics}
    kept_disks = []
    for disk in source.disks:
        mine = by_disk.get(str(disk.disk.get("uuid")))
        if mine is None or not _VDEV.fullmatch(disk.vdev):
            raise _lacks(own.name, f"disk {disk.disk.get('uuid')!r:.100}")
        kept_disks.append(replace(mine, vdev=disk.vdev))
    kept_nics = []
    for nic in source.nics:
        found = by_nic.get(str(nic.nic.get("uuid")))
        if found is None or not 0 <= nic.devid <= _MAX_DEVID:
            raise _lacks(own.name, f"NIC {nic.nic.get('uuid')!r:.100}")
        kept_nics.append(replace(found, devid=nic.devid))
    if len({one.vdev for one in kept_disks}) != len(kept_disks):
        raise errors.HypervisorError(f"the migration data of instance {own.name} are damaged")
    return replace(
        own,
        memory_mib=source.memory_mib,
        vcpus=source.vcpus,
        disks=tuple(kept_disks),
        nics=tuple(kept_nics),
    )


def _lacks(instance_name: str, what: str) -> errors.HypervisorError:
    return errors.HypervisorError(
        f"instance {instance_name} runs with {what}, which it does not have in the configuration."
        " Restart it before it is migrated."
    )


def _read_info(info: Any, instance_name: str) -> tuple[str, str, str]:
    """Return the three parts of :meth:`XenMigration.info`.

    :raises HypervisorError: the data have another form; they are not shown, as they hold a key.
    """
    if isinstance(info, Mapping):
        parts = [info.get(key) for key in (_RECORD, _OWN, _PEER)]
        if all(isinstance(one, str) and one for one in parts):
            text, own, peer = (str(one) for one in parts)
            return text, own, peer
    raise guest_errors.damaged_migration_data(instance_name)


def _write_keys(instance_name: str, own: str, peer: str) -> None:
    try:
        fs.write_file(transfer.own_file(instance_name), own, mode=0o600, sync=False)
        fs.write_file(transfer.peer_file(instance_name), peer, mode=0o600, sync=False)
    except OSError as err:
        raise errors.HypervisorError(
            f"cannot write the key for the migration of instance {instance_name}: {err}"
        ) from err


def _listen(instance_name: str, place: Place) -> socket.socket:
    """Listen for the source; the program inherits the socket.

    :raises HypervisorError: no port is free.
    """
    try:
        return place.listen()
    except OSError as err:
        raise errors.HypervisorError(
            f"the migration of instance {instance_name} did not begin: cannot listen at {place}:"
            f" {err}"
        ) from err


def _start_helper(instance_name: str, words: Sequence[str], keep_fds: Sequence[int] = ()) -> None:
    """Start the program which sends or receives; it answers when it works.

    :param keep_fds: open files which it inherits.
    :raises HypervisorError: it does not.
    """
    top = paths.package_dir()
    env = {"PYTHONPATH": os.pathsep.join([os.path.dirname(top), *filter(None, sys.path)])}
    command = [sys.executable, "-m", _HELPER, *words]
    try:
        fs.make_dirs(paths.current().log_xen_dir, 0o750)
        process.run(
            systemd.in_scope("migration", instance_name, command),
            timeout_s=_LISTEN_S,
            env=env,
            keep_fds=keep_fds,
        )
    except errors.CommandError as err:
        raise errors.HypervisorError(
            f"the migration of instance {instance_name} did not begin: {err.problem}"
        ) from err
    except OSError as err:
        raise errors.HypervisorError(
            f"the migration of instance {instance_name} did not begin: {err}"
        ) from err


def _wait_arrived(instance_name: str) -> None:
    """Wait until the domain of a guest which was sent is complete.

    :raises HypervisorError: it does not arrive.
    """

    def attempt() -> None:
        state = transfer.find(instance_name)
        if state is None or state.direction != IN or state.status == transfer.FAILED:
            raise errors.HypervisorError(
                f"instance {instance_name} was sent, but has not arrived on this node:"
                f" {state.error if state else 'there is no migration'}"
            )
        if state.status not in (ARRIVED, OWNED):
            raise retry.Again

    try:
        retry.until(attempt, timeout_s=_ARRIVE_S, delay=_PAUSES)
    except errors.RetryTimeout as err:
        raise errors.HypervisorError(
            f"instance {instance_name} was sent, but has not arrived on this node after"
            f" {_ARRIVE_S:g} s"
        ) from err
