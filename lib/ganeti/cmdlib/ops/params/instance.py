"""Checks of the parameters of instances: backend and hypervisor parameters, overrides for one
start."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any, Final

from ganeti import errors
from ganeti.constants.hv import GLOBAL_PARAMS
from ganeti.constants.instance import BE_PARAM_TYPES
from ganeti.constants.net import VALUE_DEFAULT
from ganeti.objects import hvparams as hv
from ganeti.objects import hypervisors
from ganeti.objects.hypervisors.descriptor import GuestDevices

if TYPE_CHECKING:
    from ganeti.config import Config
    from ganeti.objects import FilledInstance, Instance


def without_defaults(params: Mapping[str, Any]) -> dict[str, Any]:
    """Leave out parameters whose value is ``default``."""
    return {key: value for key, value in params.items() if value != VALUE_DEFAULT}


def split_memory(params: Mapping[str, Any]) -> dict[str, Any]:
    """Replace the old parameter ``memory`` by the two limits for which it stands.

    :raises errors.OpPrereqError: one of them is given, too, with another size.
    """
    try:
        return hv.split_memory(params)
    except errors.TypeEnforcementError as err:
        raise errors.OpPrereqError(f"backend parameters: {err}", errors.ECODE_INVAL) from err


def checked_beparams(given: Mapping[str, Any]) -> dict[str, Any]:
    """Check names and types of backend parameters.

    :returns: the parameters without those which are to have their default.
    :raises errors.OpPrereqError: an unknown name or a wrong type.
    """
    params = without_defaults(split_memory(given))
    try:
        return hv.force_types(params, BE_PARAM_TYPES)
    except errors.TypeEnforcementError as err:
        raise errors.OpPrereqError(f"backend parameters: {err}", errors.ECODE_INVAL) from err


def require_sane_backend(filled: Mapping[str, Any]) -> None:
    """Check filled backend parameters against each other.

    :raises errors.OpPrereqError: they contradict each other, or a value is too small.
    """
    if filled["minmem"] > filled["maxmem"]:
        raise errors.OpPrereqError(
            f"minimum memory ({filled['minmem']} MiB) is more than the maximum"
            f" ({filled['maxmem']} MiB)",
            errors.ECODE_INVAL,
        )
    for key in ("minmem", "vcpus"):
        if filled[key] < 1:
            raise errors.OpPrereqError(
                f"backend parameter {key} must be at least 1, not {filled[key]}", errors.ECODE_INVAL
            )


def _types(hypervisor: str) -> dict[str, str]:
    return {name: parameter.type for name, parameter in hv.TABLES[hypervisor].items()}


def checked_hvparams(hypervisor: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """Check names and types of hypervisor parameters of an instance.

    :returns: the parameters without those which are to have their default.
    :raises errors.OpPrereqError: an unknown name, a wrong type, or a parameter of the cluster.
    """
    params = without_defaults(given)
    fixed = sorted(set(params) & GLOBAL_PARAMS)
    if fixed:
        raise errors.OpPrereqError(
            f"hypervisor parameters {', '.join(fixed)} can only be set for the whole cluster",
            errors.ECODE_INVAL,
        )
    try:
        return hv.force_types(params, _types(hypervisor))
    except errors.TypeEnforcementError as err:
        raise errors.OpPrereqError(
            f"parameters of hypervisor {hypervisor}: {err}", errors.ECODE_INVAL
        ) from err


def require_hv_syntax(hypervisor: str, filled: Mapping[str, Any]) -> None:
    """Check filled hypervisor parameters as far as that is possible without a node.

    :raises errors.OpPrereqError: a value is not valid.
    """
    try:
        hv.check_parameter_syntax(hypervisor, filled)
    except errors.HypervisorError as err:
        raise errors.OpPrereqError(
            f"parameters of hypervisor {hypervisor}: {err}", errors.ECODE_INVAL
        ) from err


def require_firmware_disks(
    hypervisor: str,
    filled: Mapping[str, Any],
    names: Collection[str | None],
    lacking: Collection[str] = (),
) -> None:
    """Check that the instance has the disks which its firmware needs.

    :param names: names of the instance's disks.
    :param lacking: names of disks which may be missing, because the instance never had them.
    :raises errors.OpPrereqError: one is missing.
    """
    for name, wanted_by in hv.firmware_disks(hypervisor, filled).items():
        if name not in names and name not in lacking:
            raise errors.OpPrereqError(hv.lacks_firmware_disk(name, wanted_by), errors.ECODE_INVAL)


#: A file name has at most 255 bytes. Those of transfers add up to 40 bytes to the name of an
#: instance; those of links to disks, of temporary files and of exports add less.
LONGEST_NAME_BYTES: Final = 200


def guest_problem(
    hypervisor: str,
    filled: Mapping[str, Any],
    name: str,
    disk_names: Collection[str | None],
    nics: int,
) -> str:
    """Return why the hypervisor can never start a guest with these devices; empty when it can.

    :param filled: filled hypervisor parameters.
    :param name: name of the instance.
    :param disk_names: names of its disks, None for each without a name.
    :param nics: number of its NICs.
    """
    size = len(name.encode())
    if size > LONGEST_NAME_BYTES:
        return (
            f"the name of the instance has {size} bytes. With more than {LONGEST_NAME_BYTES} bytes,"
            " the names of its files on a node are too long for file systems."
        )
    known = hypervisors.of(hypervisor)
    disks = sum(disk not in known.firmware_disk_names for disk in disk_names)
    return known.impossible(filled, GuestDevices(name, disks, nics))


def refuse_guest(hypervisor: str, name: str, problem: str) -> None:
    """Refuse an instance for which there is a :func:`guest_problem`; nothing for an empty one.

    :raises errors.OpPrereqError: there is a problem.
    """
    if problem:
        raise errors.OpPrereqError(
            f"hypervisor {hypervisor} could not start instance {name}: {problem}",
            errors.ECODE_INVAL,
        )


def require_startable(
    hypervisor: str,
    filled: Mapping[str, Any],
    name: str,
    disk_specs: Collection[Mapping[str, Any]],
    nics: int,
) -> None:
    """Check that a new instance has the disks of its firmware, and places for all its devices.

    :param disk_specs: its disks; the other parameters are those of :func:`guest_problem`.
    :raises errors.OpPrereqError: the guest could never start.
    """
    disk_names = [spec["name"] for spec in disk_specs]
    require_firmware_disks(hypervisor, filled, disk_names)
    refuse_guest(hypervisor, name, guest_problem(hypervisor, filled, name, disk_names, nics))


def checked_overrides(
    config: Config, instance: Instance, hvparams: Mapping[str, Any], beparams: Mapping[str, Any]
) -> tuple[FilledInstance, dict[str, Any], dict[str, Any]]:
    """Check the parameters for one start of an instance.

    :returns: the instance filled with them, and both sets in checked form.
    """
    hv_own = checked_hvparams(instance.hypervisor, hvparams) if hvparams else {}
    be_own = checked_beparams(beparams) if beparams else {}
    filled = config.filled(instance, hvparams=hv_own, beparams=be_own)
    if hv_own:
        require_hv_syntax(instance.hypervisor, filled.hvparams)
    if be_own:
        require_sane_backend(filled.beparams)
    return filled, hv_own, be_own
