"""Parameters of node groups, and how a change is merged with them.

The value ``default`` (or null, which other programs send) removes the group's own value, so that
the cluster's value is used. All functions are pure and raise :class:`~ganeti.errors.OpPrereqError`
with a text that names the parameter.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ganeti import errors
from ganeti.constants import disk as disk_c
from ganeti.constants import node as node_c
from ganeti.constants.net import VALUE_DEFAULT
from ganeti.objects import cluster_rules, disk_templates, ipolicy
from ganeti.objects import hvparams as hv

if TYPE_CHECKING:
    from ganeti.objects import Cluster

_DISK_STATE_PARAMS = ("disk_overhead", "disk_reserved", "disk_total")


def merged_ndparams(present: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """Node parameters of a group after a change."""
    return _merged(present, given, node_c.ND_PARAM_TYPES, "node parameters")


def merged_diskparams(
    present: Mapping[str, Any], given: Mapping[str, Mapping[str, Any]]
) -> dict[str, Any]:
    """Return the parameters per disk template after a change, without templates which have none."""
    changed = {template: dict(params) for template, params in present.items()}
    for template, params in given.items():
        if template not in disk_templates.ALL:
            raise errors.OpPrereqError(
                f"there is no disk template {template!r}", errors.ECODE_INVAL
            )
        known = disk_templates.of(template).parameters
        types = {name: parameter.type for name, parameter in known.items()}
        changed[template] = _merged(
            changed.get(template, {}), params, types, f"parameters of disk template {template}"
        )
        _check_access(template, changed[template])
    return {template: params for template, params in changed.items() if params}


def _check_access(template: str, params: Mapping[str, Any]) -> None:
    access = params.get("access", disk_c.KERNELSPACE)
    if access not in disk_c.DISK_ACCESS_MODES:
        raise errors.OpPrereqError(
            f"parameters of disk template {template}: access {access!r} is not one of"
            f" {', '.join(disk_c.DISK_ACCESS_MODES)}",
            errors.ECODE_INVAL,
        )


def merged_ipolicy(
    cluster: Cluster, present: Mapping[str, Any], given: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the group's own part of its instance policy after a change.

    :raises errors.OpPrereqError: an unknown key, a standard size (which only the cluster has), or
        limits which contradict each other or the cluster's.
    """
    if ipolicy.STD in given:
        raise errors.OpPrereqError(
            f"instance policy: {ipolicy.STD} can be set for the cluster only, not for a group",
            errors.ECODE_INVAL,
        )
    unknown = sorted(set(given) - ipolicy.KEYS)
    if unknown:
        raise errors.OpPrereqError(
            f"instance policy: unknown key {', '.join(unknown)}", errors.ECODE_INVAL
        )
    changed = dict(present)
    for key, value in given.items():
        if _resets(value) or (key in (ipolicy.MINMAX, ipolicy.DISK_TEMPLATES) and not value):
            changed.pop(key, None)
        else:
            changed[key] = value
    try:
        ipolicy.check_syntax(changed, filled=False)
    except errors.ConfigurationError as err:
        raise errors.OpPrereqError(str(err), errors.ECODE_INVAL) from err
    disabled = sorted(
        set(changed.get(ipolicy.DISK_TEMPLATES, ())) - set(cluster.enabled_disk_templates)
    )
    if ipolicy.DISK_TEMPLATES in given and disabled:
        raise errors.OpPrereqError(
            f"instance policy: disk templates {', '.join(disabled)} are not enabled in this"
            " cluster",
            errors.ECODE_INVAL,
        )
    return changed


def merged_hv_state(present: Mapping[str, Any] | None, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the static state of hypervisors after a change: hypervisor -> name -> number."""
    changed = {name: dict(state) for name, state in (present or {}).items()}
    types = dict.fromkeys(node_c.HV_STATE_PARAMS, "int")
    _check_state_names(given, ())
    for name, state in given.items():
        changed[name] = _merged(
            changed.get(name, {}), _object(state, name), types, f"state of hypervisor {name}"
        )
    return changed


def merged_disk_state(
    present: Mapping[str, Any] | None, given: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the static state of storage after a change: disk template -> name -> state."""
    changed = {kind: dict(named) for kind, named in (present or {}).items()}
    types = dict.fromkeys(_DISK_STATE_PARAMS, "int")
    _check_state_names((), given)
    for kind, named in given.items():
        for name, state in _object(named, kind).items():
            old = changed.setdefault(kind, {}).get(name, {})
            changed[kind][name] = _merged(
                old, _object(state, name), types, f"state of storage {kind}/{name}"
            )
    return changed


def _check_state_names(hv_state: Iterable[str], disk_state: Iterable[str]) -> None:
    try:
        cluster_rules.check_state_names(hv_state, disk_state)
    except errors.ParameterError as err:
        raise errors.OpPrereqError(str(err), errors.ECODE_INVAL) from err


def _object(value: Any, name: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise errors.OpPrereqError(
            f"state of {name} must be an object, not {value!r}", errors.ECODE_INVAL
        )
    return value


def _resets(value: Any) -> bool:
    return value is None or value == VALUE_DEFAULT


def _merged(
    present: Mapping[str, Any], given: Mapping[str, Any], types: Mapping[str, str], what: str
) -> dict[str, Any]:
    unknown = sorted(set(given) - set(types))
    if unknown:
        raise errors.OpPrereqError(
            f"{what}: there is no {', '.join(unknown)}. Known are:"
            f" {', '.join(sorted(types)) or 'none'}.",
            errors.ECODE_INVAL,
        )
    try:
        checked = hv.force_types(
            {key: value for key, value in given.items() if not _resets(value)}, types
        )
    except errors.TypeEnforcementError as err:
        raise errors.OpPrereqError(f"{what}: {err}", errors.ECODE_INVAL) from err
    merged = {**present, **checked}
    return {key: value for key, value in merged.items() if not _resets(given.get(key, value))}


def chosen_hypervisors(cluster: Cluster, names: Sequence[str] | None) -> tuple[str, ...] | None:
    """Check the hypervisors which a group is to have.

    :param names: an empty list means all of the cluster, and None no choice.
    :returns: what the group stores; None for all of the cluster.
    :raises errors.OpPrereqError: one is not enabled in the cluster.
    """
    if not names:
        return None
    for name in names:
        if name not in cluster.enabled_hypervisors:
            raise errors.OpPrereqError(
                f"hypervisor {name} is not enabled in this cluster, only"
                f" {', '.join(cluster.enabled_hypervisors)}. Enable it first with"
                " 'gnt-cluster modify --enabled-hypervisors'",
                errors.ECODE_STATE,
            )
    return tuple(name for name in cluster.enabled_hypervisors if name in names)
