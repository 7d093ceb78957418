"""Upgrade configurations of older versions: one small function for each version step.

Steps work on the plain dictionary from the file, before objects are made of it, and return a new
one; the dictionary which they get is not changed. After the last step, parameters which were
introduced meanwhile get their defaults, so that later code can rely on filled dictionaries. A file
of a newer version, or of a version from which no steps lead here, is refused and not changed.

Steps are as tolerant as the versions were: a missing key gets the value which that version would
have used. For each step there is a file before and one after it in ``test/data/upgrade``.

:func:`downgrade` goes back one version, for administrators who return to the earlier program.
"""

from __future__ import annotations

import copy
import types
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from ganeti import errors
from ganeti.config import newer_values
from ganeti.constants import cluster as const
from ganeti.constants import disk as disk_const
from ganeti.constants import instance as instance_const
from ganeti.constants import net as net_const
from ganeti.constants import node as node_const
from ganeti.objects import disk_templates, hvparams, ipolicy
from ganeti.utils import text

Config = dict[str, Any]
NewUuid = Callable[[], str]
#: Names of fields or parameters, by the place or the hypervisor which has them.
Names = Mapping[str, Collection[str]]


def version_text(version: int) -> str:
    """Return a version as text: ``3.1`` for 3010000."""
    return f"{version // 1_000_000}.{version // 10_000 % 100}"


def upgrade(config: Any, *, new_uuid: NewUuid = text.new_uuid) -> Config:
    """Bring a configuration to the present version.

    :param config: the content of the file; it is not changed.
    :param new_uuid: makes UUIDs for objects which had none in an old version.
    :returns: the same dictionary if there was nothing to do.
    :raises ConfigurationError: it is not a configuration.
    :raises ConfigVersionMismatch: no steps lead from its version to this one.
    """
    version = version_of(config)
    while config["version"] != const.CONFIG_VERSION:
        if config["version"] // 10_000 * 10_000 not in _STEPS:
            raise errors.ConfigVersionMismatch(const.CONFIG_VERSION, version)
        config = upgrade_once(config, new_uuid=new_uuid)
    return _with_defaults(config)


def version_of(config: Any) -> int:
    """Return the version of a configuration, as the number in it.

    :raises ConfigurationError: it is not a configuration.
    """
    if not isinstance(config, dict) or not isinstance(config.get("cluster"), dict):
        raise errors.ConfigurationError("the file contains no cluster configuration", "cluster")
    version = config.get("version")
    if not isinstance(version, int) or isinstance(version, bool):
        raise errors.ConfigurationError("version: must be an integer", "version")
    return version


def upgrade_once(config: Config, *, new_uuid: NewUuid = text.new_uuid) -> Config:
    """Bring a configuration to the version after its own.

    :raises ConfigurationError: it does not have the structure of its version; the message names the
        place.
    :raises ConfigVersionMismatch: no step begins with its version.
    """
    version = version_of(config) // 10_000 * 10_000
    step = _STEPS.get(version)
    if step is None:
        raise errors.ConfigVersionMismatch(const.CONFIG_VERSION, config["version"])
    number, function = step
    changed = copy.deepcopy(config)
    try:
        function(changed, new_uuid)
    except (KeyError, TypeError, AttributeError, ValueError, IndexError) as err:
        what = f"key {err} is missing" if isinstance(err, KeyError) else str(err)
        raise errors.ConfigurationError(
            f"this is not a configuration of version {version_text(version)}: {what}"
        ) from err
    changed["version"] = number
    return changed


# -- the steps; each changes its own copy ----------------------------------------------------------


