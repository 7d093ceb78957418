"""Availability: how long nothing was committed although a majority of the nodes was well.

A cluster which keeps every promise by doing nothing is no good cluster. So a :class:`Meter` commits
a small change again and again, through whichever master there is, and looks at the nodes at the
same time: which ones have power, daemons that run, a disk that can be written, and a network in
which each of them reaches each other one. While one and the same majority is well, a time without a
commit is measured, and :data:`LIMITS` says for each kind of fault how long it may be.

The limits are for a machine which has nothing else to do. A :class:`Pace` measures during the run
how much longer a piece of work takes than the time for which a processor works on it, and the
limits become longer by this factor.
"""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Final

from devel.chaos.checker import FINAL, Violation
from devel.chaos.history import now
from devel.chaos.lab import WITNESS, Lab, state_of
from devel.chaos.luxi import Luxi, RefusedError

AVAILABLE: Final = "a majority that is well commits"
#: Seconds between two looks at the nodes, and between two commits.
PAUSE_S: Final = 0.5
# A sample of the pace: seconds of a processor, and how much of the work is done at once. The
# samples of the last hour are kept.
_WORK_S: Final = 0.02
_BLOCK: Final = bytes(1 << 18)
_MOST_SAMPLES: Final = 7200
#: Seconds after the end of a fault in which it still explains a pause.
AFTER_S: Final = 30.0
#: Seconds without a commit, by the kind of fault which comes together with it.
#:
#: The watcher comes every 30 seconds, and starts what has ended. The role moves after 5 seconds
#: without a master; a node which only hangs is first given up by its callers, after some more.
LIMITS: Final[Mapping[str, float]] = {
    "": 15.0,
    "blackout": 60.0,
    "clock jumps": 45.0,
    "damaged byte": 60.0,
    "disk fails": 60.0,
    "disk full": 60.0,
    "disk slow": 60.0,
    "hand edit": 60.0,
    "hanging watcher": 30.0,
    "join node": 45.0,
    "kill daemon": 45.0,
    "kill helpers": 30.0,
    "maintenance": 45.0,
    "master failover": 45.0,
    "old data": 60.0,
    "pause daemon": 60.0,
    "pause node": 60.0,
    "power cut": 60.0,
    "renew": 60.0,
    "shortage": 60.0,
    "slow network": 60.0,
    "split": 60.0,
    "torn file": 60.0,
    "upgrade": 60.0,
    "witness away": 45.0,
}


