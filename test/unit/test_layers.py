"""Imports point one way, one module imports each third-party package, and packages have a map.

Every import statement below ``lib/ganeti`` is read with :mod:`ast`, also those inside functions,
and compared with the order of the packages in ``doc/architecture.rst``.
"""

from __future__ import annotations

import ast
import functools
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from devel.shape.imports import Import, circles, imports_of

TOP = Path(__file__).resolve().parents[2]
LIB = TOP / "lib" / "ganeti"

SHARED = (
    "constants", "errors", "utils", "platform", "ht", "objects", "opcodes", "wire", "luxi",
    "jobstore", "configfile", "http", "htools", "query", "confd", "metad", "mond", "foreign",
)  # fmt: skip
NODE_SIDE = ("storage", "hypervisor", "backend")
MASTER_SIDE = (
    "locking",
    "replication",
    "config",
    "rpc",
    "allocator",
    "cmdlib",
    "jqueue",
    "jobexec",
    "master",
)
PROGRAMS = (
    "bootstrap", "runbook", "rapi", "cli", "upgrading", "client", "tools", "watcher",
    "master_failover", "watchdogd", "burnin", "takeover", "merge", "helpers", "vcluster", "server",
    "launcher",
)  # fmt: skip
# Bottom-up: a package imports from itself and from the packages before it.
ORDER = (*SHARED, *NODE_SIDE, *MASTER_SIDE, *PROGRAMS)

