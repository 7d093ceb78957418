"""Migration of a guest: QEMU on the source sends its memory to a QEMU which waits on the target.

The target gets the runtime file of the source, and takes the hardware of the guest from it, and
nothing else.

A guest never runs on both nodes, also when the master asks for it:

- QEMU on the target starts with ``-S``, so that the guest stays paused when it has arrived. Only
  :meth:`KvmMigration.finalize_target` lets it run.
- :meth:`KvmMigration.finalize_source` lets the guest run on here only when it was
  certainly not sent as a whole.
- :meth:`KvmMigration.finalize_target` does not end a guest which has arrived, because it
  cannot run on anywhere else.

With post-copy the target has the guest before it has all of its memory, and lets it run when it has
all. When the connection breaks before, neither node can do without the other;
:meth:`KvmMigration.accept` on the target and :meth:`KvmMigration.send` on the source
resume the transfer.

Source: QEMU, ``docs/devel/migration`` (*Postcopy*); QEMU's QMP reference, ``MigrationStatus``.
"""

from __future__ import annotations

import contextlib
import logging
import socket
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from ganeti import errors
from ganeti.hypervisor import base, guest_errors
from ganeti.hypervisor.base import AttachedDisk, Place
from ganeti.hypervisor.kvm import (
    accelerator,
    argv,
    facts,
    hardware,
    incoming,
    migration_channel,
    migration_connection,
    nics,
    parse,
    runtime,
)
from ganeti.hypervisor.kvm import layout as layouts
from ganeti.hypervisor.kvm.guests import Guests
from ganeti.hypervisor.kvm.layout import Layout
from ganeti.hypervisor.kvm.migration_connection import Incoming
from ganeti.hypervisor.kvm.qmp import Qmp, QmpError
from ganeti.hypervisor.kvm.start import Launch, Starter, new_argv, set_migration_capabilities
from ganeti.hypervisor.net import interfaces
from ganeti.objects.hypervisors.kvm import KVM
from ganeti.objects.instance import FilledInstance
from ganeti.objects.transfer import MigrationStatus

_STATUS_TRIES = 5
_STATUS_PAUSE_S = 2.0
# Copies of the memory which are sent before post-copy.
_POSTCOPY_ROUNDS = 2
# States of a migration from this node. A guest which came to this node has a migration, too, in
# state "completed".
_SENDING = frozenset(("setup", "active", "pre-switchover", "device"))
# The keys of the migration data.
_RUNTIME, _KEY, _CERTIFICATE = "runtime", "key", "certificate"
# The connection broke after the target had got the guest.
_POSTCOPY_PAUSED = "postcopy-paused"
# QEMU connects to the target after it has answered; how long its state may show the old break.
_RESUME_S = 5.0
_RESUME_POLL_S = 0.05


