"""Applies to a machine what :mod:`ganeti.objects.description` takes from its description."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ganeti import errors
from ganeti.foreign import images
from ganeti.foreign.machine import Machine, Nic
from ganeti.objects import description, hvparams

if TYPE_CHECKING:
    from ganeti.objects import fill
    from ganeti.objects.description import Given, Named


def taken(
    machine: Machine, source: str, given: Given, defaults: fill.Defaults, hypervisor: str
) -> tuple[Machine, description.Taken]:
    """Decide what is taken from the description of a machine.

    :param source: the description, for people.
    :param hypervisor: the default one of the cluster.
    :returns: the machine without what is not taken, and the decision.
    :raises OpPrereqError: a parameter has a value of a wrong type, or an accepted name cannot
        exist.
    """
    described = description.Described(
        source=source,
        hypervisor=machine.hypervisor,
        hvparams=_typed(machine.hypervisor, machine.hvparams),
        os=machine.os,
        osparams=machine.osparams,
        nics=[_settings(nic) for nic in machine.nics],
        tags=machine.tags,
    )
    found = description.taken(described, given, defaults, hypervisor)
    # Only what is left decides; the forms of the values stay those of the description.
    nics = tuple(Nic(**nic) for nic in found.nics) if not given.nics else machine.nics
    kept = {name: value for name, value in machine.hvparams.items() if name in found.hvparams}
    return dataclasses.replace(
        machine,
        hypervisor=found.hypervisor or hypervisor,
        hvparams=kept,
        os=found.os,
        osparams=found.osparams,
        nics=nics,
        tags=machine.tags if given.tags else found.tags,
    ), found


def _settings(nic: Nic) -> dict[str, str]:
    return {name: value for name, value in dataclasses.asdict(nic).items() if value}


def _typed(hypervisor: str, values: Mapping[str, Any]) -> dict[str, Any]:
    table = hvparams.TABLES.get(hypervisor, {})
    types = {name: parameter.type for name, parameter in table.items()}
    known = {name: value for name, value in values.items() if name in types}
    try:
        return {**values, **hvparams.force_types(known, types)}
    except errors.TypeEnforcementError as err:
        raise errors.OpPrereqError(
            f"the description cannot be used: {err}", errors.ECODE_INVAL
        ) from err


def refused_images(
    machine: Machine, path: str, directories: Sequence[str], accepted: Collection[str]
) -> list[Named]:
    """Return the files of this machine which only the description calls images.

    :param path: of the description.
    :param directories: where the administrator says that images are.
    :raises OpPrereqError: there is no image for a disk.
    """
    found = []
    for number, disk in enumerate(machine.disks):
        image = images.locate(disk.path, path, directories)
        if images.is_elsewhere(image, path, directories):
            named = description.image(number, image, accepted)
            found += [named] if named is not None else []
    return found
