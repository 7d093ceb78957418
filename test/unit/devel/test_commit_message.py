"""The check of commit messages, which contributors may install as a hook of git."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from devel.commit_message import TOP, faults


@pytest.mark.parametrize(
    "message",
    [
        "jqueue: keep the order of jobs with equal priority",
        "luxi, rapi: read methods from one table\n\nThe list was kept four times.\n",
        "project: require Python 3.12",
        "test: process the answers in their order\n# a comment of git\n",
        "errors: name the node",
        "Merge branch 'main'",
        "fixup! whatever it was",
    ],
)
def test_good_messages(message: str) -> None:
    assert list(faults(message)) == []


@pytest.mark.parametrize(
    ("message", "fault"),
    [
        ("", "must read 'package: change it'"),
        ("mend things", "must read 'package: change it'"),
        ("jqueue: ", "must read 'package: change it'"),
        ("kvm: start faster", "'kvm' is neither a package"),
        ("jqueue: a job keeps its place", "imperative, not with 'a'"),
        ("jqueue: keeps the order", "imperative, not with 'keeps'"),
        ("jqueue: kept, fixed and mended", None),
        ("jqueue: fixed the order", "imperative, not with 'fixed'"),
        ("jqueue: fixing the order", "imperative, not with 'fixing'"),
        ("jqueue: keep the order.", "no full stop"),
        ("jqueue: keep the order\nbecause", "the second line must be empty"),
        (f"jqueue: keep {'x' * 60}", "has 73 characters; 72 are allowed"),
    ],
)
def test_faults(message: str, fault: str | None) -> None:
    found = list(faults(message))
    assert any(fault in one for one in found) if fault else found == []


@pytest.mark.programs
def test_git_runs_the_check(tmp_path: Path) -> None:
    def git(*arguments: str) -> subprocess.CompletedProcess[str]:
        identity = ("-c", "user.name=Test", "-c", "user.email=test@example.com")
        hooks = ("-c", f"core.hooksPath={tmp_path / 'devel' / 'git-hooks'}")
        argv = ["git", "-C", str(tmp_path), *identity, *hooks, *arguments]
        return subprocess.run(argv, capture_output=True, text=True, check=False)

    for name in ("devel/commit_message.py", "devel/git-hooks/commit-msg"):
        target = tmp_path / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes((TOP / name).read_bytes())
        target.chmod((TOP / name).stat().st_mode)
    (tmp_path / "lib" / "ganeti" / "luxi").mkdir(parents=True)
    assert git("init", "-q").returncode == 0
    refused = git("commit", "--allow-empty", "-m", "fix it")
    assert refused.returncode == 1
    assert "commit-msg: the subject must read 'package: change it'" in refused.stderr
    assert git("commit", "--allow-empty", "-m", "luxi: name the method").returncode == 0
