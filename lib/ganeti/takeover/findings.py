"""Judge whether a cluster can be taken over: everything that would not work, before a change.

Each finding has a code, which programs can rely on, and a severity:

- a *refusal* prevents the takeover,
- a *warning* is something which will differ or needs attention afterwards,
- *no way back* is what cannot be taken back later,
- a *note* is good to know.
"""

from __future__ import annotations

import os
import textwrap
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from ganeti.config import upgrade
from ganeti.objects import disk_templates, hvparams
from ganeti.takeover import defaults
from ganeti.takeover.facts import PACKAGE, Facts

REFUSAL, WARNING, NO_WAY_BACK, NOTE = "refusal", "warning", "no way back", "note"
SEVERITIES = (REFUSAL, WARNING, NO_WAY_BACK, NOTE)

#: Versions of configurations of the original which can be taken over; the last two also back.
VERSIONS = (2_160_000, 3_000_000, 3_010_000)
#: Versions to which a configuration can be converted back.
WAYS_BACK = upgrade.DOWNGRADE_VERSIONS
_PYTHON = (3, 11)
_QEMU = (5, 2)
_XEN = (4, 13)
_DRBD = (8, 3)
_TOOLSTACK = "xl"
# Programs of the original which an administrator can let Xen run for each NIC.
_NIC_PROGRAMS = ("vif-ganeti", "vif-ganeti-metad")
_SPACE_FOR_PACKAGES = 300 << 20
_CLOCK_S = 120.0
_MIB = 1 << 20
_WIDTH = 110
_INDENT = " " * 4


class Finding(NamedTuple):
    """One line of the report.

    :ivar severity: one of :data:`SEVERITIES`.
    :ivar code: a short name of the kind of finding.
    :ivar node: the node which it concerns; empty for the cluster.
    :ivar text: what was found.
    :ivar remedy: what to do; empty for nothing.
    """

    severity: str
    code: str
    node: str
    text: str
    remedy: str = ""


class Member(NamedTuple):
    """A node, as the configuration of the original has it."""

    name: str
    address: str
    offline: bool
    ssh_port: int


def members(config: Mapping[str, Any]) -> list[Member]:
    """Return the nodes of a configuration, by name.

    :raises LookupError: a field is missing.
    """
    cluster = config["cluster"]
    groups = config.get("nodegroups") or {}
    found = []
    for node in config["nodes"].values():
        params = {
            **(cluster.get("ndparams") or {}),
            **((groups.get(node.get("group")) or {}).get("ndparams") or {}),
            **(node.get("ndparams") or {}),
        }
        port = params.get("ssh_port", 22)
        found.append(
            Member(
                node["name"],
                node["primary_ip"],
                bool(node.get("offline")),
                port if isinstance(port, int) else 22,
            )
        )
    return sorted(found)


def version_findings(config: Mapping[str, Any]) -> Iterator[Finding]:
    """Judge the version of a configuration; ``upgrade.version_of`` has accepted it."""
    version = config["version"] // 10_000 * 10_000
    text = upgrade.version_text(version)
    if version not in VERSIONS:
        supported = ", ".join(upgrade.version_text(one) for one in VERSIONS)
        yield Finding(
            REFUSAL, "version", "", f"the configuration has version {text}; supported: {supported}",
            "Upgrade the original to one of these versions first, with gnt-cluster upgrade.",
        )  # fmt: skip
    elif version not in WAYS_BACK:
        yield Finding(
            NO_WAY_BACK, "version", "",
            f"the configuration cannot be converted back to {text}; only the archive has it",
            "Upgrade the original to 3.0 first, if you want to be able to go back.",
        )  # fmt: skip