class KvmMigration(base.Migration):
    """The source and the target of migrations.

    :param guests: those of this node.
    :param starter: starts the QEMU of the target.
    """

    def __init__(self, guests: Guests, starter: Starter) -> None:
        super().__init__(KVM.name)
        self._guests = guests
        self._starter = starter

    def check(self, instance: FilledInstance) -> None:
        """Check that the guest runs and has a runtime file.

        :raises HypervisorError: it cannot be migrated.
        """
        layout = self._guests.running(instance.name)
        runtime.load(layout.runtime_file, instance.name)

    def info(self, instance: FilledInstance) -> str | dict[str, str]:
        """Return the runtime file, and certificate and key for the connection.

        It is ``{"runtime": text, "certificate": PEM, "key": text}``, without a key if the migration
        is not encrypted. The result is only the text of the runtime file if it has begun.

        :raises HypervisorError: the guest does not run, or QEMU cannot encrypt.
        """
        layout = self._guests.running(instance.name)
        record = runtime.load(layout.runtime_file, instance.name)
        found = {_RUNTIME: record.dumps()}
        with self._guests.control(layout) as control:
            state = control.execute("query-migrate").get("status")
            if state in _SENDING or parse.is_postcopy(state):
                # The other end knows the key.
                return found[_RUNTIME]
            if migration_channel.is_encrypted(instance.hvparams):
                found[_KEY] = key = migration_channel.new_key()
                migration_channel.use_key(control, key, layout, record.hvparams, endpoint="client")
        found[_CERTIFICATE] = migration_connection.new_certificate(layout)
        return found

    def accept(
        self, instance: FilledInstance, info: Any, place: Place, disks: Sequence[AttachedDisk]
    ) -> int | None:
        """Start a QEMU with the same hardware, which waits for the memory of the guest.

        When the guest is here already, and the connection broke before all of its memory was, wait
        for the rest.

        :param info: :meth:`info` of the source.
        :raises HypervisorError: nothing is left behind.
        """
        port = self._recover(instance, place)
        if port is not None:
            return port
        text, certificate, key = _read_info(info, instance)
        sent = hardware.adopt(runtime.loads(text, instance.name), instance, disks)
        with self._guests.locked(instance.name) as layout:
            self._guests.refuse_running(layout)
            qemu = facts.of(instance.hvparams["kvm_path"])
            record = _incoming_runtime(sent, layout, qemu)
            return self._starter.run(
                Launch(record, layout, qemu, instance.uuid, instance.tags),
                incoming=Incoming(place, certificate, key),
            )

    def _recover(self, instance: FilledInstance, place: Place) -> int | None:
        """Wait for the source of a paused post-copy migration again.

        :returns: the port; None when there was none.
        """
        with self._guests.locked(instance.name) as layout:
            if not self._guests.qemu(layout):
                return None
            with self._guests.control(layout) as control:
                if control.execute("query-migrate").get("status") != _POSTCOPY_PAUSED:
                    return None
            return migration_connection.start_receiver(layout, place, "migrate-recover")

    def send(
        self,
        cluster_name: str,
        instance: FilledInstance,
        place: Place,
        *,
        live: bool,
    ) -> None:
        """Begin to send the guest.

        A paused post-copy migration is resumed. When nothing was sent within ten seconds, the guest
        runs on here.

        :param live: the guest runs while its memory is copied.
        :raises HypervisorError: the target does not answer, nothing was sent, QEMU refuses, or the
            guest was sent to another node before. Whether the transfer began is said by
            :meth:`status`.
        """
        layout = self._guests.running(instance.name)
        hvp = instance.hvparams
        with self._guests.control(layout) as control:
            present = control.execute("query-migrate")
            state = present.get("status")
            resumes = state == _POSTCOPY_PAUSED
            if not resumes and (state in _SENDING or parse.is_postcopy(state)):
                # An earlier call began it, and its process died before it could answer.
                logging.info("instance %s is being sent already", instance.name)
                return
            if not resumes:
                run_state = control.execute("query-status").get("status")
                if parse.has_sent(run_state, present):
                    raise guest_errors.was_sent(instance.name)
                _set_parameters(control, hvp)
        # The control socket is free for others meanwhile.
        with migration_connection.connected(layout, place) as connection:
            if resumes:
                with self._guests.control(layout) as control:
                    migration_connection.take(control, "migrate", connection, resume=True)
                    _await_resumption(control, instance.name)
            else:
                self._begin(layout, connection, live=live)

    def _begin(self, layout: Layout, connection: socket.socket, *, live: bool) -> None:
        """Let QEMU send the guest, and wait until it has begun.

        :raises HypervisorError: it refuses, or nothing was sent; the guest runs on.
        """
        with self._guests.control(layout) as control:
            # An emulated guest that runs while its memory is copied loses writes now and then: the
            # emulator notes a page as changed a moment before it changes it, and the copy may come
            # in between. Seen as guests that spin or panic on the target, on busy machines.
            stopped = not live or _is_emulated(layout)
            if stopped:
                control.execute("stop")
            try:
                migration_connection.take(control, "migrate", connection)
            except QmpError:
                # After any other error QEMU may have begun.
                if stopped:
                    control.execute("cont")
                raise
        try:
            incoming.wait_begun(lambda: self._query_migrate(layout))
        except errors.RetryTimeout as err:
            # QEMU may wait for an answer on it, and does not end before.
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
            self._stay(layout)
            raise errors.HypervisorError(
                f"instance {layout.name} was not sent, and runs on: nothing was sent within"
                f" {incoming.BEGIN_TIMEOUT_S:g} s"
            ) from err

    def _query_migrate(self, layout: Layout) -> Mapping[str, Any]:
        with self._guests.control(layout) as control:
            answer: Mapping[str, Any] = control.execute("query-migrate")
            return answer

    def status(self, instance: FilledInstance) -> MigrationStatus:
        """Ask QEMU for the progress; try again after a bad answer.

        :raises HypervisorError: the guest ended, or five answers in succession were bad.
        """
        layout = layouts.of(instance.name)
        problem: errors.GenericError | None = None
        for attempt in range(_STATUS_TRIES):
            if attempt:
                time.sleep(_STATUS_PAUSE_S)
            if not self._guests.qemu(layout):
                raise errors.HypervisorError(f"instance {instance.name} ended during its migration")
            try:
                with self._guests.control(layout) as control:
                    answer = control.execute("query-migrate")
                    status = parse.parse_migration_status(answer)
                    if status.status == "active" and _is_postcopy_due(answer, instance.hvparams):
                        # The target gets the guest now, and then the rest of its memory.
                        control.execute("migrate-start-postcopy")
            except (errors.HypervisorError, errors.ParseError) as err:
                problem = err
                logging.warning("migration of instance %s: %s", instance.name, err)
                continue
            if status.status in ("failed", "cancelled"):
                logging.error(
                    "migration of instance %s %s: %s",
                    instance.name,
                    status.status,
                    status.error or "no reason given",
                )
            if status.status == "completed":
                if _is_emulated(layout):
                    status = replace(status, downtime=status.total_time)
                logging.info(
                    "migration of instance %s: it took %s ms, and the guest was stopped for %s ms",
                    instance.name,
                    status.total_time,
                    status.downtime,
                )
            return status
        raise errors.HypervisorError(
            f"cannot follow the migration of instance {instance.name}: {problem}"
        ) from problem

    def finalize_source(self, instance: FilledInstance, *, success: bool, live: bool) -> None:
        """End the QEMU which sent the guest; after a failure, let the guest run on here.

        :raises HypervisorError: after a failure: the guest was, or may have been, sent as a whole;
            it stays paused. Or QEMU does not answer.
        """
        if success:
            with self._guests.locked(instance.name) as layout:
                self._guests.end_process(layout)
                self._guests.remove_files(layout)
            return
        layout = self._guests.running(instance.name)
        self._stay(layout)
        migration_connection.forget(layout)

    def _stay(self, layout: Layout) -> None:
        """Cancel a migration, and let the guest run on here.

        :raises HypervisorError: the guest was, or may have been, sent as a whole; it stays paused.
        """
        with self._guests.control(layout) as control:
            # A canceled post-copy migration would destroy the guest, which is on the target.
            if not parse.is_postcopy(control.execute("query-migrate").get("status")):
                control.execute("migrate_cancel")
                incoming.wait_canceled(control, layout.name)
            run_state = control.execute("query-status").get("status")
            if parse.has_sent(run_state, control.execute("query-migrate")):
                raise guest_errors.was_sent(layout.name)
            if run_state == "paused":
                control.execute("cont")

    def finalize_target(self, instance: FilledInstance, info: Any, *, success: bool) -> None:
        """Let the guest run here; after a failure, end the QEMU which waits for it.

        A QEMU which does not answer is ended, too: it can run no guest afterwards.

        :raises HypervisorError: after a failure: the guest has arrived, or QEMU does not end. After
            a success: the guest does not arrive, or was sent to another node since.
        """
        if not success:
            with self._guests.locked(instance.name) as layout:
                self._refuse_received(layout)
                self._guests.end_process(layout)
                self._guests.remove_files(layout)
            return
        layout = self._guests.running(instance.name)
        with self._guests.control(layout) as control:
            run_state = control.execute("query-status").get("status")
            if parse.has_sent(run_state, control.execute("query-migrate")):
                raise guest_errors.was_sent(instance.name)
            incoming.wait_complete(control, instance.name)
            # At once: a network which cannot be set up must not keep the guest from running.
            control.execute("cont")
        migration_channel.forget_key(layout)
        migration_connection.forget(layout)
        record = runtime.load(layout.runtime_file, instance.name)
        interfaces.finish_incoming(
            nics.host_nics(record.nics, instance.name),
            nics.guest_network(layout, instance.tags),
        )

    def _refuse_received(self, layout: Layout) -> None:
        """Check that no guest has arrived in a QEMU which waits for one.

        :raises HypervisorError: it has arrived.
        """
        if not self._guests.qemu(layout):
            return
        try:
            with self._guests.control(layout) as control:
                run_state = control.execute("query-status").get("status")
                received = parse.has_received(run_state, control.execute("query-migrate"))
        except errors.HypervisorError as err:
            logging.warning("incoming migration of instance %s: %s", layout.name, err)
            return
        if received:
            raise guest_errors.has_arrived(layout.name)


