"""The commands ``gnt-cluster modify`` and ``gnt-cluster show-ispecs-cmd``."""

from __future__ import annotations

from ganeti import TYPE_CHECKING, errors
from ganeti.cli import failures, jobs, terminal, value_types
from ganeti.cli.command import Command, Values
from ganeti.client.gnt_cluster import options

if TYPE_CHECKING:
    from contextlib import AbstractContextManager
    from typing import Any

_NO_CHANGE = "Please give at least one of the parameters."

# Options whose values are opcode parameters without a conversion.
_PLAIN = (
    "vg_name",
    "drbd_helper",
    "candidate_pool_size",
    "max_running_jobs",
    "max_tracked_jobs",
    "maintain_node_health",
    "prealloc_wipe_disks",
    "default_iallocator",
    "default_iallocator_params",
    "mac_prefix",
    "master_netdev",
    "use_external_mip_script",
    "file_storage_dir",
    "shared_file_storage_dir",
    "install_image",
    "zeroing_image",
    "instance_communication_network",
    "enabled_user_shutdown",
    "rapi_require_authentication",
    "job_execution",
    "modify_etc_hosts",
    "witness",
)
_LISTS = ("enabled_hypervisors", "enabled_disk_templates", "compression_tools")
_UID_POOLS = ("uid_pool", "add_uids", "remove_uids")


def modify(values: Values, arguments: list[str]) -> int:
    """Change parameters of the cluster (``modify``)."""
    from ganeti.opcodes.cluster import OpClusterSetParams

    files = _witness_files(values)
    params = modify_params(values)
    if not params:
        terminal.err(_NO_CHANGE)
        return failures.EXIT_FAILURE
    client = jobs.connect()
    with files:
        result = jobs.run_opcode(
            OpClusterSetParams(force=values.force, **params, **jobs.common_params(values)),
            values,
            client=client,
        )
    if not result:
        return failures.EXIT_SUCCESS
    outcomes = jobs.await_submitted(result["jobs"], values, client)
    succeeded = all(outcome.success for outcome in outcomes)
    return failures.EXIT_SUCCESS if succeeded else failures.EXIT_FAILURE


def _witness_files(values: Values) -> AbstractContextManager[None]:
    """Copy the files for a witness to their places.

    :raises OpPrereqError: they are given without a witness, or cannot be used.
    """
    if values.witness_auth is None and values.witness_ca is None:
        import contextlib

        return contextlib.nullcontext()
    if not values.witness or values.witness == "none" or values.dry_run:
        raise errors.OpPrereqError(
            "--witness-auth and --witness-ca need --witness=URL, and exclude --dry-run",
            errors.ECODE_INVAL,
        )
    from ganeti.client.gnt_cluster import witness

    return witness.installed(values.witness_auth, values.witness_ca)


def modify_params(values: Values) -> dict[str, Any]:
    """Return the given parameters of the opcode.

    :raises OpPrereqError: an option contradicts another one, or contains an unknown name.
    :raises TypeEnforcementError: unknown parameter, or wrong type of a value.
    """
    from ganeti.client.gnt_cluster import parameters

    if values.defaults:
        from ganeti.client.gnt_cluster import defaults_option

        defaults_option.apply(
            values, lambda: jobs.connect().query_cluster_info()["enabled_hypervisors"]
        )
    found: dict[str, Any] = {
        name: values.get(name) for name in _PLAIN if values.get(name) is not None
    }
    found.update(
        (name, parameters.names(values.get(name)))
        for name in _LISTS
        if values.get(name) is not None
    )
    _require_known(found)
    found.update(
        (name, [list(part) for part in parameters.uid_pool(values.get(name))])
        for name in _UID_POOLS
        if values.get(name) is not None
    )
    if values.reserved_lvs is not None:
        found["reserved_lvs"] = value_types.parse_list(values.reserved_lvs)
    if values.master_netmask is not None:
        found["master_netmask"] = parameters.netmask(values.master_netmask)
    return {**found, **_automatic(values), **_parameter_groups(values), **_collectors(values)}


def _automatic(values: Values) -> dict[str, Any]:
    """Return what the cluster does by itself, as the options say it."""
    from ganeti.constants import failover, instance_failover, node_watchdog

    found: dict[str, Any] = {
        name: _yes_no_or_time(f"--{name.replace('_', '-')}", values.get(name), default_s)
        for name, default_s in (
            ("auto_instance_failover", instance_failover.DEFAULT_S),
            ("node_watchdog", node_watchdog.DEFAULT_S),
            ("auto_failover", failover.DEFAULT_S),
        )
        if values.get(name) is not None
    }
    if values.auto_balance is not None:
        found["auto_balance"] = _auto_balance(values.auto_balance)
    return found


def _parameter_groups(values: Values) -> dict[str, Any]:
    """Return the given parameters of hypervisors, disks, network interfaces, nodes and policies."""
    from ganeti.cli import node_params
    from ganeti.client.gnt_cluster import parameters

    found: dict[str, Any] = {}
    for name, read in (
        ("hvparams", parameters.hypervisor_params),
        ("diskparams", parameters.disk_params),
        ("beparams", parameters.backend_params),
        ("nicparams", parameters.nic_params),
        ("ndparams", node_params.node_params),
        ("hv_state", node_params.hv_state),
        ("disk_state", node_params.disk_state),
    ):
        if values.get(name):
            found[name] = read(values.get(name))
    policy = {**parameters.policy(values), **_default_ratios(values)}
    if policy:
        found["ipolicy"] = policy
    return found