def _to_2_8(config: Config, new_uuid: NewUuid) -> None:
    """Policies get alternatives, disks and NICs get UUIDs, templates are enabled by name."""
    cluster = config["cluster"]
    for gone in ("default_bridge", "default_hypervisor"):
        cluster.pop(gone, None)
    bounds = ipolicy.defaults()
    whole = bounds[ipolicy.MINMAX][0]
    own = cluster.setdefault("ipolicy", bounds)
    if ipolicy.MINMAX not in own:
        whole = {key: {**whole[key], **own.pop(key, {})} for key in (ipolicy.MIN, ipolicy.MAX)}
        own[ipolicy.MINMAX] = [whole]
    for group in config.setdefault("nodegroups", {}).values():
        policy = group.setdefault("ipolicy", {})
        parts = {key: policy.pop(key, {}) for key in (ipolicy.MIN, ipolicy.MAX)}
        if any(parts.values()):
            policy[ipolicy.MINMAX] = [
                {key: {**whole[key], **values} for key, values in parts.items()}
            ]
        if not policy.get(ipolicy.STD, True):
            del policy[ipolicy.STD]
        group.setdefault("networks", {})
        group.setdefault("diskparams", {})
    for network in config.setdefault("networks", {}).values():
        for gone in ("family", "size", "network_type"):
            network.pop(gone, None)
    used = {instance.get("disk_template") for instance in config["instances"].values()}
    for instance in config["instances"].values():
        for item in (*instance.get("disks", []), *instance.get("nics", [])):
            item.setdefault("uuid", new_uuid())
    if "enabled_disk_templates" not in cluster:
        # All templates which the cluster could use before, so that no instance is refused now.
        wanted = used - {None, disk_const.DISKLESS}
        if cluster.get("volume_group_name"):
            wanted |= {disk_const.DRBD8, disk_const.PLAIN}
        for directory, template in (
            ("file_storage_dir", disk_const.FILE),
            ("shared_file_storage_dir", disk_const.SHARED_FILE),
        ):
            if cluster.get(directory):
                wanted.add(template)
        cluster["enabled_disk_templates"] = [
            name for name in sorted(disk_templates.ALL) if name in wanted
        ] or [disk_const.DISKLESS]


_DISK_TYPES_2_8 = {"lvm": disk_const.PLAIN, "drbd8": disk_const.DRBD8}


def _to_2_9(config: Config, new_uuid: NewUuid) -> None:
    """UUIDs become the keys of all objects and references; devices are named like templates."""
    uuids: dict[str, str] = {}
    for key, node in config["nodes"].items():
        uuids[node.get("name", key)] = node.setdefault("uuid", new_uuid())

    def uuid_of(name: str) -> str:
        return uuids.get(name, name)

    config["nodes"] = {node["uuid"]: node for node in config["nodes"].values()}
    config["cluster"]["master_node"] = uuid_of(config["cluster"]["master_node"])
    for instance in config["instances"].values():
        instance.setdefault("uuid", new_uuid())
        instance["primary_node"] = uuid_of(instance["primary_node"])
        for device in _devices(instance.get("disks", [])):
            device["dev_type"] = _DISK_TYPES_2_8.get(device["dev_type"], device["dev_type"])
            if device["dev_type"] == disk_const.DRBD8:
                parts = device["logical_id"]
                device["logical_id"] = [uuid_of(parts[0]), uuid_of(parts[1]), *parts[2:]]
    config["instances"] = {item["uuid"]: item for item in config["instances"].values()}
    for hypervisor in ("xen-pvm", "xen-hvm"):
        params = config["cluster"]["hvparams"].setdefault(hypervisor, {})
        params.setdefault("vif_script", "")
        params.setdefault("xen_cmd", "xm")


def _to_2_10(config: Config, new_uuid: NewUuid) -> None:
    """The physical ID of a device is not stored any more."""
    for instance in config["instances"].values():
        for device in _devices(instance.get("disks", [])):
            device.pop("physical_id", None)


def _to_2_11(config: Config, new_uuid: NewUuid) -> None:
    """Candidates get certificates of their own; a guest may be shut down from inside."""
    cluster = config["cluster"]
    cluster.setdefault("candidate_certs", {})
    cluster.setdefault("default_iallocator_params", {})
    cluster.setdefault("enabled_user_shutdown", False)
    for instance in config["instances"].values():
        instance.setdefault("admin_state_source", instance_const.SOURCE_ADMIN)


def _to_2_12(config: Config, new_uuid: NewUuid) -> None:
    """Disks become objects of their own; instances refer to them."""
    cluster = config["cluster"]
    cluster.setdefault("compression_tools", ["gzip", "gzip-fast", "gzip-slow"])
    cluster.setdefault("install_image", "")
    cluster.setdefault("instance_communication_network", "")
    cluster.setdefault("zeroing_image", "")
    disks = config.setdefault("disks", {})
    for instance in config["instances"].values():
        uuids = []
        for disk in instance.get("disks", []):
            if isinstance(disk, str):
                uuids.append(disk)
                continue
            born = instance.get("ctime", 0)
            disk.setdefault("uuid", new_uuid())
            disks[disk["uuid"]] = {"ctime": born, "mtime": born, "serial_no": 1, **disk}
            uuids.append(disk["uuid"])
        instance["disks"] = uuids


_COLLECTOR = {"active": True, "interval": 5_000_000.0}