def majorities(
    well: Collection[str], cuts: Iterable[tuple[str, str]], votes: int
) -> frozenset[frozenset[str]]:
    """Return each smallest majority of the nodes in which everybody reaches everybody.

    :param cuts: pairs of which the first does not reach the second.
    :param votes: how many nodes the cluster has, with the witness.
    """
    apart = {frozenset(pair) for pair in cuts}
    return frozenset(
        frozenset(some)
        for some in itertools.combinations(sorted(well), votes // 2 + 1)
        if not any(frozenset(pair) in apart for pair in itertools.combinations(some, 2))
    )


@dataclasses.dataclass(frozen=True)
class Pause:
    """A time without a commit although one and the same majority was well.

    :ivar kinds: the kinds of faults which may explain it.
    """

    begun: float
    ended: float
    kinds: frozenset[str]

    @property
    def seconds(self) -> float:
        """How long it lasted."""
        return self.ended - self.begun

    def limit_s(self, slowness: float) -> float:
        """Return how long it may last: as the slowest of its kinds of faults.

        :param slowness: of the machine, at least 1.
        """
        return slowness * max(LIMITS[kind] for kind in (*self.kinds, ""))


class Account:
    """Measures pauses from what was seen: looks at the nodes, and commits. Pure.

    :ivar longest: the longest pause with each kind of fault; "" is without any.
    """

    def __init__(self) -> None:
        self.longest: dict[str, float] = {}
        self._standing: frozenset[frozenset[str]] = frozenset()
        self._since: float | None = None

    def look(
        self, when: float, well: frozenset[frozenset[str]], kinds: frozenset[str]
    ) -> Pause | None:
        """Take in which majorities are well; returns the present pause."""
        both = self._standing & well
        if not both:
            # Another majority may need another master, so it gets the whole time.
            self._since = when if well else None
        self._standing = both or well
        if self._since is None:
            return None
        pause = Pause(self._since, when, kinds)
        for kind in kinds or ("",):
            self.longest[kind] = max(self.longest.get(kind, 0.0), pause.seconds)
        return pause

    def commit(self, when: float) -> None:
        """Take in a change which was committed."""
        if self._since is not None:
            self._since = max(self._since, when)

    def forget(self) -> None:
        """Begin anew, after a time in which nobody looked."""
        self._standing, self._since = frozenset(), None


class Pace:
    """Measures how much slower this machine is than one which has nothing else to do.

    A sample is a piece of work: the time which it takes, divided by the time for which a processor
    works on it. That is 1 when nobody else wants the processor, on a fast machine and on a slow
    one. Thread-safe.
    """

    def __init__(self) -> None:
        self._samples: deque[tuple[float, float, float]] = deque(maxlen=_MOST_SAMPLES)

    def measure(self) -> None:
        """Take a sample."""
        begun, worked = time.monotonic(), time.thread_time()
        # The lock of the interpreter is released, so other threads of this process cost nothing.
        while (used := time.thread_time() - worked) < _WORK_S:
            hashlib.sha256(_BLOCK).digest()
        self.add(now(), time.monotonic() - begun, used)

    def add(self, when: float, took_s: float, worked_s: float) -> None:
        """Add a sample which was taken."""
        self._samples.append((when, took_s, worked_s))

    def slowness(self, since: float = 0.0) -> float:
        """Return the mean since a moment, at least 1."""
        some = [one for one in self._samples.copy() if one[0] >= since] or list(self._samples)[-1:]
        took, worked = sum(one[1] for one in some), sum(one[2] for one in some)
        return max(1.0, took / worked) if worked else 1.0


class Meter:
    """Commits, looks and measures, in threads of its own.

    :param active: returns the kinds of faults which may explain a pause now.
    :ivar commits: how many changes were committed.
    """

    def __init__(self, lab: Lab, active: Callable[[], frozenset[str]]) -> None:
        self.commits = 0
        self.pace = Pace()
        self.account = Account()
        self._lab = lab
        self._active = active
        self._lock = threading.Lock()
        self._stopping = threading.Event()
        self._works = threading.Event()
        self._found: list[Violation] = []
        self._reported: set[float] = set()
        self._threads = [
            threading.Thread(target=self._look_often, name="looks", daemon=True),
            *(
                threading.Thread(target=self._commit_often, args=(node,), daemon=True)
                for node in lab.nodes
            ),
        ]
        self._rests = [threading.Event() for _ in self._threads]

    def start(self) -> None:
        """Begin."""
        self._works.set()
        for thread in self._threads:
            thread.start()

    def rest(self) -> None:
        """Change nothing until :meth:`go_on`, and measure nothing; returns when all is calm."""
        self._works.clear()
        for thread, rest in zip(self._threads, self._rests, strict=True):
            while thread.is_alive() and not rest.wait(PAUSE_S):
                pass

    def go_on(self) -> None:
        """Commit and measure again."""
        with self._lock:
            self.account.forget()
        for rest in self._rests:
            rest.clear()
        self._works.set()

    def stop(self) -> None:
        """End."""
        self._stopping.set()
        self._works.set()
        for thread in self._threads:
            if thread.is_alive():
                thread.join()

    def violations(self) -> list[Violation]:
        """Return the pauses which were too long, since the last call."""
        with self._lock:
            found, self._found = self._found, []
        return found

    def _turns(self, number: int) -> Iterable[None]:
        """Yield whenever the thread of a number may work."""
        while not self._stopping.is_set():
            if self._works.is_set():
                yield
                self._stopping.wait(PAUSE_S)
            else:
                self._rests[number].set()
                self._works.wait()

    def _look_often(self) -> None:
        for _ in self._turns(0):
            self.pace.measure()
            well = well_nodes(self._lab)
            kinds = self._active()
            with self._lock:
                votes = len(self._lab.nodes) + self._lab.variant.two
                sets = majorities(well, self._lab.cuts(), votes)
                pause = self.account.look(now(), sets, kinds)
                if pause is not None:
                    self._judge(pause)

    def _judge(self, pause: Pause) -> None:
        limit_s = pause.limit_s(self.pace.slowness(pause.begun))
        if pause.seconds > limit_s and pause.begun not in self._reported:
            self._reported.add(pause.begun)
            names = ", ".join(sorted(pause.kinds)) or "no fault"
            text = (
                f"no commit for {pause.seconds:.0f} s although a majority was well, which may last"
                f" {limit_s:.0f} s ({names})"
            )
            self._found.append(Violation(AVAILABLE, text))

    def _commit_often(self, node: str) -> None:
        methods = itertools.cycle(("OP_TAGS_SET", "OP_TAGS_DEL"))
        number = self._lab.nodes.index(node) + 1
        for _ in self._turns(number):
            op = {"OP_ID": next(methods), "kind": "cluster", "tags": [f"probe-{node}"]}
            if self._commits(node, op):
                with self._lock:
                    self.commits += 1
                    self.account.commit(now())

    def _commits(self, node: str, op: Mapping[str, object]) -> bool:
        """Return True if a master of this node has made a small change."""
        deadline = now() + max(LIMITS.values())
        try:
            with Luxi(self._lab.socket(node), timeout_s=10.0) as luxi:
                job = luxi.call("SubmitJob", [op])
                while now() < deadline:
                    ((status,),) = luxi.call("QueryJobs", [job], ["status"])
                    if status in FINAL:
                        return bool(status == "success")
                    time.sleep(0.1)
        except (OSError, RefusedError, TypeError, ValueError):
            pass
        return False


def well_nodes(lab: Lab) -> set[str]:
    """Return the nodes which have power, their daemons, and what these need from the machine.

    A witness which answers is one of them.
    """
    return ({WITNESS} if lab.witness_answers() else set()) | {
        node
        for node in lab.nodes
        if lab.has_power(node)
        and all(lab.setting(what, node) in ("", "ok", "0") for what in ("disk", "lack", "network"))
        and all(state_of(lab.pid(node, daemon)) not in "TZ" for daemon in _NEEDED)
    }


#: Daemons without which a node neither votes nor takes the role.
_NEEDED: Final[Sequence[str]] = ("ganeti-noded", "ganeti-failoverd")
