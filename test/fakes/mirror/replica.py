"""The real driver of DRBD above the made-up kernel."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fakes.mirror.content import Meta, agree_on, agreed_sectors, device_path, own_root
from fakes.mirror.kernel import Kernel
from ganeti import errors
from ganeti.storage.drbd import device
from ganeti.storage.drbd.argv import Endpoint, NetOptions
from ganeti.storage.drbd.parse import MetadataSizes, MinorConfig, MinorState
from ganeti.utils.process import Completed


class _Commands:
    """Commands as the kernel above takes them: a list with its method and its arguments."""

    resource = None

    def make(self) -> list[list[Any]]:
        return []

    def prepare_attach(self, meta: str) -> list[list[Any]]:
        return []

    def attach(self, data: str, meta: str, sectors: int | None, params: Any) -> list[Any]:
        return ["attach", data, meta, sectors]

    def resize(self, size_mib: int) -> list[Any]:
        return ["resize", size_mib * 2048]

    def connect(self, local: Endpoint, remote: Endpoint, net: NetOptions) -> list[list[Any]]:
        return [["connect", local, remote, net]]

    def disconnect(self, local: Endpoint, remote: Endpoint) -> list[Any]:
        return ["disconnect"]

    def single_primary(self, local: Endpoint, remote: Endpoint) -> list[Any]:
        return ["single_primary"]

    def primary(self, *, force: bool) -> list[Any]:
        return ["open", force]

    def secondary(self) -> list[Any]:
        return ["close"]

    def down(self, resource: str | None = None) -> list[Any]:
        return ["down"]

    def detach(self) -> list[Any]:
        return ["detach"]

    def outdate(self) -> list[Any]:
        return ["outdate"]

    def wait_for_peer(self, wait: bool) -> list[Any]:
        return ["wait_for_peer", wait]

    def resume_requests(self) -> list[Any]:
        return ["resume_requests"]

    def pause_sync(self) -> list[Any]:
        return ["pause_sync"]

    def resume_sync(self) -> list[Any]:
        return ["resume_sync"]

    def forget_peer(self) -> None:
        return None

    def remove_unused(self) -> None:
        return None

    def nothing(self, *_args: Any) -> list[Any]:
        return ["nothing"]

    #: What makes no difference here.
    sync_options = nothing


class Replica(device.DrbdDevice):
    """The real driver above the made-up kernel."""

    kernel: Kernel

    @classmethod
    def kernel_minors(cls) -> dict[int, MinorState]:
        """The minors of the node whose paths are used now."""
        states = {key[1]: cls.kernel.look(key) for key in cls.kernel.minors if key[0] == own_root()}
        return {number: state for number, state in states.items() if state is not None}

    @property
    def path(self) -> str:
        return device_path(*self._key)

    @property
    def _key(self) -> tuple[str, int]:
        return own_root(), self.minor

    def _commands(self) -> Any:
        return _Commands()

    def _write_metadata(self, meta_path: str) -> None:
        Meta().write(meta_path)
        agree_on(meta_path, 0)

    def _metadata_sizes(self, meta: str) -> MetadataSizes:
        return MetadataSizes(agreed_sectors(meta), self._meta_sectors(meta))

    def _meta_sectors(self, meta_path: str) -> int:
        return os.stat(meta_path).st_size // 512

    def _kernel_sectors(self) -> int:
        own = self.kernel.minors.get(self._key)
        return 0 if own is None or own.meta is None else agreed_sectors(own.meta)

    def remove(self) -> None:
        super().remove()
        Path(self.path).unlink(missing_ok=True)

    def shutdown(self) -> None:
        super().shutdown()
        Path(self.path).unlink(missing_ok=True)

    def _configuration(self) -> MinorConfig:
        own = self.kernel.minors[self._key]
        return MinorConfig(
            minor=self.minor,
            data_device=own.data,
            meta_device=own.meta,
            local_address=None if own.local is None else (own.local.address, own.local.port),
            remote_address=None if own.remote is None else (own.remote.address, own.remote.port),
            secret=None if own.net is None else own.net.secret,
            dual_primary=bool(own.net and own.net.dual_primary),
            waits_for_peer=own.waits,
        )

    def _run(self, words: Sequence[Any], problem: str, *, check: bool = True) -> Completed:
        verb, *args = words
        self.kernel.replicate()
        try:
            if verb == "open":
                self.kernel.open(self._key, force=args[0])
            elif verb != "nothing":
                getattr(self.kernel, verb)(self._key, *args)
        except errors.BlockDeviceError as err:
            if check:
                raise self.fail(f"{problem}: {err}") from err
        return Completed((), 0, "", "", None)
