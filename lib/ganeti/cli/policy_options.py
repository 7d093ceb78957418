"""Instance policy and disk parameters from the command line, and back to it.

What a node group has of its own may be given back to the cluster's with the word ``default``.
"""

from __future__ import annotations

from ganeti import errors
from ganeti.cli import value_types
from ganeti.cli.command import Values
from ganeti.cli.options import Option

TYPE_CHECKING = False  # the name type checkers look for; importing typing costs milliseconds
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
    help="smallest and largest instance; several choices separated by //, or default",
)
TEMPLATES = Option(
    "--ipolicy-disk-templates",
    kind="list",
    metavar="NAME,...",
    help="disk templates which instances may have, or default",
)
SPINDLE_RATIO = Option(
    "--ipolicy-spindle-ratio",
    kind="maybefloat",
    metavar="N",
    help="instance spindles per disk of a node, or default",
)
VCPU_RATIO = Option(
    "--ipolicy-vcpu-ratio",
    kind="maybefloat",
    metavar="N",
    help="virtual processors per processor of a node, or default",
)
GROUP_POLICY = (BOUNDS, TEMPLATES, SPINDLE_RATIO, VCPU_RATIO)
DISK_PARAMETERS = Option(
    "-D",
    "--disk-parameters",
    kind="identkeyval",
    action="append",
    dest="diskparams",
    metavar="TEMPLATE:KEY=VALUE,...",
    help="parameters of disks of a template; the value default gives one back",
)


def group_policy(values: Values) -> dict[str, Any] | None:
    """The parts of a group's policy that were given; None when none was.

    :raises OpPrereqError: bounds which are neither min nor max.
    :raises TypeEnforcementError: a bound that is no number.
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
    """One choice of bounds, in its types.

    :raises OpPrereqError: it is not exactly a smallest and a largest instance.
    """
    if set(section) != {"min", "max"}:
        raise errors.OpPrereqError(
            "instance policy: each choice of bounds needs min:... and max:...", errors.ECODE_INVAL
        )
    return {kind: value_types.typed_params(params, SPEC_TYPES) for kind, params in section.items()}


def disk_params(given: Sequence[tuple[str, Any]]) -> dict[str, dict[str, Any]] | None:
    """``drbd:resync-rate=1024`` options by template; None when there are none.

    :raises OpPrereqError: an unknown template, or a removal.
    """
    from ganeti.constants import disk

    found: dict[str, dict[str, Any]] = {}
    for template, params in given:
        if template not in disk.TEMPLATES:
            raise errors.OpPrereqError(
                f"unknown disk template '{template}'. Known are:"
                f" {', '.join(sorted(disk.TEMPLATES))}.",
                errors.ECODE_INVAL,
            )
        if not isinstance(params, dict):
            raise errors.OpPrereqError(
                f"parameters of disk template '{template}' cannot be removed as a whole. Write"
                f" {template}:NAME=default.",
                errors.ECODE_INVAL,
            )
        types = {name: disk.TEMPLATE_PARAM_TYPES[name] for name in disk.TEMPLATE_DEFAULTS[template]}
        found.setdefault(template, {}).update(
            value_types.typed_params(params, types, allowed=(DEFAULT,))
        )
    return found or None


def bounds_words(minmax: Sequence[Mapping[str, Mapping[str, Any]]]) -> list[str]:
    """The option with which these bounds are set: ``["--ipolicy-bounds-specs", "min:..."]``."""
    choices = [
        "/".join(f"{kind}:{specs_text(bounds[kind])}" for kind in ("min", "max"))
        for bounds in minmax
    ]
    return ["--ipolicy-bounds-specs", "//".join(choices)]


def specs_text(specs: Mapping[str, Any]) -> str:
    """``cpu-count=1,disk-count=1,...``."""
    return ",".join(f"{key}={specs[key]}" for key in sorted(specs))
