"""Stopping a guest: press its power button, or end its QEMU."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from ganeti.hypervisor.kvm import states
from ganeti.hypervisor.kvm.guests import Guests
from ganeti.hypervisor.kvm.qmp import ConnectionLost


class Stopper:
    """Stops guests, and removes what they leave.

    :param guests: those of this node.
    """

    def __init__(self, guests: Guests) -> None:
        self._guests = guests

    def stop(self, instance_name: str, hvparams: Mapping[str, Any], *, force: bool = False) -> None:
        """Press the power button; with ``force``, or without ACPI, end the process.

        :raises HypervisorError: QEMU does not answer, or does not end.
        """
        with self._guests.locked(instance_name) as layout:
            if not self._guests.qemu(layout):
                return
            if force or not hvparams.get("acpi", True):
                self._guests.end_process(layout)
                self._guests.remove_files(layout)
                return
            try:
                with self._guests.control(layout) as control:
                    if control.execute("query-status").get("status") in states.NO_POWER_BUTTON:
                        control.execute("quit")
                    else:
                        control.execute("system_powerdown")
            except ConnectionLost:
                logging.info("instance %s ended before QEMU answered", instance_name)

    def cleanup(self, instance_name: str) -> None:
        """Remove the files of a guest that does not run."""
        with self._guests.locked(instance_name) as layout:
            if not self._guests.qemu(layout):
                self._guests.remove_files(layout)
