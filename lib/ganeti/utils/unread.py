"""Bound the memory for answers which clients have not read yet.

A server keeps the bytes of an answer until its client has taken all of them. One which never does
costs that memory until the server ends its connection; a few such clients, with large answers,
would take all memory. :class:`UnreadAnswers` counts these bytes, and chooses whose connection has
to end when there are too many: among the connections of the client which has most of them, the one
which has not taken anything for the longest time. A client which reads on loses nothing because
others do not.

A single answer may be larger than the limits: a connection which is the only one is never chosen.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

ConnectionT = TypeVar("ConnectionT", bound=Hashable)


class UnreadAnswers(Generic[ConnectionT]):
    """The answers which a server keeps for its clients. Not thread-safe: it belongs to a loop.

    :param total_bytes: limit for all clients together.
    :param client_bytes: limit for all connections of one client; None for no such limit.
    :param client_of: returns who has a connection, such as its address. It is asked only when a
        limit is exceeded or ``client_bytes`` is given, and must give the same answer each time
        while the connection exists.
    """

    def __init__(
        self,
        total_bytes: int,
        client_bytes: int | None,
        client_of: Callable[[ConnectionT], Hashable],
    ) -> None:
        self._total_bytes = total_bytes
        self._client_bytes = client_bytes
        self._client_of = client_of
        # In the order in which they have taken something last, or got their first answer.
        self._kept: dict[ConnectionT, int] = {}
        # Who has a connection with answers, and what each has; empty without ``client_bytes``.
        self._clients: dict[ConnectionT, Hashable] = {}
        self._of_client: Counter[Hashable] = Counter()
        self.bytes = 0

    def __len__(self) -> int:
        """Return the number of connections with answers."""
        return len(self._kept)

    def of(self, connection: ConnectionT) -> int:
        """Return the bytes which are kept for a connection."""
        return self._kept.get(connection, 0)

    def add(self, connection: ConnectionT, size: int) -> list[ConnectionT]:
        """Count an answer, or a part of one.

        :returns: the connections which have to be ended now, without the one that gets the answer.
            They are forgotten already.
        """
        self._kept[connection] = self._kept.get(connection, 0) + size
        self._count(connection, size)
        return self._choose(connection)

    def progress(self, connection: ConnectionT, size: int = 0) -> None:
        """Note that a client has taken something; ``size`` bytes are kept no longer."""
        kept = self._kept.pop(connection, None)
        if kept is None:
            return
        size = min(size, kept)
        if kept > size:
            self._kept[connection] = kept - size
        self._count(connection, -size)

    def remove(self, connection: ConnectionT) -> None:
        """Forget the answers of a connection, which has taken all of them or has ended."""
        if connection in self._kept:
            self._count(connection, -self._kept.pop(connection))

    def _count(self, connection: ConnectionT, size: int) -> None:
        self.bytes += size
        if self._client_bytes is None:
            return
        client = self._clients.get(connection)
        if client is None:
            client = self._clients[connection] = self._client_of(connection)
        self._of_client[client] += size
        if connection not in self._kept:
            del self._clients[connection]
        if self._of_client[client] <= 0:
            del self._of_client[client]

    def _choose(self, newcomer: ConnectionT) -> list[ConnectionT]:
        chosen: list[ConnectionT] = []
        if self._client_bytes is not None:
            client = self._clients[newcomer]
            if self._of_client[client] > self._client_bytes:
                mine = [one for one in self._kept if self._clients[one] == client]
                for one in mine:
                    if self._of_client[client] <= self._client_bytes:
                        break
                    if one != newcomer:
                        self.remove(one)
                        chosen.append(one)
        while self.bytes > self._total_bytes and len(self._kept) > 1:
            sizes: Counter[Hashable] = Counter()
            slowest: dict[Hashable, ConnectionT] = {}
            for one, kept in self._kept.items():
                sizes[self._client_of(one)] += kept
                if one != newcomer:
                    slowest.setdefault(self._client_of(one), one)
            victim = slowest[max(slowest, key=sizes.__getitem__)]
            self.remove(victim)
            chosen.append(victim)
        return chosen
