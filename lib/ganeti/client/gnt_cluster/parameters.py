"""Turn options into parameters of the cluster, for ``gnt-cluster init`` and ``gnt-cluster modify``.

Texts are converted to their types here, so that mistakes are found before anything is changed.
:mod:`ganeti.bootstrap` and the master check whether the parameters fit together.
"""

from __future__ import annotations

from ganeti import TYPE_CHECKING, errors
from ganeti.cli import value_types
from ganeti.cli.command import Values
from ganeti.cli.policy_options import SPEC_TYPES
from ganeti.cli.policy_options import bounds as typed_bounds
from ganeti.constants import instance as instance_const
from ganeti.constants import net as net_const

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from ganeti.bootstrap import InitParams


# Destination of an option for one key of the policy, and the name of this key.
_SPECS = (
    ("ispecs_mem_size", "memory-size"),
    ("ispecs_disk_size", "disk-size"),
    ("ispecs_cpu_count", "cpu-count"),
    ("ispecs_disk_count", "disk-count"),
    ("ispecs_nic_count", "nic-count"),
)

AUTOMATIC_POOL = "auto"
# More guests than one node has; a user id is used once on each node.
_AUTOMATIC_POOL_SIZE = 1000


def init_params(values: Values, cluster_name: str) -> InitParams:
    """Return all parameters of ``init``.

    :raises OpPrereqError: an option contradicts another one, or contains an unknown name.
    :raises TypeEnforcementError: unknown parameter, or wrong type of a value.
    """
    from ganeti.bootstrap import InitParams
    from ganeti.cli import node_params

    if values.defaults:
        from ganeti.client.gnt_cluster import defaults_option

        # Without --enabled-hypervisors only this hypervisor is enabled.
        defaults_option.apply(values, lambda: [values.defaults["hypervisor"]])
    if str(values.primary_ip_version) not in ("4", "6"):
        raise errors.OpPrereqError(
            f"--primary-ip-version: '{values.primary_ip_version}' is neither 4 nor 6",
            errors.ECODE_INVAL,
        )
    return InitParams(
        cluster_name=cluster_name,
        secondary_ip=values.secondary_ip,
        primary_ip_version=int(values.primary_ip_version),
        master_netdev=values.master_netdev,
        master_netmask=netmask(values.master_netmask),
        use_external_mip_script=bool(values.use_external_mip_script),
        mac_prefix=values.mac_prefix,
        vg_name=values.vg_name,
        drbd_helper=values.drbd_helper,
        enabled_hypervisors=names(values.enabled_hypervisors),
        enabled_disk_templates=names(values.enabled_disk_templates),
        hvparams=_with_pool(values, hypervisor_params(values.hvparams)),
        beparams=backend_params(values.beparams),
        nicparams=nic_params(values.nicparams),
        ndparams=node_params.node_params(values.ndparams),
        diskparams=disk_params(values.diskparams),
        ipolicy=policy(values),
        hv_state=node_params.hv_state(values.hv_state),
        disk_state=node_params.disk_state(values.disk_state),
        file_storage_dir=values.file_storage_dir,
        shared_file_storage_dir=values.shared_file_storage_dir,
        gluster_storage_dir=values.gluster_storage_dir,
        candidate_pool_size=values.candidate_pool_size,
        modify_etc_hosts=values.modify_etc_hosts,
        modify_ssh_setup=values.modify_ssh_setup,
        maintain_node_health=bool(values.maintain_node_health),
        uid_pool=uid_pool(values.uid_pool),
        default_iallocator=values.default_iallocator,
        default_iallocator_params=values.default_iallocator_params or {},
        prealloc_wipe_disks=bool(values.prealloc_wipe_disks),
        install_image=values.install_image or "",
        zeroing_image=values.zeroing_image or "",
        compression_tools=names(values.compression_tools),
        enabled_user_shutdown=bool(values.enabled_user_shutdown),
        rapi_require_authentication=bool(values.rapi_require_authentication),
        ssh_key_type=values.ssh_key_type,
        ssh_key_bits=values.ssh_key_bits,
    )


