"""UEFI and TPM: what a guest starts with, and where that remembers things.

Both remember: UEFI its boot entries and keys, a TPM the secrets a guest has put into it. What is
remembered must follow the guest to another node, so each lives on a small disk of the instance, of
whatever kind its other disks are. A disk is meant for it by its name: ``efivars`` or ``tpm``. The
guest does not see these as disks.

UEFI is OVMF: code that never changes, and a template of the variables, which is written to an empty
disk at the first start. The TPM is swtpm, a process per guest, that ends when QEMU leaves it.

Source: OVMF's README (layout of the flash), swtpm(8), QEMU's docs/specs/tpm.rst.
"""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Mapping
from typing import Any

from ganeti import errors
from ganeti.constants import hv
from ganeti.hypervisor.kvm import host
from ganeti.hypervisor.kvm.argv import Ovmf
from ganeti.hypervisor.kvm.layout import Layout
from ganeti.utils import fs, process

#: Where distributions put OVMF: code and the template of the variables that belongs to it.
_KNOWN_OVMF = (
    ("/usr/share/OVMF/OVMF_CODE_4M.fd", "/usr/share/OVMF/OVMF_VARS_4M.fd"),
    ("/usr/share/OVMF/OVMF_CODE.fd", "/usr/share/OVMF/OVMF_VARS.fd"),
    ("/usr/share/edk2/ovmf/OVMF_CODE.fd", "/usr/share/edk2/ovmf/OVMF_VARS.fd"),
    ("/usr/share/edk2/x64/OVMF_CODE.4m.fd", "/usr/share/edk2/x64/OVMF_VARS.4m.fd"),
    ("/usr/share/qemu/ovmf-x86_64-code.bin", "/usr/share/qemu/ovmf-x86_64-vars.bin"),
)
# A firmware volume has zeros, its kind and length, and at this place its signature.
_SIGNATURE_AT, _SIGNATURE = 40, b"_FVH"
_SECTOR = 512
_TPM_TIMEOUT_S = 30.0


def find_ovmf(hvparams: Mapping[str, Any]) -> Ovmf:
    """The firmware that the parameters name, or the one that is installed.

    :raises HypervisorError: there is none on this node.
    """
    code, template = hvparams.get("firmware_path"), hvparams.get("firmware_vars_path")
    if bool(code) != bool(template):
        raise errors.HypervisorError(
            "parameters firmware_path and firmware_vars_path belong together: set both or none"
        )
    candidates = [(code, template)] if code and template else _KNOWN_OVMF
    for one, other in candidates:
        if os.path.isfile(one) and os.path.isfile(other):
            return Ovmf(one, other, os.path.getsize(other))
    if code:
        raise errors.HypervisorError(
            f"parameter firmware_path: {code} or {template} is no file on this node"
        )
    raise errors.HypervisorError(
        "parameter firmware: no OVMF is installed on this node. "
        "The package is called ovmf or edk2-ovmf."
    )


def prepare_variables(path: str, ovmf: Ovmf) -> None:
    """Write the template to an empty disk; variables that are there stay.

    :raises HypervisorError: the disk is too small, or holds something else.
    """
    try:
        fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        try:
            head = os.pread(fd, ovmf.variables_size, 0)
            if len(head) < ovmf.variables_size or ovmf.variables_size % _SECTOR:
                raise errors.HypervisorError(
                    f"disk {hv.KVM_UEFI_DISK} has less than the {ovmf.variables_size} bytes that "
                    f"{ovmf.variables} needs"
                )
            if head[_SIGNATURE_AT : _SIGNATURE_AT + len(_SIGNATURE)] == _SIGNATURE:
                return
            if head.strip(b"\0"):
                raise errors.HypervisorError(
                    f"disk {hv.KVM_UEFI_DISK} holds something that is no UEFI variables. "
                    "An empty disk is filled at the first start."
                )
            os.pwrite(fd, fs.read_bytes(ovmf.variables), 0)
            os.fsync(fd)
        finally:
            os.close(fd)
    except OSError as err:
        raise errors.HypervisorError(
            f"cannot write the UEFI variables to {path}: {err.strerror}"
        ) from err


# TPM


def find_swtpm() -> str:
    """The program.

    :raises HypervisorError: it is not installed.
    """
    program = shutil.which("swtpm", path=process.DEFAULT_PATH)
    if program is None:
        raise errors.HypervisorError("parameter tpm_version: swtpm is not installed on this node")
    return program


def swtpm_argv(
    program: str, version: str, state: str, socket: str, pid_file: str, log_file: str
) -> list[str]:
    """The command of a TPM that leaves when QEMU does."""
    argv = [
        program,
        "socket",
        "--tpmstate",
        f"backend-uri=file://{state}",
        "--ctrl",
        f"type=unixio,path={socket},mode=0600",
        "--pid",
        f"file={pid_file}",
        "--log",
        f"file={log_file},level=1",
        "--terminate",
        "--daemon",
    ]
    return [*argv, "--tpm2"] if version == hv.KVM_TPM_2 else argv


def start_tpm(version: str, state: str, layout: Layout) -> None:
    """Start the TPM of a guest; it listens when this returns.

    :param state: the disk that it remembers things on.
    :raises HypervisorError: it does not start.
    """
    # Named from its directory, because the kernel limits the length of a socket's path.
    command = swtpm_argv(
        find_swtpm(),
        version,
        os.path.realpath(state),
        os.path.basename(layout.tpm_socket),
        layout.tpm_pid_file,
        layout.tpm_log_file,
    )
    try:
        process.run(command, timeout_s=_TPM_TIMEOUT_S, cwd=layout.control_dir)
    except errors.CommandError as err:
        raise errors.HypervisorError(f"cannot start the TPM: {err}") from err


def end_tpm(layout: Layout) -> None:
    """End a TPM that QEMU has not ended, because it never came to use it; remove its files."""
    try:
        pid = int(fs.read_file(layout.tpm_pid_file))
        # The pid may be somebody else's by now.
        ours = os.path.basename(layout.tpm_socket).encode() in fs.read_bytes(f"/proc/{pid}/cmdline")
        if ours:
            os.kill(pid, signal.SIGTERM)
            host.wait_gone(pid, _TPM_TIMEOUT_S)
    except (OSError, ValueError):
        # No file, or no process: it has ended itself.
        pass
    fs.remove_file(layout.tpm_pid_file)
    fs.remove_file(layout.tpm_socket)
