"""Node calls between two releases of this project.

While a cluster changes its version, and where a node was left out, a master and a node may have
different releases. Each request has the release of its sender. A receiver of another release
follows these rules; one of the same release takes nothing which it does not know.

* Unknown fields of objects, unknown parameters and unknown checks of a node are ignored. Those
  which have a value are named to the caller, who says so in the log of the job.
* A missing field has its default, and a missing parameter the default of the receiver.
* Further arguments are ignored while they are empty; with a value they are an error. A missing
  argument has its default, if its declaration has one.
* An unknown call is an error. Errors of this kind name both releases.

So what must not be ignored is a new argument, or a new call (``doc/design-upgrade.rst``).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping
from typing import Any

from ganeti import RELEASE, errors
from ganeti.constants import instance as instance_const
from ganeti.constants import net
from ganeti.objects import hvparams, hypervisors
from ganeti.objects.instance import FilledInstance, FilledNic
from ganeti.wire import json

# Of a header; proxies may refuse longer ones.
_MAX_CHARS = 2000


class Peer:
    """The other end of a call, which has another release.

    :ivar release: its release, such as ``0.10.0``.
    :ivar ignored: what this end has ignored in the arguments although it had a value, such as
        ``instance/nics/0/speed``.
    """

    def __init__(self, release: str) -> None:
        self.release = release
        self.ignored: list[str] = []

    def __str__(self) -> str:
        return f"the caller has release {self.release}, this node {RELEASE}"

    def ignore(self, place: str, value: Any) -> None:
        """Note that something was ignored; what is empty need not be said."""
        if value:
            self.ignored.append(place)


def peer_of(release: str) -> Peer | None:
    """Return the other end; None if it has the release of this program, or did not say."""
    return None if release in ("", RELEASE) else Peer(release)


def ignored_text(peer: Peer) -> str:
    """Return the names of what was ignored, as the value of a header; empty for nothing."""
    names: list[str] = []
    for name in dict.fromkeys(peer.ignored):
        names.append(name[:_MAX_CHARS])
        if len(json.dumps(names)) > _MAX_CHARS:
            names[-1] = "and more"
            break
    return json.dumps(names) if names else ""


def parse_ignored(text: str) -> list[str]:
    """Read the names in a header; an empty list if it has another form."""
    try:
        found = json.loads(text) if text else []
    except errors.ParseError:
        return []
    return [str(name) for name in found] if isinstance(found, list) else []


def only(known: Collection[str], values: Mapping[str, Any], peer: Peer, place: str) -> Any:
    """Return a dictionary without the names which this release does not know."""
    for name, value in values.items():
        if name not in known:
            peer.ignore(f"{place}/{name}", value)
    return {name: value for name, value in values.items() if name in known}


def filled_hvparams(hypervisor: Any, values: Mapping[str, Any], peer: Peer, place: str) -> Any:
    """Give parameters of a hypervisor the names which this release has.

    Those of a hypervisor which this release does not have are returned as they are.
    """
    if hypervisor not in hypervisors.ALL:
        return values
    defaults = hvparams.defaults(hypervisor)
    return {**defaults, **only(defaults, values, peer, place)}


def filled_nic(nic: FilledNic) -> FilledNic:
    """Add parameters which the release of the sender does not have."""
    return dataclasses.replace(nic, nicparams={**net.NIC_DEFAULTS, **nic.nicparams})


def filled_instance(instance: FilledInstance, peer: Peer, place: str) -> FilledInstance:
    """Give an instance the parameters which this release has."""
    return dataclasses.replace(
        instance,
        beparams={**instance_const.BE_DEFAULTS, **instance.beparams},
        hvparams=filled_hvparams(instance.hypervisor, instance.hvparams, peer, f"{place}/hvparams"),
        nics=tuple(map(filled_nic, instance.nics)),
    )
