"""Both ends of a transfer, over a real TLS connection on this machine."""

from __future__ import annotations

import argparse
import contextlib
import errno
import gzip
import hashlib
import json
import os
import socket
import ssl
import subprocess
import sys
import time
from pathlib import Path

import pytest

from ganeti.helpers import import_export
from ganeti.helpers.import_export_status import Status
from ganeti.utils import free_space, fs, receipt, shortage, x509

LIB = str(Path(import_export.__file__).parents[2])
PATIENCE_S = 60
MAGIC = "magic-of-this-test"

pytestmark = pytest.mark.programs


@pytest.fixture(scope="module")
def pems(tmp_path_factory):
    """Two certificates that know each other, and one of a stranger."""
    directory = tmp_path_factory.mktemp("keys")
    for name in ("one", "two", "stranger"):
        (directory / name).write_text(x509.create_self_signed())
    return directory


class End:
    """One running process."""

    def __init__(self, directory, mode, *options, key, trusts, pems):
        self.status_file = directory / f"{mode}-{len(list(directory.iterdir()))}.status"
        self.process = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "ganeti.helpers.import_export",
                str(self.status_file),
                mode,
                "--key",
                str(pems / key),
                "--cert",
                str(pems / key),
                "--ca",
                str(pems / trusts),
                "--connect-timeout",
                str(PATIENCE_S),
                *map(str, options),
            ],
            env={**os.environ, "PYTHONPATH": os.pathsep.join([LIB, *filter(None, sys.path)])},
        )

    @property
    def status(self):
        try:
            return json.loads(self.status_file.read_text())
        except FileNotFoundError:
            return {}

    def wait(self):
        return self.process.wait(PATIENCE_S)

    def until(self, condition):
        deadline = time.monotonic() + PATIENCE_S
        while not condition(self.status):
            assert time.monotonic() < deadline, self.status
            time.sleep(0.01)

    def port(self):
        self.until(lambda status: status.get("listen_port"))
        return self.status["listen_port"]


@pytest.fixture
def ends(tmp_path, pems):
    """Starts ends; none survives the test."""
    started = []

    def start(mode, *options, key=None, trusts=None, magic=None):
        if magic is not None:
            path = tmp_path / f"magic-{len(started)}"
            path.write_text(magic)
            options = (*options, "--magic-file", path)
        own, other = ("one", "two") if mode == "export" else ("two", "one")
        end = End(tmp_path, mode, *options, key=key or own, trusts=trusts or other, pems=pems)
        started.append(end)
        return end

    yield start
    for end in started:
        end.process.kill()
        end.process.wait()


def script(path, body):
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)
    return path


def export(ends, port, *options, **keys):
    return ends("export", "--host", "127.0.0.1", "--port", port, *options, **keys)


@pytest.mark.parametrize("compress", ["none", "gzip"])
def test_a_disk_in_a_file_does_not_grow(ends, tmp_path, compress):
    """The other end, which may be in another cluster, sends more than the disk has."""
    source, disk = tmp_path / "source", tmp_path / "disk"
    with source.open("wb") as stream:
        stream.truncate(50 << 20)
    disk.write_bytes(b"x" * (2 << 20))
    options = ("--compress", compress)
    receiver = ends("import", "--device", disk, *options, "--bind", "127.0.0.1")
    sender = export(ends, receiver.port(), "--file", source, *options)
    assert receiver.wait() == 1 and sender.wait() == 1
    assert "sends more data than disk" in receiver.status["error_message"]
    assert disk.stat().st_size == 2 << 20


def test_a_disk_in_a_file_is_filled(ends, tmp_path):
    source, disk = tmp_path / "source", tmp_path / "disk"
    source.write_bytes(b"y" * (2 << 20))
    disk.write_bytes(b"x" * (2 << 20))
    receiver = ends("import", "--device", disk, "--bind", "127.0.0.1")
    sender = export(ends, receiver.port(), "--file", source)
    assert (sender.wait(), receiver.wait()) == (0, 0)
    assert disk.read_bytes() == source.read_bytes()


