"""What every Python process of the cluster loads at its start, under the name ``sitecustomize``.

It works below the program, at Python's calls of the system, so the program itself is unchanged:

* *clock*: the time of day is wrong by the seconds in a file, which may change at any time;
* *disk*: writes and flushes below the data directory of the node are slow, or fail;
* *flushes*: the content of files and the names in directories are copied at each flush, so that a
  power cut can leave what was flushed and nothing else (:mod:`devel.chaos.power`);
* *machine*: the node has no processes, memory or descriptors left, or its ``/run`` is full;
* *network*: the node daemon answers late, or its requests and answers get lost;
* *guests*: each start and end of a guest of the hypervisor ``fake`` leaves a line in a log outside
  of the cluster;
* *boot ID*: each power cut of a node gives it another one, as the start of a machine does;
* *promises*: each change of the file ``master_state``, which has the epochs of masters that the
  node obeys, leaves a line, too.

The module imports nothing but the standard library, and little of that, because every command of
the cluster loads it. Programs in other languages are not concerned; none of them writes state of
the cluster. The environment names the directory of the run (``CHAOS_DIRECTORY``)::

    <directory>/clock.<node>      seconds, may be negative
    <directory>/disk.<node>       "ok", "full", "fails", or "slow SECONDS"
    <directory>/lack.<node>       "processes", "memory", "descriptors" or "run"; "ok" for nothing
    <directory>/network.<node>    "ok", "slow SECONDS", or "lossy SHARE"
    <directory>/boot.<node>       the boot ID; without it the node has that of this machine
    <directory>/flushed.<node>/   see devel.chaos.power
    <directory>/guests.log        <time> <node> <name> begun|ended
    <directory>/promises.log      <node> <epoch> | <of the configuration> | <of the queue>
"""

# No "from __future__": this file runs under its own name, and loads as few modules as possible.
import _posixsubprocess
import _thread
import builtins
import errno
import os
import stat
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

DIRECTORY = os.environ.get("CHAOS_DIRECTORY", "")
NODE = os.environ.get("GANETI_HOSTNAME", "")
DATA = os.path.realpath(os.environ.get("GANETI_ROOTDIR", "/nowhere") + "/var/lib/ganeti")
RUN = DATA.removesuffix("/var/lib/ganeti") + "/var/run/ganeti"
FLUSHED = f"{DIRECTORY}/flushed.{NODE}"
BOOT_ID = "/proc/sys/kernel/random/boot_id"
_GUESTS = "/fake-hypervisor/"
_RUNS = b"1"

_open_stream = builtins.open
_open, _read, _write, _close = os.open, os.read, os.write, os.close
_writev, _rename, _unlink = os.writev, os.rename, os.unlink
_fsync, _fdatasync, _fstat = os.fsync, os.fdatasync, os.fstat
_readlink, _scandir, _copy_range = os.readlink, os.scandir, os.copy_file_range
_time, _time_ns, _monotonic, _sleep = time.time, time.time_ns, time.monotonic, time.sleep


def _setting(name: str) -> bytes:
    """Read a file of the run; empty when it is missing."""
    try:
        fd = _open(f"{DIRECTORY}/{name}.{NODE}", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return b""
    try:
        return _read(fd, 40)
    finally:
        _close(fd)


# -- clock -------------------------------------------------------------------------------------


def _offset_s() -> int:
    return int(_setting("clock") or 0)


def _shifted_time() -> float:
    return _time() + _offset_s()


def _shifted_time_ns() -> int:
    return _time_ns() + _offset_s() * 10**9


# -- boot ID -----------------------------------------------------------------------------------


def _watched_open_stream(path: "Any", *args: "Any", **kwargs: "Any") -> "Any":
    if not isinstance(path, int):
        _lack_descriptors()
        _lack_space(path, kwargs.get("mode", args[0] if args else "r"))
    if path == BOOT_ID:
        own = f"{DIRECTORY}/boot.{NODE}"
        path = own if os.path.exists(own) else path
    return _open_stream(path, *args, **kwargs)


# -- disk --------------------------------------------------------------------------------------


def _place(what: "int | str | bytes") -> str:
    """Return the path of a file below the data directory, and an empty text for any other."""
    try:
        path = _readlink(f"/proc/self/fd/{what}") if isinstance(what, int) else os.fsdecode(what)
    except OSError:
        return ""
    return path if path == DATA or path.startswith(f"{DATA}/") else ""


def _trouble(what: "int | str | bytes", *, flush: bool = False) -> None:
    """Be slow, or fail, as the disk of this node shall.

    :raises OSError: the disk is full, or fails.
    """
    words = _setting("disk").split()
    if not words or words[0] == b"ok" or not _place(what):
        return
    if words[0] == b"slow":
        if flush:
            _sleep(float(words[1]))
    elif words[0] == b"fails":
        raise OSError(errno.EIO, os.strerror(errno.EIO))
    elif not flush:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def _watched_open(path: "Any", flags: int, *args: "Any", **kwargs: "Any") -> int:
    _lack_descriptors()
    if flags & os.O_CREAT and not kwargs.get("dir_fd"):
        _lack_space(path, "w")
    creates = flags & os.O_CREAT and not kwargs.get("dir_fd") and not os.path.lexists(path)
    if creates:
        _trouble(path)
    fd = _open(path, flags, *args, **kwargs)
    if creates and _place(fd):
        # The system may have given it the number of a file which was removed.
        _forget(_fstat(fd).st_ino)
    return fd


def _watched_write(fd: int, data: "Any") -> int:
    _lack_space(fd, "w")
    _trouble(fd)
    return _write(fd, data)


def _watched_writev(fd: int, pieces: "Any") -> int:
    _trouble(fd)
    return _writev(fd, pieces)


# -- machine -----------------------------------------------------------------------------------


def _lacks(what: bytes) -> bool:
    return _setting("lack") == what


def _lack_descriptors() -> None:
    if _lacks(b"descriptors"):
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))


