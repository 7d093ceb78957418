"""The files of a guest on its node: sockets, logs and state."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from ganeti.hypervisor.base import require_file_name
from ganeti.platform import paths


class SpiceFiles(NamedTuple):
    """The files with which QEMU proves its identity to SPICE clients."""

    authority: str = ""  # certificate of the authority
    certificate: str = ""  # certificate and its key


@dataclass(frozen=True, slots=True)
class Layout:
    """Files of one guest on this node."""

    kvm_root: str
    log_dir: str
    name: str
    spice: SpiceFiles = SpiceFiles()

    @property
    def pid_file(self) -> str:
        """The pid of the guest; QEMU writes it."""
        return f"{self.kvm_root}/pid/{self.name}"

    @property
    def control_dir(self) -> str:
        """Directory of the sockets."""
        return f"{self.kvm_root}/ctrl"

    def socket(self, kind: str) -> str:
        """Return the path of a socket.

        :param kind: ``monitor``, ``serial``, ``qmp``, ``kvmd``, ``qga`` or ``tpm``.
        """
        return f"{self.control_dir}/{self.name}.{kind}"

    @property
    def runtime_file(self) -> str:
        """The runtime file, see :mod:`ganeti.hypervisor.kvm.runtime`."""
        return f"{self.kvm_root}/conf/{self.name}.runtime"

    @property
    def nic_dir(self) -> str:
        """Directory with a file for each NIC, which holds the name of its tap device."""
        return f"{self.kvm_root}/nic/{self.name}"

    @property
    def chroot_dir(self) -> str:
        """Empty directory for the parameter ``use_chroot``."""
        return f"{self.kvm_root}/chroot/{self.name}"

    @property
    def uid_file(self) -> str:
        """The user id of the guest, if it was taken from the pool."""
        return f"{self.kvm_root}/uid/{self.name}"

    @property
    def shutdown_file(self) -> str:
        """Marks that the guest was shut down from inside."""
        return f"{self.control_dir}/{self.name}.shutdown"

    @property
    def paused_file(self) -> str:
        """Marks that the guest was started paused, as it was asked for."""
        return f"{self.control_dir}/{self.name}.paused"

    @property
    def migration_certificate_file(self) -> str:
        """The certificate of the last migration, with its key."""
        return f"{self.control_dir}/{self.name}.migration.pem"

    @property
    def migration_pid_file(self) -> str:
        """The pid of the process which waits for the source; it is locked while that lives."""
        return f"{self.control_dir}/{self.name}.migration.pid"

    @property
    def migration_log_file(self) -> str:
        """The messages of that process."""
        return f"{self.log_dir}/{self.name}.migration.log"

    @property
    def tpm_socket(self) -> str:
        """The socket between QEMU and the TPM."""
        return self.socket("tpm")

    @property
    def tpm_pid_file(self) -> str:
        """The pid of the TPM; the TPM writes it."""
        return f"{self.control_dir}/{self.name}.tpm.pid"

    @property
    def tpm_log_file(self) -> str:
        """The messages of the TPM."""
        return f"{self.log_dir}/{self.name}.tpm.log"

    @property
    def log_file(self) -> str:
        """The messages of QEMU."""
        return f"{self.log_dir}/{self.name}.log"

    @property
    def console_log_file(self) -> str:
        """Link to the output of the guest's serial console."""
        return f"{self.log_dir}/{self.name}.console.log"


def of(instance_name: str) -> Layout:
    """Return the files of a guest on this node.

    :raises HypervisorError: the name cannot be the name of a file.
    """
    here = paths.current()
    return Layout(
        here.kvm_root,
        here.log_kvm_dir,
        require_file_name(instance_name),
        SpiceFiles(here.spice_cacert_file, here.spice_cert_file),
    )
