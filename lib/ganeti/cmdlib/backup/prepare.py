"""Preparing an export to another cluster: making the credentials of the source.

The other cluster makes disks of the sizes which the configuration says. So these become the sizes
which the disks really have.
"""

from __future__ import annotations

from typing import TypedDict

from ganeti.cmdlib import prereq
from ganeti.cmdlib.base import LogicalUnit, executes
from ganeti.cmdlib.ops.disks import sizes, specs
from ganeti.cmdlib.ops.transfer import handshake, signed
from ganeti.constants.instance import EXPORT_REMOTE
from ganeti.objects import Node
from ganeti.opcodes.backup import OpBackupPrepare
from ganeti.wire.calls import backup as calls


class ExportCredentials(TypedDict):
    """What an export to another cluster needs; the keys are published.

    Name of the key and certificate are signed with the cluster domain secret, see
    :mod:`ganeti.cmdlib.ops.transfer.handshake`.
    """

    handshake: list[int | str]
    x509_key_name: list[str]
    x509_ca: str


@executes(OpBackupPrepare)
class LUBackupPrepare(LogicalUnit[OpBackupPrepare, Node]):
    """Make a key on the primary node, sign its name and its certificate, and measure the disks.

    Result: the credentials; None for a local export.
    """

    def expand_names(self) -> None:
        shared = self.op.mode != EXPORT_REMOTE
        self.lock_instance(self.op.instance_name, self.op.instance_uuid, shared=shared)

    def check_prereq(self) -> Node:
        assert self.instance is not None
        prereq.require_not_forthcoming(self.instance, "export")
        node = self.config.node(self.instance.primary_node)
        prereq.require_online(node)
        return node

    def exec(self, plan: Node) -> ExportCredentials | None:
        if self.op.mode != EXPORT_REMOTE:
            return None
        secret = handshake.domain_secret()
        self._record_sizes()
        name, certificate = self.rpc.call(
            calls.X509_CERT_CREATE, plan.uuid, validity_s=handshake.CERT_VALIDITY_S
        ).payload()
        return {
            "handshake": handshake.greeting(secret),
            "x509_key_name": handshake.signed_key(secret, name),
            "x509_ca": signed.sign_certificate(secret, certificate, signed.new_salt()),
        }

    def _record_sizes(self) -> None:
        assert self.instance is not None
        disks = self.config.instance_disks(self.instance)
        with self.config.transaction() as change:
            for disk in sizes.real(self.rpc, self.instance, disks):
                if disk.size != change.data.disks[disk.uuid].size:
                    self.log.info(f"{disk.iv_name} has {disk.size} MiB")
                    change.disks.update(specs.resized(change.data.disks[disk.uuid], disk.size))