def test_a_file_stops_before_the_file_system_is_full(tmp_path, monkeypatch):
    monkeypatch.setattr(free_space, "available", lambda _directory: 3 << 20)
    options = argparse.Namespace(script=None, device=None, file=str(tmp_path / "dump"))
    sink = import_export._Sink(options, Status(str(tmp_path / "status"), None, None))
    sink.open()
    sink.take(2 << 20)
    with pytest.raises(
        import_export.TransferFailed, match="dump needs more than 5 MiB, but only 5 MiB"
    ):
        sink.take(4 << 20)
    os.close(sink.fd)


@pytest.mark.parametrize("compress", ["none", "gzip"])
def test_a_file_arrives_whole(ends, tmp_path, compress):
    source, target = tmp_path / "source", tmp_path / "target"
    data = os.urandom(3_000_001)
    source.write_bytes(data)
    receiver = ends(
        "import", "--file", target, "--compress", compress, "--bind", "127.0.0.1", magic=MAGIC
    )
    sender = export(
        ends,
        receiver.port(),
        "--file",
        source,
        "--compress",
        compress,
        "--expected-size",
        3,
        magic=MAGIC,
    )
    assert (sender.wait(), receiver.wait()) == (0, 0)
    assert target.read_bytes() == data
    assert target.stat().st_mode & 0o777 == 0o600
    status = sender.status
    assert (status["exit_status"], status["connected"], status["progress_percent"]) == (
        0,
        True,
        pytest.approx(95.4, abs=0.5),
    )
    assert status["progress_mbytes"] == pytest.approx(2.86, abs=0.01)
    assert receiver.status["exit_status"] == 0


@pytest.mark.parametrize("compress", ["none", "gzip"])
def test_the_magic_is_where_the_original_has_it(ends, tmp_path, compress):
    """Its version 3.0.2 sends ``M=`` and the word before the data, and compresses both together."""
    source, target = tmp_path / "source", tmp_path / "target"
    source.write_bytes(b"hello-data")
    receiver = ends("import", "--file", target)
    sender = export(
        ends, receiver.port(), "--file", source, "--compress", compress, magic="abcdefgh"
    )
    assert (sender.wait(), receiver.wait()) == (0, 0)
    sent = target.read_bytes()
    assert (gzip.decompress(sent) if compress == "gzip" else sent) == b"M=abcdefghhello-data"


def test_another_magic_in_compressed_data_is_refused(ends, tmp_path):
    source, target = tmp_path / "source", tmp_path / "target"
    source.write_bytes(os.urandom(3_000_001))
    tool = ("--compress", "gzip")
    receiver = ends("import", "--file", target, *tool, magic=MAGIC)
    sender = export(ends, receiver.port(), "--file", source, *tool, magic="another-magic")
    assert (sender.wait(), receiver.wait()) == (1, 1)
    assert "did not send the magic word" in receiver.status["error_message"]
    assert target.read_bytes() == b""


def test_devices_keep_their_size(ends, tmp_path):
    """Only so much is sent as the disk has, and a larger target is not cut off."""
    source, target = tmp_path / "source", tmp_path / "target"
    source.write_bytes(b"a" * (1 << 20) + b"beyond the disk")
    target.write_bytes(b"z" * (2 << 20))
    receiver = ends("import", "--device", target)
    sender = export(ends, receiver.port(), "--device", source, "--bytes", 1 << 20)
    assert (sender.wait(), receiver.wait()) == (0, 0)
    assert target.read_bytes() == b"a" * (1 << 20) + b"z" * (1 << 20)


@pytest.mark.parametrize("compress", ["none", "gzip"])
def test_a_source_which_is_too_short(ends, tmp_path, compress):
    source, target = tmp_path / "source", tmp_path / "target"
    source.write_bytes(b"a" * ((1 << 20) - 1))
    tool = ("--compress", compress)
    receiver = ends("import", "--file", target, "--receipt", *tool)
    sender = export(ends, receiver.port(), "--device", source, "--bytes", 1 << 20, *tool)
    assert (sender.wait(), receiver.wait()) == (1, 1)
    assert "ended after 1048575 of 1048576 bytes" in sender.status["error_message"]
    assert not Path(f"{target}.receipt").exists()


