"""Parameters of the hypervisors, by the name of the hypervisor: types, defaults and checks.

The master checks a parameter before it stores one, a node before it starts a guest. The master
calls :func:`force_types` and :func:`check_parameter_syntax`; whether a file exists is known only on
a node, which asks :func:`paths_to_check` for the paths to look at. The tables are in
:mod:`ganeti.objects.hypervisors`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from ganeti import errors
from ganeti.constants.instance import BE_MAXMEM, BE_MEMORY, BE_MINMEM
from ganeti.objects import hypervisors
from ganeti.objects.hypervisors.parameter import (
    BOOL,
    DIRECTORY,
    FILE,
    FILE_OR_URL,
    FLOAT,
    INT,
    MAYBE_STRING,
    SIZE,
    STRING,
    HvParam,
    is_url,
)
from ganeti.utils import suggest, text

#: Hypervisor -> name of a parameter -> the parameter.
TABLES: dict[str, Mapping[str, HvParam]] = {
    name: descriptor.parameters for name, descriptor in hypervisors.ALL.items()
}
#: Name of a parameter -> type. Parameters of the same name have the same type in all hypervisors.
TYPES: dict[str, str] = {
    parameter.name: parameter.type for table in TABLES.values() for parameter in table.values()
}


def defaults(hypervisor: str) -> dict[str, Any]:
    """Every parameter of a hypervisor with its default.

    :raises errors.HypervisorError: there is no such hypervisor.
    """
    table = hypervisors.of(hypervisor).parameters
    return {name: parameter.default for name, parameter in table.items()}


def check_parameter_syntax(hypervisor: str, params: Mapping[str, Any]) -> None:
    """Check filled parameters, as far as this is possible without a node.

    :param params: all parameters of the hypervisor, with values of the right types.
    :raises errors.HypervisorError: names the hypervisor or the parameter.
    """
    descriptor = hypervisors.of(hypervisor)
    table = descriptor.parameters
    for name, value in params.items():
        parameter = table.get(name)
        if parameter is None:
            hint = suggest.did_you_mean(name, table)
            raise errors.HypervisorError(
                f"hypervisor {hypervisor} has no parameter {name!r}{'.' if hint else ''}{hint}"
            )
        problem = parameter.problem(value)
        if problem:
            raise errors.HypervisorError(f"hypervisor parameter {name}: {problem}, not {value!r}")
    for name, parameter in table.items():
        if parameter.required and name not in params:
            raise errors.HypervisorError(f"hypervisor parameter {name} is missing")
    descriptor.check_combination(params)


def firmware_disks(hypervisor: str, params: Mapping[str, Any]) -> dict[str, str]:
    """Return the disks which the firmware of a guest with these (filled) parameters needs for
    itself.

    :returns: name of the disk -> the parameter and value which need it, for messages.
    :raises errors.HypervisorError: there is no such hypervisor.
    """
    return hypervisors.of(hypervisor).firmware_disks(params)


def lacks_firmware_disk(name: str, parameter: str) -> str:
    """Return the message when an instance lacks one of :func:`firmware_disks`.

    :param name: of the disk.
    :param parameter: the parameter and value which need it.
    """
    return (
        f"parameter {parameter} needs a small disk named {name}. "
        f"Add it with 'gnt-instance modify --disk add:size=4M,name={name}'."
    )


def paths_to_check(hypervisor: str, params: Mapping[str, Any]) -> Iterator[tuple[str, str, str]]:
    """Yield the paths which a node must find: ``(parameter, path, FILE or DIRECTORY)`` of each.

    :raises errors.HypervisorError: there is no such hypervisor.
    """
    table = hypervisors.of(hypervisor).parameters
    for name, value in params.items():
        parameter = table.get(name)
        if parameter is None or not parameter.node_check or not value:
            continue
        if parameter.node_check == FILE_OR_URL and is_url(value):
            continue
        yield name, value, DIRECTORY if parameter.node_check == DIRECTORY else FILE


def force_types(
    values: Mapping[str, Any], types: Mapping[str, str], allowed_values: Collection[Any] = ()
) -> dict[str, Any]:
    """Convert values, which users may write as text, to the types of their parameters.

    :param types: parameter -> "string", "maybe-string", "bool", "int", "float" or "size" (MiB).
    :param allowed_values: values which are kept as they are, such as "default".
    :returns: a copy with the converted values.
    :raises errors.TypeEnforcementError: an unknown parameter, or a value of another type.
    """
    forced = {}
    for name, value in values.items():
        kind = types.get(name)
        if kind is None:
            hint = suggest.hint(str(name), types)
            raise errors.TypeEnforcementError(
                f"unknown parameter {name!r}{'.' if hint else ''}{hint}"
            )
        # A dictionary or list cannot be looked up in a set; the conversion refuses it.
        if isinstance(value, (str, int, float)) and value in allowed_values:
            forced[name] = value
        else:
            forced[name] = _forced(name, value, kind)
    return forced


def split_memory(params: Mapping[str, Any]) -> dict[str, Any]:
    """Replace the old backend parameter ``memory`` by the two limits for which it stands.

    A limit with the same size may stand beside it, in any spelling (``1g`` and ``1024``): programs
    send all three, because old versions know only ``memory``.

    :returns: a copy without ``memory``; None stands for no value.
    :raises errors.TypeEnforcementError: a limit has another size.
    """
    result = dict(params)
    memory = result.pop(BE_MEMORY, None)
    if memory is not None:
        for key in (BE_MAXMEM, BE_MINMEM):
            if _in_mib(result.setdefault(key, memory)) != _in_mib(memory):
                raise errors.TypeEnforcementError(
                    f"memory ({memory}) stands for minmem and maxmem, and {key} is another size"
                    f" ({result[key]}); give either memory, or minmem and maxmem"
                )
    return result


def _in_mib(size: Any) -> Any:
    """Return a size as a number; a value that is no size as it is, for :func:`force_types`."""
    if isinstance(size, (str, int)):
        with contextlib.suppress(errors.UnitParseError):
            return text.parse_unit(size)
    return size


_BOOLEANS = {
    "true": True,
    "yes": True,
    "on": True,
    "false": False,
    "no": False,
    "off": False,
    "": False,
}


def _forced(name: str, value: Any, kind: str) -> Any:
    if kind in (STRING, MAYBE_STRING):
        if isinstance(value, str):
            if wrong := text.wrong_variable(name, value):
                raise errors.TypeEnforcementError(f"parameter {name}: {wrong}")
            return value
        if value is None and kind == MAYBE_STRING:
            return value
        if value is False:
            return ""  # "no-name" on the command line
    elif kind == BOOL:
        if isinstance(value, bool):
            return value
        if isinstance(value, str) and value.lower() in _BOOLEANS:
            return _BOOLEANS[value.lower()]
        if value in (0, 1, None):
            return bool(value)
    elif isinstance(value, (str, int, float)) and not isinstance(value, bool):
        try:
            if kind == SIZE:
                return text.parse_unit(value)
            if kind == INT and not (isinstance(value, float) and value != int(value)):
                return int(value)
            if kind == FLOAT:
                number = float(value)
                if number - number == 0:
                    return number
        except (ValueError, OverflowError, errors.UnitParseError) as err:
            raise _wrong_type(name, value, kind) from err
    raise _wrong_type(name, value, kind)


# The types which an administrator can miss, in the words of an error.
_IN_WORDS = {
    BOOL: "yes or no",
    FLOAT: "a number",
    INT: "a whole number",
    SIZE: "a size, such as 512m or 2g",
}


def _wrong_type(name: str, value: Any, kind: str) -> errors.TypeEnforcementError:
    return errors.TypeEnforcementError(
        f"parameter {name}: {value!r} is not {_IN_WORDS.get(kind, f'of type {kind}')}"
    )