def features_findings() -> Iterator[Finding]:
    """Name what must not be used by those who want to go back later."""
    names = [
        f"{place or 'configuration'}: {', '.join(upgrade.settings_of(place))}"
        for place in upgrade.OURS
        if upgrade.settings_of(place)
    ]
    names += [f"parameters of {hv}: {', '.join(own)}" for hv, own in upgrade.HV_OURS.items()]
    yield Finding(
        NO_WAY_BACK, "features", "",
        f"the way back is refused while one of these is in use: {'; '.join(names)};"
        " snapshots of disks; the OS definitions image and tiny; SSH keys of type ed25519;"
        " passwords of the REST interface made by rapi-passwd, and rights there other than read and"
        " write; for version 3.0 also what came with 3.1: disk_aio=io_uring,"
        " scsi_controller_type=dc390, the mode ext of NICs, and user-id of rbd",
        "ganeti-takeover back --dry-run names what is in use.",
    )  # fmt: skip


def in_use_findings(in_use: Iterable[tuple[str, str]]) -> Iterator[Finding]:
    """Name what is in use and stands in the way back, in a cluster which was taken over.

    :param in_use: text, and what to do.
    """
    for text, remedy in in_use:
        yield Finding(NO_WAY_BACK, "in-use", "", text, remedy)


def configuration_findings(
    config: Mapping[str, Any], problems: Sequence[str], unfinished: Sequence[int]
) -> Iterator[Finding]:
    """Judge a configuration which could be read.

    :param config: of our version.
    :param problems: contradictions in it.
    :param unfinished: jobs which have not ended.
    """
    for problem in problems:
        yield Finding(
            WARNING, "contradiction", "", problem,
            "gnt-cluster verify of the original may know more; repair it before or after.",
        )  # fmt: skip
    cluster = config["cluster"]
    for name in cluster.get("enabled_hypervisors") or ():
        if name not in hvparams.TABLES:
            yield Finding(
                REFUSAL, "hypervisor", "", f"hypervisor {name} does not exist here",
                "Disable it, with gnt-cluster modify --enabled-hypervisors.",
            )  # fmt: skip
    used = {disk.get("dev_type") for disk in (config.get("disks") or {}).values()}
    for template in sorted(used.union(cluster.get("enabled_disk_templates") or ())):
        if template not in disk_templates.ALL:
            yield Finding(
                REFUSAL, "disk-template", "", f"disks of kind {template} do not exist here",
                "Convert or move the instances which use it.",
            )  # fmt: skip
    if unfinished:
        yield Finding(
            NOTE, "jobs", "", f"{len(unfinished)} jobs have not ended; the takeover waits for them"
        )


def toolstack_findings(config: Mapping[str, Any]) -> Iterator[Finding]:
    """Name the hypervisors of Xen which the original drives with another program than ours.

    :param config: of the version of the original; since 3.1 it has no choice either.
    """
    cluster = config["cluster"]
    for name in cluster.get("enabled_hypervisors") or ():
        used = ((cluster.get("hvparams") or {}).get(name) or {}).get("xen_cmd", _TOOLSTACK)
        if used != _TOOLSTACK:
            yield Finding(
                WARNING, "toolstack", "",
                f"{name} is driven with the program {used} (parameter xen_cmd); our daemons know"
                f" {_TOOLSTACK} alone, and the parameter is {_TOOLSTACK} after the way back",
                f"Run '{_TOOLSTACK} list' on all nodes. Stop the guests which it does not show.",
            )  # fmt: skip


def majority_findings(active: int, total: int) -> Iterator[Finding]:
    """Refuse a takeover after which too few nodes could confirm the role of the master.

    :param active: number of nodes which are taken over, with the master.
    :param total: number of all nodes.
    """
    needed = total // 2 + 1
    if active < needed:
        yield Finding(
            REFUSAL, "majority", "",
            f"only {active} of {total} nodes would be taken over; the master daemon starts when"
            f" {needed} confirm its role",
            "Bring more nodes back, or remove those which are lost, with gnt-node remove.",
        )  # fmt: skip


def left_out_findings(nodes: Sequence[Member]) -> Iterator[Finding]:
    """Name the nodes which will not be taken over now."""
    for node in nodes:
        later = f"When it answers again: ganeti-takeover --include={node.name} run."
        if node.offline:
            yield Finding(
                WARNING, "left-out", node.name, "is offline, and keeps the original", later
            )
        else:
            yield Finding(
                WARNING, "left-out", node.name, "is left out, and keeps the original",
                f"Mark it offline before. {later}",
            )  # fmt: skip