def _lack_space(what: "Any", mode: str) -> None:
    """Fail when something below the run directory would become larger, and has no space."""
    if mode[:1] == "r" and "+" not in mode or not _lacks(b"run"):
        return
    try:
        path = _readlink(f"/proc/self/fd/{what}") if isinstance(what, int) else os.fsdecode(what)
    except (OSError, TypeError):
        return
    if path.startswith(f"{RUN}/"):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)


def _needs_process(function: "Any") -> "Any":
    """Let a function which makes a process fail when the node has none left, or no memory."""

    def call(*args: "Any", **kwargs: "Any") -> "Any":
        lacking = _setting("lack")
        if lacking == b"processes":
            raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))
        if lacking == b"memory":
            raise OSError(errno.ENOMEM, os.strerror(errno.ENOMEM))
        return function(*args, **kwargs)

    return call


def _needs_thread(function: "Any") -> "Any":
    """Let a function which makes a thread fail, as Python does, for the same reasons."""

    def call(*args: "Any", **kwargs: "Any") -> "Any":
        if _setting("lack") in (b"processes", b"memory"):
            raise RuntimeError("can't start new thread")
        return function(*args, **kwargs)

    return call


# -- network -----------------------------------------------------------------------------------


def _on_the_way() -> None:
    """Be slow, or lose what is on its way.

    :raises ConnectionResetError: it is lost.
    """
    words = _setting("network").split()
    if words[:1] == [b"slow"]:
        _sleep(float(words[1]))
    elif words[:1] == [b"lossy"] and os.urandom(1)[0] < 256 * float(words[1]):
        raise ConnectionResetError(errno.ECONNRESET, os.strerror(errno.ECONNRESET))


def _delayed(function: "Any") -> "Any":
    def call(self: "Any", *args: "Any", **kwargs: "Any") -> "Any":
        try:
            _on_the_way()
        except ConnectionResetError:
            self.close()
            raise
        return function(self, *args, **kwargs)

    return call


def install_network() -> None:
    """Delay and lose requests and answers of this process, which is a node daemon."""
    import ssl  # noqa: PLC0415 - only this daemon has loaded it anyway

    ssl.SSLSocket.do_handshake = _delayed(ssl.SSLSocket.do_handshake)  # type: ignore[method-assign]
    ssl.SSLSocket.sendall = _delayed(ssl.SSLSocket.sendall)  # type: ignore[method-assign]


# -- flushes -----------------------------------------------------------------------------------


def _forget(number: int) -> None:
    try:
        _unlink(f"{FLUSHED}/{number}")
    except OSError:
        return


