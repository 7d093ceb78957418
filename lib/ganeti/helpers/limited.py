"""Run a program on a file that nobody trusts: with limits, and without the other files of the node.

The limits are those of setrlimit(2): memory, processor time, and the size of a file that it writes.
Its output is limited, too. With Landlock, where the kernel has it, the program opens only its own
files below ``/usr``, the files that it is to read or to write, and no connection of TCP. It stays
the same user, because the files are often those of root alone; so the rights of that user are what
Landlock takes away.

``python -m ganeti.helpers.limited --read FILE --write FILE --memory BYTES ... -- PROGRAM WORD...``

Source: landlock(7), the kernel's ``include/uapi/linux/landlock.h``; setrlimit(2).
"""

from __future__ import annotations

import argparse
import ctypes
import os
import resource
import shutil
import struct
import subprocess
import sys
from collections.abc import Sequence
from typing import Final

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
_EXIT_LIMIT: Final = 125


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
    restrict([*_PROGRAM_DIRECTORIES, os.path.dirname(program)], options.read, options.write)
    return _run([program, *options.argv[1:]])


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="limited", allow_abbrev=False)
    parser.add_argument("--read", action="append", default=[])
    parser.add_argument("--write", action="append", default=[])
    parser.add_argument("--memory", type=int, required=True)
    parser.add_argument("--cpu", type=int, required=True)
    parser.add_argument("--file-size", type=int, required=True)
    parser.add_argument("argv", nargs="+")
    return parser


def _run(argv: Sequence[str]) -> int:
    with subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        output = child.stdout.read(MAX_OUTPUT + 1)
        if len(output) > MAX_OUTPUT:
            child.kill()
            print(f"it printed more than {MAX_OUTPUT >> 20} MiB", file=sys.stderr)
            return _EXIT_LIMIT
        code = child.wait()
    sys.stdout.buffer.write(output)
    if code < 0:
        print(f"signal {-code} ended it; it may have reached a limit", file=sys.stderr)
        return 128 - code
    return code


def restrict(programs: Sequence[str], reads: Sequence[str], writes: Sequence[str]) -> bool:
    """Take all other files from this process and from those which it starts.

    :param programs: directories of programs and their libraries.
    :param reads: files to read.
    :param writes: files which exist, to read and to write.
    :returns: False where the kernel has no Landlock; nothing is restricted then.
    :raises OSError: a file cannot be opened.
    """
    libc = ctypes.CDLL(None, use_errno=True)
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


def _checked(libc: ctypes.CDLL, result: int) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), "Landlock")
    return result


if __name__ == "__main__":
    sys.exit(main())
