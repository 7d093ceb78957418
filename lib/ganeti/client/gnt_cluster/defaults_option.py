"""The option ``--defaults`` of ``gnt-cluster init`` and ``gnt-cluster modify``.

It is the spelling of Ganeti 2.0 (Ganeti design 2.0, *Cluster defaults*). Each of its three keys
means a value of another option. :func:`apply` sets these values before the options are used.
"""

from __future__ import annotations

from ganeti import TYPE_CHECKING, errors
from ganeti.cli import value_types
from ganeti.cli.command import Values
from ganeti.constants.net import NIC_MODE_BRIDGED

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

KNOWN = ("bridge", "disksize", "hypervisor")


def apply(values: Values, enabled: Callable[[], Sequence[str]]) -> None:
    """Set the options which the keys of ``--defaults`` mean.

    :param enabled: returns the present hypervisors of the cluster; called when no option gives
        them.
    :raises OpPrereqError: an unknown key, or a key that contradicts an option.
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
    """Make a hypervisor the first of the enabled ones, which is the default."""
    names = (
        enabled()
        if values.enabled_hypervisors is None
        else [word for word in values.enabled_hypervisors.split(",") if word]
    )
    if name not in names:
        raise errors.OpPrereqError(
            f"hypervisor {name} cannot be the default. Enabled are: {', '.join(names)}. See"
            " --enabled-hypervisors.",
            errors.ECODE_INVAL,
        )
    others = [word for word in names if word != name]
    values.set("enabled_hypervisors", ",".join([name, *others]))


def _disk_size(values: Values, size: str) -> None:
    """Set the size of disks in the standard instance of the policy."""
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
