"""Running scripts whose environment is published, with a log file as their output."""

import os

import pytest

from ganeti import errors
from ganeti.utils import process

pytestmark = pytest.mark.programs


def test_exact_environment():
    done = process.run(["/usr/bin/env"], timeout_s=60, env={"A": "b c"}, exact_env=True)
    assert done.stdout == "A=b c\n"
    assert process.run(["/usr/bin/env"], timeout_s=60, exact_env=True).stdout == ""


def test_output_goes_to_a_file(tmp_path):
    with open(tmp_path / "log", "ab") as stream:
        done = process.run(
            ["/bin/sh", "-c", "echo out; echo err >&2; exit 3"],
            timeout_s=60,
            check=False,
            output_fd=stream.fileno(),
        )
    assert (done.exit_code, done.output) == (3, "")
    assert (tmp_path / "log").read_text() == "out\nerr\n"


def test_what_was_written_before_the_time_was_over_stays(tmp_path):
    with open(tmp_path / "log", "ab") as stream, pytest.raises(errors.CommandTimeout):
        process.run(
            ["/bin/sh", "-c", "echo begun; sleep 1000"], timeout_s=1, output_fd=stream.fileno()
        )
    assert os.path.getsize(tmp_path / "log") == len("begun\n")
