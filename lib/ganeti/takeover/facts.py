"""What is known about a node before the takeover: the questions to it, and what they mean.

The programs whose output is read here are those of Debian and of the hypervisors. Functions which
read a text are pure.

Source: dpkg-query(1), apt-cache(8), deb-control(5), os-release(5).
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Sequence
from typing import Any, NamedTuple

from ganeti import errors
from ganeti.takeover import probe
from ganeti.utils import fs
from ganeti.wire import json

#: Our package.
PACKAGE = "ganeti-py"
#: Where the takeover keeps its files on each node: only root may read them.
STATE_DIR = "/var/lib/ganeti-takeover"
#: Where a copy of our package is on each node; it stays when packages are replaced.
PROGRAM_DIR = f"{STATE_DIR}/program"
#: Directories and files which are archived before anything is changed.
ARCHIVED = (
    "/var/lib/ganeti",
    "/etc/ganeti",
    "/etc/default/ganeti",
    "/etc/cron.d/ganeti",
    "/etc/init.d/ganeti",
    "/etc/logrotate.d/ganeti",
)
_DEFAULTS = "/etc/default/ganeti"
_OS_RELEASE = "/etc/os-release"
_DRBD = "/proc/drbd"
_SYSTEMD = "/run/systemd/system"
_UPGRADE = "/var/lib/ganeti/intent-to-upgrade"
_CONFIG = "/var/lib/ganeti/config.data"
_APT_CACHE = "/var/cache/apt"
_ORIGINAL = re.compile(r"ganeti(-[0-9]+\.[0-9]+|-haskell.*|-htools.*|-testsuite|-doc)?", re.ASCII)
_SCRIPT = re.compile(r'^/local/domain/0/backend/vif/[0-9]+/[0-9]+/script = "(.+)"$', re.M | re.A)
_VERSION = re.compile(r"([0-9]{1,6})\.([0-9]{1,6})", re.ASCII)


class Installable(NamedTuple):
    """What the package manager knows about a package.

    :ivar installed: the version which is installed; None for none.
    :ivar candidate: the version which would be installed now; None for none.
    :ivar offered: the versions which can be downloaded.
    """

    installed: str | None
    candidate: str | None
    offered: frozenset[str]


class Facts(NamedTuple):
    """What the probe has found on a node.

    :ivar python: version of ``python3``.
    :ivar clock: seconds since the epoch, when the probe ran.
    :ivar distribution: such as ``debian 12``.
    :ivar has_dpkg: whether the machine has the package manager of Debian.
    :ivar architecture: of packages, such as ``amd64``; empty if unknown.
    :ivar original: package of the original -> installed version.
    :ivar ours: the installed version of our package; None if it is not installed.
    :ivar packages: what apt knows about the packages which were asked for.
    :ivar defaults: the text of ``/etc/default/ganeti``; empty if there is none.
    :ivar systemd: whether systemd has booted the machine.
    :ivar separate_users: whether the daemons of the original run under users of their own.
    :ivar upgrading: whether an upgrade of the original is going on.
    :ivar free: bytes which are free in ``/var/lib``.
    :ivar free_for_packages: bytes which are free where apt keeps packages.
    :ivar archive_size: bytes which the archive needs at most.
    :ivar qemu: version of QEMU; None if it is unknown.
    :ivar xen: version of Xen; None if it is unknown.
    :ivar drbd: version of the module of DRBD; None if it is not loaded.
    :ivar nic_programs: the programs which Xen runs for the NICs of the guests which run.
    """

    python: tuple[int, ...]
    clock: float
    distribution: str
    has_dpkg: bool
    architecture: str
    original: dict[str, str]
    ours: str | None
    packages: dict[str, Installable]
    defaults: str
    systemd: bool
    separate_users: bool
    upgrading: bool
    free: int
    free_for_packages: int
    archive_size: int
    qemu: tuple[int, int] | None
    xen: tuple[int, int] | None
    drbd: tuple[int, int] | None
    nic_programs: tuple[str, ...] = ()


def is_original(package: str) -> bool:
    """Return True if a package is one of the original Ganeti; its documentation counts, too."""
    return _ORIGINAL.fullmatch(package) is not None


def questions(wanted: Sequence[str], *, kvm: str | None, xen: bool) -> dict[str, Any]:
    """Return the questions for the probe.

    :param wanted: names of packages.
    :param kvm: path of QEMU; None if the cluster does not use KVM.
    :param xen: whether the cluster uses Xen.
    """
    names = [PACKAGE, *wanted]
    commands = {
        "packages": [
            "dpkg-query", "-W", "-f=${Package} ${Version} ${db:Status-Status}\n", "ganeti*",
        ],
        "policy": ["apt-cache", "policy", *names],
        "architecture": ["dpkg", "--print-architecture"],
        "owner": ["stat", "-c", "%U", _CONFIG],
    }  # fmt: skip
    if kvm:
        commands["qemu"] = [kvm, "--version"]
    if xen:
        commands["xen"] = ["xl", "info", "xen_version"]
        commands["nics"] = ["xenstore-ls", "-f", "/local/domain/0/backend/vif"]
    return {
        "commands": commands,
        "files": [_DEFAULTS, _OS_RELEASE, _DRBD, _UPGRADE],
        "patterns": [_SYSTEMD],
        "free": [os.path.dirname(STATE_DIR), _APT_CACHE],
        "sizes": list(ARCHIVED),
    }


def probe_argv(asked: dict[str, Any]) -> list[str]:
    """Return the command line which answers the questions on a node."""
    source = fs.read_file(os.path.realpath(probe.__file__))
    return ["python3", "-c", source, json.dumps(asked)]


def parse_answers(text: str) -> Facts:
    """Read what the probe has printed.

    :raises ParseError: it is something else.
    """
    try:
        found = json.loads(text)
        commands, files = found["commands"], found["files"]
        packages = parse_packages(commands["packages"] or "")
        free = found["free"]
        return Facts(
            python=tuple(int(number) for number in found["python"]),
            clock=float(found["clock"]),
            distribution=parse_os_release(files[_OS_RELEASE] or ""),
            has_dpkg=commands["architecture"] is not None,
            architecture=(commands["architecture"] or "").strip(),
            original={name: version for name, version in packages.items() if is_original(name)},
            ours=packages.get(PACKAGE),
            packages=parse_policy(commands["policy"] or ""),
            defaults=files[_DEFAULTS] or "",
            systemd=bool(found["patterns"][_SYSTEMD]),
            separate_users=(commands["owner"] or "").strip() not in ("", "root"),
            upgrading=files[_UPGRADE] is not None,
            free=int(free[os.path.dirname(STATE_DIR)]),
            free_for_packages=int(free[_APT_CACHE]),
            archive_size=sum(map(int, found["sizes"].values())),
            qemu=parse_version(commands.get("qemu") or ""),
            xen=parse_version(commands.get("xen") or ""),
            drbd=parse_version((files[_DRBD] or "").partition("\n")[0]),
            nic_programs=parse_nic_programs(commands.get("nics") or ""),
        )
    except (LookupError, TypeError, ValueError, OverflowError, AttributeError) as err:
        raise errors.ParseError(f"not the answers of the probe: {err}") from err


def parse_packages(text: str) -> dict[str, str]:
    """Read lines with a package, its version and its state; only installed ones are returned."""
    found = {}
    for line in text.splitlines():
        words = line.split(" ")
        if len(words) == 3 and words[2] == "installed":
            found[words[0]] = words[1]
    return found


def parse_policy(text: str) -> dict[str, Installable]:
    """Read the output of ``apt-cache policy``.

    A version can be downloaded if a source other than the state of dpkg has it.

    :returns: package -> what is known about it; unknown packages are missing.
    """
    found: dict[str, Installable] = {}
    name = version = None
    for line in text.splitlines():
        words = line.split()
        if not line.startswith(" ") and line.endswith(":"):
            name, version = line[:-1], None
            found[name] = Installable(None, None, frozenset())
        elif name is None or not words:
            continue
        elif words[0] in ("Installed:", "Candidate:") and len(words) == 2:
            value = None if words[1] == "(none)" else words[1]
            known = found[name]
            found[name] = (
                known._replace(installed=value)
                if words[0] == "Installed:"
                else known._replace(candidate=value)
            )
        elif line.startswith((" *** ", "     ")) and not line.startswith("      "):
            version = words[1] if words[0] == "***" and len(words) > 1 else words[0]
        elif version is not None and len(words) > 1 and words[1] != "/var/lib/dpkg/status":
            found[name] = found[name]._replace(offered=found[name].offered | {version})
    return found


def parse_os_release(text: str) -> str:
    """Read the distribution and its version, such as ``debian 12``; empty if they are unknown."""
    values: dict[str, str] = {}
    for line in text.splitlines():
        key, sign, value = line.partition("=")
        if sign:
            try:
                values[key] = " ".join(shlex.split(value))
            except ValueError:
                continue
    return f"{values.get('ID', '')} {values.get('VERSION_ID', '')}".strip()


def parse_version(text: str) -> tuple[int, int] | None:
    """Return the first version in a text, such as (7, 2); None if there is none."""
    found = _VERSION.search(text)
    return None if found is None else (int(found[1]), int(found[2]))


def parse_nic_programs(text: str) -> tuple[str, ...]:
    """Read the programs for NICs in the output of ``xenstore-ls -f``; sorted, each once."""
    return tuple(sorted(set(_SCRIPT.findall(text))))


def parse_depends(text: str) -> list[list[str]]:
    """Read the field ``Depends`` of a package.

    :returns: for each dependency, the names of the packages of which one is sufficient.
    """
    found = []
    for group in text.replace("\n", " ").split(","):
        names = [
            re.split(r"[ (:\[]", one.strip(), maxsplit=1)[0]
            for one in group.split("|")
            if one.strip()
        ]
        if any(names):
            found.append([name for name in names if name])
    return found


def parse_control(text: str) -> dict[str, str]:
    """Read the fields of one package, in the form of Debian's control files."""
    found: dict[str, str] = {}
    name = ""
    for line in text.splitlines():
        if not line.strip():
            if found:
                break
        elif line.startswith((" ", "\t")):
            if name:
                found[name] += f"\n{line.strip()}"
        else:
            name, sign, value = line.partition(":")
            if sign:
                found[name] = value.strip()
            else:
                name = ""
    return found
