"""``--defaults`` of ``gnt-cluster init`` and ``gnt-cluster modify``: the spelling of Ganeti 2.0.

Each of its three words stands for an option of today, into which it is turned here, before anybody
looks at those (seed 001 *Cluster defaults*).
"""

from __future__ import annotations

from ganeti import errors
from ganeti.cli import value_types
from ganeti.cli.command import Values
from ganeti.constants.net import NIC_MODE_BRIDGED

TYPE_CHECKING = False  # the name type checkers look for; importing typing costs milliseconds
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

KNOWN = ("bridge", "disksize", "hypervisor")


def apply(values: Values, enabled: Callable[[], Sequence[str]]) -> None:
    """Turn the words into options.

    :param enabled: asked for the present hypervisors of the cluster when they are not given.
    :raises OpPrereqError: an unknown word, or one that contradicts an option.
    """
    given = values.defaults
    unknown = sorted(set(given) - set(KNOWN))
    if unknown:
        raise errors.OpPrereqError(
            f"unknown default '{unknown[0]}'. Known are: {', '.join(KNOWN)}.", errors.ECODE_INVAL
        )
    for word, value in given.items():
        if not isinstance(value, str) or not value:
            raise errors.OpPrereqError(f"default {word} needs a value", errors.ECODE_INVAL)
    if "hypervisor" in given:
        _hypervisor(values, given["hypervisor"], enabled)
    if "disksize" in given:
        _disk_size(values, given["disksize"])
    if "bridge" in given:
        if "link" in values.nicparams:
            raise errors.OpPrereqError(
                "give the default bridge either with --defaults or with --nic-parameters",
                errors.ECODE_INVAL,
            )
        values.set(
            "nicparams", {"mode": NIC_MODE_BRIDGED, **values.nicparams, "link": given["bridge"]}
        )


def _hypervisor(values: Values, name: str, enabled: Callable[[], Sequence[str]]) -> None:
    """The default one is the first of those that are enabled."""
    names = (
        enabled()
        if values.enabled_hypervisors is None
        else [word for word in values.enabled_hypervisors.split(",") if word]
    )
    if name not in names:
        raise errors.OpPrereqError(
            f"hypervisor {name} cannot be the default, enabled are {', '.join(names)}. See"
            " --enabled-hypervisors.",
            errors.ECODE_INVAL,
        )
    others = [word for word in names if word != name]
    values.set("enabled_hypervisors", ",".join([name, *others]))


def _disk_size(values: Values, size: str) -> None:
    """It is that of the standard instance."""
    try:
        size_mib = value_types.parse_size(size)
    except errors.ParameterError as err:
        raise errors.OpPrereqError(f"default disksize: {err}", errors.ECODE_INVAL) from err
    specs = values.ipolicy_std_specs or {}
    if "disk-size" in specs:
        raise errors.OpPrereqError(
            "give the default disksize either with --defaults or with --ipolicy-std-specs",
            errors.ECODE_INVAL,
        )
    values.set("ipolicy_std_specs", {**specs, "disk-size": str(size_mib)})
