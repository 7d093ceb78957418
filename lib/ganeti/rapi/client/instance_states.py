"""What happens to a guest: start, stop, installation, moves and exports."""

# ruff: noqa: N802 - the names of methods are published

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .constants import INST_REINSTALL_REQV1
from .transport import GanetiApiError, Transport, given, options


class InstanceStates(Transport):
    """What happens to a guest: start, stop, installation, moves and exports."""

    def RebootInstance(
        self,
        instance: str,
        reboot_type: str | None = None,
        ignore_secondaries: bool | None = None,
        dry_run: bool = False,
        reason: str | None = None,
        **kwargs: Any,
    ) -> int:
        """Reboot an instance: ``soft``, ``hard`` or ``full``."""
        return int(
            self._post(
                self._path("instances", instance, "reboot"),
                options(
                    reason, dry_run=dry_run, type=reboot_type, ignore_secondaries=ignore_secondaries
                ),
                kwargs or None,
            )
        )

    def ShutdownInstance(
        self,
        instance: str,
        dry_run: bool = False,
        no_remember: bool = False,
        reason: str | None = None,
        **kwargs: Any,
    ) -> int:
        """Stop an instance."""
        return int(
            self._put(
                self._path("instances", instance, "shutdown"),
                options(reason, dry_run=dry_run, no_remember=no_remember or None),
                kwargs or None,
            )
        )

    def StartupInstance(
        self,
        instance: str,
        dry_run: bool = False,
        no_remember: bool = False,
        reason: str | None = None,
    ) -> int:
        """Start an instance."""
        return int(
            self._put(
                self._path("instances", instance, "startup"),
                options(reason, dry_run=dry_run, no_remember=no_remember or None),
            )
        )

    def ReinstallInstance(
        self,
        instance: str,
        os: str | None = None,
        no_startup: bool = False,
        osparams: Mapping[str, Any] | None = None,
        reason: str | None = None,
    ) -> int:
        """Reinstall the operating system."""
        path = self._path("instances", instance, "reinstall")
        if INST_REINSTALL_REQV1 in self.GetFeatures():
            body = {"start": not no_startup, **given(os=os, osparams=osparams)}
            return int(self._post(path, options(reason), body))
        if osparams:
            raise GanetiApiError("the server is too old to take parameters of the OS")
        return int(self._post(path, options(reason, os=os, nostartup=no_startup or None)))

    def PrepareExport(self, instance: str, mode: str, reason: str | None = None) -> int:
        """Prepare an export to another cluster."""
        return int(
            self._put(
                self._path("instances", instance, "prepare-export"), options(reason, mode=mode)
            )
        )

    def ExportInstance(
        self,
        instance: str,
        mode: str,
        destination: Any,
        shutdown: bool | None = None,
        remove_instance: bool | None = None,
        x509_key_name: Any = None,
        destination_x509_ca: str | None = None,
        compress: str | None = None,
        reason: str | None = None,
    ) -> int:
        """Export an instance to a node or another cluster."""
        return int(
            self._put(
                self._path("instances", instance, "export"),
                options(reason),
                {
                    "destination": destination,
                    "mode": mode,
                    **given(
                        shutdown=shutdown,
                        remove_instance=remove_instance,
                        x509_key_name=x509_key_name,
                        destination_x509_ca=destination_x509_ca,
                        compress=compress,
                    ),
                },
            )
        )

    def MigrateInstance(
        self,
        instance: str,
        mode: str | None = None,
        cleanup: bool | None = None,
        target_node: str | None = None,
        reason: str | None = None,
    ) -> int:
        """Migrate an instance to another node."""
        return int(
            self._put(
                self._path("instances", instance, "migrate"),
                options(reason),
                given(mode=mode, cleanup=cleanup, target_node=target_node),
            )
        )

    def FailoverInstance(
        self,
        instance: str,
        iallocator: str | None = None,
        ignore_consistency: bool | None = None,
        target_node: str | None = None,
        reason: str | None = None,
    ) -> int:
        """Fail an instance over to another node."""
        return int(
            self._put(
                self._path("instances", instance, "failover"),
                options(reason),
                given(
                    iallocator=iallocator,
                    ignore_consistency=ignore_consistency,
                    target_node=target_node,
                ),
            )
        )
