"""Kills a job queue at every step on the disk and every message, and looks what is left.

Run as a program, because it forks and its children kill themselves::

    crash_driver.py DIRECTORY FIRST STRIDE

Every step has a number, in the order in which the threads come to them in that run. For each number
from FIRST in strides a child works through a load (:mod:`load`) and is killed (SIGKILL, by itself)
just before that step; what it acknowledged and what it executed is in two files. A second child
opens the queue again and is killed as well at some step; a third one lets everything finish and
checks the promises. Then the same for the first and the second step of each name, shared out in the
same way, because the rare ones may never come at the number that is tried.

Prints the names of the steps at which it was killed, and "ok N" with the number of the step that
was never reached.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
import threading
import traceback

import load

NAMES = (
    "archive job",
    "create journal",
    "flush directory",
    "flush file",
    "flush journal",
    "remove journal",
    "remove drain",
    "rename file",
    "write file",
    "write journal",
    "rpc archive",
    "rpc archive answered",
    "rpc drain",
    "rpc drain answered",
    "rpc inventory",
    "rpc inventory answered",
    "rpc update",
    "rpc update answered",
    "copy create journal",
    "copy flush directory",
    "copy flush journal",
    "copy remove journal",
    "copy rename file",
    "copy write file",
    "copy write journal",
)


class Killer:
    """Counts steps of all threads and kills the process at one of them.

    :param name: count only steps of this name; without one all but those on the candidate's disk,
        which come whenever its threads come to them.
    """

    def __init__(self, at: int, note: str, name: str = "") -> None:
        self._at = at
        self._name = name
        self._note = note
        self._count = 0
        self._lock = threading.Lock()

    def __call__(self, step: str) -> None:
        if step.startswith("copy ") if not self._name else step != self._name:
            return
        with self._lock:
            self._count += 1
            if self._count == self._at:
                with open(self._note, "a") as stream:
                    stream.write(f"{step}\n")
                os.kill(os.getpid(), signal.SIGKILL)


def run_load(directory: str, killer: Killer) -> None:
    """Ordinary work, every acknowledgement noted at once."""
    run = load.Run(directory, killer)
    run.queue.start()
    load.work(run)
    run.stop()


def recover(directory: str, killer: Killer) -> None:
    """A start after the crash, which is killed as well when it comes to a certain step."""
    run = load.Run(directory, killer)
    run.hold.set()
    run.queue.start()
    run.stop()


def check(directory: str) -> None:
    """After the crash: everything finishes, and the promises hold."""
    load.check(directory, load.Run(directory, load.no_step))


def in_child(action: object, *args: object) -> int:
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            action(*args)  # type: ignore[operator]
            code = 0
        except BaseException:
            traceback.print_exc(file=sys.stdout)
            raise
        finally:
            sys.stdout.flush()
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def attempt(directory: str, killer: Killer, second: Killer) -> bool:
    """One crash; whether it came to that. Ends the program when a promise was broken."""
    os.makedirs(directory)
    code = in_child(run_load, directory, killer)
    if code not in (0, -signal.SIGKILL):
        sys.exit(f"{directory}: the load ended with {code}")
    in_child(recover, directory, second)
    if (code_after := in_child(check, directory)) != 0:
        sys.exit(f"{directory}: a promise was broken ({code_after})")
    shutil.rmtree(directory)
    return code != 0


def main() -> None:
    base, first, stride = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    note = f"{base}/killed-at"
    step = first
    while attempt(f"{base}/step-{step}", Killer(step, note), Killer(step % 23 + 1, note)):
        step += stride
    for place, name in list(enumerate(NAMES))[first - 1 :: stride]:
        for occurrence in (1, 2):
            attempt(
                f"{base}/named-{place}-{occurrence}",
                Killer(occurrence, note, name),
                Killer(place + occurrence, note),
            )
    with open(note) as stream:
        print(" ".join(sorted({line.strip().replace(" ", "-") for line in stream})))
    print(f"ok {step}")


if __name__ == "__main__":
    main()