def _to_2_13(config: Config, new_uuid: NewUuid) -> None:
    """Filter rules and data collectors are added; devices below a disk lose their UUID."""
    config.setdefault("filters", {})
    collectors = config["cluster"].setdefault("data_collectors", {})
    for name in ("cpu-avg-load", "diskstats", "drbd", "inst-status-xen", "lv"):
        collectors.setdefault(name, dict(_COLLECTOR))
    for disk in config["disks"].values():
        for device in _devices(disk.get("children", [])):
            device.pop("uuid", None)


def _to_2_14(config: Config, new_uuid: NewUuid) -> None:
    """Disks get nodes and imply the template; limits of jobs; private OS parameters."""
    cluster = config["cluster"]
    cluster.setdefault("gluster_storage_dir", "")
    cluster.setdefault("max_running_jobs", 20)
    cluster.setdefault("max_tracked_jobs", 25)
    cluster.setdefault("osparams_private_cluster", {})
    # From this version on, a policy allows only templates which are enabled.
    enabled = cluster["enabled_disk_templates"]
    cluster["ipolicy"][ipolicy.DISK_TEMPLATES] = [
        name for name in cluster["ipolicy"].get(ipolicy.DISK_TEMPLATES, enabled) if name in enabled
    ] or list(enabled)
    for instance in config["instances"].values():
        instance.pop("disk_template", None)
        instance.setdefault("disks_active", instance.get("admin_state") == instance_const.ADMIN_UP)
        instance.setdefault("osparams_private", {})
        for uuid in instance["disks"]:
            disk = config["disks"][uuid]
            mirrored = disk["dev_type"] == disk_const.DRBD8
            nodes = list(disk["logical_id"][:2]) if mirrored else [instance["primary_node"]]
            for device in _devices([disk]):
                device.setdefault("nodes", list(nodes))


def _to_2_15(config: Config, new_uuid: NewUuid) -> None:
    """The load of Xen gets a data collector of its own."""
    config["cluster"]["data_collectors"].setdefault("xen-cpu-avg-load", dict(_COLLECTOR))


def _to_2_16(config: Config, new_uuid: NewUuid) -> None:
    """Guests under KVM may discard blocks of their disks."""
    config["cluster"]["hvparams"].setdefault("kvm", {}).setdefault("disk_discard", "ignore")


def _to_3_0(config: Config, new_uuid: NewUuid) -> None:
    """The type of SSH keys can be chosen; ``xm`` is replaced by ``xl``."""
    cluster = config["cluster"]
    cluster.setdefault("ssh_key_type", "rsa")
    cluster.setdefault("ssh_key_bits", 2048)
    for hypervisor in ("xen-pvm", "xen-hvm"):
        params = cluster["hvparams"].get(hypervisor, {})
        if params.get("xen_cmd") == "xm":
            params["xen_cmd"] = "xl"


def _to_3_1(config: Config, new_uuid: NewUuid) -> None:
    """Guests under KVM have no ``disk_discard=default``: for QEMU it meant ``ignore``.

    Other parameters are only added, and get their defaults.
    """
    for _owner, by_hypervisor in _hypervisor_sets(config):
        kvm = by_hypervisor.get("kvm") or {}
        if kvm.get("disk_discard") == "default":
            kvm["disk_discard"] = "ignore"


def _devices(disks: Iterable[Config]) -> Iterator[Config]:
    """Iterate over all devices of these disks, parents first."""
    for disk in disks:
        yield disk
        yield from _devices(disk.get("children", []))


# Version of a file, without revision -> the next version, and the step there.
_STEPS: dict[int, tuple[int, Callable[[Config, NewUuid], None]]] = {
    2_070_000: (2_080_000, _to_2_8),
    2_080_000: (2_090_000, _to_2_9),
    2_090_000: (2_100_000, _to_2_10),
    2_100_000: (2_110_000, _to_2_11),
    2_110_000: (2_120_000, _to_2_12),
    2_120_000: (2_130_000, _to_2_13),
    2_130_000: (2_140_000, _to_2_14),
    2_140_000: (2_150_000, _to_2_15),
    2_150_000: (2_160_000, _to_2_16),
    2_160_000: (3_000_000, _to_3_0),
    3_000_000: (3_010_000, _to_3_1),
}

VERSIONS = (*_STEPS, const.CONFIG_VERSION)


# -- back ------------------------------------------------------------------------------------------

DOWNGRADE_VERSION = 3_000_000
#: Versions of the original to which a configuration can be converted back.
DOWNGRADE_VERSIONS = (DOWNGRADE_VERSION, const.CONFIG_VERSION)

