"""A command which fails is an error with what it said."""

from __future__ import annotations

import pytest

from ganeti import errors
from ganeti.runbook import commands
from ganeti.utils import process

ARGV = ["sh", "-c", "echo step; echo no space >&2; exit 3"]
TEXT = "'sh -c 'echo step; echo no space >&2; exit 3'' exited with exit code 3: step\nno space"


@pytest.mark.programs
def test_a_failure_has_the_command_line_and_the_output() -> None:
    with pytest.raises(errors.OpExecError) as caught:
        commands.run(ARGV)
    assert str(caught.value) == TEXT


@pytest.mark.programs
def test_a_failure_with_another_command_line() -> None:
    with pytest.raises(errors.OpExecError) as caught:
        commands.run(ARGV, shown="cfgupgrade -f")
    assert str(caught.value) == "'cfgupgrade -f' exited with exit code 3: step\nno space"


@pytest.mark.programs
def test_a_failure_which_is_expected() -> None:
    assert commands.run(ARGV, check=False).exit_code == 3


@pytest.mark.programs
@pytest.mark.parametrize("check", [True, False])
def test_a_program_which_does_not_exist(check: bool) -> None:
    with pytest.raises(errors.OpExecError, match="cannot be started"):
        commands.run(["/nowhere/program"], check=check)


def test_the_end_of_a_long_output_is_shown() -> None:
    done = process.Completed((), 1, "", "", None)
    with pytest.raises(errors.OpExecError) as caught:
        commands.require_success(done, "'cat' on node2", "x" * 5000 + "end\n")
    assert str(caught.value) == "'cat' on node2 exited with exit code 1: " + "x" * 1997 + "end"


def test_a_success_is_no_error() -> None:
    commands.require_success(process.Completed((), 0, "", "warning", None), "'cat'", "warning")
