"""Errors as users see them."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from ganeti import errors
from ganeti.cli import failures


@pytest.mark.parametrize(
    ("error", "code", "text"),
    [
        (
            errors.OpPrereqError("node 'x' not known", errors.ECODE_NOENT),
            1,
            "Failure: prerequisites not met for this operation:\n"
            "error type: unknown_entity, error details:\nnode 'x' not known",
        ),
        (
            errors.OpPrereqError("no code", ""),
            1,
            "Failure: prerequisites not met for this operation:\nno code",
        ),
        (errors.OpExecError("it broke"), 1, "Failure: command execution error:\nit broke"),
        (
            errors.HooksAbort([["n1", "pre.d/fail", "said no"], ["n2", "pre.d/x", ""]]),
            1,
            "Failure: hooks execution failed:\n  node: n1, script: pre.d/fail, output: said no\n"
            "  node: n2, script: pre.d/x (no output)",
        ),
        (errors.HooksFailure("no answer"), 1, "Failure: hooks general failure: no answer"),
        (
            errors.ConfigurationError("bad disk", "disks/7"),
            2,
            "Corrupt configuration: bad disk (at disks/7)",
        ),
        (
            errors.TypeEnforcementError("unknown parameter 'x'"),
            1,
            "Parameter Error: unknown parameter 'x'",
        ),
        (errors.ParameterError("nosuch"), 1, "Failure: unknown/wrong parameter name 'nosuch'"),
        (
            errors.ParameterError("there is no field 'x' to filter by"),
            1,
            "Failure: unknown/wrong parameter: there is no field 'x' to filter by",
        ),
        (
            OSError(errno.ENOSPC, "No space left on device"),
            1,
            "Failure: the output cannot be written: No space left on device",
        ),
        (errors.TagError("too long"), 1, "Failure: invalid tag(s) given:\ntoo long"),
        (errors.JobCanceled("by request"), 1, "Failure: the job was canceled: by request"),
        (errors.LockError("removed"), 1, "Unhandled Ganeti error: removed"),
        (
            errors.RequestError("Failed to parse"),
            1,
            "Failure: the master daemon refused the request: Failed to parse",
        ),
        (
            errors.ProtocolError("no answer"),
            1,
            "Unhandled protocol error while talking to the master daemon:\nno answer",
        ),
        (ValueError("odd"), 1, "Unhandled error (ValueError): odd"),
        (
            errors.JobQueueDrainError("the job queue is drained and takes no new jobs"),
            1,
            "Failure: the job queue is drained and takes no new jobs. Open it with 'gnt-cluster"
            " queue undrain'.",
        ),
    ],
)
def test_texts_and_codes(error: Exception, code: int, text: str) -> None:
    assert failures.describe(error) == (code, text)


@pytest.mark.parametrize(
    ("error", "code", "parts"),
    [
        (errors.ResolverError("web1", -2, "Name not known"), 1, ["Failure:", "'web1'"]),
        (errors.JobQueueFull(), 1, ["queue is full", "gnt-job autoarchive"]),
        (errors.LuxiTimeout("120 s"), 1, ["did not answer in time", "120 s"]),
        (errors.ConnectionClosedError("gone"), 1, ["closed the connection", "gone"]),
        (errors.LuxiPermissionError("socket"), 1, ["may not connect"]),
        (errors.JobLost("job 7 does not exist"), 1, ["job 7"]),
        (
            errors.QueryFilterParseError("unexpected (", "a ((", 3),
            1,
            ["Error while parsing query filter", "a ((", "  ^"],
        ),
        (failures.NotClusterError("no cluster here"), 5, ["Failure: no cluster here"]),
        (failures.NotMasterError("node1", "node2"), 11, ["node2", "Run the command on node1"]),
        (failures.MasterDownError("does not run"), 1, ["does not run"]),
    ],
)
def test_helpful_parts(error: Exception, code: int, parts: list[str]) -> None:
    found_code, text = failures.describe(error)
    assert found_code == code
    for part in parts:
        assert part in text


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (errors.OpPrereqError("node 'x' not known", errors.ECODE_NOENT), "node 'x' not known"),
        (errors.OpExecError("it broke"), "it broke"),
        (
            errors.OpPrereqError("OP_NETWORK_ADD: parameter 'network' must be x", "wrong_input"),
            "parameter 'network' must be x",
        ),
        (errors.TypeEnforcementError("unknown parameter 'x'"), "unknown parameter 'x'"),
        (
            errors.HooksAbort([["n1", "pre.d/fail", "said no"]]),
            "a hook refused the operation:\n  node: n1, script: pre.d/fail, output: said no",
        ),
        (
            errors.ConfigurationError("bad disk", "disks/7"),
            "the configuration is damaged: bad disk (at disks/7)",
        ),
        (errors.TagError("too long"), "invalid tag: too long"),
        (errors.JobLost("job 7 does not exist"), "job 7 does not exist"),
        (errors.LockError("removed"), "removed"),
        (failures.NotClusterError("no cluster here"), "no cluster here"),
        (ValueError("odd"), "error (ValueError): odd"),
    ],
)
def test_people_get_one_frame_for_all_errors(error: Exception, text: str) -> None:
    assert failures.for_people(error) == f"Error: {text}"


def test_programs_get_no_opcode_in_the_text() -> None:
    error = errors.OpPrereqError("OP_NETWORK_ADD: parameter 'network' must be x", "wrong_input")
    assert failures.describe(error)[1].splitlines()[2] == "parameter 'network' must be x"


def test_errors_of_nodes_do_not_name_the_procedure() -> None:
    for kind in (errors.NodeUnreachable, errors.NodeRefused, errors.NodeKeyMismatch):
        text = str(kind("node1", "instance_start", "no route"))
        assert text.startswith("node node1") and "no route" in text
        assert "instance_start" not in text


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("GANETI_ROOTDIR", str(tmp_path))
    monkeypatch.setenv("GANETI_HOSTNAME", "node1.example.com")
    data = tmp_path / "var/lib/ganeti"
    data.mkdir(parents=True)
    return data


def explain() -> errors.GenericError:
    return failures.explain_no_master(errors.NoMasterError("nobody answers"))


def test_no_cluster(root: Path) -> None:
    error = explain()
    assert isinstance(error, failures.NotClusterError)
    assert "gnt-cluster init" in str(error)


def test_not_the_master(root: Path) -> None:
    (root / "ssconf_master_node").write_text("node9.example.com\n", encoding="utf-8")
    error = explain()
    assert isinstance(error, failures.NotMasterError)
    assert error.master == "node9.example.com"


@pytest.mark.parametrize("files", [["ssconf_master_node"], ["config.data"]])
def test_daemon_down(root: Path, files: list[str]) -> None:
    for name in files:
        (root / name).write_text("node1.example.com\n", encoding="utf-8")
    error = explain()
    assert isinstance(error, failures.MasterDownError)
    assert "tools/vcluster start" in str(error)
    assert "master-daemon.log" in str(error)


def test_daemon_down_in_an_upgrade(root: Path) -> None:
    """To start the daemon by hand would be wrong then."""
    (root / "config.data").write_text("{}", encoding="utf-8")
    (root / "intent-to-upgrade").write_text("{}", encoding="utf-8")
    error = explain()
    assert isinstance(error, failures.MasterDownError)
    assert "gnt-cluster upgrade --resume" in str(error) and "start" not in str(error)
