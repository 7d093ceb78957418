"""Change of the netmask of the address of the master, while the address is configured."""

from __future__ import annotations

from ganeti import errors
from ganeti.backend.cluster import master
from ganeti.backend.registry import serves
from ganeti.constants import net as net_c
from ganeti.objects.transfer import MasterNetworkParameters
from ganeti.platform import machine
from ganeti.utils import net, process
from ganeti.wire import calls

_COMMAND_TIMEOUT_S = 30.0


@serves(calls.NODE_CHANGE_MASTER_NETMASK)
def change(old_netmask: int, netmask: int, master_ip: str, master_netdev: str) -> None:
    """Replace the netmask of the master's address; the address stays reachable meanwhile.

    :raises IPAddressError: the text is not an IP address.
    :raises OpExecError: the address cannot be changed.
    """
    if not net.is_ip(master_ip):
        raise errors.IPAddressError(f"not an IP address: {master_ip!r:.80}")
    # In 127.0.0.0/8 the machine answers for every address; nothing is configured.
    if (
        old_netmask == netmask
        or master_ip.startswith("127.")
        or not machine.current().owns_address(master_ip)
    ):
        return
    family = net_c.IP6_FAMILY if net.is_ipv6(master_ip) else net_c.IP4_FAMILY
    old, new = (
        MasterNetworkParameters(
            uuid="", ip=master_ip, netmask=bits, netdev=master_netdev, ip_family=family
        )
        for bits in (old_netmask, netmask)
    )
    try:
        process.run(master.add_argv(new), timeout_s=_COMMAND_TIMEOUT_S)
        process.run(master.remove_argv(old), timeout_s=_COMMAND_TIMEOUT_S)
    except errors.CommandError as err:
        raise errors.OpExecError(
            f"cannot change the netmask of master address {master_ip}: {err}"
        ) from err
