"""Files with SSH keys: kinds, the cluster's block in authorized_keys, known hosts."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from ganeti import errors
from ganeti.platform import paths, ssh_keygen, ssh_keys
from ganeti.utils import ssh

KEY1 = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAII1v5Rh3Kl9l0wenJHza6xONQ0U7NCO0+8yhKqTBU3GZ root@a"
KEY2 = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIIa5+sS6tzKTf3PaowZKGP/eEYoOZWPCqDW+8EV3b1ay root@b"
OWN = "# mine\n\nssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIPEC+hKkRHt8/WKT8iCni0q/xQa9ihIUxV8q6UrVOveH me\n"  # noqa: E501


@pytest.mark.parametrize(
    ("kind", "bits", "found"),
    [
        ("rsa", None, 2048),
        ("rsa", 4096, 4096),
        ("dsa", None, 1024),
        ("ecdsa", None, 256),
        ("ecdsa", 521, 521),
        ("ed25519", None, 256),
        ("ed25519", 256, 256),
    ],
)
def test_lengths(kind, bits, found):
    assert ssh_keys.key_bits(kind, bits) == found


@pytest.mark.parametrize(
    ("kind", "bits", "text"),
    [
        ("rsa", 1024, "2048 to 16384"),
        ("dsa", 2048, "1024 bits"),
        ("ecdsa", 255, "256 or 384"),
        ("ed25519", 2048, "has 256 bits, not 2048"),
        ("rot13", None, "no kind"),
    ],
)
def test_wrong_lengths(kind, bits, text):
    with pytest.raises(errors.ParameterError, match=text):
        ssh_keys.key_bits(kind, bits)


@pytest.mark.parametrize("content", ["", OWN, OWN.rstrip("\n")])
def test_the_block_comes_changes_and_goes(content):
    one = ssh_keys.replace_block(content, [KEY1])
    assert ssh_keys.block(one) == [KEY1]
    two = ssh_keys.replace_block(one, [KEY1, KEY2])
    assert ssh_keys.block(two) == [KEY1, KEY2]
    assert ssh_keys.replace_block(two, [KEY1, KEY2]) == two
    own = content if content.endswith("\n") or not content else content + "\n"
    assert ssh_keys.replace_block(two, []) == own
    assert ssh_keys.outside_block(two) == ssh_keys.outside_block(own)


def test_what_stands_behind_the_block_stays():
    text = ssh_keys.replace_block("", [KEY1]) + OWN
    assert ssh_keys.replace_block(text, []) == OWN
    assert ssh_keys.block(ssh_keys.replace_block(text, [KEY2])) == [KEY2]


def test_a_block_without_end_loses_nothing():
    text = ssh_keys.replace_block("", [KEY1]).replace("# -- Ganeti: end --\n", "") + OWN
    new = ssh_keys.replace_block(text, [KEY1])
    assert ssh_keys.block(new) == [KEY1]
    assert ssh_keys.outside_block(new) == ssh_keys.outside_block(OWN)


@pytest.mark.parametrize(
    "line",
    [
        "",
        "ssh-rsa",
        "ssh-ed25519 !!!",
        f"{KEY1}\n{KEY2}",
        f" {KEY1}",
        KEY1.replace("ed25519", "rsa"),
        f'command="rm" {KEY1}',
        f"{KEY1}\x1b[0m",
    ],
)
def test_nothing_else_gets_into_the_file(line):
    with pytest.raises(errors.ParameterError):
        ssh_keys.check_lines([KEY2, line])


def test_public_keys_by_node():
    keys = {"uuid-b": [KEY2], "uuid-a": [KEY1, KEY2]}
    text = ssh_keys.public_keys_text(keys)
    assert text == f"uuid-a {KEY1}\nuuid-a {KEY2}\nuuid-b {KEY2}\n"
    assert ssh_keys.parse_public_keys(text + "nonsense\n\n") == keys


def test_hosts_are_known_by_name_port_and_cluster():
    text = ssh_keys.known_hosts_text(
        "cluster.example.com", [("b.example.com", 22, [KEY2]), ("a.example.com", 2222, [KEY1])]
    )
    first, second = text.splitlines()
    kind, key = KEY1.split()[:2]
    assert first == f"a.example.com,[a.example.com]:2222,cluster.example.com {kind} {key}"
    assert second.startswith("b.example.com,cluster.example.com ssh-ed25519 ")
    for name, port, line in (("a.example.com", 2222, KEY1), ("b.example.com", 22, KEY2)):
        assert ssh.known_keys(text, name, port) == {ssh.parse_key(line.split())}
    assert len(ssh.known_keys(text, "cluster.example.com", 22)) == 2


def test_forgetting(tmp_path: Path):
    here = paths.Paths(str(tmp_path))
    ssh_keys.forget(here)  # nothing was there
    authorized = Path(here.ssh_authorized_keys_file)
    authorized.parent.mkdir(parents=True)
    Path(here.data_dir).mkdir(parents=True)
    authorized.write_text(ssh_keys.replace_block(OWN, [KEY1]))
    for path in (here.known_hosts_file, here.ssh_public_keys_file):
        Path(path).write_text("x")
    ssh_keys.forget(here)
    assert authorized.read_text() == OWN
    assert not Path(here.known_hosts_file).exists() and not Path(here.ssh_public_keys_file).exists()


@pytest.fixture
def keygen() -> None:
    if shutil.which("ssh-keygen") is None:
        pytest.skip("there is no ssh-keygen")


@pytest.mark.programs
@pytest.mark.usefixtures("keygen")
def test_making_a_key(tmp_path: Path):
    path = tmp_path / "ssh" / "id_ecdsa"
    line = ssh_keygen.make_key(str(path), "ecdsa", 256, "root@a")
    assert ssh_keys.check_lines([line]) == [line] and line.endswith(" root@a")
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.parent.stat().st_mode & 0o777 == 0o700
    assert sorted(found.name for found in path.parent.iterdir()) == ["id_ecdsa", "id_ecdsa.pub"]
    short = ssh_keygen.make_key(str(tmp_path / "id_ed25519"), "ed25519", 256, "root@a")
    assert short.startswith("ssh-ed25519 ") and ssh_keys.check_lines([short]) == [short]
    # The file beside it does not count.
    path.with_suffix(".pub").write_text(KEY1)
    assert ssh_keygen.public_key(str(path), "root@a") == line
    path.write_text("nonsense")
    with pytest.raises(errors.SshUpdateError, match="cannot be used"):
        ssh_keygen.public_key(str(path), "root@a")
    with pytest.raises(errors.SshUpdateError, match="cannot make"):
        ssh_keygen.make_key(str(path), "ecdsa", 1, "root@a")
