"""How often passwords may be guessed, and who is checked next.

Guesses are counted for each pair of user and address, so that a guesser behind a proxy does not
lock out the other users who come from there; for each address, so that an address has no more
guesses when it tries many names; and for each IPv6 network of 48 bits, because its owner has 65,536
addresses in this sense. All passwords count here, that of a login as well as that of a request.

=============== ======================= ==================================
counted for     checked at once         after them
=============== ======================= ==================================
user at address :data:`BURST`           one in :data:`INTERVAL_S`
address         :data:`ADDRESS_BURST`   one in :data:`ADDRESS_INTERVAL_S`
IPv6 network    :data:`SITE_BURST`      one in :data:`SITE_INTERVAL_S`
=============== ======================= ==================================

A guess is counted before it is checked, so that guesses which arrive together count as well; when
its turn is too far in the future, the guess is refused. A right password gives its turn back.

A check of a password takes processors and memory (:mod:`ganeti.rapi.passwords`). :class:`Turns`
lets one check of an address run at a time, and the addresses take turns: the guesses of one address
delay a user at another one by the check that runs, and not by those that wait. Every second turn
belongs to the address with the fewest wrong guesses, so many addresses delay a new one no more.

Names are counted by a keyed hash: unknown names are counted like those of users, and the
number of counters of one address is limited. :func:`ganeti.http.peers.client_network` says what
counts as one address.
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import os
from collections import OrderedDict, deque
from collections.abc import AsyncIterator, Callable
from typing import Final, NamedTuple

from ganeti.http import peers
from ganeti.rapi.pace import Pace, TooMany

#: Number of guesses for a user at an address which are checked at once, and seconds for each one
#: after them.
BURST: Final = 10
INTERVAL_S: Final = 6.0
#: The same for all guesses from an address.
ADDRESS_BURST: Final = 50
ADDRESS_INTERVAL_S: Final = 1.0
#: The same for all guesses from an IPv6 network of 48 bits.
SITE_BURST: Final = 200
SITE_INTERVAL_S: Final = 0.25
#: Longest time in seconds which a guess waits for its turn.
PATIENCE_S: Final = 20.0
_NAMES_OF_ADDRESS: Final = 1024


class Place(NamedTuple):
    """The counter of a user at an address.

    :ivar address: what counts as one address.
    :ivar name: a number which stands for the name of the user.
    """

    address: str
    name: int


class Guesses:
    """Counts guesses.

    :param clock: seconds of a clock which never jumps.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._key = os.urandom(32)
        self._of_users: Pace[Place] = Pace(
            "for this user from this address", BURST, INTERVAL_S, clock, patience_s=PATIENCE_S
        )
        self._of_addresses: Pace[str] = Pace(
            "from this address", ADDRESS_BURST, ADDRESS_INTERVAL_S, clock, patience_s=PATIENCE_S
        )
        self._of_sites: Pace[str] = Pace(
            "from this network", SITE_BURST, SITE_INTERVAL_S, clock, patience_s=PATIENCE_S
        )

    def place(self, name: str, address: str) -> Place:
        """Return the counter for a user at an address."""
        digest = hmac.digest(self._key, name.encode("utf-8", "surrogatepass"), "sha256")
        return Place(peers.client_network(address), int.from_bytes(digest[:4]) % _NAMES_OF_ADDRESS)

    def take(self, place: Place) -> float:
        """Count a guess for a user; return the seconds after which it may be checked.

        :raises TooMany: it would wait for too long; it is not counted.
        """
        return self._of_users.take(place)

    def take_of_address(self, place: Place) -> float:
        """Count a guess which :meth:`take` has counted for its address as well.

        The guess stays counted for the user when it is refused: else the answer to a guess at a
        password that needs no check would tell without a limit whether it is right.

        :returns: the seconds after which it may be checked.
        :raises TooMany: it would wait for too long.
        """
        site = peers.client_site(place.address)
        wait_s = 0.0 if site is None else self._of_sites.take(site)
        try:
            return max(wait_s, self._of_addresses.take(place.address))
        except TooMany:
            # One address that is refused does not use up what the others in its network have.
            if site is not None:
                self._of_sites.give_back(site)
            raise

    def counted(self, address: str) -> float:
        """Return how many guesses of an address count at present."""
        return self._of_addresses.counted(address)

    def give_back(self, place: Place) -> None:
        """Do not count a guess for a user, which was right."""
        self._of_users.give_back(place)

    def give_back_of_address(self, place: Place) -> None:
        """Do not count a guess for its address, which was right."""
        self._of_addresses.give_back(place.address)
        site = peers.client_site(place.address)
        if site is not None:
            self._of_sites.give_back(site)

    def forget(self, place: Place) -> None:
        """Begin anew for a user, who has logged in."""
        self._of_users.forget(place)


class Turns:
    """Lets some tasks work at a time: one of each address, and the addresses take turns.

    :param at_once: how many tasks work at a time.
    :param guesses: returns how many guesses of an address count at present.
    """

    def __init__(self, at_once: int, guesses: Callable[[str], float] = lambda _address: 0) -> None:
        self._free = at_once
        self._guesses = guesses
        self._fewest_next = True
        self._working: set[str] = set()
        # Those who wait, by address; the address whose turn is next comes first.
        self._waiting: OrderedDict[str, deque[asyncio.Future[None]]] = OrderedDict()

    @contextlib.asynccontextmanager
    async def of(self, address: str) -> AsyncIterator[None]:
        """Wait for the turn of a task of this address, and hold it."""
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(address, deque()).append(turn)
        self._begin_next()
        try:
            await turn
            yield
        finally:
            if turn.done() and not turn.cancelled():
                self._working.discard(address)
                self._free += 1
                if address in self._waiting:
                    self._waiting.move_to_end(address)
            else:
                self._leave(address, turn)
            self._begin_next()

    def _begin_next(self) -> None:
        """Give the free places to those whose turn it is."""
        while self._free:
            ready = [one for one in self._waiting if one not in self._working]
            if not ready:
                return
            # The other turns belong to the address that has waited longest: nobody waits for ever.
            address = min(ready, key=self._guesses) if self._fewest_next else ready[0]
            self._fewest_next = not self._fewest_next
            turn = self._waiting[address].popleft()
            if not self._waiting[address]:
                del self._waiting[address]
            if turn.cancelled():
                continue
            self._free -= 1
            self._working.add(address)
            turn.set_result(None)

    def _leave(self, address: str, turn: asyncio.Future[None]) -> None:
        """Forget a task which is stopped while it waits."""
        turns = self._waiting.get(address, deque())
        with contextlib.suppress(ValueError):
            turns.remove(turn)
        if not turns:
            self._waiting.pop(address, None)