#: The order inside folders, bottom-up: the path of a folder below ``lib/ganeti`` -> its modules and
#: sub-packages. Parts in one tuple do not import each other; a part which is not named is above all
#: of them.
INSIDE: dict[str, tuple[tuple[str, ...], ...]] = {
    "backend": (
        ("registry", "caller", "reasons"),
        ("storage",),
        ("cluster", "instance"),
        ("node", "backup"),
        ("dispatch",),
    ),
    "cli": (("command", "table", "terminal", "failures"), ("options",)),
    "client": (
        ("htools",),
        (
            "gnt_backup", "gnt_cluster", "gnt_debug", "gnt_filter", "gnt_group", "gnt_instance",
            "gnt_job", "gnt_network", "gnt_node", "gnt_os", "gnt_storage",
        ),
    ),
    "cmdlib": (
        ("hooks",),
        ("base",),
        ("locks", "node_checks"),
        ("prereq",),
        ("ops",),
        (
            "backup", "cluster", "group", "instance", "network", "node", "os", "query", "tags",
            "test",
        ),
        ("dry_run",),
        ("processor",),
    ),
    "hypervisor": (("base", "console_log"), ("net",), ("fake", "kvm")),
    "jqueue": (
        (
            "job", "dependencies", "filters", "pause", "rate_meter", "catch_up", "outbox",
        ),
        ("commit", "subscriptions", "explain", "table", "worker"),
        ("overview", "replication"),
        ("publisher",),
        ("callbacks",),
        ("execution",),
        ("scheduler",),
        ("recovery", "operations"),
        ("queue",),
        ("facts",),
    ),
    "master": (
        ("event_data", "fence", "queries", "luxi_server"),
        ("event_findings",),
        ("access_records", "audit_search", "history", "events", "documents", "metrics"),
        ("luxi_service",),
    ),
    "master/queries": (
        ("guests", "images", "service", "without_job"),
        ("cluster", "pages"),
        ("past",),
    ),
    "jobexec": (
        ("messages", "leftovers"),
        ("livelock", "changes", "forms"),
        ("methods",),
        ("link",),
        ("remote", "node_calls"),
        ("process",),
        ("fork_server",),
        ("forker", "requests"),
        ("process_handle",),
        ("executor",),
    ),
    "platform": (
        ("paths", "hosts"),
        ("base",),
        ("real", "virtual"),
        ("machine",),
        ("users",),
        ("ssh_keys", "ssh_keygen", "master_epoch"),
    ),
    "storage": (
        ("busy",), ("base", "content", "copy", "device_names", "image_format"), ("lvm",),
        ("blockdev", "drbd", "ext", "file", "rbd"), ("gluster",), ("units",),
    ),
    "allocator": (
        ("answers", "describe", "live"),
        ("builtin", "requests"),
        ("ask",),
    ),
    "backend/cluster": (
        ("allocator", "jobqueue", "master", "renewal", "ssconf", "ssh", "witness"),
        ("config_file",),
        ("master_vote",),
        ("credentials",),
    ),
    "backend/instance": (
        ("guests", "helper_disk", "hotplug", "metadata", "os"),
        ("lifecycle",),
        ("helper",),
    ),
    "backend/node": (
        (
            "files", "hooks", "info", "netmask", "oob", "openvswitch", "power", "restricted",
            "test", "verify_storage", "watchdog", "work",
        ),
        ("master_status", "verify"),
    ),
    "bootstrap": (
        ("init_params", "join_protocol", "node_state", "newer_copies", "renewal"),
        ("destroy", "failover", "join", "remote", "requirements"),
        ("detection", "first_config", "node"),
        ("init",),
    ),
    "burnin": (
        ("jobs", "options"),
        ("cluster", "report"),
        ("work",),
        ("steps",),
        ("program",),
    ),
    "client/gnt_cluster": (
        (
            "audit", "defaults_option", "disk_report", "epo", "events", "history", "info", "master",
            "on_all_nodes", "options", "queue", "redist_conf", "rename", "renew_crypto",
            "search_tags", "simulate", "upgrade", "watcher", "witness",
        ),
        ("verify_disks", "parameters"),
        ("modify",),
        ("program",),
    ),
    "client/gnt_debug": (
        ("iallocator", "jobqueue_test", "locks", "metad", "submit_job", "wconfd"),
        ("program",),
    ),
    "client/gnt_instance": (
        (
            "batch_create", "console", "console_log", "disks", "foreign", "from_image", "info",
            "modify", "rename", "selection", "top",
        ),
        ("add", "move", "reinstall", "snapshots", "start_stop"),
        ("program",),
    ),
    "client/htools": (
        ("luxi", "options", "reports", "show"),
        ("program",),
        ("execute", "monitoring", "rest"),
        ("loading", "switch"),
        ("hail", "harep", "hinfo", "hroller", "hspace"),
        ("hbal", "hscan"),
        ("hcheck", "hsqueeze", "questions"),
    ),
    "client/gnt_node": (
        ("join", "options", "restricted_command"),
        ("maintenance", "modify", "move_instances", "power", "storage"),
        ("program",),
    ),
    "cmdlib/ops": (
        ("cluster", "liveness", "network", "os", "policy", "tags", "test"),
        ("params",),
        ("disks", "nics"),
        ("guest",),
        ("install", "transfer"),
        ("placement",),
        ("creation", "group", "migration", "node"),
        ("verify",),
    ),
    "cmdlib/ops/creation": (
        ("from_copy", "names", "plan"),
        ("objects",),
        ("execution",),
        ("unit",),
    ),
    "cmdlib/ops/disks": (
        (
            "activation_unit", "ownership", "replicas", "same_device", "same_directory", "specs",
        ),
        ("sizes", "sync", "suspended_io"),
        ("wipe",),
        ("devices",),
        ("capacity", "mirror", "reach", "snapshots"),
        ("adopt", "convert", "modify"),
        ("replace", "replica_report"),
    ),
    "cmdlib/ops/migration": (
        ("failover_to_any", "plan"),
        ("live", "failover"),
        ("cleanup", "migrate_to_any"),
        ("unit",),
    ),
    "cmdlib/ops/node": (
        ("candidates", "evacuation", "guests", "maintenance", "roles", "storage_query"),
        ("move_jobs", "unattended"),
    ),
    "cmdlib/ops/params": (
        ("devices", "group", "hotplug", "instance", "node", "os"),
        ("cluster", "modify_instance", "new_instance"),
    ),
    "cmdlib/ops/transfer": (
        ("export_description", "exports", "keys", "signed", "zero_free_space"),
        ("disk_copy", "handshake", "seal"),
        ("import_source",),
        ("copy_source",),
    ),
    "cmdlib/ops/verify": (
        (
            "devices", "directories", "files", "findings", "guest_users", "layout",
            "maintenance", "mirrors",
            "os_definitions", "programs", "queue",
        ),
        ("answers", "storage"),
        ("machine_storage", "self_repair"),
    ),
    "config": (
        (
            "access_records", "documents", "index_keys", "newer_values", "ports", "recent_changes",
            "role", "ssconf", "view",
        ),
        ("damaged", "reservations", "upgrade", "witness"),
        ("index", "members", "releases"),
        ("draft", "verify"),
        ("cluster_changes", "disk_changes", "history", "text"),
        ("instance_changes", "local_file", "sending"),
        ("transaction",),
        ("copies",),
        ("store",),
        ("api",),
    ),
    "foreign": (
        ("catalogue", "machine", "workplace"),
        ("export", "images", "libvirt", "ovf", "proxmox"),
        ("fetching", "ova", "ovf_writer", "taking"),
        ("reading",),
    ),
    "helpers": (
        (
            "import_export_status", "kvm_console", "kvm_incoming", "limited", "metad_forward",
            "pam_check", "placement", "tls_pipe", "xen_console", "xen_transfer",
        ),
        ("import_export",),
    ),
    "htools": (
        ("instance", "policy"),
        ("formats", "space", "tags"),
        ("node", "units"),
        ("cluster", "limits", "moves", "repair", "score"),
        ("arrays", "figures", "loading", "reasons", "reboots", "redundancy", "tables"),
        ("balance", "margins"),
        ("capacity", "pair_scores", "squeeze"),
        ("place", "what_if"),
        ("explain",),
        ("evacuate",),
        ("answer",),
    ),
    "replication": (("majority", "peer"), ("background", "quorum")),
    "htools/capacity": (
        ("places", "roles"),
        ("ranking",),
        ("filler",),
        ("equal_sizes",),
        ("tiers",),
    ),
    "htools/loading": (
        ("form", "monitoring", "simulation", "text"),
        ("rest",),
        ("request",),
    ),
    "http": (
        ("auth", "client", "document", "frames", "head", "peers", "tls_stream"),
        ("messages", "server", "web"),
        ("websocket",),
        ("event_server",),
        ("access_log",),
    ),
    "hypervisor/kvm": (
        (
            "accelerator", "buses", "layout", "parse", "qmp", "runtime", "user_network",
            "user_shutdown",
        ),
        ("devices", "facts", "incoming", "pinning", "privileges"),
        ("display", "hotplug", "nics"),
        ("argv",),
        ("firmware", "hardware", "migration_channel", "migration_connection", "probe"),
        ("guests", "parameters"),
        ("start",),
        ("migration",),
        ("driver",),
    ),
    "hypervisor/lxc": (
        ("disks", "layout", "parse", "record"),
        ("cgroups",),
        ("config", "guests"),
        ("hotplug", "parameters"),
        ("driver",),
    ),
    "hypervisor/net": (
        ("addresses", "communication", "route", "script", "tap", "veth", "vlan"),
        ("bridge", "openvswitch"),
        ("connect",),
        ("interfaces",),
    ),
    "hypervisor/xen": (
        ("parse", "record"),
        ("config", "disks", "nics", "transfer", "xl"),
        ("adoption", "guests", "monitored", "parameters", "vif"),
        ("hotplug", "start"),
        ("migration",),
        ("driver",),
    ),
    "jobstore": (
        ("audit", "files"),
        ("inventory", "journal"),
        ("store",),
        ("copy",),
    ),
    "locking": (
        ("levels",),
        ("shared_lock",),
        ("lock_set",),
        ("monitor", "request"),
        ("table",),
        ("manager",),
    ),
    "merge": (
        ("conflicts", "record"),
        ("combine", "other_cluster"),
        ("steps",),
        ("command",),
    ),
    "metad": (
        ("client", "describe", "guests"),
        ("control", "dhcp", "nocloud"),
        ("web",),
    ),
    "mond": (
        ("configuration", "openmetrics", "report"),
        ("collectors", "guests", "node_state"),
        ("registry",),
        ("web",),
    ),
    "objects": (
        ("base", "codec", "device_names", "disk_templates", "network", "start_order", "transfer"),
        ("address_pool", "disk", "node"),
        ("instance", "snapshots"),
        ("cluster", "hypervisors"),
        ("fill", "hvparams", "ipolicy", "storage_units"),
        ("by_node", "cluster_rules", "description"),
    ),
    "objects/disk_templates": (
        ("descriptor",),
        ("blockdev", "diskless", "drbd", "ext", "file", "gluster", "plain", "rbd", "sharedfile"),
    ),
    "objects/hypervisors": (
        ("cpu_masks", "parameter"),
        ("descriptor",),
        ("chroot", "fake", "kvm", "lxc", "xen"),
    ),
    "opcodes": (
        ("base", "types"),
        ("params",),
        (
            "backup", "cluster", "group", "instance", "misc", "network", "node", "os", "query",
            "subjects", "tags", "test",
        ),
    ),
    "query": (
        ("field", "findings", "order", "view"),
        ("filter", "resources"),
        ("engine", "job_rules"),
        ("page",),
    ),
    "query/resources": (
        ("cluster", "filter_rule", "ndparams", "network", "rows"),
        ("export", "extstorage", "group", "instance", "job", "lock", "node", "os_definition"),
    ),
    "rapi/oidc": (
        ("settings",),
        ("person", "verify"),
        ("provider",),
        ("flow",),
        ("logins",),
    ),
    "rapi": (
        (
            "client", "demand", "failures", "helper_process", "master", "pace", "passwords",
            "listeners", "represent", "schema", "sealed", "webauthn",
        ),
        ("selectors", "totp"),
        ("events", "guesses", "kept_records", "placement", "rights"),
        ("event_socket", "pam", "passkeys", "roles", "totp_factor", "webhooks"),
        ("growth", "users"),
        ("credentials", "oidc", "quotas", "sessions"),
        ("login",),
        ("proofs",),
        ("certificates", "job_limits", "tokens"),
        ("call",),
        ("declare",),
        ("checks", "opcode_rights", "operation_names", "origin"),
        ("batch",),
        ("resources",),
        ("openapi",),
        ("pages",),
        ("application",),
    ),
    "rapi/webhooks": (("rules", "addresses"), ("message",), ("courier",), ("sender",)),
    "rapi/resources": (
        ("lists", "placement", "quota", "service", "webhooks"),
        ("common", "query"),
        (
            "cluster", "credentials", "documents", "groups", "instances", "jobs", "networks",
            "nodes",
        ),
        ("instance_disks", "instance_moves"),
    ),
    "rpc": (
        ("filler", "key_pins", "master_ip", "results", "witness"),
        ("runner",),
        ("distribute", "failover_status", "voting"),
    ),
    "server": (
        ("daemon",),
        (
            "confd", "event_loop", "failoverd", "kvmd", "mastership", "noded", "watchdogd",
        ),
        ("fork_server", "metad", "mond", "rapi"),
        ("mastering",),
        ("masterd",),
    ),
    "storage/drbd": (
        ("argv",),
        ("parse",),
        ("status_json",),
        ("status",),
        ("connections", "device", "leftover"),
    ),
    "takeover": (
        ("archive", "defaults", "features", "probe"),
        ("facts",),
        ("findings", "packages", "state"),
        ("cluster", "node_steps", "steps"),
        ("remote_nodes",),
        ("command",),
    ),
    "tools": (
        ("entry", "rapi_check"),
        (
            "cleaner", "confd_client", "config_files", "daemon_units", "ensure_dirs", "join",
            "lvmstrap", "mon_collector", "move_instance", "node_cleanup", "node_daemon_setup",
            "ovfconverter", "rapi_passwd", "users_setup",
        ),
        (
            "cfgshell", "cfgupgrade", "daemon_util", "query_config", "rapi_credentials",
            "sanitize_config",
        ),
        ("rapi_certificates", "rapi_passkeys", "rapi_sessions", "rapi_tokens", "rapi_totp"),
    ),
    "utils": (
        (
            "clock", "compress", "digits", "effort", "free_space", "inotify", "lazy", "memory",
            "metrics", "net", "notify", "records", "retry", "states", "suggest", "text",
            "trace_names", "undo", "x509",
        ),
        ("shortage",),
        ("fs", "process"),
        ("filelock", "linear_re", "log", "otlp", "peers", "receipt", "shared_dir", "ssh"),
        ("daemonize", "tracing"),
    ),
    "vcluster": (
        ("description", "network"),
        ("like", "side_by_side", "watcher_timer"),
        ("operation",),
        ("creation",),
        ("command",),
    ),
    "watcher": (
        ("balance", "memory", "node", "restarting"),
        ("cluster", "decisions"),
        ("group",),
        ("command",),
    ),
    "wire/calls": (
        ("base",),
        ("backup", "cluster", "instance", "node", "storage"),
    ),
}  # fmt: skip

