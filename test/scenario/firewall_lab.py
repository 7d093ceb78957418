"""The example of rules for QEMU's users, tried with real connections in a network of its own.

A program for ``unshare --net --mount``: ``python firewall_lab.py nft|iptables`` prints what a user
of the pool could do, as one JSON object. A host ``outside`` behind a wire serves two ports.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

EXAMPLES = Path(__file__).resolve().parents[2] / "doc/examples/firewall"
NODES = "192.0.2.11-192.0.2.19"
USER = 61007
_SERVE = """
import socket, sys, threading
def serve(port):
    with socket.create_server(("", port)) as listener:
        print(port, flush=True)
        while True:
            listener.accept()[0].close()
for port in (8102, 9999):
    threading.Thread(target=serve, args=(port,)).start()
"""


def run(command: str, stdin: str | None = None) -> None:
    done = subprocess.run(
        command.split(), input=stdin, capture_output=True, text=True, timeout=60, check=False
    )
    if done.returncode != 0:
        sys.exit(f"{command}: {done.stderr}")


def load(kind: str) -> None:
    """Load the example as its comment says, with the node outside as the other node."""
    text = (EXAMPLES / f"kvm-users.{kind}").read_text().replace(NODES, "192.0.2.12-192.0.2.12")
    for _ in range(2):  # loading it anew must not add anything
        if kind == "nft":
            run("nft -f -", text)
            continue
        for family in ("iptables", "ip6tables"):
            run(f"{family}-restore --noflush", text)
            known = subprocess.run(
                [family, "-C", "OUTPUT", "-j", "ganeti-kvm-users"], capture_output=True, check=False
            )
            if known.returncode != 0:
                run(f"{family} -I OUTPUT -j ganeti-kvm-users")


def reaches(address: str, port: int, user: int) -> bool:
    """Whether a process of this user gets a connection."""
    pid = os.fork()
    if pid == 0:
        failed = 1
        try:
            os.setuid(user)
            # Not create_connection: Python's own files may not be readable for this user.
            with socket.socket() as connection:
                connection.settimeout(20)
                connection.connect((address, port))
            failed = 0
        finally:
            os._exit(failed)
    return os.waitpid(pid, 0)[1] == 0


def is_answered(user: int, enter: list[str]) -> bool:
    """Whether a host outside gets an answer from a server that runs as this user."""
    with socket.create_server(("192.0.2.11", 5900)) as listener:
        pid = os.fork()
        if pid == 0:
            try:
                os.setuid(user)
                listener.accept()[0].sendall(b"RFB 003.008\n")
            finally:
                os._exit(0)
        ask = (
            "import socket; print(socket.create_connection(('192.0.2.11', 5900), 20)"
            ".recv(20).decode())"
        )
        done = subprocess.run(
            [*enter, sys.executable, "-c", ask],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        os.kill(pid, 9)
        os.waitpid(pid, 0)
        return done.stdout.startswith("RFB")


def main(kind: str) -> None:
    outside = subprocess.Popen(
        ["unshare", "--net", "sh", "-c", "echo; exec sleep infinity"], stdout=subprocess.PIPE
    )
    assert outside.stdout is not None
    outside.stdout.readline()
    enter = ["nsenter", "-t", str(outside.pid), "-n"]
    server = None
    try:
        for command in (
            "ip link set lo up",
            f"ip link add wire type veth peer name wire netns {outside.pid}",
            "ip addr add 192.0.2.11/24 dev wire",
            "ip link set wire up",
            f"{' '.join(enter)} ip addr add 192.0.2.12/24 dev wire",
            f"{' '.join(enter)} ip link set wire up",
        ):
            run(command)
        server = subprocess.Popen([*enter, sys.executable, "-c", _SERVE], stdout=subprocess.PIPE)
        assert server.stdout is not None
        for _ in range(2):
            server.stdout.readline()
        before = reaches("192.0.2.12", 9999, USER)
        load(kind)
        print(
            json.dumps(
                {
                    "before": before,
                    "others": reaches("192.0.2.12", 9999, 65534),
                    "anywhere": reaches("192.0.2.12", 9999, USER),
                    "migration": reaches("192.0.2.12", 8102, USER),
                    "screen": is_answered(USER, enter),
                }
            )
        )
    finally:
        for process in filter(None, (server, outside)):
            process.kill()
            process.wait()


if __name__ == "__main__":
    main(*sys.argv[1:])
