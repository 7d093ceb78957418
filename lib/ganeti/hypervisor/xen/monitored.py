"""The domains of this machine, for the monitoring daemon and **mon-collector**."""

from __future__ import annotations

from ganeti.hypervisor.xen import xl
from ganeti.mond.collectors.xen import XenGuest


def guests(with_uptime: bool) -> list[XenGuest]:
    """Return all domains.

    :param with_uptime: ask for their uptime as well, with a second call of ``xl``.
    :raises HypervisorError: Xen does not answer.
    """
    found = xl.domains()
    uptimes = xl.uptimes() if with_uptime and found else {}
    return [XenGuest(one.name, one.state, one.time_s, uptimes.get(one.id)) for one in found]
