"""Types which several opcodes share. Their names are those of the published opcode table."""

from __future__ import annotations

from ganeti import TYPE_CHECKING, ht
from ganeti.constants import disk, hv, instance, net, node, query, tags, verify
from ganeti.objects import disk_templates

if TYPE_CHECKING:
    import typing

Hypervisor = ht.OneOf("hypervisor", hv.ALL)
DiskTemplate = ht.OneOf("disk-template", disk_templates.ALL)
FileDriver = ht.OneOf("file-driver", disk.FILE_DRIVERS)
StorageType = ht.OneOf("storage-type", disk.STORAGE_TYPES)
ReplaceDisksMode = ht.OneOf("replace-disks-mode", disk.REPLACE_MODES)
NicMode = ht.OneOf("nicmode", net.NIC_MODES)
AllocPolicy = ht.OneOf("alloc-policy", node.ALLOC_POLICIES)
EvacMode = ht.OneOf("evac-mode", node.EVAC_MODES)
OobCommand = ht.OneOf("oob-command", node.OOB_COMMANDS)
MigrationMode = ht.OneOf("migration-mode", hv.MIGRATION_MODES)
InstCreateMode = ht.OneOf("inst-create-mode", instance.CREATE_MODES)
RebootType = ht.OneOf("reboot-type", instance.REBOOT_TYPES)
ExportMode = ht.OneOf("export-mode", instance.EXPORT_MODES)
AdminStateSource = ht.OneOf("admin-state-source", instance.ADMIN_STATE_SOURCES)
IAllocatorMode = ht.OneOf("iallocator-mode", instance.IALLOCATOR_MODES)
IAllocatorDirection = ht.OneOf("iallocator-test-dir", instance.IALLOCATOR_DIRECTIONS)
QueryResource = ht.OneOf("query-type-op", query.RESOURCES)
QueryResultCode = ht.OneOf("query-result-code", query.RS_ALL)
SshKeyType = ht.OneOf("ssh-key-type", ("dsa", "ecdsa", "ed25519", "rsa"))
TagKind = ht.OneOf("tag-kind", tags.KINDS)
VerifyCode = ht.OneOf("cverror-code", verify.ALL_CODES)
VerifyOptionalCheck = ht.OneOf("verify-optional-checks", verify.OPTIONAL_CHECKS)
ListChange = ht.OneOf("ddm-simple", disk.MOD_ACTIONS)

DiskIndex = ht.Type("disk-index", lambda value: ht.Int.check(value) and 0 <= value < disk.MAX_DISKS)
# Providers of external storage define keys of their own, so every key is accepted here.
IDiskParams = ht.Named(
    "idisk-params", ht.DictOf(ht.NonEmptyString, ht.Or(ht.NonEmptyString, ht.Int))
)
INicParams = ht.Named(
    "inic-params", ht.DictOf(ht.OneOf("inic-param", net.INIC_PARAMS), ht.Maybe(ht.Str))
)
RecreateDisksInfo = ht.Named(
    "recreate-disks-info",
    ht.Or(ht.ListOf(ht.NonNegInt), ht.ListOf(ht.Tuple(ht.NonNegInt, IDiskParams))),
)
ExportTarget = ht.Named("export-target", ht.Or(ht.NonEmptyString, ht.List))


def ParamMods(inner: ht.Type) -> ht.Type:  # noqa: N802 - a type, as in ht
    """Return the type of changes to a list of devices.

    A change is ``[action, index or name, parameters]``, or the older ``[action or index,
    parameters]``.

    :param inner: type of the parameters.
    """
    triple = ht.Tuple(
        ht.OneOf("action", disk.MOD_ACTIONS_WITH_MODIFY), ht.Or(ht.Int, ht.NonEmptyString), inner
    )
    pair = ht.Tuple(ht.Or(ht.OneOf("action", disk.MOD_ACTIONS), ht.NonNegInt), inner)
    return ht.Named(f"param-mods({inner})", ht.Or(ht.ListOf(triple), ht.ListOf(pair)))


def _parses_as(value: typing.Any, kind: str) -> bool:
    if not isinstance(value, str):
        return False
    # Imported when first needed: few opcodes have addresses, and the module is not small.
    import ipaddress

    try:
        getattr(ipaddress, kind)(value)
    except ValueError:
        return False
    return True


Ipv4Address = ht.Type("ipv4-address", lambda value: _parses_as(value, "IPv4Address"))
Ipv6Address = ht.Type("ipv6-address", lambda value: _parses_as(value, "IPv6Address"))
Ipv4Network = ht.Type(
    "ipv4-network", lambda value: _parses_as(value, "IPv4Interface") and "/" in value
)
Ipv6Network = ht.Type(
    "ipv6-network", lambda value: _parses_as(value, "IPv6Interface") and "/" in value
)

#: An IPv6 address, or a range of them as address/bits.
Ipv6Block = ht.Or(Ipv6Address, Ipv6Network)

MaybeString = ht.Maybe(ht.NonEmptyString)
MaybeObject = ht.Maybe(ht.Dict)
Strings = ht.ListOf(ht.NonEmptyString)
MaybeStrings = ht.Maybe(Strings)
DiskParams = ht.Maybe(ht.DictOf(DiskTemplate, ht.Dict))
UidPool = ht.Maybe(ht.ListOf(ht.Tuple(ht.Int, ht.Int)))
PrivateParams = ht.Maybe(ht.ObjectOf(ht.Private(ht.Any)))
SecretParams = ht.Maybe(ht.ObjectOf(ht.Secret(ht.Any)))

# Results.
JobIdList = ht.ListOf(ht.Tuple(ht.Bool, ht.Or(ht.Str, ht.JobId)))
JobIdListOnly = ht.Shape("job-id-list-only", {"jobs": JobIdList})
MaybeJobIdListOnly = ht.Or(ht.NoneType, JobIdListOnly)
MultiAllocResponse = ht.Shape(
    "instance-multi-alloc-response",
    {},
    {"allocatable": Strings, "failed": Strings, "jobs": JobIdList},
)
Changes = ht.ListOf(ht.Tuple(ht.NonEmptyString, ht.Any))
QueryRows = ht.ListOf(ht.ListOf(ht.Tuple(QueryResultCode, ht.Any)))
QueryFieldDef = ht.Shape(
    "query-field-def",
    {
        "doc": ht.NonEmptyString,
        "kind": ht.OneOf("query-field-kind", query.KINDS),
        "name": ht.NonEmptyString,
        "title": ht.NonEmptyString,
    },
)
QueryFieldsResponse = ht.Shape("query-fields-response", {"fields": ht.ListOf(QueryFieldDef)})
QueryResponse = ht.Shape("query-response", {"fields": ht.ListOf(QueryFieldDef), "data": QueryRows})
