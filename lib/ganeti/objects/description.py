"""What is taken from the description of an instance which somebody else wrote.

An appliance, an export on a node, and the answer of another cluster are texts from outside. They
say what the guest is: memory, processors, disks, models of hardware. They may also name things of
the node: programs, files, devices, options, privileges, bridges, and the OS definition, whose
scripts run as root. :func:`taken` separates the two. A value of the second kind is taken only when
the cluster has the same one for all its instances anyway, or when the administrator accepts it by
its name. All others are listed, and :func:`require` refuses the description.

The parameters of hypervisors say themselves what they are about
(:attr:`ganeti.objects.hypervisors.parameter.HvParam.concerns`).

================ ====================================================
name             what is accepted with it
================ ====================================================
a parameter      this parameter of the hypervisor
``hypervisor``   a hypervisor whose guests share the node's kernel
``os``           the OS definition
``os/NAME``      the parameter NAME of the OS definition
``nic/NAME``     link, mode, vlan or network of all interfaces
``disk/NUMBER``  the file or device of the node which is an image
``tags``         tags which programs of the cluster obey
================ ====================================================
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ganeti import errors
from ganeti.objects import fill, hypervisors
from ganeti.utils import suggest

if TYPE_CHECKING:
    from ganeti.objects.hypervisors.parameter import HvParam

#: The option with which a name is accepted.
OPTION: Final = "--accept-from-description"
#: The OS definition of a description which names none. It writes what it gets to the disks.
DEFAULT_OS: Final = "image"

HYPERVISOR: Final = "hypervisor"
OS: Final = "os"
TAGS: Final = "tags"
_NIC_PARTS: Final = ("link", "mode", "vlan", "network")
#: Beginnings of tags which programs of the cluster obey: the watcher, and those of htools.
_OBEYED_TAGS: Final = ("ganeti:", "htools:")
_SHOWN_CHARACTERS: Final = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Described:
    """What a description says, as far as it could name things of a node.

    :ivar source: what it is, for people, such as ``export web1 on node node3``.
    :ivar hypervisor: None when it names none.
    :ivar os: the OS definition; empty when it names none.
    :ivar nics: for each interface its settings by name.
    """

    source: str
    hypervisor: str | None = None
    hvparams: Mapping[str, Any] = field(default_factory=dict)
    os: str = ""
    osparams: Mapping[str, Any] = field(default_factory=dict)
    osparams_private: Mapping[str, Any] = field(default_factory=dict)
    nics: Sequence[Mapping[str, Any]] = ()
    tags: Sequence[str] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Given:
    """What the administrator says, which counts more than the description.

    :ivar os: the OS definition; None when none is given.
    :ivar osparams: names of OS parameters in any visibility.
    :ivar nics: whether interfaces are given, in place of all of the description.
    :ivar nic_parts: number of an interface -> names of its settings which are given.
    :ivar accepted: the names which are accepted, see above.
    """

    hypervisor: str | None = None
    hvparams: Collection[str] = ()
    os: str | None = None
    osparams: Collection[str] = ()
    nics: bool = False
    nic_parts: Mapping[int, Collection[str]] = field(default_factory=dict)
    tags: bool = False
    accepted: Collection[str] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownDefaults:
    """The defaults of a cluster, as another program got them (:class:`fill.Defaults`)."""

    enabled_hypervisors: tuple[str, ...] = ()
    hvparams: Mapping[str, Any] = field(default_factory=dict)
    os_hvp: Mapping[str, Any] = field(default_factory=dict)
    osparams: Mapping[str, Any] = field(default_factory=dict)
    osparams_private_cluster: Mapping[str, Any] = field(default_factory=dict)
    nicparams: Mapping[str, Any] = field(default_factory=dict)


def defaults_of_info(info: Mapping[str, Any]) -> KnownDefaults:
    """Return the defaults of a cluster from its answer about itself, by LUXI or REST.

    What an answer of another version lacks is not known, so no value is equal to it.
    """
    return KnownDefaults(
        enabled_hypervisors=tuple(info.get("enabled_hypervisors") or ()),
        hvparams=info.get("hvparams") or {},
        os_hvp=info.get("os_hvp") or {},
        osparams=info.get("osparams") or {},
        nicparams=info.get("nicparams") or {},
    )


class Named(NamedTuple):
    """A value of a description which names a thing of the node.

    :ivar name: with which it is accepted.
    :ivar place: for people, such as ``interface 0: link``.
    :ivar what: the kind of thing, for people.
    :ivar own: the value of the cluster; None for none.
    :ivar remedy: how the administrator gives an own value; empty when there is no way.
    """

    name: str
    place: str
    value: Any
    what: str
    own: Any = None
    remedy: str = ""

    @property
    def text(self) -> str:
        """For people, such as ``kvm_extra='-S' (options of a program of the node)``."""
        own = "" if self.own in (None, "") else f"; the cluster has {_shown(self.own)}"
        return f"{self.place}={_shown(self.value)} ({self.what}{own})"


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}..."


@dataclass(frozen=True, slots=True, kw_only=True)
class Taken:
    """What counts of a description; the settings are as in :class:`Described`.

    :ivar refused: values which are not taken.
    :ivar accepted: values which are taken because the administrator accepts them.
    """

    hypervisor: str | None
    hvparams: dict[str, Any]
    os: str
    osparams: dict[str, Any]
    osparams_private: dict[str, Any]
    nics: tuple[dict[str, Any], ...]
    tags: tuple[str, ...]
    refused: tuple[Named, ...] = ()
    accepted: tuple[Named, ...] = ()


class _Judge:
    """Sorts values into those which are accepted and those which are not."""

    def __init__(self, accepted: Collection[str]) -> None:
        self._names = accepted
        self.accepted: list[Named] = []
        self.refused: list[Named] = []

    def takes(self, value: Named) -> bool:
        (self.accepted if value.name in self._names else self.refused).append(value)
        return value.name in self._names


def taken(described: Described, given: Given, defaults: fill.Defaults, hypervisor: str) -> Taken:
    """Decide what is taken from a description.

    :param hypervisor: the default one of the cluster; empty when it is not known.
    :raises OpPrereqError: a name which is accepted cannot exist.
    """
    require_names(given.accepted)
    judge = _Judge(given.accepted)
    found = _hypervisor(described, given, hypervisor, judge)
    os_name = given.os if given.os is not None else _os(described, judge)
    chosen = given.hypervisor or found or hypervisor
    same = described.hypervisor is None or chosen == described.hypervisor
    hvparams = _hvparams(described, given, defaults, (chosen, os_name), judge) if same else {}
    public, private = _osparams(described, given, defaults, os_name, judge)
    nics = () if given.nics else _nics(described, given, defaults, judge)
    return Taken(
        hypervisor=found,
        hvparams=hvparams,
        os=os_name,
        osparams=public,
        osparams_private=private,
        nics=tuple(nics),
        tags=() if given.tags else _tags(described, judge),
        refused=tuple(judge.refused),
        accepted=tuple(judge.accepted),
    )


def all_of(described: Described, given: Given) -> Taken:
    """Return everything which a description of this cluster's own says and nobody gave."""
    same_os = given.os is None or given.os == described.os
    return Taken(
        hypervisor=described.hypervisor,
        hvparams=_without(described.hvparams, given.hvparams),
        os=described.os if given.os is None else given.os,
        osparams=_without(described.osparams, given.osparams) if same_os else {},
        osparams_private=_without(described.osparams_private, given.osparams) if same_os else {},
        nics=() if given.nics else tuple(dict(nic) for nic in described.nics),
        tags=() if given.tags else tuple(described.tags),
    )