# Parameters which 3.0 needs and 3.1 does not have; it knows all parameters of 3.1.
_HV_UNTIL_3_0: dict[str, Config] = {
    "xen-pvm": {"xen_cmd": "xl"},
    "xen-hvm": {"xen_cmd": "xl"},
}

#: Own parameters of hypervisors, which other versions refuse.
HV_OURS: dict[str, tuple[str, ...]] = {
    "kvm": ("firmware", "firmware_path", "firmware_vars_path", "migration_tls", "tpm_version"),
    "xen-pvm": ("type",),
}

#: Own fields of objects, by their place in the configuration. Other versions refuse a file with
#: them, and would not keep up to date what is recorded about replicas and growths.
OURS: dict[str, tuple[str, ...]] = {
    "": ("access_records", "damaged", "documents"),
    "cluster": (
        "auto_balance",
        "auto_failover",
        "auto_instance_failover",
        "export_key",
        "job_execution",
        "node_watchdog",
        "rapi_require_authentication",
        "witness",
    ),
    "nodegroups": ("enabled_hypervisors",),
    # The flag ``drained`` stays, so that nothing is placed on a node in maintenance. Other versions
    # show the key of the cluster on all nodes.
    "nodes": ("auto_failover", "key_pins", "maintenance", "watchdog"),
    "networks": ("ext_reservations6", "isolated"),
    "instances": ("importing_since", "pending_changes"),
    "nics": ("ip6",),
    "disks": ("in_sync_at", "never_alone", "outdated_node", "outdated_since", "unwiped_from"),
}

# Own fields which the master writes for itself: without them no setting is lost.
_RECORDS = {
    # Other versions have nothing that could use them.
    "": ("access_records",),
    # Without it, exports of the cluster are read as those of others.
    "cluster": ("export_key",),
    "nodes": ("auto_failover", "key_pins", "watchdog"),
    "instances": ("pending_changes",),
    # Other versions treat every network as if it was set.
    "networks": ("isolated",),
    "disks": ("in_sync_at", "never_alone", "outdated_since"),
}


def settings_of(place: str) -> tuple[str, ...]:
    """Return the own fields which an administrator sets, at a place of :data:`OURS`."""
    return tuple(name for name in OURS[place] if name not in _RECORDS.get(place, ()))


def _places(config: Config) -> Iterator[tuple[str, Config]]:
    """Iterate over the objects which may have own fields, with their places in :data:`OURS`."""
    yield "", config
    yield "cluster", config["cluster"]
    for key in OURS:
        if key == "nics":
            for instance in (config.get("instances") or {}).values():
                for nic in instance.get("nics") or ():
                    yield key, nic
        elif key not in ("", "cluster"):
            entries = (config.get(key) or {}).values()
            for entry in _devices(entries) if key == "disks" else entries:
                yield key, entry


def _hypervisor_sets(config: Config) -> Iterator[tuple[str, Config]]:
    """Iterate over all sets of parameters of hypervisors: whose they are, parameters by name."""
    yield "the cluster", config["cluster"].setdefault("hvparams", {})
    for name, own in (config["cluster"].get("os_hvp") or {}).items():
        yield f"the OS definition {name}", own
    for instance in config.get("instances", {}).values():
        owner = f"instance {instance.get('name')}"
        yield owner, {instance.get("hypervisor", ""): instance.get("hvparams") or {}}


class OwnFeature(NamedTuple):
    """Something which a configuration uses and other versions do not have.

    :ivar owner: whose it is, such as ``the cluster`` or ``instance web1``.
    :ivar name: name of the field or parameter.
    :ivar hypervisor: whose parameter it is; empty for a field.
    """

    owner: str
    name: str
    hypervisor: str = ""

    @property
    def text(self) -> str:
        """For people, such as ``instance web1: parameter tpm_version of kvm``."""
        if self.hypervisor:
            return f"{self.owner}: parameter {self.name} of {self.hypervisor}"
        return f"{self.owner}: {self.name}"


