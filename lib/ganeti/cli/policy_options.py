"""Read instance policies and disk parameters from the command line, and write them as options.

The word ``default`` removes a value of a node group, so that the value of the cluster applies
again.
"""

from __future__ import annotations

from ganeti import TYPE_CHECKING, errors
from ganeti.cli import options as opt
from ganeti.cli import value_types
from ganeti.cli.command import Option, Values

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

DEFAULT = "default"

SPEC_TYPES = {
    "memory-size": "size",
    "disk-size": "size",
    "cpu-count": "int",
    "disk-count": "int",
    "nic-count": "int",
    "spindle-use": "int",
}

BOUNDS = Option(
    "--ipolicy-bounds-specs",
    kind="multilistidentkeyval",
    metavar="min:KEY=N,.../max:KEY=N,...",
    help="sizes of the smallest and of the largest instance; // separates alternatives; default"
    " means the policy of the cluster",
)
TEMPLATES = Option(
    "--ipolicy-disk-templates",
    kind="list",
    metavar="NAME,...",
    help="disk templates which instances may have; default means those of the cluster",
)
SPINDLE_RATIO = Option(
    "--ipolicy-spindle-ratio",
    kind="maybefloat",
    metavar="N",
    help="number of spindles of instances per spindle of a node; default means the value of the"
    " cluster",
)
VCPU_RATIO = Option(
    "--ipolicy-vcpu-ratio",
    kind="maybefloat",
    metavar="N",
    help="number of virtual processors per processor of a node; default means the value of the"
    " cluster",
)
GROUP_POLICY = (BOUNDS, TEMPLATES, SPINDLE_RATIO, VCPU_RATIO)
DISK_PARAMETERS = opt.disk_parameters(
    "parameters of disks of a template; the value default means the value of the cluster"
)


def group_policy(values: Values) -> dict[str, Any] | None:
    """Return the given parts of the policy of a group; None when none is given.

    :raises OpPrereqError: bounds other than min and max.
    :raises TypeEnforcementError: a bound is not a number.
    """
    found: dict[str, Any] = {}
    given = values.ipolicy_bounds_specs
    if given is not None:
        reset = not given or given == [{DEFAULT: {}}]
        found["minmax"] = DEFAULT if reset else [bounds(section) for section in given]
    templates = values.ipolicy_disk_templates
    if templates is not None:
        found["disk-templates"] = DEFAULT if templates in ([], [DEFAULT]) else list(templates)
    for dest, name in (
        ("ipolicy_vcpu_ratio", "vcpu-ratio"),
        ("ipolicy_spindle_ratio", "spindle-ratio"),
    ):
        value = getattr(values, dest)
        if value is not None:
            found[name] = value
    return found or None


def bounds(section: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Return one alternative of bounds with values in their types (sizes in MiB).

    :raises OpPrereqError: the alternative does not consist of min and max.
    :raises TypeEnforcementError: unknown key, or wrong type of a value.
    """
    if set(section) != {"min", "max"}:
        raise errors.OpPrereqError(
            "instance policy: each alternative of the bounds needs min:... and max:...",
            errors.ECODE_INVAL,
        )
    return {kind: value_types.typed_params(params, SPEC_TYPES) for kind, params in section.items()}


def disk_params(given: Sequence[tuple[str, Any]]) -> dict[str, dict[str, Any]] | None:
    """Turn options such as ``drbd:resync-rate=1024`` into a dictionary by template.

    :returns: None when there are no options.
    :raises OpPrereqError: unknown template, or all its parameters are removed.
    :raises TypeEnforcementError: unknown parameter, or wrong type of a value.
    """
    from ganeti.objects import disk_templates

    found: dict[str, dict[str, Any]] = {}
    for template, params in given:
        if template not in disk_templates.ALL:
            raise errors.OpPrereqError(
                f"unknown disk template '{template}'. Known are:"
                f" {', '.join(sorted(disk_templates.ALL))}.",
                errors.ECODE_INVAL,
            )
        if not isinstance(params, dict):
            raise errors.OpPrereqError(
                f"parameters of disk template '{template}' cannot be removed as a whole. Write"
                f" {template}:NAME=default.",
                errors.ECODE_INVAL,
            )
        known = disk_templates.of(template).parameters
        types = {name: parameter.type for name, parameter in known.items()}
        found.setdefault(template, {}).update(
            value_types.typed_params(params, types, allowed=(DEFAULT,))
        )
    return found or None


def bounds_words(minmax: Sequence[Mapping[str, Mapping[str, Any]]]) -> list[str]:
    """Return the option which sets these bounds: ``["--ipolicy-bounds-specs", "min:..."]``."""
    choices = [
        "/".join(f"{kind}:{specs_text(bounds[kind])}" for kind in ("min", "max"))
        for bounds in minmax
    ]
    return ["--ipolicy-bounds-specs", "//".join(choices)]


def specs_text(specs: Mapping[str, Any]) -> str:
    """Return sizes as the text ``cpu-count=1,disk-count=1,...``."""
    return ",".join(f"{key}={specs[key]}" for key in sorted(specs))
