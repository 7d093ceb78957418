"""The UEFI firmware and the TPM of a guest.

Both have a persistent state: UEFI stores boot entries and keys, a TPM the secrets of the guest. The
state must be on every node on which the guest runs, so it is on a small disk of the instance, with
the same disk template as its other disks. The name of the disk, ``efivars`` or ``tpm``, says what
it is for. The guest does not see these disks.

UEFI is OVMF: constant code, and a template of the variables, which is written to an empty disk at
the first start. The TPM is swtpm, a process per guest, which ends when QEMU closes its connection.

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
from ganeti.hypervisor import host
from ganeti.hypervisor.kvm.argv import Ovmf
from ganeti.hypervisor.kvm.layout import Layout
from ganeti.platform import systemd
from ganeti.utils import fs, process

#: The places of OVMF in distributions: the code, and the template of its variables.
_KNOWN_OVMF = (
    ("/usr/share/OVMF/OVMF_CODE_4M.fd", "/usr/share/OVMF/OVMF_VARS_4M.fd"),
    ("/usr/share/OVMF/OVMF_CODE.fd", "/usr/share/OVMF/OVMF_VARS.fd"),
    ("/usr/share/edk2/ovmf/OVMF_CODE.fd", "/usr/share/edk2/ovmf/OVMF_VARS.fd"),
    ("/usr/share/edk2/x64/OVMF_CODE.4m.fd", "/usr/share/edk2/x64/OVMF_VARS.4m.fd"),
    ("/usr/share/qemu/ovmf-x86_64-code.bin", "/usr/share/qemu/ovmf-x86_64-vars.bin"),
)
# A firmware volume begins with zeros, its type and its length; then comes its signature.
_SIGNATURE_AT, _SIGNATURE = 40, b"_FVH"
_SECTOR = 512
_TPM_TIMEOUT_S = 30.0


def find_ovmf(hvparams: Mapping[str, Any]) -> Ovmf:
    """Return the firmware which the parameters name, else the one which is installed.

    :raises HypervisorError: this node has no such file, or no firmware.
    """
    code, template = hvparams.get("firmware_path"), hvparams.get("firmware_vars_path")
    if bool(code) != bool(template):
        raise errors.HypervisorError(
            "parameters firmware_path and firmware_vars_path belong together: set both or none"
        )
    candidates = [(code, template)] if code and template else _KNOWN_OVMF
    for code_file, template_file in candidates:
        if os.path.isfile(code_file) and os.path.isfile(template_file):
            return Ovmf(code_file, template_file, os.path.getsize(template_file))
    if code:
        raise errors.HypervisorError(
            f"parameter firmware_path: {code} or {template} is not a file on this node"
        )
    raise errors.HypervisorError(
        "parameter firmware: OVMF is not installed on this node. "
        "The package is called ovmf or edk2-ovmf."
    )


def prepare_variables(path: str, ovmf: Ovmf) -> None:
    """Write the template of the variables to an empty disk; keep variables which it has.

    :param path: the disk.
    :raises HypervisorError: the disk is too small, has other content, or cannot be written.
    """
    try:
        fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        try:
            head = os.pread(fd, ovmf.variables_size, 0)
            if len(head) < ovmf.variables_size or ovmf.variables_size % _SECTOR:
                raise errors.HypervisorError(
                    f"disk {hv.KVM_UEFI_DISK} has less than the {ovmf.variables_size} bytes which "
                    f"{ovmf.variables} needs"
                )
            if head[_SIGNATURE_AT : _SIGNATURE_AT + len(_SIGNATURE)] == _SIGNATURE:
                return
            if head.strip(b"\0"):
                raise errors.HypervisorError(
                    f"disk {hv.KVM_UEFI_DISK} has a content which is not UEFI variables. "
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
    """Return the path of the program ``swtpm``.

    :raises HypervisorError: it is not installed.
    """
    program = shutil.which("swtpm", path=process.DEFAULT_PATH)
    if program is None:
        raise errors.HypervisorError("parameter tpm_version: swtpm is not installed on this node")
    return program


def swtpm_argv(
    program: str, version: str, state: str, socket: str, pid_file: str, log_file: str
) -> list[str]:
    """Return the command which starts a TPM; it ends when QEMU closes its connection.

    :param version: ``1.2`` or ``2.0``.
    :param state: the disk which holds the TPM's state.
    """
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
    """Start the TPM of a guest; it listens on its socket when this function returns.

    :param state: the disk which holds the TPM's state.
    :raises HypervisorError: the TPM does not start.
    """
    # A path relative to its directory, because the kernel limits the length of a socket's path.
    command = swtpm_argv(
        find_swtpm(),
        version,
        os.path.realpath(state),
        os.path.basename(layout.tpm_socket),
        layout.tpm_pid_file,
        layout.tpm_log_file,
    )
    try:
        process.run(
            systemd.in_scope("tpm", layout.name, command),
            timeout_s=_TPM_TIMEOUT_S,
            cwd=layout.control_dir,
        )
    except errors.CommandError as err:
        raise errors.HypervisorError(f"cannot start the TPM: {err}") from err


def end_tpm(layout: Layout) -> None:
    """End a TPM to which QEMU did not connect, and remove the files of the TPM."""
    try:
        pid = int(fs.read_file(layout.tpm_pid_file))
        # The pid may belong to another process by now.
        ours = os.path.basename(layout.tpm_socket).encode() in fs.read_bytes(f"/proc/{pid}/cmdline")
        if ours:
            os.kill(pid, signal.SIGTERM)
            host.wait_gone(pid, _TPM_TIMEOUT_S)
    except (OSError, ValueError):
        # There is no file or no process: the TPM has ended itself.
        pass
    fs.remove_file(layout.tpm_pid_file)
    fs.remove_file(layout.tpm_socket)
