"""Running an allocator on the node."""

from __future__ import annotations

import os

import pytest

from ganeti import errors
from ganeti.backend.cluster import allocator

programs = pytest.mark.programs


@pytest.fixture
def directories(here):
    return here.iallocator_search_path


def test_options_follow_the_request():
    argv = allocator.allocator_argv(
        "/a/hail", "/tmp/request", {"max-cpu": 7, "verbose": None, "simulate": True, "off": False}
    )
    assert argv == ["/a/hail", "/tmp/request", "--max-cpu=7", "--verbose", "--simulate"]


@programs
def test_it_gets_the_request_in_a_file_which_then_goes(here, directories, script):
    script(f"{directories[0]}/echo", 'cat "$1"; echo; echo "$2"; echo "$1"; stat -c %a "$1"')
    request, option, path, mode = allocator.run("echo", '{"ü": 1}', {"a": "b c"}).splitlines()
    assert request == '{"ü": 1}'
    assert option == "--a=b c"
    assert os.path.basename(path).startswith("ganeti-iallocator.")
    assert mode == "600"
    assert not os.path.exists(path)


@programs
def test_the_first_directory_counts(here, directories, script):
    script(f"{directories[1]}/one", "echo second")
    assert allocator.run("one", "{}", {}) == "second\n"
    script(f"{directories[0]}/one", "echo first")
    assert allocator.run("one", "{}", {}) == "first\n"


@programs
@pytest.mark.parametrize(
    ("body", "fragment"),
    [
        ("echo out; echo broken >&2; exit 3", "exited with exit code 3: broken"),
        ("echo out; exit 3", "exit code 3: out"),
        ("exit 1", "printed nothing"),
        ("kill -9 $$", "ended by signal 9"),
    ],
)
def test_a_failing_allocator_says_why(here, directories, script, body, fragment):
    script(f"{directories[0]}/one", body)
    with pytest.raises(errors.OpExecError, match=fragment) as caught:
        allocator.run("one", "{}", {})
    assert "instance allocator one" in str(caught.value)
    assert not [name for name in os.listdir(here.run_dir) if "iallocator" in name]


@programs
def test_an_allocator_that_hangs_is_ended(here, directories, script, monkeypatch):
    monkeypatch.setattr(allocator, "_TIMEOUT_S", 0.2)
    script(f"{directories[0]}/one", "exec sleep 1000")
    with pytest.raises(errors.OpExecError, match="instance allocator one failed"):
        allocator.run("one", "{}", {})


@pytest.mark.parametrize("name", ["nosuch", "..", "../os/x", "a/b", ".", "-x", "a b", ""])
def test_what_is_no_allocator(here, name):
    with pytest.raises(errors.ConfigurationError, match="instance allocator"):
        allocator.run(name, "{}", {})


def test_a_file_that_cannot_be_run_is_said(here, directories, script):
    script(f"{directories[0]}/one", "exit 0", mode=0o644)
    with pytest.raises(errors.ConfigurationError, match="not executable"):
        allocator.run("one", "{}", {})
