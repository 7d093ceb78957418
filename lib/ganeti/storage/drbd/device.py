"""A DRBD8 device as a block device.

Its ``logical_id`` is ``(node uuid a, node uuid b, port, minor a, minor b, secret)``. A node does
not know its UUID, so the master sends the addresses and minors of both nodes in ``dynamic_params``.
A disk has two devices below it, for data and for metadata; it has none on a node which is about to
lose its replica.

All minors of a machine belong to the cluster, and each of them to one disk. When
:meth:`DrbdDevice.assemble` finds the minor of a disk in use, it compares the present configuration
with the right one: the same is kept, a part of it is completed, and everything else is taken down.
If the kernel refuses to take the minor down, because a program writes to it, assembling fails. A
minor in use by something else is never adopted: two disks of different instances must not be
mirrored to each other. The shared secret of each disk is a second protection against that.

Only a migration needs a dual-primary device, and it makes it so itself. One which
:meth:`DrbdDevice.assemble` finds was left by a migration whose master died; it becomes
single-primary again, unless both replicas are primary.

Only :meth:`DrbdDevice.open` with ``force``, which is for new devices, declares a replica to be
valid; otherwise that method promotes no replica which may have missed writes
(:meth:`DrbdDevice.doubt`). A replica which the configuration knows to have missed writes is marked
in the metadata of DRBD, so that the kernel does not promote it either (:meth:`DrbdDevice.outdate`).
Nothing here resolves a split brain: the peers stay disconnected until an administrator decides
which replica is discarded.

Source: Ganeti design 2.0, *DRBD minor allocation* and *DRBD8 peer authentication*.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from typing import Any

from ganeti import errors, storage
from ganeti.constants import disk as disk_constants
from ganeti.objects.disk import Disk
from ganeti.objects.disk_templates.drbd import metadata_hold_sectors, metadata_mib
from ganeti.objects.transfer import BlockDevStatus
from ganeti.storage.base import BlockDevice
from ganeti.storage.drbd import argv, parse, status
from ganeti.storage.drbd.parse import MinorConfig, MinorState
from ganeti.utils import process, retry

_log = logging.getLogger(__name__)

LOCAL_IP, REMOTE_IP, PORT = "local-ip", "remote-ip", "port"
LOCAL_MINOR, REMOTE_MINOR = "local-minor", "remote-minor"
#: Place of this node in the ``logical_id`` of the disk: 0 or 1.
NODE_ID = "node-id"
#: The replica which is known to have missed writes: "local", "remote", or no such key.
OUTDATED = "outdated"

_MAJOR = 147
_TIMEOUT_S = 300.0
_DISCONNECT_S = 20.0
_CONNECT_S = 30.0
_GROW_S = 30.0
_SECTOR = 512
_MIB = 1 << 20
# Metadata may be larger than necessary, but a device of another size is something else.
_META_MOST_MIB = 1024


class DrbdDevice(BlockDevice):
    """The replica of a mirrored disk on this node."""

    ASSEMBLED_ON_SECONDARY = True

    def __init__(self, disk: Disk) -> None:
        super().__init__(disk)
        if len(disk.logical_id) != 6:
            raise self.wrong(
                f"id of {len(disk.logical_id)} parts is not"
                " [node, node, port, minor, minor, secret]"
            )
        if len(disk.children) not in (0, 2):
            raise self.wrong(
                f"expected data and metadata below it, not {len(disk.children)} devices"
            )
        found: dict[str, Any] = dict(disk.dynamic_params or {})
        if not isinstance(found.get(LOCAL_MINOR), int):
            raise errors.BlockDeviceError(
                f"disk {disk.iv_name or disk.uuid} has no replica on this node"
            )
        self.minor: int = found[LOCAL_MINOR]
        self.remote_minor = found.get(REMOTE_MINOR)
        mirror = disk.drbd_id
        self._local = argv.Endpoint(str(found[LOCAL_IP]), int(mirror.port))
        self._remote = argv.Endpoint(str(found[REMOTE_IP]), int(mirror.port))
        self._secret = str(mirror.secret or "")
        self._params: dict[str, Any] = dict(disk.params or {})
        self._outdated = found.get(OUTDATED)
        self._node_id: int | None = found.get(NODE_ID)
        self._version: tuple[int, int, int] | None = None
        self._just_created = False

    @property
    def path(self) -> str:
        """Path of the device, which exists as long as the kernel module is loaded."""
        return f"/dev/drbd{self.minor}"

    @property
    def unique_id(self) -> str:
        """The minor on this node, and the port on both nodes."""
        return f"drbd{self.minor} (port {self._local.port})"

    # -- creation and removal --------------------------------------------------

    def create(self, size_mib: int, *, exclusive: bool = False, owner: str = "") -> None:
        """Write new metadata; data and metadata devices exist already."""
        if exclusive:
            raise self.fail("mirrored disks cannot have physical disks of their own")
        self._require_minor()
        state = status.minor(self.minor)
        if state is not None:
            # The minor belongs to this disk, so it is left over from an operation that was undone.
            self._take_down(self._configuration())
        if len(self.disk.children) != 2:
            raise self.fail("needs a data and a metadata device below it")
        data, meta = (storage.device(child) for child in self.disk.children)
        data.assemble()
        meta.assemble()
        self._require_enough_metadata(meta.path, self.disk.size)
        self._write_metadata(meta.path)
        self._just_created = True

    def _require_minor(self) -> None:
        """Check that the module has our minor.

        :raises BlockDeviceError: it has not; a command of DRBD would say that the minor is not
            known, or that it is not allocated.
        """
        limit = status.minor_limit()
        if limit is not None and self.minor >= limit:
            raise self.fail(
                f"the DRBD module of this node was loaded for {limit} minors, so it has no minor"
                f" {self.minor}; load it with a larger minor_count when none of its devices is in"
                " use"
            )

    def _write_metadata(self, meta_path: str) -> None:
        size_mib = self._meta_sectors(meta_path) // argv.SECTORS_PER_MIB
        most_mib = max(_META_MOST_MIB, 2 * metadata_mib(self.disk.size))
        if not disk_constants.DRBD_META_SIZE_MIB <= size_mib <= most_mib:
            raise self.fail(
                f"metadata device {meta_path} has {size_mib} MiB, but must have between"
                f" {disk_constants.DRBD_META_SIZE_MIB} and {most_mib}"
            )
        self._run(argv.wipe_meta_argv(meta_path, size_mib), f"cannot wipe {meta_path}")
        command = self._commands().create_metadata(meta_path)
        self._run(command, f"cannot create metadata on {meta_path}")

    def _require_enough_metadata(self, meta_path: str, size_mib: int) -> None:
        """Check that a metadata device is large enough for a device of a size.

        :raises BlockDeviceError: it is not.
        """
        enough_for_mib = (
            metadata_hold_sectors(self._meta_sectors(meta_path)) // argv.SECTORS_PER_MIB
        )
        if size_mib > enough_for_mib:
            raise self.fail(
                f"cannot have {size_mib} MiB: its metadata device {meta_path} is large enough for"
                f" {enough_for_mib} MiB"
            )

    def _meta_sectors(self, meta_path: str) -> int:
        done = self._run(argv.meta_size_argv(meta_path), f"cannot measure {meta_path}")
        try:
            return int(done.stdout)
        except ValueError as err:
            raise self.fail(f"size of {meta_path} is {done.stdout!r:.80}") from err

    def remove(self) -> None:
        """Take the minor down; the caller removes the devices below it."""
        self.shutdown()

    def exists(self) -> bool:
        """Return True if the minor has local storage or a peer."""
        return status.minor(self.minor) is not None

    # -- assembling ------------------------------------------------------------

    def assemble(self) -> None:
        """Attach the local storage and connect to the peer, where this is not done yet.

        The loss of the storage is not an error, except for a new device: the device then uses the
        replica of the peer until the storage is replaced.

        :raises BlockDeviceError: the minor is in use by something else and cannot be taken down, or
            a command of DRBD fails.
        """
        if status.minor(self.minor) is not None:
            present = self._configuration()
            if self._complete(present):
                return
            self._take_down(present)
        self._make()
        self._attach()
        self._outdate_as_recorded()
        try:
            self._connect(dual_primary=False)
        except errors.BlockDeviceError:
            # A device without a connection would look like one whose peer is down.
            self._run(self._commands().down(), "cannot be taken down", check=False)
            raise

    def _complete(self, present: MinorConfig) -> bool:
        """Complete the configuration of a minor in use.

        :returns: False when the minor is configured in another way; then nothing was changed.
        """
        if present.resource not in (None, self._commands().resource):
            return False
        if present.node_id not in (None, self._node_id):
            return False
        storage_fits = self._has_our_storage(present)
        diskless = present.data_device is None
        if not storage_fits and not (diskless and self.disk.children):
            return False
        peer_fits = self._has_our_peer(present)
        if diskless and not peer_fits:
            # Nothing shows that this minor belongs to this disk.
            return False
        if diskless:
            self._attach()
        self._outdate_as_recorded()
        if not self._state().standalone:
            if peer_fits and not (present.dual_primary and self._end_dual_primary()):
                return True
            self._disconnect_from(present)
        self._connect(dual_primary=False)
        return True

    def _end_dual_primary(self) -> bool:
        """Make a connection single-primary which a migration left dual-primary.

        While both replicas are primary it stays as it is: a migration may have left a guest on each
        node, and only ``gnt-instance migrate --cleanup`` knows which one stays.

        :returns: whether it must be disconnected and connected again for that.
        """
        state = self._state()
        if state.primary and state.remote_role == parse.PRIMARY:
            _log.warning("%s stays dual-primary: both replicas are primary", self.unique_id)
            return False
        _log.info("%s was left dual-primary", self.unique_id)
        command = self._commands().single_primary(self._local, self._remote)
        if command is None:
            return True
        self._run(command, "cannot be made single-primary")
        return False

    def _has_our_storage(self, present: MinorConfig) -> bool:
        if len(self.disk.children) != 2:
            return present.data_device is None
        data, meta = (storage.device(child).path for child in self.disk.children)
        return present.data_device == data and present.meta_device == meta

    def _has_our_peer(self, present: MinorConfig) -> bool:
        return (
            present.local_address == (self._local.address, self._local.port)
            and present.remote_address == (self._remote.address, self._remote.port)
            and (present.secret or "") == self._secret
        )

    def _make(self) -> None:
        self._require_minor()
        unused = self._commands().remove_unused()
        if unused is not None:
            self._run(unused, "cannot be removed", check=False)
        for command in self._commands().make():
            self._run(command, "cannot be created")

    def _attach(self) -> None:
        if len(self.disk.children) != 2:
            return
        data, meta = (storage.device(child) for child in self.disk.children)
        try:
            data.assemble()
            meta.assemble()
            self._attach_to(data.path, meta.path)
        except errors.BlockDeviceError as err:
            if self._just_created:
                raise
            _log.error("%s works without local storage: %s", self.unique_id, err)

    def _attach_to(self, data: str, meta: str) -> None:
        commands = self._commands()
        for command in commands.prepare_attach(meta):
            self._run(command, f"cannot attach {data}")
        command = commands.attach(data, meta, self._sectors_to_attach(meta), self._params)
        self._run(command, f"cannot attach {data}")
        rate = commands.sync_options(self._params)
        if rate is not None:
            self._run(rate, "cannot set its synchronisation rate")

    def _sectors_to_attach(self, meta: str) -> int:
        """Return the size with which the device is attached.

        :raises BlockDeviceError: its metadata cannot be read, so that attaching might cut off a
            part.
        """
        sizes = self._metadata_sizes(meta)
        # The configuration has a smaller size when a growth ended before it was recorded. Writes
        # to the rest may have been confirmed since then.
        wanted = max(self.disk.size * argv.SECTORS_PER_MIB, sizes.agreed_sectors)
        own_sectors = sizes.own_sectors
        most = metadata_hold_sectors(
            self._meta_sectors(meta) if own_sectors is None else own_sectors
        )
        if wanted <= most:
            return wanted
        # The kernel would refuse to attach it. It never was larger than its metadata allow.
        _log.warning(
            "%s gets %s MiB instead of %s MiB, because its metadata are not large enough",
            self.unique_id,
            most // argv.SECTORS_PER_MIB,
            wanted // argv.SECTORS_PER_MIB,
        )
        return most

    def _metadata_sizes(self, meta: str) -> parse.MetadataSizes:
        """Return the sizes in metadata which are not attached.

        :raises BlockDeviceError: they cannot be read.
        """
        done = self._run(self._commands().dump_metadata(meta), f"cannot read {meta}")
        try:
            return parse.parse_metadata(done.stdout)
        except errors.ParseError as err:
            raise self.fail(f"cannot be attached: {err}") from err

    def _connect(self, *, dual_primary: bool) -> None:
        options = argv.NetOptions(
            # A dual-primary device is safe with the synchronous protocol only.
            protocol="C" if dual_primary else str(self._params.get("protocol", "C")),
            secret=self._secret,
            dual_primary=dual_primary,
            custom=str(self._params.get("net-custom", "")),
            sync=self._params,
        )
        forget = self._commands().forget_peer()
        if forget is not None and self._configuration().peer_node_id is not None:
            self._run(forget, "cannot remove its connection")
        for command in self._commands().connect(self._local, self._remote, options):
            self._run(command, f"cannot connect to its peer {self._remote}")

    def _take_down(self, present: MinorConfig) -> None:
        self._run(
            self._commands().down(present.resource),
            f"minor {self.minor} is in use by something else ({_described(present)}) and cannot"
            " be taken down",
        )
        if status.minor(self.minor) is not None:
            raise self.fail(f"minor {self.minor} was taken down, but is still in use")

    def shutdown(self) -> None:
        """Take the minor down.

        :raises BlockDeviceError: a program has it open; it stays as it is.
        """
        self.until_free(self._try_to_shut_down)

    def _try_to_shut_down(self) -> errors.BlockDeviceError | None:
        if not status.loaded() or status.minor(self.minor) is None:
            return None
        try:
            self._run(self._commands().down(self._configuration().resource), "cannot be taken down")
        except errors.BlockDeviceError as err:
            # The kernel refuses it while any program has the device open.
            return err
        return None

    # -- roles -----------------------------------------------------------------

    def open(self, *, exclusive: bool = True, force: bool = False) -> None:
        """Make the device writable on this node (primary).

        A replica which missed writes does not know it: while it is not connected, it calls itself
        valid. So a replica becomes primary only when it is connected to its peer, or when the
        configuration says that the peer's replica has missed writes.

        DRBD refuses this while the peer is primary, unless the device is dual-primary, and while no
        valid replica can be reached.

        :param force: declare the local replica to be valid; only for a new device.
        :raises BlockDeviceError: the replicas do not connect in time, so that nobody can compare
            them; or the peer is needed for the data and has none.
        """
        if self._state().primary:
            return
        if not force:
            self._wait_for_latest_data()
            # The kernel may know that this replica missed writes, from before the decision to
            # use it without the other one.
            force = self._may_be_used_alone(self._state()) and self._state().outdated
        self._run(self._commands().primary(force=force), "cannot become primary")

    def _wait_for_latest_data(self, sleep: Callable[[float], None] = time.sleep) -> None:
        """Wait until this node is known to have, or to reach, all confirmed data."""

        def latest() -> None:
            problem = self.doubt()
            if problem is not None:
                raise retry.Again(problem)

        try:
            retry.until(latest, timeout_s=_CONNECT_S, sleep=sleep)
        except errors.RetryTimeout as err:
            raise self.fail(f"cannot become primary: it {err}") from err

    def doubt(self) -> str | None:
        """Return why the device may lack writes which were confirmed.

        The result is None when it has, or reaches, all.

        :returns: the rest of a sentence which begins with the name of the device.
        """
        state = self._state()
        together = state.connected or state.resyncing
        if not together:
            if self._may_be_used_alone(state):
                return None
            if self._outdated == "remote":
                return "has no complete replica on this node"
            return self._outdated_alone(state) or (
                f"is not connected to its peer (connection {state.connection}), so it is not known"
                " whether it has all data"
            )
        if state.remote_disk == parse.UP_TO_DATE:
            return None
        if not state.up_to_date:
            return (
                f"has no complete replica: the local one is {state.local_disk}, that of its peer"
                f" {state.remote_disk or 'unknown'}"
            )
        if self._outdated == "local":
            return (
                "is known to have missed writes on this node, and the replica of its peer is"
                f" {state.remote_disk or 'unknown'}"
            )
        return None

    def _may_be_used_alone(self, state: MinorState) -> bool:
        """Return True if the configuration allows to use a complete replica without comparing
        it.
        """
        alone = not state.connected and not state.resyncing
        return alone and self._outdated == "remote" and (state.up_to_date or state.outdated)

    def outdate(self) -> None:
        """Mark the local replica in the metadata of DRBD as one which missed writes.

        The kernel itself then refuses to make it primary, also after a restart of the node, until
        it was connected to its peer. A replica which is connected stays as it is, because DRBD
        compares it with its peer; so do a primary and a replica which is not complete.
        """
        state = self._state()
        if state.primary or state.connected or state.resyncing or not state.up_to_date:
            return
        self._run(self._commands().outdate(), "cannot be marked as outdated")

    def _outdate_as_recorded(self) -> None:
        if self._outdated != "local" or status.minor(self.minor) is None:
            return
        try:
            self.outdate()
        except errors.BlockDeviceError as err:
            # Without this mark, open() still refuses what the kernel would allow.
            _log.warning("%s", err)

    def wait_for_peer(self) -> bool:
        """Let the writable device confirm no write from now on which its peer does not have.

        When the connection breaks, its I/O is suspended until the peer is there again, or until
        :meth:`resume_io`.

        :returns: whether that holds, and both replicas were equal afterwards. It does not hold for
            DRBD 8.3, and when the usermode helper may answer that the peer is outdated.
        """
        command = self._commands().wait_for_peer(True)
        if command is None or status.usermode_helper() != disk_constants.DRBD_NEUTRAL_HELPER:
            return False
        if not self._is_equal(self._state()):
            return False
        self._run(command, "cannot be made to wait for its peer")
        # A connection which is there now cannot break without being noticed.
        return self._is_equal(self._state())

    @staticmethod
    def _is_equal(state: MinorState) -> bool:
        return (
            state.primary
            and state.connected
            and state.up_to_date
            and state.remote_disk == parse.UP_TO_DATE
        )

    def resume_io(self) -> None:
        """Resume the I/O of the device without its peer.

        The master has recorded before that the replica of the peer misses writes.
        """
        command = self._commands().wait_for_peer(False)
        state = self._state()
        if command is not None and not state.diskless:
            self._run(command, "cannot resume its I/O without its peer")
        if self._state().suspended:
            self._run(self._commands().resume_requests(), "cannot resume its I/O without its peer")

    def close(self) -> None:
        """Make the device inaccessible on this node (secondary)."""
        if self._state().primary:
            self._run(self._commands().secondary(), "cannot become secondary")
            present = self._configuration()
            if present.waits_for_peer:
                # Otherwise the kernel would refuse to open the device without its peer.
                self.resume_io()
            if present.dual_primary:
                # A connection with this option on one side only would not come back once it broke.
                self._end_dual_primary()

    # -- the connection --------------------------------------------------------

    def attach_net(self, *, multimaster: bool) -> None:
        """Connect to the peer, in the background; a device with this connection stays as it is.

        :param multimaster: make the device dual-primary.
        :raises BlockDeviceError: it has another connection.
        """
        state = self._state()
        if not state.standalone:
            present = self._configuration()
            if self._has_our_peer(present) and present.dual_primary == multimaster:
                return
            raise self.fail(
                "is connected already, to another peer or in another mode. Disconnect it first."
            )
        self._connect(dual_primary=multimaster)

    def disconnect_net(self, sleep: Callable[[float], None] = time.sleep) -> None:
        """Disconnect from the peer; a device without a connection stays as it is."""
        if not self._state().standalone:
            self._disconnect_from(self._configuration(), sleep)

    def _disconnect_from(
        self, present: MinorConfig, sleep: Callable[[float], None] = time.sleep
    ) -> None:
        if present.local_address is None or present.remote_address is None:
            return
        command = self._commands().disconnect(
            argv.Endpoint(*present.local_address), argv.Endpoint(*present.remote_address)
        )

        def disconnected() -> None:
            done = self._run(command, "cannot be disconnected", check=False)
            state = status.minor(self.minor)
            if state is None or state.standalone:
                return
            # DRBD refuses for a moment while it connects, or while its peer disconnects.
            raise retry.Again(done.output.strip() or f"it is still {state.connection}")

        try:
            retry.until(disconnected, timeout_s=_DISCONNECT_S, sleep=sleep)
        except errors.RetryTimeout as err:
            raise self.fail(f"cannot be disconnected: {err}") from err
        forget = self._commands().forget_peer()
        if forget is not None:
            self._run(forget, "cannot remove its connection")

    def sync_progress(self) -> MinorState:
        """Return the state of the minor in the kernel.

        :raises BlockDeviceError: the minor is not in use.
        """
        return self._state()

    def needs_activation(self) -> bool:
        """Return True if :meth:`assemble` has work: for the minor, its storage, or its
        connection.
        """
        state = status.minor(self.minor)
        return state is None or state.standalone or (state.diskless and bool(self.disk.children))

    def pause_sync(self) -> None:
        """Pause a synchronisation."""
        self._run(self._commands().pause_sync(), "cannot pause its synchronisation")

    def resume_sync(self) -> None:
        """Resume a synchronisation; one which is not paused is not an error."""
        if self._state().connection.startswith("Paused"):
            self._run(self._commands().resume_sync(), "cannot resume its synchronisation")

    # -- the devices below -----------------------------------------------------

    def remove_children(self, children: Sequence[Disk]) -> None:
        """Detach the local storage.

        :param children: the present data and metadata device.
        :raises BlockDeviceError: other devices are attached, or the peer has no valid replica.
        """
        state = status.minor(self.minor)
        if state is None or state.diskless:
            return
        present = self._configuration()
        if len(children) != 2:
            raise self.fail(f"expected data and metadata device, not {len(children)} devices")
        names = [storage.device(child).path for child in children]
        if [present.data_device, present.meta_device] != names:
            raise self.fail(
                f"has {present.data_device} and {present.meta_device} below it, not"
                f" {' and '.join(names)}"
            )
        if state.primary and state.remote_disk != parse.UP_TO_DATE:
            raise self.fail(
                "cannot give up its storage while the replica of its peer is"
                f" {state.remote_disk or 'unknown'}"
            )
        self._run(self._commands().detach(), "cannot be detached from its storage")

    def add_children(self, children: Sequence[Disk]) -> None:
        """Attach new storage, to which DRBD then copies the replica of the peer.

        A device without storage and connection disappears, so it connects to its peer anew.

        :param children: data and metadata device.
        :raises BlockDeviceError: it has storage already, or a command fails.
        """
        if len(children) != 2:
            raise self.fail(f"expected data and metadata device, not {len(children)} devices")
        state = status.minor(self.minor)
        if state is not None and not state.diskless:
            raise self.fail("has storage already")
        data, meta = (storage.device(child) for child in children)
        data.assemble()
        meta.assemble()
        self._write_metadata(meta.path)
        if state is None:
            self._make()
        self._attach_to(data.path, meta.path)
        if self._state().standalone:
            self._connect(dual_primary=False)

    def grow(
        self, amount_mib: int, *, dry_run: bool, backing_store: bool, exclusive: bool = False
    ) -> None:
        """Grow the storage on each node, and in the second pass the device on one of them.

        A device which has the size already, or a larger one, stays as it is.
        """
        if self._state().diskless:
            raise self.fail("cannot grow without local storage")
        if backing_store:
            if len(self.disk.children) != 2:
                raise self.fail("has no storage below it which could grow")
            data, meta = (storage.device(child) for child in self.disk.children)
            wanted_mib = data.size_bytes() // _MIB + amount_mib
            self._require_enough_metadata(meta.path, wanted_mib)
            data.grow(amount_mib, dry_run=dry_run, backing_store=True, exclusive=exclusive)
            return
        wanted_mib = self.disk.size + amount_mib
        # DRBD would make a larger device smaller.
        if not dry_run and self._kernel_sectors() < wanted_mib * argv.SECTORS_PER_MIB:
            for child in self.disk.children[1:]:
                self._require_enough_metadata(storage.device(child).path, wanted_mib)
            self._run(self._commands().resize(wanted_mib), f"cannot grow by {amount_mib} MiB")
            self._wait_until_grown(wanted_mib)

    def _wait_until_grown(
        self, wanted_mib: int, sleep: Callable[[float], None] = time.sleep
    ) -> None:
        """Wait until the device has a size: the command ends before the replicas agreed on it."""

        def grown() -> None:
            if not 0 < self._kernel_sectors() < wanted_mib * argv.SECTORS_PER_MIB:
                return
            state = self._state()
            if not state.connected and not state.resyncing:
                # Without its peer the command succeeds and does nothing.
                raise self.fail(
                    f"has not grown to {wanted_mib} MiB (connection {state.connection}). It grows"
                    " when both replicas are connected"
                )
            raise retry.Again(f"connection {state.connection}")

        try:
            retry.until(grown, timeout_s=_GROW_S, sleep=sleep)
        except errors.RetryTimeout as err:
            raise self.fail(f"has not grown to {wanted_mib} MiB in time ({err})") from err

    def rename(self, new_id: tuple[object, ...]) -> None:
        """Refuse: the minor is the name of the device.

        :raises BlockDeviceError: always.
        """
        raise self.fail("has no name which could be changed")

    def set_info(self, text: str) -> None:
        """Attach the text to the devices below."""
        if self._just_created:
            # They are new, too, and got the text when they were created.
            return
        for child in self.disk.children:
            storage.device(child).set_info(text)

    def require_latest_data(self) -> None:
        """Check that the device is open, and that it was not opened with an outdated replica.

        Blocks which the local replica lacks are read from the peer.

        :raises BlockDeviceError: it is not primary; or the configuration says that the local
            replica has missed writes, and the device is not connected to its peer.
        """
        state = self._state()
        if not state.primary:
            raise self.fail("is not primary on this node, so that its content cannot be read")
        problem = self._outdated_alone(state)
        if problem is not None:
            raise self.fail(problem)

    def snapshot(self, name: str, size_mib: int) -> tuple[object, ...]:
        """Take a snapshot of the data device.

        :raises BlockDeviceError: the local replica is not known to have all data.
        """
        self._require_complete_replica()
        return storage.device(self.disk.children[0]).snapshot(name, size_mib)

    def keep_snapshot(self, name: str, size_mib: int, *, at_rest: bool) -> None:
        """Take a snapshot of the data device, which stays until a user removes it.

        :raises BlockDeviceError: the local replica is not known to have all data.
        """
        self._require_complete_replica()
        storage.device(self.disk.children[0]).keep_snapshot(name, size_mib, at_rest=at_rest)

    def _require_complete_replica(self) -> None:
        """Check that the data device alone has every write which was ever confirmed.

        :raises BlockDeviceError: it has not, or it is not known.
        """
        if len(self.disk.children) != 2:
            raise self.fail("has no local storage that could be copied")
        state = self._state()
        problem = self._missing_in_replica(state)
        if problem is not None:
            raise self.fail(f"cannot be copied on this node: it {problem}")

    def _missing_in_replica(self, state: MinorState) -> str | None:
        """Return why the local replica may lack writes which were confirmed; None when it has all.

        :returns: the rest of a sentence about the device, and what to do.
        """
        if state.diskless:
            return (
                "has no local storage, and its data are on its peer. Replace its storage, or make"
                " the node of the peer the primary node."
            )
        if not state.up_to_date or state.connection in parse.SYNC_TARGETS:
            return (
                f"has no complete replica on this node (disk {state.local_disk}, connection"
                f" {state.connection}). Wait until it is in sync, or replace its storage."
            )
        if state.primary:
            # It was opened by the rule of doubt(), and every write since then went to this replica.
            return self._outdated_alone(state)
        if state.remote_role == parse.PRIMARY and self._params.get("protocol", "C") != "C":
            return (
                "is not primary, and its peer confirms writes before they are on this node. Copy it"
                " on the node of its peer."
            )
        in_sync = state.connected and state.remote_disk == parse.UP_TO_DATE
        if in_sync or state.resyncing or self._outdated == "remote":
            return None
        return (
            f"is not primary, and not in sync with its peer (connection {state.connection}, disk of"
            f" the peer {state.remote_disk or 'unknown'}), so that it is not known whether it has"
            " all data. Activate the disk on both nodes."
        )

    def _outdated_alone(self, state: MinorState) -> str | None:
        if self._outdated != "local" or state.connected or state.resyncing:
            return None
        return (
            "is known to have missed writes on this node, and is not connected to its peer"
            f" (connection {state.connection})"
        )

    # -- facts -----------------------------------------------------------------

    def size_bytes(self) -> int:
        """Return the size of the device in bytes.

        While the kernel has none, it is that of its data device.
        """
        sectors = self._kernel_sectors()
        if sectors:
            return sectors * _SECTOR
        if not self.disk.children:
            raise self.fail("has no known size on this node")
        return storage.device(self.disk.children[0]).size_bytes()

    def _kernel_sectors(self) -> int:
        """Return the size of the device in the kernel; 0 while it has none."""
        try:
            with open(f"/sys/block/drbd{self.minor}/size", encoding="ascii") as stream:
                return int(stream.read())
        except (OSError, ValueError):
            return 0

    def sync_status(self) -> BlockDevStatus:
        """Degraded unless both replicas are connected and valid.

        The replica whose peer is primary and has lost its storage is not degraded: it has all data,
        and the instance may be migrated to its node. The state of a replica which is complete, but
        marked as outdated, is unknown: only its peer can tell what it lacks.
        """
        state = self._state()
        if state.up_to_date:
            local = disk_constants.LDS_OKAY
        elif state.resyncing:
            # The kernel calls the target of a synchronisation outdated until the first block comes.
            local = disk_constants.LDS_SYNC
        elif state.outdated:
            local = disk_constants.LDS_UNKNOWN
        else:
            local = disk_constants.LDS_FAULTY
        percent, finish_s = state.sync_percent, state.finish_s
        if state.resyncing and percent is None:
            # The synchronisation begins or is paused.
            percent = 0.0
        safe = state.remote_disk == parse.UP_TO_DATE or state.remote_role == parse.PRIMARY
        degraded = not (state.connected and state.up_to_date and safe)
        return BlockDevStatus(
            dev_path=self.path,
            major=_MAJOR,
            minor=self.minor,
            sync_percent=percent,
            estimated_time=None if finish_s is None else float(finish_s),
            is_degraded=degraded,
            ldisk_status=local,
            writable=state.primary,
        )

    # -- helpers ---------------------------------------------------------------

    def _state(self) -> MinorState:
        state = status.minor(self.minor)
        if state is None:
            raise self.fail("is not active")
        return state

    def _configuration(self) -> MinorConfig:
        state = status.minor(self.minor)
        command = self._commands().show(None if state is None else state.resource)
        done = self._run(command, "does not show its configuration")
        try:
            return parse.parse_show(done.stdout)
        except errors.ParseError as err:
            raise self.fail(str(err)) from err

    def _commands(self) -> argv.Commands:
        if self._version is None:
            self._version = status.version()
        return argv.commands(self._version, self.minor, node_id=self._node_id)

    def _run(
        self, command: Sequence[str], problem: str, *, check: bool = True
    ) -> process.Completed:
        try:
            return process.run(command, timeout_s=_TIMEOUT_S, check=check)
        except errors.CommandError as err:
            raise self.fail(f"{problem}: {err}") from err


def _described(present: MinorConfig) -> str:
    parts = []
    if present.data_device:
        parts.append(f"storage {present.data_device}")
    if present.remote_address:
        parts.append(f"peer {present.remote_address[0]}:{present.remote_address[1]}")
    return ", ".join(parts) or "without storage and peer"
