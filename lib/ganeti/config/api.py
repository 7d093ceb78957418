"""The configuration, as logical units and daemons use it.

Reading goes to the present state and never waits; the questions are those of
:class:`~ganeti.config.view.Questions`. Every change goes through :meth:`Config.transaction`: when
the block ends, its changes are durable.
"""

from __future__ import annotations

import copy
import logging
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Self

from ganeti import errors
from ganeti.config import damaged, history, ports, reservations, upgrade, verify
from ganeti.config.copies import CATCH_UP_S
from ganeti.config.history import Author, History
from ganeti.config.local_file import Changer, LocalFile, Writer
from ganeti.config.sending import Distribute, DistributionFailure
from ganeti.config.store import ConfigStore, OnCommit
from ganeti.config.text import ConfigText
from ganeti.config.transaction import Transaction
from ganeti.config.view import Questions
from ganeti.configfile import files
from ganeti.configfile.files import write_config_file
from ganeti.constants.disk import MINORS
from ganeti.objects import ConfigData
from ganeti.objects.address_pool import AddressPool, Ipv6Range
from ganeti.replication.quorum import Record
from ganeti.utils import clock, text
from ganeti.wire import json

log = logging.getLogger(__name__)


def history_dir(path: str) -> str:
    """Return the directory with the history of a configuration file."""
    return f"{path}.history"


def load(path: str) -> tuple[ConfigData, int]:
    """Read a configuration file, also one of an older version.

    :returns: the configuration, and the version which the file had.
    :raises ConfigurationError: the file is missing, cannot be read, or is not a configuration; the
        message names the file and, if there is one, the place in it.
    :raises ConfigVersionMismatch: the file was written by a newer version, or by one too old.
    """
    try:
        raw = json.loads(files.read(path))
    except FileNotFoundError as err:
        why = files.why_missing(path, "This machine is not the master of a cluster.")
        raise errors.ConfigurationError(f"file {path} is missing. {why}") from err
    except OSError as err:
        raise errors.ConfigurationError(
            f"cannot read {err.filename or path}: {err.strerror}"
        ) from err
    except errors.ParseError as err:
        raise errors.ConfigurationError(f"{path}: {err}") from err
    try:
        current = upgrade.upgrade(raw)
        json.share_texts(current)
        data = damaged.decode(current)
    except errors.ConfigVersionMismatch:
        raise
    except errors.ConfigurationError as err:
        raise errors.ConfigurationError(f"{path}: {err}", err.path) from err
    if data.cluster.master_node not in data.nodes:
        raise errors.ConfigurationError(
            f"{path}: cluster/master_node: node {data.cluster.master_node} is not in the "
            "configuration",
            "cluster/master_node",
        )
    return data, raw["version"]


def create_file(path: str, data: ConfigData) -> None:
    """Write the first configuration of a cluster.

    :raises ConfigVerifyError: the configuration contradicts itself; nothing was written.
    :raises OSError: the file could not be written.
    """
    problems = verify.check(data)
    if problems:
        raise errors.ConfigVerifyError("the new configuration contradicts itself", problems)
    write_config_file(path, ConfigText(data).render(data, ()))


def _minors_of(node_uuid: str) -> Iterator[tuple[str, int]]:
    return ((node_uuid, minor) for minor in range(MINORS))


