"""The files of a guest on its node: sockets, logs, what is remembered."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple


class SpiceFiles(NamedTuple):
    """What SPICE identifies itself with on a node."""

    authority: str = ""
    certificate: str = ""  # with its key


@dataclass(frozen=True, slots=True)
class Layout:
    """Files of one guest on this node."""

    kvm_root: str
    log_dir: str
    name: str
    spice: SpiceFiles = SpiceFiles()

    @property
    def pid_file(self) -> str:
        """Written by QEMU."""
        return f"{self.kvm_root}/pid/{self.name}"

    @property
    def control_dir(self) -> str:
        """Directory of the sockets."""
        return f"{self.kvm_root}/ctrl"

    def socket(self, kind: str) -> str:
        """``monitor``, ``serial``, ``qmp``, ``kvmd`` or ``qga``."""
        return f"{self.control_dir}/{self.name}.{kind}"

    @property
    def runtime_file(self) -> str:
        """See :mod:`ganeti.hypervisor.kvm.runtime`."""
        return f"{self.kvm_root}/conf/{self.name}.runtime"

    @property
    def nic_dir(self) -> str:
        """A file per NIC with the name of its tap interface."""
        return f"{self.kvm_root}/nic/{self.name}"

    @property
    def chroot_dir(self) -> str:
        """Empty directory for ``use_chroot``."""
        return f"{self.kvm_root}/chroot/{self.name}"

    @property
    def uid_file(self) -> str:
        """The user id it runs with, when it was taken from the pool."""
        return f"{self.kvm_root}/uid/{self.name}"

    @property
    def shutdown_file(self) -> str:
        """There when the guest was shut down from inside."""
        return f"{self.control_dir}/{self.name}.shutdown"

    @property
    def tpm_socket(self) -> str:
        """Between QEMU and the TPM."""
        return self.socket("tpm")

    @property
    def tpm_pid_file(self) -> str:
        """Written by the TPM."""
        return f"{self.control_dir}/{self.name}.tpm.pid"

    @property
    def tpm_log_file(self) -> str:
        """The TPM's messages."""
        return f"{self.log_dir}/{self.name}.tpm.log"

    @property
    def log_file(self) -> str:
        """QEMU's own messages."""
        return f"{self.log_dir}/{self.name}.log"

    @property
    def console_log_file(self) -> str:
        """What the guest prints on its serial console (virtual clusters only)."""
        return f"{self.log_dir}/{self.name}.console.log"
