"""Out-of-band helper, restricted commands, power: what a node does for administrators."""

from __future__ import annotations

import os

import pytest

from ganeti import errors
from ganeti.backend.node import netmask, oob, power, restricted
from ganeti.platform.real import RealMachine
from ganeti.utils.filelock import FileLock

programs = pytest.mark.programs


# -- out-of-band helper ----------------------------------------------------------


@programs
def test_the_helper_gets_command_and_node(here, script):
    program = script(f"{here.root}/oob", 'echo "[\\"$1\\", \\"$2\\"]"; echo noise >&2')
    assert oob.run(program, "health", "node2", 60) == '["health", "node2"]\n'


@programs
def test_a_failing_helper_says_what_it_printed(here, script):
    program = script(f"{here.root}/oob", "echo no such outlet >&2; exit 3")
    with pytest.raises(errors.OpExecError, match="node2 failed.*no such outlet"):
        oob.run(program, "power-on", "node2", 60)


@programs
def test_a_helper_that_hangs_is_ended(here, script):
    program = script(f"{here.root}/oob", "exec sleep 1000")
    with pytest.raises(errors.OpExecError, match="power-on"):
        oob.run(program, "power-on", "node2", 1)


@pytest.mark.parametrize(
    ("program", "command"),
    [("oob", "health"), ("/nonexistent/oob", "health"), ("/bin/sh", "explode")],
)
def test_what_is_no_helper_or_no_command_is_not_run(program, command):
    with pytest.raises(errors.ConfigurationError):
        oob.run(program, command, "node2", 60)


# -- restricted commands ---------------------------------------------------------


@pytest.fixture
def commands(here):
    directory = here.restricted_commands_dir
    os.makedirs(directory)
    os.chmod(directory, 0o755)
    return directory


def run(name):
    """Run a command with a clock that only remembers."""
    naps = []
    try:
        return restricted.run_command(name, sleep=naps.append), naps
    except errors.OpExecError as err:
        assert str(err) == f"executing command {name!r} failed"
        return None, naps


@programs
def test_a_command_runs_without_environment(commands, script, monkeypatch):
    monkeypatch.setenv("SECRET", "x")
    script(f"{commands}/show", "tr '\\0' '\\n' < /proc/$$/environ; echo out; echo err >&2")
    assert run("show") == ("out\nerr\n", [])


@programs
def test_a_failing_command_tells_no_more_than_a_missing_one(commands, script):
    script(f"{commands}/fails", "echo secret; exit 1")
    assert run("fails") == run("missing") == (None, [10.0])


@pytest.mark.parametrize("name", ["", "../etc/passwd", "a b", "x.sh", ".", "-x;ls", "a\nb"])
def test_names_are_plain_words(commands, name):
    assert run(name) == (None, [10.0])


@pytest.mark.parametrize("mode", [0o775, 0o757, 0o4755, 0o644])
def test_modes_of_a_command(commands, script, mode):
    script(f"{commands}/x", "exit 0", mode=mode)
    assert run("x") == (None, [10.0])


@pytest.mark.parametrize("mode", [0o775, 0o777, 0o1755])
def test_modes_of_the_directory(commands, script, mode):
    script(f"{commands}/x", "exit 0")
    os.chmod(commands, mode)
    assert run("x") == (None, [10.0])
    os.chmod(commands, 0o755)


def test_links_and_strangers_are_not_trusted(commands, script):
    script(f"{commands}/real", "exit 0")
    os.symlink("real", f"{commands}/link")
    assert run("link") == (None, [10.0])
    with pytest.raises(errors.ConfigurationError, match="belongs to"):
        restricted.find(commands, "real", (os.geteuid() + 1, os.getegid()))
    assert restricted.find(commands, "real", restricted.owner()) == f"{commands}/real"


def test_one_at_a_time(commands, here, script, monkeypatch):
    script(f"{commands}/x", "exit 0")
    monkeypatch.setattr(restricted, "LOCK_TIMEOUT_S", 0)
    with FileLock(here.restricted_commands_lock_file) as lock:
        lock.acquire()
        assert run("x") == (None, [10.0])


# -- power and address -----------------------------------------------------------


def test_the_machine_below_a_virtual_cluster_is_not_reset(here, monkeypatch):
    monkeypatch.setattr(os, "fork", lambda: pytest.fail("forked"))
    with pytest.raises(errors.ConfigurationError, match="virtual cluster"):
        power.powercycle("kvm", {})
    with pytest.raises(errors.ConfigurationError, match="nosuch"):
        power.powercycle("nosuch", {})


def test_the_netmask_of_an_address_that_is_not_here_needs_nothing():
    # Programs are forbidden here, so nothing was run.
    netmask.change(24, 25, "127.0.0.1", "lo")
    netmask.change(24, 24, "192.0.2.1", "eth0")
    with pytest.raises(errors.IPAddressError):
        netmask.change(24, 25, "x", "eth0")


@programs
def test_the_netmask_is_added_before_the_old_one_goes(monkeypatch):
    seen = []
    monkeypatch.setattr(RealMachine, "owns_address", lambda self, address: True)
    monkeypatch.setattr(netmask.process, "run", lambda argv, **_: seen.append(argv[2:4]))
    netmask.change(24, 25, "192.0.2.1", "eth0")
    assert seen == [["add", "192.0.2.1/25"], ["del", "192.0.2.1/24"]]
