"""The made-up kernel: the commands of the driver, and what happens to machines and networks."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path

from fakes.mirror.content import (
    LVM,
    Meta,
    agree_on,
    agreed_sectors,
    beginning,
    device_path,
    short_name,
)
from fakes.mirror.links import Key, Links, Minor
from ganeti import errors
from ganeti.storage.drbd import parse
from ganeti.storage.drbd.argv import Endpoint, NetOptions


class Kernel(Links):
    """The minors of all nodes, and what changes them."""

    def __init__(self) -> None:
        super().__init__()
        self._marks: dict[str, dict[str, bytes]] = {}

    # -- commands ------------------------------------------------------------------

    def connect(self, key: Key, local: Endpoint, remote: Endpoint, net: NetOptions) -> None:
        minor = self.minors.setdefault(key, Minor())
        minor.local, minor.remote, minor.net = local, remote, net
        self._go_on()

    def attach(self, key: Key, data: str, meta: str, sectors: int | None = None) -> None:
        minor = self.minors.setdefault(key, Minor())
        if sectors is not None:
            if sectors < agreed_sectors(meta):
                # The real kernel does it, too, with a line in its log only.
                self.truncated.append(f"minor {key[1]} of {short_name(key[0])}")
            agree_on(meta, sectors)
        found = self.peer(key)
        present = Meta.read(meta)
        if minor.primary and found is None and present.generations[:1] != (minor.used,):
            raise errors.BlockDeviceError("the storage has not the data which are in use")
        minor.data, minor.meta = data, meta
        if found is not None:
            self._compare(key, found[0])
        self._show_devices()

    def resize(self, key: Key, sectors: int) -> None:
        found = self.peer(key)
        if found is None:
            return  # the real kernel succeeds as well, and waits with the growth for the peer
        for minor in (self.minors[key], found[1]):
            if minor.meta is not None:
                agree_on(minor.meta, sectors)

    def disconnect(self, key: Key) -> None:
        self._require_not_needed(key)
        found = self.peer(key)
        own = self.minors[key]
        if found is not None:
            for one, its_peer in ((own, found[1]), (found[1], own)):
                if one.primary and one.waits and not its_peer.primary and its_peer.meta is not None:
                    self._meta(its_peer)._replace(outdated=True).write(its_peer.meta)
            self.lose(key, found[0], agreed=True)
        own.local = own.remote = own.net = None
        self._go_on()

    def single_primary(self, key: Key) -> None:
        own, found = self.minors[key], self.peer(key)
        assert own.net is not None
        if own.primary and found is not None and found[1].primary:
            raise errors.BlockDeviceError("both replicas are writable")
        own.net = dataclasses.replace(own.net, dual_primary=False)

    def open(self, key: Key, *, force: bool) -> None:
        own, found = self.minors[key], self.peer(key)
        if own.primary:
            return
        if found and found[1].primary and not (own.net and own.net.dual_primary):
            raise errors.BlockDeviceError("the other replica is writable")
        usable = self.disk(key) == parse.UP_TO_DATE or (
            found is not None and self.disk(found[0]) == parse.UP_TO_DATE
        )
        if not usable:
            if not force or own.meta is None:
                raise errors.BlockDeviceError("there are no valid data")
            generations = self._meta(own).generations or (self._name(),)
            Meta(generations).write(own.meta)
        if own.waits and found is None and not force:
            raise errors.BlockDeviceError("State change failed: Need access to UpToDate data")
        own.primary = True
        reached = self._reached(key)
        own.used = "" if reached is None else self._meta(self.minors[reached]).generations[0]
        if found is None or found[1].meta is None:
            self._alone(key)
        else:
            self._compare(key, found[0])
        self._show_devices()

    def outdate(self, key: Key) -> None:
        """Note that a replica has missed writes."""
        own = self.minors[key]
        found = self.peer(key)
        if own.primary or (found is not None and found[1].primary):
            raise errors.BlockDeviceError("the device is in use")
        if own.meta is None:
            raise errors.BlockDeviceError("the device has no storage")
        self._meta(own)._replace(outdated=True).write(own.meta)

    def detach(self, key: Key) -> None:
        self._require_not_needed(key)
        self.replicate()
        own, found = self.minors[key], self.peer(key)
        if own.primary and self._meta(own).valid:
            own.used = self._meta(own).generations[0]
        own.data = own.meta = None
        own.waits = False
        if found is not None:
            self.syncs.pop(found[0], None)
            if self._meta(found[1]).valid and (own.primary or found[1].primary):
                own.used = self._renew(found[1])  # what is written now, this storage will not have
        self.syncs.pop(key, None)
        self._show_devices()

    def close(self, key: Key) -> None:
        self._require_free(key)
        self.replicate()
        self.minors[key].primary = False
        self._show_devices()

    def down(self, key: Key) -> None:
        if key in self.minors:
            self._require_free(key)
            self._require_not_needed(key)
            self.replicate()
            self.minors[key].primary = False
            self.disconnect(key)
            del self.minors[key]

    def wait_for_peer(self, key: Key, wait: bool) -> None:
        self.minors[key].waits = wait

    def resume_requests(self, key: Key) -> None:
        own = self.minors[key]
        if own.suspended:
            own.suspended = False
            self._alone(key)

    def pause_sync(self, key: Key) -> None:
        self._pause(key, True)

    def resume_sync(self, key: Key) -> None:
        self._pause(key, False)

    def _pause(self, key: Key, paused: bool) -> None:
        found = self.peer(key)
        for one in (key, *([found[0]] if found else [])):
            if one in self.syncs:
                self.syncs[one].paused = paused

    def take_down(self, path: str) -> bool:
        """As :func:`ganeti.storage.drbd.leftover.take_down`."""
        for key, minor in list(self.minors.items()):
            if path in (minor.data, minor.meta):
                self.down(key)
                return True
        return False

    def _require_free(self, key: Key) -> None:
        if key in self.held:
            raise errors.BlockDeviceError("it is held open by somebody")

    def _require_not_needed(self, key: Key) -> None:
        """The peer refuses to lose the only valid data which it uses."""
        found = self.peer(key)
        if found is None or not found[1].primary:
            return
        if parse.UP_TO_DATE == self.disk(key) != self.disk(found[0]):
            raise errors.BlockDeviceError("State change was refused by peer node")

    # -- what happens to machines --------------------------------------------------

    def restart_node(self, node: str) -> None:
        """A machine loses its power and starts again: no minors, the same volumes."""
        for key in [key for key in self.minors if short_name(key[0]) == node]:
            found = self.peer(key)
            # Without power nothing is written any more.
            self.minors[key].primary = False
            if found is not None:
                self.lose(key, found[0])
            self.held.discard(key)
            Path(device_path(*key)).unlink(missing_ok=True)
            del self.minors[key]
        self._go_on()

    def mark(self, root: str | Path) -> None:
        """Remember all volumes of a node, see :meth:`old_data`."""
        self.replicate()
        self._marks[short_name(str(root))] = {
            str(path): beginning(path)
            for path in (Path(root) / LVM).rglob("*")
            if path.is_file() and not path.is_symlink()
        }

    def old_data(self, node: str) -> None:
        """A machine starts again, and its volumes are as they were at the mark."""
        self.restart_node(node)
        for name, content in self._marks[node].items():
            if os.path.exists(name):
                with open(name, "r+b") as stream:
                    stream.write(content)

    # -- what guests write -----------------------------------------------------------

    def write(self, key: Key, offset: int, content: bytes) -> bool:
        """Write through a device; tell whether the write was confirmed to the guest.

        It is confirmed when all replicas have it which are connected; those which cannot be
        reached do not delay it, unless the device waits for them.
        """
        own = self.minors.get(key)
        if own is not None and own.suspended:
            return False
        if own is None or not own.primary or self._reached(key) is None:
            return False
        found = self.peer(key)
        for minor in (own, *([found[1]] if found else [])):
            if minor.data is not None:
                with open(minor.data, "r+b") as stream:
                    stream.seek(offset)
                    stream.write(content)
        return True