class Config(Questions):
    """The configuration of the cluster, in the process which owns it. Thread-safe."""

    def __init__(self, store: ConfigStore) -> None:
        super().__init__()
        self._store = store
        self._author = Author()
        self._ec_id: str | None = None

    def acting_for(self, author: Author) -> Self:
        """Return the same configuration with an author, whom the history names for each change.

        This is cheap: both objects share the store.
        """
        bound = copy.copy(self)
        bound._author = author
        return bound

    def reserving_for(self, ec_id: str) -> Self:
        """Return the same configuration, with the execution to which new reservations belong."""
        bound = copy.copy(self)
        bound._ec_id = ec_id
        return bound

    @classmethod
    def open(
        cls,
        path: str,
        *,
        distribute: Distribute | None = None,
        clock: Callable[[], float] = clock.now,
        write: Writer = write_config_file,
        change: Changer | None = None,
    ) -> Config:
        """Load, check and, where needed, upgrade the configuration file.

        An upgraded configuration is written before it is used; the file as it was stays beside it
        as ``config.data.backup-<version>``. Contradictions are only logged, because a master is
        needed to repair them.

        :param distribute: sends changes to other nodes.
        :param change: see :class:`.LocalFile`.
        :raises ConfigurationError: see :func:`load`.
        """
        data, version = load(path)
        if version != data.version:
            old, new = upgrade.version_text(version), upgrade.version_text(data.version)
            try:
                write(f"{path}.backup-{old}", (files.read(path),))
                write(path, ConfigText(data).render(data, ()))
            except OSError as err:
                raise errors.ConfigurationError(
                    f"cannot write {path} after its upgrade from {old} to {new}: {err.strerror}",
                ) from err
            log.info("configuration upgraded from version %s to %s", old, new)
        for problem in verify.check(data):
            log.warning("configuration: %s", problem)
        kept = History(history_dir(path))
        try:
            kept.open(data)
        except OSError as err:
            raise errors.ConfigurationError(
                f"cannot use the history in {history_dir(path)}: {err.strerror}"
            ) from err
        return cls(
            ConfigStore(
                LocalFile(path, write, change),
                data,
                distribute=distribute,
                now=clock,
                catch_up_s=CATCH_UP_S,
                history=kept,
            )
        )

    def snapshot(self) -> ConfigData:
        """Return the present state, an object which never changes."""
        return self._store.snapshot()

    def changed_since(self, serial_no: int) -> tuple[ConfigData, frozenset[tuple[str, str]] | None]:
        """Return the present state and what differs; see :meth:`ConfigStore.changed_since`."""
        return self._store.changed_since(serial_no)

    def call_on_commit(self, function: OnCommit) -> None:
        """Call a function for every commit; see :attr:`ConfigStore.on_commit`."""
        self._store.on_commit = function

    def call_when_judged(self, function: Callable[[str | None], None]) -> None:
        """Call a function after every commit; see :attr:`ConfigStore.on_judged`."""
        self._store.on_judged = function

    def use_distribution(self, distribute: Distribute) -> None:
        """Set the function which sends changes to other nodes."""
        self._store.copies.use_distribution(distribute)

    def use_witness(self, record: Record) -> None:
        """Set the function which informs the witness of a state."""
        self._store.copies.use_witness(record)

    def transaction(self) -> AbstractContextManager[Transaction]:
        """Change the configuration, all or nothing; see :meth:`ConfigStore.transaction`."""
        return self._store.transaction(self._author)

    def redistribute(self) -> list[DistributionFailure]:
        """Send configuration and ssconf values to all nodes again; return the failures."""
        return self._store.redistribute()

    def expect_lagging(
        self,
        candidates: Collection[str],
        nodes: Collection[str],
        unresponsive: Collection[str] = (),
    ) -> None:
        """Bring nodes up to date in the background; see :meth:`NodeCopies.expect_lagging`."""
        self._store.copies.expect_lagging(candidates, nodes, unresponsive)

    def adopt_copies(self) -> None:
        """Note that candidates have the file of this node; see :meth:`ConfigStore.adopt_copies`."""
        self._store.adopt_copies()

    def inform_others(self) -> None:
        """Send ssconf values to all nodes now; see :meth:`NodeCopies.inform_others`."""
        self._store.copies.inform_others()

    def lagging(self) -> dict[str, frozenset[str]]:
        """Return the lagging nodes by UUID; see :meth:`NodeCopies.lagging`."""
        return self._store.copies.lagging()

    def unresponsive(self) -> list[str]:
        """Return the UUIDs of the candidates to which the last message failed."""
        return self._store.copies.unresponsive()

    def try_again(self, uuids: Collection[str]) -> None:
        """Send to lagging nodes soon, because these answer again."""
        self._store.copies.try_again(uuids)

    def is_alone(self) -> bool:
        """Tell whether the witness knows that this node is the only candidate."""
        return self._store.copies.is_alone()

    def require_committed(self) -> None:
        """Check that the present state is committed; see :meth:`NodeCopies.require_committed`."""
        self._store.copies.require_committed()

    def verify(self) -> list[str]:
        """Return the contradictions in the present state, one line each."""
        return verify.check(self.snapshot())

    # -- history ------------------------------------------------------------------------------

    def commits(self, before: int | None = None) -> Iterator[history.Commit]:
        """Iterate over all commits, the newest first; see :mod:`ganeti.config.history`.

        :param before: only commits with smaller serial numbers.
        :raises ConfigurationError: the history cannot be read.
        """
        kept, newest = self._store.history, self.snapshot().serial_no
        if kept is None:
            return iter(())
        # A commit is in the history before it is carried out.
        return (commit for commit in kept.commits(before) if commit.serial <= newest)

    def at(self, point: int | float) -> history.PastState:
        """Return an earlier state; see :func:`ganeti.config.history.state_at`."""
        return history.state_at(self.snapshot(), self._kept(), point)

    def compare(
        self,
        first: int | float,
        last: int | float,
    ) -> tuple[int, int, list[history.ObjectChange]]:
        """Compare two states; see :func:`ganeti.config.history.compare`."""
        return history.compare(self.snapshot(), self._kept(), first, last)

    def call_when_incomplete(self, function: Callable[[frozenset[str]], None]) -> None:
        """Set the function which learns which candidates lack records of the history.

        It gets their UUIDs, often while a commit waits, so it must be quick.
        """
        self._store.copies.note_incomplete = function

    def reopen_history(self) -> None:
        """Go on with the files of the history after another program has changed them.

        :raises ConfigurationError: they cannot be read.
        """
        kept = self._kept()
        try:
            kept.close()
            kept.open(self.snapshot())
        except OSError as err:
            raise errors.ConfigurationError(f"cannot use the history: {err}") from err

    def _kept(self) -> History:
        kept = self._store.history
        if kept is None:
            raise errors.ConfigurationError("no history of this configuration is kept")
        return kept

    # -- reservations -------------------------------------------------------------------------

    @property
    def reserved(self) -> reservations.Reservations:
        """The reserved values."""
        return self._store.reservations

    @property
    def _execution(self) -> str:
        if self._ec_id is None:
            raise errors.ProgrammerError("it is not known for which execution to reserve values")
        return self._ec_id

    def release_reservations(self) -> None:
        """Release the reservations of an execution."""
        self._store.reservations.release(self._execution)

    def reserve_instance_name(self, name: str) -> None:
        """Reserve the name of an instance which will be added.

        :raises ReservationError: the name is in use or reserved, as in all methods below.
        """
        self._store.reservations.reserve(reservations.INSTANCE_NAME, name, self._execution)

    def similar_instance_name(self, name: str, *, besides: str) -> str | None:
        """Return the name of an instance which is a short form of `name`, or has it as short form.

        The names which are reserved count, too.

        :param besides: a name which does not count.
        :returns: None when there is no such instance.
        """
        others = {instance.name for instance in self.snapshot().instances.values()}
        others |= self._store.reservations.taken(reservations.INSTANCE_NAME)
        others -= {name, besides}
        return next(
            (
                other
                for other in sorted(others)
                if other.startswith(f"{name}.") or name.startswith(f"{other}.")
            ),
            None,
        )

    def reserve_mac(self, mac: str) -> None:
        """Reserve a MAC address."""
        self._store.reservations.reserve(reservations.MAC, mac.lower(), self._execution)

    def generate_mac(self, prefix: str | None = None) -> str:
        """Reserve a free MAC address and return it.

        :param prefix: the first three bytes; the default is the prefix of the cluster.
        """
        return self._store.reservations.new_mac(
            prefix or self.cluster().mac_prefix, self._execution
        )

    def reserve_lv(self, volume: str) -> None:
        """Reserve the name of a logical volume, as ``vg/lv``."""
        self._store.reservations.reserve(reservations.LV, volume, self._execution)

    def reserve_device(self, name: str) -> None:
        """Reserve a name of a device which becomes a disk."""
        self._store.reservations.reserve(reservations.DEVICE, name, self._execution)

    def reserve_ip(self, network_uuid: str, address: str, *, external_ok: bool = False) -> None:
        """Reserve an address of a network; the commit of the instance marks it in the pool.

        :param external_ok: allow addresses which are in use outside of the cluster.
        :raises AddressPoolError: the address is not in the network, or not in its IPv6 range.
        """
        network = self.network(network_uuid)
        if ":" in address:
            range6 = Ipv6Range(network)
            address = range6.checked(address)
            reserved = range6.is_reserved(address)
        else:
            reserved = AddressPool(network).is_taken(address, external=True)
        if reserved and not external_ok:
            raise errors.ReservationError(
                f"IP address {address} of network {network.name} is reserved for use "
                "outside of the cluster"
            )
        self._store.reservations.reserve(reservations.IP, (network_uuid, address), self._execution)

    def generate_ip6(self, network_uuid: str, avoid: Collection[str] = ()) -> str:
        """Reserve the first free IPv6 address of a network and return it.

        :param avoid: addresses which others have.
        :raises AddressPoolError: the network has no IPv6 range, or no free address.
        """
        range6 = Ipv6Range(self.network(network_uuid))
        found = self._store.reservations.first_free(
            reservations.IP,
            ((network_uuid, address) for address in range6.addresses() if address not in avoid),
            self._execution,
        )
        if found is None:
            raise errors.AddressPoolError(f"network {range6.network.name} has no free IPv6 address")
        return found[1]

    def generate_ip(self, network_uuid: str, avoid: Collection[str] = ()) -> str:
        """Reserve the first free address of a network and return it.

        :param avoid: addresses which somebody has although the pool has them as free.
        :raises AddressPoolError: the network has no free address.
        """
        pool = AddressPool(self.network(network_uuid))
        found = self._store.reservations.first_free(
            reservations.IP,
            ((network_uuid, address) for address in pool.free_addresses() if address not in avoid),
            self._execution,
        )
        if found is None:
            others = [address for address in pool.free_addresses() if address in avoid]
            raise errors.AddressPoolError(
                f"network {pool.network.name} has no free address"
                + (
                    f" beside those which nodes, the cluster or interfaces outside of the network"
                    f" have: {text.comma_join(others[:10])}"
                    if others
                    else ""
                )
            )
        return found[1]

    def allocate_minors(self, node_uuids: Sequence[str]) -> tuple[int, ...]:
        """Reserve the lowest free DRBD minor on each of these nodes; return the minors.

        :param node_uuids: a node may occur several times; its minors are then different.
        :raises OpPrereqError: a node has as many as the kernel has minors.
        """
        found = []
        for uuid in node_uuids:
            self.node(uuid)
            pair = self._store.reservations.first_free(
                reservations.MINOR, _minors_of(uuid), self._execution
            )
            if pair is None:
                raise errors.OpPrereqError(
                    f"all {MINORS} DRBD minors of node {self.node(uuid).name} are in use",
                    errors.ECODE_NORES,
                )
            found.append(pair[1])
        return tuple(found)

    def next_minors(self, node_uuid: str, count: int) -> tuple[int, ...]:
        """Return the DRBD minors which a node would get now, lowest first; reserve none of them."""
        pairs = self._store.reservations.next_free(reservations.MINOR, _minors_of(node_uuid), count)
        return tuple(minor for _uuid, minor in pairs)

    def reserve_port(self) -> int:
        """Reserve a TCP port of the cluster; the commit of the object which has it takes it.

        :raises OpPrereqError: all ports are in use.
        """
        port = self._store.reservations.first_free(
            reservations.PORT, ports.free(self.cluster()), self._execution
        )
        if port is None:
            raise ports.none_is_free()
        return port

    def require_ports(self, count: int) -> None:
        """Check that so many ports could be reserved now; reserve none of them.

        :raises OpPrereqError: they could not.
        """
        found = self._store.reservations.next_free(
            reservations.PORT, ports.free(self.cluster()), count
        )
        if len(found) < count:
            raise ports.none_is_free()

    def reserved_minors(self, node_uuid: str) -> frozenset[int]:
        """Return the reserved DRBD minors of a node."""
        taken = self._store.reservations.taken(reservations.MINOR)
        return frozenset(minor for uuid, minor in taken if uuid == node_uuid)

    def reserved_volumes(self) -> frozenset[str]:
        """Return the reserved names of logical volumes, as ``vg/lv``."""
        return self._store.reservations.taken(reservations.LV)

    def new_uuid(self) -> str:
        """Reserve a UUID which no object has."""
        return self._store.reservations.new_uuid(self._execution)
