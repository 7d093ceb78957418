"""A node's directories, empty, for each test."""

import os
import signal

import pytest

from ganeti.backend import caller
from ganeti.platform import master_epoch, paths


@pytest.fixture(autouse=True)
def _no_caller():
    """A process serves one request; tests which serve one leave nothing to the others."""
    yield
    caller.act_for(master_epoch.NONE)


@pytest.fixture
def here(tmp_path):
    """Paths of a node of a virtual cluster below the test's directory."""
    with paths.override(paths.Paths(str(tmp_path / "node1"))) as found:
        for directory in (
            found.data_dir,
            found.queue_archive_dir,
            found.lock_dir,
            found.run_dir,
            found.log_dir,
            found.conf_dir,
        ):
            os.makedirs(directory, exist_ok=True)
        yield found


@pytest.fixture
def script():
    """Writes an executable shell script."""

    def write(path, text, mode=0o755):
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w") as stream:
            stream.write(f"#!/bin/sh\n{text}\n")
        os.chmod(path, mode)
        return path

    return write


@pytest.fixture(autouse=True)
def no_alarm_left():
    """The dispatcher sets an alarm, because its process ends after the call."""
    yield
    signal.setitimer(signal.ITIMER_REAL, 0)