@pytest.mark.parametrize("compress", ["none", "gzip"])
def test_a_receipt_for_a_complete_file(ends, tmp_path, compress):
    source, target = tmp_path / "source", tmp_path / "target"
    data = os.urandom(1_000_001)
    source.write_bytes(data)
    tool, digest = ("--compress", compress), hashlib.sha256(data).hexdigest()
    receiver = ends("import", "--file", target, "--receipt", *tool)
    port = receiver.port()
    sender = export(ends, port, "--file", source, "--expected-sha256", digest, *tool)
    assert (sender.wait(), receiver.wait()) == (0, 0)
    assert receipt.check(str(target)) == receipt.Receipt(len(data), digest)
    # A transfer which somebody forgot does not write to the file of a newer one.
    late = ends("import", "--file", target, "--receipt", *tool)
    assert export(ends, late.port(), "--file", source, *tool).wait() == 1
    assert late.wait() == 1
    assert "File exists" in late.status["error_message"]
    assert target.read_bytes() == data


@pytest.mark.parametrize("compress", ["none", "gzip"])
def test_content_which_has_changed_is_not_confirmed(ends, tmp_path, compress):
    source, target = tmp_path / "source", tmp_path / "target"
    source.write_bytes(b"changed")
    tool, digest = ("--compress", compress), hashlib.sha256(b"content").hexdigest()
    receiver = ends("import", "--file", target, "--receipt", *tool)
    port = receiver.port()
    sender = export(ends, port, "--file", source, "--expected-sha256", digest, *tool)
    assert (sender.wait(), receiver.wait()) == (1, 1)
    assert "is damaged" in sender.status["error_message"]
    assert not Path(f"{target}.receipt").exists()


def test_scripts(ends, tmp_path):
    """They read and write; the first says how much will come, both leave a log."""
    target, logs = tmp_path / "target", (tmp_path / "out.log", tmp_path / "in.log")
    reader = script(tmp_path / "reader", "echo 5 >&$EXP_SIZE_FD; echo reading >&2; printf hello")
    writer = script(
        tmp_path / "writer", f"pwd > {tmp_path}/where; echo writing >&2; cat > {target}"
    )
    receiver = ends("import", "--script", writer, "--log", logs[1])
    sender = export(ends, receiver.port(), "--script", reader, "--log", logs[0])
    assert (sender.wait(), receiver.wait()) == (0, 0)
    assert target.read_text() == "hello"
    assert (tmp_path / "where").read_text().strip() == str(tmp_path)
    assert [log.read_text() for log in logs] == ["reading\n", "writing\n"]
    assert sender.status["recent_output"] == ["reading"]


@pytest.mark.parametrize(
    ("reader", "writer", "texts"),
    [
        ("printf data; exit 3", "cat > /dev/null", ("exited with code 3", "broke before the end")),
        ("cat /dev/zero", "head -c 10 >/dev/null; exit 4", ("", "exited with code 4")),
        ("cat /dev/zero", "kill -9 $$", ("", "ended by signal 9")),
        ("printf data", "cat >/dev/null; exit 5", ("did not confirm", "exited with code 5")),
    ],
)
def test_a_failure_on_one_side_is_one_on_both(ends, tmp_path, reader, writer, texts):
    receiver = ends("import", "--script", script(tmp_path / "writer", writer))
    sender = export(ends, receiver.port(), "--script", script(tmp_path / "reader", reader))
    assert (sender.wait(), receiver.wait()) == (1, 1)
    for end, text in zip((sender, receiver), texts, strict=True):
        assert text in end.status["error_message"]


