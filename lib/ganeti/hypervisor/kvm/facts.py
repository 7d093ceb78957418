"""Facts about the installed QEMU: version, options, and whether KVM works with it.

The facts are kept in a file (for the directory see ``Machine.shared_cache_dir``) and gathered again
after a reboot of the node, after an update of QEMU, and for another user.
"""

from __future__ import annotations

import contextlib
import logging
import os
import zlib
from dataclasses import dataclass
from typing import Any

from ganeti import errors
from ganeti.hypervisor.kvm import parse
from ganeti.hypervisor.kvm.accelerator import KVM, TCG, probe
from ganeti.platform import machine
from ganeti.utils import fs, process
from ganeti.wire import json

_QUERY_TIMEOUT_S = 60.0


@dataclass(frozen=True, slots=True)
class QemuFacts:
    """One installed QEMU on this machine, for this user."""

    program: str  # the emulator itself, not a script which starts it
    version: tuple[int, int, int]
    options: frozenset[str]  # names of options, without the dash
    default_machine: str
    accelerator: str  # kvm or tcg: the best which works

    def to_dict(self) -> dict[str, Any]:
        """Return the form in the file."""
        return {
            "program": self.program,
            "version": list(self.version),
            "options": sorted(self.options),
            "default_machine": self.default_machine,
            "accelerator": self.accelerator,
        }

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> QemuFacts:
        """Read the form in the file.

        :raises ValueError, KeyError, TypeError: the data is damaged.
        """
        major, minor, patch = (int(n) for n in data["version"])
        if data["accelerator"] not in (KVM, TCG):
            raise ValueError("unknown accelerator")
        return cls(
            str(data["program"]),
            (major, minor, patch),
            frozenset(data["options"]),
            str(data["default_machine"]),
            data["accelerator"],
        )


def resolve_program(kvm_path: str) -> str:
    """Return the emulator which the parameter ``kvm_path`` means.

    On some systems ``kvm`` is a script which adds ``-enable-kvm``. This option contradicts the
    accelerator on the command line, so the emulator is searched in the directory of the script and
    in the path.

    :raises HypervisorError: there is no such program.
    """
    if not os.access(kvm_path, os.X_OK) or os.path.isdir(kvm_path):
        raise errors.HypervisorError(
            f"kvm_path {kvm_path} is not an executable file. Is QEMU installed?"
        )
    try:
        with open(kvm_path, "rb") as stream:
            head = stream.read(4096)
    except OSError:
        # It may be executed but not read, so it cannot be a script.
        return kvm_path
    if not head.startswith(b"#!") or b"-enable-kvm" not in head:
        return kvm_path
    for directory in (os.path.dirname(kvm_path), *process.DEFAULT_PATH.split(":")):
        candidate = os.path.join(directory, "qemu-system-x86_64")
        if os.access(candidate, os.X_OK):
            return candidate
    return kvm_path


def _boot_id() -> str:
    try:
        return fs.read_file("/proc/sys/kernel/random/boot_id").strip()
    except OSError:
        return ""


def _identity(program: str) -> list[Any]:
    """Everything on which the facts depend."""
    stat = os.stat(program)
    return [
        _boot_id(),
        program,
        stat.st_size,
        stat.st_mtime_ns,
        os.geteuid(),
        os.access("/dev/kvm", os.R_OK | os.W_OK),
    ]


def _query(argv: list[str]) -> str:
    try:
        return process.run(argv, timeout_s=_QUERY_TIMEOUT_S).stdout
    except errors.CommandError as err:
        raise errors.HypervisorError(f"QEMU does not answer: {err}") from err


def gather(program: str) -> QemuFacts:
    """Gather the facts anew: ask QEMU, and probe KVM.

    :raises HypervisorError: the program is not a working QEMU.
    """
    help_text = _query([program, "--help"])
    try:
        version = parse.parse_version(help_text)
    except errors.ParseError as err:
        raise errors.HypervisorError(f"{program} is not QEMU: {err}") from err
    machines = _query([program, "-machine", "?"])
    limit_s = machine.current().kvm_probe_timeout_s
    works = os.access("/dev/kvm", os.R_OK | os.W_OK) and probe(program, KVM, timeout_s=limit_s)
    return QemuFacts(
        program,
        version,
        parse.parse_options(help_text),
        parse.parse_default_machine(machines),
        KVM if works else TCG,
    )


def of(kvm_path: str) -> QemuFacts:
    """Return the facts about an installed QEMU, from the file when they are valid.

    :param kvm_path: the hypervisor parameter of this name.
    :raises HypervisorError: there is no such program, or it is not a working QEMU.
    """
    program = resolve_program(kvm_path)
    identity = _identity(program)
    root = machine.current().shared_cache_dir()
    # One file for each program and user; several versions of QEMU may be installed.
    digest = zlib.crc32(f"{program} {os.geteuid()}".encode())
    path = f"{root}/.qemu-{digest:08x}"
    with contextlib.suppress(OSError, errors.ParseError, ValueError, KeyError, TypeError):
        remembered = json.loads(fs.read_file(path))
        if remembered["identity"] == identity:
            return QemuFacts.from_dict(remembered["facts"])
    facts = gather(program)
    try:
        fs.make_dirs(root, 0o775)
        fs.write_file(
            path,
            json.dumps({"identity": identity, "facts": facts.to_dict()}),
            mode=0o644,
            sync=False,
        )
    except OSError as err:
        # The next call gathers the facts again, which takes a second.
        logging.warning("cannot save the facts about %s: %s", program, err)
    return facts
