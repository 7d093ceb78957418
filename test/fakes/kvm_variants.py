"""Guests of many kinds, whose QEMU command lines are kept and are tried with a real QEMU.

Each variant is a set of hypervisor parameters; ``nic`` and ``disks`` change what it has. The unit
tests compare the command lines with files, the scenario tests start each one.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

from ganeti.hypervisor.kvm import argv, buses, runtime
from ganeti.hypervisor.kvm.facts import QemuFacts
from ganeti.hypervisor.kvm.layout import Layout, SpiceFiles
from ganeti.objects import hvparams
from ganeti.objects.disk import Disk
from ganeti.objects.instance import FilledInstance, FilledNic

UUID = "0f4c7a52-9b11-4b0e-a3a4-5d3c1f0e9a77"
BOOT_DISK = {"kernel_path": "", "root_path": ""}


class Variant(NamedTuple):
    """One kind of guest."""

    params: dict[str, Any]
    nics: int = 1
    disks: tuple[str | None, ...] = (None,)  # the name of each disk
    uris: tuple[str | None, ...] = ()
    host: dict[str, Any] = {}  # noqa: RUF012  (never changed)
    starts: bool = True  # whether a plain QEMU of a distribution can start it here


VARIANTS: dict[str, Variant] = {
    "default": Variant({}),
    "kernel": Variant(
        {
            "initrd_path": "%DIR%/initrd",
            "kernel_args": "rw quiet",
            "serial_speed": 9600,
            "kvm_pci_reservations": 6,
            "kvm_flag": "disabled",
        }
    ),
    "no-devices": Variant({}, nics=0, disks=()),
    "boot-from-disk": Variant(BOOT_DISK, disks=(None, "data")),
    "boot-from-network": Variant({**BOOT_DISK, "boot_order": "network"}),
    "boot-from-cdrom": Variant(
        {
            **BOOT_DISK,
            "boot_order": "cdrom",
            "cdrom_image_path": "%DIR%/one.iso",
            "cdrom2_image_path": "%DIR%/two.iso",
            "cdrom_disk_type": "ide",
        }
    ),
    "boot-from-floppy": Variant(
        {**BOOT_DISK, "boot_order": "floppy", "floppy_image_path": "%DIR%/floppy.img"}
    ),
    "q35-virtio-scsi": Variant(
        {
            **BOOT_DISK,
            "machine_version": "q35",
            "disk_type": "scsi-hd",
            "scsi_controller_type": "virtio-scsi-pci",
        },
        disks=(None, "data"),
    ),
    "scsi-lsi-cdrom": Variant(
        {
            **BOOT_DISK,
            "disk_type": "scsi-hd",
            "cdrom_disk_type": "scsi-cd",
            "cdrom_image_path": "%DIR%/one.iso",
        }
    ),
    "ide-e1000": Variant({**BOOT_DISK, "disk_type": "ide", "nic_type": "e1000"}),
    "rtl8139": Variant({**BOOT_DISK, "nic_type": "rtl8139"}, nics=2),
    "processors": Variant(
        {"cpu_type": "qemu64,+ssse3", "cpu_cores": 2, "cpu_threads": 1, "cpu_sockets": 1}
    ),
    "disk-tuning": Variant({"disk_cache": "none", "disk_aio": "native", "disk_discard": "unmap"}),
    "writethrough": Variant({"disk_cache": "writethrough"}),
    "vnc-password-tls": Variant(
        {
            "vnc_bind_address": "127.0.0.1",
            "vnc_tls": True,
            "vnc_password_file": "%DIR%/password",
            "keymap": "de",
        }
    ),
    "vnc-x509": Variant(
        {
            "vnc_bind_address": "127.0.0.1",
            "vnc_tls": True,
            "vnc_x509_path": "%DIR%/x509",
            "vnc_x509_verify": True,
        }
    ),
    "vnc-socket": Variant({"vnc_bind_address": "%DIR%", "usb_mouse": "mouse"}),
    "spice": Variant(
        {
            "spice_bind": "127.0.0.1",
            "spice_ip_version": 4,
            "spice_image_compression": "quic",
            "spice_jpeg_wan_compression": "auto",
            "spice_zlib_glz_wan_compression": "never",
            "spice_streaming_video": "filter",
            "spice_playback_compression": False,
        }
    ),
    "spice-tls-password": Variant(
        {
            "spice_bind": "127.0.0.1",
            "spice_use_tls": True,
            "spice_password_file": "%DIR%/password",
            "spice_tls_ciphers": "HIGH",
            "spice_use_vdagent": False,
        }
    ),
    "no-acpi": Variant({"acpi": False, "reboot_behavior": "exit"}),
    "no-console": Variant({"serial_console": False, "vga": "std", "use_localtime": True}),
    "sound-usb": Variant({"soundhw": "ac97", "usb_devices": "tablet keyboard"}),
    "guest-agent": Variant({"use_guest_agent": True, "kvm_extra": "-msg timestamp=on"}),
    "huge-pages": Variant({"mem_path": "%DIR%"}),
    "uefi-tpm": Variant(
        {**BOOT_DISK, "machine_version": "q35", "firmware": "uefi", "tpm_version": "2.0"},
        disks=("efivars", None, "tpm"),
    ),
    "unprivileged": Variant({"use_chroot": True}, host={"run_as": "nobody", "chroot": "%DIR%"}),
    "no-vhost": Variant({"vhost_net": False}, host={"taps": True}, starts=False),
    "queues": Variant({"virtio_net_queues": 4}, host={"taps": True}, starts=False),
    "rbd": Variant({}, uris=("rbd:pool/volume:id=admin",), starts=False),
    "gluster": Variant({}, uris=("gluster://192.0.2.7:24007/vol/ganeti/a.0",), starts=False),
    "nbd": Variant(
        {},
        uris=(
            'json:{"driver": "nbd", "server": {"type": "inet", '
            '"host": "192.0.2.8", "port": "10809"}, "read-only": false}',
        ),
        starts=False,
    ),
    "migration-target": Variant({}, host={"incoming": True}, starts=False),
}


def in_directory(value: Any, directory: str) -> Any:
    """A parameter with its place for files filled in."""
    return value.replace("%DIR%", directory) if isinstance(value, str) else value


def instance(name: str, directory: str, **changes: Any) -> FilledInstance:
    """The instance of a variant; its files are in ``directory``."""
    variant = VARIANTS[name]
    hvp = {
        **hvparams.defaults("kvm"),
        **changes,
        **{key: in_directory(value, directory) for key, value in variant.params.items()},
    }
    uuids = [f"{number:08x}{UUID[8:]}" for number in range(8)]
    return FilledInstance(
        name="web1",
        primary_node="n",
        os="tiny",
        hypervisor="kvm",
        hvparams=hvp,
        beparams={"maxmem": 64, "minmem": 64, "vcpus": 2},
        admin_state="up",
        admin_state_source="admin",
        disks_active=True,
        uuid=UUID,
        serial_no=1,
        network_port=11000,
        nics=tuple(
            FilledNic(
                mac=f"aa:00:00:00:00:{number:02x}",
                nicparams={"mode": "user", "link": "", "vlan": ""},
                uuid=uuids[number],
            )
            for number in range(variant.nics)
        ),
        disks_info=tuple(
            Disk(
                dev_type="file",
                logical_id=("loop", f"/srv/d{number}"),
                size=4,
                name=disk_name,
                uuid=uuids[number],
            )
            for number, disk_name in enumerate(variant.disks)
        ),
    )


LAYOUT = Layout(
    "/run/kvm", "/var/log/kvm", "web1", SpiceFiles("/lib/spice-ca.pem", "/lib/spice.pem")
)


def record(name: str, qemu: QemuFacts) -> runtime.Runtime:
    """The runtime file of a variant, with made-up paths."""
    variant, guest = VARIANTS[name], instance(name, "/dir")
    hvp = guest.hvparams
    bus = buses.bus_of(argv.machine_type(hvp, qemu), hvp)
    nics = tuple(runtime.device_dict(card, buses.nic_hvinfo(card, hvp, bus)) for card in guest.nics)
    uris = variant.uris or (None,) * len(guest.disks_info)
    disks = tuple(
        runtime.RuntimeDisk(
            runtime.device_dict(disk, buses.disk_hvinfo(disk, hvp, bus)),
            f"/disks/web1:{number}",
            uri,
        )
        for number, (disk, uri) in enumerate(zip(guest.disks_info, uris, strict=True))
    )
    words = argv.base_argv(guest, LAYOUT, qemu)
    return runtime.Runtime(tuple(words), nics, dict(hvp), disks)


def command(name: str, qemu: QemuFacts) -> list[str]:
    """The whole command line of a variant, with made-up paths."""
    variant, started = VARIANTS[name], record(name, qemu)
    nics, disks = started.nics, started.disks
    side = argv.HostSide(
        taps=[None] * len(nics),
        block_devices=[False] * len(disks),
        direct_works=[True] * len(disks),
    )
    extra = {key: in_directory(value, "/dir") for key, value in variant.host.items()}
    if extra.get("taps"):
        extra["taps"] = [f"gnt.tap{number}" for number in range(len(nics))]
    if started.hvparams["firmware"]:
        extra["ovmf"] = argv.Ovmf("/ovmf/code.fd", "/ovmf/vars.fd", 540672)
    return argv.full_argv(started, LAYOUT, qemu, replace(side, **extra))