def _incoming_runtime(
    sent: hardware.IncomingGuest, layout: Layout, qemu: facts.QemuFacts
) -> runtime.Runtime:
    """Return the record of a guest of another node on this one.

    The accelerator must be of the same kind, as the state of one cannot be loaded into another.
    """
    if sent.accelerator == accelerator.KVM and qemu.accelerator != accelerator.KVM:
        raise errors.HypervisorError(
            f"instance {layout.name} runs with KVM, which does not work on this node"
        )
    return sent.runtime(
        lambda instance: new_argv(instance, layout, qemu),
        argv.accelerator(sent.instance.hvparams, qemu),
    )


def _await_resumption(control: Qmp, name: str) -> None:
    """Wait until QEMU has connected to the target again, so that nobody takes the old break for a
    new one. A connection that fails leaves the state as it was, for the next poll.

    :raises HypervisorError: QEMU does not answer.
    """
    deadline = time.monotonic() + _RESUME_S
    while control.execute("query-migrate").get("status") == _POSTCOPY_PAUSED:
        if time.monotonic() >= deadline:
            logging.warning("instance %s: the transfer is still interrupted", name)
            return
        time.sleep(_RESUME_POLL_S)


def _set_parameters(control: Qmp, hvp: Mapping[str, Any]) -> None:
    """Tell QEMU on the source how it sends the guest."""
    encrypted = migration_channel.is_encrypted(hvp)
    control.execute(
        "migrate-set-parameters",
        {
            "max-bandwidth": int(hvp["migration_bandwidth"]) << 20,
            "downtime-limit": int(hvp["migration_downtime"]),
            "tls-creds": migration_channel.KEY_OBJECT if encrypted else "",
            # QEMU wants one for a connection which it has not made. With a key it has no effect.
            "tls-hostname": migration_channel.KEY_OBJECT if encrypted else "",
        },
    )
    set_migration_capabilities(control, hvp)


