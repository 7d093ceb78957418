"""Change the devices of a running guest while the instance is modified (hotplug).

Whether that is possible is asked once, before anything is changed. If it is not, changes stay in
the configuration and take effect when the guest is started the next time. The same is true of a
disk which the guest does not take; a warning says so, and the operation goes on. A NIC which it
does not take is an error, because a guest without its network is not what the user wants.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from ganeti import errors
from ganeti.cmdlib import prereq
from ganeti.cmdlib.base import Context, why
from ganeti.cmdlib.ops.liveness import location
from ganeti.constants.net import HOTPLUG_TARGET_DISK, HOTPLUG_TARGET_NIC
from ganeti.wire.calls import HOTPLUG_DEVICE, HOTPLUG_SUPPORTED

if TYPE_CHECKING:
    from ganeti.objects import Disk, Instance, Nic
    from ganeti.rpc import Result


class Hotplug:
    """The devices of one guest. The constructor asks the nodes for its state, see
    :func:`~ganeti.cmdlib.ops.liveness.location.require_only_on_primary`.

    :ivar running: the guest runs.
    :ivar possible: the guest runs, hotplug is wanted, and its hypervisor is able to do it.
    """

    def __init__(
        self, ctx: Context, instance: Instance, *, wanted: bool, certain_to: str = ""
    ) -> None:
        self._ctx = ctx
        self._instance = instance
        self.running = prereq.is_running(
            location.require_only_on_primary(ctx, instance, certain_to=certain_to)
        )
        self.possible = False
        if self.running and wanted:
            answer = ctx.rpc.call(HOTPLUG_SUPPORTED, instance.primary_node, instance=instance)
            self.possible = answer.failure is None
            if answer.failure is not None:
                ctx.log.warn(
                    f"devices of instance {instance.name} cannot be changed while it runs:"
                    f" {why(answer.failure)}",
                    hint="Changes take effect when it is started the next time.",
                )

    def disk(self, action: str, disk: Disk, index: int, link: list[Any] | None = None) -> bool:
        """Add, change or remove a disk of the guest.

        :param action: one of ``HOTPLUG_ACTION_*``.
        :param link: the answer of the disk's activation on the node, for a new disk.
        :returns: whether the guest was changed.
        """
        return self._plug(action, HOTPLUG_TARGET_DISK, (disk, self._instance), index, link)

    def nic(self, action: str, nic: Nic, index: int) -> None:
        """Add, change or remove a NIC of the guest, if that is possible.

        :param action: one of ``HOTPLUG_ACTION_*``.
        :raises OpExecError: the guest was not changed.
        """
        if not self.possible:
            return
        instance = dataclasses.replace(self._instance, nics=(nic,))
        filled = self._ctx.config.filled(instance).nics[0]
        answer = self._ask(action, HOTPLUG_TARGET_NIC, filled, index, None)
        if answer.failure is not None:
            raise errors.OpExecError(
                f"NIC {index} of the running instance {self._instance.name} was not changed:"
                f" {why(answer.failure)}"
            ) from answer.failure
        self._ctx.log.info(f"NIC {index} of the running instance was changed")

    def _ask(
        self, action: str, kind: str, device: Any, seq: int, extra: list[Any] | None
    ) -> Result:
        return self._ctx.rpc.call(
            HOTPLUG_DEVICE,
            self._instance.primary_node,
            instance=self._ctx.config.instance(self._instance.uuid),
            action=action,
            dev_type=kind,
            device=device,
            extra=extra,
            seq=seq,
        )

    def _plug(self, action: str, kind: str, device: Any, seq: int, extra: list[Any] | None) -> bool:
        if not self.possible:
            return False
        answer = self._ask(action, kind, device, seq, extra)
        if answer.failure is not None:
            self._ctx.log.warn(
                f"{kind} {seq} of the running instance {self._instance.name} was not changed:"
                f" {why(answer.failure)}",
                hint="The change takes effect when it is started the next time.",
            )
            return False
        self._ctx.log.info(f"{kind} {seq} of the running instance was changed")
        return True
