"""A node's SSH files and its part of /etc/hosts."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from ganeti import errors
from ganeti.backend.cluster import ssh
from ganeti.platform import ssh_keys

KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAII1v5Rh3Kl9l0wenJHza6xONQ0U7NCO0+8yhKqTBU3GZ root@node1"  # noqa: E501
OTHER = (
    "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIIa5+sS6tzKTf3PaowZKGP/eEYoOZWPCqDW+8EV3b1ay root@node2"  # noqa: E501
)


def read(path: str) -> str:
    return Path(path).read_text()


def test_trust_and_its_check(here, monkeypatch):
    monkeypatch.setenv("GANETI_HOSTNAME", "node1")
    ssh.trust(authorized=[KEY], known_hosts="hosts\n", public_keys="keys\n")
    assert ssh_keys.block(read(here.ssh_authorized_keys_file)) == [KEY]
    assert os.stat(here.ssh_authorized_keys_file).st_mode & 0o777 == 0o600
    assert (read(here.known_hosts_file), read(here.ssh_public_keys_file)) == ("hosts\n", "keys\n")
    assert ssh.problems([[KEY], "hosts\n", "keys\n", ["node1"]]) == []
    wrong = ssh.problems([[KEY, OTHER], "", "", ["node1"]])
    assert len(wrong) == 3 and all(here.root in text for text in wrong)
    ssh.trust(authorized=[KEY], known_hosts="hosts\n", public_keys=None)
    assert not os.path.exists(here.ssh_public_keys_file)
    # Who is not a candidate has no list.
    assert ssh.problems([[KEY], "hosts\n", "keys\n", ["node2"]]) == []
    assert len(ssh.problems([[KEY], "hosts\n", "keys\n", ["node1"]])) == 1


def test_nothing_is_changed_by_nonsense(here):
    ssh.trust(authorized=[KEY], known_hosts="hosts\n", public_keys=None)
    with pytest.raises(errors.ParameterError):
        ssh.trust(authorized=[OTHER, "nonsense"], known_hosts="other\n", public_keys="x")
    assert ssh.problems([[KEY], "hosts\n", "", []]) == []


def test_clutter(here):
    ssh.trust(authorized=[KEY], known_hosts="", public_keys=None)
    with open(here.ssh_authorized_keys_file, "a") as stream:
        stream.write(f"{OTHER}\n{OTHER.replace('root@node2', 'me@desk')}\n")
    (found,) = ssh.clutter(["node1", "node2"])
    assert "root@node2" in found
    assert ssh.clutter(["node1"]) == []


@pytest.mark.programs
def test_keys_are_made_renewed_and_used(here, monkeypatch):
    if shutil.which("ssh-keygen") is None:
        pytest.skip("there is no ssh-keygen")
    monkeypatch.setenv("GANETI_HOSTNAME", "node1")
    assert ssh.keys(kind="ecdsa", bits=256, make="nothing") == {"root": [], "hosts": []}
    first = ssh.keys(kind="ecdsa", bits=256, make="missing")["root"]
    assert len(first) == 1 and first[0].endswith("root@node1")
    assert ssh.keys(kind="ecdsa", bits=256, make="missing")["root"] == first
    both = ssh.keys(kind="ecdsa", bits=256, make="new")["root"]
    assert both[:1] == first and len(both) == 2
    # Until it is used it is told, and another one is not made.
    assert ssh.keys(kind="ecdsa", bits=256, make="new")["root"] == both
    assert ssh.keys(kind="ecdsa", bits=256, make="missing")["root"] == both
    assert ssh.activate(kind="ecdsa", bits=256) == both[1]
    assert ssh.activate(kind="ecdsa", bits=256) == both[1]
    assert ssh.keys(kind="ecdsa", bits=256, make="nothing")["root"] == both[1:]
    assert sorted(os.listdir(here.ssh_dir)) == ["id_ecdsa", "id_ecdsa.pub"]
    assert read(f"{here.ssh_dir}/id_ecdsa.pub") == both[1] + "\n"


def test_host_keys(here):
    os.makedirs(here.ssh_host_key_dir)
    for kind, line in (("ed25519", KEY), ("rsa", "")):
        Path(f"{here.ssh_host_key_dir}/ssh_host_{kind}_key.pub").write_text(f"{line}\n")
    with pytest.raises(errors.ParameterError):
        ssh.host_keys()
    os.unlink(f"{here.ssh_host_key_dir}/ssh_host_rsa_key.pub")
    assert ssh.host_keys() == [" ".join(KEY.split()[:2])]


# -- /etc/hosts ------------------------------------------------------------------

HOSTS = "127.0.0.1 localhost\n# nodes\n192.0.2.9\told.example.com old backup # mine\n"


@pytest.mark.parametrize(
    ("mode", "name", "ip", "expected"),
    [
        ("add", "node1.example.com", "192.0.2.1", HOSTS + "192.0.2.1\tnode1.example.com node1\n"),
        ("add", "node1", "192.0.2.1", HOSTS + "192.0.2.1\tnode1\n"),
        ("remove", "node1.example.com", None, HOSTS),
        (
            "remove",
            "old.example.com",
            None,
            "127.0.0.1 localhost\n# nodes\n192.0.2.9\tbackup # mine\n",
        ),
    ],
)
def test_lines_of_hosts(mode, name, ip, expected):
    once = ssh.etc_hosts_text(HOSTS, mode, name, ip)
    assert once == expected
    assert ssh.etc_hosts_text(once, mode, name, ip) == once


def test_a_node_with_another_address():
    text = ssh.etc_hosts_text(HOSTS, "add", "node1.example.com", "192.0.2.1")
    assert ssh.etc_hosts_text(text, "add", "node1.example.com", "192.0.2.2") == (
        HOSTS + "192.0.2.2\tnode1.example.com node1\n"
    )


def test_hosts_of_the_machine(here):
    ssh.etc_hosts_modify(mode="add", name="node1.example.com", ip="192.0.2.1")
    assert read(here.etc_hosts_file) == "192.0.2.1\tnode1.example.com node1\n"
    ssh.etc_hosts_modify(mode="remove", name="node1.example.com", ip=None)
    assert read(here.etc_hosts_file) == ""


@pytest.mark.parametrize(
    ("mode", "name", "ip"),
    [
        ("add", "node1", None),
        ("add", "node1", "x"),
        ("add", "node1\n10.0.0.1 bank", "192.0.2.1"),
        ("remove", "a b", None),
    ],
)
def test_hosts_that_are_none(here, mode, name, ip):
    with pytest.raises(errors.ParameterError):
        ssh.etc_hosts_modify(mode=mode, name=name, ip=ip)
    assert not os.path.exists(here.etc_hosts_file)