#: Folders whose parts do not import each other at all.
APART = frozenset(
    {
        "backend/storage", "cmdlib/cluster", "cmdlib/group", "cmdlib/instance", "cmdlib/network",
        "cmdlib/node", "constants",
    }
)  # fmt: skip

#: The only modules which import a third-party package.
IMPORTERS = {
    "pycurl": {
        "http/client.py",
        "http/document.py",
        "http/web.py",
        "rapi/client/transport.py",
        "launcher.py",
    },
    "OpenSSL": {"utils/x509.py"},
    "cryptography": {"rapi/sealed.py", "utils/x509.py"},
    "simplejson": {"wire/json.py"},
    "pyinotify": {"utils/inotify.py"},
    "numpy": {"htools/arrays.py"},
    "opentelemetry": {"utils/otlp.py"},
    "wsproto": {"http/frames.py"},
    "pyotp": {"rapi/totp.py"},
    "fido2": {"rapi/webauthn.py"},
    "segno": {"tools/rapi_totp.py"},
    "pamela": {"helpers/pam_check.py"},
    "authlib": {"rapi/oidc/verify.py"},
    "joserfc": {"rapi/oidc/verify.py"},
    "pyparsing": {"query/filter.py", "storage/drbd/parse.py"},
    # What people read on a terminal, and what they ask for over HTTP; neither package sees the
    # other.
    "yaml": {"cli/output.py", "rapi/represent.py"},
}


