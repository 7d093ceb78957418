"""Kills a job queue at every step on the disk and every message, and looks what is left.

Run as a program, because it forks and its children kill themselves::

    crash_driver.py DIRECTORY FIRST STRIDE

For each step number, from FIRST in strides, a child works through a load (:mod:`load`) and is
killed (SIGKILL, by itself) just before that step; what it acknowledged and what it executed is in
two files. A second child opens the queue again and is killed as well at some step; a third one lets
everything finish and checks the promises. Prints the names of the steps at which it was killed, and
"ok N" with the number of the step that was never reached.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
import threading
import traceback

import load


class Killer:
    """Counts steps of all threads and kills the process at one of them."""

    def __init__(self, at: int, note: str) -> None:
        self._at = at
        self._note = note
        self._count = 0
        self._lock = threading.Lock()

    def __call__(self, step: str) -> None:
        with self._lock:
            self._count += 1
            if self._count == self._at:
                with open(self._note, "a") as stream:
                    stream.write(f"{step}\n")
                os.kill(os.getpid(), signal.SIGKILL)


def run_load(directory: str, step: int, note: str) -> None:
    """Ordinary work, every acknowledgement noted at once."""
    run = load.Run(directory, Killer(step, note))
    run.queue.start()
    load.work(run)
    run.queue.stop()


def recover(directory: str, step: int, note: str) -> None:
    """A start after the crash, which is killed as well when it comes to this step."""
    run = load.Run(directory, Killer(step, note))
    run.hold.set()
    run.queue.start()
    run.queue.stop()


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


def main() -> None:
    base, first, stride = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    note = f"{base}/killed-at"
    step = first
    while True:
        directory = f"{base}/step-{step}"
        os.makedirs(directory)
        code = in_child(run_load, directory, step, note)
        if code not in (0, -signal.SIGKILL):
            sys.exit(f"step {step}: the load ended with {code}")
        in_child(recover, directory, step % 23 + 1, note)
        if (code_after := in_child(check, directory)) != 0:
            sys.exit(f"step {step}: a promise was broken ({code_after}), see {directory}")
        shutil.rmtree(directory)
        if code == 0:
            with open(note) as stream:
                print(" ".join(sorted({line.strip().replace(" ", "-") for line in stream})))
            print(f"ok {step}")
            return
        step += stride


if __name__ == "__main__":
    main()