def _collectors(values: Values) -> dict[str, Any]:
    """Return the given settings of the data collectors."""
    found: dict[str, Any] = {}
    if values.enabled_data_collectors:
        found["enabled_data_collectors"] = {
            name: _switch(name, value) for name, value in values.enabled_data_collectors.items()
        }
    if values.data_collector_interval:
        found["data_collector_interval"] = {
            name: _microseconds(name, value)
            for name, value in values.data_collector_interval.items()
        }
    return found


def _auto_balance(text: str) -> dict[str, Any]:
    """Read the settings of the automatic balance: ``yes``, ``no``, or ``moves=N,gain=SCORE``.

    :returns: the settings which are given, or the default ones; empty for no balance.
    :raises OpPrereqError: the text has another form.
    """
    from ganeti.constants import balance

    try:
        return dict(balance.DEFAULTS) if value_types.parse_bool(text) else {}
    except errors.ParameterError:
        pass
    found: dict[str, Any] = {}
    for part in text.split(","):
        key, _, value = part.partition("=")
        try:
            if key == "moves":
                found[balance.MOVES_PER_HOUR] = int(value)
            elif key == "gain":
                found[balance.MIN_GAIN] = float(value)
            else:
                raise ValueError(key)
        except ValueError as err:
            raise errors.OpPrereqError(
                f"--auto-balance: '{part}' is neither yes nor no nor moves=N nor gain=SCORE",
                errors.ECODE_INVAL,
            ) from err
    return found


def _yes_no_or_time(option: str, text: str, default_s: int) -> int:
    """Read an option with the value ``yes``, ``no`` or a time span.

    :param default_s: the meaning of ``yes``.
    :returns: seconds, 0 for ``no``.
    """
    try:
        return default_s if value_types.parse_bool(text) else 0
    except errors.ParameterError:
        pass
    try:
        return value_types.parse_time(text)
    except errors.ParameterError as err:
        raise errors.OpPrereqError(
            f"{option}: '{text}' is neither yes nor no nor a time span such as 15s or 2m",
            errors.ECODE_INVAL,
        ) from err


def _require_known(params: dict[str, Any]) -> None:
    """Check names of hypervisors and disk templates, so that the error lists the known ones.

    :raises OpPrereqError: unknown hypervisor or disk template.
    """
    from ganeti.constants import hv
    from ganeti.objects import disk_templates

    for name, what, known in (
        ("enabled_hypervisors", "hypervisor", hv.ALL),
        ("enabled_disk_templates", "disk template", disk_templates.ALL),
    ):
        for word in params.get(name) or ():
            if word not in known:
                raise errors.OpPrereqError(
                    f"there is no {what} '{word}'. Known are: {', '.join(sorted(known))}.",
                    errors.ECODE_INVAL,
                )


def _default_ratios(values: Values) -> dict[str, str]:
    return {
        name: "default"
        for dest, name in (
            ("ipolicy_vcpu_ratio", "vcpu-ratio"),
            ("ipolicy_spindle_ratio", "spindle-ratio"),
        )
        if values.get(dest) == "default"
    }


def _switch(name: str, value: object) -> bool:
    """Read whether a data collector is enabled: ``NAME``, ``no_NAME``, or yes, no, 0 or 1."""
    if isinstance(value, bool):
        return value
    word = str(value)
    try:
        return value_types.parse_bool({"0": "no", "1": "yes"}.get(word, word))
    except errors.ParameterError as err:
        raise errors.OpPrereqError(f"data collector {name}: {err}", errors.ECODE_INVAL) from err


def _microseconds(name: str, value: object) -> int:
    try:
        return round(value_types.parse_float(str(value)) * 1_000_000)
    except errors.ParameterError as err:
        raise errors.OpPrereqError(f"data collector {name}: {err}", errors.ECODE_INVAL) from err


def show_ispecs_cmd(values: Values, arguments: list[str]) -> int:
    """Print the command that creates a cluster with the same policy (``show-ispecs-cmd``)."""
    from ganeti.cli import policy_options
    from ganeti.utils import text

    info = jobs.connect().query_cluster_info()
    policy = info["ipolicy"]
    words = [
        "gnt-cluster",
        "init",
        "--ipolicy-std-specs",
        policy_options.specs_text(policy["std"]),
        *policy_options.bounds_words(policy["minmax"]),
        info["name"],
    ]
    terminal.out(" ".join(text.shell_quote(word) for word in words))
    return failures.EXIT_SUCCESS


#: The commands of this module.
COMMANDS = (
    Command("modify", modify, [], options.MODIFY, "Change parameters of the cluster"),
    Command(
        "show-ispecs-cmd",
        show_ispecs_cmd,
        [],
        [],
        "Print the command that creates a cluster with the sizes of this instance policy",
    ),
)