def _without(values: Mapping[str, Any], names: Collection[str]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if name not in names}


def _hypervisor(described: Described, given: Given, default: str, judge: _Judge) -> str | None:
    name = described.hypervisor
    if given.hypervisor is not None or name is None or name == default:
        return name
    descriptor = hypervisors.ALL.get(name)
    if descriptor is None or descriptor.has_own_kernel:
        return name
    what = "a hypervisor whose guests share the kernel of the node"
    named = Named(HYPERVISOR, HYPERVISOR, name, what, default, f"-H {default or 'HYPERVISOR'}")
    return name if judge.takes(named) else None


def _os(described: Described, judge: _Judge) -> str:
    if described.os in ("", DEFAULT_OS):
        return described.os
    what = "an OS definition, whose scripts run on the node"
    named = Named(OS, OS, described.os, what, None, "-o OS")
    return described.os if judge.takes(named) else ""


def _hvparams(
    described: Described,
    given: Given,
    defaults: fill.Defaults,
    of: tuple[str, str],
    judge: _Judge,
) -> dict[str, Any]:
    hypervisor, os_name = of
    table: Mapping[str, HvParam] = {}
    if hypervisor in hypervisors.ALL:
        table = hypervisors.ALL[hypervisor].parameters
    own = fill.fill_hv(defaults, hypervisor, os_name)
    found = {}
    for name, value in _without(described.hvparams, given.hvparams).items():
        parameter = table.get(name)
        if parameter is not None:
            thing = parameter.names_of_node(value)
            named = Named(name, name, value, thing, own.get(name), f"-H {hypervisor}:{name}=VALUE")
            if thing and not (name in own and own[name] == value) and not judge.takes(named):
                continue
        # The check of the parameters names those which do not exist.
        found[name] = value
    return found


