"""The command line of the chaos run, and the run itself."""

from __future__ import annotations

import argparse
import dataclasses
import itertools
import os
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NoReturn

from devel.chaos import checker, defects, evidence, history, report, schedule, trend, users
from devel.chaos.availability import Meter
from devel.chaos.checker import Violation
from devel.chaos.faults import Faults
from devel.chaos.history import ADD_TAG, BEGUN, CREATE, OK, History, Operation, now
from devel.chaos.lab import BASIC, OS_NAME, TOP, Lab, LabError
from devel.chaos.luxi import RefusedError
from devel.chaos.schedule import Round, Variant
from devel.chaos.settle import DAEMONS, SETTLES, Settled

DEFAULT_MINUTES = 10.0
# How often a check begins again because the master has gone meanwhile.
_ATTEMPTS = 5


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="devel.chaos",
        description="Run a virtual cluster of five or two nodes under load while parts fail, and"
        " check that nothing which it acknowledged is lost (doc/fault-injection.rst).",
    )
    add = parser.add_argument
    add("--minutes", type=float, default=DEFAULT_MINUTES, help="begin no round after this time")
    add("--rounds", type=int, help="make so many rounds instead")
    add("--seed", type=int, help="number which decides the schedule; otherwise the time")
    add("--only", type=int, metavar="ROUND", help="make the round of this number only")
    add(
        "--basic", action="store_true",
        help="only faults of processes, power, network, disks, clocks and roles, with jobs in"
        " threads and a small configuration",
    )  # fmt: skip
    add("--jobs", choices=("threads", "processes"), help="where jobs are executed")
    add("--nodes", choices=("2", "5"), help="two nodes have a witness")
    add("--watchdogs", choices=("yes", "no"), help="whether each node has a watchdog")
    add("--configuration", choices=("small", "large"), help="a large one has a journal")
    add("--print", action="store_true", dest="show", help="print the schedule, and make nothing")
    add("--save", type=Path, metavar="FILE", help="write the schedule to a file")
    add("--replay", type=Path, metavar="FILE", help="make the rounds of a file")
    add("--keep-going", action="store_true", help="go on after a broken promise, and report all")
    add("--report", type=Path, metavar="FILE", help="write counts and findings as JSON")
    add("--directory", type=Path, help="keep all files of the run here; otherwise in $TMPDIR")
    add("--keep", action="store_true", help="keep the files also when nothing was found")
    add("--project", type=Path, default=TOP, help=argparse.SUPPRESS)
    add(
        "--defects", action="store_true",
        help="put known defects into a copy of the program, and see that each is found",
    )  # fmt: skip
    add("--defect", help="with --defects: this one only")
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run the program; returns 0 when every promise held, and 1 when one was broken."""
    args = _parser().parse_args(argv)
    signal.signal(signal.SIGTERM, _end)
    if args.defects:
        return defects.main(args.defect, args.minutes)
    try:
        seed, rounds = _rounds(args)
    except (OSError, schedule.ScheduleError) as err:
        print(f"chaos: {err}", file=sys.stderr)
        return 2
    if args.show or args.save is not None:
        some = list(itertools.islice(rounds, args.rounds or 10))
        if args.save is not None:
            args.save.write_text(schedule.dump(seed, some))
        if args.show:
            print("\n".join(one.text() for one in some))
        return 0
    directory = args.directory or Path(tempfile.mkdtemp(prefix="gnt-chaos-"))
    directory = directory.resolve()
    directory.mkdir(parents=True, exist_ok=True)
    run = Run(directory, seed, project=args.project, variant=_variant(args, seed))
    try:
        # A number of rounds, or a file, is a limit by itself.
        limited = args.rounds or args.only or args.replay
        limit_s = None if limited else args.minutes * 60
        found = run.everything(rounds, limit_s, keep_going=args.keep_going)
    except LabError as err:
        print(f"chaos: the run could not be made: {err}", file=sys.stderr)
        return 2
    print(run.report.text())
    if args.report is not None:
        args.report.write_text(run.report.json())
    if found or args.keep:
        print(f"the files of the run are in {directory}")
    elif args.directory is None:
        shutil.rmtree(directory)
    return 1 if found else 0


def _end(_number: int, _frame: object) -> NoReturn:
    # The cluster is removed on the way.
    raise SystemExit(143)


def _variant(args: argparse.Namespace, seed: int) -> Variant:
    """Return how the cluster is made: by the options, or by the seed."""
    if args.basic:
        return BASIC
    by_seed = schedule.variant_of(seed)
    return Variant(
        by_seed.processes if args.jobs is None else args.jobs == "processes",
        by_seed.large if args.configuration is None else args.configuration == "large",
        by_seed.two if args.nodes is None else args.nodes == "2",
        by_seed.watchdogs if args.watchdogs is None else args.watchdogs == "yes",
    )


def _rounds(args: argparse.Namespace) -> tuple[int, Iterator[Round]]:
    """Return the seed and the rounds.

    :raises OSError: the file of the schedule cannot be read.
    :raises schedule.ScheduleError: it is not a schedule.
    """
    if args.replay is not None:
        seed, some = schedule.parse_schedule(args.replay.read_text())
        return seed, iter(some)
    seed = int(time.time()) if args.seed is None else args.seed
    numbers = itertools.count(1) if args.only is None else [args.only]
    made = (schedule.one_round(seed, number, basic=args.basic) for number in numbers)
    if _variant(args, seed).two:
        made = (schedule.for_two(seed, one) for one in made)
    return seed, itertools.islice(made, args.rounds)


class Run:
    """A chaos run.

    :param directory: of all its files; a short path, because it contains sockets.
    :param variant: how the cluster is made.
    """

    def __init__(
        self, directory: Path, seed: int, *, project: Path = TOP, variant: Variant = BASIC
    ) -> None:
        self.lab = Lab(directory, variant.nodes, project, variant)
        self.seed = seed
        self.history = History(directory / "history.jsonl")
        self.faults = Faults(self.lab, self.say, self._note_tag)
        self.settled = Settled(self.lab, self.say)
        self.meter = Meter(self.lab, self.faults.active)
        self.sampler = trend.Sampler(lambda: trend.take(self.lab, DAEMONS))
        self.report = report.Report(seed)
        self._begun = now()
        self._crowd: list[users.User] = []

    def _note_tag(self, tag: str) -> None:
        when = now()
        self.history.add(Operation("hand", "file", ADD_TAG, "cluster/", tag, when, when, OK))

    def say(self, text: str) -> None:
        """Print a line of progress at once."""
        print(f"[{now() - self._begun:6.0f} s] {text}", flush=True)

    def everything(
        self, rounds: Iterable[Round], limit_s: float | None, *, keep_going: bool = False
    ) -> list[Violation]:
        """Make the cluster, the rounds, and the last checks; returns what was broken.

        :param limit_s: begin no round after so many seconds; None for no limit.
        :param keep_going: make further rounds after a broken promise.
        :raises LabError: the cluster could not be made.
        """
        self.say(f"seed {self.seed}; making a cluster in {self.lab.vc}: {self.lab.variant.text()}")
        found: list[Violation] = []
        try:
            self.lab.create()
            self._make_instances()
            self._crowd = users.crowd(self.lab, self.history, self.seed)
            begun = now()
            for user in self._crowd:
                user.start()
            self.meter.start()
            self.sampler.start()
            for one in rounds:
                if limit_s is not None and now() - begun > limit_s:
                    break
                new = [violation for violation in self._round(one) if violation not in found]
                for violation in new:
                    self.say(f"    BROKEN: {violation.promise}: {violation.text}")
                found += new
                if found and not keep_going:
                    break
            found = self._last(found)
        finally:
            self.meter.stop()
            self.sampler.stop()
            self._stop_users()
            if found:
                self.lab.keep_files()
            self.lab.destroy()
            self.history.close()
        self.report.finish(self, found, now() - self._begun)
        return found

    def _make_instances(self) -> None:
        nodes = itertools.cycle(self.lab.nodes)
        for name in (*users.DISKLESS, *users.SHARED):
            disks = (
                ["-t", "diskless", "--no-install"]
                if name in users.DISKLESS
                else ["-t", "sharedfile", "-s", "4M"]
            )
            began, node = now(), next(nodes)
            done = self.lab.run(
                self.lab.nodes[0], "gnt-instance", "add", "-n", node, "--no-nics",
                "--no-name-check", "-o", OS_NAME, "-O", f"token=create-{name}", *disks, name,
            )  # fmt: skip
            if not done.ok:
                raise LabError(done.text)
            self.history.add(Operation("run", "command", CREATE, name, "", began, now(), OK))

    # -- rounds ------------------------------------------------------------------------------------

    def _round(self, one: Round) -> list[Violation]:
        """Make a round, mend everything, and check; returns what was broken."""
        try:
            master = self.settled.wait_for_master()
        except LabError as err:
            return [Violation(SETTLES, str(err))]
        self.say(f"round {one.number}, {len(self.history.operations())} operations until now")
        self.faults.take_copies()
        self.faults.play(one, master)
        self.faults.mend_all()
        self.report.rounds += 1
        return [*self.faults.take_broken(), *self._check()]

    def _check(self) -> list[Violation]:
        """Wait until the cluster is whole, and compare what it has with the answers to users.

        The role may still move after everything was mended, so a master that goes away meanwhile is
        waited for again.
        """
        for user in self._crowd:
            user.resting.set()
        try:
            found = self._check_often()
            return [*self.meter.violations(), *found]
        finally:
            self.meter.go_on()
            for user in self._crowd:
                user.resting.clear()

    def _check_often(self) -> list[Violation]:
        found: list[Violation] = []
        master = ""
        for _ in range(_ATTEMPTS):
            try:
                master = self.settled.wait_for_master()
                # Until here it is measured how long this takes; the files are compared below.
                self.meter.rest()
                self.settled.bring_back(master)
                found = self.settled.verify(master)
                self.settled.wait_for_agreement(master)
                # A job which switches a node off may have waited for its locks until now.
                if self.settled.is_whole(master):
                    return found + self._judge(self.history.operations(), master)
                found = [Violation(SETTLES, "a node is switched off again and again")]
            except (OSError, RefusedError) as err:
                found = [Violation(SETTLES, f"no master stays: {type(err).__name__}: {err}")]
                self.say(f"    the master has gone meanwhile: {type(err).__name__}: {err}")
            except LabError as err:
                found = [Violation(SETTLES, str(err))]
                self.say(f"    {err}")
                if not master or self.settled.is_whole(master):
                    break
        return found

    def _judge(self, operations: Sequence[Operation], master: str) -> list[Violation]:
        """Compare, while users may go on.

        :param operations: those which had ended before.
        """
        found = evidence.collect(self.lab, master)
        # A removal which began in the meantime may be in the evidence, or not.
        begun = [
            dataclasses.replace(one, outcome=BEGUN)
            for one in self.history.operations()[len(operations) :]
            if one.kind in history.REMOVALS
        ]
        working = any(user.is_alive() for user in self._crowd)
        return checker.check([*operations, *begun], found, all_ended=not working)

    def _last(self, found: list[Violation]) -> list[Violation]:
        """End the users, and check everything once more, with what must not be left."""
        self.say("the users stop")
        self._stop_users()
        self.faults.mend_all()
        for user in self._crowd:
            if user.error is not None:
                raise LabError(f"user {user.name} died: {user.error!r}") from user.error
        try:
            master = self.settled.wait_for_master()
            last = self.settled.wait_for_jobs(master)
            last += self._check()
            self.meter.rest()
            if not found and not last:
                last = [*self.settled.leaks(master), *trend.growing(self.sampler.samples)]
            found += [violation for violation in last if violation not in found]
        except (LabError, OSError, RefusedError) as err:
            found.append(Violation(SETTLES, f"{type(err).__name__}: {err}"))
        self.report.usage = self.settled.usage()
        return found

    def fenced(self) -> int:
        """Return how often the cluster has switched a node off."""
        path = self.lab.directory / "fenced.log"
        return len(path.read_text().splitlines()) if path.exists() else 0

    def resets(self) -> int:
        """Return how often the watchdog of a node has fired."""
        path = self.lab.directory / "resets.log"
        return len(path.read_text().splitlines()) if path.exists() else 0

    def burnins(self) -> dict[int, int]:
        """Return how often ``burnin`` ended, by its exit code."""
        found: Counter[int] = Counter()
        for user in self._crowd:
            if isinstance(user, users.BurninUser):
                found.update(user.runs)
        return dict(found)

    def _stop_users(self) -> None:
        for user in self._crowd:
            user.stopping.set()
        for user in self._crowd:
            if user.is_alive():
                user.join(timeout=300)


if __name__ == "__main__":
    os.umask(0o022)
    sys.exit(main())
