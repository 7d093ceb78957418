"""Facts from LVM, read at most once in an operation.

``lvs`` takes as long for all volumes as for one, so the first question reads all volumes, and the
next ones are answered from memory. Every command which changes something forgets these facts, and
so does :meth:`Lvm.forget`, which the node daemon calls before each request.

LVM fails as a whole when it cannot read one volume group. A question about another group is then
asked for this group only. So one damaged group does not hide the others, and what is in the damaged
one stays unknown.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

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
        # The command and the group -> what was read, or why it could not be; "" for all groups.
        self._known: dict[tuple[str, str], Any] = {}
        self._used_twice: set[str] = set()

    def forget(self) -> None:
        """Forget all facts, so that the next question reads them again."""
        self._known.clear()
        self._used_twice.clear()

    def volumes(self, group: str = "") -> dict[tuple[str, str], LogicalVolume]:
        """Return logical volumes, by (group, name).

        :param group: the group which the caller needs; others may be missing in the result. Empty
            for all.
        :raises StorageError: LVM fails, or its output has another form.
        """
        return self._ask("lvs", group, argv.lvs_argv(), parse.parse_lvs)

    def physical(self, group: str = "") -> list[LvmPvInfo]:
        """Return physical volumes, also those of no group.

        :param group: the group which the caller needs; others may be missing in the result. Empty
            for all.
        :raises StorageError: LVM fails, or its output has another form.
        """
        command = argv.pvs_argv()
        try:
            return self._kept("pvs", "", command, parse.parse_pvs)
        except errors.StorageError:
            # There is no question about the physical volumes of one group; LVM prints those of the
            # groups which it can read, and then fails.
            found = self._query(command, parse.parse_pvs, check=False) if group else []
            if not any(volume.vg_name == group for volume in found):
                raise
            return found

    def groups(self, group: str = "") -> list[VolumeGroup]:
        """Return volume groups.

        :param group: the group which the caller needs; others may be missing in the result. Empty
            for all.
        :raises StorageError: LVM fails, or its output has another form.
        """
        found = self._ask("vgs", group, argv.vgs_argv(), parse.parse_vgs)
        names = [one.name for one in found]
        self._used_twice.update(name for name in names if names.count(name) > 1)
        return found

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

    def snapshots(self, group: str = "") -> dict[tuple[str, str], Snapshot]:
        """Return snapshots, by (group, name).

        :param group: as for :meth:`volumes`.
        :raises StorageError: LVM fails, or its output has another form.
        """
        return self._ask("snapshots", group, argv.snapshots_argv(), parse.parse_snapshots)

    def listed(self, groups: Sequence[str]) -> dict[str, list[object]]:
        """Return the logical volumes of groups, see
        :func:`~ganeti.storage.lvm.parse.parse_lv_list`.

        :param groups: empty for all groups.
        :raises StorageError: LVM fails, or its output has another form.
        """
        return self._query(argv.lv_list_argv(groups), parse.parse_lv_list)

    def listed_apart(self, groups: Sequence[str]) -> dict[str, list[object] | str]:
        """Return the logical volumes of groups as :meth:`listed`, although one cannot be read.

        :returns: also the name of each group which LVM cannot read -> why.
        :raises StorageError: LVM fails, or its output has another form.
        """
        found: dict[str, list[object] | str] = {}
        try:
            found.update(self.listed(()))
        except errors.StorageError:
            if not groups:
                raise
            for group in groups:
                try:
                    found.update(self.listed((group,)))
                except errors.StorageError as err:
                    found[group] = str(err)
        wanted = set(groups)
        return {
            name: value
            for name, value in found.items()
            if not wanted or name.partition("/")[0] in wanted
        }

    def _ask(self, what: str, group: str, command: list[str], read: Callable[[str], _T]) -> _T:
        """Return facts about all groups; if LVM cannot read all, about one."""
        try:
            return self._kept(what, "", command, read)
        except errors.StorageError:
            if not group:
                raise
            return self._kept(what, group, [*command, group], read)

    def _kept(self, what: str, group: str, command: list[str], read: Callable[[str], _T]) -> _T:
        if (what, group) not in self._known:
            try:
                self._known[what, group] = self._query(command, read)
            except errors.StorageError as err:
                self._known[what, group] = err
        found = self._known[what, group]
        if isinstance(found, errors.StorageError):
            raise found
        answer: _T = found
        return answer

    def change(self, command: Sequence[str], *, check: bool = True) -> process.Completed:
        """Run a command which changes something.

        :param check: raise an error when it fails.
        :raises CommandError: it failed.
        """
        self.forget()
        run = self._run or process.run
        return run(command, timeout_s=_TIMEOUT_S, env=_ENV, check=check)

    def _query(
        self, command: Sequence[str], read: Callable[[str], _T], *, check: bool = True
    ) -> _T:
        run = self._run or process.run
        try:
            done = run(command, timeout_s=_TIMEOUT_S, env=_ENV, check=check)
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
