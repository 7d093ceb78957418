"""A DRBD8 device as a block device.

Its ``logical_id`` is ``(node uuid a, node uuid b, port, minor a, minor b, secret)``; what is ours
and what the peer's, the master says in ``dynamic_params``, because a node does not know its UUID.
Below it lie two devices, data and metadata, or none on a node which is about to lose its half.

The minors of a machine belong to the cluster, and each of them to one disk (seed 001 *DRBD minor
allocation*). When a minor that should be free turns out to be in use, what is there is compared
with what should be: the same is kept, a part is completed, everything else is taken down, and when
the kernel refuses that (somebody writes to it), so does :meth:`DrbdDevice.assemble`. It is never
adopted: two disks of different instances must not be mirrored to each other. The shared secret of
each disk is the second wall (seed 001 *DRBD8 peer authentication*).

Nothing here ever declares data to be valid except :meth:`DrbdDevice.open` with ``force``, which is
for a device that was just made; and nothing resolves a split brain: the peers then stand alone
until an administrator decides which side is to be thrown away.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from typing import Any

from ganeti import errors, storage
from ganeti.constants import disk as disk_constants
from ganeti.objects.disk import Disk
from ganeti.objects.transfer import BlockDevStatus
from ganeti.storage.base import BlockDevice
from ganeti.storage.drbd import argv, parse, status
from ganeti.storage.drbd.parse import Configured, MinorState
from ganeti.utils import process, retry

_log = logging.getLogger(__name__)

LOCAL_IP, REMOTE_IP, PORT = "local-ip", "remote-ip", "port"
LOCAL_MINOR, REMOTE_MINOR = "local-minor", "remote-minor"

_MAJOR = 147
_TIMEOUT_S = 300.0
_DISCONNECT_S = 20.0
_CONNECT_S = 20.0
_SECTOR = 512
_MIB = 1 << 20


class DrbdDevice(BlockDevice):
    """One half of a mirrored disk."""

    ASSEMBLED_ON_SECONDARY = True

    def __init__(self, disk: Disk) -> None:
        super().__init__(disk)
        if len(disk.logical_id) != 6:
            raise errors.BlockDeviceError(
                f"disk {disk.uuid or disk.iv_name}: id of {len(disk.logical_id)} parts is not"
                " [node, node, port, minor, minor, secret]"
            )
        if len(disk.children) not in (0, 2):
            raise errors.BlockDeviceError(
                f"disk {disk.uuid or disk.iv_name}: expected data and metadata below it, not"
                f" {len(disk.children)} devices"
            )
        found: dict[str, Any] = dict(disk.dynamic_params or {})
        if not isinstance(found.get(LOCAL_MINOR), int):
            raise errors.BlockDeviceError(
                f"disk {disk.uuid or disk.iv_name}: it has no half on this node"
            )
        self.minor: int = found[LOCAL_MINOR]
        self.remote_minor = found.get(REMOTE_MINOR)
        self._local = argv.Endpoint(str(found[LOCAL_IP]), int(disk.logical_id[2]))
        self._remote = argv.Endpoint(str(found[REMOTE_IP]), int(disk.logical_id[2]))
        self._secret = str(disk.logical_id[5] or "")
        self._params: dict[str, Any] = dict(disk.params or {})
        self._version: tuple[int, int, int] | None = None
        self._just_made = False

    @property
    def path(self) -> str:
        """The device file, which exists whenever the module is loaded."""
        return f"/dev/drbd{self.minor}"

    @property
    def unique_id(self) -> str:
        """Ports and minors: what both nodes call it."""
        return f"drbd{self.minor} (port {self._local.port})"

    # -- making and destroying -------------------------------------------------

    def create(self, size_mib: int, *, exclusive: bool = False, owner: str = "") -> None:
        """Write fresh metadata; data and metadata devices are there already."""
        if exclusive:
            raise self.fail("mirrored disks cannot have physical disks of their own")
        state = status.minor(self.minor)
        if state is not None:
            # Nobody else may have this minor, so it is left over from something that was undone.
            self._take_down(self._configured())
        if len(self.disk.children) != 2:
            raise self.fail("needs a data and a metadata device below it")
        data, meta = (storage.device(child) for child in self.disk.children)
        data.assemble()
        meta.assemble()
        self._write_metadata(meta.path)
        self._just_made = True

    def _write_metadata(self, meta_path: str) -> None:
        size_mib = self._meta_size_mib(meta_path)
        if not argv.META_SIZE_MIN_MIB <= size_mib <= argv.META_SIZE_MAX_MIB:
            raise self.fail(
                f"metadata device {meta_path} has {size_mib} MiB, it must have between"
                f" {argv.META_SIZE_MIN_MIB} and {argv.META_SIZE_MAX_MIB}"
            )
        self._run(argv.wipe_meta_argv(meta_path), f"cannot wipe {meta_path}")
        self._run(self._commands().create_metadata(meta_path), f"cannot prepare {meta_path}")

    def _meta_size_mib(self, meta_path: str) -> int:
        done = self._run(argv.meta_size_argv(meta_path), f"cannot measure {meta_path}")
        try:
            return int(done.stdout) * _SECTOR // _MIB
        except ValueError as err:
            raise self.fail(f"size of {meta_path} is {done.stdout!r:.80}") from err

    def remove(self) -> None:
        """Take it down; what is below is removed on its own."""
        self.shutdown()

    def exists(self) -> bool:
        """Whether the minor is configured in any way."""
        return status.minor(self.minor) is not None

    # -- assembling ------------------------------------------------------------

    def assemble(self) -> None:
        """Attach the local storage and look for the peer, as far as that is not done yet.

        Storage which is lost is no reason to fail: the peer has the data, and the device works over
        the network until the storage is replaced. Only what was just made must be complete.

        :raises BlockDeviceError: the minor is in use by something else that cannot be taken down.
        """
        if status.minor(self.minor) is not None:
            present = self._configured()
            if self._complete(present):
                return
            self._take_down(present)
        self._make()
        self._attach()
        try:
            self._connect(dual_primary=False)
        except errors.BlockDeviceError:
            # Half a device would look like one whose peer is gone.
            self._run(self._commands().down(), "cannot be taken down", check=False)
            raise

    def _complete(self, present: Configured) -> bool:
        """Add what is missing to a minor which is ours; False when it is not, or not altogether."""
        if present.resource not in (None, self._commands().resource):
            return False
        storage_fits = self._has_our_storage(present)
        diskless = present.data_device is None
        if not storage_fits and not (diskless and self.disk.children):
            return False
        peer_fits = self._has_our_peer(present)
        if diskless and not peer_fits:
            # Without storage and without our peer nothing says that it is ours.
            return False
        if diskless:
            self._attach()
        if not self._state().standalone:
            if peer_fits:
                return True
            self._disconnect_from(present)
        self._connect(dual_primary=False)
        return True

    def _has_our_storage(self, present: Configured) -> bool:
        if len(self.disk.children) != 2:
            return present.data_device is None
        data, meta = (storage.device(child).path for child in self.disk.children)
        return present.data_device == data and present.meta_device == meta

    def _has_our_peer(self, present: Configured) -> bool:
        return (
            present.local_address == (self._local.address, self._local.port)
            and present.remote_address == (self._remote.address, self._remote.port)
            and (present.secret or "") == self._secret
        )

    def _make(self) -> None:
        for words in self._commands().make():
            self._run(words, "cannot be made")

    def _attach(self) -> None:
        if len(self.disk.children) != 2:
            return
        data, meta = (storage.device(child) for child in self.disk.children)
        try:
            data.assemble()
            meta.assemble()
            self._attach_to(data.path, meta.path)
        except errors.BlockDeviceError as err:
            if self._just_made:
                raise
            _log.error("%s goes on without local storage: %s", self.unique_id, err)

    def _attach_to(self, data: str, meta: str) -> None:
        commands = self._commands()
        for words in commands.attach(data, meta, self.disk.size, self._params):
            self._run(words, f"cannot attach {data}")
        self._run(commands.sync_options(self._params), "cannot set its synchronisation rate")

    def _connect(self, *, dual_primary: bool) -> None:
        options = argv.NetOptions(
            # With two writers only the synchronous protocol is safe.
            protocol="C" if dual_primary else str(self._params.get("protocol", "C")),
            secret=self._secret,
            dual_primary=dual_primary,
            custom=str(self._params.get("net-custom", "")),
        )
        for words in self._commands().connect(self._local, self._remote, options):
            self._run(words, f"cannot look for its peer {self._remote}")

    def _take_down(self, present: Configured) -> None:
        self._run(
            self._commands().down(present.resource),
            f"minor {self.minor} is in use by something else ({_described(present)}), and cannot"
            " be taken down",
        )
        if status.minor(self.minor) is not None:
            raise self.fail(f"minor {self.minor} was taken down, but is still in use")

    def shutdown(self) -> None:
        """Take the minor down; one that is in use stays, and is an error."""
        if not status.loaded() or status.minor(self.minor) is None:
            return
        self._run(self._commands().down(self._configured().resource), "cannot be taken down")

    # -- roles -----------------------------------------------------------------

    def open(self, *, exclusive: bool = True, force: bool = False) -> None:
        """Make it writable here.

        DRBD itself refuses while the peer is writable (unless both were told to allow that), and
        while the local data are not valid.

        :param force: declare the local data valid, whatever they are.
        """
        if self._state().primary:
            return
        if not force:
            self._wait_for_data()
        self._run(self._commands().primary(force=force), "cannot become primary")

    def _wait_for_data(self, sleep: Callable[[float], None] = time.sleep) -> None:
        """Where the local data are not valid, those of the peer must come within reach first."""

        def reachable() -> None:
            state = self._state()
            if not (state.up_to_date or state.remote_disk == parse.UP_TO_DATE):
                raise retry.Again(state.connection)

        try:
            retry.until(reachable, timeout_s=_CONNECT_S, sleep=sleep)
        except errors.RetryTimeout as err:
            raise self.fail(
                f"has no valid data here, and does not reach its peer (connection {err})"
            ) from err

    def close(self) -> None:
        """Make it read-only here."""
        if self._state().primary:
            self._run(self._commands().secondary(), "cannot become secondary")

    # -- the connection --------------------------------------------------------

    def attach_net(self, *, multimaster: bool) -> None:
        """Look for the peer; one that is already connected as wanted stays so.

        :param multimaster: let both sides be writable.
        """
        state = self._state()
        if not state.standalone:
            present = self._configured()
            if self._has_our_peer(present) and present.dual_primary == multimaster:
                return
            raise self.fail("is connected in another way. Disconnect it first")
        self._connect(dual_primary=multimaster)

    def disconnect_net(self, sleep: Callable[[float], None] = time.sleep) -> None:
        """Leave the peer; one that stands alone stays so."""
        if not self._state().standalone:
            self._disconnect_from(self._configured(), sleep)

    def _disconnect_from(
        self, present: Configured, sleep: Callable[[float], None] = time.sleep
    ) -> None:
        if present.local_address is None or present.remote_address is None:
            return
        words = self._commands().disconnect(
            argv.Endpoint(*present.local_address), argv.Endpoint(*present.remote_address)
        )

        def disconnected() -> None:
            done = self._run(words, "cannot be disconnected", check=False)
            state = status.minor(self.minor)
            if state is None or state.standalone:
                return
            # Just connecting, or its peer is disconnecting at the same time: it takes a moment.
            raise retry.Again(done.output.strip() or f"it is still {state.connection}")

        try:
            retry.until(disconnected, timeout_s=_DISCONNECT_S, sleep=sleep)
        except errors.RetryTimeout as err:
            raise self.fail(f"cannot be disconnected: {err}") from err

    def sync_progress(self) -> MinorState:
        """State as the kernel shows it.

        :raises BlockDeviceError: the minor is not in use.
        """
        return self._state()

    def needs_activation(self) -> bool:
        """Whether assembling it again would help: nothing there, without storage, or alone."""
        state = status.minor(self.minor)
        return state is None or state.standalone or (state.diskless and bool(self.disk.children))

    def pause_sync(self) -> None:
        """Let a synchronisation rest."""
        self._run(self._commands().pause_sync(), "cannot pause its synchronisation")

    def resume_sync(self) -> None:
        """Let it go on; one that does not rest is no error."""
        if self._state().connection.startswith("Paused"):
            self._run(self._commands().resume_sync(), "cannot resume its synchronisation")

    # -- changing what is below ------------------------------------------------

    def remove_children(self, children: Sequence[Disk]) -> None:
        """Detach the local storage; the peer's half must be valid.

        :param children: data and metadata device, as they are now.
        :raises BlockDeviceError: others are attached, or the data would be nowhere.
        """
        state = status.minor(self.minor)
        if state is None or state.diskless:
            return
        present = self._configured()
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
                f"cannot give up its storage while its peer's is {state.remote_disk or 'unknown'}"
            )
        self._run(self._commands().detach(), "cannot be detached from its storage")

    def add_children(self, children: Sequence[Disk]) -> None:
        """Attach new storage, which is then filled from the peer.

        One that stood alone has nothing left when it loses its storage, so it looks for its peer
        anew.

        :param children: data and metadata device.
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
        """First the storage on both nodes, then, on one of them, the device."""
        if self._state().diskless:
            raise self.fail("cannot grow without local storage")
        if backing_store:
            if len(self.disk.children) != 2:
                raise self.fail("has nothing below it that could grow")
            storage.device(self.disk.children[0]).grow(
                amount_mib, dry_run=dry_run, backing_store=True, exclusive=exclusive
            )
            return
        if not dry_run:
            self._run(
                self._commands().resize(self.disk.size + amount_mib),
                f"cannot grow by {amount_mib} MiB",
            )

    def rename(self, new_id: tuple[object, ...]) -> None:
        """Its name is its minor, and that stays."""
        raise self.fail("has no name that could be changed")

    def set_info(self, text: str) -> None:
        """Mark what is below."""
        if self._just_made:
            # So is that, and it was marked when it was made.
            return
        for child in self.disk.children:
            storage.device(child).set_info(text)

    def snapshot(self, name: str, size_mib: int) -> tuple[object, ...]:
        """Make a snapshot of the data device."""
        if not self.disk.children:
            raise self.fail("has no local storage that could be copied")
        return storage.device(self.disk.children[0]).snapshot(name, size_mib)

    # -- looking ---------------------------------------------------------------

    def size_bytes(self) -> int:
        """Size of the device; a secondary cannot be opened, then that of its storage."""
        try:
            with open(f"/sys/block/drbd{self.minor}/size", encoding="ascii") as stream:
                sectors = int(stream.read())
        except (OSError, ValueError):
            sectors = 0
        if sectors:
            return sectors * _SECTOR
        if not self.disk.children:
            raise self.fail("has no size that is known here")
        return storage.device(self.disk.children[0]).size_bytes()

    def sync_status(self) -> BlockDevStatus:
        """Degraded unless both halves are together and in order.

        The half below a writable one that lost its storage is not: it has all the data, and the
        instance may go there.
        """
        state = self._state()
        if state.up_to_date:
            local = disk_constants.LDS_OKAY
        elif state.resyncing:
            local = disk_constants.LDS_SYNC
        else:
            local = disk_constants.LDS_FAULTY
        percent, finish_s = state.sync_percent, state.finish_s
        if state.resyncing and percent is None:
            # It begins or rests; 100 would mean that it is complete.
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
        )

    # -- helpers ---------------------------------------------------------------

    def _state(self) -> MinorState:
        state = status.minor(self.minor)
        if state is None:
            raise self.fail("is not active")
        return state

    def _configured(self) -> Configured:
        done = self._run(self._commands().show(), "does not show what it is configured with")
        try:
            return parse.parse_show(done.stdout)
        except errors.ParseError as err:
            raise self.fail(str(err)) from err

    def _commands(self) -> argv.Commands:
        if self._version is None:
            self._version = status.version()
        return argv.commands(self._version, self.minor)

    def _run(self, words: Sequence[str], problem: str, *, check: bool = True) -> process.Completed:
        try:
            return process.run(words, timeout_s=_TIMEOUT_S, check=check)
        except errors.CommandError as err:
            raise self.fail(f"{problem}: {err}") from err


def _described(present: Configured) -> str:
    parts = []
    if present.data_device:
        parts.append(f"storage {present.data_device}")
    if present.remote_address:
        parts.append(f"peer {present.remote_address[0]}:{present.remote_address[1]}")
    return ", ".join(parts) or "without storage and peer"
