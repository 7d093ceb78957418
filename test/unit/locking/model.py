"""What the lock manager has to do, said as simply as possible and as slowly.

Nothing is stored that could be worked out: who has a claim on a lock follows from what owners hold
and how far requests have got; who may go on is found by looking at everything again and again.
Claims are words instead of modes: on a member ``read`` or ``write``; on a level ``read all`` and
``write all`` for holding it, ``read some`` and ``write some`` for holding members.
"""

from __future__ import annotations

from collections.abc import Iterable

LockKey = tuple[int, str]  # level and key; the empty key is the level itself

_SINGLE = {"shared": "read", "exclusive": "write"}


def conflict(one: str, other: str) -> bool:
    """Whether two owners cannot have these claims on one lock."""
    if "some" in one and "some" in other:
        return False  # the members themselves decide
    return "write" in one or "write" in other


class ModelRequest:
    def __init__(
        self,
        owner: int,
        steps: list[tuple[LockKey, str]],
        gains: dict[LockKey, str],
        priority: int,
        order: int,
        life: dict[LockKey, int],
    ) -> None:
        self.owner = owner
        self.steps = steps
        self.gains = gains
        self.priority = priority
        self.order = order
        self.life = life  # which incarnation of each lock it was made for
        self.done = 0
        self.state = "waiting"