def own_features(
    config: Config,
    *,
    fields: Names = types.MappingProxyType({}),
    parameters: Names = types.MappingProxyType({}),
) -> list[OwnFeature]:
    """Find what a configuration uses and other versions do not have.

    :param config: of this version, as a dictionary; it is not changed.
    :param fields: those of :data:`OURS` which the other version has; none for the original.
    :param parameters: those of :data:`HV_OURS` which it has.
    :returns: each use; :func:`downgrade` loses these settings.
    """
    found = []
    of_nics = {
        id(nic): f"instance {instance.get('name')}"
        for instance in (config.get("instances") or {}).values()
        for nic in instance.get("nics") or ()
    }
    for place, entry in _places(config):
        owner = {
            "": "the configuration",
            "cluster": "the cluster",
            "nics": of_nics.get(id(entry), ""),
        }.get(place, f"{place.removesuffix('s')} {entry.get('name') or entry.get('uuid')}")
        for name in settings_of(place):
            if name in fields.get(place, ()):
                continue
            if entry.get(name) not in (None, False, {}, []):
                found.append(OwnFeature(owner, name))
    for owner, by_hypervisor in _hypervisor_sets(copy.deepcopy(config)):
        for hypervisor, names in HV_OURS.items():
            own = by_hypervisor.get(hypervisor) or {}
            normal = hvparams.defaults(hypervisor)
            found += [
                OwnFeature(owner, name, hypervisor)
                for name in names
                if name in own
                and own[name] != normal[name]
                and name not in parameters.get(hypervisor, ())
            ]
    return found


def newer_in(config: Config, to: int = DOWNGRADE_VERSION) -> list[newer_values.NewerValue]:
    """Find the values in a configuration which a version of the original does not have.

    :param config: of this version; it is not changed.
    :param to: one of :data:`DOWNGRADE_VERSIONS`.
    :returns: each use; :func:`downgrade` loses these values.
    """
    own = copy.deepcopy(config)
    return list(newer_values.find(own, to, _hypervisor_sets(own)))


def downgrade(
    config: Config,
    to: int = DOWNGRADE_VERSION,
    *,
    fields: Names = types.MappingProxyType({}),
    parameters: Names = types.MappingProxyType({}),
) -> Config:
    """Bring a configuration of this version to a version of the original, or of ours.

    What that version does not have is left out, and values which the original does not have are
    replaced; :func:`own_features` and :func:`newer_in` name both.

    :param to: one of :data:`DOWNGRADE_VERSIONS`.
    :param fields: those of :data:`OURS` which the other version has; none for the original.
    :param parameters: those of :data:`HV_OURS` which it has.
    :returns: a new dictionary.
    :raises ConfigVersionMismatch: it does not have the version of this program.
    """
    version = version_of(config)
    if version != const.CONFIG_VERSION:
        raise errors.ConfigVersionMismatch(const.CONFIG_VERSION, version)
    changed = copy.deepcopy(config)
    if to == DOWNGRADE_VERSION:
        known = changed["cluster"].setdefault("hvparams", {})
        for hypervisor, params in _HV_UNTIL_3_0.items():
            known[hypervisor] = {**params, **known.get(hypervisor, {})}
    for _owner, by_hypervisor in _hypervisor_sets(changed):
        for hypervisor, names in HV_OURS.items():
            for name in names:
                if name not in parameters.get(hypervisor, ()):
                    by_hypervisor.get(hypervisor, {}).pop(name, None)
    for place, entry in _places(changed):
        for name in OURS[place]:
            if name not in fields.get(place, ()):
                entry.pop(name, None)
    # An earlier release of ours has the values of this version.
    if not fields:
        for found in list(newer_values.find(changed, to, _hypervisor_sets(changed))):
            found.replace()
    changed["version"] = to
    return changed


# -- defaults --------------------------------------------------------------------------------------


def _with_defaults(config: Config) -> Config:
    cluster = config["cluster"]
    wanted = {
        "hvparams": {name: hvparams.defaults(name) for name in hvparams.TABLES},
        "diskparams": disk_templates.all_defaults(),
        "beparams": {"default": instance_const.BE_DEFAULTS},
        "nicparams": {"default": net_const.NIC_DEFAULTS},
    }
    found: Config = {}
    for key, defaults in wanted.items():
        given = cluster.get(key, {})
        # A value which is not a dictionary is left to the decoder, whose message names the place.
        if isinstance(given, dict):
            found[key] = _filled(given, defaults, only_known=key == "hvparams")
    if isinstance(cluster.get("ndparams", {}), dict):
        found["ndparams"] = {**node_const.ND_DEFAULTS, **cluster.get("ndparams", {})}
    if all(cluster.get(key) == value for key, value in found.items()):
        return config
    return {**config, "cluster": {**cluster, **found}}


def _filled(given: Config, defaults: dict[str, dict[str, Any]], *, only_known: bool) -> Config:
    """Fill each named dictionary; names without defaults stay as they are.

    :param only_known: leave out parameters which do not exist any more.
    """
    filled = dict(given)
    for name, values in defaults.items():
        own = filled.get(name, {})
        if isinstance(own, dict):
            filled[name] = {
                **values,
                **{key: value for key, value in own.items() if not only_known or key in values},
            }
    return filled
