"""Compute the cluster after a change of its parameters.

:func:`changed` is pure: it reads the present configuration only. It refuses values which are wrong,
or which contradict existing objects. :mod:`ganeti.cmdlib.cluster.set_params` checks whether the
nodes support the change. Parameters which are dictionaries are merged with the present ones. In
parameters of operating systems the value None, or ``default``, removes an entry.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from ganeti import errors, ht
from ganeti.cmdlib.ops.params import os as os_params
from ganeti.cmdlib.ops.params.group import merged_disk_state, merged_hv_state
from ganeti.config import verify
from ganeti.constants import disk as disk_c
from ganeti.constants import hv as hv_c
from ganeti.constants import instance as instance_c
from ganeti.constants import net as net_c
from ganeti.constants import node as node_c
from ganeti.objects import (
    Cluster,
    ConfigData,
    cluster_rules,
    disk_templates,
    fill,
    hvparams,
    ipolicy,
    updated,
)
from ganeti.opcodes.cluster import OpClusterSetParams
from ganeti.utils.text import comma_join

_UNSET = (None, "default")
_SHOWN = 5
#: Parameters which become an attribute of the cluster without a further check.
_UNCHECKED = (
    "candidate_pool_size",
    "max_running_jobs",
    "max_tracked_jobs",
    "maintain_node_health",
    "prealloc_wipe_disks",
    "use_external_mip_script",
    "enabled_user_shutdown",
    "rapi_require_authentication",
    "job_execution",
    "modify_etc_hosts",
    "default_iallocator_params",
    "instance_communication_network",
)


class ClusterChange(NamedTuple):
    """The cluster as it will be, and notes about the change for the user.

    :ivar values: attribute -> new value, for attributes which change.
    :ivar notes: (text, whether it is a warning).
    """

    cluster: Cluster
    values: dict[str, Any]
    notes: list[tuple[str, bool]]


class _Builder:
    """Collects new values of the cluster's attributes."""

    def __init__(
        self, data: ConfigData, op: OpClusterSetParams, *, nic_modes: Sequence[str]
    ) -> None:
        self.data = data
        self.old = data.cluster
        self.op = op
        self.nic_modes = nic_modes
        self.values: dict[str, Any] = {}
        self.notes: list[tuple[str, bool]] = []

    def now(self, name: str) -> Any:
        """Return an attribute of the cluster as it will be; its type depends on the attribute."""
        return self.values.get(name, getattr(self.old, name))

    def note(self, text: str, *, warning: bool = False) -> None:
        self.notes.append((text, warning))

    # -- plain values ----------------------------------------------------------

    def plain(self) -> None:
        op = self.op
        for name in _UNCHECKED:
            value = getattr(op, name)
            if value is not None:
                self.values[name] = value
        checks: dict[str, Callable[[Any], Any]] = {
            "auto_instance_failover": cluster_rules.auto_instance_failover,
            "node_watchdog": cluster_rules.node_watchdog,
            "auto_failover": cluster_rules.auto_failover,
            "witness": cluster_rules.witness,
            "mac_prefix": cluster_rules.mac_prefix,
            "master_netmask": lambda bits: cluster_rules.master_netmask(
                bits, self.old.primary_ip_family
            ),
            "install_image": lambda value: cluster_rules.image(value, "install image"),
            "zeroing_image": lambda value: cluster_rules.image(value, "zeroing image"),
            "compression_tools": cluster_rules.compression_tools,
            "reserved_lvs": cluster_rules.volume_patterns,
            "uid_pool": cluster_rules.uid_ranges,
            "auto_balance": cluster_rules.auto_balance,
            "default_iallocator": lambda value: "" if value == "." else value,
        }
        for name, check in checks.items():
            value = getattr(op, name)
            if value is not None:
                self.values[name] = check(value)
        if op.master_netdev is not None:
            if not op.master_netdev:
                raise errors.ParameterError(
                    "the name of the network interface for the address of the cluster"
                    " (master_netdev) is empty"
                )
            self.values["master_netdev"] = op.master_netdev
        if op.enabled_data_collectors is not None or op.data_collector_interval is not None:
            self.values["data_collectors"] = cluster_rules.data_collectors(
                self.old.data_collectors, op.enabled_data_collectors, op.data_collector_interval
            )

    def uids(self) -> None:
        """Add user ids to the pool of those for guests, and remove some."""
        op = self.op
        if op.add_uids is not None:
            self.values["uid_pool"] = cluster_rules.add_uids(self.now("uid_pool"), op.add_uids)
        if op.remove_uids is not None:
            self.values["uid_pool"] = cluster_rules.remove_uids(
                self.now("uid_pool"), op.remove_uids
            )

    def warnings(self) -> None:
        """Note what is missing for the new values to have the wanted effect."""
        op = self.op
        if self.values.get("auto_failover"):
            problem = verify.auto_failover_problem(self.data, witness=bool(self.now("witness")))
            if problem is not None:
                self.note(problem, warning=True)
        if self.values.get("auto_instance_failover"):
            for problem in verify.auto_instance_failover_problems(
                self.data, watchdogs=bool(self.now("node_watchdog"))
            ):
                self.note(problem, warning=True)
        if self.values.get("node_watchdog"):
            for problem in verify.watchdog_problems(self.data):
                self.note(problem, warning=True)
        if self.now("max_tracked_jobs") < self.now("max_running_jobs") and (
            op.max_running_jobs is not None or op.max_tracked_jobs is not None
        ):
            self.note(
                f"{self.now('max_running_jobs')} jobs may run at once, but only"
                f" {self.now('max_tracked_jobs')} are to be tracked",
                warning=True,
            )

    # -- operating systems -----------------------------------------------------

    def operating_systems(self) -> None:
        for name in ("hidden_os", "blacklisted_os"):
            changes = getattr(self.op, name)
            if changes is not None:
                self.values[name] = self._os_list(name, changes)
        for name, given in (
            ("osparams", self.op.osparams),
            ("osparams_private_cluster", self.op.osparams_private_cluster),
        ):
            if given is None:
                continue
            table = {os_name: dict(params) for os_name, params in getattr(self.old, name).items()}
            for os_name, params in given.items():
                os_params.require_variables(params, f"OS {os_name}: parameter")
                os_params.checked_image(params.get(os_params.IMAGE))
                for key, value in params.items():
                    if value not in _UNSET and not isinstance(value, str):
                        raise errors.ParameterError(f"OS {os_name}: parameter {key} needs a value")
                table[os_name] = _merged(table.get(os_name, {}), params)
            table = {os_name: params for os_name, params in table.items() if params}
            if name == "osparams_private_cluster":
                table = ht.PrivateDict(
                    {os_name: ht.PrivateDict(params) for os_name, params in table.items()}
                )
            self.values[name] = table

    def _os_list(self, name: str, changes: Sequence[tuple[str, str]]) -> tuple[str, ...]:
        names = list(getattr(self.old, name))
        word = name.removesuffix("_os")
        for action, os_name in changes:
            if action == disk_c.MOD_ADD:
                if os_name in names:
                    self.note(f"OS {os_name} is {word} already")
                else:
                    names.append(os_name)
            elif action == disk_c.MOD_REMOVE:
                if os_name in names:
                    names.remove(os_name)
                else:
                    self.note(f"OS {os_name} is not {word}")
            else:
                raise errors.ParameterError(
                    f"{name}: the action must be add or remove, not '{action}'"
                )
        return tuple(names)

    # -- hypervisors -----------------------------------------------------------

    def hypervisors(self) -> None:
        op = self.op
        if op.enabled_hypervisors is not None:
            enabled = cluster_rules.chosen(op.enabled_hypervisors, hv_c.ALL, "hypervisor")
            self.values["enabled_hypervisors"] = enabled
            self._require_unused(
                "hypervisor",
                sorted(set(self.old.enabled_hypervisors) - set(enabled)),
                {i.name: {i.hypervisor} for i in self.data.instances.values()},
            )
        enabled = self.now("enabled_hypervisors")
        table = dict(self.old.hvparams)
        for name, params in (op.hvparams or {}).items():
            if name not in hv_c.ALL:
                raise errors.ParameterError(f"there is no hypervisor '{name}'")
            table[name] = {
                **hvparams.defaults(name),
                **table.get(name, {}),
                **hvparams.force_types(params, _hv_types(name)),
            }
        for name in enabled:
            table.setdefault(name, hvparams.defaults(name))
        for name in {*enabled, *(op.hvparams or ())}:
            hvparams.check_parameter_syntax(name, table[name])
        if table != self.old.hvparams:
            self.values["hvparams"] = table
        if "hvparams" in self.values or "uid_pool" in self.values:
            for name in enabled:
                cluster_rules.require_pool(name, table[name], self.now("uid_pool"))
        if op.os_hvp is not None:
            self.values["os_hvp"] = self._os_hvp(op.os_hvp, table)

    def _os_hvp(self, given: Mapping[str, Any], defaults: Mapping[str, Any]) -> dict[str, Any]:
        table = {
            os_name: {hv: dict(params) for hv, params in by_hv.items()}
            for os_name, by_hv in self.old.os_hvp.items()
        }
        for os_name, by_hv in given.items():
            found = table.setdefault(os_name, {})
            for name, params in by_hv.items():
                if name not in hv_c.ALL:
                    raise errors.ParameterError(f"OS {os_name}: there is no hypervisor '{name}'")
                if params is None:
                    found.pop(name, None)
                    continue
                _require_not_global(os_name, params)
                kept = {key: value for key, value in params.items() if value not in _UNSET}
                typed = hvparams.force_types(kept, _hv_types(name))
                found[name] = _merged(
                    found.get(name, {}), {**dict.fromkeys(set(params) - set(kept)), **typed}
                )
                hvparams.check_parameter_syntax(
                    name, {**defaults.get(name, hvparams.defaults(name)), **found[name]}
                )
        cleaned = {
            os_name: {name: params for name, params in by_hv.items() if params}
            for os_name, by_hv in table.items()
        }
        return {os_name: by_hv for os_name, by_hv in cleaned.items() if by_hv}

    def _require_unused(
        self, what: str, gone: Sequence[str], users: Mapping[str, set[str]]
    ) -> None:
        """Check that no instance uses hypervisors or disk templates which are to be disabled.

        :param gone: the names which are to be disabled.
        :param users: name of an instance -> names which it uses.
        """
        for name in gone:
            using = sorted(user for user, used in users.items() if name in used)
            if using:
                more = f" and {len(using) - _SHOWN} others" if len(using) > _SHOWN else ""
                raise errors.OpPrereqError(
                    f"{what} {name} cannot be disabled, instances use it:"
                    f" {comma_join(using[:_SHOWN])}{more}",
                    errors.ECODE_STATE,
                )

    # -- storage ---------------------------------------------------------------

    def storage(self) -> None:
        op = self.op
        templates = self._templates()
        for template, name in disk_templates.directory_fields().items():
            value = getattr(op, name)
            if value is not None:
                self.values[name] = cluster_rules.storage_dir(value, template)
                if value and template not in templates:
                    self.note(
                        f"{name} is set, but disk template {template} is not enabled", warning=True
                    )
            asked = value is not None or op.enabled_disk_templates is not None
            if asked and template in templates and not self.now(name):
                raise errors.ParameterError(
                    f"disk template {template} is enabled and needs a directory ({name})"
                )
        self._lvm(templates)
        if op.diskparams is not None:
            given = cluster_rules.disk_params(op.diskparams)
            table = {
                name: {
                    **disk_templates.defaults(name),
                    **self.old.diskparams.get(name, {}),
                    **given.get(name, {}),
                }
                for name in sorted(disk_templates.ALL)
            }
            self.values["diskparams"] = table
        if op.hv_state is not None:
            self.values["hv_state_static"] = merged_hv_state(self.old.hv_state_static, op.hv_state)
        if op.disk_state is not None:
            self.values["disk_state_static"] = merged_disk_state(
                self.old.disk_state_static, op.disk_state
            )

    def _templates(self) -> tuple[str, ...]:
        if self.op.enabled_disk_templates is None:
            return self.old.enabled_disk_templates
        templates = cluster_rules.chosen(
            self.op.enabled_disk_templates, disk_templates.ALL, "disk template"
        )
        self.values["enabled_disk_templates"] = templates
        gone = sorted(set(self.old.enabled_disk_templates) - set(templates))
        if gone:
            self._require_unused(
                "disk template",
                gone,
                {
                    instance.name: self._templates_of(instance.disks)
                    for instance in self.data.instances.values()
                },
            )
        return templates

    def _templates_of(self, disks: Iterable[str]) -> set[str]:
        return {self.data.disks[uuid].dev_type for uuid in disks} or {disk_c.DISKLESS}

    def _lvm(self, templates: Sequence[str]) -> None:
        op = self.op
        if op.vg_name is not None:
            if "/" in op.vg_name:
                raise errors.ParameterError(f"'{op.vg_name}' is not the name of a volume group")
            self.values["volume_group_name"] = op.vg_name
            if op.vg_name and not disk_templates.LVM_BASED & set(templates):
                self.note("a volume group is set, but no disk template uses LVM", warning=True)
        if op.drbd_helper is not None:
            self.values["drbd_usermode_helper"] = op.drbd_helper or None
            if op.drbd_helper and not op.drbd_helper.startswith("/"):
                raise errors.ParameterError(
                    f"the DRBD usermode helper '{op.drbd_helper}' is not an absolute path"
                )
        lvm = sorted(disk_templates.LVM_BASED & set(templates))
        if (
            (op.vg_name is not None or op.enabled_disk_templates is not None)
            and lvm
            and not self.now("volume_group_name")
        ):
            raise errors.ParameterError(
                f"disk template {comma_join(lvm)} is enabled and needs a volume group (vg_name)"
            )
        if op.drbd_helper is not None and not op.drbd_helper:
            using = sorted(
                instance.name
                for instance in self.data.instances.values()
                if disk_c.DRBD8 in self._templates_of(instance.disks)
            )
            if using:
                raise errors.OpPrereqError(
                    f"the DRBD usermode helper is needed by instances {comma_join(using[:_SHOWN])}",
                    errors.ECODE_STATE,
                )

    # -- defaults of objects ---------------------------------------------------

    def defaults(self) -> None:
        op = self.op
        if op.beparams is not None:
            given = hvparams.split_memory(op.beparams)
            filled = {
                **instance_c.BE_DEFAULTS,
                **self.old.beparams.get("default", {}),
                **hvparams.force_types(given, instance_c.BE_PARAM_TYPES),
            }
            cluster_rules.backend_params(filled)
            self.values["beparams"] = {**self.old.beparams, "default": filled}
        if op.nicparams is not None:
            filled = {
                **net_c.NIC_DEFAULTS,
                **self.old.nicparams.get("default", {}),
                **hvparams.force_types(op.nicparams, net_c.NIC_PARAM_TYPES),
            }
            cluster_rules.nic_params(filled, self.nic_modes)
            self.values["nicparams"] = {**self.old.nicparams, "default": filled}
        if op.ndparams is not None:
            reset = {
                name: node_c.ND_DEFAULTS[name]
                for name, value in op.ndparams.items()
                if value in _UNSET and name in node_c.ND_DEFAULTS
            }
            own = {name: value for name, value in op.ndparams.items() if name not in reset}
            self.values["ndparams"] = {
                **node_c.ND_DEFAULTS,
                **self.old.ndparams,
                **reset,
                **hvparams.force_types(own, node_c.ND_PARAM_TYPES),
            }
            self._exclusive_storage()

    def _exclusive_storage(self) -> None:
        name = "exclusive_storage"
        if not self.values["ndparams"][name] or self.old.ndparams.get(name):
            return
        shared = sorted(
            instance.name
            for instance in self.data.instances.values()
            if not self._templates_of(instance.disks) <= {disk_c.DISKLESS, disk_c.PLAIN}
        )
        if shared:
            raise errors.OpPrereqError(
                "exclusive storage is possible only for disks of template plain, but instances"
                f" {comma_join(shared[:_SHOWN])} have disks of other templates",
                errors.ECODE_STATE,
            )

    def policy(self) -> None:
        templates = self.now("enabled_disk_templates")
        given = dict(self.op.ipolicy or {})
        if not given and self.op.enabled_disk_templates is None:
            return
        unknown = sorted(set(given) - ipolicy.KEYS)
        if unknown:
            raise errors.ParameterError(f"instance policy: unknown key {comma_join(unknown)}")
        for ratio in ipolicy.RATIOS:
            if ratio in given and given[ratio] in _UNSET:
                given[ratio] = ipolicy.defaults()[ratio]
        unset = [key for key, value in given.items() if value in _UNSET]
        if unset:
            raise errors.ParameterError(
                f"instance policy: {comma_join(unset)} cannot have the value default, because"
                " the cluster is the source of the defaults"
            )
        policy = fill.fill_ipolicy(self.old.ipolicy, given)
        key = ipolicy.DISK_TEMPLATES
        if key in given:
            disabled = sorted(set(given[key]) - set(templates))
            if disabled and disk_templates.ALL >= set(disabled):
                raise errors.ParameterError(
                    f"the instance policy allows disk templates which are not enabled:"
                    f" {comma_join(disabled)}"
                )
        elif self.op.enabled_disk_templates is not None:
            gone = set(self.old.enabled_disk_templates) - set(templates)
            left = [name for name in policy[key] if name not in gone]
            if left != list(policy[key]):
                self.note("the disabled disk templates are removed from the instance policy")
            policy[key] = left
            new = sorted(set(templates) - set(left))
            if new:
                self.note(
                    f"the instance policy does not allow the enabled disk template"
                    f" {comma_join(new)}. Change it with --ipolicy-disk-templates.",
                    warning=True,
                )
        ipolicy.check_syntax(policy, filled=True)
        cluster_rules.policy_templates(policy, templates, "the instance policy")
        for group in self.data.nodegroups.values():
            cluster_rules.policy_templates(
                fill.fill_ipolicy(policy, group.ipolicy),
                templates,
                f"the instance policy of node group {group.name}",
            )
        self.values["ipolicy"] = policy


