"""Commands on the other cluster, and what is said when root cannot log in there."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from ganeti import errors
from ganeti.cli import remote
from ganeti.merge import other_cluster
from ganeti.utils import process

NAME = "node3.example.com"
SAID = "Host key verification failed."


class Answering(remote.RemoteNode):
    """A node whose commands end in one way.

    :param program: the program which this machine starts for it.
    """

    def __init__(self, program: str, exit_code: int, port: int | None = None) -> None:
        super().__init__(NAME, "192.0.2.3", port=port)
        self._end = process.Completed((program, "-lroot"), exit_code, "", f"{SAID}\n", None)

    def run(self, command: str, keep_fds: Sequence[int] = ()) -> process.Completed:
        return self._end


@pytest.mark.parametrize("check", [True, False])
def test_no_login(check: bool) -> None:
    # A missing file would be no error without "check"; a missing connection is one.
    with pytest.raises(other_cluster.LoginError) as caught:
        other_cluster.run_on(Answering("ssh", 255), ["cat", "/file"], check=check)
    assert SAID in str(caught.value) and f"'ssh root@{NAME} true'" in str(caught.value)


@pytest.mark.parametrize(("program", "exit_code"), [("ssh", 1), ("/vc/node3/cmd", 255)])
def test_a_program_which_fails(program: str, exit_code: int) -> None:
    node = Answering(program, exit_code)
    with pytest.raises(errors.OpExecError, match=SAID) as caught:
        other_cluster.run_on(node, ["cat", "/file"])
    assert not isinstance(caught.value, other_cluster.LoginError)
    assert other_cluster.run_on(node, ["cat", "/file"], check=False).failed


def test_no_login_at_a_port() -> None:
    node = Answering("ssh", 255, port=2222)
    with pytest.raises(other_cluster.LoginError, match=f"'ssh -p2222 root@{NAME} true'"):
        other_cluster.run_on(node, ["cat", "/file"])


def test_find_says_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(other_cluster, "_resolve", lambda name: "192.0.2.3")
    monkeypatch.setattr(other_cluster, "_remote", lambda name, address, port: Answering("ssh", 255))
    with pytest.raises(errors.OpPrereqError, match=f"ssh root@{NAME} true"):
        other_cluster.find(NAME)
    monkeypatch.setattr(other_cluster, "_remote", lambda name, address, port: Answering("ssh", 1))
    with pytest.raises(errors.OpPrereqError, match="is not a cluster"):
        other_cluster.find(NAME)