def unreachable(node: str, reason: str) -> Finding:
    """Return the finding about a node which the probe did not reach."""
    return Finding(
        REFUSAL, "unreachable", node, f"cannot be reached over SSH as root: {reason}",
        "Mend that, mark the node offline, or use --leave-out.",
    )  # fmt: skip


def node_findings(
    name: str,
    facts: Facts,
    *,
    now: float,
    wanted: Sequence[Sequence[str]],
    hypervisors: Collection[str],
    uses_drbd: bool,
    from_file: bool,
) -> Iterator[Finding]:
    """Judge what the probe has found on a node.

    :param now: the clock of the master, in seconds since the epoch.
    :param wanted: the dependencies of our package; see ``facts.parse_depends``.
    :param hypervisors: those which the cluster uses.
    :param from_file: whether our package is a file; otherwise apt must offer it.
    """
    yield from _machine_findings(name, facts, now)
    yield from _package_findings(name, facts, wanted, from_file)
    needed = facts.archive_size + (64 << 20)
    if facts.free < needed:
        yield Finding(
            REFUSAL, "space", name,
            f"/var/lib has {facts.free // _MIB} MiB free; the archive needs up to {needed // _MIB}",
            "Free space, for instance by removing old copies and archives.",
        )  # fmt: skip
    if facts.free_for_packages < _SPACE_FOR_PACKAGES:
        yield Finding(
            REFUSAL, "space", name,
            f"/var/cache/apt has {facts.free_for_packages // _MIB} MiB free; packages may need"
            f" {_SPACE_FOR_PACKAGES // _MIB} MiB",
            "Free space, for instance with apt-get clean.",
        )  # fmt: skip
    for kind, found, least, program in (
        ("kvm", facts.qemu, _QEMU, "QEMU"),
        ("xen", facts.xen, _XEN, "Xen"),
        ("drbd", facts.drbd, _DRBD, "DRBD"),
    ):
        uses = uses_drbd if kind == "drbd" else any(one.startswith(kind) for one in hypervisors)
        if uses and found is not None and found < least:
            yield Finding(
                REFUSAL, "too-old", name,
                f"{program} has version {found[0]}.{found[1]}; {least[0]}.{least[1]} is needed",
                "Upgrade it, and restart or migrate the guests, before the takeover.",
            )  # fmt: skip
    gone = [one for one in facts.nic_programs if os.path.basename(one) in _NIC_PROGRAMS]
    if gone and facts.ours is None:
        yield Finding(
            WARNING, "nic-program", name,
            f"guests of Xen which run here have NICs for which Xen runs {', '.join(gone)}, which"
            " goes with the original; such a guest cannot restart itself afterwards",
            "Stop and start these guests, or migrate them, after the takeover.",
        )  # fmt: skip
    for text in defaults.left_out(facts.defaults):
        yield Finding(
            WARNING, "daemon-options", name, f"/etc/default/ganeti: no effect any more: {text}"
        )


def _machine_findings(name: str, facts: Facts, now: float) -> Iterator[Finding]:
    if facts.python < _PYTHON:
        version = ".".join(map(str, facts.python))
        yield Finding(
            REFUSAL, "python", name,
            f"{facts.distribution or 'the machine'} has Python {version}; 3.11 is needed",
            "Upgrade the distribution of the node first, with the original: Debian 12 has both.",
        )  # fmt: skip
    if not facts.has_dpkg:
        yield Finding(
            REFUSAL, "no-dpkg", name,
            "the machine does not have the packages of Debian, which the takeover replaces",
            "See doc/takeover.rst for the steps by hand.",
        )  # fmt: skip
    elif facts.architecture != "amd64":
        yield Finding(
            WARNING, "architecture", name,
            f"packages are for {facts.architecture}; only amd64 is tested",
        )  # fmt: skip
    if facts.upgrading:
        yield Finding(
            REFUSAL, "upgrading", name, "an upgrade of the original is going on",
            "Finish it, with gnt-cluster upgrade --resume.",
        )  # fmt: skip
    if abs(facts.clock - now) > _CLOCK_S:
        yield Finding(
            WARNING, "clock", name,
            f"the clock differs by {facts.clock - now:.0f} s from that of the master",
            "Set the clocks; daemons refuse messages with wrong times.",
        )  # fmt: skip