def _osparams(
    described: Described, given: Given, defaults: fill.Defaults, os_name: str, judge: _Judge
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the public and the private parameters; none for another OS definition."""
    if given.os is not None and given.os != described.os:
        return {}, {}
    what = "a parameter for the scripts of the OS definition, which run on the node"
    result = []
    for values, own, option, hidden in (
        (described.osparams, fill.fill_osparams(defaults, os_name), "-O", False),
        (
            described.osparams_private,
            fill.fill_osparams_private(defaults, os_name),
            "--os-parameters-private",
            True,
        ),
    ):
        found = {}
        for name, value in _without(values, given.osparams).items():
            shown = "(hidden)" if hidden else value
            named = Named(
                f"{OS}/{name}",
                f"OS parameter {name}",
                shown,
                what,
                None if hidden else own.get(name),
                f"{option} {name}=VALUE",
            )
            if (name in own and own[name] == value) or judge.takes(named):
                found[name] = value
        result.append(found)
    return result[0], result[1]


def _nics(
    described: Described, given: Given, defaults: fill.Defaults, judge: _Judge
) -> Iterable[dict[str, Any]]:
    own = fill.fill_nic(defaults)
    for number, nic in enumerate(described.nics):
        found = _without(nic, given.nic_parts.get(number, ()))
        for part in _NIC_PARTS:
            value = found.get(part)
            if not value or (part in own and own[part] == value):
                continue
            named = Named(
                f"nic/{part}",
                f"interface {number}: {part}",
                value,
                "where the node connects the guest",
                own.get(part),
                f"--net {number}:{part}=VALUE",
            )
            if not judge.takes(named):
                del found[part]
        yield found


def _tags(described: Described, judge: _Judge) -> tuple[str, ...]:
    obeyed = [tag for tag in described.tags if tag.startswith(_OBEYED_TAGS)]
    named = Named(TAGS, TAGS, obeyed, "tags which programs of the cluster obey", None, "--tags")
    if not obeyed or judge.takes(named):
        return tuple(described.tags)
    return tuple(tag for tag in described.tags if tag not in obeyed)


def image(number: int, path: str, accepted: Collection[str]) -> Named | None:
    """Return the file of the node which is named as the image of a disk; None if it is accepted."""
    named = Named(
        f"disk/{number}",
        f"disk {number}",
        path,
        "a file or device of this node, which is not beside the description",
        None,
        "--disks-from DIRECTORY",
    )
    return None if named.name in accepted else named


def require_names(accepted: Collection[str]) -> None:
    """Check that the names which are accepted can exist.

    :raises OpPrereqError: one of them cannot.
    """
    parameters = {name for one in hypervisors.ALL.values() for name in one.parameters}
    known = {HYPERVISOR, OS, TAGS, *(f"nic/{part}" for part in _NIC_PARTS), *parameters}
    for name in accepted:
        word, slash, rest = name.partition("/")
        if name in known or (slash and rest and word in (OS, "disk")):
            continue
        hint = suggest.did_you_mean(name, known)
        raise errors.OpPrereqError(
            f"{OPTION}: a description has no value {name!r:.80}. Write the names which the refusal"
            f" lists.{hint}",
            errors.ECODE_INVAL,
        )


def require(source: str, refused: Sequence[Named]) -> None:
    """Refuse a description with values which are not taken.

    :raises OpPrereqError: there are some; the message has each with its value, and what to do.
    """
    if not refused:
        return
    names = ",".join(dict.fromkeys(value.name for value in refused))
    remedies = ", ".join(dict.fromkeys(value.remedy for value in refused if value.remedy))
    raise errors.OpPrereqError(
        f"{source} names things of the node, which are not taken from a description:"
        f" {'; '.join(value.text for value in refused)}. Give your own values ({remedies}), or take"
        f" those of the description with {OPTION}={names}",
        errors.ECODE_INVAL,
    )


def accepted_notes(result: Taken) -> list[str]:
    """Return a line for each value which is taken because it is accepted."""
    return [
        f"{value.text} is taken from the description, because {value.name} is accepted"
        for value in result.accepted
    ]
