"""Every parser of texts from outside, each with texts which it understands.

``test/unit/test_every_parser.py`` tries them with random texts and with changes of the good ones.
It also compares these tables with the code: a parser which no entry reaches is an error. So an
entry belongs to each new parser.
"""

from __future__ import annotations

import io
import itertools
import json
import os
import tarfile
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from fakes.config import cluster_of, disk_of, instance_of
from ganeti import errors
from ganeti.allocator import answers, requests
from ganeti.backend.instance import os as os_definitions
from ganeti.bootstrap import detection, join_protocol
from ganeti.cli import image_copies, value_types, verify_errors
from ganeti.client.gnt_cluster import history as history_command
from ganeti.client.htools import luxi as htools_luxi
from ganeti.cmdlib import hooks
from ganeti.cmdlib.ops.liveness import oob
from ganeti.cmdlib.ops.os import definitions
from ganeti.cmdlib.ops.params import devices
from ganeti.cmdlib.ops.transfer import export_description
from ganeti.config import damaged, history, releases
from ganeti.config import witness as config_witness
from ganeti.configfile import journal as config_journal
from ganeti.foreign import catalogue as foreign_catalogue
from ganeti.foreign import export as foreign_export
from ganeti.foreign import fetching as foreign_fetching
from ganeti.foreign import images as foreign_images
from ganeti.foreign import libvirt, ova, ovf, proxmox
from ganeti.foreign import reading as foreign_reading
from ganeti.helpers import kvm_console
from ganeti.htools import repair as htools_repair
from ganeti.htools import units as htools_units
from ganeti.htools.loading import monitoring as htools_monitoring
from ganeti.htools.loading import request as htools_request
from ganeti.htools.loading import rest as htools_rest
from ganeti.htools.loading import text as htools_text
from ganeti.http import auth, document, frames, head, messages
from ganeti.hypervisor import console_log, host, rootfs
from ganeti.hypervisor.chroot import parse as chroot
from ganeti.hypervisor.kvm import guest_agent, privileges, probe, runtime
from ganeti.hypervisor.kvm import parse as kvm
from ganeti.hypervisor.lxc import parse as lxc
from ganeti.hypervisor.lxc import record as lxc_record
from ganeti.hypervisor.net import addresses, veth, vlan
from ganeti.hypervisor.xen import parse as xen
from ganeti.hypervisor.xen import record as xen_record
from ganeti.hypervisor.xen import transfer as xen_transfer
from ganeti.jobexec import livelock
from ganeti.jobexec import messages as job_messages
from ganeti.jobstore import journal
from ganeti.jobstore.inventory import Inventory
from ganeti.jqueue import filters
from ganeti.jqueue import job as jobs
from ganeti.luxi import protocol as luxi
from ganeti.master import access_records
from ganeti.merge import other_cluster as merge_other
from ganeti.merge import record as merge_record
from ganeti.merge import steps as merge_steps
from ganeti.metad import dhcp, guests, web
from ganeti.mond import configuration
from ganeti.mond.collectors import cpu_load, diskstats, logical_volumes
from ganeti.mond.collectors import drbd as drbd_collector
from ganeti.objects import codec, fill
from ganeti.objects.device_names import DeviceNames
from ganeti.objects.hypervisors import cpu_masks
from ganeti.objects.hypervisors import lxc as lxc_parameters
from ganeti.opcodes.instance import OpInstanceSetParams
from ganeti.platform import hosts, master_epoch, ssh_keys, watchdog_files, watcher_files
from ganeti.platform import users as platform_users
from ganeti.query import filter as query_filter
from ganeti.query import order as query_order
from ganeti.query import page as query_page
from ganeti.query.findings import parse_finding
from ganeti.rapi import (
    credentials,
    event_socket,
    events,
    passwords,
    rights,
    roles,
    selectors,
    users,
    webauthn,
)
from ganeti.rapi.oidc import settings as oidc_settings
from ganeti.runbook import quiet
from ganeti.storage import file as file_storage
from ganeti.storage import rbd
from ganeti.storage import units as storage_units
from ganeti.storage.drbd import parse as drbd
from ganeti.storage.drbd import status as drbd_status
from ganeti.storage.drbd import status_json as drbd_status_json
from ganeti.storage.ext import device as ext_device
from ganeti.storage.ext import provider as ext_provider
from ganeti.storage.lvm import parse as lvm
from ganeti.takeover import defaults as takeover_defaults
from ganeti.takeover import facts as takeover_facts
from ganeti.takeover import packages as takeover_packages
from ganeti.takeover import state as takeover_state
from ganeti.tools import (
    daemon_units,
    daemon_util,
    lvmstrap,
    move_instance,
    node_daemon_setup,
    users_setup,
)
from ganeti.upgrading import record as upgrade_record
from ganeti.upgrading import work as upgrade_work
from ganeti.utils import daemonize, linear_re, ssh, text, x509
from ganeti.watchdogd import device as watchdog_device
from ganeti.watchdogd import rule as watchdog_rule
from ganeti.wire import calls, neighbour
from ganeti.wire import errors as wire_errors
from ganeti.wire import json as wire_json
from ganeti.wire.calls import base

DATA = Path(__file__).parents[1] / "data"


class Parser(NamedTuple):
    """A parser of a text, of bytes, or of a JSON value, and texts which it understands.

    :ivar refusals: exceptions by which it refuses, besides the errors of the project.
    """

    parse: Callable[[Any], Any]
    good: tuple[Any, ...]
    refusals: tuple[type[Exception], ...] = ()


def data(name: str) -> str:
    """Return a file of test/data."""
    return (DATA / name).read_text(encoding="utf-8")