def _with_pool(values: Values, params: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Let guests use the pool which ``--uid-pool=auto`` makes, unless an option says otherwise."""
    from ganeti.objects import hypervisors

    if values.uid_pool == AUTOMATIC_POOL:
        for name, descriptor in hypervisors.ALL.items():
            choice = descriptor.user_parameter
            if choice is not None:
                params.setdefault(name, {}).setdefault(choice.name, choice.pool)
    return params


def netmask(text: str | None) -> int | None:
    """Read the number of bits of a netmask; None stays None.

    :raises OpPrereqError: not a number.
    """
    if text is None:
        return None
    try:
        return value_types.parse_int(text)
    except errors.ParameterError as err:
        raise errors.OpPrereqError(f"netmask: {err}", errors.ECODE_INVAL) from err


def names(text: str | None) -> list[str] | None:
    """Return ``a,b`` as a list; None stays None."""
    return None if text is None else [name for name in text.split(",") if name]


def hypervisor_params(given: Sequence[tuple[str, Any]]) -> dict[str, dict[str, Any]]:
    """Return the parameters of hypervisors in their types."""
    from ganeti.objects import hvparams

    types = {
        name: {key: parameter.type for key, parameter in table.items()}
        for name, table in hvparams.TABLES.items()
    }
    return _typed_groups(given, types, "hypervisor")


def disk_params(given: Sequence[tuple[str, Any]]) -> dict[str, dict[str, Any]]:
    """Return the parameters of disk templates in their types."""
    from ganeti.objects import disk_templates

    types = dict.fromkeys(disk_templates.ALL, disk_templates.parameter_types())
    return _typed_groups(given, types, "disk template")


def _typed_groups(
    given: Sequence[tuple[str, Any]], types: dict[str, dict[str, str]], what: str
) -> dict[str, dict[str, Any]]:
    """Turn options such as ``kvm:a=b`` into typed parameters by group (here ``kvm``).

    :param types: group -> parameter -> type.
    :param what: name of the kind of group, for error texts.
    :raises OpPrereqError: unknown group, or all its parameters are removed.
    :raises TypeEnforcementError: unknown parameter, or wrong type of a value.
    """
    found: dict[str, dict[str, Any]] = {}
    for group, params in given:
        if group not in types:
            raise errors.OpPrereqError(
                f"unknown {what} '{group}'. Known are: {', '.join(sorted(types))}.",
                errors.ECODE_INVAL,
            )
        if not isinstance(params, dict):
            raise errors.OpPrereqError(
                f"parameters of {what} '{group}' cannot be removed here", errors.ECODE_INVAL
            )
        found.setdefault(group, {}).update(value_types.typed_params(params, types[group]))
    return found


def backend_params(given: dict[str, Any]) -> dict[str, Any]:
    """Return backend parameters in their types; ``memory`` (MiB) sets ``minmem`` and ``maxmem``.

    :raises TypeEnforcementError: one of the others is given, too, with another size.
    """
    params = value_types.typed_params(given, instance_const.BE_PARAM_TYPES_WITH_MEMORY)
    if instance_const.BE_MEMORY not in params:
        return params
    from ganeti.objects import hvparams  # typed_params() has loaded it

    return hvparams.split_memory(params)


def nic_params(given: dict[str, Any]) -> dict[str, Any]:
    """Return parameters of network interfaces in their types."""
    return value_types.typed_params(given, net_const.NIC_PARAM_TYPES)


def uid_pool(text: str | None) -> list[tuple[int, int]]:
    """Turn ``1000-1010,2000`` into ranges, as pairs of the lowest and the highest user id.

    ``auto`` stands for a range which no account of this machine has.

    :raises OpPrereqError: a part is not a range, or is empty.
    :raises ConfigurationError: ``auto``, and no range is free.
    """
    if text == AUTOMATIC_POOL:
        from ganeti.platform import users

        return [users.free_user_ids(_AUTOMATIC_POOL_SIZE)]
    ranges: list[tuple[int, int]] = []
    for part in (text or "").split(","):
        if not part:
            continue
        low, dash, high = part.strip().partition("-")
        try:
            first, last = int(low), int(high) if dash else int(low)
        except ValueError as err:
            raise errors.OpPrereqError(
                f"uid pool: '{part}' is not a range of user IDs", errors.ECODE_INVAL
            ) from err
        if not 0 <= first <= last:
            raise errors.OpPrereqError(f"uid pool: range '{part}' is empty", errors.ECODE_INVAL)
        ranges.append((first, last))
    return ranges


def policy(values: Values) -> dict[str, Any]:
    """Return the given parts of an instance policy.

    :raises OpPrereqError: both forms of bounds are given, or wrong bounds.
    :raises TypeEnforcementError: unknown key, or wrong type of a value.
    """
    found: dict[str, Any] = {}
    split = {name: values.get(dest) for dest, name in _SPECS if values.get(dest)}
    if split and (values.ipolicy_bounds_specs is not None or values.ipolicy_std_specs is not None):
        raise errors.OpPrereqError(
            "give either --ipolicy-bounds-specs and --ipolicy-std-specs, or --specs-...",
            errors.ECODE_INVAL,
        )
    if values.ipolicy_bounds_specs is not None:
        found["minmax"] = [typed_bounds(section) for section in values.ipolicy_bounds_specs]
    if values.ipolicy_std_specs is not None:
        found["std"] = value_types.typed_params(values.ipolicy_std_specs, SPEC_TYPES)
    if split:
        found.update(_from_split(split))
    if values.ipolicy_disk_templates is not None:
        found["disk-templates"] = list(values.ipolicy_disk_templates)
    for dest, name in (
        ("ipolicy_vcpu_ratio", "vcpu-ratio"),
        ("ipolicy_spindle_ratio", "spindle-ratio"),
    ):
        value = getattr(values, dest)
        if value is not None and value != "default":
            found[name] = value
    return found


def _from_split(split: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """Turn options such as ``--specs-mem-size min=1,max=2`` into bounds, with defaults for others.

    :param split: key of the policy -> its bounds as texts.
    """
    from ganeti.objects import ipolicy

    default = ipolicy.defaults()
    bounds = {kind: dict(params) for kind, params in default["minmax"][0].items()}
    bounds["std"] = dict(default["std"])
    for name, given in split.items():
        typed = value_types.typed_params(given, dict.fromkeys(bounds, SPEC_TYPES[name]))
        for kind, value in typed.items():
            bounds[kind][name] = value
    std = bounds.pop("std")
    return {"minmax": [bounds], "std": std}