#: The client for programs by others, who copy it: its modules import each other by relative names,
#: and nothing else of ours.
COPIED = "rapi/client/"


@functools.cache
def imports_in(file: str) -> tuple[Import, ...]:
    """All imports in a file below ``lib/ganeti``."""
    return tuple(imports_of(ast.parse((LIB / file).read_text(encoding="utf-8")), file))


def package_of(file: str) -> str:
    """The package of a file below ``lib/ganeti``; empty for the package's own ``__init__``."""
    first = file.split("/")[0].removesuffix(".py")
    return "" if first == "__init__" else first


def violations(found: Import) -> Iterator[str]:
    """What is wrong with one import."""
    where = f"{found.file}:{found.line}"
    top = found.module.split(".")[0]
    package = package_of(found.file)
    if found.module == ".":
        if not found.file.startswith(COPIED):
            yield f"{where}: relative import; name the package"
    elif found.file.startswith(COPIED) and top == "ganeti":
        yield f"{where}: this package is copied by others, and imports nothing else of ours"
    elif top != "ganeti":
        known = top in sys.stdlib_module_names or top in IMPORTERS
        if not known:
            yield f"{where}: {top} is neither in the standard library nor in IMPORTERS"
        elif top in IMPORTERS and found.file not in IMPORTERS[top]:
            yield f"{where}: {top} is used only in {', '.join(sorted(IMPORTERS[top]))}"
        elif top == "subprocess" and package in MASTER_SIDE:
            yield f"{where}: masterd never runs a program; a node does"
    else:
        parts = found.module.split(".")
        target = parts[1] if len(parts) > 1 else ""
        if target in ("", "__version__", "VERSION", "RELEASE", "FULL_VERSION", "TYPE_CHECKING"):
            return
        if target not in ORDER:
            yield f"{where}: ganeti.{target} is not a package"
            return
        if package == "":
            yield f"{where}: the package itself imports nothing"
            return
        if ORDER.index(target) > ORDER.index(package):
            yield f"{where}: {package} is below {target} and must not import it"
        if package in MASTER_SIDE and target in NODE_SIDE:
            yield f"{where}: the master side reaches a node through rpc"
        if not found.typing_only:
            yield from _inside(found, parts[1:])
        if package in MASTER_SIDE and f"{found.module}.".startswith("ganeti.utils.process."):
            yield f"{where}: masterd never runs a program; a node does"


