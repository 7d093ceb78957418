"""Extend the last partition of a disk to the end of the disk. The file system grows in the guest.

Supports DOS tables and GUID tables; a disk without a table is not changed. cloud-init and most
systems enlarge a file system that is smaller than its partition when they boot.

Source: UEFI specification, chapter 5 (GUID Partition Table).
"""

import os
import struct
import zlib
from typing import BinaryIO

SECTOR = 512
_GPT = b"EFI PART"
_PROTECTIVE = 0xEE
_EXTENDED = (0x05, 0x0F, 0x85)
_HEADER = struct.Struct("<8sIIIIQQQQ16sQIII")
# Partitions end on a multiple of this number of sectors, as partitioning programs do it.
_ALIGN = 2048
_MOST_ENTRIES = 1024
_ENTRY_SIZES = (128, 256, 512)


def grow(path: str) -> str:
    """Enlarge the last partition of a disk, and return a text for the log about the change."""
    with open(path, "r+b") as disk:
        sectors = disk.seek(0, os.SEEK_END) // SECTOR
        first = _read(disk, 0, 1)
        if first[510:] != b"\x55\xaa":
            return "no partition table"
        if first[450] == _PROTECTIVE:
            done = _grow_gpt(disk, sectors)
        else:
            done = _grow_dos(disk, first, sectors)
        disk.flush()
        os.fsync(disk.fileno())
        return done


def last(path: str) -> tuple[int, int]:
    """Return begin and length in bytes of the last partition, or of the disk without a table."""
    with open(path, "rb") as disk:
        size = disk.seek(0, os.SEEK_END)
        first = _read(disk, 0, 1)
        if first[510:] != b"\x55\xaa":
            return 0, size
        if first[450] == _PROTECTIVE:
            fields = _HEADER.unpack_from(_read(disk, 1, 1))
            at, count, entry_size = fields[10], fields[11], fields[12]
            if (
                fields[0] != _GPT
                or not 0 < count <= _MOST_ENTRIES
                or entry_size not in _ENTRY_SIZES
            ):
                return 0, 0
            table = _read(disk, at, -(-count * entry_size // SECTOR))
            spans = [
                struct.unpack_from("<QQ", table, n * entry_size + 32)
                for n in range(count)
                if any(table[n * entry_size : n * entry_size + 16])
            ]
            start, end = max(spans, default=(0, -1))
            return start * SECTOR, (end - start + 1) * SECTOR
        entries = [struct.unpack_from("<II", first, 446 + 16 * n + 8) for n in range(4)]
        start, length = max(((a, n) for a, n in entries if n), default=(0, 0))
        return start * SECTOR, length * SECTOR


def _read(disk: BinaryIO, sector: int, count: int) -> bytes:
    disk.seek(sector * SECTOR)
    return disk.read(count * SECTOR)


def _grow_dos(disk: BinaryIO, table: bytes, sectors: int) -> str:
    entries = [struct.unpack_from("<B3sB3sII", table, 446 + 16 * n) for n in range(4)]
    used = [n for n in range(4) if entries[n][2] and entries[n][5]]
    if not used:
        return "no partition"
    last = max(used, key=lambda n: entries[n][4])
    flag, chs, kind, chs_end, start, length = entries[last]
    if kind in _EXTENDED:
        return "the last partition is an extended one and is not changed"
    wanted = min(sectors - start, 0xFFFFFFFF)
    if wanted <= length:
        return f"partition {last + 1} extends to the end of the disk already"
    disk.seek(446 + 16 * last)
    disk.write(struct.pack("<B3sB3sII", flag, chs, kind, chs_end, start, wanted))
    return f"partition {last + 1} grew from {length >> 11} to {wanted >> 11} MiB"


def _grow_gpt(disk: BinaryIO, sectors: int) -> str:
    raw = _read(disk, 1, 1)
    fields = list(_HEADER.unpack_from(raw))
    (
        magic,
        _,
        header_size,
        crc,
        _,
        _,
        _,
        first_usable,
        _,
        _,
        table_at,
        count,
        entry_size,
        table_crc,
    ) = fields
    if magic != _GPT or not 92 <= header_size <= SECTOR:
        return "no valid GUID partition table"
    if zlib.crc32(raw[:16] + bytes(4) + raw[20:header_size]) != crc:
        return "the GUID partition table is damaged and is not changed"
    if not 0 < count <= _MOST_ENTRIES or entry_size not in _ENTRY_SIZES:
        return "the GUID partition table has an unusual size and is not changed"
    table_sectors = -(-count * entry_size // SECTOR)
    table = bytearray(_read(disk, table_at, table_sectors)[: count * entry_size])
    if zlib.crc32(table) != table_crc:
        return "the GUID partition table is damaged and is not changed"
    last_usable = sectors - 2 - table_sectors
    spans = {
        n: struct.unpack_from("<QQ", table, n * entry_size + 32)
        for n in range(count)
        if any(table[n * entry_size : n * entry_size + 16])
    }
    done = "no partition"
    if spans:
        last = max(spans, key=lambda n: spans[n][0])
        start, end = spans[last]
        wanted = (last_usable + 1) // _ALIGN * _ALIGN - 1
        done = f"partition {last + 1} extends to the end of the disk already"
        if wanted > end:
            struct.pack_into("<Q", table, last * entry_size + 40, wanted)
            done = (
                f"partition {last + 1} grew from {(end - start + 1) >> 11} to "
                f"{(wanted - start + 1) >> 11} MiB"
            )
    if last_usable < first_usable or last_usable < max(
        (end for _, end in spans.values()), default=0
    ):
        return "the disk is too small for its GUID partition table"
    table_crc = zlib.crc32(table)
    padded = bytes(table) + bytes(table_sectors * SECTOR - len(table))

    def header(own: int, other: int, at: int) -> bytes:
        packed = _HEADER.pack(
            magic,
            fields[1],
            header_size,
            0,
            0,
            own,
            other,
            first_usable,
            last_usable,
            fields[9],
            at,
            count,
            entry_size,
            table_crc,
        )
        packed += raw[_HEADER.size : header_size]
        return (packed[:16] + struct.pack("<I", zlib.crc32(packed)) + packed[20:]).ljust(
            SECTOR, b"\0"
        )

    # The copy at the end is written first, so that one of the two is valid at every moment.
    disk.seek((sectors - 1 - table_sectors) * SECTOR)
    disk.write(padded + header(sectors - 1, 1, sectors - 1 - table_sectors))
    disk.flush()
    os.fsync(disk.fileno())
    disk.seek(table_at * SECTOR)
    disk.write(padded)
    disk.seek(SECTOR)
    disk.write(header(1, sectors - 1, table_at))
    # The protective partition of the DOS table covers the whole disk.
    disk.seek(446 + 12)
    disk.write(struct.pack("<I", min(sectors - 1, 0xFFFFFFFF)))
    return done