_XEN_RECORD = """{"name": "web", "uuid": "u", "hypervisor": "xen-pvm", "hvparams": {}, "memory": 1,
"vcpus": 1, "port": null, "tags": [], "nics": [[{"mac": "aa:00:00:00:00:01"}, 0]],
"disks": [[{"uuid": "d"}, "/dev/x", "xvda"]], "state": "complete"}"""

# -- parsers which need more than their text -----------------------------------------------------


def _understand_password(value: str) -> None:
    passwords.matches(passwords.parse(value), "user\udc80", "word\ud800")


def _archive(mode: str) -> bytes:
    """Return an archive with a description and an image."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode=mode) as opened:  # type: ignore[call-overload]
        for name, content in (("a.ovf", data("ovf/virtualbox.ovf").encode()), ("a.vmdk", b"x")):
            member = tarfile.TarInfo(name)
            member.size = len(content)
            opened.addfile(member, io.BytesIO(content))
    return out.getvalue()


def _unpack_archive(value: bytes) -> None:
    with tempfile.TemporaryDirectory() as directory:
        archive = f"{directory}/archive"
        Path(archive).write_bytes(value)
        os.mkdir(f"{directory}/unpacked")
        ova.extract(archive, f"{directory}/unpacked", foreign_reading._largest_files)


def _received(value: str) -> str:
    """Return a text as it stands in the head of a request: a character for each byte."""
    return value.encode("utf-8", "surrogatepass").decode("latin-1")


def _drop_line(_line: str) -> None:
    """Ignore a warning."""


def _helper_answer(value: str) -> None:
    for command in (oob.HEALTH, oob.POWER_STATUS, oob.POWER_ON):
        try:
            oob.parse_answer(command, value)
        except errors.ParseError:
            continue


def _allocator_answer(value: str) -> None:
    """Read an answer, and check its result for each mode."""
    result = answers.parse("program", value).result
    for request in _REQUESTS:
        try:
            request.check(_CLUSTER, result)
        except errors.GenericError:
            continue


def _node_answers(answer: Any) -> None:
    """Read one value as the answer to each call."""
    for call in _CALLS:
        try:
            call.result.decode(answer)
        except errors.GenericError:
            continue


def _node_arguments(argument: Any) -> None:
    """Read one value as each argument of each call."""
    for call in _CALLS:
        for arg in call.args:
            try:
                arg.encoding.decode(argument)
            except errors.GenericError:
                continue
        for peer in (None, neighbour.Peer("9.9.0")):
            try:
                call.decode_args([argument] * len(call.args), peer)
            except errors.GenericError:
                continue


def _hook_results(answer: Any) -> None:
    for row in calls.HOOKS_RUNNER.result.decode(answer):
        hooks.ScriptResult(*row)


def _os_rows(answer: Any) -> None:
    for row in calls.OS_DIAGNOSE.result.decode(answer):
        definitions.parse_row(row)


def _device_changes(value: Any) -> None:
    """Read changes of disks, as far as the opcode accepts them."""
    found = OpInstanceSetParams(instance_name="web", disks=value)
    devices.changes_of(found.validate().disks or ())


def _rest_lists(value: Any) -> None:
    keys = ("groups", "nodes", "instances")
    if isinstance(value, dict) and {*keys, "info"} <= set(value):
        htools_rest.make(*(value[key] for key in keys), value["info"])


def _repair_tags(value: Any) -> None:
    """Read what tags say about repairs, and print it as harep does."""
    tags = [f"{htools_repair.PREFIX}{one}" for one in value] if isinstance(value, list) else []
    htools_repair.history(tags)
    htools_repair.show_permission(htools_repair.permission([tags], 50.0))


def _luxi_cluster(value: Any) -> None:
    """Read a cluster from the answers of the master daemon."""
    if isinstance(value, dict):
        htools_luxi.parse_cluster(*(value.get(key) for key in ("info", *_LUXI_FIELDS)))


_LUXI_FIELDS = dict(
    zip(("groups", "nodes", "instances"), htools_luxi._FIELDS.values(), strict=True)
)


def _flat(one: dict[str, Any]) -> dict[str, Any]:
    """An object of the REST interface with the names of query fields."""
    backend = {f"be/{key}": value for key, value in one.get("beparams", {}).items()}
    return {**one, **backend, "be/memory": backend.get("be/maxmem", 128)}


def _luxi_rows(rest: dict[str, Any]) -> dict[str, Any]:
    """Answers of the master daemon with the objects of the REST interface."""
    found = {"info": rest["info"]}
    for name, fields in _LUXI_FIELDS.items():
        found[name] = {"data": [
            [[0, one[field]] if field in one else [4, None] for field in fields]
            for one in (_flat(one) for one in rest[name])
        ]}  # fmt: skip
    return found


_CALLS = [call for call in vars(calls).values() if isinstance(call, base.Call)]
_CLUSTER = cluster_of(3, (instance_of("web", disks=("uuid-web-disk0",)),), (disk_of("web"),))
_FILLED = codec.to_dict(fill.filled_instance(_CLUSTER, next(iter(_CLUSTER.instances.values()))))
_DISK = codec.to_dict(disk_of("web"))
_NEW = requests.Allocate(
    "new", "fake", "noop", 128, 1, 1, "plain", ({"size": 4, "mode": "rw"},), ()
)
_REQUESTS: tuple[requests.AllocationRequest[Any], ...] = (
    _NEW,
    requests.MultiAllocate((_NEW,)),
    requests.Relocate("uuid-web", ("uuid-node1",)),
    requests.NodeEvacuate(("uuid-web",), "all"),
)
_LXC_RECORD = lxc_record.Record(
    uuid="u", disk_uuid="d", disk_path="/dev/x", memory_mib=64, vcpus=1, hvparams={"num_ttys": 6},
    groups={"": "/lxc.payload.web"},
)  # fmt: skip
_TOKEN = join_protocol.Token(4102444800, "192.0.2.1", 1811, bytes(32), bytes(32), "n.example.com")
_PUBLIC_KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAABAgMEBQYHCAkKCwwNDg8QERITFBUWFxgZGhscHR4f"


# -- texts ---------------------------------------------------------------------------------------

TEXTS: dict[str, Parser] = {
    "answers of a probe": Parser(
        takeover_facts.parse_answers,
        (
            '{"python": [3, 11, 2], "clock": 1.5, "commands": {"packages": "ganeti 3.0.2-3'
            ' installed", "policy": "ganeti:", "architecture": "amd64", "owner": "gnt-masterd",'
            ' "qemu": "QEMU emulator version 7.2"}, "files": {"/etc/default/ganeti": "X_ARGS=1",'
            ' "/etc/os-release": "ID=debian", "/proc/drbd": null,'
            ' "/var/lib/ganeti/intent-to-upgrade": null}, "patterns": {"/run/systemd/system": []},'
            ' "free": {"/var/lib": 1, "/var/cache/apt": 1}, "sizes": {"/etc/ganeti": 1}}',
        ),
    ),
    "installed packages": Parser(
        takeover_facts.parse_packages, ("ganeti 3.0.2-3 installed\nganeti-doc 3 config-files\n",)
    ),
    "policy of apt": Parser(
        takeover_facts.parse_policy,
        (
            "ganeti:\n  Installed: 3.0.2-3\n  Candidate: (none)\n  Version table:\n"
            " *** 3.0.2-3 500\n"
            "        500 http://deb.example.com bookworm/main\n        100 /var/lib/dpkg/status\n",
        ),
    ),
    "name of a distribution": Parser(
        takeover_facts.parse_os_release, ('ID=debian\nVERSION_ID="12"\n',)
    ),
    "version of a program": Parser(
        takeover_facts.parse_version, ("QEMU emulator version 7.2.17 (Debian)", "4.17")
    ),
    "programs for NICs": Parser(
        takeover_facts.parse_nic_programs,
        ('/local/domain/0/backend/vif/1/0/script = "/etc/xen/scripts/vif-bridge"\n',),
    ),
    "dependencies of a package": Parser(
        takeover_facts.parse_depends, ("python3 (>= 3.11), a:any | b,\n c [amd64]",)
    ),
    "fields of a package": Parser(
        takeover_facts.parse_control, ("Package: ganeti-py\nDepends: a,\n b\n\nPackage: x\n",)
    ),
    "options of daemons": Parser(
        takeover_defaults.parse_settings, ("RAPI_ARGS='-b ::1'\nexport A=1\n# x\n",)
    ),
    "record of a takeover": Parser(
        takeover_state.parse_state,
        (
            '{"format": 1, "number": 7, "direction": "run", "master": "node1", "nodes": {"node1":'
            ' {"steps": ["stop"]}}, "cluster": ["drain"], "original": {"ganeti": "3"}}',
        ),
    ),
    "what a node has ignored": Parser(neighbour.parse_ignored, ('["instance/nics/0/speed"]',)),
    "a finding of a verification": Parser(
        parse_finding, ("  - WARNING:ENODEHV:node:node1:text: more", "  - NOTICE: x")
    ),
    "id of an event": Parser(events.parse_ident, ("1f0c-7", "")),
    "what a client wants to hear": Parser(
        event_socket.parse_subscription,
        ('{"subscribe": {"kind": ["node", "job"], "name": ["web*"], "after": "1f0c-7"}}',),
    ),
    "errors of a verification": Parser(
        verify_errors.parse_verify, ("Thu Nov 26   - ERROR:ENODEHV:node:node1:text: more\n",)
    ),
    "record of an upgrade": Parser(
        upgrade_record.parse_record,
        (
            '{"format": 1, "number": 7, "origin": "0.9", "target": "0.10", "master": "node1",'
            ' "nodes": {"node1": "192.0.2.1"}, "done": ["stop"], "step": "backup"}',
        ),
    ),
    "versions of a node": Parser(
        upgrade_work.parse_versions, ('{"active": "0.9", "installed": {"0.9": "0.9.0"}}',)
    ),
    "facts about a release": Parser(
        releases.parse_facts,
        (
            '{"release": "0.9.0", "config_version": 3010000, "fields": {"cluster": ["witness"]},'
            ' "parameters": {"kvm": ["firmware"]}}',
        ),
    ),
    "states of jobs": Parser(quiet.parse_unfinished, ("1|success\n2|running\n",)),
    "removed packages": Parser(
        takeover_packages.parse_removed, ("Remv ganeti [3.0.2-3]\nInst ganeti-py\n",)
    ),
    "promise of a node": Parser(
        watchdog_files.parse_promise, ("12345678-1234-1234-1234-123456789012 10\n",)
    ),
    "run of the watcher": Parser(watcher_files.parse_holder, ("4711 123456.7\n",), (ValueError,)),
    "report of a watchdog": Parser(
        watchdog_files.parse_report,
        ("state armed\ntoken 12345678-1234-1234-1234-123456789012\ntimeout_s 10\ntext x\n",),
    ),
    "drbd status of version 9": Parser(
        drbd_status_json.parse_status, (data("drbd/drbd-9-connected.status.json"),)
    ),
    "record of a merge": Parser(
        merge_record.parse_record,
        (
            '{"format": 1, "asked": "second", "name": "second.example.com", "master": "node3",'
            ' "guests": [{"name": "web1", "running": true, "wanted": true}], "merged": true}',
        ),
    ),
    "instances of another cluster": Parser(
        merge_steps.parse_guests, ("web1.example.com|Y|up\nweb2.example.com|N|down\n",)
    ),
    "configuration of another cluster": Parser(
        lambda text: merge_other.parse_config(text, "second"),
        (json.dumps(codec.to_dict(cluster_of(2))),),
    ),
    "disks of a machine": Parser(
        lvmstrap.parse_lsblk,
        (
            '{"blockdevices": [{"name": "sda", "path": "/dev/sda", "type": "disk", "size": 1, "rm":'
            ' false, "ro": false, "mountpoints": ["/"], "fstype": null, "pttype": "gpt",'
            ' "children": [{"name": "sda1", "type": "part", "mountpoints": [null], "fstype":'
            ' "ext4"}]}]}',
        ),
    ),
    "content of a disk": Parser(
        lvmstrap.parse_wipefs, ('{"signatures": [{"device": "sda", "type": "ext4"}]}',)
    ),
    "users of a machine": Parser(
        lambda text: users_setup.parse_accounts(text, text),
        ("root:x:0:0:root:/root:/bin/bash\n", "gnt-daemons:x:900:gnt-rapi\n"),
    ),
    "domain of libvirt": Parser(libvirt.parse_libvirt, (data("libvirt/web.xml"),)),
    "machine of proxmox": Parser(proxmox.parse_proxmox, (data("proxmox/101.conf"),)),
    "appliance": Parser(ovf.parse_ovf, (data("ovf/ganeti.ovf"), data("ovf/virtualbox.ovf"))),
    "manifest of an appliance": Parser(ovf.parse_manifest, (data("ovf/ganeti.mf"),)),
    "export as a machine": Parser(foreign_export.parse_export, (data("ovf/config.ini"),)),
    "data in an image": Parser(
        foreign_images.parse_measure, ('{"required": 65536, "fully-allocated": 131072}',)
    ),
    "image of a disk": Parser(
        foreign_images.parse_info,
        (
            '{"format": "vmdk", "virtual-size": 1, "filename": "a", "format-specific": {"data":'
            ' {"extents": [{"filename": "a"}]}}}',
        ),
    ),
    "lxc cgroup mounts": Parser(lxc.parse_cgroup_mounts, (data("lxc/mounts-hybrid"),)),
    "lxc cgroups of a process": Parser(
        lxc.parse_own_cgroups, ("4:memory:/lxc.payload.web\n0::/lxc.payload.web\n",)
    ),
    "lxc counters": Parser(lxc.parse_counters, ("usage_usec 31591\nuser_usec 5265\n",)),
    "lxc end": Parser(lxc.parse_ended_by_itself, (data("lxc/ended-poweroff.log"),)),
    "lxc errors": Parser(lxc.parse_errors, (data("lxc/noinit.log"), data("lxc/nomount.log"))),
    "lxc extra config": Parser(lxc_parameters.parse_extra_config, ("lxc.environment = A=b",)),
    "lxc input and output": Parser(
        lxc.parse_io_stat, ("8:0 rbytes=1 wbytes=2 rios=3\n", "8:0 Read 4096\n8:0 Write 0\n")
    ),
    "lxc interfaces": Parser(veth.parse_interfaces, ("    lo: 0 0\n  eth0:12 0\n",)),
    "lxc record": Parser(lxc_record.parse_record, (_LXC_RECORD.dumps(),)),
    "lxc sockets": Parser(
        lambda value: lxc.parse_unix_sockets(value, "/run/ganeti/lxc"),
        ("0: 00000002 00000000 00010000 0001 01 47 @/run/ganeti/lxc/web/command\n",),
    ),
    "lxc version": Parser(lxc.parse_version, ("5.0.2\n",)),
    "mount points": Parser(
        chroot.parse_mount_points, ("/dev/vda / ext4 rw 0 0\n/dev/b /a\\040b ext4 rw 0 0\n",)
    ),
    "partitions": Parser(rootfs.parse_partx, ("2048 131072\n133120 1024\n",)),
    "probed disk": Parser(rootfs.parse_blkid, ("DEVNAME=/dev/vdb\nTYPE=ext4\n",)),
    "addresses": Parser(
        addresses.parse_addresses,
        (
            '[{"ifname": "eth0", "addr_info": [{"family": "inet", "local": "192.0.2.1",'
            ' "scope": "global"}]}]',
        ),
    ),
    "allocator answer": Parser(
        _allocator_answer,
        (
            '{"success": true, "info": "", "result": ["node1.example.com"]}',
            '{"success": true, "info": "", "result": [[["new", ["node1.example.com"]]], []]}',
            '{"success": true, "info": "", "result": [[["web.example.com", "default",'
            ' ["node2.example.com"]]], [["web.example.com", "no"]],'
            ' [[{"OP_ID": "OP_INSTANCE_MIGRATE", "instance_name": "web.example.com"}]]]}',
        ),
    ),
    "allocator request": Parser(
        htools_request.parse,
        tuple(data(f"htools/hail-{kind}.json") for kind in ("alloc-drbd", "reloc-drbd")),
    ),
    "catalogue of images on a node": Parser(
        image_copies.parse_copy, (f"{'0' * 64}  {'0' * 64}.raw\n\n{'0' * 64}.raw\na.json\n",)
    ),
    "catalogue entry": Parser(
        foreign_catalogue.parse_entry,
        (
            '{"name": "debian-12", "format": "qcow2", "size": 2147483648, "file_size": 4096,'
            f' "sha256": "{"0" * 64}", "source": "/x", "verified": "", "fetched": 1795213010}}',
        ),
    ),
    "checksums": Parser(
        foreign_fetching.parse_checksums,
        (f"{'0' * 64}  a\n{'f' * 128} *b\nSHA256 (c) = {'0' * 64}\n",),
    ),
    "candidates": Parser(auth.parse_candidate_certs, ("uuid-1=aa:bb\nuuid-2=CC:DD\n",)),
    "console escape": Parser(
        kvm_console.parse_escape, ("raw,escape=0x1d",), (kvm_console.ConsoleError,)
    ),
    "console position": Parser(console_log._parsed, ("4711-1:500",)),
    "cpu mask": Parser(cpu_masks.parse_cpu_masks, ("0-2,5:all:7",)),
    "counters of disks": Parser(diskstats.parse, (data("mond/proc_diskstats.txt"),)),
    "counters of processors": Parser(cpu_load.parse, ("cpu  1 2 3 4\ncpu0 1 2 3 4\nintr 5\n",)),
    "daemon arguments": Parser(
        daemon_util.parse_defaults, ("NODED_ARGS=\"-d --syslog='yes'\"\n# x\n",)
    ),
    "daemon users": Parser(
        platform_users.parse, ("MASTERD_ARGS='--user=a --group b'\nDAEMONS_GROUP=c\n",)
    ),
    "drbd dump": Parser(drbd.parse_metadata, ("# md_size_sect 262144\n\nla-size-sect 2097152;\n",)),
    "drbd proc": Parser(
        drbd.parse_proc,
        (
            "version: 8.4.11 (api:1/proto:86-101)\n 0: cs:Connected ro:Primary/Secondary"
            " ds:UpToDate/UpToDate C r-----\n    ns:0 nr:0\n",
        ),
    ),
    "drbd report": Parser(
        lambda text: drbd_collector.parse(text, {}), (data("mond/proc_drbd83_sync.txt"),)
    ),
    "drbd show": Parser(
        drbd.parse_show,
        (
            'resource r0 {\n net {\n  cram-hmac-alg "md5";\n }\n'
            " _this_host {\n device minor 0;\n }\n}\n",
        ),
    ),
    "drbd state": Parser(drbd_status._parsed, (data("drbd/proc_drbd84_sync.txt"),)),
    "drbd version": Parser(drbd.parse_version, ("version: 8.4.11 (api:1/proto:86-101)\n",)),
    "columns of lvs": Parser(
        lambda text: logical_volumes.parse(text, {}), (data("mond/lvs_lv.txt"),)
    ),
    "credentials of a witness": Parser(
        lambda value: document.parse_auth(value, "file"),
        (
            "# x\nuser = node\npassword = a = b\n",
            "-----BEGIN PRIVATE KEY-----\n-----BEGIN CERTIFICATE-----\n",
        ),
    ),
    "epoch": Parser(master_epoch.parse, ("4 0b1541c6-5529-436d-a9c4-89fe65e248c5",)),
    "export": Parser(
        lambda value: export_description.parse(value, _drop_line),
        ("[export]\nversion = 0\n[instance]\nname = a\ndisk_count = 1\ndisk0_size = 5\n",),
    ),
    "external parameters": Parser(ext_provider.parse_parameters, ("size  Size in MiB\nx\n",)),
    "xl uptime": Parser(
        xen.parse_uptimes, ("Name  ID Uptime\nDomain-0  0  1 day, 2:03:04\nweb 3  0:00:05\n",)
    ),
    "external volume": Parser(ext_device.parse_attach, ("/dev/x\nkvm:rbd:pool/a\nxen: b\n",)),
    "file paths": Parser(file_storage.parse_storage_paths, ("# x\n/srv/a\n//etc/../b\n",)),
    "order of a list": Parser(
        lambda value: query_order.parse_order(value, "sort"), ("pnode,-be/maxmem", "name")
    ),
    "filter": Parser(
        query_filter.parse, ('(name == "a" and not x) or "y" in tags or name =~ m/y/i',)
    ),
    "helper answer": Parser(_helper_answer, ('[["disk", "OK"]]', '{"powered": true}', "")),
    "history point": Parser(history_command.parse_point, ("17", "2026-11-30 18:45")),
    "hosts": Parser(hosts.parse_hosts, ("192.0.2.1 a.example.com a # x\n::1 b\n",)),
    "htools monitoring": Parser(
        htools_monitoring.parse,
        ('[{"node": "n1", "reports": [{"name": "cpu-avg-load", "data": {"cpu_total": 1.5}}]}]',),
    ),
    "htools repair": Parser(
        htools_repair.parse,
        (f"{htools_repair.PREFIX}pending:failover:uuid:1000:5+6",),
    ),
    "htools cluster": Parser(
        htools_text.parse,
        tuple(
            data(f"htools/{name}.data")
            for name in ("hspace-tiered-dualspec", "hbal-forth", "multiple-tags")
        ),
    ),
    "htools units": Parser(
        lambda value: htools_units.parse("n", value), ("5,10,lvm-vg,xenvg;1,2,file,/srv,x",)
    ),
    "join token": Parser(join_protocol.decode_token, (_TOKEN.encode(),)),
    "lv list": Parser(lvm.parse_lv_list, ("  xenvg|a|4.00|-wi-ao----\n",)),
    "lv snapshots": Parser(
        lvm.parse_snapshots, ("  xenvg|s|[o]|4.00|swi-a-s---|2026-11-30 18:45:00 +0000\n",)
    ),
    "lvs": Parser(
        lvm.parse_lvs, ("  xenvg|a|4096.00|-wi-ao----|253|0|4096.00|1|x,y|/dev/sda(0)\n",)
    ),
    "memory": Parser(
        lambda value: host.linux_node_info(value, 1, 1, 1),
        ("MemTotal: 2048 kB\nMemFree: 1024 kB\nCached: 1 kB\n",),
    ),
    "node setup": Parser(
        node_daemon_setup.parse,
        (
            json.dumps(
                {
                    **dict.fromkeys(node_daemon_setup._SHAPES, "x"),
                    "node_daemon_certificate": x509.create_self_signed(),
                    "ssconf": {"cluster_name": "x"},
                    "start_node_daemon": False,
                }
            ),
        ),
    ),
    "OpenID Connect": Parser(
        lambda text: oidc_settings.parse_settings(text, lambda _words: []),
        (
            '{"issuer": "https://id.example.com", "client_id": "c", "client_secret": "s",'
            ' "address": "https://h:5080", "rights": {"g": "read"}, "scopes": ["openid"],'
            ' "after": "/x", "groups_claim": ["a", "b"], "name_prefix": "p-"}',
        ),
    ),
    "OS API": Parser(os_definitions.parse_api_versions, ("15\n20\n",), (os_definitions._Wrong,)),
    "OS parameters": Parser(
        os_definitions.parse_parameters, ("size  how large\nb\n",), (os_definitions._Wrong,)
    ),
    "OS variants": Parser(
        os_definitions._names("variants", "variants.list"),
        ("squeeze # x\nwheezy\n",),
        (os_definitions._Wrong,),
    ),
    "password": Parser(
        _understand_password,
        (
            "word",
            "{HA1}" + "0" * 32,
            passwords.hashed("word", (16, 1, 1)),
            "{cleartext}x",
            "{PAM}x",
        ),
    ),
    "path": Parser(lambda value: messages.decode_path(_received(value)), ("/2/instances/web%20a",)),
    "pattern": Parser(
        lambda value: linear_re.Pattern(value).search("aab" * 10), ("^(a|b)+[c-e]{2,3}$",)
    ),
    "public keys": Parser(ssh_keys.parse_public_keys, (f"uuid-1 {_PUBLIC_KEY} x\n",)),
    "pvs": Parser(lvm.parse_pvs, ("  /dev/sda|xenvg|5.0|a--|10.0|web\n",)),
    "qemu capabilities": Parser(
        probe._capabilities, ('{"return": [{"capability": "xbzrle", "state": false}]}\n',)
    ),
    "xl info": Parser(xen.parse_info, (data("xen/xl-info-4.17.txt"),)),
    "xl list": Parser(
        xen.parse_list,
        (data("xen/xl-list-4.17.txt"), data("xen/xen-xl-list-4.0.1-four-instances.txt")),
    ),
    "xl list --long": Parser(
        xen.parse_long,
        (
            data("xen/xl-list-long-4.17.txt"),
            data("xen/xl-list-long-4.17-pvh.txt"),
            data("xen/xl-list-long-4.17-original.txt"),
        ),
    ),
    "xen record": Parser(lambda value: xen_record.loads(value, "web"), (_XEN_RECORD,)),
    "xen transfer": Parser(
        lambda value: xen_transfer.loads(value, "web"),
        ('{"direction": "out", "status": "active", "pid": 7, "total": 1, "moved": 0}',),
    ),
    "qemu machines": Parser(kvm.parse_default_machine, ("pc  Standard PC (default)\n",)),
    "qemu options": Parser(kvm.parse_options, (data("kvm/kvm_5.2.0_help.txt")[:2000],)),
    "qemu version": Parser(kvm.parse_version, ("QEMU emulator version 7.2.1 (Debian)",)),
    "query": Parser(lambda value: messages.parse_query(_received(value)), ("a=1&b=%20&a=2",)),
    "rbd list": Parser(
        lambda value: rbd.parse_mapped(value, "rbd", "a"),
        (data("rbd/json_output_ok.txt"), '[{"pool": "rbd", "name": "a", "device": "/dev/rbd0"}]'),
    ),
    "rbd table": Parser(
        lambda value: rbd.parse_mapped_plain(value, "rbd", "a"),
        (data("rbd/plain_output_new_ok.txt"), "0 rbd a - /dev/rbd0\n"),
    ),
    "REST credentials": Parser(
        lambda value: users._decode(_received(value)), ("Basic ZXZlOndvcmQ=",)
    ),
    "runtime": Parser(lambda value: runtime.loads(value, "web"), (data("kvm/kvm_runtime.json"),)),
    "size": Parser(text.parse_unit, ("1.5g", "512", "3 TiB")),
    "SSH keys": Parser(
        ssh.parse_keyscan,
        (
            "# x\n192.0.2.1 ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAABAgMEBQYHCAkKCwwNDg8QERITFBUW"
            "FxgZGhscHR4f\n",
        ),
    ),
    "storage units": Parser(
        lambda value: storage_units.parse_units("lvm-pv", value),
        ("  /dev/sda1|10.0|5.0|5.0|a--\n",),
    ),
    "unit state": Parser(
        daemon_units.parse_state, ("ActiveState=active\nExecMainCode=1\nExecMainStatus=11\n",)
    ),
    "user ids": Parser(privileges.parse_pool, ("1000-1010\n2000\n",)),
    "rights": Parser(
        lambda text: rights.parse(text, rights.ROLES, {"tags"}),
        ("write,@operator,tags:PUT,nonsense,tags@tag:a,write@own,@viewer@group:g,x@pool:p",),
    ),
    "roles": Parser(
        roles.parse,
        (
            "# x\npool p = tag:a, instance:w*\nrole r = write@pool:p, @viewer\nrole s = @r@own\n"
            "quota a = instances 1, memory 2g, disk 1t, vcpus 3\nquota pool:p = vcpus 1\n",
        ),
    ),
    "bytes of a browser": Parser(webauthn.decode, ("AQID", "", "-_8")),
    "selector": Parser(selectors.parse, ("tag:a", "own", "instance:web*", "pool:x")),
    "end of a credential": Parser(
        lambda text: credentials.parse_expires(text, 1.8e9), ("30d", "2035-01-01", "never")
    ),
    "users": Parser(users.parse, ("eve word write\n# x\nbob {HA1}" + "0" * 32 + " read,write\n",)),
    "vg sizes": Parser(detection.parse_groups, ("  xenvg 10.0\n",)),
    "vgs": Parser(lvm.parse_vgs, ("  xenvg|5.0|wz--n-|10.0\n",)),
    "vlans": Parser(vlan.parse_vlans, (".7:8:9", "7", "")),
    "volumes": Parser(storage_units.parse_volumes, ("  a|4.00|/dev/sda(0),/dev/sdb(5)|xenvg\n",)),
    "witness": Parser(
        config_witness.parse_document,
        (
            config_witness.text_of(
                config_witness.Document(
                    "uuid",
                    7,
                    "nonce",
                    "node1",
                    master_epoch.Epoch(4, "u"),
                    (master_epoch.Epoch(3, "v"), 12),
                    (master_epoch.Epoch(3, "v"), 5),
                    1700000000.0,
                )
            ),
        ),
    ),
}

# Values of options on command lines.
TEXTS |= {
    f"option value: {name}": Parser(function, good)
    for name, function, good in (
        ("keys", value_types.parse_keyval, ("a=1,no_b,-c,d",)),
        ("named keys", value_types.parse_identkeyval, ("0:size=5,mode=rw", "no_a", "-b")),
        ("lines", value_types.parse_keyval_lines, ("# c\na=1\n\nb=c=d\r\n",)),
        ("sections", value_types.parse_multi_list_ident_keyval, ("min:a=1/max:a=2//std:b",)),
        ("list", value_types.parse_list, ("a,b\\,c",)),
        ("truth", value_types.parse_bool, ("yes", "False")),
        ("whole number", value_types.parse_int, ("17", "-5")),
        ("number", value_types.parse_maybe_float, ("1.5", "default")),
        ("size", value_types.parse_size, ("1.5g",)),
        ("JSON", value_types.parse_json, ('{"a": [1]}',)),
        ("filter action", value_types.parse_filter_action, ("RATE_LIMIT 5", "ACCEPT")),
        ("time span", value_types.parse_time, ("90", "30m")),
    )
}

# -- bytes ---------------------------------------------------------------------------------------

BYTES: dict[str, Parser] = {
    "what a browser says about a page": Parser(
        webauthn.challenge_of, (b'{"type": "webauthn.get", "challenge": "AQID", "origin": "x"}',)
    ),
    # The name of a file may be too long.
    "archive of an appliance": Parser(
        _unpack_archive, (_archive("w"), _archive("w:gz"), _archive("w:xz")), (OSError,)
    ),
    "command line": Parser(kvm.parse_command_line, (b"qemu\0-name\0web\0-pidfile\0/x\0",)),
    "answer of a guest agent": Parser(
        lambda value: list(guest_agent._useful(guest_agent._parsed(value).get("return", ()))),
        (
            b'\xff{"return": []}',
            b'{"return": [{"name": "eth0", "ip-addresses": [{"ip-address": "192.0.2.7"}]}]}',
        ),
        guest_agent._OTHER_FORM,
    ),
    "DHCP": Parser(dhcp.parse_request, (b"\1\1\6\0" + bytes(232) + b"c\x82Sc5\x01\x01\xff",)),
    "history": Parser(
        lambda value: history._parse("history", value),
        (
            b'{"format": 1, "version": 3010000}\n{"serial": 2, "time": 1.5, "was": [1, 1.0],'
            b' "job": 1, "op": "OP_X", "source": "", "reason": "", "changes":'
            b' [["nodes", "u", "n", null, {"a": 1}, {"tags": [0, [], ["x"]]}]]}\n',
        ),
    ),
    "exit code": Parser(web._exit_code, (b"7\n",)),
    "HTTP head": Parser(
        messages.parse_head, (b"GET /2/info?x=1 HTTP/1.1\r\nHost: a\r\nContent-Length: 5",)
    ),
    "frames of a WebSocket": Parser(
        lambda value: frames.Frames(1000).feed(value),
        (
            # A text in two parts with a ping between them, a text, the end; all bytes masked by 0.
            b"\x01\x82\0\0\0\0ab\x89\x81\0\0\0\0p\x80\x83\0\0\0\0\xe2\x82\xac",
            b"\x81\xfe\x00\xc8\0\0\0\0" + b"x" * 200,
            b"\x88\x85\0\0\0\0\x03\xe8bye",
        ),
    ),
    "introduction": Parser(
        messages.parse_introduction, (messages.introduction("169.254.0.7", "169.254.169.254", 80),)
    ),
    "job": Parser(
        lambda value: jobs.decode(value.decode("utf-8", "surrogateescape")),
        (
            b'{"id": 1, "received_timestamp": [1, 2], "start_timestamp": [1, 2],'
            b' "end_timestamp": null, "archived": false, "livelock": null, "process_id": null,'
            b' "ops": [{"input": {"OP_ID": "OP_TEST_DELAY", "duration": 1}, "status": "running",'
            b' "result": null, "log": [[1, [1, 2], "message", "x"]], "priority": 0,'
            b' "start_timestamp": [1, 2], "exec_timestamp": [1, 2], "end_timestamp": null}]}',
        ),
    ),
    "change of a configuration": Parser(
        config_journal._decode,
        (
            b'{"base": [9, "}\\n"], "parts": [[0, 7], "x}\\n"], "bytes": 10, "end": "7x}\\n"}',
            b'{"file": [9, "0badcafe"], "stamps": [3, 5, 1000, 1000], "from": 70}',
        ),
    ),
    "journal": Parser(journal._parse, (b"GJ1 00000000 2\n{}\n",)),
    "record of a job process": Parser(
        livelock.parse_record,
        (
            b'{"protocol": "%s", "locks": [[0, "BGL", "shared"], [3, null, "exclusive"]],'
            b' "reservations": [["mac", "aa:00:00:00:00:01", "job-1-run-1"]]}'
            % job_messages.protocol().encode(),
        ),
    ),
    "JSON": Parser(wire_json.loads, (b'{"a": [1, 2.5, "\\u00e4", null, true]}',)),
    "LUXI answer": Parser(luxi.parse_answer, (b'{"success": true, "result": [1]}',)),
    "identity of a watchdog": Parser(
        watchdog_device.parse_identity, (bytes(8) + b"i6300ESB timer".ljust(32, b"\0"),)
    ),
    "LUXI request": Parser(luxi.parse_request, (b'{"method": "Query", "args": [1, "x"]}',)),
    "node call": Parser(
        head.parse_raw_head, (b"PUT /version HTTP/1.1\r\nContent-Length: 5\r\nX: y",)
    ),
    "start report": Parser(
        lambda value: daemonize.parse_report(value, "masterd"), (b"11 not the master",)
    ),
    "strict JSON": Parser(wire_json.loads_strict, (b'{"a": [1, 2.5]}',)),
}

# -- JSON values ---------------------------------------------------------------------------------

_REST_LISTS: dict[str, Any] = {
    "groups": json.loads(data("htools/rapi/groups.json")),
    "nodes": json.loads(data("htools/rapi/nodes.json")),
    # Not all, because each takes time.
    "instances": json.loads(data("htools/rapi/instances.json"))[:1],
    "info": json.loads(data("htools/rapi/info.json")),
}

VALUES: dict[str, Parser] = {
    "names of a device": Parser(
        DeviceNames.parse, ([["dev:8:16", "san:naa.600140507"], ["dev:8:0"]], [["inode:8:1/7"], []])
    ),
    "opinion of a candidate": Parser(
        watchdog_rule.parse_opinion,
        ({"candidates": ["192.0.2.1"], "left": False, "age_s": 0.5},),
    ),
    "page of a list": Parser(
        lambda value: query_page.parse_request(value if isinstance(value, dict) else {}),
        (
            {"order": "pnode,-name", "limit": 5, "after": ["node1", 2.5, "web1", 1]},
            {"offset": 3, "known": "x", "within": ["==", "name", "web1"], "after": ["web1"]},
        ),
    ),
    "change of access records": Parser(
        lambda value: access_records.parse_change(value if isinstance(value, list) else []),
        (
            ["remove", "session", "ab" * 32],
            ["used", "session", "ab" * 32, 1.5],
        ),
    ),
    "data collectors": Parser(
        configuration.parse_intervals, ({"lv": {"active": True, "interval": 5000000.0}},)
    ),
    "compressed text": Parser(base.decompress, ([0, "x"], base.compress("y" * 100_000))),
    "configuration": Parser(
        lambda value: damaged.decode(value) if isinstance(value, dict) else None,
        (json.loads(data("cluster_config/cluster_config_3.1.json")),),
    ),
    "device changes": Parser(
        _device_changes, ([["add", -1, {"size": 4}], ["modify", "1", {}]], [[0, {"mode": "ro"}]])
    ),
    "error of a node": Parser(
        wire_errors.decode, (["OpPrereqError", ["no", "wrong_input"]], ["GenericError", ["x"]])
    ),
    "error of a job process": Parser(job_messages.unpack_error, (["NodeOffline", ["node2", "x"]],)),
    "objects of a job process": Parser(
        job_messages.unpack, (job_messages.pack([cluster_of(1).cluster, {"a": (1,)}]),)
    ),
    "error of REST": Parser(move_instance._decode_error, (["OpPrereqError", ["no", "x"]],)),
    "filter action": Parser(filters.parse_action, ("ACCEPT", ["RATE_LIMIT", 5])),
    "guest": Parser(
        guests.parse,
        (
            {
                "name": "web",
                "os": "d",
                "nics": [
                    {
                        "name": "ganeti:communication:1",
                        "ip": "169.254.0.7",
                        "mac": "aa:00:00:00:00:01",
                    }
                ],
                "helper": {"task": None, "environment": {"A": "b"}},
            },
        ),
    ),
    "hooks": Parser(_hook_results, ([["instance-start-pre.d/a", 2, "done"], ["b", 1, ""]],)),
    "inventory": Parser(
        Inventory.from_wire,
        (
            {
                "live": {"1": "a-b"},
                "plain": {"serial": "1", "version": "1"},
                "drained": False,
                "archive": {"0": "x"},
                "archived": {"0": {"1": 5}},
            },
        ),
    ),
    "migration": Parser(
        lambda value: kvm.parse_migration_status(value) if isinstance(value, dict) else None,
        ({"status": "completed", "ram": {"transferred": 5, "total": 6}, "downtime": 3},),
    ),
    "node answer": Parser(
        _node_answers,
        ([None, {"exit_status": 0}], [["a", "b"]], base.compress("x"), {"dev_path": "/dev/x"}),
    ),
    "node arguments": Parser(
        _node_arguments,
        (
            _FILLED,
            _DISK,
            [_DISK],
            [[_DISK, ["loop", "/x"]]],
            ["script", [_DISK, 0]],
            ["raw", [_DISK]],
            ["/x", base.compress("x"), 0o600, "root", "root", 1.0, 2.0],
        ),
    ),
    "OS definitions": Parser(
        _os_rows,
        ([["debian", "/srv/os/debian", True, "", ["a"], [["size", "how large"]], [20], True]],),
    ),
    "REST lists": Parser(_rest_lists, (_REST_LISTS,)),
    "rows of harep": Parser(
        lambda value: htools_luxi.parse_job_states(value, (1, 2)), ([["success"], None],)
    ),
    "rows of harep in the archive": Parser(
        htools_luxi.parse_archived_state, ({"data": [[[0, "error"]]]}, {"data": []})
    ),
    "rows of the master": Parser(_luxi_cluster, (_luxi_rows(_REST_LISTS),)),
    "tags of repairs": Parser(
        _repair_tags, (["suspend:99", "suspend", "failover", "pending:failover:u:1000:5+6"],)
    ),
}

#: All of them; a name occurs once.
ALL: dict[str, Parser] = dict(
    itertools.chain(TEXTS.items(), BYTES.items(), VALUES.items())  # each kind has names of its own
)
