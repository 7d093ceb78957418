"""Command lines for OpenSSH, and what it prints."""

from __future__ import annotations

import base64

import pytest

from ganeti import errors
from ganeti.utils import ssh


def key(kind: str, body: bytes = b"\0\0\0\4body") -> str:
    name = kind.encode()
    return base64.b64encode(len(name).to_bytes(4, "big") + name + body).decode()


ED = ssh.HostKey("ssh-ed25519", key("ssh-ed25519"))
RSA = ssh.HostKey("ssh-rsa", key("ssh-rsa"))


def test_keyscan() -> None:
    assert ssh.keyscan_argv("192.0.2.1", 22) == [
        "ssh-keyscan",
        "-T",
        "10",
        "-p",
        "22",
        "-t",
        "ed25519,ecdsa,rsa",
        "--",
        "192.0.2.1",
    ]
    output = (
        f"# 192.0.2.1:22 SSH-2.0-OpenSSH_9.2\n192.0.2.1 {RSA.kind} {RSA.key}\n"
        f"192.0.2.1 {ED.kind} {ED.key}\n"
    )
    assert ssh.parse_keyscan(output) == [ED, RSA]
    assert ssh.parse_keyscan("# only a comment\n") == []


@pytest.mark.parametrize(
    "line",
    ["host", "host ssh-rsa", "host ssh-rsa !!!", f"host ssh-rsa {ED.key}", "host ssh-rsa AAAA"],
)
def test_lines_that_are_no_keys(line: str) -> None:
    with pytest.raises(errors.ParseError):
        ssh.parse_keyscan(line)


def test_a_known_fingerprint() -> None:
    # The key of github.com, whose fingerprint is published.
    known = ssh.parse_key(
        ("ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIOMqqnkVzrm0SdG6UOoqKLsabgH5C9okWi0dh2l9GKJl").split()
    )
    assert known.fingerprint == "SHA256:+DiY3wvvV6TuJJhbpZisF/zLDA0zPMSvHdkr4UvCOqU"


def test_known_hosts() -> None:
    content = ssh.known_hosts_text("node1", 22, [ED]) + ssh.known_hosts_text("node1", 2222, [RSA])
    assert content == f"node1 {ED.kind} {ED.key}\n[node1]:2222 {RSA.kind} {RSA.key}\n"
    assert ssh.known_keys(content, "node1", 22) == {ED}
    assert ssh.known_keys(content, "node1", 2222) == {RSA}
    assert ssh.known_keys(content, "node2", 22) == set()
    more = f"# x\n|1|a|b ssh-rsa {RSA.key}\n@revoked node1 ssh-rsa x\nnode1,other ssh-rsa x\n"
    assert ssh.known_keys(more + f"other,node1 {ED.kind} {ED.key} comment\n", "node1", 22) == {ED}


def test_hashed_known_hosts() -> None:
    # "ssh-keygen -H" has hashed these names: "node3.example.com" and "[node3.example.com]:2222".
    content = (
        "|1|6llmNojtRp3wIAkmTIxAS9rsuaY=|FhlAy4kdljDCgRMjTR1AIbZk+rc=" + f" {ED.kind} {ED.key}\n"
        "|1|yk8PoRdEP75bCGCjoF67WmiNi6w=|W5lb3oGSd2gdAIKYU7DKTpZRK70=" + f" {RSA.kind} {RSA.key}\n"
    )
    assert ssh.known_keys(content, "node3.example.com", 22) == {ED}
    assert ssh.known_keys(content, "node3.example.com", 2222) == {RSA}
    assert ssh.known_keys(content, "node3", 22) == set()
    torn = f"|1|x|y {ED.kind} {ED.key}\n|1|| {ED.kind} {ED.key}\n|1 {ED.kind} {ED.key}\n"
    assert ssh.known_keys(torn, "node3", 22) == set()


def test_ssh() -> None:
    argv = ssh.ssh_argv(
        "node1", ["prog", "two words", "$HOME"], known_hosts="/k", address="::1", port=2222
    )
    assert argv[0] == "ssh" and argv[-4:] == ["-lroot", "--", "::1", "prog 'two words' '$HOME'"]
    for wanted in (
        "-oStrictHostKeyChecking=yes",
        "-oUserKnownHostsFile=/k",
        "-p2222",
        "-oGlobalKnownHostsFile=/dev/null",
        "-oHostKeyAlias=[node1]:2222",
        "-oBatchMode=yes",
        "-oForwardAgent=no",
    ):
        assert wanted in argv
    argv = ssh.ssh_argv("node1", ["true"], known_hosts="/k", identity="/i", batch=False)
    assert argv[argv.index("-i") + 1] == "/i" and "-oIdentitiesOnly=yes" in argv
    assert "-oBatchMode=no" in argv and argv[-2] == "node1"