def record(fd: int) -> None:
    """Copy what a flush of an open file or directory makes durable.

    A file keeps its copy, and only what was added to it is copied again: the programs replace
    files, or append to them.
    """
    path = _place(fd)
    if not path or not os.path.isdir(FLUSHED):
        return
    found = _fstat(fd)
    if stat.S_ISDIR(found.st_mode):
        with _scandir(path) as entries:
            names = "".join(f"{entry.inode()} {entry.name}\n" for entry in entries)
        target = f"{FLUSHED}/names{path[len(DATA) :].replace('/', '%')}"
        new = f"{target}.{os.getpid()}.{time.monotonic_ns()}"
        out = _open(new, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            _write(out, names.encode("utf-8", "surrogateescape"))
        finally:
            _close(out)
        _rename(new, target)
        return
    flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
    copy = _open(f"{FLUSHED}/{found.st_ino}", flags, stat.S_IMODE(found.st_mode) | 0o600)
    source = _open(f"/proc/self/fd/{fd}", os.O_RDONLY | os.O_CLOEXEC)
    try:
        begin = _fstat(copy).st_size
        if begin > found.st_size:
            os.ftruncate(copy, found.st_size)
        while begin < found.st_size:
            block = os.pread(source, found.st_size - begin, begin)
            if not block:
                break
            begin += os.pwrite(copy, block, begin)
        os.fchmod(copy, stat.S_IMODE(found.st_mode))
    finally:
        _close(source)
        _close(copy)


def _watched_fsync(fd: "Any") -> None:
    _trouble(fd, flush=True)
    # The copy is what counts here; the real flush would only cost the time of the real disk.
    if _place(fd):
        record(fd)
    else:
        _fsync(fd)


# -- guests ------------------------------------------------------------------------------------


def _note(log: str, line: str) -> None:
    """Append a line to a log of the run; the system does this as a whole."""
    fd = _open(f"{DIRECTORY}/{log}", os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o666)
    try:
        _write(fd, line.encode())
    finally:
        _close(fd)


def note_guest(when: float, path: str, what: str) -> None:
    """Write a line to the log of the guests."""
    _note("guests.log", f"{when:.6f} {NODE} {os.path.basename(path)} {what}\n")


def promise_line(text: str) -> str:
    """Make the line of a promise from the content of ``master_state``."""
    found = dict(line.split(" ", 1) for line in text.splitlines() if " " in line)
    return " | ".join(found.get(word, "0").strip() for word in ("epoch", "config", "queue"))


def _note_promise(path: str) -> None:
    fd = _open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        text = _read(fd, 4096).decode()
    finally:
        _close(fd)
    _note("promises.log", f"{NODE} {promise_line(text)}\n")


def _guest_runs(path: str) -> bool:
    try:
        fd = _open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        return _read(fd, 2).split() == [_RUNS]
    finally:
        _close(fd)


def _is_guest(path: "Any") -> bool:
    text = os.fsdecode(path) if isinstance(path, str | bytes) else ""
    return _GUESTS in text and not os.path.basename(text).startswith(".")


def _watched_rename(source: "Any", target: "Any", **kwargs: "Any") -> None:
    if not _is_guest(target):
        _rename(source, target, **kwargs)
        if target == f"{DATA}/master_state":
            # The program still holds the lock of the file, so the lines are in the right order.
            _note_promise(target)
        return
    ran, runs = _guest_runs(target), _guest_runs(source)
    # A guest runs for certain from the line after its start to the line before its end.
    if ran and not runs:
        note_guest(_monotonic(), target, "ended")
    _rename(source, target, **kwargs)
    if runs and not ran:
        note_guest(_monotonic(), target, "begun")


def _watched_unlink(path: "Any", **kwargs: "Any") -> None:
    if _is_guest(path) and _guest_runs(path):
        note_guest(_monotonic(), path, "ended")
    _unlink(path, **kwargs)


def install() -> None:
    """Replace the calls of this process."""
    time.time, time.time_ns = _shifted_time, _shifted_time_ns
    builtins.open = _watched_open_stream  # type: ignore[assignment]
    os.open, os.write, os.writev = _watched_open, _watched_write, _watched_writev
    os.fsync = os.fdatasync = _watched_fsync
    os.rename = os.replace = _watched_rename  # type: ignore[assignment]
    os.unlink = os.remove = _watched_unlink
    os.fork = _needs_process(os.fork)
    os.posix_spawn = _needs_process(os.posix_spawn)
    _posixsubprocess.fork_exec = _needs_process(_posixsubprocess.fork_exec)
    for name in ("start_new_thread", "start_joinable_thread", "start_new"):
        if hasattr(_thread, name):
            setattr(_thread, name, _needs_thread(getattr(_thread, name)))
    if any(os.path.basename(word) == "ganeti-noded" for word in sys.orig_argv):
        install_network()


if __name__ == "sitecustomize" and DIRECTORY and NODE:
    install()
