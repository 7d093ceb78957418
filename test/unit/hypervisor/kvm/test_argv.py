"""Command lines of QEMU."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from ganeti import errors
from ganeti.hypervisor.kvm import argv, buses, devices, runtime
from ganeti.hypervisor.kvm.accelerator import KVM, TCG
from ganeti.hypervisor.kvm.facts import QemuFacts
from ganeti.hypervisor.kvm.layout import Layout
from ganeti.objects import hvparams
from ganeti.objects.disk import Disk
from ganeti.objects.instance import FilledInstance, FilledNic

UUID = "0f4c7a52-9b11-4b0e-a3a4-5d3c1f0e9a77"
QEMU = QemuFacts(
    "/usr/bin/qemu", (7, 2, 0), frozenset(("no-acpi", "runas", "chroot")), "pc-i440fx-7.2", TCG
)
LAYOUT = Layout("/run/kvm", "/var/log/kvm", "web1")


def params(**changes: Any) -> dict[str, Any]:
    return {**hvparams.defaults("kvm"), **changes}


def guest(**changes: Any) -> FilledInstance:
    network_port = changes.pop("network_port", None)
    return FilledInstance(
        name="web1",
        primary_node="n",
        os="tiny",
        hypervisor="kvm",
        hvparams=params(**changes),
        beparams={"maxmem": 512, "minmem": 128, "vcpus": 2},
        admin_state="up",
        admin_state_source="admin",
        disks_active=True,
        uuid=UUID,
        serial_no=1,
        network_port=network_port,
    )


SERIAL = (
    "socket,id=serial0,path=/run/kvm/ctrl/web1.serial,server=on,wait=off,"
    "logfile=/var/log/kvm/web1.console.log,logappend=on"
)


def base(facts: QemuFacts = QEMU, **changes: Any) -> list[str]:
    return argv.base_argv(guest(**changes), LAYOUT, facts)


def values(words: list[str], option: str) -> list[str]:
    return [value for word, value in zip(words, words[1:], strict=False) if word == option]


def disk(**changes: Any) -> Disk:
    return replace(
        Disk(dev_type="file", logical_id=("loop", "/srv/d"), size=1, uuid=UUID), **changes
    )


def attached(
    one: Disk, path: str = "/run/disks/web1:0", uri: str | None = None, **changes: Any
) -> runtime.RuntimeDisk:
    info = buses.disk_hvinfo(one, params(**changes), buses.Bus("pc", 12))
    return runtime.RuntimeDisk(runtime.device_dict(one, info), path, uri)


def test_default_command_line() -> None:
    assert base() == [
        "/usr/bin/qemu",
        "-name",
        "web1",
        "-m",
        "512",
        "-smp",
        "2",
        "-pidfile",
        "/run/kvm/pid/web1",
        "-device",
        "virtio-balloon",
        "-daemonize",
        "-D",
        "/var/log/kvm/web1.log",
        "-machine",
        "pc-i440fx-7.2,accel=tcg",
        "-kernel",
        "/boot/vmlinuz-3-kvmU",
        "-append",
        "root=/dev/vda1 ro console=ttyS0,38400",
        "-monitor",
        "unix:/run/kvm/ctrl/web1.monitor,server,nowait",
        "-chardev",
        SERIAL,
        "-serial",
        "chardev:serial0",
        "-usb",
        "-display",
        "none",
        "-uuid",
        UUID,
    ]


def test_full_command_line_keeps_the_published_order() -> None:
    nic = FilledNic(
        mac="aa:00:00:00:00:01", nicparams={"mode": "bridged", "link": "br0"}, uuid=UUID
    )
    bus = buses.Bus("pc", 12)
    record = runtime.Runtime(
        ("/usr/bin/qemu", "-usb"),
        (runtime.device_dict(nic, buses.nic_hvinfo(nic, params(), bus)),),
        params(),
        (attached(disk()),),
    )
    host = argv.HostSide(
        taps=["gnt.tap0"],
        block_devices=[True],
        direct_works=[True],
        incoming=True,
        run_as="kvmuser",
        chroot="/run/kvm/chroot/w",
    )
    assert argv.full_argv(record, LAYOUT, QEMU, host) == [
        "/usr/bin/qemu",
        "-usb",
        "-netdev",
        "type=tap,id=nic-0f4c7a52-9b11-4b0e,ifname=gnt.tap0,script=no,downscript=no,vhost=on",
        "-device",
        "virtio-net-pci,id=nic-0f4c7a52-9b11-4b0e,bus=pci.0,addr=0xc,"
        "netdev=nic-0f4c7a52-9b11-4b0e,mac=aa:00:00:00:00:01",
        "-incoming",
        "defer",
        "-qmp",
        "unix:/run/kvm/ctrl/web1.qmp,server,nowait",
        "-qmp",
        "unix:/run/kvm/ctrl/web1.kvmd,server,nowait",
        "-device",
        "virtio-blk-pci,id=disk-0f4c7a52-9b11-4b0e,bus=pci.0,addr=0xc,"
        "drive=disk-0f4c7a52-9b11-4b0e,write-cache=on,bootindex=1",
        "-blockdev",
        "driver=raw,node-name=disk-0f4c7a52-9b11-4b0e,discard=ignore,cache.direct=off,"
        "cache.no-flush=off,file.driver=host_device,file.filename=/run/disks/web1:0,"
        "file.aio=threads,auto-read-only=off",
        "-S",
        "-runas",
        "kvmuser",
        "-chroot",
        "/run/kvm/chroot/w",
    ]
    newer = replace(QEMU, version=(9, 1, 0), options=frozenset(("run-with",)))
    assert argv.full_argv(record, LAYOUT, newer, host)[-2:] == [
        "-run-with",
        "user=kvmuser,chroot=/run/kvm/chroot/w",
    ]


def test_guest_without_nics() -> None:
    record = runtime.Runtime(("qemu",), (), params(), ())
    words = argv.full_argv(record, LAYOUT, QEMU, argv.HostSide([], [], []))
    assert words[1:3] == ["-net", "none"]
    assert words[-1] == "-S"


@pytest.mark.parametrize(
    "flag, works, wanted",
    [("", KVM, KVM), ("", TCG, TCG), ("enabled", TCG, KVM), ("disabled", KVM, TCG)],
)
def test_accelerator(flag: str, works: str, wanted: str) -> None:
    (machine,) = values(base(replace(QEMU, accelerator=works), kvm_flag=flag), "-machine")
    assert machine.endswith(f",accel={wanted}")


def test_acpi_off() -> None:
    assert "-no-acpi" in base(acpi=False)
    words = base(replace(QEMU, options=frozenset()), acpi=False)
    assert "-no-acpi" not in words
    assert values(words, "-machine") == ["pc-i440fx-7.2,acpi=off,accel=tcg"]


def test_version_11_has_no_thread_names() -> None:
    assert values(base(replace(QEMU, version=(11, 0, 0))), "-name") == ["web1"]


@pytest.mark.parametrize(
    "changes, option, wanted",
    [
        ({"reboot_behavior": "exit"}, "-no-reboot", None),
        ({"cpu_cores": 2, "cpu_sockets": 1}, "-smp", "2,cores=2,sockets=1"),
        ({"initrd_path": "/boot/initrd"}, "-initrd", "/boot/initrd"),
        ({"serial_console": False}, "-serial", "none"),
        ({"serial_console": False}, "-append", "root=/dev/vda1 ro"),
        ({"mem_path": "/dev/hugepages"}, "-mem-path", "/dev/hugepages"),
        ({"usb_mouse": "tablet"}, "-usbdevice", "tablet"),
        ({"vga": "std"}, "-vga", "std"),
        ({"cpu_type": "host,+aes"}, "-cpu", "host,+aes"),
        ({"use_localtime": True}, "-rtc", "base=localtime"),
        ({"keymap": "de"}, "-k", "de"),
        ({"kvm_extra": "-smbios 'type=1,serial=a b'"}, "-smbios", "type=1,serial=a b"),
        ({"soundhw": "hda"}, "-audio", "driver=none,model=hda,id=soundhw"),
        ({"disk_type": "scsi-hd"}, "-device", "lsi,id=scsi"),
        ({"machine_version": "q35"}, "-machine", "q35,accel=tcg"),
    ],
)
def test_parameters(changes: dict[str, Any], option: str, wanted: str | None) -> None:
    words = base(**changes)
    assert option in words
    if wanted is not None:
        assert wanted in values(words, option)


def test_no_kernel_boots_from_disk() -> None:
    words = base(kernel_path="")
    assert not {"-kernel", "-initrd", "-append"} & set(words)


def test_a_guest_of_an_earlier_version_gets_a_console_log_with_its_next_reboot() -> None:
    before = ["qemu", "-serial", "unix:/run/kvm/ctrl/web1.serial,server,nowait", "-usb"]
    wanted = ["qemu", "-chardev", SERIAL, "-serial", "chardev:serial0", "-usb"]
    assert argv.with_console_log(before, LAYOUT) == wanted
    assert argv.with_console_log(wanted, LAYOUT) == wanted
    assert argv.with_console_log(["qemu", "-serial", "none"], LAYOUT) == ["qemu", "-serial", "none"]
    assert argv.with_console_log(["qemu", "-serial"], LAYOUT) == ["qemu", "-serial"]


def test_cdroms_and_floppy() -> None:
    words = base(
        cdrom_image_path="/iso/a,b.iso",
        cdrom2_image_path="http://host/c.iso",
        floppy_image_path="/f.img",
        boot_order="cdrom",
    )
    assert values(words, "-blockdev") == [
        "driver=raw,cache.direct=off,cache.no-flush=on,read-only=on,node-name=cdrom1,"
        "file.driver=file,file.filename=/iso/a,,b.iso",
        "driver=raw,cache.direct=off,cache.no-flush=on,read-only=on,node-name=cdrom2,"
        "file.driver=http,file.url=http://host/c.iso",
        "driver=raw,node-name=floppy1,file.driver=file,file.filename=/f.img",
    ]
    assert values(words, "-device")[1:] == [
        "virtio-blk-pci,drive=cdrom1,bootindex=1",
        "virtio-blk-pci,drive=cdrom2",
        "floppy,drive=floppy1",
    ]


@pytest.mark.parametrize(
    "bind, wanted",
    [
        ("0.0.0.0", ":100"),
        ("192.0.2.1", "192.0.2.1:100"),
        ("2001:db8::1", "[2001:db8::1]:100"),
        ("/run/vnc/", "unix:/run/vnc/web1.vnc"),
    ],
)
def test_vnc(bind: str, wanted: str) -> None:
    words = base(vnc_bind_address=bind, network_port=6000)
    assert values(words, "-vnc") == [wanted]
    assert values(words, "-usbdevice") == ["tablet"]
    assert "-display" not in words
    secured = base(
        vnc_bind_address=bind,
        network_port=6000,
        vnc_tls=True,
        vnc_x509_path="/x,y",
        vnc_x509_verify=True,
        vnc_password_file="/p",
    )
    assert values(secured, "-vnc") == [f"{wanted},tls-creds=vnctls0,password=on"]
    assert values(secured, "-object") == [
        "tls-creds-x509,id=vnctls0,endpoint=server,dir=/x,,y,verify-peer=yes"
    ]


def test_spice() -> None:
    words = base(
        spice_bind="127.0.0.1",
        spice_ip_version=4,
        spice_playback_compression=False,
        network_port=11000,
    )
    assert values(words, "-spice") == [
        "addr=127.0.0.1,port=11000,disable-ticketing=on,ipv4=on,playback-compression=off"
    ]
    assert values(words, "-vga") == ["qxl"]


@pytest.mark.parametrize("port", [None, 80])
def test_vnc_needs_a_port(port: int | None) -> None:
    with pytest.raises(errors.HypervisorError, match="no network port"):
        base(vnc_bind_address="0.0.0.0", network_port=port)


@pytest.mark.parametrize(
    "cache, dev_type, direct_works, wanted",
    [
        ("default", "file", True, ("on", "off", "off")),
        ("writeback", "plain", True, ("on", "off", "off")),
        ("none", "file", True, ("on", "on", "off")),
        ("writethrough", "file", True, ("off", "off", "off")),
        ("writeback", "sharedfile", True, ("on", "on", "off")),
        ("writeback", "sharedfile", False, ("on", "off", "off")),
        ("writeback", "rbd", True, ("on", "off", "off")),
    ],
)
def test_cache(cache: str, dev_type: str, direct_works: bool, wanted: tuple[str, ...]) -> None:
    assert (
        devices.cache_mode(params(disk_cache=cache), dev_type, direct_works=direct_works) == wanted
    )


def test_disk_types() -> None:
    ide = devices.disk_argv(
        attached(disk(), disk_type="ide"), params(), is_block=False, bootable=False
    )
    assert ide[1] == (
        "ide-hd,id=disk-0f4c7a52-9b11-4b0e,drive=disk-0f4c7a52-9b11-4b0e,write-cache=on"
    )
    scsi = devices.disk_argv(
        attached(disk(), disk_type="scsi-block"), params(), is_block=True, bootable=True
    )
    assert scsi[1] == (
        "scsi-block,id=disk-0f4c7a52-9b11-4b0e,bus=scsi.0,channel=0,scsi-id=0,lun=0,"
        "drive=disk-0f4c7a52-9b11-4b0e,bootindex=1"
    )
    with pytest.raises(errors.HypervisorError, match="disk_type sd"):
        attached(disk(), disk_type="sd")


def test_read_only_disk_and_comma_in_its_path() -> None:
    words = devices.disk_argv(
        attached(disk(mode="ro"), path="/a,b"), params(), is_block=False, bootable=False
    )
    assert "file.filename=/a,,b," in words[3]
    assert words[3].endswith(",read-only=on")


@pytest.mark.parametrize(
    "uri, wanted",
    [
        ("rbd:pool/x", {"driver": "rbd", "pool": "pool", "image": "x"}),
        (
            "rbd:pool/x:id=admin:conf=/etc/c",
            {"driver": "rbd", "pool": "pool", "image": "x", "user": "admin", "conf": "/etc/c"},
        ),
        (
            "gluster://[2001:db8::1]/vol/a/b",
            {
                "driver": "gluster",
                "volume": "vol",
                "path": "a/b",
                "server.0.type": "inet",
                "server.0.host": "2001:db8::1",
                "server.0.port": "24007",
            },
        ),
        (
            'json:{"driver": "nbd", "server": {"port": 1}, "tls": true, "list": [7]}',
            {"driver": "nbd", "server.port": 1, "tls": "on", "list.0": 7},
        ),
    ],
)
def test_disk_by_uri(uri: str, wanted: dict[str, Any]) -> None:
    assert dict(devices.uri_options(uri)) == wanted


@pytest.mark.parametrize(
    "uri",
    ["", "rbd:pool", "rbd:pool/x:key=1", "gluster://host/vol", "http://host/x", "json:[", "json:7"],
)
def test_disk_by_another_uri_is_refused(uri: str) -> None:
    with pytest.raises(errors.HypervisorError, match="disk "):
        devices.uri_options(uri)


@pytest.mark.parametrize(
    "params_, name", [({"firmware": "uefi"}, "efivars"), ({"tpm_version": "2.0"}, "tpm")]
)
def test_firmware_asks_for_its_disk(params_: dict[str, Any], name: str) -> None:
    plain = attached(disk(name="data"))
    assert argv.special_disk([plain], params(), name) is None
    with pytest.raises(errors.HypervisorError, match=f"needs a small disk named {name}"):
        argv.special_disk([plain], params(**params_), name)
    own = attached(disk(name=name))
    assert argv.special_disk([plain, own], params(**params_), name) is own


def test_queues_of_a_nic() -> None:
    nic = FilledNic(mac="aa:00:00:00:00:01", nicparams={"mode": "bridged"}, uuid=UUID)
    hvp = params(virtio_net_queues=4, vhost_net=False)
    info = buses.nic_hvinfo(nic, hvp, buses.Bus("q35", 3))
    words = devices.nic_argv(runtime.device_dict(nic, info), hvp, "tap0", bootable=True)
    assert words[1].endswith("queues=4")
    assert "bus=pcie.0,addr=0x3" in words[3]
    assert words[3].endswith("mq=on,vectors=10,bootindex=1")


def test_vhost_only_where_it_works() -> None:
    nic = FilledNic(mac="aa:00:00:00:00:01", nicparams={"mode": "bridged"}, uuid=UUID)
    record = runtime.device_dict(nic, buses.nic_hvinfo(nic, params(), buses.Bus("pc", 3)))
    for works in (True, False):
        words = devices.nic_argv(record, params(), "tap0", bootable=False, vhost_works=works)
        assert ("vhost=on" in words[1]) is works


def test_places_on_the_bus_are_given_once() -> None:
    bus = buses.Bus("pc", 12)
    given = [bus.pci()["addr"] for _ in range(19)]
    assert given[0] == "0xc" and given[-1] == "0x1e" and len(set(given)) == 19
    with pytest.raises(errors.HypervisorError, match="no free PCI slot"):
        bus.pci()
    assert [bus.scsi()["scsi-id"] for _ in range(16)] == list(range(16))
    with pytest.raises(errors.HypervisorError, match="no free SCSI"):
        bus.scsi()


def test_short_socket_names() -> None:
    directory = "/" + "d" * 95
    words = [
        "-qmp",
        f"unix:{directory}/web1.example.com.qmp,server,nowait",
        "-chardev",
        f"socket,id=serial0,path={directory}/w.serial,server=on",
        "-pidfile",
        f"{directory}/pid",
    ]
    assert argv.shorten_sockets(words, directory) == [
        "-qmp",
        "unix:web1.example.com.qmp,server,nowait",
        "-chardev",
        f"socket,id=serial0,path={directory}/w.serial,server=on",
        "-pidfile",
        f"{directory}/pid",
    ]
    assert argv.shorten_sockets(["unix:/d/x.qmp"], "/d") == ["unix:/d/x.qmp"]
    with pytest.raises(errors.HypervisorError, match="shorter name"):
        argv.shorten_sockets([f"unix:{directory}/{'w' * 110}.qmp"], directory)


# Devices that come while the guest runs


def test_q35_has_ports_for_devices_to_come() -> None:
    ports = [
        word
        for word in values(base(machine_version="q35"), "-device")
        if word.startswith("pcie-root-port")
    ]
    assert ports[0] == (
        "pcie-root-port,id=hotplug0,bus=pcie.0,addr=0xb.0,chassis=1,multifunction=on"
    )
    assert ports[7] == "pcie-root-port,id=hotplug7,bus=pcie.0,addr=0xb.7,chassis=8"
    assert not [word for word in values(base(), "-device") if "root-port" in word]
    assert buses.hotplug_ports("q35", 0) == []


def test_places_of_a_running_guest_are_not_given_twice() -> None:
    bus = buses.Bus("pc", 12)
    for info in (
        {"bus": "pci.0", "addr": "0xc"},
        {"bus": "pci.0", "addr": "0xe"},
        {"bus": "scsi.0", "channel": 0, "scsi-id": 0, "lun": 0},
        {"driver": "ide-hd"},
    ):
        bus.claim(info)
    assert [bus.pci()["addr"] for _ in range(3)] == ["0xd", "0xf", "0x10"]
    assert bus.scsi()["scsi-id"] == 1


def test_a_running_q35_guest_gets_ports() -> None:
    bus = buses.Bus("pc-q35-7.2", 12)
    bus.claim({"bus": "pcie.0", "addr": "0xc"})
    bus.claim({"bus": "hotplug0", "addr": "0x0"})
    assert [bus.pci()["bus"] for _ in range(7)] == [f"hotplug{n}" for n in range(1, 8)]
    with pytest.raises(errors.HypervisorError, match="no free PCI Express port"):
        bus.pci()


def test_lists_as_qmp_arguments() -> None:
    """The servers of a Gluster volume, and lists in the answer of an external provider."""
    uri = 'json:{"driver": "x", "list": [7, {"a": [true]}], "map": {"1": 2}}'
    options = [(f"file.{key}", value) for key, value in devices.uri_options(uri)]
    assert devices.qmp_arguments(options) == {
        "file": {"driver": "x", "list": [7, {"a": [True]}], "map": {"1": 2}}
    }
    gluster = devices.qmp_arguments(devices.uri_options("gluster://192.0.2.7/gv0/a"))
    assert gluster["server"] == [{"type": "inet", "host": "192.0.2.7", "port": "24007"}]


def test_options_as_qmp_arguments() -> None:
    options = [
        ("driver", "raw"),
        ("cache.direct", "on"),
        ("cache.no-flush", "off"),
        ("file.driver", "file"),
        ("file.filename", "/dev/fdset/1"),
    ]
    assert devices.qmp_arguments(options) == {
        "driver": "raw",
        "cache": {"direct": True, "no-flush": False},
        "file": {"driver": "file", "filename": "/dev/fdset/1"},
    }
    # The cache of a device is a text in QEMU, and not a boolean.
    assert devices.qmp_arguments(
        [("write-cache", "on"), ("mq", "on"), ("scsi-id", 3)], flat=True
    ) == {"write-cache": "on", "mq": True, "scsi-id": 3}


def test_a_command_line_in_the_words_of_another_qemu() -> None:
    """A guest without ACPI stays one where the option for it has become a machine's property."""
    old = [
        "/old/kvm",
        "-name",
        "web1,debug-threads=on",
        "-m",
        "64",
        "-no-acpi",
        "-machine",
        "pc-i440fx-7.2,accel=tcg",
        "-uuid",
        "u",
    ]
    newer = replace(QEMU, program="/new/kvm", version=(10, 0, 0), options=frozenset())
    assert argv.translated(old, newer) == [
        "/new/kvm",
        "-name",
        "web1,debug-threads=on",
        "-m",
        "64",
        "-machine",
        "pc-i440fx-7.2,acpi=off,accel=tcg",
        "-uuid",
        "u",
    ]
    newest = replace(newer, version=(11, 0, 0))
    assert argv.translated(old, newest)[2] == "web1"
    same = replace(QEMU, options=frozenset(("no-acpi",)))
    assert argv.translated(old, same) == [same.program, *old[1:]]


def test_spice_listens_elsewhere_on_another_node() -> None:
    words = ["qemu", "-spice", "addr=192.0.2.1,port=11000,ipv4=on", "-S"]
    assert argv.with_spice_address(words, "192.0.2.2") == [
        "qemu",
        "-spice",
        "addr=192.0.2.2,port=11000,ipv4=on",
        "-S",
    ]
    assert argv.with_spice_address(["-spice", "addr=a,,b"], "::1") == ["-spice", "addr=::1"]
