"""How often passwords may be guessed.

Guesses are counted for each pair of user and address, so that a guesser behind a proxy does not
lock out the other users who come from there. The first :data:`BURST` guesses are checked at once;
after that there is one in :data:`INTERVAL_S`, and a guess waits for its turn. A guess is counted
before it is checked, so that guesses which arrive together count as well; when the turn is too far
in the future, the guess is refused. A right password gives its turn back.

Names are counted by a keyed hash: unknown names are counted like those of users, and the
number of counters of one address is limited. An IPv6 network of 64 bits counts as one address.

Source: ITU-T I.371, *generic cell rate algorithm* (the virtual scheduling form).
"""

from __future__ import annotations

import contextlib
import hmac
import ipaddress
import os
from collections import OrderedDict
from collections.abc import Callable
from typing import Final

#: Number of guesses which are checked at once, and seconds for each one after them.
BURST: Final = 10
INTERVAL_S: Final = 6.0
#: Longest time in seconds which a guess waits for its turn.
PATIENCE_S: Final = 20.0
_MOST_COUNTERS: Final = 10_000
_NAMES_OF_ADDRESS: Final = 1024

#: The counter of a user at an address.
Place = tuple[str, int]


class TooMany(Exception):
    """The turn of a guess is too far in the future.

    :ivar wait_s: seconds after which it would be checked.
    """

    def __init__(self, wait_s: float) -> None:
        super().__init__(wait_s)
        self.wait_s = wait_s


class Guesses:
    """Counts guesses.

    :param clock: seconds of a clock which never jumps.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._key = os.urandom(32)
        # The time at which all counted guesses have had their interval.
        self._paid: OrderedDict[Place, float] = OrderedDict()

    def place(self, name: str, address: str) -> Place:
        """Return the counter for a user at an address."""
        with contextlib.suppress(ValueError):
            found = ipaddress.ip_address(address)
            if isinstance(found, ipaddress.IPv6Address):
                address = str(ipaddress.ip_network((found, 64), strict=False))
        digest = hmac.digest(self._key, name.encode("utf-8", "surrogatepass"), "sha256")
        return address, int.from_bytes(digest[:4]) % _NAMES_OF_ADDRESS

    def take(self, place: Place) -> float:
        """Count a guess; return the seconds after which it may be checked.

        :raises TooMany: it would wait for too long; it is not counted.
        """
        now = self._clock()
        paid = max(now, self._paid.get(place, now))
        wait_s = max(0.0, paid - now - (BURST - 1) * INTERVAL_S)
        if wait_s > PATIENCE_S:
            raise TooMany(wait_s)
        self._paid[place] = paid + INTERVAL_S
        self._paid.move_to_end(place)
        if len(self._paid) > _MOST_COUNTERS:
            self._paid.popitem(last=False)
        return wait_s

    def give_back(self, place: Place) -> None:
        """Do not count a guess which was right."""
        if place in self._paid:
            self._paid[place] -= INTERVAL_S
            if self._paid[place] <= self._clock():
                del self._paid[place]

    def forget(self, place: Place) -> None:
        """Begin anew, after a user has logged in."""
        self._paid.pop(place, None)
