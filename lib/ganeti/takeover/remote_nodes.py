"""Reach the nodes of the cluster over SSH: copy the program to them, and run its steps there."""

from __future__ import annotations

import io
import os
import tarfile
from collections.abc import Iterable
from typing import Any

from ganeti.cli import remote
from ganeti.cli.remote import NodeFailed
from ganeti.platform import paths
from ganeti.takeover import node_steps
from ganeti.takeover.facts import PROGRAM_DIR, STATE_DIR
from ganeti.utils import fs, process, ssh
from ganeti.wire import json

_ARCHIVE = f"{STATE_DIR}/program.tar"
#: Starts the copy, also while neither package is installed.
STARTER = f"{STATE_DIR}/ganeti-takeover"
_STARTER_TEXT = f"""#!/bin/sh
# Written by ganeti-takeover(8).
PYTHONPATH={PROGRAM_DIR} exec python3 -P -m ganeti.takeover.command "$@"
"""


class Nodes(remote.RemoteNodes):
    """The nodes of the cluster, and the program on them."""

    def spread(self, name: str, package: str) -> None:
        """Copy the program and our package to a node.

        :param package: path of the package, on each node; empty if apt downloads it.
        :raises NodeFailed: it cannot be done.
        """
        if self._known[name].here:
            # The program runs from its copy.
            return
        self.run(name, ["mkdir", "-p", "-m", "700", STATE_DIR])
        for path in (_ARCHIVE, *([package] if package else [])):
            self.copy(name, path)
        new = f"{PROGRAM_DIR}.new"
        self.run(name, ["rm", "-rf", new, PROGRAM_DIR])
        self.run(name, ["mkdir", new])
        self.run(name, ["tar", "-xf", _ARCHIVE, "-C", new])
        self.run(name, ["mv", new, PROGRAM_DIR])

    def call(self, name: str, step: str, parameters: dict[str, Any]) -> dict[str, Any]:
        """Carry out a step on a node; returns its answer.

        :raises NodeFailed: it failed, or the node cannot be reached.
        """
        argv = [
            *("env", f"PYTHONPATH={PROGRAM_DIR}", "python3", "-P", "-m", node_steps.__name__),
            *(step, json.dumps(parameters)),
        ]
        done = self.run(name, argv)
        for line in done.stdout.splitlines():
            if line.startswith(node_steps.ANSWER):
                found = json.loads(line.removeprefix(node_steps.ANSWER))
                if isinstance(found, dict):
                    return found
        raise NodeFailed(f"no answer from step '{step}': {done.output.strip()[-1000:]}")


def keep_program() -> None:
    """Copy the package from which this process runs to its lasting place on this machine.

    :raises OSError: it cannot be written.
    """
    fs.make_dirs(STATE_DIR, 0o700)
    fs.write_file(STARTER, _STARTER_TEXT, mode=0o755)
    source = paths.package_dir()
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as archive:
        archive.add(source, arcname="ganeti", filter=_only_source)
    fs.write_file(_ARCHIVE, stream.getvalue(), mode=0o600)
    if os.path.dirname(source) == PROGRAM_DIR:
        return
    new = f"{PROGRAM_DIR}.new"
    for path in (new, PROGRAM_DIR):
        process.run(["rm", "-rf", path], timeout_s=60.0)
    os.mkdir(new)
    process.run(["tar", "-xf", _ARCHIVE, "-C", new], timeout_s=60.0)
    os.rename(new, PROGRAM_DIR)


def runs_from_copy() -> bool:
    """Return True if this process runs from the lasting copy of the program."""
    return os.path.dirname(paths.package_dir()) == PROGRAM_DIR


def _only_source(member: tarfile.TarInfo) -> tarfile.TarInfo | None:
    if os.path.basename(member.name) == "__pycache__":
        return None
    member.uid = member.gid = 0
    member.uname = member.gname = "root"
    return member


def known_hosts_text(
    own: str, of_cluster: str, cluster_name: str, hosts: Iterable[tuple[str, int]]
) -> str:
    """Return the host keys which are trusted for the nodes.

    The original writes one key into the file of the cluster, under the name of the cluster; it
    holds for all nodes.

    :param own: the administrator's file of known hosts.
    :param of_cluster: the file of the cluster.
    :param hosts: name and port of SSH of each node.
    """
    lines = [own.rstrip("\n"), of_cluster.rstrip("\n")]
    shared = ssh.known_keys(of_cluster, cluster_name, ssh.PORT)
    for name, port in hosts:
        lines.append(ssh.known_hosts_text(name, port, sorted(shared)).rstrip("\n"))
    return "\n".join(line for line in lines if line) + "\n"
