"""Facts from LVM, read at most once in an operation.

``lvs`` takes as long for all volumes as for one, so the first question reads all volumes, and the
next ones are answered from memory. Every command which changes something forgets these facts, and
so does :meth:`Lvm.forget`, which the node daemon calls before each request.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TypeVar

from ganeti import errors
from ganeti.objects.transfer import LvmPvInfo
from ganeti.storage.lvm import argv, parse
from ganeti.storage.lvm.parse import LogicalVolume, Snapshot, VolumeGroup
from ganeti.utils import process

Run = Callable[..., process.Completed]
_T = TypeVar("_T")

_TIMEOUT_S = 600.0
# Without this variable, LVM warns about each open socket of the daemon.
_ENV = {"LVM_SUPPRESS_FD_WARNINGS": "1"}


class Lvm:
    """LVM of this machine.

    :param run: runs programs, as :func:`ganeti.utils.process.run`.
    """

    def __init__(self, run: Run | None = None) -> None:
        self._run = run
        self._volumes: dict[tuple[str, str], LogicalVolume] | None = None
        self._physical: list[LvmPvInfo] | None = None
        self._groups: list[VolumeGroup] | None = None
        self._snapshots: dict[tuple[str, str], Snapshot] | None = None
        self._used_twice: set[str] = set()

    def forget(self) -> None:
        """Forget all facts, so that the next question reads them again."""
        self._volumes = self._physical = self._groups = self._snapshots = None
        self._used_twice.clear()

    def volumes(self) -> dict[tuple[str, str], LogicalVolume]:
        """Return all logical volumes, by (group, name).

        :raises StorageError: LVM fails, or its output has another form.
        """
        if self._volumes is None:
            self._volumes = self._query(argv.lvs_argv(), parse.parse_lvs)
        return self._volumes

    def physical(self) -> list[LvmPvInfo]:
        """Return all physical volumes, also those of no group.

        :raises StorageError: LVM fails, or its output has another form.
        """
        if self._physical is None:
            self._physical = self._query(argv.pvs_argv(), parse.parse_pvs)
        return self._physical

    def groups(self) -> list[VolumeGroup]:
        """Return all volume groups.

        :raises StorageError: LVM fails, or its output has another form.
        """
        if self._groups is None:
            self._groups = self._query(argv.vgs_argv(), parse.parse_vgs)
            names = [group.name for group in self._groups]
            self._used_twice.update(name for name in names if names.count(name) > 1)
        return self._groups

    def groups_used_twice(self) -> set[str]:
        """Return the names which several volume groups have.

        :raises StorageError: LVM fails, or its output has another form.
        """
        self.groups()
        return set(self._used_twice)

    def require_one(self, group: str) -> None:
        """Check that no list which was read so far has shown two volume groups of a name.

        Another disk that this node sees, such as a clone or the disk of a guest, may have a volume
        group of the same name. Which of them has a volume is then not known.

        :raises StorageError: there are several.
        """
        if group in self._used_twice:
            raise errors.StorageError(
                f"several volume groups on this node have the name {group}, so it is not known"
                " which one is meant. Compare them with 'vgs -o +vg_uuid,pv_name'. Rename the"
                " other one with 'vgrename UUID NEW-NAME', or hide its disks from LVM with"
                " global_filter in lvm.conf."
            )

    def snapshots(self) -> dict[tuple[str, str], Snapshot]:
        """Return all snapshots, by (group, name).

        :raises StorageError: LVM fails, or its output has another form.
        """
        if self._snapshots is None:
            self._snapshots = self._query(argv.snapshots_argv(), parse.parse_snapshots)
        return self._snapshots

    def listed(self, groups: Sequence[str]) -> dict[str, list[object]]:
        """Return the logical volumes of groups, see
        :func:`~ganeti.storage.lvm.parse.parse_lv_list`.

        :param groups: empty for all groups.
        :raises StorageError: LVM fails, or its output has another form.
        """
        return self._query(argv.lv_list_argv(groups), parse.parse_lv_list)

    def change(self, command: Sequence[str], *, check: bool = True) -> process.Completed:
        """Run a command which changes something.

        :param check: raise an error when it fails.
        :raises CommandError: it failed.
        """
        self.forget()
        run = self._run or process.run
        return run(command, timeout_s=_TIMEOUT_S, env=_ENV, check=check)

    def _query(self, command: Sequence[str], read: Callable[[str], _T]) -> _T:
        run = self._run or process.run
        try:
            done = run(command, timeout_s=_TIMEOUT_S, env=_ENV)
            self._used_twice |= parse.names_used_twice(done.stderr)
            return read(done.stdout)
        except (errors.CommandError, errors.ParseError) as err:
            raise errors.StorageError(f"cannot query LVM: {err}") from err


_current = Lvm()


def here() -> Lvm:
    """LVM of this machine, with the facts which this operation has read."""
    return _current


@contextmanager
def use(lvm: Lvm) -> Iterator[Lvm]:
    """Let :func:`here` return another object inside the block; for tests."""
    global _current
    before, _current = _current, lvm
    try:
        yield lvm
    finally:
        _current = before
