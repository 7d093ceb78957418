"""Reading the output of ``xl``.

Source: xl(1) of Xen 4.0 to 4.19.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ganeti import errors
from ganeti.constants import hv
from ganeti.wire import json

#: The domain in which this system runs.
DOM0 = "Domain-0"

# A name may have spaces. The columns after it are separated by spaces, or by a tab.
_LIST_LINE = re.compile(
    r"(?P<name>.*\S)\s+(?P<id>[0-9]{1,9})\s+(?P<memory>[0-9]{1,12})\s+(?P<vcpus>[0-9]{1,6})"
    r"\s+(?P<state>[a-z-]{5,8})\s+(?P<time>[0-9]{1,15}(\.[0-9]{1,9})?)",
    re.ASCII,
)
_UPTIME_LINE = re.compile(
    r"(?P<name>.*\S)\s+(?P<id>[0-9]{1,9})\s+"
    r"(?P<uptime>([0-9]{1,9} days?, +)?[0-9]{1,9}:[0-9]{2}:[0-9]{2})",
    re.ASCII,
)
_NUMBER = re.compile(r"[0-9]{1,15}", re.ASCII)


@dataclass(frozen=True, slots=True)
class Domain:
    """One domain in the list of ``xl``.

    :ivar state: the letters ``r`` (running), ``b`` (blocked), ``p`` (paused), ``s`` (shut down),
        ``c`` (crashed) and ``d`` (dying), each ``-`` where it does not apply.
    """

    name: str
    id: int
    memory_mib: int
    vcpus: int
    state: str
    time_s: float

    @property
    def is_paused(self) -> bool:
        """True if it runs no instruction until it is continued."""
        return "p" in self.state

    @property
    def has_crashed(self) -> bool:
        """True if its operating system has crashed, and what is left was kept."""
        return "c" in self.state

    @property
    def is_shut_down(self) -> bool:
        """True if its operating system has ended, and what is left was kept."""
        return "s" in self.state and not self.has_crashed

    @property
    def lives(self) -> bool:
        """True if it runs, can be continued, or has not yet given back all it used."""
        return not self.is_shut_down and not self.has_crashed


def parse_list(text: str) -> list[Domain]:
    """Read the output of ``xl list``.

    Domains without a name, which have died and whose memory is still in use by another domain, are
    left out.

    :raises ParseError: there is a line of another form, or the line of :data:`DOM0` is missing.
    """
    lines = [line.rstrip() for line in text.splitlines() if line.strip()]
    if not lines or not lines[0].startswith("Name"):
        raise errors.ParseError(f"expected a list of domains, found {text!r:.200}")
    domains = []
    for line in lines[1:]:
        match = _LIST_LINE.fullmatch(line)
        if match is None:
            raise errors.ParseError(
                f"expected a domain with id, memory and state, found {line!r:.200}"
            )
        if match["name"] == "(null)":
            continue
        domains.append(
            Domain(
                match["name"],
                int(match["id"]),
                int(match["memory"]),
                int(match["vcpus"]),
                match["state"],
                float(match["time"]),
            )
        )
    if not any(domain.id == 0 for domain in domains):
        raise errors.ParseError(f"the list of domains lacks {DOM0}: {text!r:.200}")
    return domains


def parse_uptimes(text: str) -> dict[int, str]:
    """Read the output of ``xl uptime``: id of a domain -> its time, such as ``1 day, 2:03:04``.

    Lines of another form are ignored.
    """
    found = {}
    for line in text.splitlines():
        match = _UPTIME_LINE.fullmatch(line.rstrip())
        if match is not None:
            found[int(match["id"])] = match["uptime"]
    return found


def parse_info(text: str) -> dict[str, str]:
    """Read the output of ``xl info``: name -> value; lines of another form are ignored."""
    found = {}
    for line in text.splitlines():
        name, colon, value = line.partition(":")
        if colon and name.strip():
            found[name.strip()] = value.strip()
    return found


@dataclass(frozen=True, slots=True)
class LongDisk:
    """One disk of a domain in the long list.

    :ivar path: of the device or file on this node; empty for an empty drive.
    :ivar vdev: its name in the guest, such as ``xvda``.
    """

    path: str
    vdev: str
    is_cdrom: bool


@dataclass(frozen=True, slots=True)
class LongNic:
    """One NIC of a domain in the long list.

    :ivar devid: the number by which Xen knows it.
    """

    devid: int
    mac: str


@dataclass(frozen=True, slots=True)
class LongDomain:
    """One domain in the long list.

    :ivar type: ``pv``, ``hvm``, ``pvh``, or empty when the output does not tell.
    :ivar uuid: empty when the output does not tell.
    :ivar max_memory_kib: the limit of its memory; 0 when the output does not tell.
    """

    id: int
    name: str
    type: str
    uuid: str
    max_memory_kib: int = 0
    disks: tuple[LongDisk, ...] = ()
    nics: tuple[LongNic, ...] = ()


def parse_long(text: str) -> dict[int, LongDomain]:
    """Read the output of ``xl list --long``: id -> domain; in JSON, as since Xen 4.1.

    What the output does not tell of a domain is empty.

    :raises ParseError: the text is not a list of domains in JSON.
    """
    value = json.loads(text)
    if not isinstance(value, list):
        raise errors.ParseError(f"expected a list of domains, found {text!r:.200}")
    found = {}
    for entry in value:
        if not isinstance(entry, dict) or not isinstance(entry.get("domid"), int):
            raise errors.ParseError(f"expected a domain with its id, found {entry!r:.200}")
        config = _object(entry.get("config"))
        facts, build = _object(config.get("c_info")), _object(config.get("b_info"))
        domain_id = int(entry["domid"])
        found[domain_id] = LongDomain(
            domain_id,
            name=str(facts.get("name") or ""),
            type=str(facts.get("type") or ""),
            uuid=str(facts.get("uuid") or ""),
            max_memory_kib=_natural(build.get("max_memkb")),
            disks=tuple(
                LongDisk(
                    str(one.get("pdev_path") or ""),
                    str(one.get("vdev") or ""),
                    is_cdrom=bool(one.get("is_cdrom")),
                )
                for one in map(_object, _list(config.get("disks")))
            ),
            nics=tuple(
                LongNic(_natural(one.get("devid")), str(one.get("mac") or ""))
                for one in map(_object, _list(config.get("nics")))
            ),
        )
    return found


def _object(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _natural(value: Any) -> int:
    return value if isinstance(value, int) and value > 0 else 0


def node_facts(info: Mapping[str, str], domains: list[Domain]) -> dict[str, Any]:
    """Return the capacity of a node under Xen.

    :param info: of :func:`parse_info`.
    :param domains: of :func:`parse_list`.
    :returns: the published keys of the call ``node_info``; memory in MiB.
    :raises ParseError: a number is missing.

    Source: xl(1), *info*; ``rpc.json`` (``node_info_hv_keys``).
    """
    total, free = _number(info, "total_memory"), _number(info, "free_memory")
    own = next((domain for domain in domains if domain.id == 0), None)
    if own is None:
        raise errors.ParseError(f"the list of domains lacks {DOM0}")
    used = sum(domain.memory_mib for domain in domains)
    processors = _number(info, "nr_cpus")
    per_socket = _number(info, "cores_per_socket") * _number(info, "threads_per_core")
    facts: dict[str, Any] = {
        "memory_total": total,
        "memory_free": free,
        "memory_dom0": own.memory_mib,
        # What the hypervisor itself uses: neither free nor of any domain.
        "memory_hv": max(total - free - used, 0),
        "cpu_total": processors,
        "cpu_nodes": _number(info, "nr_nodes"),
        "cpu_sockets": max(processors // max(per_socket, 1), 1),
        "cpu_dom0": own.vcpus,
        hv.FACT_MIGRATION_ANY_PORT: True,
    }
    if "xen_major" in info and "xen_minor" in info:
        facts["hv_version"] = [_number(info, "xen_major"), _number(info, "xen_minor")]
    return facts


def _number(info: Mapping[str, str], name: str) -> int:
    value = info.get(name, "")
    if not _NUMBER.fullmatch(value):
        raise errors.ParseError(f"'xl info' has no number {name}: {value!r:.100}")
    return int(value)