def _inside(found: Import, target: list[str]) -> Iterator[str]:
    """What is wrong with an import from the same folder, for each folder which has an order."""
    own = found.file.removesuffix(".py").split("/")
    for depth in range(1, min(len(own), len(target))):
        if own[:depth] != target[:depth]:
            return
        folder = "/".join(own[:depth])
        importer, imported = own[depth], target[depth]
        if importer in (imported, "__init__"):
            continue
        where = f"{found.file}:{found.line}: inside {folder}"
        tiers = _tiers(folder)
        if folder in APART and imported in _parts(folder):
            yield f"{where}, no part imports another one"
        elif imported in tiers and tiers.get(importer, len(tiers)) <= tiers[imported]:
            yield f"{where}, {importer} is not above {imported} and must not import it"


@functools.cache
def _tiers(folder: str) -> dict[str, int]:
    """Part of a folder -> its place in the folder's order, from below."""
    return {part: number for number, tier in enumerate(INSIDE.get(folder, ())) for part in tier}


def _files() -> list[str]:
    return _files_below("")


def _files_below(package: str) -> list[str]:
    return sorted(str(path.relative_to(LIB)) for path in (LIB / package).rglob("*.py"))


def test_there_is_something_to_check() -> None:
    assert len(_files()) > 20


def test_every_file_is_in_a_package() -> None:
    unknown = {package_of(file) for file in _files()} - {*ORDER, ""}
    assert not unknown