class Model:
    """Owners are numbers; a refused operation raises ValueError and changes nothing."""

    def __init__(self, members: dict[int, set[str]]) -> None:
        self.members = members
        self.held: dict[int, dict[LockKey, str]] = {}
        self.requests: list[ModelRequest] = []
        self.lives: dict[LockKey, int] = {}
        self.order = 0

    # -- claims -------------------------------------------------------------------------------

    def claims(self, lock: LockKey, owner: int) -> set[str]:
        words: set[str] = set()
        level, key = lock
        for (held_level, held_key), mode in self.held.get(owner, {}).items():
            if key:
                if (held_level, held_key) == lock:
                    words.add(_SINGLE[mode])
            elif held_level == level:
                words.add(f"{_SINGLE[mode]} {'some' if held_key else 'all'}")
        for request in self.requests:
            if request.owner == owner:
                words.update(word for at, word in request.steps[: request.done] if at == lock)
        return words

    def free(self, lock: LockKey, owner: int, word: str) -> bool:
        owners = {*self.held, *(request.owner for request in self.requests)} - {owner}
        return not any(conflict(word, other) for who in owners for other in self.claims(lock, who))

    def queue(self, lock: LockKey) -> list[ModelRequest]:
        waiting = [
            request
            for request in self.requests
            if request.done < len(request.steps) and request.steps[request.done][0] == lock
        ]
        return sorted(waiting, key=lambda request: (request.priority, request.order))

    # -- requests -----------------------------------------------------------------------------

    def steps(self, gains: dict[LockKey, str]) -> list[tuple[LockKey, str]]:
        steps: set[tuple[LockKey, str]] = set()
        for (level, key), mode in gains.items():
            if key:
                steps.add(((level, key), _SINGLE[mode]))
                steps.add(((level, ""), f"{_SINGLE[mode]} some"))
            else:
                steps.add(((level, ""), f"{_SINGLE[mode]} all"))
        return sorted(steps)

    def check_known(self, locks: Iterable[LockKey]) -> None:
        if any(key and key not in self.members[level] for level, key in locks):
            raise ValueError("unknown")

    def check_idle(self, owner: int) -> None:
        if any(request.owner == owner for request in self.requests):
            raise ValueError("waits")

    def begin(self, owner: int, gains: dict[LockKey, str], priority: int) -> ModelRequest:
        self.check_idle(owner)
        self.check_known(gains)
        held = self.held.get(owner, {})
        if gains and held and max(held)[0] >= min(gains)[0]:
            raise ValueError("order")
        self.order += 1
        lives = {lock: self.lives.get(lock, 0) for lock in gains}
        request = ModelRequest(owner, self.steps(gains), gains, priority, self.order, lives)
        self.requests.append(request)
        self._advance(request)
        self.settle()
        return request

    def _advance(self, request: ModelRequest) -> None:
        """Take locks as long as nobody is before this request and nobody's claim excludes it."""
        while request.done < len(request.steps):
            lock, word = request.steps[request.done]
            life = self.lives.get(lock, 0)
            if request.life.get(lock, life) != life:
                request.state = "failed"
                self.requests.remove(request)
                return
            if self.queue(lock)[0] is not request or not self.free(lock, request.owner, word):
                return
            request.done += 1
        request.state = "granted"
        self.requests.remove(request)
        if request.gains:
            self.held.setdefault(request.owner, {}).update(request.gains)

    def settle(self) -> None:
        """Serve the requests which can be served, earliest lock first, all of a lock together."""
        while True:
            for lock in sorted({request.steps[request.done][0] for request in self.requests}):
                served: list[ModelRequest] = []
                for request in self.queue(lock):
                    word = request.steps[request.done][1]
                    if not self.free(lock, request.owner, word) or any(
                        conflict(word, other.steps[other.done][1]) for other in served
                    ):
                        break
                    served.append(request)
                for request in served:
                    request.done += 1
                    if request.done == len(request.steps):
                        self._advance(request)  # holds it from now on
                for request in served:
                    if request.state == "waiting":
                        self._advance(request)
                if served:
                    break
            else:
                return

    def withdraw(self, request: ModelRequest) -> None:
        if request in self.requests:
            self.requests.remove(request)
            request.state = "withdrawn"
            self.settle()

    def reprioritise(self, owner: int, priority: int) -> None:
        for request in self.requests:
            if request.owner == owner:
                request.priority = priority
        self.settle()

    def update(self, owner: int, changes: dict[LockKey, str | None]) -> bool:
        """The form which does not wait."""
        self.check_idle(owner)
        self.check_known(lock for lock, mode in changes.items() if mode)
        held = self.held.get(owner, {})
        strength = {None: 0, "shared": 1, "exclusive": 2}
        gains = {
            lock: mode
            for lock, mode in changes.items()
            if mode and strength[mode] > strength[held.get(lock)]
        }
        for lock, mode in gains.items():
            if held and lock < max(held):
                raise ValueError("order")
            level = (lock[0], "")
            if lock[1] and mode == "exclusive" and gains.get(level, held.get(level)) == "shared":
                raise ValueError("writer below a shared level")
        for lock, word in self.steps(gains):
            if not self.free(lock, owner, word):
                return False
            if not self.claims(lock, owner) and any(
                request.priority <= 0 for request in self.queue(lock)
            ):
                return False
        mine = self.held.setdefault(owner, {})
        for lock, wanted in changes.items():
            if wanted:
                mine[lock] = wanted
            else:
                mine.pop(lock, None)
        self._forget(owner)
        self.settle()
        return True

    def opportunistic(self, owner: int, level: int, keys: set[str], mode: str) -> set[str]:
        self.check_idle(owner)
        held = self.held.get(owner, {})
        if held and max(held)[0] >= level:
            raise ValueError("order")
        taken: set[str] = set()
        for key in sorted(keys & self.members[level]):
            for lock, word in self.steps({(level, key): mode}):
                if not self.free(lock, owner, word):
                    break
                if not self.claims(lock, owner) and any(
                    request.priority <= 0 for request in self.queue(lock)
                ):
                    break
            else:
                taken.add(key)
                self.held.setdefault(owner, {})[level, key] = mode
        return taken

    # -- holdings -----------------------------------------------------------------------------

    def _forget(self, owner: int) -> None:
        if not self.held.get(owner):
            self.held.pop(owner, None)

    def _check_held(self, owner: int, level: int, keys: set[str]) -> dict[LockKey, str]:
        self.check_idle(owner)
        held = self.held.get(owner, {})
        for key in keys:
            if (level, "") in held:
                if key not in self.members[level]:
                    raise ValueError("not held")
            elif (level, key) not in held:
                raise ValueError("not held")
        return held

    def _explode(self, held: dict[LockKey, str], level: int) -> None:
        whole = held.pop((level, ""), None)
        if whole is not None:
            for key in self.members[level]:
                if held.get((level, key)) != "exclusive":
                    held[level, key] = whole

    def release(self, owner: int, level: int | None, keys: set[str] | None) -> None:
        self.check_idle(owner)
        if level is None:
            self.held.pop(owner, None)
        elif keys is None:
            held = self.held.get(owner, {})
            for lock in [lock for lock in held if lock[0] == level]:
                del held[lock]
        else:
            held = self._check_held(owner, level, keys)
            if keys:
                self._explode(held, level)
            for key in keys:
                del held[level, key]
        self._forget(owner)
        self.settle()

    def downgrade(self, owner: int, level: int, keys: set[str] | None) -> None:
        self.check_idle(owner)
        if keys is None:
            held = self.held.get(owner, {})
            for lock in held:
                if lock[0] == level:
                    held[lock] = "shared"
        else:
            held = self._check_held(owner, level, keys)
            if held.get((level, "")) == "exclusive":
                self._explode(held, level)
            for key in keys:
                if (level, key) in held:
                    held[level, key] = "shared"
        self.settle()

    def intersection(self, owner: int, keep: set[LockKey]) -> None:
        self.check_idle(owner)
        held = self.held.get(owner, {})
        for level in {lock[0] for lock in held}:
            if (level, "") not in keep:
                self._explode(held, level)
        for lock in [lock for lock in held if lock not in keep]:
            del held[lock]
        self._forget(owner)
        self.settle()

    def add(self, level: int, key: str) -> None:
        if key in self.members[level]:
            raise ValueError("exists")
        self.members[level].add(key)

    def remove(self, owner: int, level: int, keys: set[str]) -> None:
        self.check_idle(owner)
        self.check_known((level, key) for key in keys)
        held = self.held.get(owner, {})
        for key in keys:
            if "exclusive" not in (held.get((level, key)), held.get((level, ""))):
                raise ValueError("not exclusive")
        for key in keys:
            lock = (level, key)
            for request in self.queue(lock):
                request.state = "failed"
                self.requests.remove(request)
            self.members[level].discard(key)
            self.lives[lock] = self.lives.get(lock, 0) + 1
            held.pop(lock, None)
        self._forget(owner)
        self.settle()
