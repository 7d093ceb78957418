"""Access tokens on a real cluster: made, used, removed, and kept over the failures of daemons."""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from harness import ROOT, Cluster, Finished, alive, run_program, wait_until

from ganeti.utils import x509

PASSWD = str(ROOT / "tools" / "rapi-passwd")
RAPI = "ganeti-rapi"


class Programs:
    """A machine outside of the cluster, with programs which have tokens."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.addresses = {name: cluster.node_fields(name, "pip")[0] for name in cluster.node_names}
        for user, rights in (("jack", "write"), ("olga", "@operator")):
            cluster.run(PASSWD, "--stdin", "--rights", rights, user, stdin="secret\n").ok()
        self.pin = cluster.run(PASSWD, "--pin").ok().stdout.strip()

    def passwd(self, *words: str) -> Finished:
        return self.cluster.on(self.cluster.master, PASSWD, *words)

    def add(self, *words: str) -> tuple[str, str]:
        """Make a token; return its id and the secret."""
        done = self.passwd("token", "add", *words).ok()
        secret = done.stdout.strip()
        assert secret.startswith("gnt_") and "\n" not in secret
        return done.stderr.split()[1], secret

    def curl(self, secret: str, path: str, *options: str) -> tuple[int, Any]:
        """Send a request to the master, with a token if there is one, as the manual shows it."""
        address = self.addresses[self.cluster.master]
        token = ["-H", f"Authorization: Bearer {secret}"] if secret else []
        done = subprocess.run(
            ["curl", "-sk", "-w", "\n%{http_code}", *options, *token]
            + [f"https://{address}:5080{path}"],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        body, _, status = done.stdout.rpartition("\n")
        return int(status), json.loads(body) if body else None

    def gnt(self, secret: str, *words: str) -> Finished:
        """Run a command outside of the cluster."""
        where = {
            **Cluster.outside(),
            "GANETI_RAPI": f"https://{self.addresses[self.cluster.master]}",
            "GANETI_RAPI_PIN": self.pin,
            "GANETI_RAPI_TOKEN": secret,
        }
        return run_program((str(ROOT / "scripts" / words[0]), *words[1:]), where)

    def listed(self, identifier: str) -> str:
        """Return the line of a token in the list."""
        lines = self.passwd("token", "list").ok().stdout.splitlines()
        (found,) = [line for line in lines if line.startswith(identifier)]
        return found


@pytest.fixture(scope="module")
def programs(cluster: Cluster) -> Iterator[Programs]:
    yield Programs(cluster)


def test_a_token_from_its_making_to_its_end(programs: Programs, tmp_path: Path) -> None:
    identifier, secret = programs.add("jack", "--label", "ci", "--expires", "1h")
    assert programs.listed(identifier).endswith(" never")
    assert programs.curl(secret, "/2/info")[0] == 200
    done = programs.gnt(secret, "gnt-instance", "list")
    assert done.ok().stdout == programs.cluster.run("gnt-instance", "list").ok().stdout
    wait_until(
        lambda: not programs.listed(identifier).endswith(" never"),
        "the last use is shown",
        patience_s=120,
    )
    # The secret is nowhere on a node.
    for node in programs.addresses:
        found = subprocess.run(
            ["grep", "-rlF", secret, str(programs.cluster.node_root(node))],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert found.stdout == ""
    programs.passwd("token", "remove", identifier).ok()
    wait_until(lambda: programs.curl(secret, "/2/info")[0] == 401, "the token is refused")
    assert "the token is not valid" in programs.gnt(secret, "gnt-instance", "list").stderr


def test_rights_follow_those_of_the_owner(programs: Programs) -> None:
    _, reading = programs.add("jack", "--rights", "read")
    _, more = programs.add("olga", "--rights", "write")
    tag = ("/2/tags?tag=x", "-X", "PUT")
    assert programs.curl(reading, "/2/nodes?bulk=1")[0] == 200
    assert programs.curl(reading, *tag)[0] == 403
    assert programs.curl(more, *tag)[0] == 403
    programs.cluster.run(PASSWD, "--stdin", "--rights", "write", "olga", stdin="secret\n").ok()
    wait_until(lambda: programs.curl(more, *tag)[0] == 200, "olga's token may do more")
    programs.passwd("--delete", "olga").ok()
    wait_until(lambda: programs.curl(more, "/2/info")[0] == 401, "olga has no tokens")
    assert "olga" not in programs.passwd("token", "list").ok().stdout


def test_tokens_stay_valid_when_daemons_end_and_the_role_moves(programs: Programs) -> None:
    cluster = programs.cluster
    _, secret = programs.add("jack")
    cluster.run("gnt-cluster", "redist-conf").ok()
    old = cluster.master
    pid = cluster.kill(old, RAPI, signal.SIGKILL)
    wait_until(lambda: not alive(pid), "the REST daemon is gone")
    cluster.kill_whole(old, "ganeti-masterd")
    cluster.vcluster("start", str(cluster.directory)).ok()
    wait_until(lambda: programs.curl(secret, "/2/nodes")[0] == 200, "the daemons are back")
    new = next(name for name in programs.addresses if name != old)
    cluster.on(new, "gnt-cluster", "master-failover").ok()
    wait_until(lambda: cluster.master == new, "the role has moved")
    wait_until(lambda: programs.curl(secret, "/2/nodes")[0] == 200, "the new master answers")
    assert programs.gnt(secret, "gnt-instance", "list").exit_code == 0
    # What the new master removes is removed.
    programs.passwd("token", "remove", "--user", "jack").ok()
    wait_until(lambda: programs.curl(secret, "/2/nodes")[0] == 401, "the token is refused")


def test_a_client_certificate(programs: Programs, tmp_path: Path) -> None:
    pem = tmp_path / "backup.pem"
    pem.write_text(x509.create_self_signed("backup"), encoding="ascii")
    certificate = ("--cert", str(pem))
    assert programs.curl("", "/2/documents", *certificate)[0] == 401
    added = ("certificate", "add", "--rights", "read", "jack", str(pem))
    identifier = programs.passwd(*added).ok().stdout.split()[1]
    programs.passwd(*added).failed("is already added")
    wait_until(
        lambda: programs.curl("", "/2/documents", *certificate)[0] == 200,
        "the daemon knows the certificate",
    )
    assert programs.curl("", "/2/tags?tag=x", "-X", "PUT", *certificate)[0] == 403
    # Without one, nothing has changed.
    assert programs.curl("", "/2/info")[0] == 200
    programs.passwd("certificate", "remove", identifier).ok()
    wait_until(
        lambda: programs.curl("", "/2/documents", *certificate)[0] == 401,
        "the certificate is refused",
    )