_MANY_PARTS = 5


@functools.cache
def _parts(folder: str) -> frozenset[str]:
    """The modules and sub-packages of a folder."""
    return frozenset(
        file.removeprefix(f"{folder}/").split("/")[0].removesuffix(".py")
        for file in _files_below(folder)
    ) - {"__init__", "__main__"}


def _folders() -> set[str]:
    return {folder for file in _files() for folder in _folders_above(file)}


def _folders_above(file: str) -> list[str]:
    names = file.split("/")[:-1]
    return ["/".join(names[:end]) for end in range(1, len(names) + 1)]


def test_a_folder_with_many_parts_has_an_order() -> None:
    large = {folder for folder in _folders() if len(_parts(folder)) > _MANY_PARTS}
    # Relative imports are not compared with an order.
    assert large <= {*INSIDE, *APART, COPIED.rstrip("/")}


@pytest.mark.parametrize("folder", sorted(INSIDE))
def test_an_order_names_parts_which_exist(folder: str) -> None:
    named = [part for tier in INSIDE[folder] for part in tier]
    assert len(named) == len(set(named))
    assert set(named) <= _parts(folder)


# -- the map of a package: what each of its modules is for, in one line of its docstring ----------

#: Packages without a map, whose modules are all of one kind, each named by what it declares: a
#: logical unit by its opcode, a command by its name, a resource or a set of constants by its
#: subject.
OF_ONE_KIND = frozenset(
    {
        "client", "client/gnt_cluster", "client/gnt_debug", "client/gnt_instance",
        "client/gnt_node", "cmdlib/cluster", "cmdlib/group", "cmdlib/instance", "cmdlib/network",
        "cmdlib/node", "constants", "objects/disk_templates", "opcodes", "query/resources",
        "rapi/client", "rapi/resources", "wire/calls",
    }
)  # fmt: skip
_MAP_LINE = re.compile(r"^(?:- )?(?::mod:`\.|``)([a-z]\w*)`", re.MULTILINE)