def _read_info(info: Any, instance: FilledInstance) -> tuple[str, str, str | None]:
    """Return the parts of :meth:`KvmMigration.info`: runtime file, certificate, and key or None.

    :raises HypervisorError: the data has another form, or lacks the certificate or the key.
    """
    encrypted = migration_channel.is_encrypted(instance.hvparams)
    if (isinstance(info, str) and info) or (
        isinstance(info, dict) and _RUNTIME in info and _CERTIFICATE not in info
    ):
        raise errors.HypervisorError(
            f"the source of the migration of instance {instance.name} has sent no certificate for"
            " the connection: it sends the guest already, or has another release. For the latter,"
            " install the same release on both nodes."
        )
    if (
        not isinstance(info, dict)
        or not all(isinstance(info.get(name), str) for name in (_RUNTIME, _CERTIFICATE))
        or (encrypted and not migration_channel.is_key(info.get(_KEY)))
    ):
        raise guest_errors.damaged_migration_data(instance.name)
    return info[_RUNTIME], info[_CERTIFICATE], info[_KEY] if encrypted else None


def _is_emulated(layout: Layout) -> bool:
    """Return True if a running guest is emulated, without the virtualisation of the processor."""
    record = runtime.load(layout.runtime_file, layout.name)
    machine_type = next(iter(runtime.values_of(record, "-machine")), "")
    return f"accel={accelerator.KVM}" not in machine_type.split(",")


def _is_postcopy_due(answer: Mapping[str, Any], hvparams: Mapping[str, Any]) -> bool:
    """Return True if a migration with post-copy has copied all memory often enough.

    :param answer: of ``query-migrate``.
    """
    if "postcopy-ram" not in (hvparams.get("migration_caps") or "").split(":"):
        return False
    ram = answer.get("ram")
    rounds = ram.get("dirty-sync-count") if isinstance(ram, dict) else None
    return isinstance(rounds, int) and rounds >= _POSTCOPY_ROUNDS
