"""Bring a cluster to rest before it is changed; wait for its master, and compare it afterwards."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TypeVar

from ganeti import errors
from ganeti.constants import job

#: Between the fields of the list of jobs which :func:`parse_unfinished` reads.
SEPARATOR = "|"

Say = Callable[[str], object]
T = TypeVar("T")


def wait_for_jobs(
    unfinished: Callable[[], Sequence[str]],
    say: Say,
    pause: Callable[[float], object],
    interval_s: float,
) -> None:
    """Return when no job is left; say when their number has changed.

    :param unfinished: returns the numbers of the jobs that have not ended.
    """
    said = 0
    while left := unfinished():
        if len(left) != said:
            said = len(left)
            say(f"  waiting for {said} jobs: {', '.join(left[:10])}")
        pause(interval_s)


def wait_for_master(
    ask: Callable[[], T], pause: Callable[[float], object], interval_s: float, limit_s: float
) -> T:
    """Ask a master daemon which has just been started until it answers; return the answer.

    :raises GenericError: it does not answer within the time; the error of the last attempt.
    """
    waited = 0.0
    while True:
        try:
            return ask()
        except errors.GenericError:
            if waited >= limit_s:
                raise
        pause(interval_s)
        waited += interval_s


def parse_unfinished(text: str) -> list[str]:
    """Read numbers and states of jobs, and return the numbers of those that have not ended."""
    found = []
    for line in text.splitlines():
        number, sign, status = line.strip().partition(SEPARATOR)
        if sign and status not in job.FINALIZED:
            found.append(number)
    return found


def say_findings(found: Mapping[str, str], say: Say) -> None:
    """Show what a verification finds before anything is changed, by code and object."""
    for name, text in found.items():
        say(f"  found: {name}: {text}")


def require_nothing_new(
    found: Mapping[str, str], before: Collection[str], unverified: Collection[str], say: Say
) -> None:
    """Check that a verification finds nothing that it has not found before.

    What it finds on a node that it has not verified before is only said: nobody knows whether it is
    new.

    :param found: code and object -> text.
    :param before: codes and objects of the verification before the change.
    :param unverified: nodes that the verification before did not reach.
    :raises OpExecError: it finds more.
    """
    new = []
    for name, text in found.items():
        if name in before:
            continue
        if name.rpartition(" ")[2] in unverified:
            say(f"  found on a node which was not verified before: {name}: {text}")
        else:
            new.append(f"{name}: {text}")
    if new:
        raise errors.OpExecError(
            f"verification finds what it did not find before: {'; '.join(new)}"
        )
