"""Run a program on a file that nobody trusts: with limits, and without the other files of the node.

The limits are those of setrlimit(2): memory, processor time, and the size of a file that it writes.
Its output is limited, too. With Landlock, where the kernel has it, the program opens only its own
files below ``/usr``, the files that it is to read or to write, and no connection of TCP.

The files are opened here, and the program gets their descriptors: a word that is the path of such a
file becomes ``/proc/self/fd/NUMBER``, also behind ``KEY=``. When this process is root, the program
is not: it gets a user id which no account and no other process has. Files which it writes belong to
that user while it runs, and are given back afterwards. A file to read which not everybody may read
costs the program the one capability CAP_DAC_READ_SEARCH: it may read any file which Landlock
leaves, and change none. The user stays in a container which has neither such a user id nor
``nobody``, and where files have no owners, such as on FAT.

``python -m ganeti.helpers.limited --read FILE --write FILE --memory BYTES ... -- PROGRAM WORD...``

Source: landlock(7), the kernel's ``include/uapi/linux/landlock.h``; setrlimit(2); capabilities(7).
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import os
import resource
import shutil
import stat
import struct
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import IO, Final

_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_VERSION_FLAG: Final = 1
_PATH_BENEATH: Final = 1
_PR_SET_NO_NEW_PRIVS: Final = 38
# Rights LANDLOCK_ACCESS_FS_*, by the version of Landlock which has them first.
_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR = 1, 2, 4, 8
_TRUNCATE, _IOCTL_DEV = 1 << 14, 1 << 15
_FS_RIGHTS: Final = {1: (1 << 13) - 1, 2: 1 << 13, 3: _TRUNCATE, 5: _IOCTL_DEV}
# LANDLOCK_ACCESS_NET_BIND_TCP and _CONNECT_TCP; LANDLOCK_SCOPE_*: abstract sockets and signals.
_NET_RIGHTS: Final = (4, 3)
_SCOPES: Final = (6, 3)
_PROGRAM_DIRECTORIES: Final = ("/usr", "/lib", "/lib64", "/bin")
_SYSTEM_FILES: Final = ("/etc/ld.so.cache", "/dev/urandom", "/dev/zero")
#: Most bytes which the program may print.
MAX_OUTPUT: Final = 16 << 20
_MAX_ERRORS: Final = 1 << 16
_EXIT_LIMIT: Final = 125
# The user of the program: one of the ids which nobody else uses ("Users, Groups, UIDs and GIDs on
# systemd systems"), by the number of this process; behind those of guests (platform/users.py).
_OWN_IDS: Final = 1_901_000_000
_NOBODY: Final = 65534
_PR_SET_KEEPCAPS, _PR_CAP_AMBIENT, _PR_CAP_AMBIENT_RAISE = 8, 47, 2
_CAP_DAC_READ_SEARCH: Final = 2
_CAPABILITY_VERSION_3: Final = 0x20080522


def main(argv: Sequence[str] | None = None) -> int:
    """Run the program; returns its exit code, and 128 with the number of its signal."""
    options = _parser().parse_args(argv)
    program = shutil.which(options.argv[0])
    if program is None:
        print(f"there is no program {options.argv[0]}", file=sys.stderr)
        return 127
    for what, most in (
        (resource.RLIMIT_AS, options.memory),
        (resource.RLIMIT_CPU, options.cpu),
        (resource.RLIMIT_FSIZE, options.file_size),
        (resource.RLIMIT_CORE, 0),
    ):
        hard = resource.getrlimit(what)[1]
        wanted = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.setrlimit(what, (wanted, wanted))
    # Each thread would reserve memory of its own, which counts.
    os.environ["MALLOC_ARENA_MAX"] = "1"
    with contextlib.ExitStack() as stack:
        reads = {path: stack.enter_context(_opened(path, os.O_RDONLY)) for path in options.read}
        writes = {path: stack.enter_context(_opened(path, os.O_RDWR)) for path in options.write}
        fds = {**reads, **writes}
        names = {path: f"/proc/self/fd/{fd}" for path, fd in fds.items()}
        user = own_id()
        if user is not None and not stack.enter_context(_given(list(writes.values()), user)):
            user = None
        reading = any(not os.stat(fd).st_mode & stat.S_IROTH for fd in reads.values())
        restrict([*_PROGRAM_DIRECTORIES, os.path.dirname(program)], options.read, options.write)
        argv = [program, *(_renamed(word, names) for word in options.argv[1:])]
        change = None if user is None else partial(_become, _libc(), user, reading)
        return _run(argv, tuple(fds.values()), change, names)


def _renamed(word: str, names: Mapping[str, str]) -> str:
    for path, name in names.items():
        if word == path or word.endswith(f"={path}"):
            return word[: len(word) - len(path)] + name
    return word


@contextlib.contextmanager
def _opened(path: str, flags: int) -> Iterator[int]:
    fd = os.open(path, flags | os.O_CLOEXEC)
    try:
        yield fd
    finally:
        os.close(fd)


@contextlib.contextmanager
def _given(fds: Sequence[int], user: int) -> Iterator[bool]:
    """Let files belong to a user for a while; the value is False where files have no owners."""
    with contextlib.ExitStack() as stack:
        try:
            for fd in fds:
                before = os.stat(fd)
                os.fchown(fd, user, user)
                stack.callback(os.fchown, fd, before.st_uid, before.st_gid)
        except OSError:
            yield False
        else:
            yield True


def own_id() -> int | None:
    """Return a number for a user and a group of the program.

    :returns: None when this process is not root, or when its user namespace has no other id.
    """
    if os.geteuid() != 0:
        return None
    for wanted in (_OWN_IDS + os.getpid(), _NOBODY):
        if _is_mapped("/proc/self/uid_map", wanted) and _is_mapped("/proc/self/gid_map", wanted):
            return wanted
    return None


def _is_mapped(path: str, wanted: int) -> bool:
    try:
        with open(path) as stream:
            ranges = [list(map(int, line.split())) for line in stream]
    except OSError:
        return False
    return any(first <= wanted < first + count for first, _outside, count in ranges)


def _become(libc: ctypes.CDLL, user: int, reading: bool) -> None:
    """Change the user of this process, which is about to become the program.

    :param reading: it keeps the capability to read files which belong to others.
    """
    if reading:
        _checked(libc, libc.prctl(_PR_SET_KEEPCAPS, 1, 0, 0, 0), "prctl")
    os.setgroups([])
    os.setresgid(user, user, user)
    os.setresuid(user, user, user)
    if not reading:
        return
    mask = 1 << _CAP_DAC_READ_SEARCH
    header = struct.pack("=Ii", _CAPABILITY_VERSION_3, 0)
    # Effective, permitted and inheritable capabilities; twice, for numbers from 32 on.
    _checked(libc, libc.capset(header, struct.pack("=6I", mask, mask, mask, 0, 0, 0)), "capset")
    ambient = (_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_RAISE, _CAP_DAC_READ_SEARCH, 0, 0)
    _checked(libc, libc.prctl(*ambient), "prctl")


def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="limited", allow_abbrev=False)
    parser.add_argument("--read", action="append", default=[])
    parser.add_argument("--write", action="append", default=[])
    parser.add_argument("--memory", type=int, required=True)
    parser.add_argument("--cpu", type=int, required=True)
    parser.add_argument("--file-size", type=int, required=True)
    parser.add_argument("argv", nargs="+")
    return parser


def _run(
    argv: Sequence[str],
    fds: Sequence[int],
    change: Callable[[], None] | None,
    names: Mapping[str, str],
) -> int:
    """Run the program.

    :param change: what its process does first.
    :param names: path of a file -> what the program knows it by.
    """
    with subprocess.Popen(
        argv,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        pass_fds=fds,
        preexec_fn=change,  # noqa: PLW1509 - this process has no other thread yet
    ) as child:
        assert child.stdout is not None and child.stderr is not None
        said: list[bytes] = []
        reader = threading.Thread(target=_receive, args=(child.stderr, said))
        reader.start()
        output = child.stdout.read(MAX_OUTPUT + 1)
        too_much = len(output) > MAX_OUTPUT
        if too_much:
            child.kill()
        reader.join()
        code = child.wait()
    text = b"".join(said).decode(errors="replace")
    for path, name in names.items():
        text = text.replace(name, path)
    sys.stderr.write(text)
    if too_much:
        print(f"it printed more than {MAX_OUTPUT >> 20} MiB", file=sys.stderr)
        return _EXIT_LIMIT
    sys.stdout.buffer.write(output)
    if code < 0:
        print(f"signal {-code} ended it; it may have reached a limit", file=sys.stderr)
        return 128 - code
    return code


def _receive(stream: IO[bytes], said: list[bytes]) -> None:
    """Read all messages of the program, and keep the first ones."""
    left = _MAX_ERRORS
    while piece := stream.read(_MAX_ERRORS):
        said.append(piece[:left])
        left -= len(said[-1])


def restrict(programs: Sequence[str], reads: Sequence[str], writes: Sequence[str]) -> bool:
    """Take all other files from this process and from those which it starts.

    :param programs: directories of programs and their libraries.
    :param reads: files to read.
    :param writes: files which exist, to read and to write.
    :returns: False where the kernel has no Landlock; nothing is restricted then.
    :raises OSError: a file cannot be opened.
    """
    libc = _libc()
    version = libc.syscall(_CREATE_RULESET, None, ctypes.c_size_t(0), _VERSION_FLAG)
    if version < 1:
        return False
    rights = sum(right for since, right in _FS_RIGHTS.items() if since <= version)
    net = _NET_RIGHTS[1] if version >= _NET_RIGHTS[0] else 0
    scopes = _SCOPES[1] if version >= _SCOPES[0] else 0
    words = 3 if version >= _SCOPES[0] else 2 if version >= _NET_RIGHTS[0] else 1
    attributes = struct.pack("=QQQ", rights, net, scopes)[: 8 * words]
    ruleset = _checked(
        libc, libc.syscall(_CREATE_RULESET, attributes, ctypes.c_size_t(len(attributes)), 0)
    )
    reading = _READ_FILE | _IOCTL_DEV
    for paths, allowed in (
        (programs, _EXECUTE | _READ_FILE | _READ_DIR),
        (_SYSTEM_FILES, _READ_FILE),
        (("/dev/null",), _READ_FILE | _WRITE_FILE),
        (reads, reading),
        (writes, reading | _WRITE_FILE | _TRUNCATE),
    ):
        for path in paths:
            if paths in (reads, writes) or os.path.exists(path):
                _allow(libc, ruleset, path, allowed & rights)
    _checked(libc, libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
    _checked(libc, libc.syscall(_RESTRICT_SELF, ruleset, 0))
    os.close(ruleset)
    return True


def _allow(libc: ctypes.CDLL, ruleset: int, path: str, rights: int) -> None:
    fd = os.open(path, os.O_PATH | os.O_CLOEXEC)
    try:
        rule = struct.pack("=Qi", rights, fd)
        _checked(libc, libc.syscall(_ADD_RULE, ruleset, _PATH_BENEATH, rule, 0))
    finally:
        os.close(fd)


def _checked(libc: ctypes.CDLL, result: int, what: str = "Landlock") -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), what)
    return result


if __name__ == "__main__":
    sys.exit(main())