@pytest.mark.parametrize("victim", [0, 1])
def test_a_process_that_is_killed(ends, tmp_path, victim):
    """A connection that just breaks is never taken for the end of the data."""
    target = tmp_path / "target"
    receiver = ends("import", "--file", target)
    sender = export(
        ends,
        receiver.port(),
        "--script",
        script(tmp_path / "reader", "printf begun; exec sleep 1000"),
    )
    both = (sender, receiver)
    receiver.until(
        lambda status: status.get("connected") and target.exists() and target.stat().st_size
    )
    both[victim].process.kill()
    if victim == 0:
        assert receiver.wait() == 1
        assert "broke before the end" in receiver.status["error_message"]
    else:
        # It is sent nothing, so it learns of it when somebody ends it.
        sender.process.terminate()
        assert sender.wait() == 1
        assert "aborted" in sender.status["error_message"]


def runs(pid):
    """Whether a process exists and is not a zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def test_an_abort_ends_the_script(ends, tmp_path):
    pid_file = tmp_path / "pid"
    receiver = ends("import", "--file", tmp_path / "target")
    sender = export(
        ends,
        receiver.port(),
        "--script",
        script(tmp_path / "reader", f"echo $$ > {pid_file}; exec sleep 1000"),
    )
    sender.until(lambda status: pid_file.exists() and pid_file.read_text().strip())
    sender.process.terminate()
    assert sender.wait() == 1
    # The signal was sent; the kernel ends it in its own time.
    script_pid, deadline = int(pid_file.read_text()), time.monotonic() + PATIENCE_S
    while runs(script_pid):
        assert time.monotonic() < deadline, "the script goes on"
        time.sleep(0.01)
    assert receiver.wait() == 1


def test_strangers_are_sent_away_and_the_right_one_still_comes(ends, tmp_path, pems):
    source, target = tmp_path / "source", tmp_path / "target"
    source.write_bytes(b"data")
    receiver = ends("import", "--file", target, magic=MAGIC)
    port = receiver.port()
    with socket.create_connection(("127.0.0.1", port)) as plain:
        plain.sendall(b"GET / HTTP/1.0\r\n\r\n")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    with (
        socket.create_connection(("127.0.0.1", port)) as raw,
        pytest.raises(OSError),
        context.wrap_socket(raw) as anonymous,
    ):
        while anonymous.recv(1):
            pass
        raise OSError("closed")
    for end in (
        export(ends, port, "--file", source, magic=MAGIC, key="stranger"),
        export(ends, port, "--file", source, magic="another-magic"),
        export(ends, port, "--file", source, magic=MAGIC, trusts="stranger"),
    ):
        assert end.wait() == 1
    sender = export(ends, port, "--file", source, magic=MAGIC)
    assert (sender.wait(), receiver.wait()) == (0, 0)
    assert target.read_bytes() == b"data"
    refused = [line for line in receiver.status["recent_output"] if "refused" in line]
    assert len(refused) == 5
    assert any("magic" in line for line in refused)


@pytest.mark.parametrize("count", [3, 70])
def test_idle_peers_do_not_delay_the_right_one(ends, tmp_path, count):
    """They stay connected all the time; of very many, the longest silent ones are closed."""
    source, target = tmp_path / "source", tmp_path / "target"
    source.write_bytes(b"data")
    receiver = ends("import", "--file", target, magic=MAGIC)
    port = receiver.port()
    with contextlib.ExitStack() as stack:
        silent = [
            stack.enter_context(socket.create_connection(("127.0.0.1", port))) for _ in range(count)
        ]
        sender = export(ends, port, "--file", source, magic=MAGIC)
        assert (sender.wait(), receiver.wait()) == (0, 0)
        for one in silent:
            one.settimeout(PATIENCE_S)
            with contextlib.suppress(ConnectionResetError):
                assert one.recv(1) == b""
    assert target.read_bytes() == b"data"


def test_a_slow_peer_does_not_outlive_the_deadline(ends, tmp_path):
    """It sends a byte now and then, of a record of 16 KiB."""
    receiver = ends("import", "--file", tmp_path / "target", "--connect-timeout", "1")
    deadline = time.monotonic() + PATIENCE_S
    with socket.create_connection(("127.0.0.1", receiver.port())) as slow:
        slow.sendall(b"\x16\x03\x01\x40\x00\x01\x00\x3f\xfc")
        while receiver.process.poll() is None:
            assert time.monotonic() < deadline, "the import still waits"
            time.sleep(0.02)
            with contextlib.suppress(OSError):
                slow.sendall(b"\x00")
    assert receiver.wait() == 1
    assert "the other end did not connect" in receiver.status["error_message"]


def test_a_slow_receiver_does_not_outlive_the_deadline_of_the_sender(ends, tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        sender = export(ends, port, "--file", "/dev/null", "--connect-timeout", "1")
        listener.settimeout(PATIENCE_S)
        slow, _ = listener.accept()
        deadline = time.monotonic() + PATIENCE_S
        with slow:
            slow.sendall(b"\x16\x03\x03\x40\x00\x02\x00\x3f\xfc")
            while sender.process.poll() is None:
                assert time.monotonic() < deadline, "the export still waits"
                time.sleep(0.02)
                with contextlib.suppress(OSError):
                    slow.sendall(b"\x00")
    assert sender.wait() == 1
    assert "no trusted connection" in sender.status["error_message"]


def test_nobody_comes(ends, tmp_path):
    receiver = ends("import", "--file", tmp_path / "target", "--connect-timeout", "0.1")
    assert receiver.wait() == 1
    assert "the other end did not connect" in receiver.status["error_message"]


def test_nobody_listens(ends, tmp_path):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        sender = export(ends, taken.getsockname()[1], "--file", "/dev/null")
        assert sender.wait() == 1
    assert "cannot connect" in sender.status["error_message"]


@pytest.mark.parametrize("what", ["--file", "--device", "--script"])
def test_nothing_to_send(ends, tmp_path, what):
    receiver = ends("import", "--file", tmp_path / "target")
    sender = export(ends, receiver.port(), what, tmp_path / "missing")
    assert (sender.wait(), receiver.wait()) == (1, 1)
    assert "missing" in sender.status["error_message"]


@pytest.mark.parametrize(
    "words",
    [
        ["status", "export", "--file", "x"],
        ["status", "import", "--file", "x", "--device", "y"],
        ["status", "import"],
        ["status", "import", "--file", "x", "--magic", "word"],
        ["status", "move", "--file", "x"],
        ["status", "import", "--device", "x", "--receipt"],
    ],
)
def test_wrong_options(words, capsys):
    keys = ["--key", "k", "--cert", "c", "--ca", "a"]
    with pytest.raises(SystemExit) as ended:
        import_export.parse_options([*words, *keys])
    assert ended.value.code == 2
    assert "usage:" in capsys.readouterr().err


@pytest.mark.parametrize("word", ["a b", "", None])
def test_a_word_of_a_wrong_form(tmp_path, ends, word):
    if word is not None:
        (tmp_path / "word").write_text(word)
    receiver = ends("import", "--file", tmp_path / "target", "--magic-file", tmp_path / "word")
    assert receiver.wait() == 1
    assert str(tmp_path / "word") in receiver.status["error_message"]


def test_a_full_directory_of_the_status_is_no_failure_of_the_transfer(tmp_path, monkeypatch):
    full = [OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))]
    write = fs.write_file

    def refuse(*args, **options):
        if full:
            raise full[-1]
        write(*args, **options)

    monkeypatch.setattr(fs, "write_file", refuse)
    monkeypatch.setattr(shortage, "_PAUSES", 0.0)
    status = Status(str(tmp_path / "status"), 4.0, None)
    status.moved(1 << 20)
    assert not (tmp_path / "status").exists()
    refused = []

    def refuse_twice(*args, **options):
        refused.append(args[0])
        if len(refused) == 3:
            full.clear()
        refuse(*args, **options)

    monkeypatch.setattr(fs, "write_file", refuse_twice)
    status.update(connected=True)
    assert len(refused) == 3
    assert json.loads((tmp_path / "status").read_text())["connected"] is True


def test_progress(tmp_path):
    status = Status(str(tmp_path / "status"), 4.0, None)
    status.update()
    status.moved(1 << 20)
    status.update()
    found = json.loads((tmp_path / "status").read_text())
    assert (found["progress_mbytes"], found["progress_percent"]) == (1.0, 25.0)
    assert found["progress_eta"] == pytest.approx(3.0 / found["progress_throughput"])
