"""Shows that the chaos run finds defects: ``make chaos-defects``.

``known/defects.toml`` has them, in the form of the known faults (:mod:`devel.mutate`). Each is put
into a copy of the program, and the run begins with this copy; a defect is found when the run breaks
a promise. The same rounds without a defect break none: that is the run itself.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from devel import mutate
from devel.chaos import versions
from devel.chaos.lab import TOP

KNOWN: Final = Path(__file__).with_name("known")
#: How often a run is begun for a seed until its cluster could be made.
_ATTEMPTS: Final = 4
#: How often a planned run is repeated until it finds its defect.
_REPEATED: Final = 3
#: The exit code of a run whose cluster could not be made.
_NOT_MADE: Final = 2
#: Seeds for each defect, by the begin of its description. Their first rounds have faults which can
#: show it; with other seeds the run takes longer.
SEEDS: Final = {
    "acknowledgement before flush": (54, 4, 36),
    "an epoch not checked": (96, 324, 367),
    "a lock released early": (1, 2, 3),
}
#: Defects for which faults are planned in a file instead, and the options of their runs.
PLANNED: Final = {
    "a fault of the machine charged to a job": ("shortage.json", "--jobs", "processes"),
    "a journal thrown away": ("journal.json", "--configuration", "large"),
    "health measured by reading": ("stalled.json",),
    "a record of steps stands for a state": ("upgrade.json",),
}


def read() -> list[mutate.Fault]:
    """Read the list of defects.

    :raises mutate.ListError: a defect does not fit the program.
    """
    return mutate.read_lists(KNOWN)


def copy_with(fault: mutate.Fault, directory: Path) -> Path:
    """Make a copy of the program with a defect.

    :raises mutate.ListError: the defect does not fit the program.
    """
    project = directory / "project"
    versions.copy_program(TOP, project)
    path = project / "lib/ganeti" / fault.file
    path.write_text(fault.apply(path.read_text()))
    return project


def main(only: str | None, minutes: float) -> int:
    """Try the defects; returns 0 when all were found.

    :param only: a part of the description of the defects to be tried; None for all.
    :param minutes: of each run.
    """
    missed = []
    for fault in read():
        if only is None or only in fault.what:
            print(f"defect: {fault.what}", flush=True)
            if not _is_found(fault, minutes):
                missed.append(fault.what)
    for what in missed:
        print(f"not found: {what}")
    return 1 if missed else 0


def _is_found(fault: mutate.Fault, minutes: float) -> bool:
    with tempfile.TemporaryDirectory(prefix="gnt-defect-") as name:
        directory = Path(name)
        project = copy_with(fault, directory)
        for number, options in enumerate(options_for(fault, minutes)):
            for attempt in range(_ATTEMPTS):
                code = _run(project, options, directory / f"{number}-{attempt}")
                if code != _NOT_MADE:
                    break
                # The defect can have its effect there already; that shows no broken promise.
                print("the cluster could not be made with this defect", flush=True)
            if code == 1:
                print(f"found with {' '.join(options)}: {fault.what}\n", flush=True)
                return True
            if code != 0:
                raise SystemExit(f"chaos: the run ended with exit code {code}")
    return False


def options_for(fault: mutate.Fault, minutes: float) -> list[tuple[str, ...]]:
    """Return the options of the runs which may find a defect, the first one first."""
    begin = fault.what.partition(":")[0]
    if begin in PLANNED:
        file, *options = PLANNED[begin]
        return [("--replay", str(KNOWN / file), *options)] * _REPEATED
    return [("--seed", str(seed), "--minutes", str(minutes), "--basic") for seed in SEEDS[begin]]


def _run(project: Path, options: Sequence[str], directory: Path) -> int:
    """Run the chaos run with a copy of the program; returns its exit code."""
    process = subprocess.Popen(
        [
            sys.executable, "-u", "-m", "devel.chaos", *options,
            "--project", str(project), "--directory", str(directory),
        ],
        cwd=TOP,
    )  # fmt: skip
    try:
        return process.wait()
    except BaseException:
        # It removes its cluster, which a kill would leave.
        process.terminate()
        process.wait()
        raise
