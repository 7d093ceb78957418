"""The machines of a fixture: started for its tests, their logs kept, and always shut down."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lab import image, machines
from lab.machines import Lab


def booted(directory: Path, count: int, logs: str, **options: Any) -> Iterator[Lab]:
    """Start machines for a fixture; skip its tests where they cannot run.

    :param logs: name of the directory for their logs.
    :param options: further arguments of :class:`lab.machines.Lab`.
    """
    missing = machines.missing_programs()
    if missing:
        pytest.skip(f"the laboratory needs {', '.join(missing)}")
    try:
        found = Lab(directory, count, **options)
        found.prepare()
    except image.CannotBuild as err:
        pytest.skip(f"no image for the laboratory: {err}")
    with machines.ended_in_order(), found:
        yield found
        found.collect_logs(image.cache_dir() / logs)
