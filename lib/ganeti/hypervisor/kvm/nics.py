"""What KVM passes to :mod:`ganeti.hypervisor.net` for the NICs of a guest."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ganeti.hypervisor.kvm import devices, user_network
from ganeti.hypervisor.kvm.layout import Layout
from ganeti.hypervisor.net.connect import GuestNetwork
from ganeti.hypervisor.net.tap import TapFeatures
from ganeti.platform import paths

_SCRIPT = "kvm-vif-bridge"


def guest_network(layout: Layout, tags: Sequence[str] = ()) -> GuestNetwork:
    """Return the names and files of the host's side of a guest's network.

    :param tags: of the instance.
    """
    script = f"{paths.current().conf_dir}/{_SCRIPT}"
    return GuestNetwork(layout.name, layout.nic_dir, script, tags)


def tap_features(hvparams: Mapping[str, Any], owner_uid: int | None) -> TapFeatures:
    """Return what QEMU expects of the tap devices of a guest.

    :param owner_uid: user of QEMU, when it is not root.
    """
    return TapFeatures(
        queues=devices.nic_queues(hvparams),
        vnet_hdr=hvparams["nic_type"] == "paravirtual" and bool(hvparams.get("vnet_hdr", True)),
        vhost=devices.wants_vhost(hvparams),
        owner_uid=owner_uid,
    )


def host_nics(
    nics: Sequence[Mapping[str, Any]], instance_name: str
) -> list[Mapping[str, Any] | None]:
    """Return the NICs which need an interface on the host; None in the place of each other one.

    :raises HypervisorError: a NIC has user networking outside of a virtual cluster.
    """
    for nic in nics:
        user_network.check(nic, instance_name)
    return [None if user_network.serves(nic) else nic for nic in nics]
