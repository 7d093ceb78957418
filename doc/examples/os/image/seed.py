"""Write the seed disk of cloud-init's data source NoCloud: instance data, user data, network.

The seed disk is a FAT file system with the label ``CIDATA``. This module writes it byte by byte, so
that no program is needed for it.

Source: cloud-init's documentation (NoCloud, network configuration version 2); Microsoft's FAT
specification (FAT12/16, long names).
"""

import json
import os
import struct
from collections.abc import Mapping
from pathlib import Path

from settings import ScriptError, Settings

LABEL = b"CIDATA     "
_SECTOR = 512
_ROOT_ENTRIES = 64
_FAT12_MOST = 4084


def contents(env: Mapping[str, str], wanted: Settings) -> dict[str, bytes]:
    """Return the files that cloud-init reads: name to content.

    :raises ScriptError: the file with user data cannot be read.
    """
    name = env["INSTANCE_NAME"]
    meta: dict[str, object] = {
        "instance-id": env.get("INSTANCE_UUID") or name,
        "local-hostname": name,
    }
    if wanted.ssh_keys:
        # For the default user of the image, with any user data.
        meta["public-keys"] = list(wanted.ssh_keys)
    if wanted.user_data.startswith("/"):
        try:
            user = Path(wanted.user_data).read_bytes()
        except OSError as err:
            raise ScriptError(
                f"parameter user_data: cannot read {wanted.user_data}: {err.strerror}"
            ) from err
    elif wanted.user_data:
        user = wanted.user_data.encode() + b"\n"
    else:
        config: dict[str, object] = {"hostname": name.partition(".")[0], "fqdn": name}
        if wanted.ssh_keys:
            config["ssh_authorized_keys"] = list(wanted.ssh_keys)
        # YAML is a superset of JSON.
        user = b"#cloud-config\n" + json.dumps(config, indent=1).encode() + b"\n"
    return {
        "meta-data": json.dumps(meta, indent=1).encode() + b"\n",
        "user-data": user,
        "network-config": json.dumps(network(env), indent=1).encode() + b"\n",
    }


def network(env: Mapping[str, str]) -> dict[str, object]:
    """Return the network configuration: NICs with address and network use these, others DHCP."""
    nics = {}
    for index in range(int(env.get("NIC_COUNT") or 0)):

        def get(key: str, number: int = index) -> str:
            return env.get(f"NIC_{number}_{key}", "")

        nic: dict[str, object] = {
            "match": {"macaddress": get("MAC").lower()},
            "set-name": f"eth{index}",
        }
        address, subnet = get("IP"), get("NETWORK_SUBNET")
        if address and "/" in subnet:
            nic["addresses"] = [f"{address}/{subnet.rpartition('/')[2]}"]
            if get("NETWORK_GATEWAY"):
                nic["routes"] = [{"to": "0.0.0.0/0", "via": get("NETWORK_GATEWAY")}]
        else:
            nic["dhcp4"] = True
        nics[f"nic{index}"] = nic
    return {"version": 2, "ethernets": nics}


def write(disk: str, files: Mapping[str, bytes]) -> None:
    """Make the file system of the seed disk.

    :raises ScriptError: the disk is too small.
    """
    with open(disk, "r+b") as target:
        size = target.seek(0, os.SEEK_END)
        image = file_system(size, files)
        target.seek(0)
        target.write(image)
        target.flush()
        os.fsync(target.fileno())


def file_system(size: int, files: Mapping[str, bytes]) -> bytes:
    """Return the first bytes of a FAT file system of ``size`` bytes with these files.

    :raises ScriptError: the files do not fit.
    """
    sectors = min(size // _SECTOR, 0xFFFF)
    per_cluster = 1
    while sectors // per_cluster > _FAT12_MOST:
        per_cluster *= 2
    root_sectors = _ROOT_ENTRIES * 32 // _SECTOR
    fat_sectors = 1
    while True:
        data_at = 1 + 2 * fat_sectors + root_sectors
        clusters = (sectors - data_at) // per_cluster
        needed = -(-((clusters + 2) * 3 // 2 + 1) // _SECTOR)
        if needed <= fat_sectors:
            break
        fat_sectors = needed
    cluster_bytes = per_cluster * _SECTOR
    wanted = sum(-(-len(data) // cluster_bytes) for data in files.values())
    if clusters < max(wanted, 1):
        raise ScriptError(
            f"the seed disk is too small: {size} bytes for "
            f"{sum(map(len, files.values()))} bytes of files"
        )
    boot = struct.pack(
        "<3s8sHBHBHHBHHHIIBBBI11s8s",
        b"\xeb\x3c\x90",
        b"MSWIN4.1",
        _SECTOR,
        per_cluster,
        1,
        2,
        _ROOT_ENTRIES,
        sectors,
        0xF8,
        fat_sectors,
        32,
        64,
        0,
        0,
        0x80,
        0,
        0x29,
        0x47414E54,
        LABEL,
        b"FAT12   ",
    )
    boot = boot.ljust(510, b"\0") + b"\x55\xaa"
    chain = [0xFF8, 0xFFF]
    root = _entry(LABEL, 0x08, 0, 0)
    data = bytearray()
    for number, (name, content) in enumerate(files.items()):
        count = -(-len(content) // cluster_bytes)
        first = len(chain) if count else 0
        chain += [len(chain) + 1 + step for step in range(count - 1)] + ([0xFFF] if count else [])
        data += content.ljust(count * cluster_bytes, b"\0")
        root += _long_name(name, number) + _entry(_short(number), 0x01, first, len(content))
    fat = bytearray(fat_sectors * _SECTOR)
    for index, value in enumerate(chain):
        at = index * 3 // 2
        if index % 2:
            fat[at] |= (value << 4) & 0xF0
            fat[at + 1] = value >> 4
        else:
            fat[at] = value & 0xFF
            fat[at + 1] |= value >> 8
    return boot + bytes(fat) * 2 + root.ljust(root_sectors * _SECTOR, b"\0") + bytes(data)


def _short(number: int) -> bytes:
    return f"SEED{number}".encode().ljust(11)


def _entry(short: bytes, attributes: int, cluster: int, size: int) -> bytes:
    # 1 January 2000, midnight: cloud-init identifies the instance by the content, not by the date.
    return struct.pack(
        "<11sBBBHHHHHHHI", short, attributes, 0, 0, 0, 0x2821, 0x2821, 0, 0, 0x2821, cluster, size
    )


def _long_name(name: str, number: int) -> bytes:
    checksum = 0
    for byte in _short(number):
        checksum = ((checksum & 1) << 7 | checksum >> 1) + byte & 0xFF
    letters = name + "\0" if len(name) % 13 else name
    pieces = [letters[at : at + 13] for at in range(0, len(letters), 13)]
    entries = b""
    for index, piece in reversed(list(enumerate(pieces, start=1))):
        text = piece.encode("utf-16-le").ljust(26, b"\xff")
        order = index | (0x40 if index == len(pieces) else 0)
        entries += struct.pack(
            "<B10sBBB12sH4s", order, text[:10], 0x0F, 0, checksum, text[10:22], 0, text[22:]
        )
    return entries
