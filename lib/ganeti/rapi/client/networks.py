"""Networks, and their connections to node groups."""

# ruff: noqa: N802 - the names of methods are published

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .transport import Transport, given, options


class Networks(Transport):
    """Networks, and their connections to node groups."""

    def GetNetworks(self, bulk: bool = False, reason: str | None = None) -> list[Any]:
        """Return the names of the networks, or whole objects."""
        return list(self._list("networks", "name", bulk, reason))

    def GetNetwork(self, network: str, reason: str | None = None) -> dict[str, Any]:
        """Return the description of a network."""
        return dict(self._get(self._path("networks", network), options(reason)))

    def CreateNetwork(
        self,
        network_name: str,
        network: str,
        gateway: str | None = None,
        network6: str | None = None,
        gateway6: str | None = None,
        mac_prefix: str | None = None,
        add_reserved_ips: Sequence[str] | None = None,
        tags: Sequence[str] | str | None = None,
        dry_run: bool = False,
        reason: str | None = None,
    ) -> int:
        """Create a network.

        :param tags: a list, or a text with commas.
        """
        if isinstance(tags, str):
            tags = [tag for tag in tags.split(",") if tag]
        return int(
            self._post(
                self._path("networks"),
                options(reason, dry_run=dry_run),
                {
                    "network_name": network_name,
                    "network": network,
                    **given(
                        gateway=gateway,
                        network6=network6,
                        gateway6=gateway6,
                        mac_prefix=mac_prefix,
                        add_reserved_ips=add_reserved_ips,
                        tags=tags,
                    ),
                },
            )
        )

    def ConnectNetwork(
        self,
        network_name: str,
        group_name: str,
        mode: str,
        link: str,
        vlan: str = "",
        dry_run: bool = False,
        reason: str | None = None,
    ) -> int:
        """Connect a network to a node group."""
        return int(
            self._put(
                self._path("networks", network_name, "connect"),
                options(reason, dry_run=dry_run),
                {
                    "group_name": group_name,
                    "network_mode": mode,
                    "network_link": link,
                    "network_vlan": vlan,
                },
            )
        )

    def DisconnectNetwork(
        self, network_name: str, group_name: str, dry_run: bool = False, reason: str | None = None
    ) -> int:
        """Disconnect a network from a node group."""
        return int(
            self._put(
                self._path("networks", network_name, "disconnect"),
                options(reason, dry_run=dry_run),
                {"group_name": group_name},
            )
        )

    def ModifyNetwork(self, network: str, reason: str | None = None, **kwargs: Any) -> int:
        """Change the parameters of a network."""
        return int(self._put(self._path("networks", network, "modify"), options(reason), kwargs))

    def DeleteNetwork(self, network: str, dry_run: bool = False, reason: str | None = None) -> int:
        """Remove a network."""
        return int(self._delete(self._path("networks", network), options(reason, dry_run=dry_run)))

    def RenameNetwork(self, network: str, new_name: str, reason: str | None = None) -> int:
        """Rename a network."""
        return int(
            self._put(
                self._path("networks", network, "rename"), options(reason), {"new_name": new_name}
            )
        )