def _package_findings(
    name: str, facts: Facts, wanted: Sequence[Sequence[str]], from_file: bool
) -> Iterator[Finding]:
    if not facts.has_dpkg:
        return
    if facts.ours is not None:
        yield Finding(NOTE, "ours", name, f"{PACKAGE} {facts.ours} is installed already")
        return
    if not facts.original:
        yield Finding(
            REFUSAL, "no-package", name,
            "the original was not installed with packages of Debian",
            "See doc/takeover.rst for the steps by hand.",
        )  # fmt: skip
    own = facts.packages.get(PACKAGE)
    if not from_file and (own is None or own.candidate is None):
        yield Finding(
            REFUSAL, "no-source", name, f"apt does not offer {PACKAGE}",
            "Give its file with --package, or add its source and run apt-get update.",
        )  # fmt: skip
    new = []
    for names in wanted:
        known = [facts.packages[one] for one in names if one in facts.packages]
        if any(one.installed for one in known):
            continue
        if any(one.candidate for one in known):
            new.append(names[0])
        else:
            yield Finding(
                REFUSAL, "dependency", name, f"apt does not offer {' or '.join(names)}",
                "Add a source which has it, and run apt-get update.",
            )  # fmt: skip
    if new:
        yield Finding(NOTE, "new-packages", name, f"will also be installed: {', '.join(new)}")
    for package, version in facts.original.items():
        known_one = facts.packages.get(package)
        if known_one is None or version not in known_one.offered:
            yield Finding(
                NO_WAY_BACK, "original-gone", name,
                f"{package} {version} cannot be downloaded any more, so it cannot be kept",
                "Put its file into /var/lib/ganeti-takeover/original on the node, or add a source.",
            )  # fmt: skip


def differing(facts: Mapping[str, Facts]) -> Iterator[Finding]:
    """Refuse nodes with different versions of the original."""
    versions: dict[str, list[str]] = {}
    for name, one in facts.items():
        if one.ours is None and one.original:
            versions.setdefault(", ".join(sorted(set(one.original.values()))), []).append(name)
    if len(versions) > 1:
        text = "; ".join(f"{version} on {', '.join(names)}" for version, names in versions.items())
        yield Finding(
            REFUSAL, "differing", "", f"the nodes have different versions of the original: {text}",
            "Bring all nodes to one version first.",
        )  # fmt: skip


def in_order(findings: Sequence[Finding]) -> list[Finding]:
    """Sort findings: the most severe ones first, then those of the cluster, then by node."""
    return sorted(findings, key=lambda one: (SEVERITIES.index(one.severity), one.node, one.code))


def report_text(findings: Sequence[Finding]) -> list[str]:
    """Return the lines of the report for people."""
    lines = []
    for one in in_order(findings):
        where = f"{one.node}: " if one.node else ""
        lines += _wrapped(f"{one.severity}: {where}{one.text} [{one.code}]", "")
        if one.remedy:
            lines += _wrapped(one.remedy, _INDENT)
    refusals = sum(one.severity == REFUSAL for one in findings)
    if refusals:
        lines.append(f"The cluster cannot be taken over: {refusals} refusals.")
    else:
        lines.append("The cluster can be taken over.")
    return lines


def _wrapped(text: str, indent: str) -> list[str]:
    return textwrap.wrap(
        text,
        _WIDTH,
        initial_indent=indent,
        subsequent_indent=_INDENT,
        break_long_words=False,
        break_on_hyphens=False,
    )


def report_data(findings: Sequence[Finding]) -> dict[str, Any]:
    """Return the report for programs: ``possible``, and ``findings`` with five fields each."""
    return {
        "possible": all(one.severity != REFUSAL for one in findings),
        "findings": [one._asdict() for one in in_order(findings)],
    }
