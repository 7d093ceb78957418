"""Mistakes in the options of the placement programs: the error is the first line, and is seen."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from ganeti import errors
from ganeti.rapi import client as rapi

from .conftest import DATA, Run

_LOADING = "failed to load data, aborting: "

_PROGRAMS = (
    "hail", "harep", "hbal", "hcheck", "hinfo", "hroller", "hscan", "hspace", "hsqueeze",
)  # fmt: skip


@pytest.mark.parametrize("name", _PROGRAMS)
def test_an_unknown_option_ends_with_a_short_hint(run: Run, name: str) -> None:
    code, out, err = run(name, "--no-such-option")
    assert (code, out) == (2, "")
    first, usage, hint = err.splitlines()
    assert first == "Command line error: unrecognized option `--no-such-option'"
    assert usage.startswith(f"Usage: {name} [OPTION...]")
    assert hint == f"Run '{name} --help' to see all options."


@pytest.mark.parametrize("name", _PROGRAMS)
def test_help_names_every_option(run: Run, name: str) -> None:
    code, out, err = run(name, "--help")
    assert (code, err) == (0, "")
    _, completion, _ = run(name, "--help-completion")
    options = {line.split()[0] for line in completion.splitlines() if line.startswith("--")}
    assert options
    assert all(option in out for option in options)


# --- typical mistakes of a user ----------------------------------------------------------------

#: Programs which read a whole cluster, and the options which say from where.
_READERS = ("hbal", "hcheck", "hinfo", "hroller", "hspace", "hsqueeze")
_REMOTE = ("hbal", "hcheck", "hinfo", "hroller", "hspace")


def _fails(found: tuple[int, str, str], sentence: str, code: int = 1) -> None:
    """A program printed nothing but one error."""
    assert found == (code, "", f"Error: {sentence}\n")


@pytest.fixture
def closed_port() -> Iterator[int]:
    """A port of this machine which refuses every connection."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield taken.getsockname()[1]


@pytest.mark.parametrize("name", [*_READERS, "hail"])
def test_a_file_which_is_not_there(run: Run, name: str, tmp_path: Path) -> None:
    path = tmp_path / "cluster.data"
    words, before = (("-t", str(path)), _LOADING)
    if name == "hail":
        words, before = (str(path),), ""
    _fails(run(name, *words), f"{before}cannot read {path}: No such file or directory")


@pytest.mark.parametrize("name", [*_READERS, "hail"])
def test_a_directory_in_place_of_a_file(run: Run, name: str, tmp_path: Path) -> None:
    words, before = (("-t", str(tmp_path)), _LOADING)
    if name == "hail":
        words, before = (str(tmp_path),), ""
    _fails(run(name, *words), f"{before}cannot read {tmp_path}: Is a directory")


@pytest.mark.parametrize("name", _READERS)
def test_a_file_which_was_cut_off(run: Run, name: str, tmp_path: Path) -> None:
    path = tmp_path / "cluster.data"
    path.write_text((DATA / "partly-used.data").read_text(encoding="utf-8")[:300], encoding="utf-8")
    code, out, err = run(name, "-t", str(path))
    assert (code, out) == (1, "")
    assert err.startswith(f"Error: {_LOADING}")
    assert len(err.splitlines()) == 1