def map_names(docstring: str) -> list[str]:
    """The modules of a map: the names with which lines of a table or of a list begin."""
    return _MAP_LINE.findall(docstring)


@functools.cache
def _map_of(package: str) -> list[str]:
    text = (LIB / package / "__init__.py").read_text(encoding="utf-8")
    return map_names(ast.get_docstring(ast.parse(text)) or "")


@pytest.mark.parametrize("package", sorted(_folders() - OF_ONE_KIND))
def test_a_map_has_each_module_once(package: str) -> None:
    names = _map_of(package)
    if names or len(_parts(package)) > _MANY_PARTS:
        assert sorted(names) == sorted(_parts(package))


def test_a_package_without_a_map_has_many_modules_of_one_kind() -> None:
    assert not [package for package in OF_ONE_KIND if _map_of(package)]
    assert all(len(_parts(package)) > _MANY_PARTS for package in OF_ONE_KIND)


def test_the_lines_of_a_map_are_found() -> None:
    table = "==== ==\n:mod:`.one` a\n``two``  ``six``\n==== =="
    text = f"Text.\n\n{table}\n\n- ``three``: b\n``GIVEN`` is no module, nor is\n:mod:`four`"
    assert map_names(text) == ["one", "two", "three"]


@pytest.mark.parametrize("file", _files())
def test_imports_point_one_way(file: str) -> None:
    wrong = [text for found in imports_in(file) for text in violations(found)]
    assert not wrong, "\n".join(wrong)


def _is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__")


@pytest.mark.parametrize("file", _files())
def test_private_names_stay_in_their_file(file: str) -> None:
    """``from x import _y``: a leading underscore means *this file*."""
    wrong = [
        f"{file}:{found.line}: {found.module}"
        for found in imports_in(file)
        if found.module.startswith("ganeti.") and _is_private(found.module.rsplit(".", 1)[1])
    ]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize(
    ("file", "code", "fragment"),
    [
        ("utils/net.py", "from ganeti.luxi.client import Client", "utils is below luxi"),
        ("cmdlib/x.py", "from ganeti.backend import node", "reaches a node through rpc"),
        ("rapi/client/x.py", "from ganeti import errors", "imports nothing else of ours"),
        ("cmdlib/x.py", "def f():\n    import ganeti.storage.file", "reaches a node through rpc"),
        ("cmdlib/x.py", "from ganeti.utils.process import run", "never runs a program"),
        ("jqueue/x.py", "import subprocess", "never runs a program"),
        ("rpc/x.py", "import pycurl", "only in http/client.py"),
        ("utils/x.py", "import requests", "neither"),
        ("cli/x.py", "from . import y", "relative"),
        ("__init__.py", "from ganeti import errors", "imports nothing"),
        ("utils/x.py", "from ganeti import nowhere", "not a package"),
        ("storage/drbd/parse.py", "import ganeti.storage.drbd.status", "parse is not above status"),
        ("storage/lvm.py", "import ganeti.storage.drbd.status", "lvm is not above drbd"),
        ("cmdlib/node/x.py", "import ganeti.cmdlib.node.add", "no part imports another"),
    ],
)
def test_the_check_finds(file: str, code: str, fragment: str) -> None:
    found = [text for one in imports_of(ast.parse(code), file) for text in violations(one)]
    assert any(fragment in text for text in found), found


