"""The program which writes the users file of the REST interface."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from ganeti.platform import paths
from ganeti.rapi import passwords, users
from ganeti.tools import rapi_passwd
from ganeti.utils import x509


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(rapi_passwd, "hashed", lambda text: passwords.hashed(text, (1 << 5, 8, 1)))
    return tmp_path / "rapi" / "users"


def run(
    file: Path,
    *words: str,
    password: str | None = None,
    monkeypatch: pytest.MonkeyPatch | None = None,
) -> int:
    if monkeypatch is not None and password is not None:
        monkeypatch.setattr("sys.stdin", io.StringIO(password + "\n"))
    return rapi_passwd.main([*words, "--file", str(file)])


def test_a_new_user(
    file: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    # A hash in base64 may have any few letters, but no exclamation mark.
    secret = "p!w"
    assert (
        run(
            file,
            "jack",
            "--rights",
            "@readonly,tags:PUT",
            "--stdin",
            password=secret,
            monkeypatch=monkeypatch,
        )
        == 0
    )
    assert secret not in file.read_text() and "jack" in capsys.readouterr().out
    assert file.stat().st_mode & 0o777 == 0o640
    found, problems = users.parse(file.read_text(), {"tags"})
    assert not problems and found["jack"].rights.words == {"read", "tags:PUT"}
    assert passwords.matches(found["jack"].password, "jack", secret)


def test_other_lines_stay(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file.parent.mkdir()
    file.write_text("# ours\n\njill {HA1}x  write\njack old write\n")
    file.chmod(0o660)
    assert run(file, "jack", "--stdin", password="new", monkeypatch=monkeypatch) == 0
    lines = file.read_text().splitlines()
    assert lines[:3] == ["# ours", "", "jill {HA1}x  write"]
    assert lines[3].startswith("jack {SCRYPT}") and lines[3].endswith(" write")
    assert file.stat().st_mode & 0o777 == 0o660
    assert run(file, "jill", "--delete") == 0
    assert "jill" not in file.read_text() and len(file.read_text().splitlines()) == 3


def test_asking(
    file: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    answers = iter(["one", "two", "pw", "pw"])
    monkeypatch.setattr("getpass.getpass", lambda prompt: next(answers))
    assert run(file, "jack") == 1
    assert "differ" in capsys.readouterr().err and not file.exists()
    assert run(file, "jack") == 0


@pytest.mark.parametrize(
    ("words", "fragment"),
    [
        (["a b", "--stdin"], "cannot be the name"),
        (["#x", "--stdin"], "cannot be the name"),
        (["jack", "--stdin", "--rights", "nonsense"], "'nonsense' is not a right"),
        (["jack", "--stdin", "--rights", "a b"], "is not a list of rights"),
        (["jack", "--delete"], "there is no user 'jack'"),
        (["jack", "--stdin"], "must not be empty"),
        (["jack", "--pam-service", "a/b"], "'a/b' is not a service of PAM"),
    ],
)
def test_mistakes(
    file: Path,
    words: list[str],
    fragment: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run(file, *words, password="", monkeypatch=monkeypatch) == 1
    assert fragment in capsys.readouterr().err
    assert not file.exists()


@pytest.mark.parametrize(
    "words", [[], ["--list", "x"], ["x", "--delete", "--stdin"], ["x", "--pam", "--stdin"]]
)
def test_wrong_options(file: Path, words: list[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        run(file, *words)
    assert caught.value.code == 2


def test_pam(
    file: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """No password is asked for, and what the node lacks is said."""
    assert run(file, "--pam", "jack", "--rights", "read") == 0
    assert run(file, "--pam-service", "no-such-service", "jill") == 0
    assert file.read_text() == "jack {PAM} read\njill {PAM}no-such-service\n"
    assert "no service 'no-such-service' on this node" in capsys.readouterr().err
    assert run(file, "--list") == 1
    out, err = capsys.readouterr()
    assert out.splitlines() == ["jack pam read", "jill pam -"] and "no-such-service" in err
    # A password of its own again.
    assert run(file, "jack", "--stdin", password="pw", monkeypatch=monkeypatch) == 0
    assert file.read_text().startswith("jack {SCRYPT}")
    assert file.read_text().splitlines()[0].endswith(" read")


def test_listing(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file.parent.mkdir()
    file.write_text("jack secret write\njill pw @readonly\nmute pw\n")
    assert run(file, "--list") == 0
    out = capsys.readouterr().out
    assert out.splitlines() == ["jack cleartext write", "jill cleartext read", "mute cleartext -"]
    file.write_text("jack {X}y\n")
    assert run(file, "--list") == 1


def test_what_is_left_to_do(
    tmp_path: Path, file: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Other nodes get the file by a command; one node needs none."""
    with paths.override(paths.Paths(str(tmp_path))):
        here = paths.current()
        Path(here.rapi_users_file).parent.mkdir(parents=True)
        nodes = Path(here.ssconf_file("node_list"))
        for text, wanted in (("node1\nnode2\n", True), ("node1\n", False)):
            nodes.write_text(text)
            monkeypatch.setattr("sys.stdin", io.StringIO("pw\n"))
            assert rapi_passwd.main(["jack", "--stdin"]) == 0
            assert ("gnt-cluster redist-conf" in capsys.readouterr().out) == wanted


def test_rights_for_some_instances(
    file: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file.parent.mkdir()
    (file.parent / "roles").write_text("role tenant = write@own\n")
    monkeypatch.setattr("sys.stdin", io.StringIO("pw\n"))
    assert run(file, "jack", "--stdin", "--rights", "@tenant,operator@tag:web") == 0
    assert run(file, "--list") == 0
    assert "write@own" in capsys.readouterr().out.splitlines()[-1]
    for words in ("@tenants", "write@tga:web", "writ@tag:web"):
        assert run(file, "jack", "--stdin", "--rights", words) == 1
        assert f"'{words}' is not a right" in capsys.readouterr().err


def test_pin(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("GANETI_ROOTDIR", str(tmp_path))
    assert rapi_passwd.main(["--pin"]) == 1
    assert "rapi.pem" in capsys.readouterr().err
    pem = x509.create_self_signed()
    file = Path(paths.current().rapi_cert_file)
    file.parent.mkdir(parents=True)
    file.write_text(pem)
    assert rapi_passwd.main(["--pin"]) == 0
    assert capsys.readouterr().out == f"sha256//{x509.key_pin(pem)}\n"
    with pytest.raises(SystemExit):
        rapi_passwd.main(["--pin", "--list"])