def test_a_request_which_was_cut_off(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "request.json"
    path.write_text((DATA / "hail-alloc-drbd.json").read_text(encoding="utf-8")[:900])
    code, out, err = run("hail", str(path))
    assert (code, out) == (1, "")
    assert err.startswith("Error: Parsing input IAllocator message: Invalid JSON: ")
    assert len(err.splitlines()) == 1


@pytest.mark.parametrize("name", _REMOTE)
def test_nobody_listens_at_the_address(run: Run, name: str, closed_port: int) -> None:
    code, out, err = run(name, "-m", f"127.0.0.1:{closed_port}")
    assert (code, out) == (1, "")
    assert err.startswith(
        f"Error: {_LOADING}127.0.0.1:{closed_port}: cannot talk to https://127.0.0.1:{closed_port}:"
    )
    assert len(err.splitlines()) == 1


def test_hscan_goes_on_when_nobody_listens(run: Run, closed_port: int, tmp_path: Path) -> None:
    wrong = f"127.0.0.1:{closed_port}"
    code, out, err = run("hscan", "-d", str(tmp_path), wrong, f"file://{DATA / 'rapi'}")
    assert (code, err) == (2, "")
    assert f"Error for {wrong}: failed to load data. Details:\n{wrong}: cannot talk to" in out
    assert len(list(tmp_path.iterdir())) == 1


@pytest.mark.parametrize(
    "address",
    [":", "host:port", "host:99999", "host:0", "https://", "https://host/2/nodes", "[::1",
     "host:-1", "user:secret@"],
)  # fmt: skip
@pytest.mark.parametrize("name", _REMOTE)
def test_what_is_no_address(run: Run, name: str, address: str) -> None:
    shown = address.removeprefix("user:secret@")
    _fails(
        run(name, "-m", address),
        f"{_LOADING}'{shown}' is not an address; give HOST, HOST:PORT or https://HOST:PORT, with a"
        " number as the port",
    )


@pytest.mark.parametrize("name", _REMOTE)
def test_an_address_without_encryption(run: Run, name: str) -> None:
    _fails(
        run(name, "-m", "http://host:5080"),
        f"{_LOADING}http://host:5080: the REST interface speaks only https",
    )


@pytest.mark.parametrize(
    "name", ["harep", "hbal", "hcheck", "hinfo", "hroller", "hspace", "hsqueeze"]
)
def test_a_socket_after_a_space(run: Run, name: str) -> None:
    _fails(
        run(name, "-L", "/run/master.sock"),
        "This program doesn't take any arguments.\n"
        "The value of --luxi follows an equals sign: --luxi=/run/master.sock",
    )


@pytest.mark.parametrize(
    "name", ["harep", "hbal", "hcheck", "hinfo", "hroller", "hspace", "hsqueeze"]
)
def test_a_socket_where_no_master_listens(run: Run, name: str, tmp_path: Path) -> None:
    path = tmp_path / "master.sock"
    _fails(run(name, f"--luxi={path}"), f"{_LOADING}there is no socket {path} of a master daemon")


def test_hscan_without_a_master(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "master.sock"
    code, out, err = run("hscan", f"--luxi={path}")
    assert (code, err) == (2, "")
    assert out.splitlines()[-2:] == [
        "Error for LOCAL: failed to load data. Details:",
        f"there is no socket {path} of a master daemon",
    ]


@pytest.mark.parametrize(
    ("name", "option"), [("hbal", "-S"), ("hspace", "-S"), ("hail", "-S"), ("hbal", "-C")]
)
def test_a_file_which_cannot_be_written(run: Run, name: str, option: str, tmp_path: Path) -> None:
    path = tmp_path / "nowhere" / "out"
    words = (
        ("-t", str(DATA / "partly-used.data"))
        if name != "hail"
        else (str(DATA / "hail-alloc-drbd.json"),)
    )
    code, _, err = run(name, f"{option}{path}", *words)
    assert code == 1
    last = err.splitlines()[-1]
    assert last.startswith(f"Error: cannot write {path}")
    assert last.endswith(": No such file or directory")


@pytest.mark.parametrize("name", _READERS)
def test_the_master_daemon_of_this_machine_is_read_by_default(
    run: Run, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    socket = tmp_path / "master"
    socket.touch()
    monkeypatch.setenv("FORCE_LUXI_SOCKET", str(socket))
    code, out, err = run(name)
    # Nobody listens there, so that only the attempt is seen.
    assert (code, out) == (1, "")
    assert "No backend selected" not in err
    assert err == run(name, "-L")[2]


@pytest.mark.parametrize("name", _READERS)
def test_no_cluster_to_read(
    run: Run, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORCE_LUXI_SOCKET", str(tmp_path / "none"))
    _fails(run(name), f"{_LOADING}No backend selected! Exiting.")


@pytest.mark.parametrize("name", _READERS)
def test_two_clusters_to_read(run: Run, name: str) -> None:
    _fails(
        run(name, "-L", "-t", str(DATA / "partly-used.data")),
        "Only one of the rapi, luxi, and data files options should be given.",
    )


@pytest.mark.parametrize("count", [0, 2])
def test_hail_reads_one_request(run: Run, count: int) -> None:
    _fails(run("hail", *["request.json"] * count), "This program needs an input file.")


@pytest.mark.parametrize(
    ("address", "user", "password", "host", "port"),
    [
        ("node1", None, None, "node1", 5080),
        ("node1:1234", None, None, "node1", 1234),
        ("https://node1:1234/", None, None, "node1", 1234),
        ("2001:db8::1", None, None, "2001:db8::1", 5080),
        ("[2001:db8::1]:1234", None, None, "2001:db8::1", 1234),
        ("https://reader:se%3Acret@node1", "reader", "se:cret", "node1", 5080),
        ("reader:secret@node1:1234", "reader", "secret", "node1", 1234),
    ],
)
def test_addresses(
    monkeypatch: pytest.MonkeyPatch, run: Run, address: str, user: str | None,
    password: str | None, host: str, port: int,
) -> None:  # fmt: skip
    asked: list[tuple[object, ...]] = []

    def refuse(host: str, *, port: int, username: str | None, password: str | None) -> None:
        asked.append((username, password, host, port))
        raise errors.ParseError("this is far enough")

    monkeypatch.setattr(rapi, "GanetiRapiClient", refuse)
    code, out, err = run("hinfo", "-m", address)
    assert (code, out) == (1, "")
    assert asked == [(user, password, host, port)]
    assert "cret" not in err
