"""Hooks: which are run, with what, and what comes back."""

import os

import pytest

from ganeti import errors
from ganeti.backend.node import hooks

pytestmark = pytest.mark.programs
ENV = {"PATH": "/sbin:/bin:/usr/sbin:/usr/bin", "GANETI_OP_CODE": "OP_TEST"}


def test_no_directory_no_scripts(here):
    assert hooks.run("instance-add", "pre", ENV) == []


def test_rows_in_order_of_names(here, script):
    base = f"{here.hooks_base_dir}/instance-add-pre.d"
    script(f"{base}/20-fails", "echo out; echo err >&2; exit 3")
    script(f"{base}/10-good", "echo hello")
    script(f"{base}/30-silent", "exit 1")
    script(f"{base}/40-data", "exit 0", mode=0o644)
    script(f"{base}/50.odd", "exit 0")
    os.mkdir(f"{base}/60-dir")
    assert hooks.run("instance-add", "pre", ENV) == [
        ["instance-add-pre.d/10-good", 2, "hello"],
        ["instance-add-pre.d/20-fails", 1, "out\nerr"],
        ["instance-add-pre.d/30-silent", 1, "no output, it exited with exit code 1"],
        ["instance-add-pre.d/40-data", 0, ""],
        ["instance-add-pre.d/50.odd", 0, ""],
        ["instance-add-pre.d/60-dir", 0, ""],
    ]


def test_environment_is_exactly_what_was_sent(here, script, monkeypatch):
    monkeypatch.setenv("SECRET_OF_THE_DAEMON", "x")
    script(f"{here.hooks_base_dir}/x-post.d/dump", "tr '\\0' '\\n' < /proc/$$/environ; pwd; umask")
    [[_, status, output]] = hooks.run("x", "post", {**ENV, "GANETI_TEXT": "a\nb"})
    assert status == 2
    lines = output.splitlines()
    assert sorted(lines[:-2]) == sorted(
        ["PATH=/sbin:/bin:/usr/sbin:/usr/bin", "GANETI_OP_CODE=OP_TEST", "GANETI_TEXT=a", "b"]
    )
    assert lines[-2:] == ["/", "0077"]


def test_broken_interpreter_is_a_failure_of_that_script(here, script):
    path = f"{here.hooks_base_dir}/x-pre.d/broken"
    script(path, "")
    with open(path, "w") as stream:
        stream.write("#!/no/such/interpreter\n")
    [[name, status, output]] = hooks.run("x", "pre", ENV)
    assert (name, status) == ("x-pre.d/broken", 1)
    assert "cannot be started" in output


def test_script_that_hangs_is_named(here, script, monkeypatch):
    monkeypatch.setattr(hooks, "_TIMEOUT_S", 0.3)
    script(f"{here.hooks_base_dir}/x-pre.d/a-hangs", "sleep 1000")
    script(f"{here.hooks_base_dir}/x-pre.d/b-later", "echo never")
    rows = hooks.run("x", "pre", ENV)
    assert [row[:2] for row in rows] == [["x-pre.d/a-hangs", 1], ["x-pre.d/b-later", 1]]
    assert "did not end within" in rows[0][2]
    assert "not run" in rows[1][2]


@pytest.mark.parametrize("hpath", ["", "../x", "a/b", ".", "x\n"])
def test_bad_directory_names(here, hpath):
    with pytest.raises(errors.HooksFailure):
        hooks.run(hpath, "pre", ENV)


def test_a_node_says_whether_it_has_anything_to_run(here, script):
    wanted = [["instance-start", "pre"], ["instance-start", "post"]]
    assert hooks.present(wanted) == [False, False]
    script(f"{here.hooks_base_dir}/instance-start-pre.d/10-look", "exit 0")
    assert hooks.present(wanted) == [True, False]
    with pytest.raises(errors.HooksFailure, match="not a name"):
        hooks.present([["../x", "pre"]])