@pytest.mark.parametrize(
    ("file", "code"),
    [
        ("cmdlib/x.py", "from ganeti import errors, rpc\nimport ganeti.opcodes.node"),
        ("http/client.py", "import pycurl\nimport threading"),
        ("server/noded.py", "from ganeti.backend import node\nfrom ganeti import __version__"),
        ("rapi/client/x.py", "from .transport import Transport"),
    ],
)
def test_the_check_allows(file: str, code: str) -> None:
    assert not [text for one in imports_of(ast.parse(code), file) for text in violations(one)]


# -- what a daemon can reach at all --------------------------------------------------------------


def module_file(module: str) -> str | None:
    """The file of a module of ours, relative to ``lib/ganeti``; None when it is none."""
    parts = module.split(".")[1:]
    for candidate in ("/".join([*parts, "__init__"]) + ".py", "/".join(parts) + ".py"):
        if parts and (LIB / candidate).is_file():
            return candidate
    return None


@functools.cache
def reached_from(file: str) -> frozenset[str]:
    """The files of ours which the import statements of a file name, packages above them, too."""
    found: set[str] = set()
    if file == "cmdlib/__init__.py":
        # Its load() imports all units by their names.
        found.update(_files_below("cmdlib"))
    for one in imports_in(file):
        parts = one.module.split(".")
        if parts[0] != "ganeti" or one.typing_only:
            continue
        for end in range(2, len(parts) + 1):
            target = module_file(".".join(parts[:end]))
            if target is not None:
                found.add(target)
    return frozenset(found - {file})


def chain_to(start: str, wanted: str, *, except_for: frozenset[str] = frozenset()) -> list[str]:
    """A shortest chain of imports from a file to another; empty when there is none.

    :param except_for: files whose own import of the wanted one does not count.
    """
    chains = {start: [start]}
    waiting = [start]
    while waiting:
        file = waiting.pop(0)
        for target in sorted(reached_from(file)):
            if target == wanted and file in except_for:
                continue
            if target not in chains:
                chains[target] = [*chains[file], target]
                waiting.append(target)
    return chains.get(wanted, [])


def imported_files(file: str) -> set[str]:
    """The files of ours which a file imports, without the packages above them."""
    found: set[str] = set()
    for one in imports_in(file):
        parts = one.module.split(".")
        if parts[0] != "ganeti" or one.typing_only:
            continue
        names = (".".join(parts[:end]) for end in range(len(parts), 1, -1))
        if target := next(filter(None, map(module_file, names)), None):
            found.add(target)
    return found - {file}


def test_no_circle_of_files() -> None:
    assert circles({file: imported_files(file) for file in _files()}) == []


MASTERD = "server/masterd.py"
# What it loads only on the master.
MASTERING = "server/mastering.py"
# The one program which it starts.
FORK_SERVER = "server/fork_server.py"


def test_the_master_daemon_cannot_reach_the_module_that_runs_programs() -> None:
    """It imports :mod:`ganeti.utils.process` itself, only to forbid its use."""
    chain = chain_to(MASTERD, "utils/process.py", except_for=frozenset({MASTERING, FORK_SERVER}))
    assert not chain, " -> ".join(chain)


def test_the_master_daemon_forbids_programs() -> None:
    for program in (MASTERING, FORK_SERVER):
        assert "process.forbid(" in (LIB / program).read_text(encoding="utf-8")


def test_the_graph_finds_what_is_there() -> None:
    assert chain_to("server/noded.py", "utils/process.py")
    assert chain_to(MASTERD, "cmdlib/processor.py")
    assert not chain_to("constants/job.py", "errors.py")


def test_nothing_in_devel_hides_a_module_of_python() -> None:
    """A program which is started by its path finds what is beside it before all other modules."""
    names = {path.name.removesuffix(".py") for path in (TOP / "devel").iterdir()}
    assert names & set(sys.stdlib_module_names) == set()