def changed(data: ConfigData, op: OpClusterSetParams, *, nic_modes: Sequence[str]) -> ClusterChange:
    """Compute the cluster with the changes of an opcode.

    :param nic_modes: the modes which NICs may have on these machines.
    :raises errors.OpPrereqError: a parameter is wrong, or contradicts an existing object.
    """
    builder = _Builder(data, op, nic_modes=nic_modes)
    try:
        builder.plain()
        builder.uids()
        builder.warnings()
        builder.operating_systems()
        builder.hypervisors()
        builder.storage()
        builder.defaults()
        builder.policy()
    except (
        errors.ParameterError,
        errors.ConfigurationError,
        errors.HypervisorError,
        errors.TypeEnforcementError,
    ) as err:
        raise errors.OpPrereqError(str(err), errors.ECODE_INVAL) from err
    values = {
        name: value
        for name, value in builder.values.items()
        if value != getattr(data.cluster, name)
    }
    cluster = updated(data.cluster, **values) if values else data.cluster
    if values:
        _require_whole(data, cluster)
    return ClusterChange(cluster, values, builder.notes)


def _require_whole(data: ConfigData, cluster: Cluster) -> None:
    """Check that the change adds no new contradiction to the configuration."""
    known = set(verify.check(data))
    after = verify.check(dataclasses.replace(data, cluster=cluster))
    new = [problem for problem in after if problem not in known]
    if new:
        more = f"; and {len(new) - _SHOWN} more problems" if len(new) > _SHOWN else ""
        raise errors.OpPrereqError(
            f"the configuration would contradict itself: {'; '.join(new[:_SHOWN])}{more}",
            errors.ECODE_STATE,
        )


def _hv_types(name: str) -> dict[str, str]:
    return {key: parameter.type for key, parameter in hvparams.TABLES[name].items()}


def _require_not_global(os_name: str, params: Mapping[str, Any]) -> None:
    wrong = sorted(hv_c.GLOBAL_PARAMS & set(params))
    if wrong:
        raise errors.ParameterError(
            f"OS {os_name}: {comma_join(wrong)} can be set for the whole cluster only"
        )


def _merged(present: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the present entries with the given ones.

    The values None and ``default`` remove an entry.
    """
    found = {**present, **given}
    return {
        name: value for name, value in found.items() if name not in given or value not in _UNSET
    }
